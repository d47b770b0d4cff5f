"""Garbage: objects that may have to be deleted, a durable queue of them, and the collector that deletes them (G1).

Whoever makes garbage queues it first: a chunk before it is made (if nothing comes to name it, it is garbage), a chunk
before the commit that takes it out of its segment, a segment before the commit that deletes it. So the queue may name
what is alive, and the collector decides: it deletes a chunk only when, after the delay, no metadata names it.

Whoever queued a task may sleep, for longer than the delay, and commit after the collector has looked. So where the
collector finds that the commit has not been made (a new chunk that nothing names, an old one that is still named, a
segment that is not deleted), it changes the version of the segment's record first. Then that commit can never be made,
and what the collector found stays true.

The records of system segments are in this process's memory, which proves nothing to others. Before it decides anything
about their chunks the collector has a snapshot of them made, which fails if another instance has taken over, and leaves
no doubt about earlier commits to who boots next.
"""

from __future__ import annotations

import abc
import enum
import logging
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from chunkstore.chunk_list import ChunkList
from chunkstore.chunks import ChunkHandle, ChunkStorage
from chunkstore.errors import MetadataConflict, StorageError
from chunkstore.metadata_store import MetadataStore, MetadataTransaction
from chunkstore.port import Store
from chunkstore.records import Status, segment_key
from chunkstore.serialization import (
    FieldReader,
    FieldWriter,
    InvalidData,
    read_type,
    read_version,
    with_type,
    with_version,
)

_log = logging.getLogger(__name__)

SYSTEM = "_system/"
"""What the names of system segments begin with."""

_TASK = 1  # the type of a task among the original's events
_VERSION = 0
_PAGE = 1000  # names per listing
_CONFLICTS = 10  # times that a commit is tried against busy writers


class GarbageKind(enum.IntEnum):
    """What may have to be deleted: a chunk that is taken out of its segment, what a deleted segment left in the
    metadata, a journal or snapshot, or a chunk that is being made."""

    CHUNK = 1
    SEGMENT = 2
    JOURNAL = 3
    NEW_CHUNK = 4  # ours; the original tells old from new by the transaction


class GarbageTask(NamedTuple):
    """Something to look at when `due` (epoch s) has come, after `attempts` that failed.

    `name` is the chunk, the record of the deleted segment, or the journal's file. `segment` is the one that the
    commit changes which decides: after it the name is garbage, or alive if it is new. `transaction` is a field of the
    original's, 0 with us.
    """

    name: str
    due: float
    attempts: int = 0
    kind: GarbageKind = GarbageKind.CHUNK
    transaction: int = 0
    segment: str = ""


class GarbageBatch(NamedTuple):
    """Tasks that are taken from the queue together; `ticket` names them to the queue."""

    ticket: str
    tasks: tuple[GarbageTask, ...]


class GarbageQueue(abc.ABC):
    """Tasks that survive this process. Nothing is lost; a task may be met again, even when it is done."""

    @abc.abstractmethod
    def add(self, tasks: Sequence[GarbageTask]) -> None:
        """Queue tasks; durable on return."""

    @abc.abstractmethod
    def due(self, now: float) -> Iterator[GarbageBatch]:
        """Batches whose tasks are all due at `now` (epoch s), in the order in which they came due."""

    @abc.abstractmethod
    def done(self, ticket: str) -> None:
        """Forget a batch."""

    @abc.abstractmethod
    def fail(self, tasks: Sequence[GarbageTask]) -> None:
        """Put tasks aside, for the operator."""

    @abc.abstractmethod
    def failed(self) -> Iterator[GarbageBatch]:
        """What was put aside."""

    @abc.abstractmethod
    def retry(self, batch: GarbageBatch, now: float) -> None:
        """Queue again what was put aside, with no attempts so far, due at `now`."""


class StoreGarbageQueue(GarbageQueue):
    """The queue of a container: one object for each `add`, named by when its tasks are due."""

    def __init__(self, store: Store, container: int) -> None:
        self._store = store
        self._queue = f"_system/containers/GC.queue.{container}/"
        self._aside = f"_system/containers/GC.failed.queue.{container}/"

    def add(self, tasks: Sequence[GarbageTask]) -> None:
        if tasks:
            self._put(self._queue, tasks)

    def due(self, now: float) -> Iterator[GarbageBatch]:
        return self._batches(self._queue, before=_name(self._queue, _milliseconds(now) + 1))

    def done(self, ticket: str) -> None:
        self._store.delete([ticket])

    def fail(self, tasks: Sequence[GarbageTask]) -> None:
        if tasks:
            self._put(self._aside, tasks)

    def failed(self) -> Iterator[GarbageBatch]:
        return self._batches(self._aside)

    def retry(self, batch: GarbageBatch, now: float) -> None:
        self.add([task._replace(attempts=0, due=now) for task in batch.tasks])
        self.done(batch.ticket)

    def _put(self, folder: str, tasks: Sequence[GarbageTask]) -> None:
        due = max(_milliseconds(task.due) for task in tasks)
        name = f"{_name(folder, due)}-{uuid.uuid4().hex}"
        self._store.put(name, encode_tasks(tasks))

    def _batches(self, folder: str, before: str | None = None) -> Iterator[GarbageBatch]:
        last = ""
        while found := self._store.list(folder, last, _PAGE):
            for info in found:
                if before is not None and info.path >= before:
                    return
                yield GarbageBatch(info.path, self._tasks(info.path))
            last = found[-1].path

    def _tasks(self, path: str) -> tuple[GarbageTask, ...]:
        try:
            return decode_tasks(self._store.read(path))
        except InvalidData as error:
            raise StorageError(
                f"{self._store.root}: the garbage queue's object {path!r} is damaged ({error}): delete it; "
                "the orphan sweep finds what it named"
            ) from error


