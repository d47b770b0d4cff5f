"""Segment ranges: the parts of a stream between two cuts that any process can read by itself (Pravega:
BatchClientFactory.getSegments, readSegment).

A range is a value: it has no credentials and no location in the storage, so it stays valid when a flush moves its
bytes. It has the stream's id, so it never reads another stream of the same name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from pravega_spark.client.reader import EventRange, Ranges
from pravega_spark.errors import StreamRecreated
from pravega_spark.segment_ids import segment_label
from pravega_spark.streams.reading.slices import divided
from pravega_spark.streams.reading.snapshot import Snapshot
from pravega_spark.streams.reading.stream_position import StreamPosition, cut_at
from pravega_spark.streams.stream import Stream
from pravega_spark.streams.values.columns import ValueColumns


class SegmentRange(NamedTuple):
    """Consecutive events of one segment: those from offset `start` up to offset `end`, in bytes.

    Plain values, which can be pickled, compared, and stored as JSON. stream_id: tells the stream from a later one of
    its name. low, high: the segment has the routing keys with hashes above `low`, up to `high`. Two ranges share keys
    only if these intervals overlap.
    """

    scope: str
    stream: str
    stream_id: str
    segment_id: int
    start: int
    end: int
    low: float
    high: float

    @property
    def size(self) -> int:
        """Bytes of the events, with their headers."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.scope}/{self.stream} segment {segment_label(self.segment_id)}, bytes {self.start} to {self.end}"


def segment_ranges(
    stream: Stream, start: StreamPosition, end: StreamPosition, max_bytes: int
) -> tuple[SegmentRange, ...]:
    """The ranges between two positions, in the order in which `read_events` reads them.

    max_bytes: about the size of the largest one. Raises InvalidStreamCut, TruncatedData.
    """

    def found(snapshot: Snapshot) -> tuple[SegmentRange, ...]:
        wanted = snapshot.ranges(cut_at(start, snapshot, "head"), cut_at(end, snapshot, "tail"))
        ranges, _ = snapshot.available(wanted)
        segments, known = snapshot.record.history.segments, snapshot.record.id.hex()
        return tuple(
            SegmentRange(stream.scope, stream.name, known, number, low, high, *segments[number][1:])
            for number, low, high in divided(snapshot, ranges, max_bytes)
        )

    return stream.query(found)


def read_segment(
    stream: Stream, wanted: SegmentRange, check_open: Callable[[], None], values: ValueColumns | None = None
) -> EventRange:
    """The events of a range. Raises StreamRecreated, TruncatedData, PositionLost, InvalidStreamCut."""

    def resolved(snapshot: Snapshot) -> Ranges:
        if snapshot.record.id.hex() != wanted.stream_id:
            raise StreamRecreated(stream.key)
        return snapshot.range_of(wanted.segment_id, wanted.start, wanted.end)

    return EventRange(stream, resolved, check_open, values)
