"""Reader groups: readers, in any number of processes, that share the segments of streams (Pravega: ReaderGroup).

The methods of the PyPI package `pravega` behave as there. A group's state is one entry of a table in the container of
the group's name, changed only with its version as condition (see group_state for the state itself).

Events are delivered at least once. A reader records what it has released every few seconds while it is used, and when
it goes offline; what was delivered and not recorded is delivered again after a crash. A reader that is not heard of for
the time of the lease is taken for gone by the others, and they share its segments. Such a zombie records nothing more,
and it delivers nothing more either: when it may have lost its lease, by its own clock and counted from before it last
recorded, it asks the group before it gives out another event.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import threading
import uuid
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from chunkstore import StorageError
from engine.container import Container
from engine.errors import BadKeyVersion, EngineError, OutcomeUnknown, SegmentNotFound, SegmentTruncated
from engine.log import boot_time
from engine.operations import PutEntry
from engine.root import Root
from engine.state import NOT_EXISTS
from pravega_spark.client.event_file import check_limit
from pravega_spark.client.group_state import (
    GroupSegment,
    GroupState,
    Leases,
    ReaderOffline,
    RetentionType,
    followers,
    places,
)
from pravega_spark.client.reader import FetchedWhenAsked, Unread, pointer_of
from pravega_spark.errors import InvalidStreamCut, StreamError, TruncatedData
from pravega_spark.streams.cuts import UNBOUNDED, StreamCut
from pravega_spark.streams.events import HEADER_SIZE, MAX_EVENT_SIZE
from pravega_spark.streams.names import container_of, validate_scope_name, validate_stream_name
from pravega_spark.streams.pointers import EventPointer
from pravega_spark.streams.scan import SliceReader, plan_slice
from pravega_spark.streams.snapshot import Snapshot
from pravega_spark.streams.stream import Stream
from pravega_spark.streams.subscribers import release, subscribe, unsubscribe

logger = logging.getLogger(__name__)

GROUPS = "_system/groups"
"""The table: `<scope>/<group>` -> the group's state."""

SLICE_BYTES = 8 << 20
"""How much of a segment a slice holds, about (Pravega: READ_BUFFER_SIZE)."""

REFRESH = 3.0
"""Seconds: how often a reader that is used records its positions and looks at its group (Pravega:
groupRefreshTimeMillis)."""

RELEASE_INTERVAL = 30.0
"""Seconds between two releases of a group with automatic retention (Pravega: automaticCheckpointIntervalMillis)."""

PATIENCE = 1.0
"""Seconds for which `get_segment_slice_async` waits for events before it returns an empty slice."""

POLL = 0.1
"""Seconds between two looks meanwhile."""

THREADS = 8
"""Of a group in one process, at most; made when there is something to do."""

Step = Callable[[GroupState], GroupState]


class GroupNotFound(StreamError, ValueError):
    """There is no reader group of that name."""

    def __init__(self, group: str) -> None:
        super().__init__(f"Reader group does not exist: {group}. Create it first.")
        self.group = group

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.group,)


# --- values ------------------------------------------------------------------------------------------------------


class StreamReaderGroupConfig:
    """What a new reader group reads, and from where.

    read_from_tail: begin at the end of the streams instead of at their heads. start: cuts to begin at, for some or all
    of the streams. retention: whether the group holds back the streams' retention: `none`; `manual` by the cuts given
    to `update_retention_stream_cut`; `automatic` by what it has read. lease: seconds after which a reader that is not
    heard of is taken for gone, by default 60. Raises ValueError without a stream.
    """

    def __init__(
        self,
        read_from_tail: bool,
        scope_name: str,
        *stream_names: str,
        retention: RetentionType = "none",
        lease: float | None = None,
        start: Sequence[StreamCut] = (),
    ) -> None:
        if not stream_names:
            raise ValueError("No Pravega Streams present in the ReaderGroupConfiguration")
        if lease is not None and not 0 < lease < math.inf:
            raise ValueError(f"lease must be a number of seconds above 0, not {lease!r}")
        if retention not in ("none", "manual", "automatic"):
            raise ValueError(f"retention is 'none', 'manual' or 'automatic', not {retention!r}")
        scope = validate_scope_name(scope_name)
        self.read_from_tail = read_from_tail
        self.streams = tuple(dict.fromkeys(f"{scope}/{validate_stream_name(name)}" for name in stream_names))
        self.retention = retention
        self.lease = lease
        self.start = {f"{cut.scope}/{cut.stream}": cut for cut in start if cut != UNBOUNDED}
        foreign = sorted(set(self.start) - set(self.streams))
        if foreign:
            raise InvalidStreamCut(f"a stream cut of {foreign[0]} was given, but the group reads {self.streams}")

    def to_str(self) -> str:
        """The configuration as text."""
        begin = "tail" if self.read_from_tail else "head"
        return f"ReaderGroupConfig: {', '.join(self.streams)} from {begin}, retention {self.retention}"

    def __repr__(self) -> str:
        return f"StreamReaderGroupConfig({self.to_str()!r})"


