"""Event numbers: the number of the last durable event of each numbering producer of a stream (X3).

It is an attribute of the stream's segment `#writers`, which the append that carries the events replaces, on the
condition that it still is the number that the producer knows (Pravega: AppendProcessor, the attribute of a writer id).
So of two processes that write as one producer, each event is appended by one of them. The other's append is rejected as
a whole, and it appends only what is missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from engine.errors import BadAttributeUpdate, SegmentNotFound
from engine.state.operations import AttributeUpdate, Operation, UpdateAttributes, UpdateKind
from engine.state.segments import NULL_VALUE
from pravega_spark.errors import NumbersLost, StreamError
from pravega_spark.streams.writing.producer_state import writer_attribute

if TYPE_CHECKING:
    from pravega_spark.streams.reading.location import StreamLocation
    from pravega_spark.streams.reading.readable import ReadableContainer

MAX_NUMBER = (1 << 63) - 1
"""The greatest number of an event."""


class AlreadyWritten(StreamError):
    """An append was rejected because the producer's events up to number `last` are in the stream already."""

    def __init__(self, last: int) -> None:
        super().__init__(f"the producer's events up to number {last} are written already")
        self.last = last


class NumberedWrite(NamedTuple):
    """Some events of a producer. last: the number of the last one. before: that of the producer's last event before
    them, None if there was none."""

    producer: str
    last: int
    before: int | None

    def __str__(self) -> str:
        return f"the write of producer {self.producer!r} up to its event {self.last}"


def last_number(stream: StreamLocation, producer: str) -> int | None:
    """The number of a producer's last event in a stream, as this process knows it. None if there is none."""
    container: ReadableContainer = stream.container
    attribute = _attribute(producer)
    try:
        return container.known_attributes(stream.writers, [attribute]).get(attribute)
    except SegmentNotFound:
        return None


def _attribute(producer: str) -> bytes:
    return writer_attribute(f"events:{producer}")


class NumberUpdate:
    """The update of a producer's number by one write. The append that it is part of fails if it does not apply."""

    def __init__(self, stream: StreamLocation, write: NumberedWrite) -> None:
        self._stream = stream
        self._write = write

    def advance(self) -> list[Operation]:
        """Applies if the producer's last event is still `before`."""
        _, last, before = self._write
        kind, attribute = UpdateKind.REPLACE_IF_EQUALS, _attribute(self._write.producer)
        update = AttributeUpdate(attribute, kind, last, NULL_VALUE if before is None else before)
        return [UpdateAttributes(self._stream.writers, (update,))]

    def is_rejected_by(self, error: BadAttributeUpdate) -> bool:
        """Whether the error says that this update did not apply."""
        return error.segment == self._stream.writers and error.attribute == _attribute(self._write.producer)

    def resolved(self) -> list[Operation] | None:
        """Raises AlreadyWritten with the present number; NumbersLost if that is less than was acknowledged."""
        present, before = last_number(self._stream, self._write.producer), self._write.before
        if present is None or (before is not None and present < before):
            raise NumbersLost(self._stream.key, self._write.producer, before, present)
        raise AlreadyWritten(present)
