"""The epochs of a stream: the order of its segments, and of stream cuts among them.

An epoch is a generation of segments whose key ranges cover all keys once; scaling begins the next one. Over any key,
the segments of all epochs form a line in the order of their ids, and a stream cut is a position on each of these
lines. A cut may mix segments of several epochs if reading can reach it: each segment is before the cut as a whole,
in it, or after it as a whole. The content of segments does not matter here.
"""

from __future__ import annotations

import enum
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from pravega_spark.segment_ids import segment_epoch, segment_id, segment_label, segment_number

NOT_REACHED = -1
"""The offset in a segment that the reader has not reached, as predecessors of it are not read (Pravega)."""

GONE = -1
"""A segment of a cut that does not exist any more: it is before all existing segments."""

Positions = Mapping[int, int]
"""Offsets by segment ids: the positions of a stream cut."""


class StreamSegmentRecord(NamedTuple):
    """A segment of an epoch: its id and the key range (low, high] it owns."""

    id: int
    low: float
    high: float


class EpochRecord(NamedTuple):
    """A generation of segments (Pravega: EpochRecord). `created` in ms since the epoch; `segments` in order of ranges.

    reference: the epoch that this one is a duplicate of, with the same segment numbers and ranges; its own number if it
    is none.
    """

    epoch: int
    created: int
    segments: tuple[StreamSegmentRecord, ...]
    reference: int


class Comparison(enum.Enum):
    """The order of two valid cuts.

    Deleted segments are compared by their ids only. In doubt they do not count as lower.
    """

    BEFORE = "before"
    OVERLAPS = "overlaps"
    EQUAL_OR_AFTER = "equal or after"


def replaced(
    segments: Sequence[StreamSegmentRecord], new: Iterable[StreamSegmentRecord]
) -> tuple[StreamSegmentRecord, ...]:
    """An epoch's segments with `new` ones instead of those that they overlap, in order of their ranges."""
    new = sorted(new, key=_low)
    kept = [segment for segment in segments if not overlapping(new, segment)]
    return tuple(sorted([*kept, *new], key=_low))


def duplicate(epoch: EpochRecord, number: int, created: int) -> EpochRecord:
    """Epoch `number`, with the segment numbers and ranges of another one (as a rolling transaction makes it)."""
    segments = (StreamSegmentRecord(segment_id(segment_number(s.id), number), s.low, s.high) for s in epoch.segments)
    return EpochRecord(number, created, tuple(segments), epoch.reference)


def overlapping(segments: Sequence[StreamSegmentRecord], segment: StreamSegmentRecord) -> Sequence[StreamSegmentRecord]:
    """The segments, of an epoch or a cut in order of their ranges, that overlap `segment`."""
    first = bisect_right(segments, segment.low, key=_high)
    return segments[first : bisect_left(segments, segment.high, first, key=_low)]


class Traversal:
    """The segments of a cut, in order of their key ranges. Keys without a segment are GONE."""

    def __init__(self, segments: Iterable[StreamSegmentRecord]) -> None:
        self._segments = sorted(segments, key=_low)

    def at(self, segment: StreamSegmentRecord) -> int:
        """The cut's segment over the keys of `segment`. Comparing their ids tells whether the cut is before it, in
        it, or after it."""
        place = bisect_left(self._segments, segment.high, key=_high)
        if place == len(self._segments) or self._segments[place].low >= segment.high:
            return GONE
        return self._segments[place].id

    def over(self, segment: StreamSegmentRecord) -> Iterator[int]:
        """All segments of the cut that overlap `segment`; GONE for keys without one."""
        reached = segment.low
        for other in overlapping(self._segments, segment):
            if other.low > reached:
                yield GONE
            yield other.id
            reached = other.high
        if reached < segment.high:
            yield GONE

    def overlap(self) -> tuple[StreamSegmentRecord, StreamSegmentRecord] | None:
        """Two segments that overlap each other."""
        return next(((one, other) for one, other in pairwise(self._segments) if other.low < one.high), None)

    def gap(self) -> tuple[float, float] | None:
        """The first range of keys without a segment."""
        reached = 0.0
        for segment in self._segments:
            if segment.low > reached:
                return reached, segment.low
            reached = segment.high
        return (reached, 1.0) if reached < 1.0 else None