class StreamCuts:
    """The cut that `get_streamcut` returns; `create_reader_group` takes it. `stream_cut`: the same as a StreamCut."""

    def __init__(self, stream_cut: StreamCut) -> None:
        self.stream_cut = stream_cut

    def get_segment_offset_map(self) -> dict[int, int]:
        """The offset of each segment, by its id."""
        return dict(self.stream_cut.positions)

    def to_str(self) -> str:
        """The cut as text for people."""
        return f"StreamCuts: {self.stream_cut}"

    def __repr__(self) -> str:
        return f"StreamCuts({self.to_str()!r})"


class EventData(NamedTuple):
    """An event that a reader was given: its payload, and the offset in its segment at which its header lies."""

    value: bytes
    scope: str
    stream: str
    segment_id: int
    start: int

    def data(self, limit: int | None = None) -> bytes:
        """The payload. Raises EventTooLarge if it has more than `limit` bytes."""
        check_limit(self.pointer, limit)
        return self.value

    def offset(self) -> int:
        """Where it lies in its segment."""
        return self.start

    @property
    def size(self) -> int:
        """Bytes of the payload."""
        return len(self.value)

    @property
    def pointer(self) -> EventPointer:
        """The place of the event, by which it can be found again."""
        return EventPointer(self.scope, self.stream, self.segment_id, self.start, HEADER_SIZE + self.size)

    def to_str(self) -> str:
        """The event as text for people."""
        return f"offset {self.start} data :{self.value!r}"

    def __repr__(self) -> str:
        return f"EventData({self.to_str()})"


class LargeEventData(FetchedWhenAsked, EventData):
    """An event of more than 8 MiB: its payload is fetched when it is asked for, each time (see reader.LargeEvent)."""

    __slots__ = ()

    @property
    def value(self) -> bytes:
        """The payload."""
        return self._unread.open().whole()

    def to_str(self) -> str:
        """The event as text for people."""
        return f"offset {self.start} data: {self.size} bytes that were not read"


class _Span:
    """The part of a segment that is out in a slice: how far its events were taken, and what became of it."""

    __slots__ = ("end", "lost", "position", "returned")

    def __init__(self, start: int, end: int) -> None:
        self.position = start
        self.end = end
        self.returned = False
        self.lost = False


class Slice:
    """Consecutive events of a segment: an iterator of EventData. Made by a reader; empty when there was nothing.

    It ends early when the group was reset meanwhile, or the segment truncated: those events come again, or are gone.
    Iterating raises ReaderOffline when the reader has lost its segments.
    """

    def __init__(self, reader: StreamReader, span: _Span, events: Iterator[tuple[EventData, int]]) -> None:
        self._reader = reader
        self._span = span
        self._events = events

    def __iter__(self) -> Slice:
        return self

    def __next__(self) -> EventData:
        span = self._span
        if span.returned or span.position >= span.end:
            raise StopIteration
        self._reader._keep_lease()
        if span.lost:
            raise StopIteration
        event, end = next(self._events)
        span.position = end
        return event


# --- where the state lies ----------------------------------------------------------------------------------------


