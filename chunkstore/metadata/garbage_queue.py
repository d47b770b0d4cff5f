"""What may have to be deleted, and the durable queue of it (G1, G2). Who deletes it is `chunkstore.garbage_collector`.

Whoever makes garbage queues it first: a chunk before it is made (if nothing comes to name it, it is garbage), a chunk
before the commit that takes it out of its segment, a segment before the commit that deletes it. So the queue may name
what is alive.
"""

from __future__ import annotations

import abc
import enum
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
    """Something to look at when `due` (epoch s) has come, after `attempts` that failed.

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
    """Tasks that survive this process. Nothing is lost; a task may be met again, even when it is done."""

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
        """Whether a new chunk may still be named: no collector has claimed it, by the newest that anybody knows."""
        return True

    @abc.abstractmethod
    def due(self, now: float) -> Iterator[GarbageBatch]:
        """Batches whose tasks are all due at `now` (epoch s), in the order in which they came due."""

    @abc.abstractmethod
    def settle(self, batch: GarbageBatch, again: Sequence[GarbageTask] = (), aside: Sequence[GarbageTask] = ()) -> None:
        """Forget a batch, all but those of its tasks that are to be tried `again`, or are put `aside`, for the
        operator (G2): no crash, and no error, loses one of these."""
