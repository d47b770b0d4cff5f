"""Transactions on their way: what was submitted, how urgent it is, and what was looked up to judge it.

The order of the queue is decided here: what the container needs for itself goes first, so that a long queue cannot keep
it from making room; deletions go next, where they overtake nothing that they are about.
"""

from __future__ import annotations

import enum
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, TimeoutError as NotInTime
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from engine.errors import InvalidOperation, Unresolved
from engine.interrupts import uninterrupted
from engine.state.operations import (
    ActivateSegment,
    AnswerSubmissions,
    Append,
    BeginCycle,
    CheckEntry,
    Checkpoint,
    Content,
    DeleteSegment,
    DequeueGarbage,
    EndCycle,
    EvictSegments,
    LoadAttributes,
    MergeSegment,
    Operation,
    Payload,
    PutEntry,
    QueueGarbage,
    RecordDeletion,
    RecordFlush,
    RecordStoredBounds,
    RecordTableFlush,
    SaveSegments,
    SpillAttributes,
    checked,
)
from engine.state.state import State, find_entry
from engine.state.tables import ATTRIBUTES, METADATA, METADATA_TABLES, Entry, LookupResult, stored_attribute
from engine.tables.content import TableLayout

if TYPE_CHECKING:
    from engine.logs.submission import Carrying


class Receipt(NamedTuple):
    """What became of a transaction: its frame's address and each operation's result (see State.apply).

    `tries` is the number of frames that were sent for it: one more than the races it lost. `state` is the one after its
    frame.
    """

    address: int
    results: list[Any]
    tries: int
    state: State


