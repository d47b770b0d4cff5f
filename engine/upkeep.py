"""Upkeep of a container: what appends set off, and nobody waits for: checkpoint objects, flush cycles, deleting.

It has threads of its own, so that upkeep that waits for its own operations never keeps frames from being sent. Without
threads it is done after the operation that set it off. It may fail: the next append sets it off again.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any

from chunkstore import StorageError
from engine import checkpoints
from engine.errors import ContainerOffline, EngineError
from engine.frames import Position
from engine.state import State

if TYPE_CHECKING:
    from engine.container import Container

logger = logging.getLogger(__name__)

THREADS = 3
"""One for checkpoints, one for flush cycles, one for deleting and reading ahead."""


class Upkeep:
    """Knows what is due, and sees to it."""

    def __init__(self, container: Container) -> None:
        self._container = container
        self._pool: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()
        self._flushing = threading.Lock()
        self._cleaning = threading.Lock()
        self._under_way: set[Future[Any]] = set()
        self._deferred: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque()
        self._working = False
        self._cleaned = container.clock()
        self._expired = -math.inf
        self._next_checkpoint = -math.inf
        self._trouble = ""

    # --- what is due ---------------------------------------------------------------------------------------------

    def committed(self, position: Position, state: State, checkpoint: bool) -> None:
        """After each own frame, and whether it holds a Checkpoint: set off what is due."""
        container, settings = self._container, self._container.settings
        if checkpoint:
            self._next_checkpoint = math.inf
            self.start(self._write_checkpoint, position, state)
        if settings.upkeep and self._flush_due(position, state):
            self.start(self._alone, self._flushing, self._flush)
        if settings.upkeep and container.clock() - self._cleaned > settings.grace / 2:
            self._cleaned = container.clock()
            self.start(self._alone, self._cleaning, self._clean)
        if settings.upkeep and state.transients and container.clock() - self._expired > settings.transient_idle / 4:
            self._expired = container.clock()
            self.start(container.expire_transients)

    def checkpoint_due(self, frames: int) -> bool:
        """Every few frames, so that opening costs the same however many came before and however large the state is."""
        settings = self._container.settings
        enough = frames >= settings.checkpoint_frames
        return settings.upkeep and enough and self._container.clock() >= self._next_checkpoint

    def _flush_due(self, position: Position, state: State) -> bool:
        cycle, settings, now = state.cycle, self._container.settings, self._container.now()
        if not cycle.complete and now * 1000 - cycle.time < 1000 * settings.patience:
            return False  # it is being done
        frames = position.address - max(state.flushed, 0)
        seconds = now - cycle.time / 1000 if cycle.number else 0.0
        return state.logged_bytes >= settings.flush_bytes or (
            bool(state.unsaved) and (frames >= settings.flush_frames or seconds >= settings.flush_seconds)
        )

    def relieve(self) -> str:
        """Set off a flush cycle, as appends wait for it; what went wrong with the last one."""
        if self._container.settings.upkeep and not self._flushing.locked():
            self.start(self._alone, self._flushing, self._flush)
            self.do_deferred()
        return self._trouble

    # --- what is done --------------------------------------------------------------------------------------------

    def _write_checkpoint(self, position: Position, state: State) -> None:
        container = self._container
        begun = container.clock()
        try:
            checkpoints.write(container.stores.log, container.number, position, state)
        finally:
            # Who commits without a pause spends no more than a tenth of the time on checkpoints.
            self._next_checkpoint = container.clock() + 9 * (container.clock() - begun)

    def _flush(self) -> None:
        container = self._container
        try:
            container.flush()
            while self._flush_due(container.head, container.state):  # by what was appended meanwhile
                container.flush()
            self._trouble = ""
        except (EngineError, StorageError) as error:
            self._trouble = str(error)
            raise

    def _clean(self) -> None:
        self._container.truncate_log()
        self._container.collect_garbage()

    @staticmethod
    def _alone(lock: threading.Lock, work: Callable[[], None]) -> None:
        """Do something unless it is being done."""
        if lock.acquire(blocking=False):
            try:
                work()
            finally:
                lock.release()

    # --- how it is done ------------------------------------------------------------------------------------------

    def start(self, work: Callable[..., Any], *args: Any) -> None:
        """Do something without keeping anybody waiting."""
        if not self._container.settings.threaded:
            self._deferred.append((work, args))
            return
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(THREADS, f"upkeep-{self._container.number}")
            future = self._pool.submit(self._guarded, work, *args)
            self._under_way = {other for other in self._under_way if not other.done()} | {future}

    def do_deferred(self) -> None:
        """Without threads: do now what was set off."""
        if not self._working and not self._container.settings.threaded:
            with self.taking_care():
                pass

    @contextlib.contextmanager
    def taking_care(self) -> Iterator[None]:
        """Upkeep that the operations of other upkeep set off is done after that."""
        if self._container.settings.threaded or self._working:
            yield
            return
        self._working = True
        try:
            yield
            while self._deferred:
                work, args = self._deferred.popleft()
                self._guarded(work, *args)
        finally:
            self._working = False

    def _guarded(self, work: Callable[..., Any], *args: Any) -> None:
        try:
            work(*args)
        except ContainerOffline as error:  # closed, or failed: whoever uses it hears of that
            logger.info("container %d: upkeep was given up: %s", self._container.number, error)
        except (EngineError, StorageError) as error:
            logger.warning("container %d: upkeep failed and will be tried again: %s", self._container.number, error)

    def wait(self) -> None:
        """Wait until what was set off so far is done."""
        while under_way := [future for future in self._under_way if not future.done()]:
            wait(under_way)

    def close(self) -> None:
        """Finish what is under way, and end the threads."""
        self.wait()
        with self._lock:
            if self._pool is not None:
                self._pool.shutdown()
                self._pool = None
