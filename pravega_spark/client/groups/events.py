"""Reads the events of a slice: of a part of a segment, from one offset to another. They are whole events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pravega_spark.client.event import Event, LazyEvent, Payload
from pravega_spark.client.lazy_payload import LazyPayload
from pravega_spark.streams.model.events import HEADER_SIZE, MAX_EVENT_SIZE
from pravega_spark.streams.reading.location import StreamLocation
from pravega_spark.streams.reading.scan import SliceReader
from pravega_spark.streams.reading.slices import Events, plan_slice
from pravega_spark.streams.reading.snapshot import Snapshot


class _Block(NamedTuple):
    """Consecutive small events: their bytes, the offset in the segment, each event's position, and their lengths."""

    data: bytes
    offset: int
    starts: list[int]
    lengths: list[int]


def read_slice(snapshot: Snapshot, segment: int, start: int, end: int) -> Iterator[tuple[Event, int]]:
    """The events of a part of a segment, each with the offset of the next one.

    All of them are read before this returns. Raises TruncatedData, SegmentTruncated, SegmentNotFound, DataCorruption,
    StorageError.
    """
    stream = snapshot.stream
    planned = plan_slice(snapshot, segment, start, end)
    reader = SliceReader(stream.root, stream.scope, stream.name, wanted=MAX_EVENT_SIZE)
    return _events(stream, segment, [_kept(stream, events) for events in reader.read([planned])])


def _kept(stream: StreamLocation, events: Events) -> _Block | LazyPayload:
    """A copy of the payload, or a lazy payload if it was not read."""
    if events.large:
        return LazyPayload.found(stream, events)
    return _Block(bytes(events.data), events.offset, events.starts.tolist(), events.lengths.tolist())


def _events(
    stream: StreamLocation, segment: int, blocks: Sequence[_Block | LazyPayload]
) -> Iterator[tuple[Event, int]]:
    for block in blocks:
        if isinstance(block, LazyPayload):
            place = block.pointer
            event = LazyEvent(block, segment, place.offset, stream.scope, stream.name)
            yield event, place.offset + place.length
            continue
        data, offset = memoryview(block.data), block.offset
        for start, length in zip(block.starts, block.lengths, strict=True):
            begin = start + HEADER_SIZE
            payload = Payload(data[begin : begin + length])
            yield Event(payload, segment, offset + start, stream.scope, stream.name), offset + begin + length
