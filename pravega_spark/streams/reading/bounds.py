"""Bounds of the events that somebody wants: those outside may be left out of what is planned, and need not be.

A range is narrowed to event boundaries that the index knows, so it may keep a few events too many, never one too few.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from pravega_spark.streams.reading.snapshot import CLOCKS_DIFFER

if TYPE_CHECKING:
    from pravega_spark.streams.reading.snapshot import Snapshot


class Range(NamedTuple):
    """Values from `low` to `high`, both included, that are also `among` some; None for no bound."""

    low: Any = None
    high: Any = None
    among: frozenset[Any] | None = None

    def within(self, other: Range) -> Range:
        """The values that are in both."""
        lows = [each.low for each in (self, other) if each.low is not None]
        highs = [each.high for each in (self, other) if each.high is not None]
        sets = [each.among for each in (self, other) if each.among is not None]
        return Range(max(lows, default=None), min(highs, default=None), frozenset.intersection(*sets) if sets else None)

    def has(self, value: Any) -> bool:
        """Whether a value is in it."""
        above = self.low is None or value >= self.low
        below = self.high is None or value <= self.high
        return above and below and (self.among is None or value in self.among)

    def is_empty(self) -> bool:
        """Whether no value is in it."""
        if self.among is not None:
            return not any(map(self.has, self.among))
        return self.low is not None and self.high is not None and bool(self.low > self.high)

    def ends(self) -> tuple[Any, Any]:
        """The least and the largest value that may be in a range that is not empty; None for no bound."""
        if self.among is None:
            return self.low, self.high
        passing = list(filter(self.has, self.among))
        return min(passing), max(passing)


ANY = Range()


class Bounds(NamedTuple):
    """Bounds of the columns of events, by name. timestamp: in milliseconds since the epoch."""

    scope: Range = ANY
    stream: Range = ANY
    segment_id: Range = ANY
    offset: Range = ANY
    timestamp: Range = ANY

    def narrowed(self, snapshot: Snapshot, ranges: dict[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
        """The parts of a stream's ranges that may have wanted events."""
        if any(each.is_empty() for each in self):
            return {}
        if not self.scope.has(snapshot.stream.scope) or not self.stream.has(snapshot.stream.name):
            return {}
        found = {}
        for number, (start, end) in ranges.items():
            if not self.segment_id.has(number):
                continue
            if snapshot.segments.is_indexed(number):
                start, end = self._by_offset(snapshot, number, start, end)
                start, end = self._by_time(snapshot, number, start, end)
            if start < end:
                found[number] = start, end
        return found

    def _by_offset(self, snapshot: Snapshot, number: int, start: int, end: int) -> tuple[int, int]:
        low, high = self.offset.ends()
        segments = snapshot.segments
        if low is not None and low > start:
            start = max(start, segments.boundary_before(number, low + 1))
        if high is not None and high < end:
            record = segments.index(number).locate_offset(max(high + 1, 0))
            end = end if record is None else min(end, record.offset)
        return start, end

    def _by_time(self, snapshot: Snapshot, number: int, start: int, end: int) -> tuple[int, int]:
        low, high = self.timestamp.ends()
        segments = snapshot.segments
        if (low is None and high is None) or not segments.has_times(number):
            return start, end
        if low is not None:
            start = max(start, segments.offset_at(number, start, low - CLOCKS_DIFFER))
        if high is not None:
            record = segments.index(number).locate_time(high + CLOCKS_DIFFER + 1)
            end = end if record is None else min(end, segments.record_start(number, record))
        return start, end
