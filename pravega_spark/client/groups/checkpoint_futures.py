"""The futures of a group's checkpoints: each polls the group's state until all readers have passed.

A future completes once: with the cuts, or with the error of its checkpoint or of the storage. When the group is closed
here, the rest fail with Closed; their checkpoints go on.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future

from chunkstore import StorageError
from engine.errors import EngineError
from pravega_spark.client.groups.open_group import OpenGroup
from pravega_spark.client.groups.state import GroupState
from pravega_spark.errors import Closed, StreamError
from pravega_spark.streams.model.cuts import StreamCut

POLL = 0.5
"""Seconds between two looks at the group (Pravega: the same)."""


class CheckpointFutures:
    """The futures of checkpoints that were initiated by this object of a group."""

    def __init__(self, group: OpenGroup) -> None:
        self._group = group
        self._lock = threading.Lock()
        self._waiting: set[Future[dict[str, StreamCut]]] = set()

    def of(self, run: str, name: str, state: GroupState) -> Future[dict[str, StreamCut]]:
        """The future of a checkpoint. name: for its error. state: the group's, as it is now."""
        future: Future[dict[str, StreamCut]] = Future()
        future.set_running_or_notify_cancel()  # so that only this object ends it
        with self._lock:
            self._waiting.add(future)
        self._look(future, run, name, state)
        return future

    def _poll(self, future: Future[dict[str, StreamCut]], run: str, name: str) -> None:
        try:
            state = self._group.entry.state()
        except (EngineError, StorageError, StreamError) as error:
            self._end(future, error)
            return
        self._look(future, run, name, state)

    def _look(self, future: Future[dict[str, StreamCut]], run: str, name: str, state: GroupState) -> None:
        try:
            cuts = state.outcome(run, name)
        except StreamError as error:
            self._end(future, error)
            return
        if cuts is not None:
            self._end(future, {f"{cut.scope}/{cut.stream}": cut for cut in cuts})
        else:
            self._group.later(POLL, lambda: self._poll(future, run, name))

    def _end(self, future: Future[dict[str, StreamCut]], outcome: dict[str, StreamCut] | Exception) -> None:
        with self._lock:
            if future not in self._waiting:
                return
            self._waiting.discard(future)
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)

    def close(self) -> None:
        """Fail the futures that are not complete."""
        with self._lock:
            waiting = list(self._waiting)
        for future in waiting:
            closed = Closed(f"this object of reader group {self._group.entry.key}", "open the group again")
            self._end(future, closed)
