"""The garbage of a container, as the queue that the chunk layer's collector works through (G1, G2).

The queue is part of the container's state: each change of it is an operation in the log.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from chunkstore.errors import StorageError
from chunkstore.metadata.garbage_queue import GarbageBatch, GarbageKind, GarbageQueue, GarbageTask
from chunkstore.metadata.store import MetadataTransaction
from engine.errors import EngineError
from engine.logs.durable_log import DurableLog
from engine.state.operations import DequeueGarbage, QueueGarbage
from engine.state.state import GarbageEntry, State

_BATCH = 1000


class ContainerGarbage(GarbageQueue):
    """The garbage of one container.

    A transaction of the chunk layer that makes objects garbage queues them as well, all or nothing. With `announce`,
    new chunks are queued before they are created. Without it, each transaction that names new chunks must carry an
    operation of a flush cycle, whose number fences it (see `engine.admin.orphans`). If such a transaction fails, its
    chunks are queued afterwards; chunks left by a crash are found by the sweep of orphans (G1).

    Garbage is collected if it was queued before `before` (ms) by an operation with a number below `covered`. What could
    not be deleted stays in the state for the next collection (G2).
    """

    def __init__(self, log: DurableLog, *, announce: bool = True, before: int = 0, covered: int = 0) -> None:
        self._log = log
        self._announce = announce
        self._before = before
        self._covered = covered
        self._attempted: set[str] = set()

    def add(self, tasks: Sequence[GarbageTask], transaction: MetadataTransaction | None = None) -> None:
        new = [task for task in tasks if task.kind is GarbageKind.NEW_CHUNK]
        old = [task for task in tasks if task.kind is not GarbageKind.NEW_CHUNK]
        if transaction is None:
            if tasks:
                self._log.commit([queueing(tasks)])
            return
        if new and self._announce:
            self._log.commit([queueing(new)])
        elif new:
            transaction.unless_committed(lambda: self._queue_uncommitted(new))
        if old:
            transaction.with_operations.append(queueing(old))

    def claim(self, tasks: Sequence[GarbageTask], transaction: MetadataTransaction) -> None:
        transaction.with_operations.append(queueing(tasks))

    def waits(self, name: str) -> bool:
        garbage = self._log.refresh().garbage.get(name)
        return garbage is not None and garbage.kind == GarbageKind.NEW_CHUNK

    def _queue_uncommitted(self, tasks: Sequence[GarbageTask]) -> None:
        """Queue chunks whose transaction may have failed. If this fails too, the sweep of orphans finds them."""
        with contextlib.suppress(StorageError, EngineError):
            self._log.commit([queueing(tasks)])

    def due(self, now: float) -> Iterator[GarbageBatch]:
        state = self._log.refresh()
        due = sorted((name, garbage) for name, garbage in state.garbage.items() if self._is_due(name, garbage, state))
        alive = [name for name, _ in due if name in state.chunks]
        if alive:
            self._log.commit([DequeueGarbage(tuple(alive))])
        tasks = [
            GarbageTask(name, garbage.since / 1000, kind=GarbageKind(garbage.kind), segment=garbage.segment)
            for name, garbage in due
            if name not in state.chunks
        ]
        for start in range(0, len(tasks), _BATCH):
            batch = tuple(tasks[start : start + _BATCH])
            self._attempted.update(task.name for task in batch)
            yield GarbageBatch("", batch)

    def _is_due(self, name: str, garbage: GarbageEntry, state: State) -> bool:
        """Each entry is attempted once per collection; what is left then waits for the next one."""
        if name in self._attempted or garbage.kind not in set(GarbageKind):
            return False
        old = garbage.since < self._before and garbage.sequence < self._covered
        return old and not state.is_kept_for_recovery(garbage)

    def settle(self, batch: GarbageBatch, again: Sequence[GarbageTask] = (), aside: Sequence[GarbageTask] = ()) -> None:
        left = {task.name for task in (*again, *aside)}
        gone = tuple(task.name for task in batch.tasks if task.name not in left)
        if gone:
            self._log.commit([DequeueGarbage(gone)])


def queueing(tasks: Sequence[GarbageTask]) -> QueueGarbage:
    """The operation that queues garbage."""
    return QueueGarbage(tuple((task.name, int(task.kind), task.segment) for task in tasks))
