"""Errors of streams. Each names the scope, stream or cut it is about and what to do."""

from __future__ import annotations

import uuid


class StreamError(Exception):
    """Base of the errors that streams raise."""


class ScopeNotFound(StreamError):
    """The scope does not exist."""

    def __init__(self, scope: str) -> None:
        super().__init__(f"Scope does not exist: {scope}. Create it first, or set option 'allow_create_scope' to true.")


class ScopeNotEmpty(StreamError):
    """The scope still holds streams."""

    def __init__(self, scope: str) -> None:
        super().__init__(f"Scope is not empty: {scope}. Delete its streams first.")


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
