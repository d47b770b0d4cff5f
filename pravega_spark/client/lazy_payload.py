"""The payload of a large event that is fetched on access.

Keeps L1: it holds no byte of the payload, and each access fetches it again. So a program can keep any number of
large events without using memory for them. An event of a reader holds its payload, or a lazy one: `Content`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from engine.root import Root
from pravega_spark.client.large_events.event_file import EventFile, EventPayload, open_event_file
from pravega_spark.streams.model.events import HEADER_SIZE
from pravega_spark.streams.model.pointers import EventPointer
from pravega_spark.streams.reading.location import StreamLocation
from pravega_spark.streams.reading.slices import Events


@dataclass(frozen=True)
class LazyPayload:
    """A payload that was not read. Its methods raise NoSuchEvent if the event was truncated, and StorageError."""

    root: Root
    pointer: EventPointer

    @classmethod
    def found(cls, stream: StreamLocation, events: Events) -> LazyPayload:
        """The payload of a large event that a scan did not read."""
        length = HEADER_SIZE + int(events.lengths[0])
        return cls(stream.root, EventPointer(stream.scope, stream.name, events.segment_id, events.offset, length))

    @property
    def size(self) -> int:
        """Bytes of the payload."""
        return self.pointer.length - HEADER_SIZE

    def open(self) -> EventFile:
        """The payload as a file that is read piece by piece."""
        return open_event_file(self.root, self.pointer)

    def whole(self) -> bytes:
        """All of the payload."""
        return EventPayload.at(self.root, self.pointer).whole()


Content: TypeAlias = "bytes | LazyPayload"
"""The payload of an event, or a lazy one."""


def size_of(content: Content) -> int:
    """Bytes of a payload."""
    return len(content) if isinstance(content, bytes) else content.size


def payload_of(content: Content) -> bytes:
    """The payload, fetched if it is lazy."""
    return content if isinstance(content, bytes) else content.whole()