class Outcome(Future[Receipt]):
    """What becomes of a transaction. What was submitted cannot be cancelled, so nobody has to ask whether it was.

    Who waits holds none of its locks, which who tells of it needs (see `engine.waiting`).
    """

    def __init__(self, pending: Pending) -> None:
        super().__init__()
        self._pending = pending

    def cancel(self) -> bool:
        """Does nothing: False."""
        return False

    def result(self, timeout: float | None = None) -> Receipt:
        """Wait for it. Raises what it is told otherwise; TimeoutError after so many seconds."""
        told = self._told(timeout)
        if isinstance(told, BaseException):
            raise told
        return told

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the error that it is told, None if it is done. Raises TimeoutError after so many seconds."""
        told = self._told(timeout)
        return told if isinstance(told, BaseException) else None

    def _told(self, timeout: float | None) -> Receipt | BaseException:
        if self._pending.told is None:  # who is called back asks before those who wait are let go
            self._pending.wait(-1 if timeout is None else timeout)
        if self._pending.told is None:
            raise NotInTime
        return self._pending.told


class Priority(enum.IntEnum):
    """How urgent a transaction is (Pravega: OperationPriority). What is urgent is not held back by a long queue."""

    SYSTEM = 0  # what the container needs for itself
    DELETION = 1
    NORMAL = 2


class Pending:
    """A transaction on its way.

    priority, number: its place in the queue, by urgency first and then in the order of submission. admitted: bytes that
    the throttle counts for it, until it is told what became of it. tries: frames sent
    for it; sent: one of them may be live. spill: its payload shall go to a chunk; chunk: the chunk where it is. known:
    what was looked up in LTS to judge it, each under the root of its table then. missed: the table that could not be
    looked up. told: what became of it, None as long as nobody knows. future: for who does not wait for that.
    left: who waited for it does not any more. carrying: whose it is, if another process submitted it. direct: it goes
    into an own frame, whoever makes the frames of this epoch.
    """

    __slots__ = (
        "_released",
        "_together",
        "_untold",
        "admitted",
        "carrying",
        "chunk",
        "direct",
        "future",
        "known",
        "left",
        "missed",
        "number",
        "operations",
        "priority",
        "queued",
        "sent",
        "size",
        "spill",
        "told",
        "tries",
    )

    def __init__(self, operations: Sequence[Operation], direct: bool = False) -> None:
        """Raises InvalidOperation for an operation that could not be read back (W14)."""
        self.number = -1
        self.priority = Priority.NORMAL
        self.operations = tuple([checked(operation) for operation in operations])
        if any(isinstance(operation, _MADE_HERE) for operation in self.operations):
            raise InvalidOperation("what the log makes by itself is never submitted")
        self.size = payload_size(self.operations)
        self.admitted = 0
        self.carrying: Carrying | None = None
        self.direct = direct
        self.known: dict[tuple[str, str], LookupResult] = {}
        self.missed: TableLayout | None = None
        self.told: Receipt | BaseException | None = None
        self.future: Outcome | None = None  # a waiting thread needs none, and is told by a third of the work
        self.left = False
        self._released = False
        self._together: deque[Pending] = deque()
        self._untold = threading.Lock()  # held until then
        self._untold.acquire()
        self.queued = time.monotonic()
        self.sent = False
        self.spill = False
        self.chunk: str | None = None
        self.tries = 0

    def promised(self) -> Outcome:
        """Its future, from now on: before it is submitted."""
        self.future = Outcome(self)
        return self.future

    def tell(self, outcome: Receipt | BaseException, together: deque[Pending] | None = None) -> None:
        """Say what became of it, once. together: who waits is woken by `wake`, with others that are told meanwhile."""
        self.told = outcome
        if self.future is None:
            pass
        elif isinstance(outcome, BaseException):
            self.future.set_exception(outcome)
        else:
            self.future.set_result(outcome)
        if together is None or self.future is not None:
            self.release()
        else:
            self._together = together
            together.append(self)

    def release(self) -> None:
        """Let go who waits for it."""
        if not self._released:
            self._released = True
            self._untold.release()

    def wait(self, timeout: float = -1) -> None:
        """Wait until it is told what became of it, at most `timeout` seconds; -1: without end."""
        if timeout < 0:
            with self._untold:  # taken and let go in one step each
                return
        if self._untold.acquire(timeout=timeout):
            self._untold.release()

    def receipt(self) -> Receipt:
        """Wait for what becomes of it; for one thread. Raises what it is told otherwise."""
        self.wait()
        self._wake_next()
        assert self.told is not None
        if isinstance(self.told, BaseException):
            raise self.told
        return self.told

    def leave(self) -> None:
        """Whoever was to call `receipt` does not wait any more: it wakes no one."""
        self.left = True
        if self._released:
            self._wake_next()

    def _wake_next(self) -> None:
        if self._together:  # who was taken out of it and not woken would wait for ever
            uninterrupted(partial(wake, self._together))

    def payload(self) -> int:
        """How many bytes could go to a chunk: those that do not depend on the state."""
        contents = [op.content for op in self.operations if isinstance(op, Append)]
        return sum(len(content) for content in contents if isinstance(content, Payload))

    def appended(self) -> Payload:
        """What a plain append brings."""
        append = self.operations[0]
        assert isinstance(append, Append) and isinstance(append.content, Payload)
        return append.content

    def plain(self) -> Append | None:
        """The operation, if it is all and appends bytes to a segment wherever that ends."""
        operation = self.operations[0] if len(self.operations) == 1 else None
        if not isinstance(operation, Append) or operation.offset is not None or operation.updates or self.known:
            return None
        return operation if isinstance(operation.content, Payload) else None


def wake(together: deque[Pending]) -> None:
    """Wake one of those who wait, who wakes the next: threads that all wake at once keep each other, and the one that
    makes the next frame, from going on. Who does not wait any more is passed over."""
    with suppress(IndexError):
        while True:
            pending = together.popleft()
            pending.release()
            if not pending.left:
                return


_MADE_HERE = (ActivateSegment, LoadAttributes, AnswerSubmissions)


class Queue:
    """Transactions that wait for a frame, the most urgent first. Not thread-safe: its owner has a lock.

    size: bytes of their payload. newest: the number of the one that was submitted last.
    """

    def __init__(self) -> None:
        self._waiting: deque[Pending] = deque()
        self.newest = -1
        self.size = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Pending]:
        return iter(self._waiting)

    def first(self) -> Pending:
        """The one that is to leave next."""
        return self._waiting[0]

    def put(self, pending: Pending) -> None:
        """Give a new transaction its place. It is there or it is not: nothing can fail once it is."""
        pending.priority = priority_of(pending.operations, self._waiting)
        pending.number = self.newest + 1
        self.newest = pending.number
        self.size += pending.size
        if self._waiting and pending.priority < self._waiting[-1].priority:
            self._waiting = deque(sorted([*self._waiting, pending], key=place))
        else:
            self._waiting.append(pending)

    def put_back(self, batch: Collection[Pending]) -> None:
        """Give transactions that left in vain their places again."""
        waiting = {*self._waiting, *batch}
        self._waiting = deque(sorted(waiting, key=place))
        self.size = sum(pending.size for pending in waiting)

    def take(self, most_bytes: int, most: int) -> list[Pending]:
        """The first one, and those behind it that fit into one frame with it."""
        batch = [self._waiting.popleft()]
        size = batch[0].size
        while self._waiting and len(batch) < most and size + self._waiting[0].size <= most_bytes:
            batch.append(self._waiting.popleft())
            size += batch[-1].size
        self.size -= size
        return batch

    def keep(self, wanted: Callable[[Pending], bool]) -> None:
        """Let go what is not wanted any more."""
        self._waiting = deque(filter(wanted, self._waiting))
        self.size = sum(pending.size for pending in self._waiting)

    def clear(self) -> list[Pending]:
        """Empty it; what was in it."""
        waiting = list(self._waiting)
        self._waiting.clear()
        self.size = 0
        return waiting


def runs(batch: Iterable[Pending]) -> Iterator[tuple[str | None, list[Pending]]]:
    """What can be applied at once: the plain appends to one segment between two other transactions, or one of those.

    With each run its segment, or None. Appends to several segments do not depend on each other.
    """
    plain: dict[str, list[Pending]] = {}
    for pending in batch:
        append = pending.plain()
        if append is not None:
            plain.setdefault(append.segment, []).append(pending)
            continue
        yield from plain.items()
        plain.clear()
        yield None, [pending]
    yield from plain.items()


def content_of(operation: Operation) -> Content | None:
    """What an operation appends, or None for one that appends nothing."""
    if isinstance(operation, Append):
        return operation.content
    return operation.header if isinstance(operation, MergeSegment) else None


def payload_size(operations: Sequence[Operation]) -> int:
    """How many bytes of payload operations bring to a frame."""
    size = 0
    for operation in operations:
        content = content_of(operation)
        if content is not None and not isinstance(content, tuple):
            size += len(content)
    return size


Loads: TypeAlias = "dict[tuple[str, str], Operation]"
"""What brings entries of tables into memory, by table and key, in the order in which it was found to be needed."""


def more_loads(error: Unresolved, state: State, known: Mapping[tuple[str, str], LookupResult], loads: Loads) -> Loads:
    """`loads`, and those of what `error` asks for, as far as it is known under the roots of `state` (W11).

    Raises `error` where it is not, or does not help: then it has to be looked up.
    """
    more: Loads = {}
    for key in error.keys:
        try:
            entry = find_entry(state.tables.get(error.table), error.table, key, known)
        except Unresolved:
            raise error from None
        load = load_of(error.table, key, entry, error.segment)
        if load is None or (error.table, key) in loads:
            raise error
        more[error.table, key] = load
    return {**loads, **more}


def load_of(table: str, key: str, entry: Entry | None, segment: str) -> Operation | None:
    """The operation that brings what was found in LTS into memory, if operations on it need that."""
    if entry is None or entry.value is None:
        return None
    if table == METADATA:
        return ActivateSegment(key, entry.value, entry.version)
    if table == ATTRIBUTES:
        return LoadAttributes(segment, (stored_attribute(key, entry.value),))
    return None


def place(pending: Pending) -> tuple[int, int]:
    """What the queue is sorted by."""
    return pending.priority, pending.number


def priority_of(operations: Sequence[Operation], queue: Iterable[Pending]) -> Priority:
    """How urgent a transaction is. A deletion does not overtake what is queued for the same segments."""
    if not operations or isinstance(operations[0], Append):
        return Priority.NORMAL
    if all(_is_system(operation) for operation in operations):
        return Priority.SYSTEM
    if all(isinstance(operation, DeleteSegment) for operation in operations):
        doomed = {operation.segment for operation in operations if isinstance(operation, DeleteSegment)}
        if not any(doomed & names_in(pending.operations) for pending in queue):
            return Priority.DELETION
    return Priority.NORMAL


def _is_system(operation: Operation) -> bool:
    if isinstance(operation, PutEntry | CheckEntry):
        return operation.table in METADATA_TABLES
    return isinstance(operation, _SYSTEM)


def names_in(operations: Iterable[Operation]) -> set[str]:
    """The segments that operations are about."""
    names: set[str] = set()
    for operation in operations:
        if isinstance(operation, MergeSegment):
            names |= {operation.target, operation.source}
        else:
            names |= {getattr(operation, "segment", ""), getattr(operation, "parent", "")}
    return names


_SYSTEM = (
    BeginCycle,
    Checkpoint,
    DequeueGarbage,
    EndCycle,
    EvictSegments,
    RecordFlush,
    RecordDeletion,
    QueueGarbage,
    SaveSegments,
    SpillAttributes,
    RecordStoredBounds,
    RecordTableFlush,
)
