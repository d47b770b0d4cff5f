"""Reader groups: readers, in any number of processes, that share the segments of streams (Pravega: ReaderGroup).

The methods of the PyPI package `pravega` behave as there. Here is what is asked of a group as a whole; what it knows is
the state in its entry (see group_state and group_entry), and what its readers in this process have not recorded yet.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from engine.log import boot_time
from engine.root import Root
from pravega_spark.client.group_config import StreamCuts, StreamReaderGroupConfig
from pravega_spark.client.group_entry import GroupEntry
from pravega_spark.client.group_reader import StreamReader
from pravega_spark.client.group_state import GroupSegment, GroupState, ReaderOffline, places
from pravega_spark.client.open_group import OpenGroup
from pravega_spark.errors import InvalidStreamCut, StreamError
from pravega_spark.streams.cuts import StreamCut
from pravega_spark.streams.names import validate_scope_name, validate_stream_name
from pravega_spark.streams.snapshot import Snapshot


class StreamReaderGroup(OpenGroup):
    """A reader group. Made by `StreamManager.create_reader_group`, which also closes it. Thread-safe.

    Its methods, and those of its readers that are not asynchronous, wait for the storage. They raise GroupNotFound when
    the group was deleted, and StorageError. Belongs to the process that made it.
    """

    def __init__(self, root: Root, scope: str, name: str, clock: Callable[[], float] = boot_time) -> None:
        super().__init__(root, scope, name, clock)
        self._lock = threading.Lock()
        self._readers: list[StreamReader] = []

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
            group.subscriptions.begin(state)
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

    @staticmethod
    def delete(root: Root, scope: str, name: str) -> None:
        """Delete a group; its readers are offline then. Raises GroupNotFound."""
        group = StreamReaderGroup(root, validate_scope_name(scope), _checked_name(name))
        group.subscriptions.end(group.entry.delete())

    @staticmethod
    def names(root: Root, scope: str) -> list[str]:
        """The names of a scope's groups, sorted (Pravega: ReaderGroupManager; Controller.listReaderGroups)."""
        return GroupEntry.names(root, validate_scope_name(scope))

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
        if not self.forked():
            for reader in list(self._readers):
                try:
                    reader.reader_offline()
                except Exception as error:
                    failures.append(error)
            self.end_threads()
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
            self.subscriptions.release_read(state)
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
            self.subscriptions.begin(state, anew=True)  # first, so that nothing is truncated that is to be read again
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
        self.subscriptions.release(cut)

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
