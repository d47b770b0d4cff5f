"""The collector of garbage: it deletes what is queued as garbage (`chunkstore.metadata.garbage_queue`; G1, G2).

The queue may name what is alive. So the collector decides: it deletes a chunk only when, after the delay, no metadata
names it.

The process that queued a task may sleep for longer than the delay, and commit after the collector has looked. So where
the collector finds that the commit has not been made (a new chunk that nothing names, an old one that is still named, a
segment that is not deleted), it changes the version of the segment's record first. Then that commit can never be made,
and what the collector found stays true.

The records of system segments are in this process's memory, which other processes do not see. Before it decides
anything about their chunks the collector has a snapshot of them made, which fails if another instance has taken over,
and leaves no doubt about earlier commits to the instance that boots next.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

from chunkstore.errors import MetadataConflict, StorageError
from chunkstore.metadata.garbage_queue import GarbageKind, GarbageQueue, GarbageTask
from chunkstore.metadata.metadata_records import RecordStatus, segment_key
from chunkstore.metadata.store import MetadataStore, MetadataTransaction
from chunkstore.paths import SYSTEM
from chunkstore.port import Store
from chunkstore.segments.chunk_list import ChunkList

_log = logging.getLogger(__name__)

_CONFLICTS = 10  # times that a commit is tried against busy writers


@dataclass(frozen=True)
class GarbageConfig:
    """`delay`: seconds before a task is retried; longer than any read takes. `attempts`: how often a failed task is
    tried again before it is set aside (Pravega: garbageCollectionMaxAttempts). `transaction_batch`: chunks of a deleted
    segment that one transaction removes."""

    delay: float = 60.0
    attempts: int = 3
    transaction_batch: int = 5000


@dataclass
class GarbageReport:
    """What a run did: objects deleted, tasks whose object is alive, tasks to retry, tasks that failed for good."""

    deleted: int = 0
    alive: int = 0
    retried: int = 0
    failed: int = 0


class GarbageCollector:
    """Carries out the tasks of a queue. Several at once do no harm, and no more good than one.

    `is_needed` returns whether the next boot may read a journal or snapshot, and `snapshot` makes one of the system
    segments; a `SystemJournal` has both. Without them journals, and chunks of system segments, are kept. `held` returns
    the chunks that are in use outside the metadata. `should_continue` is called before each batch of a deleted segment:
    once it returns False, the rest is left for a later run.
    """

    def __init__(
        self,
        chunks: Store,
        metadata: MetadataStore,
        queue: GarbageQueue,
        config: GarbageConfig | None = None,
        *,
        is_needed: Callable[[str], bool] | None = None,
        snapshot: Callable[[], object] | None = None,
        held: Callable[[Sequence[str]], Collection[str]] = lambda names: (),
        should_continue: Callable[[], bool] = lambda: True,
    ) -> None:
        self._chunks = chunks
        self._metadata = metadata
        self._queue = queue
        self._config = config or GarbageConfig()
        self._is_needed = is_needed
        self._snapshot = snapshot
        self._held = held
        self._may_go_on = should_continue

    def run_once(self, now: float) -> GarbageReport:
        """Carry out all tasks that are due at `now` (epoch s), and those that come of them.

        Failures of a task are logged and counted; raises StorageError if the queue cannot be read or written.
        """
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
            aside = [task for task in again if task.attempts > self._config.attempts]
            again = [task for task in again if task.attempts <= self._config.attempts]
            self._queue.settle(batch, again, aside)
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
                    failures += self._guarded(partial(self._collect_segment, task, report), [task])
                case GarbageKind.JOURNAL:
                    failures += self._guarded(partial(self._collect_journal, task, report), [task])
        for (segment, are_new), some in chunks.items():
            failures += self._guarded(partial(self._collect_chunks, segment, are_new, some, report), some)
        return failures

    def _guarded(self, act: Callable[[], Sequence[GarbageTask]], tasks: Sequence[GarbageTask]) -> Sequence[GarbageTask]:
        try:
            return act()
        except MetadataConflict as conflict:  # as two collectors at once have it: no reason to worry anybody
            _log.info(
                "garbage: %s and %d more are left to a later run: %s", tasks[0].name, len(tasks) - 1, str(conflict)
            )
            return tasks
        except StorageError as error:
            _log.warning("garbage: %s and %d more: %s", tasks[0].name, len(tasks) - 1, str(error))
            return tasks

    def _collect_chunks(
        self, segment: str, are_new: bool, tasks: Sequence[GarbageTask], report: GarbageReport
    ) -> Sequence[GarbageTask]:
        """Delete those that no metadata names; returns those that failed."""
        dead = self._find_dead(segment, are_new, [task.name for task in tasks])
        report.alive += len(tasks) - len(dead)
        garbage = [task for task in tasks if task.name in dead]
        deleted = [self._delete(task.name) for task in garbage]
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
                    if dead and are_new:  # a process whose clock stood still may begin such a commit later
                        claimed = [GarbageTask(name, 0.0, segment=segment) for name in sorted(dead)]
                        self._queue.claim(claimed, transaction)
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
        if record.status & RecordStatus.SYSTEM_SEGMENT:
            if self._snapshot is None:
                raise StorageError(f"chunks of {segment!r} are kept, as this collector makes no snapshots of it")
            self._snapshot()

    @staticmethod
    def _forestall_commits(transaction: MetadataTransaction, segment: str) -> None:
        """Let every commit fail that was begun before and changes the segment."""
        record = transaction.segment(segment) if segment else None
        if record is not None:
            transaction.put(record, pinned=bool(record.status & RecordStatus.SYSTEM_SEGMENT))

    def _delete(self, name: str) -> bool:
        try:
            self._chunks.delete([name])
        except StorageError as error:
            _log.warning("garbage: chunk %s is not deleted: %s", name, str(error))
            return False
        return True

    def _collect_segment(self, task: GarbageTask, report: GarbageReport) -> Sequence[GarbageTask]:
        """Delete the chunks of a deleted segment, then take them out of its record, a batch at a time; at last the
        record."""
        while self._may_go_on():
            with self._metadata.begin(segment_key(task.name)) as transaction:
                record = transaction.segment(task.name)
                if record is None or record.status & RecordStatus.ACTIVE:
                    self._forestall_commits(transaction, task.segment)
                    transaction.commit()
                    return ()
                chunks = ChunkList(transaction, record._replace(start_offset=record.length))
                names = chunks.cut(self._config.transaction_batch)
                held = set(self._held(names))
                if garbage := [name for name in names if name not in held]:
                    self._chunks.delete(garbage)
                if chunks.record.first_chunk is None:
                    transaction.delete(record.key)
                else:
                    chunks.save()
                transaction.commit()
            report.alive += len(held)
            report.deleted += len(garbage)
        return (task,)

    def _collect_journal(self, task: GarbageTask, report: GarbageReport) -> Sequence[GarbageTask]:
        if self._is_needed is None:
            raise StorageError(f"{task.name!r} is kept: this collector has no `is_needed` to ask")
        if self._is_needed(task.name):
            report.alive += 1
            return ()
        if not self._delete(task.name):
            return (task,)
        report.deleted += 1
        return ()
