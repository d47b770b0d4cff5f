"""Events as the readers of a group return them, and how they are read from a part of a segment.

A read returns whole events from one offset to another. The payload of a large event is fetched when the program
accesses it (PDP-43).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pravega_spark.client.large_events.event_file import EventFile, check_limit
from pravega_spark.client.lazy_payload import Content, LazyPayload, payload_of, size_of
from pravega_spark.parameters import checks_parameters
from pravega_spark.streams.model.events import HEADER_SIZE, MAX_EVENT_SIZE
from pravega_spark.streams.model.pointers import EventPointer
from pravega_spark.streams.reading.location import StreamLocation
from pravega_spark.streams.reading.scan import SliceReader
from pravega_spark.streams.reading.slices import Events, plan_slice
from pravega_spark.streams.reading.snapshot import Snapshot


class Payload(bytes):
    """The payload of an event. It can be called, as in `pravega_client`: `event.data()` equals `event.data`."""

    __slots__ = ()

    def __call__(self) -> bytes:
        """The payload itself."""
        return self


class _Fields(NamedTuple):
    """An event as a tuple. The first field of an event of more than 8 MiB is a lazy payload."""

    value: Content
    scope: str
    stream: str
    segment_id: int
    start: int


@checks_parameters()
class EventData(_Fields):
    """An event returned by a reader: its payload, and the offset of its header in the segment."""

    __slots__ = ()

    @property
    def value(self) -> bytes:
        """The payload."""
        return payload_of(self[0])

    @property
    def data(self) -> Payload:
        """The payload; `event.data()` is the same."""
        return Payload(self.value)

    def get_event(self, limit: int | None = None) -> bytes:
        """The payload. Raises EventTooLarge, without fetching anything, if it has more than `limit` bytes."""
        check_limit(self.pointer, limit)
        return self.value

    def offset(self) -> int:
        """The offset of its header in the segment."""
        return self.start

    @property
    def size(self) -> int:
        """Bytes of the payload."""
        return size_of(self[0])

    @property
    def pointer(self) -> EventPointer:
        """The pointer by which the event can be read again."""
        return EventPointer(self.scope, self.stream, self.segment_id, self.start, HEADER_SIZE + self.size)

    def to_str(self) -> str:
        """The event as text for people."""
        return f"offset {self.start} data :{self.value!r}"

    def __repr__(self) -> str:
        return f"EventData({self.to_str()})"


class LargeEventData(EventData):
    """An event of more than 8 MiB: each access fetches the payload (see reader.LazyEvent)."""

    __slots__ = ()

    def open(self) -> EventFile:
        """The payload as a file that is read piece by piece."""
        unread = self[0]
        assert isinstance(unread, LazyPayload)  # which makes it one of these
        return unread.open()

    def to_str(self) -> str:
        """The event as text for people."""
        return f"offset {self.start} data: {self.size} bytes, not read"


class _Block(NamedTuple):
    """Consecutive small events: their bytes, the offset in the segment, each event's position, and their lengths."""

    data: bytes
    offset: int
    starts: list[int]
    lengths: list[int]


def read_slice(snapshot: Snapshot, segment: int, start: int, end: int) -> Iterator[tuple[EventData, int]]:
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
) -> Iterator[tuple[EventData, int]]:
    for block in blocks:
        if isinstance(block, LazyPayload):
            place = block.pointer
            event = LargeEventData(block, stream.scope, stream.name, segment, place.offset)
            yield event, place.offset + place.length
            continue
        data, offset, starts, lengths = block
        for start, length in zip(starts, lengths, strict=True):
            begin = start + HEADER_SIZE
            payload = data[begin : begin + length]
            yield EventData(payload, stream.scope, stream.name, segment, offset + start), offset + begin + length
