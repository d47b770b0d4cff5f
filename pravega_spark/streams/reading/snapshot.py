"""A stream at one moment: its head and tail, the ranges between two cuts, and searching for cuts.

Keeps the order of events of one key: a cut that is found here never has events of a segment before it while events
of a predecessor are after it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import TYPE_CHECKING

from engine.state.segments import EVENT_COUNT
from pravega_spark.errors import CutOfDeletedStream, InvalidStreamCut, PositionLost, StreamRecreated, TruncatedData
from pravega_spark.segment_ids import segment_label
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.model.epochs import NOT_REACHED, Comparison, Positions
from pravega_spark.streams.model.generations import restored
from pravega_spark.streams.model.stream_record import StreamRecord, former_segments
from pravega_spark.streams.reading.cut_traversal import CutTraversal
from pravega_spark.streams.reading.indexed_segments import IndexedSegments, PositionCache
from pravega_spark.streams.reading.limits import allocate
from pravega_spark.streams.reading.location import StreamLocation

if TYPE_CHECKING:
    from engine.state.state import State

CLOCKS_DIFFER = 600_000
"""Milliseconds by which the clocks of processes that write to a stream and scale it may differ."""

UNKNOWN = -1
"""The end of a range in a deleted segment of unknown length."""


class Snapshot:
    """A stream at one moment, and its cuts.

    record: of the stream. state: of its container. segments: the stream's segments in this state.
    """

    def __init__(self, stream: StreamLocation, record: StreamRecord, state: State, known: PositionCache) -> None:
        self.stream = stream
        self.record = record
        self.state = state
        self.segments = IndexedSegments(stream, record, state, known)

    def size(self) -> int:
        """Readable bytes, event headers included."""
        self.segments.load(self.record.segment_ids())
        segments = [self.segments.segment(number) for number in self.record.segment_ids()]
        return sum(segment.length - segment.start_offset for segment in segments)

    def events(self) -> int:
        """Number of readable events, exactly. May read the index if the head is not at the start of a segment."""
        self.segments.load(self.record.segment_ids())
        total = 0
        for number in self.record.segment_ids():
            segment = self.segments.segment(number)
            total += segment.attributes.get(EVENT_COUNT, 0) - self.segments.count_before(number, segment.start_offset)
        return total

    def head_cut(self) -> StreamCut:
        """The cut before the first readable event."""
        return self._cut(self.record.head_positions())

    def tail_cut(self) -> StreamCut:
        """The cut after the last event."""
        return self._cut({segment.id: self.segments.tail(segment.id) for segment in self.record.current.segments})

    def _cut(self, positions: dict[int, int]) -> StreamCut:
        return StreamCut(self.stream.scope, self.stream.name, positions)

    def bytes_before(self, positions: Positions) -> int:
        """All bytes that the stream ever had before a cut that is not before its head."""
        there = self.record.history.size(self.record.head_positions(), positions, self.segments.length)
        return self.record.passed + there

    def check_boundaries(self, cut: StreamCut) -> None:
        """Raise InvalidStreamCut unless each position of a valid cut in an existing segment is an event boundary."""
        for number, offset in cut.positions.items():
            if number in self.record.history.segments and not self.segments.is_boundary(number, offset):
                where = f"segment {segment_label(number)} begins at offset {offset}"
                raise InvalidStreamCut(f"stream cut {cut}: no event of {where}")

    def require(self, stream_id: bytes) -> None:
        """Raise StreamRecreated unless the stream has this id: another stream of its name may exist now."""
        if self.record.id != stream_id:
            raise StreamRecreated(self.stream.key)

    def has(self, cut: StreamCut) -> bool:
        """Whether the stream has all events before a cut of it."""
        segments = self.record.history.segments
        return all(number in segments and at <= self.segments.length(number) for number, at in cut.positions.items())

    def check(self, cut: StreamCut) -> None:
        """Raise InvalidStreamCut unless `cut` is a cut of this stream; it may lie before the head."""
        if (cut.scope, cut.stream) != (self.stream.scope, self.stream.name):
            raise InvalidStreamCut(
                f"stream cut {cut} belongs to another stream than {self.stream.key}: give a cut of that one; if it "
                "comes from the checkpoint of a query, give the query a checkpoint of its own"
            )
        if former_segments(self.record, cut.positions):
            raise CutOfDeletedStream(str(cut), self.stream.key, self.record.first_number)
        problem = self.record.history.problem(cut.positions)
        if problem is not None:
            if self.record.history.unknown(cut.positions):
                self._check_not_lost(f"stream cut {cut}", cut.positions, problem)
            raise InvalidStreamCut(f"stream cut {cut} does not fit the segments of stream {self.stream.key}: {problem}")
        for number, offset in cut.positions.items():
            ended = self.record.ended.get(number)
            if ended is not None and offset > ended.length:
                problem = f"segment {segment_label(number)}, now truncated, ended at {ended.length}"
                self._check_not_lost(f"stream cut {cut}", cut.positions, problem)
        known = [number for number in cut.positions if number in self.record.history.segments]
        self.segments.load(known)
        for number in known:
            offset, length = cut.positions[number], self.segments.length(number)
            if not 0 <= offset <= length:
                if offset > length:
                    problem = f"segment {segment_label(number)} ends at offset {length}"
                    self._check_not_lost(f"stream cut {cut}", cut.positions, problem)
                raise InvalidStreamCut(
                    f"stream cut {cut}: segment {segment_label(number)} of {self.stream.key} has offsets 0 to "
                    f"{length}, not {offset}"
                )

    def _check_not_lost(self, what: str, positions: Positions, problem: str) -> None:
        """Raise PositionLost if invalid positions, of `what`, may have been lost in a restore."""
        if self.stream.continues_a_copy:
            found = self.restored(positions)
            text = found.as_text() if found is not None else None
            raise PositionLost(self.stream.key, what, problem, text)

    def restored(self, positions: Positions) -> StreamCut | None:
        """The end of the restored events that were before these lost positions; None if it cannot be determined."""
        self.segments.load(number for number in positions if number in self.record.history.segments)
        found = restored(self.record, self.stream.container.generation, positions, self.segments.length)
        return self._cut(dict(found)) if found else None

    def resolved(self, cut: StreamCut) -> StreamCut:
        """A cut of a user, without offsets NOT_REACHED, which programs of the original may have stored: instead, the
        predecessors of these segments at their ends (see Epochs.with_reached)."""
        if NOT_REACHED not in cut.positions.values():
            return cut
        positions = self.record.history.with_reached(cut.positions, self.segments.length)
        return StreamCut(cut.scope, cut.stream, positions)

    # --- between two cuts ---------------------------------------------------------------------------------------

    def size_between(self, start: StreamCut, end: StreamCut) -> int:
        """Bytes between two cuts, event headers included. Raises InvalidStreamCut, TruncatedData."""
        ranges, _ = self.available(self.ranges(start, end))
        return sum(high - low for low, high in ranges.values())

    def events_between(self, start: StreamCut, end: StreamCut) -> int:
        """Number of events between two cuts, exactly. Raises InvalidStreamCut, TruncatedData."""
        ranges, _ = self.available(self.ranges(start, end))
        return sum(self.segments.events_in(number, low, high) for number, (low, high) in ranges.items())

    def ranges(self, start: StreamCut, end: StreamCut) -> dict[int, tuple[int, int]]:
        """The range of each segment between two cuts, in order of epochs. See `available` for deleted parts.

        The range of a deleted segment of unknown length ends at UNKNOWN. Raises InvalidStreamCut if they are not
        cuts in this order.
        """
        self.check(start)
        self.check(end)
        begin, finish, history = start.positions, end.positions, self.record.history
        self._check_order(begin, finish)
        ended = {number: each.length for number, each in self.record.ended.items()}
        ranges = {n: (begin[n], finish.get(n, ended.get(n, UNKNOWN))) for n in sorted(history.gone(begin))}
        ranges |= {n: (0, finish[n]) for n in sorted(history.gone(finish)) if n not in begin}
        self.segments.load(history.between(begin, finish))
        return ranges | history.ranges(begin, finish, self.segments.length)

    def _check_order(self, start: Positions, end: Positions) -> None:
        for number, offset in start.items():
            if offset > end.get(number, offset):
                raise InvalidStreamCut(  # it ends with Pravega's message
                    f"the end lies before the start{self._truncated(start)}: segment {segment_label(number)} of "
                    f"{self.stream.key} would be read from offset {offset} to {end[number]} (Segment offset in "
                    "startStreamCut should be <= segment offset in endStreamCut.)"
                )
        if self.record.history.compare(end, start) is not Comparison.EQUAL_OR_AFTER:
            raise InvalidStreamCut(
                f"Start stream cut must precede end stream cut. {self._cut(dict(start))} has segments that come "
                f"after those of {self._cut(dict(end))}"
            )

    def _truncated(self, start: Positions) -> str:
        """A note for an error about a start that may be the default."""
        is_head = start == self.head_cut().positions
        return ", which is the head of the stream: what came before was truncated" if is_head else ""

    def available(
        self, ranges: Mapping[int, tuple[int, int]], fail_on_data_loss: bool = True
    ) -> tuple[dict[int, tuple[int, int]], list[TruncatedData]]:
        """The parts of the ranges that still exist, and the lost ones. fail_on_data_loss: raise the first loss."""
        found, losses = {}, []
        for number, (start, end) in ranges.items():
            there = number in self.record.history.segments
            head = self.segments.segment(number).start_offset if there else end
            if start != end and (start < head or not there):
                known = min(head, end) if end != UNKNOWN else None
                losses.append(TruncatedData(self.stream.key, number, start, known))
                if fail_on_data_loss:
                    raise losses[-1]
            if there:
                found[number] = (min(max(start, head), end), end)
        return found, losses

    def range_of(self, number: int, start: int, end: int) -> dict[int, tuple[int, int]]:
        """The range of one segment, as `ranges` has it. Raises PositionLost for one that a restore may have lost,
        TruncatedData, and InvalidStreamCut where the segment ends before."""
        history, label = self.record.history, segment_label(number)
        where = f"the range of segment {label} from offset {start} to {end}"
        if history.unknown([number]):
            self._check_not_lost(where, {number: end}, f"the stream has no segment {label}")
        if number in history.segments:
            length = self.segments.length(number)
            if end > length:
                self._check_not_lost(where, {number: end}, f"the segment ends at offset {length}")
                raise InvalidStreamCut(f"{where}: the segment ends at offset {length} in stream {self.stream.key}")
        found, _ = self.available({number: (start, end)})
        return found

    def past_head(self, cut: StreamCut, end: StreamCut) -> StreamCut:
        """The cut where reading towards `end` continues after skipping what was truncated after `cut`."""
        history = self.record.history
        there = history.later(cut.positions, self.record.head_positions())
        return self._cut(history.earlier(there, end.positions))

    def earlier(self, one: StreamCut, other: StreamCut) -> StreamCut:
        """The cut that is, for each key, the earlier one of two."""
        return self._cut(self.record.history.earlier(one.positions, other.positions))

    # --- from one cut on ----------------------------------------------------------------------------------------

    def _traverse(self, start: StreamCut, end: StreamCut) -> CutTraversal:
        begin = self.past_head(start, end).positions
        self.segments.load(number for number in begin if number in self.record.history.segments)
        return CutTraversal(self.record.history, self.segments.length, begin, end.positions)

    def up_to_scale(self, start: StreamCut, end: StreamCut) -> StreamCut:
        """The furthest cut, not after `end`, up to which the events of each key are in one segment.

        The range up to it may be read in any order of segments. Some empty segments may have been passed. The cuts
        must be in this order; what lies before the head is skipped.
        """
        traversal = self._traverse(start, end)
        traversal.go_to({number: high for number, (_, high) in traversal.stage().items()})
        return self._cut(traversal.position)

    def next_cut(
        self, start: StreamCut, end: StreamCut, *, max_bytes: int | None = None, max_events: int | None = None
    ) -> StreamCut:
        """A cut between two cuts, about `max_bytes` or exactly `max_events` after the first; or the second cut.

        A segment is entered only after all its predecessors. Segments that are readable at the same time share the
        limit in proportion to what is left in each. By bytes, the cut is at an index record, so it may be some 16
        KiB further in each segment. A large event that exceeds the limit is left for the next cut, unless nothing
        else is left.
        """
        by_events = max_events is not None
        limit = max_events if by_events else max_bytes
        assert limit is not None
        traversal = self._traverse(start, end)
        begin = traversal.position
        while limit and not traversal.at_end:
            reached, taken = self._reached(traversal.stage(), limit, by_events, first=traversal.position == begin)
            limit -= taken
            traversal.go_to(reached)
        return self._cut(traversal.position)

    def next_cut_of_stage(self, start: StreamCut, end: StreamCut, max_bytes: int) -> StreamCut:
        """As `next_cut`, but no segment of the range succeeds another one: the cut is at the end of a segment that was
        replaced, at most (Pravega: BatchClientFactory.getNextStreamCut).

        If `start` is there, it goes on in the successors whose predecessors all end there.
        """
        traversal = self._traverse(start, end)
        if traversal.at_end:
            return end
        reached, _ = self._reached(traversal.stage(), max_bytes, by_events=False, first=True)
        return self._cut(reached)

    def _reached(
        self, stage: Mapping[int, tuple[int, int]], limit: int, by_events: bool, first: bool
    ) -> tuple[dict[int, int], int]:
        """How far a limit goes in a stage of a traversal, and how much of it is used. first: by bytes, go on in any
        case."""
        amount = self.segments.events_in if by_events else _bytes_in
        locate = self.segments.offset_of_event if by_events else self.segments.offset_within
        left = {number: amount(number, low, high) for number, (low, high) in stage.items()}
        shares = allocate(limit, left, weights=left)
        reached = {
            number: high if shares[number] >= left[number] else min(high, locate(number, low, shares[number]))
            for number, (low, high) in stage.items()
        }
        if first and not by_events and all(reached[number] == low for number, (low, _) in stage.items()):
            number = max(shares, key=shares.__getitem__)
            low, high = stage[number]
            reached[number] = min(high, self.segments.offset_after(number, low, shares[number]))
        return reached, sum(shares.values())

    def cut_at(self, timestamp: int) -> StreamCut:
        """The cut before the first events that were written at `timestamp` (ms since the epoch) or later.

        Index records hold times, so some events written shortly before may follow the cut too. Epochs that ended
        more than CLOCKS_DIFFER before are skipped.
        """
        found: dict[int, int] = {}
        traversal = self._traverse(self._cut(self._epoch_at(timestamp)), self.tail_cut())
        while not traversal.position.keys() <= found.keys():
            found |= {
                n: self.segments.offset_at(n, at, timestamp) for n, at in traversal.position.items() if n not in found
            }
            traversal.go_to({number: found[number] for number in traversal.position})
        return self._cut(traversal.position)

    def _epoch_at(self, timestamp: int) -> dict[int, int]:
        """The beginning of an epoch before which nothing was written at `timestamp` or later."""
        epochs = self.record.epochs
        place = bisect_left(epochs, timestamp - CLOCKS_DIFFER, key=lambda epoch: epoch.created) - 1
        return {segment.id: 0 for segment in epochs[max(place, 0)].segments}


def _bytes_in(segment_id: int, low: int, high: int) -> int:
    return high - low
