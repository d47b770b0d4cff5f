"""The metadata of chunks and of segments in LTS, in a table of the container (S4; Pravega: TableBasedMetadataStore).

A transaction of the chunk layer is one transaction of the log: conditional on the versions of all that it read, and
fenced as everything in the log is. Its `with_operations` are operations of the container, and go into the same append:
what the container has to know of it, and the garbage that it makes (G1). So the two never contradict each other.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence

from chunkstore.errors import MetadataConflict, StorageError
from chunkstore.metadata.garbage_queue import GarbageBatch, GarbageKind, GarbageQueue, GarbageTask
from chunkstore.metadata.metadata_records import Record, encode
from chunkstore.metadata.store import ABSENT, MetadataTransaction, WithOperations
from engine.errors import BadKeyVersion, EngineError
from engine.logs.durable_log import DurableLog
from engine.reading.table_store import TableStore
from engine.state.operations import CheckEntry, Collected, Operation, PutEntry, QueueGarbage
from engine.state.state import GarbageEntry, State
from engine.state.tables import STORAGE
from engine.storage.records import RecordReader
from engine.writer.data_source import WriterDataSource


class ContainerRecords(RecordReader):
    """The records of an open container, changed through its log. WithOperations of a transaction are `Operation`s."""

    def __init__(self, tables: TableStore, log: DurableLog) -> None:
        super().__init__(lambda keys: tables.entries(STORAGE, keys), lambda prefix: tables.scan(STORAGE, prefix))
        self._log = log

    def _store(
        self, changes: Mapping[str, Record | None], expected: Mapping[str, int], with_operations: WithOperations
    ) -> dict[str, int]:
        operations: list[Operation] = [
            PutEntry(STORAGE, key, encode(record) if record is not None else None, expected[key])
            for key, record in changes.items()
        ]
        operations += [CheckEntry(STORAGE, key, version) for key, version in expected.items() if key not in changes]
        try:
            results = self._log.commit([*operations, *with_operations]).results
        except BadKeyVersion as error:
            raise MetadataConflict(f"somebody else changed {error.key!r}: begin again", (error.key,)) from error
        return {
            key: version if record is not None else ABSENT
            for (key, record), version in zip(changes.items(), results, strict=False)
        }


class LogGarbage(GarbageQueue):
    """The garbage of a container, which is part of its state.

    What a transaction of the chunk layer makes garbage is queued by that very transaction. New chunks are queued before
    they are made if `announce` is set. Else each transaction that is to name them must carry an operation of a flush
    cycle, by whose number it is fenced (see `engine.admin.orphans`); they are queued if it is not made, and what a
    crash leaves is found by the sweep of orphans (F1).

    `before`: garbage since then (ms), and of operations with numbers below `covered`, may be collected; what could not
    be deleted stays in the state, for the next collection (G2).
    """

    def __init__(self, source: WriterDataSource, *, announce: bool = True, before: int = 0, covered: int = 0) -> None:
        self._source = source
        self._announce = announce
        self._before = before
        self._covered = covered
        self._met: set[str] = set()

    def add(self, tasks: Sequence[GarbageTask], transaction: MetadataTransaction | None = None) -> None:
        new = [task for task in tasks if task.kind is GarbageKind.NEW_CHUNK]
        old = [task for task in tasks if task.kind is not GarbageKind.NEW_CHUNK]
        if transaction is None:
            if tasks:
                self._source.commit([queueing(tasks)])
            return
        if new and self._announce:
            self._source.commit([queueing(new)])
        elif new:
            transaction.unless_committed(lambda: self._give_up(new))
        if old:
            transaction.with_operations.append(queueing(old))

    def claim(self, tasks: Sequence[GarbageTask], transaction: MetadataTransaction) -> None:
        transaction.with_operations.append(queueing(tasks))

    def waits(self, name: str) -> bool:
        garbage = self._source.refresh().garbage.get(name)
        return garbage is not None and garbage.kind == GarbageKind.NEW_CHUNK

    def _give_up(self, tasks: Sequence[GarbageTask]) -> None:
        """Queue chunks that may have been made for nothing. If that fails too, the sweep of orphans finds them."""
        with contextlib.suppress(StorageError, EngineError):
            self._source.commit([queueing(tasks)])

    def due(self, now: float) -> Iterator[GarbageBatch]:
        state = self._source.refresh()
        due = sorted((name, garbage) for name, garbage in state.garbage.items() if self._is_due(name, garbage, state))
        alive = [name for name, _ in due if name in state.chunks]
        if alive:
            self._source.commit([Collected(tuple(alive))])
        tasks = [
            GarbageTask(name, garbage.since / 1000, kind=GarbageKind(garbage.kind), segment=garbage.segment)
            for name, garbage in due
            if name not in state.chunks
        ]
        for start in range(0, len(tasks), _BATCH):
            batch = tuple(tasks[start : start + _BATCH])
            self._met.update(task.name for task in batch)
            yield GarbageBatch("", batch)

    def _is_due(self, name: str, garbage: GarbageEntry, state: State) -> bool:
        """What this collection has met is either gone or waits for the next one."""
        if name in self._met or garbage.kind not in set(GarbageKind):
            return False
        old = garbage.since < self._before and garbage.sequence < self._covered
        return old and not state.is_kept_for_recovery(garbage)

    def settle(self, batch: GarbageBatch, again: Sequence[GarbageTask] = (), aside: Sequence[GarbageTask] = ()) -> None:
        left = {task.name for task in (*again, *aside)}
        gone = tuple(task.name for task in batch.tasks if task.name not in left)
        if gone:
            self._source.commit([Collected(gone)])


_BATCH = 1000


def queueing(tasks: Sequence[GarbageTask]) -> QueueGarbage:
    """The operation that queues garbage."""
    return QueueGarbage(tuple((task.name, int(task.kind), task.segment) for task in tasks))
