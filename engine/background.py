"""Work that nobody waits for, done by threads of its own.

Owns those threads and what went wrong in them. What is done may fail: that is logged, measured and kept in `failures`
until the same kind of work succeeds; nobody else would ever hear of it. Without threads, work is kept until somebody
calls `do_deferred`.
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

_METRICS = default_metrics().layer("upkeep")


class Background:
    """Work of several kinds. Thread-safe.

    Args:
        name: whose work it is, for the log's lines and the threads' names.
        threads: the most threads; 0: none, see `do_deferred`.
        clock: seconds of a monotonic clock.

    failures: what went wrong the last time, by the kind of work. deferred: what waits for `do_deferred`.
    closing: whoever does something in steps should end after the next one.
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
        """Do something without keeping anybody waiting."""
        if not self._threads:
            self.deferred.append((kind, work, args))
            return
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._threads, f"{self._name} background")
            try:
                future = self._pool.submit(self.do, kind, work, *args)
            except RuntimeError as error:  # no thread could be started, or the process is ending
                self._failed(kind, error, f"could not be set off and is due for whoever commits next: {error}")
                return
            self._under_way = {other for other in self._under_way if not other.done()} | {future}

    def offer(self, kind: str, work: Callable[..., Any], *args: Any) -> None:
        """Do something if there are threads for it: it is worth nothing to whoever would wait for it."""
        if self._threads:
            self.start(kind, work, *args)

    def do_deferred(self) -> None:
        """Without threads: do now what was set off, and what that sets off."""
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
        """Do something now, as it would be done in the background: its failure is kept, and not raised."""
        try:
            with _METRICS.measure(kind):
                work(*args)
            self.failures.pop(kind, None)
        except ContainerOffline as error:  # closed, or failed: whoever uses it hears of that
            logger.info("%s: %s was given up: %s", self._name, kind, str(error))
        except (EngineError, StorageError) as error:
            self._failed(kind, error, f"failed and will be tried again: {error}")
        except Exception as error:  # nobody waits for it, so nobody else would ever hear of it
            self._failed(kind, error, f"failed unexpectedly and will be tried again: {error!r}", trace=True)

    def note(self, kind: str, error: Exception | None) -> None:
        """Keep what went wrong with upkeep that somebody else does, and has logged; None: that it went well."""
        if error is None:
            self.failures.pop(kind, None)
        else:
            self.failures[kind] = str(error) or repr(error)

    def _failed(self, kind: str, error: Exception, what: str, trace: bool = False) -> None:
        self.note(kind, error)
        level = logging.ERROR if trace else logging.WARNING
        logger.log(level, "%s: %s %s", self._name, kind, what, exc_info=trace)

    def wait(self, seconds: float = math.inf) -> bool:
        """Wait until what was set off so far is done, or that time is over; whether it is done."""
        end = self._clock() + seconds
        while under_way := [future for future in self._under_way if not future.done()]:
            left = end - self._clock()
            if left <= 0:
                return False
            wait(under_way, None if math.isinf(left) else left)
        return True

    def finish(self, seconds: float) -> bool:
        """Wait for what is under way, so many seconds at most, as the process ends; whether it is done."""
        self.closing = not self.wait(seconds)
        return not self.closing

    def close(self) -> None:
        """Wait for the steps under way, and end the threads."""
        self.closing = True
        self.wait()
        with self._lock:
            if self._pool is not None:
                self._pool.shutdown()
                self._pool = None
