"""A queue of garbage in a store, for segments without a log: it survives the crashes that tests make.

One object for each `add`, named by when its tasks are due.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Sequence

from chunkstore.metadata.garbage_queue import GarbageBatch, GarbageKind, GarbageQueue, GarbageTask
from chunkstore.metadata.store import MetadataTransaction
from chunkstore.paths import CONTAINERS
from chunkstore.port import Store

_TICKET = re.compile("[0-9]{16}-[0-9a-f]{32}")


class StoreGarbageQueue(GarbageQueue):
    """The queue of a container, below `_system/containers/` of a store."""

    def __init__(self, store: Store, container: int, page: int = 1000) -> None:
        """page: names per listing."""
        self._store = store
        self._page = page
        self._queue = f"{CONTAINERS}GC.queue.{container}/"
        self._aside = f"{CONTAINERS}GC.failed.queue.{container}/"

    def add(self, tasks: Sequence[GarbageTask], transaction: MetadataTransaction | None = None) -> None:
        if tasks:
            self._put(self._queue, tasks)

    def due(self, now: float) -> Iterator[GarbageBatch]:
        return self._batches(self._queue, before=_name(self._queue, _milliseconds(now) + 1))

    def settle(self, batch: GarbageBatch, again: Sequence[GarbageTask] = (), aside: Sequence[GarbageTask] = ()) -> None:
        self.add(again)
        if aside:
            self._put(self._aside, aside)
        self._store.delete([batch.ticket])

    def failed(self) -> Iterator[GarbageBatch]:
        """What was put aside."""
        return self._batches(self._aside)

    def retry(self, batch: GarbageBatch, now: float) -> None:
        """Queue again what was put aside, with no attempts so far, due at `now`."""
        self.settle(batch, [task._replace(attempts=0, due=now) for task in batch.tasks])

    def _put(self, folder: str, tasks: Sequence[GarbageTask]) -> None:
        due = max(_milliseconds(task.due) for task in tasks)
        self._store.put(f"{_name(folder, due)}-{uuid.uuid4().hex}", json.dumps(tasks).encode())

    def _batches(self, folder: str, before: str | None = None) -> Iterator[GarbageBatch]:
        last = ""
        while found := self._store.list(folder, last, self._page):
            for info in found:
                if before is not None and info.path >= before:
                    return
                if _TICKET.fullmatch(info.path.removeprefix(folder)):
                    yield GarbageBatch(info.path, tuple(map(_task, json.loads(self._store.read(info.path)))))
            last = found[-1].path


def _task(fields: list[object]) -> GarbageTask:
    task = GarbageTask(*fields)  # type: ignore[arg-type]
    return task._replace(kind=GarbageKind(task.kind))


def _name(folder: str, milliseconds: int) -> str:
    return f"{folder}{milliseconds:016d}"


def _milliseconds(seconds: float) -> int:
    return max(0, int(seconds * 1000))