class _Entry:
    """The entry that holds a group's state."""

    def __init__(self, root: Root, key: str) -> None:
        self._root = root
        self.key = key
        self._number = container_of(key, root.config.containers)

    @property
    def _container(self) -> Container:
        return self._root.container(self._number)

    def read(self) -> tuple[GroupState | None, int]:
        """The state as it is now, None if there is none, and the entry's version."""
        container = self._container
        entry = container.entries(GROUPS, [self.key], container.refresh())[self.key]
        if entry is None or entry.value is None:
            return None, entry.version if entry is not None else NOT_EXISTS
        return GroupState.decode(entry.value, self.key), entry.version

    def state(self) -> GroupState:
        """The state as it is now. Raises GroupNotFound."""
        state = self.read()[0]
        if state is None:
            raise GroupNotFound(self.key)
        return state

    def create(self, state: GroupState) -> GroupState:
        """Store a first state, unless there is one. Returns the one that is there then."""
        while True:
            known = self.read()[0]
            if known is not None:
                return known
            with suppress(BadKeyVersion, OutcomeUnknown):
                self._container.commit([PutEntry(GROUPS, self.key, state.encode(), NOT_EXISTS)])

    def change(self, step: Step) -> GroupState:
        """Carry out a step on the state as it is; again if somebody was faster. Raises GroupNotFound, what `step` does.

        It may be carried out twice, when it is not known whether it was stored.
        """
        while True:
            known, version = self.read()
            if known is None:
                raise GroupNotFound(self.key)
            state = step(known)
            if state == known:
                return state
            with suppress(BadKeyVersion, OutcomeUnknown):
                self._container.commit([PutEntry(GROUPS, self.key, state.encode(), version)])
                return state

    def delete(self) -> GroupState:
        """Remove the state. Returns what it was. Raises GroupNotFound."""
        while True:
            known, version = self.read()
            if known is None:
                raise GroupNotFound(self.key)
            with suppress(BadKeyVersion):
                self._container.commit([PutEntry(GROUPS, self.key, None, version)])
                return known


# --- the group ---------------------------------------------------------------------------------------------------


