"""A transaction on its way from its caller to a frame, and what became of it.

A transaction is a list of operations that take effect together or not at all. This module owns its outcome: a Receipt
or an error, set once, for which one thread waits (`result`) or a future (`create_future`).
"""

from __future__ import annotations

import enum
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, TimeoutError as WaitTimeout
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from engine.errors import InvalidOperation
from engine.interrupts import uninterrupted
from engine.state.operations import (
    ActivateSegment,
    AnswerSubmissions,
    Append,
    CreateSegment,
    CreateTable,
    DeleteSegment,
    DeleteTable,
    ExpireSegments,
    LoadAttributes,
    MergeSegment,
    Operation,
    Payload,
    SealSegment,
    TruncateSegment,
    checked,
)
from engine.state.state import State
from engine.state.tables import LookupResult
from engine.tables.content import TableLayout

if TYPE_CHECKING:
    from engine.logs.submission import Carrying

SPILL_BYTES = 64 << 10
"""A transaction with at least this much payload goes to a chunk once it has lost a race, or before its first one where
other processes write too (design 3, group commit): a lost race then costs a small frame, never the payload again."""

_INTERNAL = (ActivateSegment, LoadAttributes, AnswerSubmissions)
"""Operations that the log adds by itself."""


class Receipt(NamedTuple):
    """The result of a committed transaction: its frame's address and each operation's result (see State.apply).

    `tries` is the number of frames that were sent for it: one more than the races it lost. `state` is the one after its
    frame.
    """

    address: int
    results: list[Any]
    tries: int
    state: State


class Priority(enum.IntEnum):
    """How urgent a transaction is (Pravega: OperationPriority). Urgent ones are not held back by a long queue."""

    SYSTEM = 0  # what the container needs for itself
    DELETION = 1
    NORMAL = 2


class CommitFuture(Future[Receipt]):
    """The future of a transaction. A submitted transaction cannot be cancelled, so no caller has to check for that.

    A waiting thread holds none of the future's locks, which the thread that completes it needs (see `engine.waiting`).
    """

    def __init__(self, transaction: Transaction) -> None:
        super().__init__()
        self._transaction = transaction

    def cancel(self) -> bool:
        """Does nothing: False."""
        return False

    def result(self, timeout: float | None = None) -> Receipt:
        """Wait for the receipt. Raises the transaction's error; TimeoutError after `timeout` seconds."""
        outcome = self._outcome(timeout)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the transaction's error, None if it was committed. Raises TimeoutError after `timeout` seconds."""
        outcome = self._outcome(timeout)
        return outcome if isinstance(outcome, BaseException) else None

    def _outcome(self, timeout: float | None) -> Receipt | BaseException:
        if self._transaction.outcome is None:  # a callback asks before the waiting threads are released
            self._transaction.wait(-1 if timeout is None else timeout)
        if self._transaction.outcome is None:
            raise WaitTimeout
        return self._transaction.outcome


_RAISED = BaseException()
"""The outcome of a transaction whose waiting thread has got its error: the frames in that one's traceback hold the
transaction, and a cycle would keep its payload until Python's collector comes by."""


