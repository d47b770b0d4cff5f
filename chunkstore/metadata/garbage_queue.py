"""The garbage queue: what the collector (`chunkstore.garbage_collector`) may have to delete (G1, G2).

Garbage is queued before it exists: a new chunk before it is created (if no commit names it, it is garbage), a chunk
before the commit that takes it out of its segment, a segment before the commit that deletes it. So a task may name
something that is alive.
"""

from __future__ import annotations

import abc
import enum
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from chunkstore.metadata.store import MetadataTransaction


class GarbageKind(enum.IntEnum):
    """What may have to be deleted: a chunk, a list of chunks in the metadata (all of a deleted segment, or what was
    taken out of one), a journal or snapshot, or a chunk that is being made."""

    CHUNK = 1
    SEGMENT = 2
    JOURNAL = 3
    NEW_CHUNK = 4


class GarbageTask(NamedTuple):
    """Something that may have to be deleted from `due` (epoch s) on, after `attempts` that failed.

    `name` is the chunk, the record that leads to the list of chunks, or the journal's file. `segment` is the one that
    the commit changes which decides: after it the name is garbage, or alive if it is new.
    """

    name: str
    due: float
    attempts: int = 0
    kind: GarbageKind = GarbageKind.CHUNK
    segment: str = ""


class GarbageBatch(NamedTuple):
    """Tasks that are taken from the queue together; `ticket` names them to the queue."""

    ticket: str
    tasks: tuple[GarbageTask, ...]


class GarbageQueue(abc.ABC):
    """A durable queue. No task is lost; a task may be returned again after it is done."""

    @abc.abstractmethod
    def add(self, tasks: Sequence[GarbageTask], transaction: MetadataTransaction | None = None) -> None:
        """Queue tasks; durable on return.

        `transaction`: the one whose commit decides which of them are garbage, if it is under way. A queue that shares a
        log with the metadata may have them queued by that very commit.
        """

    def claim(self, tasks: Sequence[GarbageTask], transaction: MetadataTransaction) -> None:  # noqa: B027 - most queues share no log
        """The new chunks `tasks` are deleted once `transaction` is committed: from then on `waits` says so.

        A queue that does not share a log with the metadata relies on the time until which a new chunk may be named.
        """

    def waits(self, name: str) -> bool:
        """Whether a new chunk may still be named: by the newest state of the queue no collector has claimed it."""
        return True

    @abc.abstractmethod
    def due(self, now: float) -> Iterator[GarbageBatch]:
        """Batches whose tasks are all due at `now` (epoch s), in the order in which they came due."""

    @abc.abstractmethod
    def settle(self, batch: GarbageBatch, again: Sequence[GarbageTask] = (), aside: Sequence[GarbageTask] = ()) -> None:
        """Remove a batch from the queue, except tasks to retry (`again`) and tasks that failed for good (`aside`).

        The latter are kept for the operator (G2). Neither a crash nor an error loses one of these.
        """


class MemoryGarbageQueue(GarbageQueue):
    """Tasks in this process only: for garbage that the next process finds by itself."""

    def __init__(self) -> None:
        self.tasks: dict[str, GarbageTask] = {}

    def add(self, tasks: Sequence[GarbageTask], transaction: MetadataTransaction | None = None) -> None:
        self._change(tasks)

    def due(self, now: float) -> Iterator[GarbageBatch]:
        tasks = tuple(task for task in list(self.tasks.values()) if task.due <= now)
        if tasks:
            yield GarbageBatch("", tasks)

    def settle(self, batch: GarbageBatch, again: Sequence[GarbageTask] = (), aside: Sequence[GarbageTask] = ()) -> None:
        left = [*again, *(task._replace(due=math.inf) for task in aside)]
        left = [task._replace(kind=self.tasks.get(task.name, task).kind) for task in left]  # a claim stays one
        kept = {task.name for task in left}
        self._change(left, [task.name for task in batch.tasks if task.name not in kept])

    def _change(self, tasks: Sequence[GarbageTask], settled: Sequence[str] = ()) -> None:
        """Add or replace tasks, by their names, and forget those that are settled."""
        self.tasks.update({task.name: task for task in tasks})
        for name in settled:
            self.tasks.pop(name, None)