class StreamReaderGroup:
    """A reader group. Made by `StreamManager.create_reader_group`, which also closes it. Thread-safe.

    Its methods, and those of its readers that are not asynchronous, wait for the storage. They raise GroupNotFound when
    the group was deleted, and StorageError. Belongs to the process that made it.
    """

    def __init__(self, root: Root, scope: str, name: str, clock: Callable[[], float] = boot_time) -> None:
        self.root = root
        self.scope = scope
        self.name = name
        self.clock = clock
        self.entry = _Entry(root, f"{scope}/{name}")
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._readers: list[StreamReader] = []
        self._released = clock()

    @classmethod
    def create(
        cls, root: Root, scope: str, name: str, config: StreamReaderGroupConfig, clock: Callable[[], float] = boot_time
    ) -> StreamReaderGroup:
        """Make a group, or take the one of that name, which goes on where it is, whatever the start in `config`.

        Raises StreamNotFound, InvalidStreamCut for a start that is no cut of its stream, and StreamError for a group of
        that name that reads other streams, or was made with another retention or lease than the one given.
        """
        group = cls(root, validate_scope_name(scope), _checked_name(name), clock)
        state = group.entry.read()[0] or group.entry.create(group._begun(config))
        if (
            set(state.streams) != set(config.streams)
            or config.retention not in ("none", state.retention)
            or config.lease not in (None, state.lease)
        ):
            raise StreamError(
                f"reader group {group.entry.key} exists already, with streams {', '.join(state.streams)}, retention "
                f"{state.retention!r} and a lease of {state.lease} s. Give the same, or delete it first"
            )
        if state.retention != "none":
            group._subscribe(state)
        return group

    def _begun(self, config: StreamReaderGroupConfig) -> GroupState:
        """The first state: nobody reads, and all segments of the starting cuts are free."""
        state = GroupState(config.streams, config.retention)
        if config.lease is not None:
            state = replace(state, lease=float(config.lease))
        for key in config.streams:
            snapshot = self.stream(key).snapshot()
            cut = config.start.get(key) or (snapshot.tail_cut() if config.read_from_tail else snapshot.head_cut())
            state = state.reset(key, _start(snapshot, cut))
        return state

    def _subscribe(self, state: GroupState, *, anew: bool = False) -> None:
        for cut in state.cuts():
            subscribe(self.stream(f"{cut.scope}/{cut.stream}"), self._subscriber(cut), cut, anew=anew)

    def _subscriber(self, cut: StreamCut) -> str:
        """What the group is called among the subscribers of a stream: with its scope where that is another one."""
        return self.name if cut.scope == self.scope else self.entry.key

    @staticmethod
    def delete(root: Root, scope: str, name: str) -> None:
        """Delete a group; its readers are offline then. Raises GroupNotFound."""
        group = StreamReaderGroup(root, validate_scope_name(scope), _checked_name(name))
        for cut in group.entry.delete().cuts():
            unsubscribe(group.stream(f"{cut.scope}/{cut.stream}"), group._subscriber(cut))

    @staticmethod
    def names(root: Root, scope: str) -> list[str]:
        """The names of a scope's groups, sorted (Pravega: ReaderGroupManager; Controller.listReaderGroups)."""
        prefix, found = f"{validate_scope_name(scope)}/", []
        for number in range(root.config.containers):
            container = root.container(number)
            container.refresh()
            found += [key.removeprefix(prefix) for key, _ in container.scan_entries(GROUPS, prefix)]
        return sorted(found)

    def stream(self, key: str) -> Stream:
        """A stream by its "scope/stream"."""
        scope, _, name = key.partition("/")
        return Stream(self.root, scope, name)

    # --- readers -----------------------------------------------------------------------------------------------

    def create_reader(self, reader_name: str) -> StreamReader:
        """A reader of that name, with its share of the segments. Raises ReaderOnline."""
        self.check_process()
        reader = StreamReader(self, reader_name)
        with self._lock:
            self._readers = [other for other in self._readers if not other.offline]
            self._readers.append(reader)
        return reader

    def reader_offline(self, reader_name: str) -> None:
        """Let others have a reader's segments, from where it has recorded. Nothing happens if it is offline already.

        For a reader whose process has ended. One that runs finds out when it next looks at the group, within seconds.
        """
        with self._lock:
            mine = [reader for reader in self._readers if reader.name == reader_name and not reader.offline]
        for reader in mine:
            reader.reader_offline()
        self.entry.change(lambda state: state.left(reader_name))

    def online_readers(self) -> list[str]:
        """The names of the readers that belong to the group now (Pravega: list_readers)."""
        return sorted(self.entry.state().readers)

    def close(self) -> None:
        """Take the readers that were made here offline, and end the threads. Raises the first failure of a reader."""
        failures: list[Exception] = []
        if self._pid == os.getpid():
            for reader in list(self._readers):
                try:
                    reader.reader_offline()
                except Exception as error:
                    failures.append(error)
            if self._pool is not None:
                self._pool.shutdown()
        if failures:
            raise failures[0]

    # --- cuts --------------------------------------------------------------------------------------------------

    def get_streamcut(self) -> StreamCuts:
        """What the group has read of its first stream. See `stream_cuts`."""
        return StreamCuts(self._recorded().cuts()[0])

    def stream_cuts(self) -> dict[str, StreamCut]:
        """What the group has read, by "scope/stream": what its readers have recorded, those of this process now."""
        return _by_stream(self._recorded().cuts())

    def checkpoint(self, name: str) -> dict[str, StreamCut]:
        """Remember, under a name, what the group has read; with automatic retention that is released, too.

        Returns the same as `stream_cuts`. The last 16 checkpoints are kept, with the group.
        """
        self._recorded()
        state = self.entry.change(lambda state: state.checkpointed(name))
        if state.retention == "automatic":
            self._release(state)
        return _by_stream(state.checkpoints[name])

    def checkpoints(self) -> dict[str, dict[str, StreamCut]]:
        """The checkpoints that are remembered, the oldest first."""
        return {name: _by_stream(cuts) for name, cuts in self.entry.state().checkpoints.items()}

    def reset(self, cuts: Mapping[str, StreamCut] | StreamCut) -> None:
        """Go on reading at other cuts: one, or some by "scope/stream" as `checkpoint` returns them.

        Slices that readers have of these streams end, at the latest some seconds later. Raises InvalidStreamCut.
        """
        given = [cuts] if isinstance(cuts, StreamCut) else list(cuts.values())
        foreign = sorted({f"{cut.scope}/{cut.stream}" for cut in given} - set(self.entry.state().streams))
        if foreign:
            raise InvalidStreamCut(f"reader group {self.entry.key} does not read {foreign[0]}")
        starts = {f"{cut.scope}/{cut.stream}": cut for cut in given}
        found = {key: _start(self.stream(key).snapshot(), cut) for key, cut in starts.items()}

        def step(state: GroupState) -> GroupState:
            for key, positions in found.items():
                state = state.reset(key, positions)
            return state

        state = step(self.entry.state())
        if state.retention == "automatic":
            self._subscribe(state, anew=True)  # first, so that nothing is truncated that is to be read again
        self.entry.change(step)

    def update_retention_stream_cut(self, cut: StreamCut) -> None:
        """Let the retention of a stream go up to this cut, for a group with manual retention.

        Raises ValueError for another group, InvalidStreamCut for a cut behind the last one or of another stream.
        """
        state = self.entry.state()
        key = f"{cut.scope}/{cut.stream}"
        if state.retention != "manual":
            raise ValueError(f"reader group {self.entry.key} has retention {state.retention!r}, not 'manual'")
        if key not in state.streams:
            raise InvalidStreamCut(f"reader group {self.entry.key} does not read {key}")
        release(self.stream(key), self._subscriber(cut), cut)

    def release_if_due(self, state: GroupState) -> None:
        """With automatic retention, release from time to time what the group has recorded."""
        if state.retention == "automatic" and self.clock() - self._released >= RELEASE_INTERVAL:
            self._released = self.clock()
            self._release(state)

    def _release(self, state: GroupState) -> None:
        for cut in state.cuts():
            with suppress(InvalidStreamCut):  # another reader has released more meanwhile
                release(self.stream(f"{cut.scope}/{cut.stream}"), self._subscriber(cut), cut)

    def unread_bytes(self) -> int:
        """How many bytes, event headers included, lie behind what the group has recorded (Pravega:
        ReaderGroupMetrics.unreadBytes)."""
        cuts = _by_stream(self._recorded().cuts())
        return sum(self.stream(key).look(partial(_unread, cut)) for key, cut in cuts.items())

    def _recorded(self) -> GroupState:
        """The state, after all readers of this process have recorded what they have read."""
        self.check_process()
        for reader in list(self._readers):
            with suppress(ReaderOffline):
                reader.record()
        return self.entry.state()

    # --- threads -----------------------------------------------------------------------------------------------

    def pool(self) -> ThreadPoolExecutor:
        """The threads that do the storage work of asynchronous methods."""
        self.check_process()
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(THREADS, f"reader-group {self.entry.key}")
            return self._pool

    def check_process(self) -> None:
        """Raise RuntimeError in a process that was forked from the one that made this: both would read the same."""
        if self._pid != os.getpid():
            raise RuntimeError(
                f"reader group {self.entry.key} was opened before the process forked: open it again, with other readers"
            )

    def to_str(self) -> str:
        """The group as text for people."""
        return f"ReaderGroup: {self.entry.key!r}"

    def __repr__(self) -> str:
        return f"StreamReaderGroup({self.to_str()})"


