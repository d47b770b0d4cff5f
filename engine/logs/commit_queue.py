"""The commit queue of a container: transactions that wait for a frame, the most urgent first.

Owns their order: what the container needs for itself goes first, so that a long queue cannot keep it from making room;
deletions go next, but never before a transaction for the same segments. A transaction that was sent without success
gets its place back.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Iterable, Sequence

from engine.logs.payload import MAX_PAYLOAD
from engine.logs.transaction import Priority, Transaction
from engine.state.operations import (
    Append,
    BeginCycle,
    CheckEntry,
    Checkpoint,
    DeleteSegment,
    DequeueGarbage,
    EndCycle,
    EvictSegments,
    MergeSegment,
    Operation,
    PutEntry,
    QueueGarbage,
    RecordDeletion,
    RecordFlush,
    RecordStoredBounds,
    RecordTableFlush,
    SaveSegments,
    SpillAttributes,
)
from engine.state.tables import METADATA_TABLES


class CommitQueue:
    """Transactions that wait for a frame. Thread-safe; `lock` is for several steps that belong together.

    transactions: in the order in which they leave; only to be looked at. newest: the number of the one that was
    submitted last. size: bytes of their payload. closing: it takes no new ones.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.transactions: deque[Transaction] = deque()
        self.newest = -1
        self.size = 0
        self.closing = False

    def put(self, transaction: Transaction) -> None:
        """Give a new transaction its place. It is there or it is not: nothing can fail once it is."""
        with self.lock:
            transaction.priority = priority_of(transaction.operations, self.transactions)
            transaction.number = self.newest + 1
            self.newest = transaction.number
            self.size += transaction.size
            if self.transactions and transaction.priority < self.transactions[-1].priority:
                self.transactions = deque(sorted([*self.transactions, transaction], key=_place))
            else:
                self.transactions.append(transaction)

    def put_back(self, batch: Iterable[Transaction]) -> None:
        """Give transactions their places again, those of them that are not completed."""
        with self.lock:
            waiting = {*self.transactions, *(each for each in batch if each.outcome is None)}
            self.transactions = deque(sorted(waiting, key=_place))
            self.size = sum(transaction.size for transaction in waiting)

    def retry(self, batch: Iterable[Transaction]) -> None:
        """Put back transactions that are in no live frame. What was looked up for them is dropped: it is older than the
        reason for the retry."""
        batch = list(batch)
        for transaction in batch:
            transaction.sent = False
            transaction.looked_up = {}
        self.put_back(batch)

    def retry_after_lost_race(self, batch: Collection[Transaction]) -> None:
        """The same for the frames that lost a race: large payload goes to a chunk before the next one."""
        for transaction in batch:
            transaction.spill = transaction.spill or transaction.is_large()
        self.retry(batch)

    def take(self, most: int) -> list[Transaction]:
        """The first one, and those behind it that fit into one frame with it, at most so many."""
        with self.lock:
            if not self.transactions:
                return []
            batch = [self.transactions.popleft()]
            size = batch[0].size
            while self.transactions and len(batch) < most and size + self.transactions[0].size <= MAX_PAYLOAD:
                batch.append(self.transactions.popleft())
                size += batch[-1].size
            self.size -= size
            return batch

    def fills_a_frame(self, more: int = 0) -> bool:
        """Whether it has as much payload as a frame takes, together with `more` bytes."""
        return self.size + more >= MAX_PAYLOAD

    def discard(self, batch: Collection[Transaction]) -> None:
        """Remove transactions."""
        with self.lock:
            self.transactions = deque(each for each in self.transactions if each not in batch)
            self.size = sum(transaction.size for transaction in self.transactions)

    def clear(self) -> list[Transaction]:
        """Empty it; what was in it."""
        with self.lock:
            waiting = list(self.transactions)
            self.transactions.clear()
            self.size = 0
            return waiting


def _place(transaction: Transaction) -> tuple[int, int]:
    return transaction.priority, transaction.number


def priority_of(operations: Sequence[Operation], queue: Iterable[Transaction]) -> Priority:
    """How urgent a transaction is. A deletion does not overtake one for the same segments that is in the queue."""
    if not operations or isinstance(operations[0], Append):
        return Priority.NORMAL
    if all(_is_system(operation) for operation in operations):
        return Priority.SYSTEM
    if all(isinstance(operation, DeleteSegment) for operation in operations):
        doomed = {operation.segment for operation in operations if isinstance(operation, DeleteSegment)}
        if not any(doomed & segments_of(transaction.operations) for transaction in queue):
            return Priority.DELETION
    return Priority.NORMAL


def _is_system(operation: Operation) -> bool:
    if isinstance(operation, PutEntry | CheckEntry):
        return operation.table in METADATA_TABLES
    return isinstance(operation, _SYSTEM)


def segments_of(operations: Iterable[Operation]) -> set[str]:
    """The segments that operations change."""
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
