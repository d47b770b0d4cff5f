"""Rebuilding sparse indexes from the events, where they are wrong.

Events can be read without an index, but counts, times and split reads depend on it. One append replaces the index
and the event count, on the condition that nothing was appended meanwhile, so other processes may use the stream.
Correct indexes are not changed.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

import numpy as np

from chunkstore import StorageError
from engine.errors import BadAttributeUpdate, DataCorruption, SegmentNotFound, SegmentTruncated
from engine.state.index_records import RECORD_SIZE
from engine.state.operations import (
    Append,
    AttributeUpdate,
    CreateSegment,
    DeleteSegment,
    Operation,
    Payload,
    SealSegment,
    UpdateAttributes,
    UpdateKind,
)
from engine.state.segments import EVENT_COUNT, NULL_VALUE, Segment
from pravega_spark.errors import StreamError
from pravega_spark.segment_ids import segment_label
from pravega_spark.streams.model.index import decode_records, encode_records
from pravega_spark.streams.model.index_builder import IndexBuilder, index_events
from pravega_spark.streams.reading.snapshot import Snapshot
from pravega_spark.streams.stream import Stream


class RepairedIndex(NamedTuple):
    """A segment whose index was rebuilt. before, events: the old and the new number of events."""

    segment_id: int
    before: int
    events: int


class _Comparison(IndexBuilder):
    """Builds the records of an index, and compares the existing ones: `at` is the number of events before each
    record's offset, -1 if no event ends there."""

    def __init__(self, start: int, known: np.ndarray) -> None:
        super().__init__(start)
        self._places = known[:, 0]
        self.at = np.full(len(known), -1, np.int64)

    def add(self, ends: np.ndarray) -> None:
        """Events, by the offsets in the segment where they end, ascending."""
        if len(ends):
            found = np.searchsorted(ends, self._places)
            hit = (found < len(ends)) & (ends[np.minimum(found, len(ends) - 1)] == self._places)
            self.at[hit] = self.events + found[hit] + 1
        super().add(ends)


def rebuild_indexes(stream: Stream) -> list[RepairedIndex]:
    """Rebuild the wrong indexes of a stream. Returns the changes; none the second time.

    Raises DataCorruption if bytes are not events, StreamError for a byte stream, StreamNotFound, StorageError.
    """
    found = []
    for number in stream.snapshot().record.segment_ids():
        with suppress(SegmentNotFound):  # it was truncated away
            if (changed := _rebuild(stream, number)) is not None:
                found.append(changed)
    return found


def _rebuild(stream: Stream, number: int) -> RepairedIndex | None:
    while True:
        snapshot = stream.snapshot()
        segment = snapshot.segments.segment(number)
        if segment.length and not segment.attributes.get(EVENT_COUNT) and not _index_of(snapshot, number).length:
            raise StreamError(f"stream {stream.key} is a byte stream, which has no index")
        with suppress(SegmentTruncated, BadAttributeUpdate):  # something was truncated or appended meanwhile
            operations, changed = _change(stream, snapshot, number)
            if operations:
                stream.container.commit(operations)
            return changed


def _index_of(snapshot: Snapshot, number: int) -> Segment:
    return snapshot.segments.index_segment(number)


def _change(stream: Stream, snapshot: Snapshot, number: int) -> tuple[list[Operation], RepairedIndex | None]:
    """The operations that replace the index of a segment, if it is wrong."""
    segment, index = snapshot.segments.segment(number), _index_of(snapshot, number)
    known, whole = _known(stream, index)
    builder = _Comparison(segment.start_offset, known)
    made = index_events(
        lambda low, high: stream.container.read(segment.name, low, high),
        segment.start_offset,
        segment.length,
        builder=builder,
    )
    if isinstance(made.problem, StorageError):
        raise made.problem
    if made.problem is not None:
        raise DataCorruption(
            f"stream {stream.key}, segment {segment_label(number)}, offset {made.problem.offset}: "
            f"{made.problem.problem}. Its index is made from its events, so restore them first"
        )
    before = _events_before(segment, known, builder.at)
    events, counted = before + builder.events, segment.attributes.get(EVENT_COUNT, NULL_VALUE)
    if whole and _is_right(segment, known, before + builder.at, builder.at, events, counted):
        return [], None
    records = decode_records(made.records)
    records[:, 1] += before
    if len(known):
        records[:, 2], records[:, 3] = _told(known, records[:, 0], 2), _told(known, records[:, 0], 3)
    else:
        records[:, 2] = segment.modified
    update = AttributeUpdate(EVENT_COUNT, UpdateKind.REPLACE_IF_EQUALS, events, counted)
    operations: list[Operation] = [
        UpdateAttributes(segment.name, (update,)),  # rejected if events were appended meanwhile
        DeleteSegment(index.name),
        CreateSegment(index.name),
        Append(index.name, Payload(encode_records(records))),
    ]
    if index.sealed:
        operations.append(SealSegment(index.name))
    return operations, RepairedIndex(number, max(counted, 0), events)


def _known(stream: Stream, index: Segment) -> tuple[np.ndarray, bool]:
    """The whole records of an index, and whether it has nothing else."""
    start = -(-index.start_offset // RECORD_SIZE) * RECORD_SIZE
    end = max(index.length // RECORD_SIZE * RECORD_SIZE, start)
    data = stream.container.read(index.name, start, end) if end > start else b""
    return decode_records(data), start == index.start_offset and end == index.length


def _events_before(segment: Segment, known: np.ndarray, at: np.ndarray) -> int:
    """Number of truncated events, by the first record at an event's end."""
    ends = np.flatnonzero(at >= 0)
    if not segment.start_offset or not len(ends):
        return 0
    return max(int(known[ends[0], 1] - at[ends[0]]), 0)


def _is_right(
    segment: Segment, known: np.ndarray, counts: np.ndarray, at: np.ndarray, events: int, counted: int
) -> bool:
    """Whether an index is correct: its records are after the segment's start, in order, up to its end."""
    if segment.length == segment.start_offset:
        return not len(known) or bool((known[:, 0] <= segment.length).all())
    behind = known[:, 0] > segment.start_offset
    rows = known[behind]
    return (
        len(rows) > 0
        and bool((at[behind] >= 0).all() and (rows[:, 1] == counts[behind]).all())
        and bool(all((np.diff(known[:, column]) >= 0).all() for column in (0, 1, 3)))
        and int(rows[-1, 0]) == segment.length
        and counted == events
    )


def _told(known: np.ndarray, offsets: np.ndarray, column: int) -> np.ndarray:
    """The times, or the append numbers, of the events up to these offsets, from the old records."""
    order = np.argsort(known[:, 0], kind="stable")
    places, values = known[order, 0], np.maximum.accumulate(known[order, column])
    found: np.ndarray = values[np.minimum(np.searchsorted(places, offsets), len(places) - 1)]
    return found
