"""Reader groups: readers, in any number of processes, that share the segments of streams (Pravega: ReaderGroup).

The methods of the PyPI package `pravega` behave as there. This module has the operations on a group as a whole. Its
state is stored (see `state` and `entry`); readers of this process may have positions that are not recorded yet.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from chunkstore.boot_clock import boot_time
from chunkstore.decoding import encoded
from engine.root import Root
from pravega_spark.client.groups.config import StreamCuts, StreamReaderGroupConfig
from pravega_spark.client.groups.entry import GroupEntry
from pravega_spark.client.groups.open_group import OpenGroup
from pravega_spark.client.groups.reader import SLICE_TIME, StreamReader
from pravega_spark.client.groups.state import GroupSegment, GroupState, ReaderOffline, SetBack, places
from pravega_spark.errors import InvalidStreamCut, PositionLost, StreamError, StreamNotFound
from pravega_spark.parameters import checks_parameters
from pravega_spark.quantities import DurationLike, SizeLike, parse_seconds, parse_size
from pravega_spark.segment_ids import segment_label
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.model.names import validate_scope_name, validate_stream_name
from pravega_spark.streams.reading.snapshot import Snapshot
from pravega_spark.streams.reading.stream_position import (
    CutLike,
    PositionLike,
    StreamPosition,
    cut_at,
    parse_cut,
    parse_position,
)

logger = logging.getLogger(__name__)


@checks_parameters(but=("create", "delete", "names", "__init__"))
class StreamReaderGroup(OpenGroup):
    """A reader group. Made by `StreamManager.create_reader_group`, which also closes it. Thread-safe.

    Its methods, and the synchronous ones of its readers, wait for the storage. They raise GroupNotFound if the group
    was deleted, and StorageError. Must be used in the process that created it.
    """

    def __init__(self, root: Root, scope: str, name: str, clock: Callable[[], float] = boot_time) -> None:
        super().__init__(root, scope, name, clock)
        self._lock = threading.Lock()
        self._readers: list[StreamReader] = []

    @classmethod
    def create(
        cls, root: Root, scope: str, name: str, config: StreamReaderGroupConfig, clock: Callable[[], float] = boot_time
    ) -> StreamReaderGroup:
        """Create a group, or open the existing one of this name, which keeps its positions.

        Raises StreamNotFound, InvalidStreamCut for a start that is not a cut of its stream, and StreamError if the
        group exists with other streams, or another retention or lease.
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
                f"{state.retention!r} and a lease of {state.lease} s. Use the same, or delete the group first"
            )
        state = group._placed(state)
        if state.retention != "none":
            group.subscriptions.begin(state)
        return group

    def _placed(self, state: GroupState) -> GroupState:
        """The state, with positions that were lost in a restore set back to the end of the restored data (P4).

        If that position cannot be determined, the group is unchanged and its readers raise an error.
        """
        for key in state.streams:
            cut = state.cut(key)
            with suppress(StreamNotFound, InvalidStreamCut):  # the stream is gone: its readers raise that
                snapshot = self.stream(key).snapshot()
                try:
                    snapshot.check(cut)
                except PositionLost as lost:
                    found = snapshot.restored(cut.positions)
                    if found is None:
                        continue
                    set_back = SetBack(int(time.time() * 1000), cut)
                    positions = places(snapshot.record.history, found)
                    state = self.entry.change(partial(_set_back, key, positions, set_back))
                    logger.warning("Reader group %s continues at %s. %s", self.entry.key, found, lost.fact)
        return state

    def _begun(self, config: StreamReaderGroupConfig) -> GroupState:
        """The first state: no readers, and all segments of the starting cuts unassigned."""
        state = GroupState(config.streams, config.retention)
        if config.lease is not None:
            state = replace(state, lease=float(config.lease))
        for key in config.streams:
            snapshot = self.stream(key).snapshot()
            cut = cut_at(config.start.get(key, "tail" if config.read_from_tail else "head"), snapshot)
            state = state.reset(key, _start(snapshot, cut))
        return state

    @staticmethod
    def delete(root: Root, scope: str, name: str) -> None:
        """Delete a group and take its readers offline. A state that cannot be decoded is deleted too. Raises
        GroupNotFound."""
        group = StreamReaderGroup(root, validate_scope_name(scope), _checked_name(name))
        state = group.entry.delete()
        if state is not None:
            group.subscriptions.end(state)
        else:
            group.subscriptions.end_everywhere()

    @staticmethod
    def names(root: Root, scope: str) -> list[str]:
        """The names of a scope's groups, sorted (Pravega: ReaderGroupManager; Controller.listReaderGroups)."""
        return GroupEntry.names(root, validate_scope_name(scope))

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
        self.check_process()
        encoded(reader_name, "reader")
        size = None if slice_bytes is None else parse_size(slice_bytes)
        seconds = SLICE_TIME if slice_time is None else parse_seconds(slice_time)
        for name, value in (("slice_bytes", size), ("slice_events", slice_events), ("slice_time", seconds)):
            if value is not None and value <= 0:
                raise ValueError(f"create_reader: {name} must be above 0, not {value!r}")
        reader = StreamReader(self, reader_name, size, slice_events, seconds)
        with self._lock:
            self._readers = [other for other in self._readers if not other.offline]
            self._readers.append(reader)
        return reader

    def reader_offline(self, reader_name: str) -> None:
        """Take a reader offline: other readers continue from its recorded positions. Does nothing if it is offline
        already.

        For a reader whose process has ended. A running reader notices within seconds.
        """
        with self._lock:
            mine = [reader for reader in self._readers if reader.name == reader_name and not reader.offline]
        for reader in mine:
            reader.reader_offline()
        self.entry.change(lambda state: state.left(reader_name))

    def online_readers(self) -> list[str]:
        """The names of the online readers (Pravega: list_readers)."""
        return sorted(self.entry.state().readers)

    def close(self) -> None:
        """Take the readers that this object created offline, and end its threads. Raises the first of their errors."""
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
        state = self.entry.change(lambda state: state.checkpointed(name))
        if state.retention == "automatic":
            self.subscriptions.release_read(state)
        return _by_stream(state.checkpoints[name])

    def checkpoints(self) -> dict[str, dict[str, StreamCut]]:
        """The stored checkpoints, oldest first."""
        return {name: _by_stream(cuts) for name, cuts in self.entry.state().checkpoints.items()}

    def reset(self, cuts: Mapping[str, PositionLike] | PositionLike) -> None:
        """Continue reading elsewhere: at a cut, at several by "scope/stream" as `checkpoint` returns them, or at
        another position, such as "earliest" or "1 h ago", in all streams.

        Slices of these streams end within seconds. Raises InvalidStreamCut.
        """
        streams = self.entry.state().streams
        starts = _starts(cuts, streams)
        foreign = sorted(set(starts) - set(streams))
        if foreign:
            raise InvalidStreamCut(f"reader group {self.entry.key} does not read {foreign[0]}")
        snapshots = {key: self.stream(key).snapshot() for key in starts}
        found = {key: _start(snapshots[key], cut_at(place, snapshots[key])) for key, place in starts.items()}

        def step(state: GroupState) -> GroupState:
            for key, positions in found.items():
                state = state.reset(key, positions)
            return state

        state = step(self.entry.state())
        if state.retention == "automatic":
            self.subscriptions.begin(state, restart=True)  # first, so that retention keeps what will be read again
        self.entry.change(step)

    def update_retention_stream_cut(self, cut: CutLike) -> None:
        """Let retention truncate a stream up to this cut, for a group with manual retention.

        Raises ValueError if the group's retention is not manual, InvalidStreamCut for a cut before the last one.
        """
        state, cut = self.entry.state(), parse_cut(cut)
        key = f"{cut.scope}/{cut.stream}"
        if state.retention != "manual":
            raise ValueError(f"reader group {self.entry.key} has retention {state.retention!r}, not 'manual'")
        if key not in state.streams:
            raise InvalidStreamCut(f"reader group {self.entry.key} does not read {key}")
        self.subscriptions.release(cut)

    def unread_bytes(self) -> int:
        """LazyPayload bytes after the recorded positions, event headers included (Pravega:
        ReaderGroupMetrics.unreadBytes)."""
        cuts = _by_stream(self._recorded().cuts())
        return sum(self.stream(key).query(partial(_unread, cut)) for key, cut in cuts.items())

    def _recorded(self) -> GroupState:
        """The state, after all readers of this process have recorded their positions."""
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