class Transaction:
    """A transaction on its way.

    priority, number: its place in the queue, by urgency first and then in the order of submission. queued_at: when it
    was submitted. admitted: bytes that the throttle counts for it, until it is completed. tries: frames sent for it;
    sent: one of them may be live. spill: its payload shall go to a chunk; chunk: the chunk where it is. looked_up: what
    was looked up in LTS to validate it, each under the root of its table then. missing_table: the table that could not
    be looked up. outcome: None until it is completed. future: for a caller that does not wait. abandoned: the thread
    that waited for it does not any more. carrying: whose it is, if another process submitted it. direct: it goes into
    a frame of this process, whichever process makes the frames of this epoch.
    """

    __slots__ = (
        "_chain",
        "_completed",
        "_released",
        "abandoned",
        "admitted",
        "carrying",
        "chunk",
        "direct",
        "future",
        "looked_up",
        "missing_table",
        "number",
        "operations",
        "outcome",
        "priority",
        "queued_at",
        "sent",
        "size",
        "spill",
        "tries",
    )

    def __init__(self, operations: Sequence[Operation], direct: bool = False) -> None:
        """Raises InvalidOperation for an operation that could not be read back (W14)."""
        self.operations = tuple(map(checked, operations))
        for operation in self.operations:
            if isinstance(operation, _INTERNAL):
                raise InvalidOperation("operations that the log adds by itself are never submitted")
        self.size = payload_size(self.operations)
        self.number = -1
        self.priority = Priority.NORMAL
        self.admitted = 0
        self.carrying: Carrying | None = None
        self.direct = direct
        self.looked_up: dict[tuple[str, str], LookupResult] = {}
        self.missing_table: TableLayout | None = None
        self.outcome: Receipt | BaseException | None = None
        self.future: CommitFuture | None = None  # a waiting thread needs none, which saves two thirds of the work
        self.abandoned = False
        self._released = False
        self._chain: deque[Transaction] | None = None
        self._completed = threading.Lock()  # held until then
        self._completed.acquire()
        self.queued_at = time.monotonic()
        self.sent = False
        self.spill = False
        self.chunk: str | None = None
        self.tries = 0

    def create_future(self) -> CommitFuture:
        """Its future, for a caller that does not wait; to be made before it is submitted."""
        self.future = CommitFuture(self)
        return self.future

    def complete(self, outcome: Receipt | BaseException, chain: deque[Transaction] | None = None) -> None:
        """Set the outcome, once. chain: the waiting thread is released by `wake_next`, one after the other with those
        of other transactions that are completed meanwhile."""
        self.outcome = outcome
        if self.future is None and chain is not None:
            self._chain = chain
            chain.append(self)
            return
        if self.future is None:
            pass
        elif isinstance(outcome, BaseException):
            self.future.set_exception(outcome)
        else:
            self.future.set_result(outcome)
        self.release()

    def release(self) -> None:
        """Release the thread that waits for it."""
        if not self._released:
            self._released = True
            self._completed.release()

    def wait(self, timeout: float = -1) -> None:
        """Wait until it is completed, at most `timeout` seconds; -1: without end."""
        if timeout < 0:
            with self._completed:  # acquired and released in one step each
                return
        if self._completed.acquire(timeout=timeout):
            self._completed.release()

    def result(self) -> Receipt:
        """Wait for the receipt; for one thread. Raises the transaction's error."""
        with self._completed:
            pass
        if self._chain:  # a thread that was taken out of it and not released would wait for ever
            self._wake_next()
        outcome = self.outcome
        assert outcome is not None
        if not isinstance(outcome, BaseException):
            return outcome
        if self.future is None:
            self.outcome = _RAISED
        try:
            raise outcome
        finally:
            del outcome

    def abandon(self) -> None:
        """The thread that was to call `result` does not wait any more, so it wakes no other one."""
        self.abandoned = True
        if self._released and self._chain:
            self._wake_next()

    def _wake_next(self) -> None:
        if self._chain:
            uninterrupted(partial(wake_next, self._chain))

    def is_large(self) -> bool:
        """Whether it has enough payload for a chunk of its own."""
        return self.size >= SPILL_BYTES and self.spillable_bytes() >= SPILL_BYTES

    def spillable_bytes(self) -> int:
        """How many bytes could go to a chunk: those that do not depend on the state."""
        contents = [op.content for op in self.operations if isinstance(op, Append)]
        return sum(len(content) for content in contents if isinstance(content, Payload))

    def plain_append(self) -> Append | None:
        """Its only operation, if that appends bytes at the end of a segment, without conditions."""
        operation = self.operations[0] if len(self.operations) == 1 else None
        if not isinstance(operation, Append) or operation.offset is not None or operation.updates or self.looked_up:
            return None
        return operation if isinstance(operation.content, Payload) else None

    def appended_payload(self) -> Payload:
        """The bytes of a plain append."""
        append = self.operations[0]
        assert isinstance(append, Append) and isinstance(append.content, Payload)
        return append.content


def wake_next(chain: deque[Transaction]) -> None:
    """Release one of the threads that wait for these transactions, which releases the next one: threads that all wake
    at once keep each other, and the one that makes the next frame, from running. Abandoned ones are passed over."""
    with suppress(IndexError):
        while True:
            transaction = chain.popleft()
            transaction.release()
            if not transaction.abandoned:
                return


def adds_data(operations: Sequence[Operation]) -> bool:
    """Whether a transaction adds segments, tables or bytes, and does nothing that lets space be freed (P6)."""
    return any(isinstance(each, _ADDING) for each in operations) and not any(
        isinstance(each, _FREEING) for each in operations
    )


_ADDING = (Append, CreateSegment, CreateTable)
_FREEING = (TruncateSegment, DeleteSegment, ExpireSegments, SealSegment, MergeSegment, DeleteTable)


def payload_size(operations: Sequence[Operation]) -> int:
    """How many bytes of payload operations bring to a frame."""
    size = 0
    for operation in operations:
        if isinstance(operation, Append):
            content = operation.content
        elif isinstance(operation, MergeSegment):
            content = operation.header
        else:
            continue
        if not isinstance(content, tuple):
            size += len(content)
    return size
