"""Events as the readers of a group give them out, and how they come out of a part of a segment.

What is read at once is whole events from one place to another; a large one among them stays where it is until somebody
asks for its payload (PDP-43).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pravega_spark.client.large_events.event_file import EventFile, check_limit
from pravega_spark.client.unread import Content, Unread, payload_of, size_of
from pravega_spark.parameters import checks_parameters
from pravega_spark.streams.model.events import HEADER_SIZE, MAX_EVENT_SIZE
from pravega_spark.streams.model.pointers import EventPointer
from pravega_spark.streams.reading.location import StreamLocation
from pravega_spark.streams.reading.scan import SliceReader
from pravega_spark.streams.reading.slices import Events, plan_slice
from pravega_spark.streams.reading.snapshot import Snapshot


class Payload(bytes):
    """The payload of an event. It may be called, as `pravega_client` has it: `event.data()` is `event.data`."""

    __slots__ = ()

    def __call__(self) -> bytes:
        """The payload itself."""
        return self


class _Fields(NamedTuple):
    """What an event is as a tuple. The first field of one of more than 8 MiB is where its payload is."""

    value: Content
    scope: str
    stream: str
    segment_id: int
    start: int


@checks_parameters()
class EventData(_Fields):
    """An event that a reader was given: its payload, and the offset in its segment at which its header lies."""

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
        """The payload. Raises EventTooLarge if it has more than `limit` bytes, and then fetches nothing."""
        check_limit(self.pointer, limit)
        return self.value

    def offset(self) -> int:
        """Where it lies in its segment."""
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
    """An event of more than 8 MiB: its payload is fetched when it is asked for, each time (see reader.UnreadEvent)."""

    __slots__ = ()

    def open(self) -> EventFile:
        """The payload as a file that is read piece by piece."""
        unread = self[0]
        assert isinstance(unread, Unread)  # which makes it one of these
        return unread.open()

    def to_str(self) -> str:
        """The event as text for people."""
        return f"offset {self.start} data: {self.size} bytes, not read"


class _Block(NamedTuple):
    """Small events in a row: their bytes, their place in the segment, where in it each begins, and their lengths."""

    data: bytes
    offset: int
    starts: list[int]
    lengths: list[int]


def read_slice(snapshot: Snapshot, segment: int, start: int, end: int) -> Iterator[tuple[EventData, int]]:
    """The events of a part of a segment, each with the offset of the next one.

    All is read before this returns. Raises TruncatedData, SegmentTruncated, SegmentNotFound, DataCorruption,
    StorageError.
    """
    stream = snapshot.stream
    planned = plan_slice(snapshot, segment, start, end)
    reader = SliceReader(stream.root, stream.scope, stream.name, wanted=MAX_EVENT_SIZE)
    return _events(stream, segment, [_kept(stream, events) for events in reader.read([planned])])


def _kept(stream: StreamLocation, events: Events) -> _Block | Unread:
    """A copy of what was read, or the place of what was not."""
    if events.large:
        return Unread.found(stream, events)
    return _Block(bytes(events.data), events.offset, events.starts.tolist(), events.lengths.tolist())


def _events(stream: StreamLocation, segment: int, blocks: Sequence[_Block | Unread]) -> Iterator[tuple[EventData, int]]:
    for block in blocks:
        if isinstance(block, Unread):
            place = block.pointer
            event = LargeEventData(block, stream.scope, stream.name, segment, place.offset)
            yield event, place.offset + place.length
            continue
        data, offset, starts, lengths = block
        for start, length in zip(starts, lengths, strict=True):
            begin = start + HEADER_SIZE
            payload = data[begin : begin + length]
            yield EventData(payload, stream.scope, stream.name, segment, offset + start), offset + begin + length