def _set_back(stream: str, positions: Mapping[GroupSegment, int], set_back: SetBack, state: GroupState) -> GroupState:
    return state.placed(stream, positions, set_back)


def _checked_name(name: str) -> str:
    return validate_stream_name(name, "reader group")


def _starts(cuts: Mapping[str, PositionLike] | PositionLike, streams: Sequence[str]) -> dict[str, StreamPosition]:
    """The positions by stream: of a mapping, of a cut's stream, or one position for all streams."""
    if isinstance(cuts, Mapping):
        return {key: parse_position(place) for key, place in cuts.items()}
    place = parse_position(cuts)
    keys = [f"{place.scope}/{place.stream}"] if isinstance(place, StreamCut) else streams
    return dict.fromkeys(keys, place)


def _by_stream(cuts: Sequence[StreamCut]) -> dict[str, StreamCut]:
    return {f"{cut.scope}/{cut.stream}": cut for cut in cuts}


def _start(snapshot: Snapshot, cut: StreamCut) -> dict[GroupSegment, int]:
    """The start position of a group at a cut. Raises InvalidStreamCut."""
    snapshot.check(cut)
    gone = snapshot.record.history.gone(cut.positions)
    if gone:
        raise InvalidStreamCut(
            f"stream cut {cut}: segment {segment_label(gone[0])} of {snapshot.stream.key} was truncated; start at the "
            "head"
        )
    for number, offset in cut.positions.items():
        if offset > snapshot.segments.segment(number).start_offset and not snapshot.segments.is_boundary(
            number, offset
        ):
            raise InvalidStreamCut(
                f"stream cut {cut}: no event of segment {segment_label(number)} begins at offset {offset}"
            )
    return places(snapshot.record.history, cut)


def _unread(cut: StreamCut, snapshot: Snapshot) -> int:
    found, _ = snapshot.available(snapshot.ranges(cut, snapshot.tail_cut()), fail_on_data_loss=False)
    return sum(high - low for low, high in found.values())
