"""Errors of streams. Each names the scope, stream or cut it is about and what to do."""

from __future__ import annotations

import uuid
from collections.abc import Sequence


class StreamError(Exception):
    """Base of the errors that streams raise."""


class ScopeNotFound(StreamError):
    """The scope does not exist."""

    def __init__(self, scope: str) -> None:
        super().__init__(f"Scope does not exist: {scope}. Create it first, or set option 'allow_create_scope' to true.")


class ScopeNotEmpty(StreamError):
    """The scope still holds streams or reader groups. groups: the names of the latter."""

    def __init__(self, scope: str, groups: Sequence[str] = ()) -> None:
        more = f" and {len(groups) - 10} more" if len(groups) > 10 else ""
        what = f"reader groups first: {', '.join(groups[:10])}{more}" if groups else "streams first"
        super().__init__(f"Scope is not empty: {scope}. Delete its {what}.")
        self.scope = scope
        self.groups = tuple(groups)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.scope, self.groups)


class StreamNotFound(StreamError):
    """The stream does not exist."""

    def __init__(self, stream: str) -> None:
        super().__init__(
            f"Stream does not exist: {stream}. Create it first, or set option 'allow_create_stream' to true."
        )


class StreamSealed(StreamError):
    """The stream is sealed: it can be read, but takes no more events."""

    def __init__(self, stream: str) -> None:
        super().__init__(f"Stream is sealed: {stream}. It can be read and deleted, not written, scaled or truncated.")


class StreamNotSealed(StreamError):
    """Only a sealed stream can be deleted."""

    def __init__(self, stream: str) -> None:
        super().__init__(f"Stream is not sealed: {stream}. Seal it first, then delete it.")


class TransactionNotFound(StreamError):
    """There is no such transaction: it never was, or it ended so long ago that it was forgotten."""

    def __init__(self, stream: str, transaction: uuid.UUID) -> None:
        super().__init__(
            f"Stream {stream} has no transaction {transaction}: it was never begun, or ended long ago. Begin another."
        )
        self.stream = stream
        self.transaction = transaction

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.stream, self.transaction)


class TransactionClosed(StreamError):
    """The transaction takes nothing more. status: "committed" or "aborted"."""

    def __init__(self, stream: str, transaction: uuid.UUID, status: str) -> None:
        why = "" if status == "committed" else ", by its writer or because nobody pinged it in time"
        super().__init__(f"Transaction {transaction} of stream {stream} was {status}{why}. Begin another one.")
        self.stream = stream
        self.transaction = transaction
        self.status = status

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.stream, self.transaction, self.status)


class LargeEventError(StreamError):
    """Base of what goes wrong with a large event that is being written. `details` are put into the class's problem."""

    problem = "{0}"

    def __init__(self, stream: str, *details: object) -> None:
        super().__init__(f"Large event of stream {stream}: {self.problem.format(*details)}")
        self.stream = stream
        self.details = details

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.stream, *self.details)


class EventTooLong(LargeEventError, ValueError):
    """More was written to a large event than one may have: so many bytes, and the limit. It was aborted."""

    problem = "with {0} bytes it would exceed the limit of {1} bytes. It was aborted: split it"


class EventClosed(LargeEventError, ValueError):
    """The large event takes nothing more: how it ended."""

    problem = "it was {0} before. Begin another one"


class EventExists(LargeEventError):
    """An event with this name was committed before."""

    problem = "the event {0!r} is in the stream already and is not written twice. Give another event another name"


class EventTaken(LargeEventError):
    """Another process goes on with the upload of this name, so that this one must not."""

    problem = "another process has begun or aborted the event {0!r} meanwhile. Nothing of it is written here any more"


class EventExpired(LargeEventError):
    """What was uploaded is deleted, and why."""

    problem = "{0}, so that what was uploaded is deleted. Begin it again"


class EventSegmentSealed(LargeEventError):
    """The segment of the event, which is named, was sealed by a scale. Nothing was committed, and nothing is lost."""

    problem = (
        "its segment {0} was sealed, as the stream was scaled. Nothing is lost: commit(move=True) lets it into the "
        "segment that has its key now, without uploading it again; or abort it and begin another one"
    )


class InvalidStreamCut(StreamError, ValueError):
    """A stream cut is of another stream, or names segments or offsets that the stream does not have."""


class InvalidScale(StreamError, ValueError):
    """The segments of a stream cannot be replaced in this way."""

    def __init__(self, stream: str, problem: str) -> None:
        super().__init__(f"Stream {stream} cannot be scaled so: {problem}")
        self.stream = stream
        self.problem = problem

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.stream, self.problem)


class TruncatedData(StreamError):
    """A range that was to be read has been truncated away.

    stream: "scope/stream"; segment_id; [start, end): the offsets that are lost. end is None where it is not known how
    much there was in a segment that is gone.
    """

    def __init__(self, stream: str, segment_id: int, start: int, end: int | None) -> None:
        lost = f"between offsets {start} and {end}" if end is not None else f"from offset {start} on"
        super().__init__(
            f"Stream {stream}, segment {segment_id}: the data {lost} has been truncated and "
            "cannot be read any more. Set option 'fail_on_data_loss' to false to go on at the head of the stream, "
            "or start from a later stream cut."
        )
        self.stream = stream
        self.segment_id = segment_id
        self.start = start
        self.end = end

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.stream, self.segment_id, self.start, self.end)


class NoSuchEvent(StreamError):
    """The event that a pointer names has been truncated away (Pravega: NoSuchEventException)."""

    def __init__(self, pointer: str) -> None:
        super().__init__(
            f"Event {pointer} does not exist any more: it was truncated away, or its segment never was. Read the "
            "stream from its head to find the events that are there."
        )
        self.pointer = pointer

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.pointer,)


class InvalidEventPointer(StreamError, ValueError):
    """What a pointer names is not the place of an event."""

    def __init__(self, pointer: str) -> None:
        super().__init__(
            f"Pointer {pointer}: no event of this length begins at this offset. Take pointers as readers give them; "
            "they belong to one stream of one root."
        )
        self.pointer = pointer

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.pointer,)


class EventTooLarge(StreamError, ValueError):
    """An event has more bytes than were asked for (PDP-43: EventTooLargeException). pointer: the text of its place."""

    def __init__(self, pointer: str, size: int, limit: int) -> None:
        super().__init__(
            f"Event {pointer} has {size} bytes, more than the limit of {limit}. Read it piece by piece: "
            "StreamManager.open_event(pointer) gives it as a file."
        )
        self.pointer = pointer
        self.size = size
        self.limit = limit

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.pointer, self.size, self.limit)
