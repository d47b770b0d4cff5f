"""The metadata of chunks and of segments in tier 2, in a table of the container (S4; Pravega: TableBasedMetadataStore).

A transaction of the chunk layer is one transaction of the log: conditional on the versions of all that it read, and
fenced as everything in the log is. What the container has to know of it goes into the same append, and so does the
garbage that it makes (G1); so the two never contradict each other.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from chunkstore.errors import InvalidRecord, MetadataConflict, StorageError
from chunkstore.garbage import GarbageBatch, GarbageKind, GarbageQueue, GarbageTask
from chunkstore.metadata_store import ABSENT, MetadataStore
from chunkstore.records import Record, decode, encode
from chunkstore.serialization import InvalidData
from engine.errors import BadKeyVersion, EngineError
from engine.operations import CheckEntry, Collected, Operation, PutEntry, QueueGarbage
from engine.tables import STORAGE, Entry

if TYPE_CHECKING:
    from engine.container import Container

Entries = Callable[[Collection[str]], Mapping[str, "Entry | None"]]
Scan = Callable[[str], Iterator["tuple[str, Entry]"]]


class RecordReader(MetadataStore):
    """The records as one state of the container has them, for reading only.

    Nothing is kept in memory here: what is below keeps what never changes.
    """

    def __init__(self, entries: Entries, scan: Scan) -> None:
        super().__init__(cache_size=0)
        self._entries = entries
        self._scan_entries = scan

    def _load(self, keys: Collection[str]) -> dict[str, tuple[int, Record | None]]:
        return {
            key: (entry.version, _record(key, entry)) if entry is not None else (ABSENT, None)
            for key, entry in self._entries(keys).items()
        }

    def _store(self, changes: Mapping[str, Record | None], expected: Mapping[str, int]) -> dict[str, int]:
        raise RuntimeError("the records of one state cannot be changed")

    def _scan(self, prefix: str) -> Iterator[tuple[str, Record]]:
        for key, entry in self._scan_entries(prefix):
            yield key, _record(key, entry)


class ContainerRecords(RecordReader):
    """The records of an open container, changed through its log."""

    def __init__(self, container: Container) -> None:
        super().__init__(
            lambda keys: container.entries(STORAGE, keys), lambda prefix: container.scan_entries(STORAGE, prefix)
        )
        self._container = container
        self._companions = threading.local()

    @contextlib.contextmanager
    def together(self, *operations: Operation) -> Iterator[None]:
        """Let the next transaction of this thread carry `operations` too. If there is none, they are committed
        after."""
        self._companions.operations, self._companions.chunks = list(operations), []
        self._companions.fence = operations
        try:
            yield
            left = self._take()
        except BaseException:
            self._companions.operations = []
            self._give_up(self._companions.chunks)
            raise
        finally:
            self._companions.fence = ()
        if left:
            self._container.commit(left)

    def _give_up(self, tasks: Sequence[GarbageTask]) -> None:
        """Queue chunks that may have been made for nothing (F1). If that fails too, the sweep of orphans finds them."""
        if tasks:
            with contextlib.suppress(StorageError, EngineError):
                self._container.commit([queueing(tasks)])

    def making(self, tasks: Sequence[GarbageTask]) -> None:
        """New chunks are about to be made within `together`.

        If its operations went with an earlier transaction, they go again with the one that is to name these: the number
        of the flush cycle fences that too (see `engine.orphans`).
        """
        self._companions.chunks = [*getattr(self._companions, "chunks", []), *tasks]
        self._companions.operations = self._take() or list(getattr(self._companions, "fence", ()))

    def add(self, operation: Operation) -> None:
        """Let the next transaction of this thread carry one more operation."""
        self._companions.operations = [*self._take(), operation]

    def _take(self) -> list[Operation]:
        operations: list[Operation] = getattr(self._companions, "operations", [])
        self._companions.operations = []
        return operations

    def _store(self, changes: Mapping[str, Record | None], expected: Mapping[str, int]) -> dict[str, int]:
        operations: list[Operation] = [
            PutEntry(STORAGE, key, encode(record) if record is not None else None, expected[key])
            for key, record in changes.items()
        ]
        operations += [CheckEntry(STORAGE, key, version) for key, version in expected.items() if key not in changes]
        try:
            results = self._container.commit([*operations, *self._take()]).results
        except BadKeyVersion as error:
            raise MetadataConflict(f"somebody else changed {error.key!r}: begin again", (error.key,)) from error
        return {
            key: version if record is not None else ABSENT
            for (key, record), version in zip(changes.items(), results, strict=False)
        }


class LogGarbage(GarbageQueue):
    """The garbage of a container, which is part of its state.

    What a transaction of the chunk layer makes garbage is queued by that very transaction. New chunks are queued before
    they are made if `announce` is set; else the sweep of orphans finds what a crash leaves. `before`: garbage since
    then (ms) may be collected.
    """

    def __init__(
        self, container: Container, records: ContainerRecords, *, announce: bool = True, before: int = 0
    ) -> None:
        self._container = container
        self._records = records
        self._announce = announce
        self._before = before

    def add(self, tasks: Sequence[GarbageTask]) -> None:
        new = [task for task in tasks if task.kind is GarbageKind.NEW_CHUNK]
        if new and self._announce:
            self._container.commit([queueing(new)])
        elif new:
            self._records.making(new)
        if len(new) < len(tasks):
            self._records.add(queueing([task for task in tasks if task.kind is not GarbageKind.NEW_CHUNK]))

    def due(self, now: float) -> Iterator[GarbageBatch]:
        state = self._container.refresh()
        due = sorted(
            (name, garbage)
            for name, garbage in state.garbage.items()
            if garbage.since < self._before and garbage.kind in set(GarbageKind) and not state.is_backed_up(garbage)
        )
        alive = [name for name, _ in due if name in state.chunks]
        if alive:
            self._container.commit([Collected(tuple(alive))])
        tasks = [
            GarbageTask(name, garbage.since / 1000, kind=GarbageKind(garbage.kind), segment=garbage.segment)
            for name, garbage in due
            if name not in state.chunks
        ]
        for start in range(0, len(tasks), _BATCH):
            batch = tuple(tasks[start : start + _BATCH])
            yield GarbageBatch("\n".join(task.name for task in batch), batch)

    def done(self, ticket: str) -> None:
        self._container.commit([Collected(tuple(ticket.split("\n")))])

    def fail(self, tasks: Sequence[GarbageTask]) -> None:
        self.add(tasks)

    def failed(self) -> Iterator[GarbageBatch]:
        return iter(())

    def retry(self, batch: GarbageBatch, now: float) -> None:
        self.add(batch.tasks)


_BATCH = 1000


def queueing(tasks: Sequence[GarbageTask]) -> QueueGarbage:
    """The operation that queues garbage."""
    return QueueGarbage(tuple((task.name, int(task.kind), task.segment) for task in tasks))


def _record(key: str, entry: Entry) -> Record:
    assert entry.value is not None
    try:
        return decode(entry.value)
    except InvalidData as error:
        raise InvalidRecord(f"the record {key!r} cannot be read: {error}; restore it from a backup", "type") from error
