"""Activity: when the events of a stream's segments came, for pictures.

Read from the sparse indexes, with at most MOST_READS reads however long the stream is. Where an index is longer than
that, the reads go to the parts in which most is unknown. What is left between them is spread evenly.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from engine.state.index_records import RECORD_SIZE
from engine.state.segments import EVENT_COUNT
from pravega_spark.streams.model.index import UNKNOWN_TIME
from pravega_spark.streams.reading.indexed_segments import IndexedSegments

MOST_READS = 64
"""Reads of index records for all segments of a stream."""

_RECORDS = 4096  # of one read
_PARTS = 1000  # of a segment's time that are distinguished

_COUNT, _TIME = 1, 2  # columns of an index record


class Growth(NamedTuple):
    """The number of events that came to a segment from `begun` to `ended` (ms since the epoch, both included)."""

    begun: int
    ended: int
    events: int


class Lifetime(NamedTuple):
    """When a segment was open, in ms since the epoch. share: of the keys that it owns."""

    begun: int
    ended: int
    share: float


class _Unread(NamedTuple):
    """A part of an index that is not read yet: records [first, end), and time and event count at both ends."""

    segment: int
    first: int
    end: int
    begun: int
    before: int
    ended: int
    after: int


def activity(
    segments: IndexedSegments, lifetimes: Mapping[int, Lifetime], most_reads: int = MOST_READS
) -> dict[int, tuple[Growth, ...]]:
    """The readable events of segments by time, for those that have any.

    The segments must be loaded. Left out are segments whose index would have to be built from their events, and those
    whose events have unknown times, in the storage of a Pravega. Raises InvalidIndex.
    """
    found: dict[int, list[np.ndarray]] = {}
    waiting: list[tuple[float, _Unread]] = []

    def plan(part: _Unread) -> None:
        if part.after > part.before:
            area = (part.ended - part.begun) * lifetimes[part.segment].share
            heappush(waiting, (-area, part))

    for number in lifetimes:
        for part in _whole(segments, number, lifetimes[number]):
            plan(part)
    for _ in range(most_reads):
        if not waiting:
            break
        part = heappop(waiting)[1]
        rows, unread = _read(segments, part)
        found.setdefault(part.segment, []).append(rows)
        for rest in unread:
            plan(rest)
    for _, part in waiting:
        found.setdefault(part.segment, []).append(np.array([[part.begun, part.ended, part.after - part.before]]))
    grown = {number: _merged(np.concatenate(rows), lifetimes[number]) for number, rows in sorted(found.items())}
    return {number: rows for number, rows in grown.items() if rows}


def _whole(segments: IndexedSegments, number: int, life: Lifetime) -> Iterator[_Unread]:
    """The whole index of a segment, if it has a usable one."""
    segment = segments.segment(number)
    if segment.length > segment.start_offset and segments.is_indexed(number) and not segments.index_key(number):
        index = segments.index_segment(number)
        first, end = index.start_offset // RECORD_SIZE, index.length // RECORD_SIZE
        before = segments.count_before(number, segment.start_offset)
        after = segment.attributes.get(EVENT_COUNT, 0)
        if first < end:
            yield _Unread(number, first, end, life.begun, before, life.ended, after)


def _read(segments: IndexedSegments, part: _Unread) -> tuple[np.ndarray, list[_Unread]]:
    """The growth by the records in the middle of a part, as rows; and what of it is not read yet."""
    number, first, end, begun, before, ended, after = part
    low = max(first, min((first + end - _RECORDS) // 2, end - _RECORDS))
    high = min(low + _RECORDS, end)
    records = segments.index(number).records(low, high)
    times, counts = records[:, _TIME], records[:, _COUNT]
    if (times == UNKNOWN_TIME).any():
        return np.empty((0, 3), np.int64), []
    times = np.clip(np.maximum.accumulate(times), begun, ended)  # the clocks of writers differ
    unread = []
    if low > first:  # the events of its first record came after a record that was not read
        unread.append(_Unread(number, first, low + 1, begun, before, int(times[0]), int(counts[0])))
        times, before, counts = times[1:], int(counts[0]), counts[1:]
    if high < end:
        unread.append(_Unread(number, high, end, int(times[-1]), int(counts[-1]), ended, after))
    grown = np.diff(counts, prepend=before)
    return np.column_stack((times, times, grown)), unread


def _merged(rows: np.ndarray, life: Lifetime) -> tuple[Growth, ...]:
    """Rows in order of time; those within the same small part of the segment's time as one."""
    rows = rows[rows[:, 2] > 0]
    if not len(rows):
        return ()
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    width = max((life.ended - life.begun) // _PARTS, 1)
    parts = (rows[:, :2] - life.begun) // width
    spread = parts[:, 1] > parts[:, 0]
    same = (np.diff(parts[:, 0], prepend=-1) == 0) & ~spread & ~np.concatenate(([False], spread[:-1]))
    starts = np.flatnonzero(~same)
    events = np.add.reduceat(rows[:, 2], starts)
    ends = np.maximum.reduceat(rows[:, 1], starts)
    return tuple(_growths(zip(rows[starts, 0].tolist(), ends.tolist(), events.tolist(), strict=True)))


def _growths(rows: Iterable[tuple[int, int, int]]) -> Iterator[Growth]:
    return (Growth(*row) for row in rows)