class Epochs:
    """The segments of a stream from its head on.

    epochs: consecutive ones, from the first one with a segment of the head cut. head: the head cut's positions.
    Segments before the head do not exist any more, though `epochs` may still name them.
    """

    def __init__(self, epochs: Sequence[EpochRecord], head: Positions) -> None:
        self._epochs = epochs
        self._first = epochs[0].epoch
        self._last_epochs: dict[int, int] = {}
        self._named: dict[int, StreamSegmentRecord] = {}
        for epoch in epochs:
            for segment in epoch.segments:
                self._named[segment.id] = segment
                self._last_epochs[segment.id] = epoch.epoch
        traversal = Traversal(self._named[number] for number in head)
        self.segments: dict[int, StreamSegmentRecord] = {
            number: segment for number, segment in sorted(self._named.items()) if traversal.at(segment) <= number
        }
        """All existing segments by their ids, in order."""
        self._ids = list(self.segments)

    # --- segments ----------------------------------------------------------------------------------------------

    def successors(self, number: int) -> list[StreamSegmentRecord]:
        """The successors of a segment: those of the epoch that sealed it. None for an open one."""
        following = self._last_epochs[number] + 1 - self._first
        if following == len(self._epochs):
            return []
        return list(overlapping(self._epochs[following].segments, self.segments[number]))

    def predecessors(self, number: int) -> list[StreamSegmentRecord]:
        """The predecessors of a segment: those of the epoch before it that exist."""
        before = segment_epoch(number) - 1 - self._first
        if before < 0:
            return []
        found = overlapping(self._epochs[before].segments, self.segments[number])
        return [segment for segment in found if segment.id in self.segments]

    def epoch(self, number: int) -> EpochRecord:
        """An epoch by its number."""
        return self._epochs[number - self._first]

    def span(self, positions: Positions) -> dict[int, int]:
        """For each segment of a cut the last epoch that has it, up to the newest epoch in which any of them was
        created."""
        newest = max(map(segment_epoch, positions))
        return {number: min(self._last_epochs[number], newest) for number in positions}

    def first_epoch(self, positions: Positions) -> int:
        """The first epoch that is needed if a cut is the head: earlier ones have no segment in it or after it."""
        return min(self._last_epochs[number] for number in positions)

    # --- cuts --------------------------------------------------------------------------------------------------

    def traversal(self, positions: Positions) -> Traversal:
        """The existing segments of a cut."""
        return Traversal(self.segments[number] for number in positions if number in self.segments)

    def gone(self, positions: Positions) -> list[int]:
        """The segments of a cut before the head, as far as known."""
        return [number for number in positions if number not in self.segments]

    def unknown(self, positions: Iterable[int]) -> list[int]:
        """The segments that the stream never had, as far as known."""
        return [n for n in positions if n not in self._named and segment_epoch(n) >= self._first]

    def problem(self, positions: Positions) -> str | None:
        """The reason why these are not the positions of a cut; None if they are. Positions before the head can be
        validated less."""
        gone, unknown = self.gone(positions), self.unknown(positions)
        if unknown:
            return f"the stream has no segment {segment_label(unknown[0])}"
        traversal = self.traversal(positions)
        twice, gap = traversal.overlap(), traversal.gap()
        if twice is not None:
            one, other = (segment_label(segment.id) for segment in twice)
            return f"segments {one} and {other} share keys, so one succeeds the other"
        if gap is not None and not gone:
            return f"no segment covers the keys between {gap[0]} and {gap[1]}"
        if gap is None and gone:
            return f"segment {segment_label(gone[0])} was deleted, but the other segments cover all keys"
        return self._unreachable(positions, traversal, bool(gone))

    def _unreachable(self, positions: Positions, traversal: Traversal, gone: bool) -> str | None:
        number = self._crossed(positions, traversal, gone)
        if number is None:
            return None
        label = segment_label(number)
        return f"it is before segment {label} for some keys and after it for others, which no reader can reach"

    def _crossed(self, positions: Positions, traversal: Traversal, gone: bool) -> int | None:
        """A segment that a cut is before for some keys, and after for others."""
        known = [number for number in positions if number in self.segments]
        if not known:
            return None
        for number in self._within(GONE if gone else min(known), max(known)):
            places = list(traversal.over(self.segments[number])) if number not in positions else []
            if places and min(places) < number < max(places):
                return number
        return None

    def _within(self, first: int, last: int) -> list[int]:
        """The segments with a range between two cuts, possibly an empty one, in order of ids, which is the order of
        epochs."""
        return self._ids[bisect_left(self._ids, first) : bisect_right(self._ids, last)]

    def with_reached(self, positions: Positions, length: Callable[[int], int]) -> dict[int, int]:
        """The positions without segments that are NOT_REACHED: instead, their predecessors at their ends.

        A predecessor is left out where an earlier segment of the cut has its keys. A valid cut cannot be further for
        some keys of a segment than for others: there it is set back, so it is not after the given one for any key.
        `length` returns the length of a sealed segment.
        """
        known = {number: at for number, at in positions.items() if at != NOT_REACHED}
        waiting = [number for number in positions if number not in known]
        unreached = set(waiting)
        while waiting:
            while waiting:
                number = waiting.pop()
                added = self._lower_to_before(number, known, unreached, length)
                unreached.update(added)
                waiting += added
            crossed = self._crossed(known, self.traversal(known), bool(self.gone(known)))
            if crossed is not None:
                unreached.add(crossed)
                waiting.append(crossed)
        return known

    def _lower_to_before(
        self, number: int, known: dict[int, int], unreached: Collection[int], length: Callable[[int], int]
    ) -> list[int]:
        """Change `known` so that a segment is not reached in it for any key. Returns others that are not reached."""
        added: list[int] = []

        def leave(segments: Iterable[StreamSegmentRecord]) -> None:
            for other in segments:
                known.pop(other.id, None)
                added.append(other.id)

        leave(other for other in self._of_cut_over(number, known) if other.id > number)
        before = self.predecessors(number) if number in self.segments else []
        for each in before:
            if each.id in known or each.id in unreached:
                continue
            over = self._of_cut_over(each.id, known)
            if not any(other.id < each.id for other in over):
                leave(over)
                known[each.id] = length(each.id)
            elif GONE in Traversal(over).over(each):
                leave([each])  # it is not reached for all keys either
        if not before and not self._of_cut_over(number, known):
            known[number] = 0
        return added

    def _of_cut_over(self, number: int, positions: Positions) -> list[StreamSegmentRecord]:
        """The segments of a cut that share keys with a segment."""
        segment = self.segments.get(number)
        there = (self.segments[each] for each in positions if each in self.segments)
        return [each for each in there if segment and each.low < segment.high and segment.low < each.high]

    def compare(self, one: Positions, other: Positions) -> Comparison:
        """The order of two valid cuts.

        Deleted segments are compared by their ids only. In doubt they do not count as lower.
        """
        lower = any(self._lower(one, other))
        if lower and any(self._lower(other, one)):
            return Comparison.OVERLAPS
        return Comparison.BEFORE if lower else Comparison.EQUAL_OR_AFTER

    def _lower(self, one: Positions, other: Positions) -> Iterator[bool]:
        """For each segment of a cut whether it is before the segments that another cut has over its keys."""
        traversal = self.traversal(other)
        gone = min((number for number in self.gone(other) if number not in one), default=None)
        for number, offset in one.items():
            if number in other:
                yield offset < other[number]
            elif number not in self.segments:
                yield gone is None or number < gone
            else:
                yield any(number < place for place in traversal.over(self.segments[number]))

    def before(self, positions: Positions) -> list[int]:
        """The segments that are wholly before a cut."""
        traversal = self.traversal(positions)
        newest = max((number for number in positions if number in self.segments), default=GONE)
        return [number for number in self._within(0, newest) if traversal.at(self.segments[number]) > number]

    def between(self, start: Positions, end: Positions) -> list[int]:
        """The segments with a range between two cuts, possibly an empty one, in order of ids, which is the order of
        epochs."""
        begin, finish = self.traversal(start), self.traversal(end)
        first = GONE if self.gone(start) else min(start)
        return [
            number
            for number in self._within(first, max(end))
            if begin.at(self.segments[number]) <= number <= finish.at(self.segments[number])
        ]

    def ranges(self, start: Positions, end: Positions, length: Callable[[int], int]) -> dict[int, tuple[int, int]]:
        """The range of each existing segment between two cuts, in order of epochs; empty ones too.

        `length` returns the length of a sealed segment. The first cut must be before the second one, or equal.
        """
        return {
            number: (start.get(number, 0), end[number] if number in end else length(number))
            for number in self.between(start, end)
        }

    def size(self, start: Positions, end: Positions, length: Callable[[int], int]) -> int:
        """Existing bytes between two cuts."""
        return sum(high - low for low, high in self.ranges(start, end, length).values())

    def later(self, one: Positions, other: Positions) -> dict[int, int]:
        """The cut that is, for each key, the later one of two. A segment that is GONE in one exists in the other."""
        return self._chosen(one, other, later=True)

    def earlier(self, one: Positions, other: Positions) -> dict[int, int]:
        """The cut that is, for each key, the earlier one of two."""
        gone = {number: min(one.get(number, at), other.get(number, at)) for number, at in self._all_gone(one, other)}
        return {**gone, **self._chosen(one, other, later=False)}

    def _all_gone(self, one: Positions, other: Positions) -> Iterator[tuple[int, int]]:
        return ((number, at) for number, at in (*one.items(), *other.items()) if number not in self.segments)

    def _chosen(self, one: Positions, other: Positions, later: bool) -> dict[int, int]:
        found: dict[int, int] = {}
        for mine, yours in ((one, other), (other, one)):
            traversal = self.traversal(yours)
            for number, offset in mine.items():
                if number not in self.segments:
                    continue
                place = traversal.at(self.segments[number])
                if number == place:
                    found[number] = max(offset, yours[number]) if later else min(offset, yours[number])
                elif (number > place) is later:
                    found[number] = offset
        return found


def _low(segment: StreamSegmentRecord) -> float:
    return segment.low


def _high(segment: StreamSegmentRecord) -> float:
    return segment.high
