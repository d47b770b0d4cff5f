"""The maintenance scheduler of a container: starts maintenance tasks after appends.

The policy decides what is due, by facts that all processes share, whichever process left it undone (W12). Tasks run in
the background, so that a task that waits for its own operations never keeps frames from being sent; without threads
they run after the operation that started them. A failure is logged, counted and shown, and a later append tries again.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Sequence

from chunkstore import ObjectInfo
from engine.clocks import StorageClock
from engine.containers import maintenance_policy as policy
from engine.containers.maintenance_policy import Ages, Urgency
from engine.containers.maintenance_tasks import MaintenanceTasks
from engine.logs.durable_log import DurableLog
from engine.logs.frames import Position
from engine.logs.log import address_of
from engine.logs.observer import LogObserver
from engine.settings import Settings
from engine.state.state import State
from engine.task_runner import TaskRunner

logger = logging.getLogger(__name__)

PAUSE = 1.0
"""Seconds between two flush cycles that fail while appends wait for one."""

FULL_PAUSE = 5.0
"""Seconds between two attempts to make room while writes are refused."""

CHECKPOINT_BYTES = 16 << 20
"""After so many bytes of checkpoints, those that nobody needs are deleted (P6)."""


class MaintenanceScheduler(LogObserver):
    """Starts the tasks that are due: the observer of a container's log.

    Operations of tasks go to the log directly, so they start no tasks that they would have to wait for.
    """

    def __init__(
        self,
        log: DurableLog,
        tasks: MaintenanceTasks,
        background: TaskRunner,
        settings: Settings,
        storage_clock: StorageClock,
        clock: Callable[[], float],
    ) -> None:
        self._log = log
        self._tasks = tasks
        self._background = background
        self._settings = settings
        self._storage_clock = storage_clock
        self._clock = clock
        self._work: dict[str, Callable[[], object]] = {
            "flush": self._flush,
            "truncate_log": tasks.truncate_log,
            "collect_garbage": tasks.collect_garbage,
            "expire_transients": tasks.expire_transients,
        }
        self._running = {kind: threading.Lock() for kind in self._work}
        self._lock = threading.Lock()
        self._begun = Ages(clock, storage_clock.known)
        self._alive = Ages(clock, storage_clock.known)
        self._cleaned = clock()
        self._made_room = -math.inf
        self._checkpoint_bytes = 0
        self._expired = -math.inf
        self._next_checkpoint = -math.inf
        self._log_start = -1
        self._overdue_checkpoint: bool | None = None
        self._listed: Sequence[ObjectInfo] | None = None
        self.opened(log.checkpoints)

    # --- what is due ---------------------------------------------------------------------------------------------

    def opened(self, listed: Sequence[ObjectInfo]) -> None:
        """The log was opened, which listed these checkpoints: the first operation looks for what is due already."""
        self._log_start = address_of(listed[-1].path) if listed else -1
        self._overdue_checkpoint = None
        self._listed = listed if self._settings.maintenance else None

    def committed(self, position: Position, state: State, checkpoint: bool) -> None:
        """Start what is due after a frame of this process. checkpoint: it holds a Checkpoint."""
        settings = self._settings
        if checkpoint:
            self._next_checkpoint = math.inf
            self._background.start("checkpoint", self._write_checkpoint, position, state)
        if not settings.maintenance:
            return
        if self._flush_urgency(position.address, state):
            self._start("flush")
        now = self._clock()
        if now - self._cleaned > settings.grace / 2:
            self._cleaned = now
            self._start("truncate_log", "collect_garbage")
        if state.transients and now - self._expired > settings.transient_idle / 4:
            self._expired = now
            self._start("expire_transients")

    def checkpoint_due(self, frames: int) -> bool:
        """Whether the next frame carries a Checkpoint: every few frames, so that opening costs the same however
        long the log is.

        If the last one that was due was never made, the first frame after an opening carries the next one.
        """
        settings = self._settings
        if not settings.maintenance:
            return False
        if self._overdue_checkpoint is None:
            urgency = policy.checkpoint(self._log.head.address, self._log_start, settings.checkpoint_frames)
            self._overdue_checkpoint = urgency is Urgency.OVERDUE
        enough = frames >= settings.checkpoint_frames or self._overdue_checkpoint
        return enough and self._clock() >= self._next_checkpoint

    def after_operation(self) -> None:
        """Called after each operation of a user, whose outcome stands even if maintenance fails (W11).

        Without threads: run what it started. The first operation after an opening waits for overdue tasks, for
        `maintenance_wait` seconds at most.
        """
        if self._listed is None and not self._background.deferred:
            return
        try:
            self._background.do_deferred()
            self._look()
        except Exception as error:
            self._background.note("look", error)
            logger.exception("container %d: maintenance failed", self._log.number)

    def _look(self) -> None:
        with self._lock:
            listed, self._listed = self._listed, None
        if listed is not None:
            self._background.do("look", self._start_due, listed)
            self._background.do_deferred()

    def _start_due(self, listed: Sequence[ObjectInfo]) -> None:
        """Start what is due when the log is opened, and wait for what is overdue."""
        urgencies = self._urgencies(self._log.head.address, self._log.state, listed)
        self._start(*(kind for kind, urgency in urgencies.items() if urgency))
        if self._overdue_checkpoint or Urgency.OVERDUE in urgencies.values():
            self._background.wait(self._settings.maintenance_wait)

    def due(self, listed: Sequence[ObjectInfo]) -> dict[str, bool]:
        """The tasks that are due, and whether each is overdue."""
        head = self._log.head.address
        log_start = address_of(listed[-1].path) if listed else -1
        urgencies = {
            "checkpoint": policy.checkpoint(head, log_start, self._settings.checkpoint_frames),
            **self._urgencies(head, self._log.state, listed),
        }
        return {kind: urgency is Urgency.OVERDUE for kind, urgency in urgencies.items() if urgency}

    def _urgencies(self, address: int, state: State, listed: Sequence[ObjectInfo]) -> dict[str, Urgency]:
        """How urgent each task is."""
        settings, now = self._settings, self._storage_clock.known()
        return {
            "flush": self._flush_urgency(address, state),
            "truncate_log": policy.truncation(listed, settings.grace),
            "collect_garbage": policy.garbage_collection(state, now, settings.garbage_delay),
            "expire_transients": policy.expiry(state, now, settings.transient_idle),
        }

    def _flush_urgency(self, address: int, state: State) -> Urgency:
        age = self._begun.of(state.cycle.number, lambda: policy.began(state, int(self._storage_clock.known() * 1000)))
        return policy.flush(state, address, age, self._seconds_without_progress(state), self._settings)

    def _seconds_without_progress(self, state: State) -> float:
        """Seconds since the last flush cycle made progress."""
        cycle = state.cycle
        return self._alive.of((cycle.number, cycle.alive, cycle.aborted), lambda: cycle.alive)

    def make_room(self) -> None:
        """Start what frees space, as writes are refused for want of it."""
        now, state = self._clock(), self._log.state
        if not self._settings.maintenance or now - self._made_room < FULL_PAUSE:
            return
        self._made_room = now
        if state.awaits_flush and (state.cycle.complete or self._flush_urgency(self._log.head.address, state)):
            self._background.start("flush", self._run_once, "flush", self._relieve)
        self._start("truncate_log", "collect_garbage")
        self._background.do_deferred()

    def relieve(self) -> str:
        """Start a flush cycle, as appends wait for it. Returns the error of the last one, or ""."""
        state = self._log.state
        if self._settings.maintenance and not self._is_flushing(state):
            self._background.start("flush", self._run_once, "flush", self._relieve)
            self._background.do_deferred()
        return self._background.failures.get("flush") or state.cycle.error

    def _is_flushing(self, state: State) -> bool:
        """Whether a cycle runs in this process or another one, or has failed just now."""
        pause = min(PAUSE, self._settings.timeout / 4)
        failed = state.cycle.error and self._seconds_without_progress(state) < pause
        return bool(failed) or self._running["flush"].locked() or self._runs_elsewhere(state)

    def _runs_elsewhere(self, state: State) -> bool:
        return state.cycle.runs(state.cycle.number) and self._seconds_without_progress(state) < self._settings.timeout

    # --- running tasks -------------------------------------------------------------------------------------------

    def _start(self, *kinds: str) -> None:
        for kind in kinds:
            self._background.start(kind, self._run_once, kind)

    def _run_once(self, kind: str, work: Callable[[], object] | None = None) -> None:
        """Run a task unless it is running."""
        running = self._running[kind]
        if running.acquire(blocking=False):
            try:
                (work or self._work[kind])()
            finally:
                running.release()

    def _write_checkpoint(self, position: Position, state: State) -> None:
        begun = self._clock()
        try:
            self._checkpoint_bytes += self._log.write_checkpoint(position, state)
            self._overdue_checkpoint = False
            if self._checkpoint_bytes >= CHECKPOINT_BYTES and self._settings.maintenance:
                self._checkpoint_bytes = 0
                self._start("truncate_log")
        finally:
            # A process that commits without a pause spends no more than a tenth of the time on checkpoints.
            self._next_checkpoint = self._clock() + 9 * (self._clock() - begun)

    def _flush(self) -> None:
        def wanted(state: State) -> bool:  # and no cycle begins behind the one that `close` leaves to another process
            due = self._flush_urgency(self._log.head.address, state) > Urgency.NOT_DUE
            return due and not self._background.closing

        moved = self._tasks.run_cycle(wanted)
        while moved and wanted(self._log.state):
            moved = self._tasks.run_cycle(wanted)  # what was appended meanwhile

    def _relieve(self) -> None:
        self._tasks.run_cycle(lambda state: not self._runs_elsewhere(state))
