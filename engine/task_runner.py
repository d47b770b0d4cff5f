"""Maintenance tasks of a container, run by a few threads.

Owns those threads and the errors of the tasks. A failure is logged, measured, and kept in `failures` until a task of
the same kind succeeds. Without threads, tasks are queued until `do_deferred` is called.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from chunkstore import StorageError
from chunkstore.metrics import default_metrics
from engine.errors import ContainerOffline, EngineError

logger = logging.getLogger(__name__)

_METRICS = default_metrics().layer("maintenance")


class TaskRunner:
    """Runs tasks of several kinds. Thread-safe.

    Args:
        name: prefix of log lines and thread names.
        threads: the most threads; 0: none, see `do_deferred`.
        clock: seconds of a monotonic clock.

    failures: the last error of each kind of task. deferred: tasks that wait for `do_deferred`. closing: a task with
    several steps should end after its present one.
    """

    def __init__(self, name: str, threads: int, clock: Callable[[], float]) -> None:
        self.failures: dict[str, str] = {}
        self.deferred: deque[tuple[str, Callable[..., Any], tuple[Any, ...]]] = deque()
        self.closing = False
        self._name = name
        self._threads = threads
        self._clock = clock
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._under_way: set[Future[Any]] = set()
        self._doing = False

    def start(self, kind: str, work: Callable[..., Any], *args: Any) -> None:
        """Start a task, and do not wait for it."""
        if not self._threads:
            self.deferred.append((kind, work, args))
            return
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._threads, f"{self._name} maintenance")
            try:
                future = self._pool.submit(self.do, kind, work, *args)
            except RuntimeError as error:  # no thread could be started, or the process is ending
                self._failed(kind, error, f"could not be started; the next commit starts it again: {error}")
                return
            self._under_way = {other for other in self._under_way if not other.done()} | {future}

    def do_deferred(self) -> None:
        """Without threads: run the queued tasks, and those that they start."""
        if self._doing:
            return
        self._doing = True
        try:
            while self.deferred:
                kind, work, args = self.deferred.popleft()
                self.do(kind, work, *args)
        finally:
            self._doing = False

    def do(self, kind: str, work: Callable[..., Any], *args: Any) -> None:
        """Run a task on the calling thread. A failure is recorded, not raised."""
        try:
            with _METRICS.measure(kind):
                work(*args)
            self.failures.pop(kind, None)
        except ContainerOffline as error:  # closed or failed; its users get this error too
            logger.info("%s: %s was aborted: %s", self._name, kind, str(error))
        except (EngineError, StorageError) as error:
            self._failed(kind, error, f"failed and will be retried: {error}")
        except Exception as error:  # no caller waits for the task, so it is logged here
            self._failed(kind, error, f"failed unexpectedly and will be retried: {error!r}", trace=True)

    def note(self, kind: str, error: Exception | None) -> None:
        """Record the error of a task that ran elsewhere and was logged there; None: it succeeded."""
        if error is None:
            self.failures.pop(kind, None)
        else:
            self.failures[kind] = str(error) or repr(error)

    def _failed(self, kind: str, error: Exception, what: str, trace: bool = False) -> None:
        self.note(kind, error)
        level = logging.ERROR if trace else logging.WARNING
        logger.log(level, "%s: %s %s", self._name, kind, what, exc_info=trace)

    def wait(self, seconds: float = math.inf) -> bool:
        """Wait until all tasks started so far are done, `seconds` at most. Returns whether they are."""
        end = self._clock() + seconds
        while under_way := [future for future in self._under_way if not future.done()]:
            left = end - self._clock()
            if left <= 0:
                return False
            wait(under_way, None if math.isinf(left) else left)
        return True

    def finish(self, seconds: float) -> bool:
        """Wait for running tasks as the process ends, `seconds` at most. Returns whether they are done."""
        self.closing = not self.wait(seconds)
        return not self.closing

    def close(self) -> None:
        """Wait for running tasks to end after their present step, and end the threads."""
        self.closing = True
        self.wait()
        with self._lock:
            if self._pool is not None:
                self._pool.shutdown()
                self._pool = None