def _name(folder: str, milliseconds: int) -> str:
    return f"{folder}{milliseconds:016d}"


def _milliseconds(seconds: float) -> int:
    return max(0, int(seconds * 1000))


def encode_tasks(tasks: Sequence[GarbageTask]) -> bytes:
    """The bytes of tasks: each as in the original, with what is ours in a revision of its own."""
    collection = FieldWriter()
    collection.compact_int(len(tasks))
    for task in tasks:
        fields = FieldWriter()
        fields.utf(task.name)
        fields.compact_long(_milliseconds(task.due))
        fields.compact_int(task.attempts)
        fields.compact_int(task.kind)
        fields.long(task.transaction)
        ours = FieldWriter()
        ours.utf(task.segment)
        collection.raw(with_type(_TASK, _VERSION, fields.getvalue(), ours.getvalue()))
    return with_version(_VERSION, collection.getvalue())


def decode_tasks(data: bytes) -> tuple[GarbageTask, ...]:
    """The tasks with these bytes. Raises InvalidData."""
    _, collection = read_version(FieldReader(data))
    return tuple(_read_task(collection) for _ in range(collection.compact_int()))


def _read_task(collection: FieldReader) -> GarbageTask:
    kind, version, revisions = read_type(collection)
    if (kind, version) != (_TASK, _VERSION):
        raise InvalidData(f"type {kind} version {version} is no garbage task: it was written by a newer version")
    fields = revisions[0]
    name, due, attempts, what = fields.utf(), fields.compact_long(), fields.compact_int(), fields.compact_int()
    if what not in set(GarbageKind):
        raise InvalidData(f"garbage of the kind {what} is unknown: it was written by a newer version")
    segment = revisions[1].utf() if 1 in revisions else ""
    return GarbageTask(name, due / 1000, attempts, GarbageKind(what), fields.long(), segment)


@dataclass(frozen=True)
class GarbageConfig:
    """`delay`: seconds before garbage is looked at, or looked at again; longer than any read takes. `attempts`: tries
    before a task is put aside. `transaction_batch`: chunks taken out of a deleted segment in one transaction."""

    delay: float = 60.0
    attempts: int = 3
    transaction_batch: int = 5000


@dataclass
class GarbageReport:
    """What a run did: objects deleted, tasks whose object is alive, tasks to be tried again, tasks put aside."""

    deleted: int = 0
    alive: int = 0
    retried: int = 0
    failed: int = 0