def _checked_name(name: str) -> str:
    try:
        return validate_stream_name(name)
    except ValueError as error:
        raise ValueError(f"{name!r} cannot be the name of a reader group: {error}") from None


def _by_stream(cuts: Sequence[StreamCut]) -> dict[str, StreamCut]:
    return {f"{cut.scope}/{cut.stream}": cut for cut in cuts}


def _start(snapshot: Snapshot, cut: StreamCut) -> dict[GroupSegment, int]:
    """Where a group begins that begins at a cut. Raises InvalidStreamCut."""
    snapshot.check(cut)
    gone = snapshot.record.history.gone(cut.positions)
    if gone:
        raise InvalidStreamCut(
            f"stream cut {cut}: segment {gone[0]} of {snapshot.stream.key} has been truncated away; begin at the head"
        )
    for number, offset in cut.positions.items():
        if offset > snapshot.segment(number).start_offset and not snapshot.is_boundary(number, offset):
            raise InvalidStreamCut(f"stream cut {cut}: no event of segment {number} begins at offset {offset}")
    return places(snapshot.record.history, cut)


def _unread(cut: StreamCut, snapshot: Snapshot) -> int:
    found, _ = snapshot.available(snapshot.ranges(cut, snapshot.tail_cut()), fail_on_data_loss=False)
    return sum(high - low for low, high in found.values())


