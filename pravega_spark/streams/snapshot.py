"""A stream at one moment: where it begins and ends, what lies between two cuts of it, and where other cuts are.

Keeps the order of events of one key: no cut that is found here has anything of a segment behind it before all of the
segments that it succeeds are.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from engine.errors import SegmentNotFound
from engine.segments import EVENT_COUNT, Segment
from engine.state import State
from pravega_spark.errors import InvalidStreamCut, TruncatedData
from pravega_spark.streams.cuts import StreamCut
from pravega_spark.streams.epochs import Comparison, Positions
from pravega_spark.streams.events import decode
from pravega_spark.streams.index import RECORD_SIZE, IndexReader, Record
from pravega_spark.streams.names import index_segment_name, segment_name
from pravega_spark.streams.records import StreamRecord
from pravega_spark.streams.walk import Walk

if TYPE_CHECKING:
    from pravega_spark.streams.stream import Stream


CLOCKS_DIFFER = 600_000
"""Milliseconds: by how much the clocks of processes that write to a stream and scale it may differ."""

UNKNOWN = -1
"""Where a range ends that is gone, when nobody knows any more how long its segment was."""


class Snapshot:
    """A stream at one moment: its record and its segments' states."""

    def __init__(self, stream: Stream, record: StreamRecord, state: State) -> None:
        self.stream = stream
        self.record = record
        self.state = state
        self._segments: dict[str, Segment] = {}

    def name_of(self, segment_id: int) -> str:
        """The full name of a segment."""
        return segment_name(self.stream.scope, self.stream.name, segment_id)

    def segment(self, segment_id: int) -> Segment:
        """A segment's properties."""
        return self._named(self.name_of(segment_id))

    def index_segment(self, segment_id: int) -> Segment:
        """The properties of the segment with a segment's sparse index."""
        return self._named(index_segment_name(self.name_of(segment_id)))

    def load(self, numbers: Iterable[int]) -> None:
        """Look up segments that will be asked for, and their index segments, all together."""
        names = [name for number in numbers if (name := self.name_of(number)) not in self._segments]
        if names:
            found = self.stream.container.activated([*names, *map(index_segment_name, names)], self.state)
            self._segments |= {key: segment for key, segment in found.items() if segment is not None}

    def _named(self, name: str) -> Segment:
        """A segment of the stream. The first time, those that are open are looked up with it."""
        if name not in self._segments:
            self.load(segment.id for segment in self.record.current.segments)
        if name not in self._segments:
            found = self.stream.container.activated([name], self.state)[name]
            if found is None:
                raise SegmentNotFound(name)
            self._segments[name] = found
        return self._segments[name]

    def length(self, segment_id: int) -> int:
        """Where a segment ends."""
        return self.segment(segment_id).length

    def head_cut(self) -> StreamCut:
        """The cut before the first event that can be read."""
        return self._cut(self.record.head_positions())

    def tail_cut(self) -> StreamCut:
        """The cut behind the last event."""
        positions = {}
        for segment in self.record.current.segments:
            known = self.segment(segment.id)
            positions[segment.id] = known.length
            index = self.index_segment(segment.id)
            self.stream.remember(known.name, known.length, index.length // RECORD_SIZE)
        return self._cut(positions)

    def _cut(self, positions: dict[int, int]) -> StreamCut:
        return StreamCut(self.stream.scope, self.stream.name, positions)

    def size(self) -> int:
        """Bytes that can be read, event headers included."""
        self.load(self.record.segment_ids())
        segments = [self.segment(number) for number in self.record.segment_ids()]
        return sum(segment.length - segment.start_offset for segment in segments)

    def events(self) -> int:
        """Number of events that can be read, exactly. May read the index where the head is not at its beginning."""
        self.load(self.record.segment_ids())
        total = 0
        for number in self.record.segment_ids():
            segment = self.segment(number)
            total += segment.attributes.get(EVENT_COUNT, 0) - self.count_before(number, segment.start_offset)
        return total

    def size_between(self, start: StreamCut, end: StreamCut) -> int:
        """Bytes between two cuts, event headers included. Raises InvalidStreamCut, TruncatedData."""
        ranges, _ = self.available(self.ranges(start, end))
        return sum(high - low for low, high in ranges.values())

    def events_between(self, start: StreamCut, end: StreamCut) -> int:
        """Number of events between two cuts, exactly. Raises InvalidStreamCut, TruncatedData."""
        ranges, _ = self.available(self.ranges(start, end))
        return sum(self._events_in(number, low, high) for number, (low, high) in ranges.items())

    def _events_in(self, number: int, low: int, high: int) -> int:
        return self.count_before(number, high) - self.count_before(number, low)

    def count_before(self, segment_id: int, offset: int) -> int:
        """Number of events before an event boundary. Read off the index, or counted from the next index record back."""
        if offset == 0:
            return 0
        record = self.index(segment_id).locate_offset(offset)
        if record is None:
            return self.segment(segment_id).attributes.get(EVENT_COUNT, 0)
        if record.offset == offset:
            return record.count
        low, starts = self._events_of(segment_id, record)
        return record.count - int(np.count_nonzero(starts + low >= offset))

    def is_boundary(self, segment_id: int, offset: int) -> bool:
        """Whether an event begins or ends at an offset, as far as the index can tell."""
        segment = self.segment(segment_id)
        if offset in (segment.start_offset, segment.length):
            return True
        record = self.index(segment_id).locate_offset(offset)
        if record is None or record.offset == offset:
            return True
        low, starts = self._events_of(segment_id, record)
        return offset - low in starts

    def _events_of(self, segment_id: int, record: Record) -> tuple[int, np.ndarray]:
        """Where the events that an index record is about begin, and each one's place from there."""
        low = self._record_start(segment_id, record)
        data = self.stream.container.read(self.name_of(segment_id), low, record.offset)
        return low, decode(data, np.zeros(1, np.int64), len(data), low)[0]

    # --- from one cut to another -------------------------------------------------------------------------------

    def ranges(self, start: StreamCut, end: StreamCut) -> dict[int, tuple[int, int]]:
        """The range of each segment between two cuts, in order of epochs. See `available` for what may be gone.

        Of a segment that was deleted, and that ends nobody knows where, the range ends at UNKNOWN. Raises
        InvalidStreamCut when they are not cuts in this order.
        """
        self.check(start)
        self.check(end)
        begin, finish, history = start.positions, end.positions, self.record.history
        self._check_order(begin, finish)
        ended = self.record.ended
        ranges = {n: (begin[n], finish.get(n, ended.get(n, UNKNOWN))) for n in sorted(history.gone(begin))}
        ranges |= {n: (0, finish[n]) for n in sorted(history.gone(finish)) if n not in begin}
        self.load(history.between(begin, finish))
        return ranges | history.ranges(begin, finish, self.length)

    def _check_order(self, start: Positions, end: Positions) -> None:
        for number, offset in start.items():
            if offset > end.get(number, offset):
                raise InvalidStreamCut(
                    f"Segment offset in startStreamCut should be <= segment offset in endStreamCut. "
                    f"Segment {number} of {self.stream.key}: {offset} and {end[number]}"
                )
        if self.record.history.compare(end, start) is not Comparison.EQUAL_OR_AFTER:
            raise InvalidStreamCut(
                f"Start stream cut must precede end stream cut. Stream {self.stream.key}: {dict(start)} has segments "
                f"that come after those of {dict(end)}"
            )

    def available(
        self, ranges: Mapping[int, tuple[int, int]], fail_on_data_loss: bool = True
    ) -> tuple[dict[int, tuple[int, int]], list[TruncatedData]]:
        """The parts of the ranges that are still there, and what is lost. Raises the loss if it is to be an error."""
        found, losses = {}, []
        for number, (start, end) in ranges.items():
            there = number in self.record.history.segments
            head = self.segment(number).start_offset if there else end
            if start != end and (start < head or not there):
                known = min(head, end) if end != UNKNOWN else None
                losses.append(TruncatedData(self.stream.key, number, start, known))
                if fail_on_data_loss:
                    raise losses[-1]
            if there:
                found[number] = (min(max(start, head), end), end)
        return found, losses

    def past_head(self, cut: StreamCut, end: StreamCut) -> StreamCut:
        """Where reading towards `end` goes on when what is gone behind `cut` is passed over."""
        history = self.record.history
        there = history.later(cut.positions, self.record.head_positions())
        return self._cut(history.earlier(there, end.positions))

    def earlier(self, one: StreamCut, other: StreamCut) -> StreamCut:
        """The cut that is, for each key, the earlier one of two."""
        return self._cut(self.record.history.earlier(one.positions, other.positions))

    def _walk(self, start: StreamCut, end: StreamCut) -> Walk:
        begin = self.past_head(start, end).positions
        self.load(number for number in begin if number in self.record.history.segments)
        return Walk(self.record.history, self.length, begin, end.positions)

    def up_to_scale(self, start: StreamCut, end: StreamCut) -> StreamCut:
        """The furthest cut, not behind `end`, up to which the events of each key lie in one segment.

        What lies between may be read in any order of segments. Some more segments may have been passed, all of them
        empty. The cuts have to be in this order; what lies before the head is passed over.
        """
        walk = self._walk(start, end)
        walk.go_to({number: high for number, (_, high) in walk.stage().items()})
        return self._cut(walk.front)

    def next_cut(
        self, start: StreamCut, end: StreamCut, *, max_bytes: int | None = None, max_events: int | None = None
    ) -> StreamCut:
        """A cut between two cuts, about `max_bytes` or exactly `max_events` behind the first, or the second cut.

        Nothing is taken of a segment before all of those that it succeeds. Of segments that can be read at the same
        time each gets its share of the limit by what it has left. By bytes, the cut is at an index record, so it may
        lie some 16 KiB further in each segment.
        """
        by_events = max_events is not None
        limit = max_events if by_events else max_bytes
        assert limit is not None
        amount = self._events_in if by_events else _bytes_in
        locate = self._offset_of_event if by_events else self._offset_after
        walk = self._walk(start, end)
        while limit and not walk.at_end:
            stage = walk.stage()
            left = {number: amount(number, low, high) for number, (low, high) in stage.items()}
            shares = _shares(left, limit)
            limit -= sum(shares.values())
            walk.go_to(
                {
                    number: high if shares[number] >= left[number] else min(high, locate(number, low, shares[number]))
                    for number, (low, high) in stage.items()
                }
            )
        return self._cut(walk.front)

    def cut_at(self, timestamp: int) -> StreamCut:
        """The cut before the first events that were written at `timestamp` (ms since the epoch) or later.

        Times are kept with index records, so some events written shortly before may lie behind the cut too. Epochs that
        were over CLOCKS_DIFFER before are not looked at.
        """
        found: dict[int, int] = {}
        walk = self._walk(self._cut(self._epoch_at(timestamp)), self.tail_cut())
        while not walk.front.keys() <= found.keys():
            found |= {n: self._offset_at(n, at, timestamp) for n, at in walk.front.items() if n not in found}
            walk.go_to({number: found[number] for number in walk.front})
        return self._cut(walk.front)

    def growth_since(self, segment_id: int, timestamp: int) -> tuple[int, int]:
        """How many bytes and events a segment got at `timestamp` (ms since the epoch) or later, as its index tells."""
        segment = self.segment(segment_id)
        record = self.index(segment_id).locate_time(timestamp)
        if record is None:
            return 0, 0
        start = self._record_start(segment_id, record)
        events = segment.attributes.get(EVENT_COUNT, 0)
        return segment.length - start, events - self.count_before(segment_id, start)

    def _epoch_at(self, timestamp: int) -> dict[int, int]:
        """The beginning of an epoch before which nothing was written at `timestamp` or later."""
        epochs = self.record.epochs
        place = bisect_left(epochs, timestamp - CLOCKS_DIFFER, key=lambda epoch: epoch.created) - 1
        return {segment.id: 0 for segment in epochs[max(place, 0)].segments}

    def _offset_at(self, segment_id: int, low: int, timestamp: int) -> int:
        """Where, from `low` on, the first events are that were written at `timestamp` or later."""
        record = self.index(segment_id).locate_time(timestamp)
        return self.length(segment_id) if record is None else max(low, self._record_start(segment_id, record))

    def _record_start(self, segment_id: int, record: Record) -> int:
        """Where the events that an index record is about begin: at the record before it, or the segment's start."""
        segment, index = self.segment(segment_id), self.index(segment_id)
        number = index.position_of(record.offset)
        first = self.index_segment(segment_id).start_offset // RECORD_SIZE
        if number <= first:
            return segment.start_offset
        return max(int(index.records(number - 1, number)[0, 0]), segment.start_offset)

    def _offset_after(self, segment_id: int, offset: int, size: int) -> int:
        """The first indexed offset at least `size` bytes behind `offset`."""
        record = self.index(segment_id).locate_offset(offset + max(size, 1))
        return record.offset if record is not None else self.segment(segment_id).length

    def _offset_of_event(self, segment_id: int, offset: int, events: int) -> int:
        """The offset exactly `events` events behind `offset`: found by the index, then by counting in one block."""
        count = self.count_before(segment_id, offset) + events
        record = self.index(segment_id).locate_count(count)
        if record is None:
            return self.segment(segment_id).length
        surplus = record.count - count
        if not surplus:
            return record.offset
        low, starts = self._events_of(segment_id, record)
        return low + int(starts[len(starts) - surplus])

    def has(self, cut: StreamCut) -> bool:
        """Whether the stream reaches up to a cut of it."""
        segments = self.record.history.segments
        return all(number in segments and at <= self.length(number) for number, at in cut.positions.items())

    def check(self, cut: StreamCut) -> None:
        """Raise InvalidStreamCut unless `cut` is a cut of this stream; it may lie before the head."""
        if (cut.scope, cut.stream) != (self.stream.scope, self.stream.name):
            raise InvalidStreamCut(f"stream cut {cut} is of another stream than {self.stream.key}")
        problem = self.record.history.problem(cut.positions)
        if problem is not None:
            raise InvalidStreamCut(
                f"stream cut {cut} does not name the segments of {self.stream.key} as a cut has to: {problem}"
            )
        known = [number for number in cut.positions if number in self.record.history.segments]
        self.load(known)
        for number in known:
            offset, length = cut.positions[number], self.length(number)
            if not 0 <= offset <= length:
                raise InvalidStreamCut(
                    f"stream cut {cut}: segment {number} of {self.stream.key} has offsets 0 to {length}, not {offset}"
                )

    # --- the index ---------------------------------------------------------------------------------------------

    def index(self, segment_id: int) -> IndexReader:
        """The sparse index of a segment."""
        segment, container = self.index_segment(segment_id), self.stream.container
        return IndexReader(
            lambda start, end: container.read(segment.name, start, end), segment.start_offset, segment.length
        )

    def index_position(self, segment_id: int, offset: int) -> int:
        """How many index records lie at or before `offset`, counted from the segment's beginning."""
        segment = self.segment(segment_id)
        index = self.index_segment(segment_id)
        if offset >= segment.length:
            return index.length // RECORD_SIZE
        if offset <= segment.start_offset:
            return index.start_offset // RECORD_SIZE
        known = self.stream.remembered(segment.name, offset)
        if known is None:
            known = self.index(segment_id).position_of(offset + 1)
            self.stream.remember(segment.name, offset, known)
        return known


def _bytes_in(segment_id: int, low: int, high: int) -> int:
    return high - low


def _shares(left: dict[int, int], limit: int) -> dict[int, int]:
    """Divide a limit by what each has left; what rounding leaves over goes to the first ones that can use it."""
    total = sum(left.values())
    if total <= limit:
        return dict(left)
    shares = {number: amount * limit // total for number, amount in left.items()}
    spare = limit - sum(shares.values())
    for number, amount in left.items():
        extra = min(spare, amount - shares[number], 1)
        shares[number] += extra
        spare -= extra
    return shares
