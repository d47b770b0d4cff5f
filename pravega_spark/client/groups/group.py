"""Reader groups: readers, in any number of processes, that share the segments of streams (Pravega: ReaderGroup).

The methods of the PyPI package `pravega` behave as there. This module has the operations on a group as a whole. Its
state is stored (see `state` and `entry`); readers of this process may have positions that are not recorded yet.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from chunkstore.decoding import encoded
from pravega_spark.client.groups.checkpoint_futures import CheckpointFutures
from pravega_spark.client.groups.config import StreamCuts, StreamReaderGroupConfig
from pravega_spark.client.groups.event_read import Position
from pravega_spark.client.groups.member import Member
from pravega_spark.client.groups.open_group import OpenGroup
from pravega_spark.client.groups.opening import first_state, start_places
from pravega_spark.client.groups.reader import SLICE_TIME, StreamReader, join
from pravega_spark.client.groups.state import GroupSegment, GroupState, ReaderOffline
from pravega_spark.errors import InvalidStreamCut
from pravega_spark.parameters import checks_parameters
from pravega_spark.quantities import DurationLike, SizeLike, parse_seconds, parse_size
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.reading.snapshot import Snapshot
from pravega_spark.streams.reading.stream_position import (
    CutLike,
    PositionLike,
    StreamPosition,
    cut_at,
    parse_cut,
    parse_position,
)


class SegmentDistribution(NamedTuple):
    """How the segments of a group are shared: their number by reader, and how many have no reader now."""

    readers: dict[str, int]
    unassigned: int


@checks_parameters(but=("__init__",))
class StreamReaderGroup:
    """A reader group. Made by `StreamManager.create_reader_group`, which also closes it. Thread-safe.

    Its methods, and the synchronous ones of its readers, wait for the storage. They raise GroupNotFound if the group
    was deleted, and StorageError. Must be used in the process that created it.
    """

    scope: str
    name: str

    def __init__(self, group: OpenGroup) -> None:
        self.scope = group.scope
        self.name = group.name
        self._group = group
        group.face = self
        self._entry = group.entry
        self._lock = threading.Lock()
        self._members: list[Member] = []
        self._waiting = CheckpointFutures(group)

    # --- readers -----------------------------------------------------------------------------------------------

    def create_reader(
        self,
        reader_name: str,
        *,
        slice_bytes: SizeLike | None = None,
        slice_events: int | None = None,
        slice_time: DurationLike | None = None,
    ) -> StreamReader:
        """Create a reader, with its share of the segments. Raises ReaderOnline; ValueError for a bound of 0 or less.

        A slice holds about `slice_bytes` (8 MiB; or "1MiB") and at most `slice_events` events (no limit), and ends
        `slice_time` (10 s; or "1m") after it was returned to the program. Events of the slice that a reader holds when
        its process is killed are read again by others.
        """
        self._group.check_process()
        encoded(reader_name, "reader")
        size = None if slice_bytes is None else parse_size(slice_bytes)
        seconds = SLICE_TIME if slice_time is None else parse_seconds(slice_time)
        for name, value in (("slice_bytes", size), ("slice_events", slice_events), ("slice_time", seconds)):
            if value is not None and value <= 0:
                raise ValueError(f"create_reader: {name} must be above 0, not {value!r}")
        member = join(self._group, reader_name, size)
        with self._lock:
            self._members = [other for other in self._members if not other.offline]
            self._members.append(member)
        return StreamReader(member, slice_events, seconds)

    def reader_offline(self, reader_name: str, position: Position | None = None) -> None:
        """Take a reader offline: other readers continue from its recorded positions, or from `position`, which
        `read_next_event` returned. Does nothing if it is offline already.

        For a reader whose process has ended. A running reader notices within seconds. Raises InvalidStreamCut for a
        position at which no event begins.
        """
        at = None if position is None else self._group.positions_at(position)
        with self._lock:
            mine = [member for member in self._members if member.name == reader_name and not member.offline]
        for member in mine:
            member.leave(at)
        self._entry.change(lambda state: state.left(reader_name, positions=at))

    def online_readers(self) -> list[str]:
        """The names of the online readers (Pravega: list_readers)."""
        return sorted(self._entry.state().readers)

    def segment_distribution(self) -> SegmentDistribution:
        """How many segments each online reader has, and how many have no reader (Pravega:
        getReaderSegmentDistribution)."""
        state = self._entry.state()
        counts = {name: len(reader.positions) for name, reader in sorted(state.readers.items())}
        return SegmentDistribution(counts, len(state.unassigned))

    def close(self) -> None:
        """Take the readers that this object created offline, and end its threads. Raises the first of their errors."""
        failures: list[Exception] = []
        if not self._group.forked():
            for member in list(self._members):
                try:
                    member.leave()
                except Exception as error:
                    failures.append(error)
            self._group.end_threads()
            self._waiting.close()
        if failures:
            raise failures[0]

    # --- cuts --------------------------------------------------------------------------------------------------

    def get_streamcut(self) -> StreamCuts:
        """The position of the group in its first stream. See `stream_cuts`."""
        return StreamCuts(self._recorded().cuts()[0])

    def stream_cuts(self) -> dict[str, StreamCut]:
        """The positions of the group by "scope/stream", as its readers recorded them. Readers of this process record
        theirs first."""
        return _by_stream(self._recorded().cuts())

    def checkpoint(self, name: str) -> dict[str, StreamCut]:
        """Store the group's positions under a name; with automatic retention, release them too.

        Returns the same as `stream_cuts`. The group keeps its last 16 checkpoints.
        """
        self._recorded()
        encoded(name, "checkpoint")
        state = self._entry.change(lambda state: state.checkpointed(name))
        if state.retention == "automatic":
            self._group.subscriptions.release_read(state)
        return _by_stream(state.checkpoints[name])

    def checkpoints(self) -> dict[str, dict[str, StreamCut]]:
        """The stored checkpoints, oldest first, those by `checkpoint` and those that readers passed."""
        return {name: _by_stream(cuts) for name, cuts in self._entry.state().checkpoints.items()}

    def initiate_checkpoint(self, name: str) -> Future[dict[str, StreamCut]]:
        """Have all online readers pass a checkpoint: each gets its event between two slices, and the positions at which
        they pass it are one cut of each stream.

        The future completes with these, which the group also keeps, as `checkpoint` does. It fails with
        CheckpointFailed if the checkpoint is cancelled or the group is reset. It is checked every half second; in an
        event loop, await `asyncio.wrap_future(future)`. While the group waits for a checkpoint of this name, another
        call waits for the same one. Raises TooManyCheckpoints. (Pravega: initiateCheckpoint.)
        """
        encoded(name, "checkpoint")
        return self._initiated(name)

    def generate_stream_cuts(self) -> Future[dict[str, StreamCut]]:
        """The positions of the group, as all online readers pass a silent checkpoint, for which they get no event.

        Unlike `stream_cuts` it has what they have read and not recorded. (Pravega: generateStreamCuts.) See
        `initiate_checkpoint`.
        """
        return self._initiated(None)

    def _initiated(self, name: str | None) -> Future[dict[str, StreamCut]]:
        self._group.check_process()
        run = uuid.uuid4().hex
        state = self._entry.change(lambda state: state.initiated(run, name))
        for member in list(self._members):
            member.look_soon()
        run = state.run_of(name) or run
        if run in state.runs.values():
            self._group.subscriptions.release_checkpoint(state)  # without readers it is complete
        return self._waiting.of(run, name or "of generate_stream_cuts", state)

    def outstanding_checkpoints(self) -> dict[str, list[str]]:
        """The checkpoints that the group waits for, oldest first, with the readers that have not passed them."""
        found = self._entry.state().outstanding.values()
        return {each.name: sorted(each.waiting) for each in found if each.name is not None}

    def cancel_outstanding_checkpoints(self) -> None:
        """Cancel the checkpoints that the group waits for: their futures fail, and readers get no event for them."""
        self._group.check_process()
        self._entry.change(lambda state: state.without_outstanding())
        for member in list(self._members):
            member.look_soon()

    def reset_reader_group(self, config: StreamReaderGroupConfig) -> None:
        """Give the group another configuration: other streams, starts, ends, retention, lease, or checkpoints.

        It begins as a new group does, without checkpoints. Its readers stay online: their slices end within seconds.
        (Pravega: resetReaderGroup.) Raises StreamNotFound, InvalidStreamCut.
        """
        begun = first_state(self._group, config)
        if begun.retention != "none":  # first, so that retention keeps what will be read
            self._group.subscriptions.begin(begun, restart=True)
        self._entry.change(lambda state: state.restarted(begun))
        self._group.subscriptions.end_everywhere(but=begun.streams if begun.retention != "none" else ())

    def reset(self, cuts: Mapping[str, PositionLike] | PositionLike | None = None) -> None:
        """Continue reading elsewhere: at a cut, at several by "scope/stream" as `checkpoint` returns them, or at
        another position, such as "earliest" or "1 h ago", in all streams. By default at the last checkpoint, or where
        the group began if there is none.

        Slices of these streams end within seconds, and outstanding checkpoints are cancelled. Raises InvalidStreamCut.
        """
        found = self._reset_positions(cuts)

        def step(state: GroupState) -> GroupState:
            for key, positions in found.items():
                state = state.reset(key, positions)
            return state

        state = step(self._entry.state())
        if state.retention == "automatic":
            self._group.subscriptions.begin(
                state, restart=True
            )  # first, so that retention keeps what will be read again
        self._entry.change(step)

    def planned_reset(self, cuts: Mapping[str, PositionLike] | PositionLike | None = None) -> dict[str, StreamCut]:
        """The cuts to which `reset` would go. Raises what that raises."""
        return {key: _cut_of(key, positions) for key, positions in self._reset_positions(cuts).items()}

    def _reset_positions(
        self, cuts: Mapping[str, PositionLike] | PositionLike | None
    ) -> dict[str, dict[GroupSegment, int]]:
        """The positions to which a reset goes, by stream."""
        self._group.check_process()
        known = self._entry.state()
        streams = known.streams
        if cuts is None:
            cuts = _by_stream(known.restart_cuts())
            if not cuts:
                raise ValueError(
                    f"reader group {self._entry.key} was made by an earlier version, which did not keep where it "
                    "began, and has no checkpoint: give cuts, or a place as 'earliest'"
                )
        starts = _starts(cuts, streams)
        foreign = sorted(set(starts) - set(streams))
        if foreign:
            raise InvalidStreamCut(f"reader group {self._entry.key} does not read {foreign[0]}")
        snapshots = {key: self._group.stream(key).snapshot() for key in starts}
        found = {key: start_places(snapshots[key], cut_at(place, snapshots[key])) for key, place in starts.items()}
        for key, positions in found.items():
            if (end := _end(known, key)) is not None:
                snapshots[key].ranges(_cut_of(key, positions), end)  # raises InvalidStreamCut if it lies before
        return found

    def update_retention_stream_cut(self, cut: CutLike) -> None:
        """Let retention truncate a stream up to this cut, for a group with manual retention.

        Raises ValueError if the group's retention is not manual, InvalidStreamCut for a cut before the last one.
        """
        state, cut = self._entry.state(), parse_cut(cut)
        key = f"{cut.scope}/{cut.stream}"
        if state.retention != "manual":
            raise ValueError(f"reader group {self._entry.key} has retention {state.retention!r}, not 'manual'")
        if key not in state.streams:
            raise InvalidStreamCut(f"reader group {self._entry.key} does not read {key}")
        self._group.subscriptions.release(cut)

    def unread_bytes(self) -> int:
        """LazyPayload bytes after the recorded positions, event headers included (Pravega:
        ReaderGroupMetrics.unreadBytes)."""
        state = self._recorded()
        cuts = _by_stream(state.cuts())
        return sum(self._group.stream(key).query(partial(_unread, cut, _end(state, key))) for key, cut in cuts.items())

    def _recorded(self) -> GroupState:
        """The state, after all readers of this process have recorded their positions."""
        self._group.check_process()
        for member in list(self._members):
            with suppress(ReaderOffline):
                member.record_returned()
        return self._entry.state()

    def to_str(self) -> str:
        """The group as text for people."""
        return f"ReaderGroup: {self._entry.key!r}"

    def __repr__(self) -> str:
        return f"StreamReaderGroup({self.to_str()})"


def _starts(cuts: Mapping[str, PositionLike] | PositionLike, streams: Sequence[str]) -> dict[str, StreamPosition]:
    """The positions by stream: of a mapping, of a cut's stream, or one position for all streams."""
    if isinstance(cuts, Mapping):
        return {key: parse_position(place) for key, place in cuts.items()}
    place = parse_position(cuts)
    keys = [f"{place.scope}/{place.stream}"] if isinstance(place, StreamCut) else streams
    return dict.fromkeys(keys, place)


def _by_stream(cuts: Sequence[StreamCut]) -> dict[str, StreamCut]:
    return {f"{cut.scope}/{cut.stream}": cut for cut in cuts}


def _cut_of(stream: str, positions: Mapping[GroupSegment, int]) -> StreamCut:
    scope, _, name = stream.partition("/")
    return StreamCut(scope, name, {key.id: offset for key, offset in positions.items()})


def _end(state: GroupState, stream: str) -> StreamCut | None:
    """Where the group ends in a stream."""
    found = {key: offset for key, offset in state.ends.items() if key.stream == stream}
    return _cut_of(stream, found) if found else None


def _unread(cut: StreamCut, end: StreamCut | None, snapshot: Snapshot) -> int:
    ranges = snapshot.ranges(cut, snapshot.tail_cut() if end is None else end)
    found, _ = snapshot.available(ranges, fail_on_data_loss=False)
    return sum(high - low for low, high in found.values())