# --- readers -----------------------------------------------------------------------------------------------------


class StreamReader:
    """A reader of a group. Made by `StreamReaderGroup.create_reader`; take it offline in the end.

    Any number of readers may be used in one event loop. A reader that was not used for the time of the lease, while it
    has a slice or not, may lose its segments to others; then its methods raise ReaderOffline.
    """

    def __init__(self, group: StreamReaderGroup, name: str) -> None:
        self.group = group
        self.name = name
        self.offline = False
        self._token = uuid.uuid4().hex
        self._lock = threading.Lock()
        self._positions: dict[GroupSegment, int] = {}  # of its segments, in the order in which they are looked at
        self._recorded: dict[GroupSegment, int] = {}
        self._out: dict[GroupSegment, tuple[_Span, weakref.ref[Slice]]] = {}
        self._ready: deque[Slice] = deque()  # made, and not given out yet
        self._streams: dict[str, Stream] = {}
        self._lost: deque[TruncatedData] = deque()  # of which the user is to be told
        self._leases = Leases()
        self._heard = self._looked = group.clock()
        self._in_background = threading.Event()
        joined = group.entry.change(lambda state: state.joined(name, self._token).balanced(name))
        self._lease = joined.lease
        self._adopt(joined.readers[name].positions, set())

    def __repr__(self) -> str:
        return f"StreamReader({self.to_str()})"

    def to_str(self) -> str:
        """The reader as text for people."""
        return f"Reader: {self.name!r} of {self.group.entry.key!r}"

    # --- reading -----------------------------------------------------------------------------------------------

    async def get_segment_slice_async(self) -> Slice:
        """The next events of any one of the reader's segments; an empty slice when there are none for a second.

        A slice is returned by `release_segment`, when it is dropped, or when all its events were taken and this method
        is called again; until then, no more events come from its segment. A call that is cancelled loses nothing.

        Raises ReaderOffline; TruncatedData once where events were truncated away before they were read, the next call
        goes on behind them; StreamNotFound, DataCorruption, StorageError.
        """
        self._check_online()
        loop = asyncio.get_running_loop()
        until = loop.time() + PATIENCE
        while True:
            await loop.run_in_executor(self.group.pool(), self._advance)
            with suppress(IndexError):
                return self._ready.popleft()
            if loop.time() >= until:
                return Slice(self, _Span(0, 0), iter(()))
            await asyncio.sleep(POLL)

    def _advance(self) -> None:
        """Make a slice, if there is something to read."""
        with self._lock:
            self._check_online()
            if self._lost:
                raise self._lost.popleft()
            if self._ready:
                return
            for segment, (span, slice_) in list(self._out.items()):
                if span.returned or slice_() is None or span.position == span.end:
                    self._take_back(segment)
            if self.group.clock() - self._looked >= REFRESH:
                self._look_at_group()
            made = self._read(fresh=False) or self._read(fresh=True)
            if self._lost:
                raise self._lost.popleft()
            if not made:
                self._look_at_group()
                self._read(fresh=False)  # what it has been given just now

    def _take_back(self, segment: GroupSegment) -> None:
        """Go on behind what was taken from a slice, when it is the segment's turn again."""
        span, _ = self._out.pop(segment)
        span.returned = True
        del self._positions[segment]
        self._positions[segment] = span.position

    def _read(self, fresh: bool) -> bool:
        """Make a slice of a segment that has events, by what this process knows or, `fresh`, by what is there now."""
        streams = {key: self._stream(key) for key in {segment.stream for segment in self._positions}}
        if fresh:
            for container in {stream.number: stream.container for stream in streams.values()}.values():
                container.refresh()
        snapshots = {key: stream.snapshot(refresh=False) for key, stream in streams.items()}
        for segment in [one for one in self._positions if one not in self._out]:
            if segment in self._positions and self._read_one(segment, snapshots[segment.stream], fresh):
                return True
        return False

    def _stream(self, key: str) -> Stream:
        """A stream, the same object every time: it remembers what it has decoded."""
        if key not in self._streams:
            self._streams[key] = self.group.stream(key)
        return self._streams[key]

    def _read_one(self, segment: GroupSegment, snapshot: Snapshot, fresh: bool) -> bool:
        position = self._positions[segment]
        if segment.id not in snapshot.record.history.segments:
            if fresh:
                self._skip_truncated(snapshot.stream)
            return False
        known = snapshot.segment(segment.id)
        if known.start_offset <= position < known.length:
            return self._fetch(segment, snapshot, position, known.length)
        if not fresh:
            return False
        if position < known.start_offset:
            self._positions[segment] = known.start_offset
            raise TruncatedData(segment.stream, segment.id, position, known.start_offset)
        if position > known.length:
            raise StreamError(
                f"reader group {self.group.entry.key} has read segment {segment.id} of {segment.stream} up to offset "
                f"{position}, but it ends at {known.length}: the stream was restored to an earlier state. Reset the "
                "group to a stream cut"
            )
        if following := followers(snapshot.record.history, segment.stream, segment.id):
            self._record(lambda state: state.ended(self.name, self._token, segment, following))
        return False

    def _fetch(self, segment: GroupSegment, snapshot: Snapshot, position: int, end: int) -> bool:
        """Read about SLICE_BYTES, to the end of an event. False if they were truncated away meanwhile."""
        if end - position > SLICE_BYTES * 5 // 4:
            record = snapshot.index(segment.id).locate_offset(position + SLICE_BYTES)
            end = min(end, record.offset) if record is not None else end
        stream = snapshot.stream
        blocks: list[_Block] = []
        with suppress(TruncatedData, SegmentTruncated, SegmentNotFound):
            planned = plan_slice(snapshot, segment.id, position, end)
            for events in SliceReader(stream.root, stream.scope, stream.name, wanted=MAX_EVENT_SIZE).read([planned]):
                data = Unread(stream.root, pointer_of(stream, events)) if events.large else bytes(events.data)
                blocks.append((data, events.offset, events.starts.tolist(), events.lengths.tolist()))
            span = _Span(position, end)
            made = Slice(self, span, _events(stream, segment.id, blocks))
            self._out[segment] = span, weakref.ref(made)
            self._ready.append(made)
            return True
        return False

    def _skip_truncated(self, stream: Stream) -> None:
        """Go on at the head of a stream of which segments were deleted by truncation."""
        lost: dict[int, TruncatedData] = {}

        def step(state: GroupState) -> GroupState:
            record = stream.snapshot().record  # newer than `state`: what that names and this does not have is gone
            there, positions = record.history.segments, state.positions(stream.key)
            gone = {key for key in positions if key.id not in there}
            lost.clear()
            for key in sorted(gone):
                end = record.ended.get(key.id)
                if positions[key] != end:
                    lost[key.id] = TruncatedData(key.stream, key.id, positions[key], end)
            head = StreamCut(stream.scope, stream.name, record.head_positions())
            return state.truncated(gone, places(record.history, head))

        self._record(step)
        self._lost.extend(lost.values())

    # --- releasing ---------------------------------------------------------------------------------------------

    def release_segment(self, slice: Slice) -> None:
        """Return a slice: what was not taken of it is read again, by whoever gets the segment next.

        Raises ReaderOffline, ValueError for a slice of another reader. It does not wait for the storage.
        """
        if slice._reader is not self:
            raise ValueError(f"the slice belongs to {slice._reader!r}, not to {self!r}")
        if slice._span.end == 0 or slice._span.returned:
            return
        self._check_online()
        slice._span.returned = True
        if self.group.clock() - self._heard >= REFRESH:
            self._record_in_background()

    def reader_offline(self) -> None:
        """Leave the group. What was not released of slices is read again by others. Nothing happens the second time."""
        with self._lock:
            if self.offline:
                return
            self.group.check_process()
            self._take_returned()
            with suppress(GroupNotFound):
                self.group.entry.change(lambda state: state.left(self.name, self._token, self._positions))
            self._lose_all()

    def record(self) -> None:
        """Let the group know what was released. Raises ReaderOffline."""
        with self._lock:
            if not self.offline:
                self._take_returned()
                if self._positions != self._recorded:
                    self._record()

    def _take_returned(self) -> None:
        for segment, (span, _) in list(self._out.items()):
            if span.returned:
                self._take_back(segment)

    # --- the group ---------------------------------------------------------------------------------------------

    def _look_at_group(self) -> None:
        """Record what is to be recorded, take over from readers that are gone, give up and take segments."""
        now = self.group.clock()
        try:
            state = self.group.entry.state()
            state.owned(self.name, self._token)
        except (GroupNotFound, ReaderOffline):
            self._lose_all()
            raise ReaderOffline(self.name) from None
        self._looked = now
        if (
            now - self._heard >= self._lease / 3
            or (now - self._heard >= REFRESH and self._positions != self._recorded)
            or state.readers[self.name].positions.keys() != self._positions.keys()
            or self._leases.expired(state, now)
            or state.balanced(self.name, self._out) != state
        ):
            state = self._record()
        self.group.release_if_due(state)

    def _record(self, more: Step = lambda state: state) -> GroupState:
        """Change the group's state: positions, a step, and the fair share. Raises ReaderOffline."""
        begun = self.group.clock()
        kept: set[GroupSegment] = set()

        def step(state: GroupState) -> GroupState:
            for gone in self._leases.expired(state, begun):
                if gone[0] != self.name:
                    state = state.lapsed(*gone)
            state = more(state.recorded(self.name, self._token, self._positions))
            kept.clear()
            kept.update(state.owned(self.name, self._token).positions)
            return state.balanced(self.name, self._out)

        try:
            state = self.group.entry.change(step)
        except (GroupNotFound, ReaderOffline):
            self._lose_all()
            raise ReaderOffline(self.name) from None
        self._heard = begun
        self._adopt(state.readers[self.name].positions, kept)
        return state

    def _adopt(self, positions: Mapping[GroupSegment, int], kept: set[GroupSegment]) -> None:
        """Go by what the group says; slices of segments that the reader did not keep end."""
        for segment in [one for one in self._out if one not in kept]:
            self._out.pop(segment)[0].lost = True
        order = [*(one for one in self._positions if one in positions), *positions]
        self._positions = {segment: positions[segment] for segment in order}
        self._recorded = dict(self._positions)

    def _lose_all(self) -> None:
        self.offline = True
        for span, _ in self._out.values():
            span.lost = True
        self._out.clear()
        self._positions = {}
        self._ready.clear()

    def _check_online(self) -> None:
        self.group.check_process()
        if self.offline:
            raise ReaderOffline(self.name)

    # --- the lease ---------------------------------------------------------------------------------------------

    def _keep_lease(self) -> None:
        """Called before each event. Asks the group when others may have taken the reader for gone; seldom waits."""
        self._check_online()
        silent = self.group.clock() - self._heard
        if silent >= self._lease * 2 / 3:
            with self._lock:
                self._check_online()
                self._record()
        elif silent >= self._lease / 3:
            self._record_in_background()

    def _record_in_background(self) -> None:
        if not self._in_background.is_set():
            self._in_background.set()
            self.group.pool().submit(self._try_to_record)

    def _try_to_record(self) -> None:
        try:
            with self._lock:
                if not self.offline:
                    self._take_returned()
                    self._record()
        except (ReaderOffline, EngineError, StorageError) as error:
            logger.warning("%r could not record what it has read: %s", self, error)  # the next call tries again
        finally:
            self._in_background.clear()


_Block = tuple[bytes | Unread, int, list[int], list[int]]
"""Framed events, or a large one that was not read: content, offset, where each event begins, lengths of payloads."""


def _events(stream: Stream, segment: int, blocks: Sequence[_Block]) -> Iterator[tuple[EventData, int]]:
    """The events of framed blocks, each with the offset of the next one."""
    for data, offset, starts, lengths in blocks:
        if isinstance(data, Unread):
            unread: bytes = data  # type: ignore[assignment]
            yield LargeEventData(unread, stream.scope, stream.name, segment, offset), offset + data.pointer.length
            continue
        for start, length in zip(starts, lengths, strict=True):
            begin = start + HEADER_SIZE
            payload = data[begin : begin + length]
            yield EventData(payload, stream.scope, stream.name, segment, offset + start), offset + begin + length
