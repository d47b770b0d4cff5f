"""An event as programs get it, whichever call returned it: its payload, and where it is in its stream.

Keeps that programs of the Python client of the original work: there `data` and `offset` are methods, so here both
values can be called too. The payload of a large event is fetched on access (PDP-43).
"""

from __future__ import annotations

from typing import NamedTuple

from pravega_spark.client.large_events.event_file import EventFile, check_limit
from pravega_spark.client.lazy_payload import Content, LazyPayload, payload_of, size_of
from pravega_spark.parameters import checks_parameters
from pravega_spark.streams.model.events import HEADER_SIZE
from pravega_spark.streams.model.pointers import EventPointer


class Payload(bytes):
    """The payload of an event. It can be called, as in `pravega_client`: `event.data()` equals `event.data`."""

    __slots__ = ()

    def __call__(self) -> bytes:
        """The payload itself."""
        return self


class Offset(int):
    """The offset of an event. It can be called, as in `pravega_client`: `event.offset()` equals `event.offset`."""

    __slots__ = ()

    def __call__(self) -> int:
        """The offset itself."""
        return self


class _Fields(NamedTuple):
    """An event as a tuple. The first field of an event of more than 8 MiB is a lazy payload."""

    data: Content
    segment_id: int
    offset: int
    scope: str
    stream: str


@checks_parameters()
class Event(_Fields):
    """An event: its payload, its segment, and the offset of its header in the segment."""

    __slots__ = ()

    @property
    def data(self) -> Payload:
        """The payload; `event.data()` is the same."""
        content = payload_of(self[0])
        return content if isinstance(content, Payload) else Payload(content)

    @property
    def value(self) -> bytes:
        """The payload."""
        return payload_of(self[0])

    @property
    def offset(self) -> Offset:
        """The offset of its header in the segment; `event.offset()` is the same."""
        return Offset(self[2])

    @property
    def pointer(self) -> EventPointer:
        """The pointer by which the event can be read again."""
        return EventPointer(self.scope, self.stream, self.segment_id, self[2], HEADER_SIZE + self.size)

    @property
    def size(self) -> int:
        """Bytes of the payload."""
        return size_of(self[0])

    def get_event(self, limit: int | None = None) -> bytes:
        """The payload. Raises EventTooLarge, without fetching anything, if it has more than `limit` bytes."""
        check_limit(self.pointer, limit)
        return self.value

    def to_str(self) -> str:
        """The event as text for people."""
        return f"offset {self[2]} data :{self.value!r}"

    def __repr__(self) -> str:
        return f"Event({self.to_str()})"


class LazyEvent(Event):
    """An event of more than 8 MiB: each access fetches the payload.

    `data` and `get_event()` load all of it into memory; `open()` returns it as a file. They raise NoSuchEvent if the
    event was truncated meanwhile.
    """

    __slots__ = ()

    def open(self) -> EventFile:
        """The payload as a file that is read piece by piece."""
        unread = self[0]
        assert isinstance(unread, LazyPayload)  # which makes it one of these
        return unread.open()

    def to_str(self) -> str:
        """The event as text for people."""
        return f"offset {self[2]} data: {self.size} bytes, not read"
