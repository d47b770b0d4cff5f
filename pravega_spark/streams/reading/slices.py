"""Slices: ranges of segments that any process can read, and the events read from them.

A slice has the location of its bytes, so a task reads the objects itself, without the log (S1). `plan_slices` is the
one planner; where a segment has an index, it cuts at index records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from engine.state.index_records import RECORD_SIZE
from engine.storage.object_reads import ObjectRange

if TYPE_CHECKING:
    from pravega_spark.streams.reading.snapshot import Snapshot

MAX_UNINDEXED = 256 << 10
"""Slices up to this size are read without their index: parsing the events one by one costs less than reading it."""


class ScanSlice(NamedTuple):
    """Bytes `[start, end)` of a segment, from one event boundary to another. Plain values, so it can be pickled.

    records: the location of the index records of this range, or the records; empty for a small range that is not
    numbered. first: the number of the first event in the segment if events are numbered, else -1; the records reach up
    to the end then. indexed: False if the segment has no index at hand: its events are found by their headers.
    index_key: where the reader of such a slice saves the index that it builds on the way; "" for none.
    """

    segment_id: int
    start: int
    end: int
    pieces: tuple[ObjectRange, ...]
    records: tuple[ObjectRange, ...] | bytes
    first: int = -1
    indexed: bool = True
    index_key: str = ""


class Events(NamedTuple):
    """Consecutive events of a segment: their framed bytes, the position of each header in them, payload lengths.

    Valid until the next ones are read, into the same memory. `offset`: the segment offset of the first byte of `data`;
    `starts` count from there. `large`: one large event in memory of its own or, if `data` is empty, without its
    payload. `first`, `times`, `appends`: the number of the first event in the segment, the append time of each event
    (ms since the epoch) and the number of its append (see `index`), if the slices are numbered.
    """

    segment_id: int
    offset: int
    data: memoryview
    starts: np.ndarray
    lengths: np.ndarray
    large: bool = False
    first: int = -1
    times: np.ndarray | None = None
    appends: np.ndarray | None = None


def plan_slices(
    snapshot: Snapshot,
    ranges: dict[int, tuple[int, int]],
    target_bytes: int,
    numbered: bool = False,
) -> list[ScanSlice]:
    """Slices of about `target_bytes` at most that cover the ranges in order; none for an empty range."""
    parts = divided(snapshot, ranges, target_bytes)
    return [plan_slice(snapshot, number, low, high, numbered) for number, low, high in parts]


def divided(
    snapshot: Snapshot, ranges: Mapping[int, tuple[int, int]], target_bytes: int
) -> Iterator[tuple[int, int, int]]:
    """The ranges in parts of about `target_bytes` at most, in order, each from one event boundary to another: segment
    id, start and end. None for an empty range. A segment without an index is not divided."""
    for number, (start, end) in ranges.items():
        for low, high in pairwise(_bounds(snapshot, number, start, end, target_bytes)):
            yield number, low, high


def _bounds(snapshot: Snapshot, number: int, start: int, end: int, target_bytes: int) -> list[int]:
    """The boundaries of slices of a range: index records, which are event boundaries."""
    bounds = [start]
    if end - start > target_bytes and snapshot.segments.is_indexed(number):
        index = snapshot.segments.index(number)
        while end - bounds[-1] > target_bytes * 5 // 4:
            record = index.locate_offset(bounds[-1] + target_bytes)
            if record is None or record.offset >= end:
                break
            bounds.append(record.offset)
    return [*bounds, end] if end > start else []


def plan_slice(snapshot: Snapshot, number: int, start: int, end: int, numbered: bool = False) -> ScanSlice:
    """One slice. numbered: its events get numbers and times. Raises SegmentTruncated if the range is gone."""
    container = snapshot.stream.container
    segment = snapshot.segments.segment(number)
    pieces = container.plan_of(segment, start, end)
    if not numbered and not snapshot.segments.is_indexed(number):
        whole = (start, end) == (segment.start_offset, segment.length)
        key = snapshot.segments.index_key(number) if whole else ""
        return ScanSlice(number, start, end, tuple(pieces), (), indexed=False, index_key=key)
    index: tuple[ObjectRange, ...] | bytes = ()
    if end - start > MAX_UNINDEXED or numbered:
        records = snapshot.segments.index_segment(number)
        first = max(snapshot.segments.index_position(number, start) * RECORD_SIZE, records.start_offset)
        last = snapshot.segments.index_position(number, end) * RECORD_SIZE
        if numbered and last < records.length:
            last += RECORD_SIZE  # a slice that ends between two records has events of the second one
        index = snapshot.segments.index_bytes(number, first, last)
    count = snapshot.segments.count_before(number, start) if numbered else -1
    return ScanSlice(number, start, end, tuple(pieces), index, count)