class GarbageCollector:
    """Carries out the tasks of a queue. Several at once do no harm, and no more good than one.

    `is_needed` tells of a journal or snapshot whether the next boot may read it, and `snapshot` makes one of the system
    segments; a `SystemJournal` has both. Without them journals, and chunks of system segments, are kept. `executor`
    deletes in parallel.
    """

    def __init__(
        self,
        chunks: ChunkStorage,
        metadata: MetadataStore,
        queue: GarbageQueue,
        config: GarbageConfig | None = None,
        *,
        is_needed: Callable[[str], bool] | None = None,
        snapshot: Callable[[], object] | None = None,
        executor: Executor | None = None,
    ) -> None:
        self._chunks = chunks
        self._metadata = metadata
        self._queue = queue
        self._config = config or GarbageConfig()
        self._is_needed = is_needed
        self._snapshot = snapshot
        self._map = executor.map if executor else map

    def run_once(self, now: float | None = None) -> GarbageReport:
        """Carry out all tasks that are due at `now` (epoch s), and those that come of them.

        Failures of a task are logged and counted; raises StorageError if the queue cannot be read or written.
        """
        now = time.time() if now is None else now
        report = GarbageReport()
        while self._run_batches(now, report):
            pass
        return report

    def _run_batches(self, now: float, report: GarbageReport) -> bool:
        """Carry out the tasks that are due; False if there were none."""
        was_due = False
        for batch in self._queue.due(now):
            if not was_due:
                self._metadata.evict_all()  # another instance may have taken out chunks that are alive in memory
            was_due = True
            failures = self._carry_out(batch.tasks, now, report)
            again = [task._replace(attempts=task.attempts + 1, due=now + self._config.delay) for task in failures]
            aside = [task for task in again if task.attempts >= self._config.attempts]
            again = [task for task in again if task.attempts < self._config.attempts]
            self._queue.add(again)
            self._queue.fail(aside)
            self._queue.done(batch.ticket)
            report.retried += len(again)
            report.failed += len(aside)
        return was_due

    def _carry_out(self, tasks: Sequence[GarbageTask], now: float, report: GarbageReport) -> list[GarbageTask]:
        """Carry out tasks; returns those that failed."""
        chunks: defaultdict[tuple[str, bool], list[GarbageTask]] = defaultdict(list)
        failures: list[GarbageTask] = []
        for task in tasks:
            match task.kind:
                case GarbageKind.CHUNK | GarbageKind.NEW_CHUNK:
                    chunks[task.segment, task.kind is GarbageKind.NEW_CHUNK].append(task)
                case GarbageKind.SEGMENT:
                    failures += self._guarded(partial(self._collect_segment, task, now, report), [task])
                case GarbageKind.JOURNAL:
                    failures += self._guarded(partial(self._collect_journal, task, report), [task])
        for (segment, are_new), some in chunks.items():
            failures += self._guarded(partial(self._collect_chunks, segment, are_new, some, report), some)
        return failures

    def _guarded(self, act: Callable[[], Sequence[GarbageTask]], tasks: Sequence[GarbageTask]) -> Sequence[GarbageTask]:
        try:
            return act()
        except StorageError as error:
            _log.warning("garbage: %s and %d more: %s", tasks[0].name, len(tasks) - 1, error)
            return tasks

    def _collect_chunks(
        self, segment: str, are_new: bool, tasks: Sequence[GarbageTask], report: GarbageReport
    ) -> Sequence[GarbageTask]:
        """Delete those that no metadata names; returns those that failed."""
        dead = self._find_dead(segment, are_new, [task.name for task in tasks])
        report.alive += len(tasks) - len(dead)
        garbage = [task for task in tasks if task.name in dead]
        deleted = list(self._map(self._delete, (task.name for task in garbage)))
        report.deleted += sum(deleted)
        return [task for task, done in zip(garbage, deleted, strict=True) if not done]

    def _find_dead(self, segment: str, are_new: bool, names: Sequence[str]) -> set[str]:
        """Those of `names` that no metadata names, nor will."""
        if segment.startswith(SYSTEM):
            self._secure_system_segment(segment)
        for attempt in range(_CONFLICTS):
            try:
                with self._metadata.begin(*names) as transaction:
                    dead = {name for name in names if transaction.chunk(name) is None}
                    if dead if are_new else len(dead) < len(names):
                        self._forestall_commits(transaction, segment)
                    transaction.commit()
                    return dead
            except MetadataConflict:
                if attempt == _CONFLICTS - 1:
                    raise
        raise AssertionError("unreachable")

    def _secure_system_segment(self, segment: str) -> None:
        with self._metadata.begin(read_only=True) as transaction:
            record = transaction.segment(segment)
        if record is None:
            raise StorageError(f"chunks of {segment!r} are kept, as it is not known here: boot its journal first")
        if record.status & Status.SYSTEM_SEGMENT:
            if self._snapshot is None:
                raise StorageError(f"chunks of {segment!r} are kept, as this collector makes no snapshots of it")
            self._snapshot()

    @staticmethod
    def _forestall_commits(transaction: MetadataTransaction, segment: str) -> None:
        """Let every commit fail that was begun before and changes the segment."""
        record = transaction.segment(segment) if segment else None
        if record is not None:
            transaction.put(record, pinned=bool(record.status & Status.SYSTEM_SEGMENT))

    def _delete(self, name: str) -> bool:
        try:
            self._chunks.delete(ChunkHandle(name, read_only=False))
        except StorageError as error:
            _log.warning("garbage: chunk %s is not deleted: %s", name, error)
            return False
        return True

    def _collect_segment(self, task: GarbageTask, now: float, report: GarbageReport) -> Sequence[GarbageTask]:
        """Take the chunks out of a deleted segment's record, queueing them first, and the record at last."""
        while True:
            with self._metadata.begin(segment_key(task.name)) as transaction:
                record = transaction.segment(task.name)
                if record is None or record.status & Status.ACTIVE:
                    self._forestall_commits(transaction, task.segment)
                    transaction.commit()
                    return ()
                chunks = ChunkList(transaction, record._replace(start_offset=record.length))
                names = chunks.cut(self._config.transaction_batch)
                self._queue.add([GarbageTask(name, now, segment=task.name) for name in names])
                if chunks.record.first_chunk is None:
                    transaction.delete(record.key)
                else:
                    chunks.save()
                transaction.commit()

    def _collect_journal(self, task: GarbageTask, report: GarbageReport) -> Sequence[GarbageTask]:
        if self._is_needed is None:
            raise StorageError(f"{task.name!r} is kept: this collector was not told which journals are needed")
        if self._is_needed(task.name):
            report.alive += 1
            return ()
        if not self._delete(task.name):
            return (task,)
        report.deleted += 1
        return ()
