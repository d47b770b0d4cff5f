"""Upkeep of a container, which appends set off and hardly anybody waits for: checkpoints, flush cycles, deleting.

What is due is decided by facts that all processes share (`engine.containers.duties`), whoever has left it (W12). It is
done by `engine.containers.maintenance` in the background: upkeep that waits for its own operations never keeps frames
from being sent. Without threads it is done after the operation that set it off. It may fail: that is logged, counted
and shown, and whoever appends later tries again.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Sequence

from chunkstore import ObjectInfo
from engine.clocks import StorageClock
from engine.containers import duties
from engine.containers.duties import Ages, Urgency
from engine.containers.maintenance import Maintenance
from engine.logs.durable_log import DurableLog
from engine.logs.frames import Position
from engine.logs.log import address_of
from engine.settings import Settings
from engine.state.state import State
from engine.task_runner import TaskRunner

logger = logging.getLogger(__name__)

PAUSE = 1.0
"""Seconds between two flush cycles that fail while appends wait for one."""


class Upkeep:
    """Knows what is due, and sees to it: the observer of a container's log.

    Its own operations go to the log itself, so that they set off nothing to wait for.
    """

    def __init__(
        self,
        log: DurableLog,
        maintenance: Maintenance,
        background: TaskRunner,
        settings: Settings,
        storage_clock: StorageClock,
        clock: Callable[[], float],
    ) -> None:
        self._log = log
        self._maintenance = maintenance
        self._background = background
        self._settings = settings
        self._storage_clock = storage_clock
        self._clock = clock
        self._kinds: dict[str, Callable[[], object]] = {
            "flush": self._flush,
            "truncate_log": maintenance.truncate_log,
            "collect_garbage": maintenance.collect_garbage,
            "expire_transients": maintenance.expire_transients,
        }
        self._turns = {kind: threading.Lock() for kind in self._kinds}
        self._lock = threading.Lock()
        self._begun = Ages(clock, storage_clock.known)
        self._alive = Ages(clock, storage_clock.known)
        self._cleaned = clock()
        self._expired = -math.inf
        self._next_checkpoint = -math.inf
        self._boundary = -1
        self._overdue_checkpoint: bool | None = None
        self._listed: Sequence[ObjectInfo] | None = None
        self.opened(log.checkpoints)

    # --- what is due ---------------------------------------------------------------------------------------------

    def opened(self, listed: Sequence[ObjectInfo]) -> None:
        """The log was opened, which showed these checkpoints: the first operation looks at what others left."""
        self._boundary = address_of(listed[-1].path) if listed else -1
        self._overdue_checkpoint = None
        self._listed = listed if self._settings.maintenance else None

    def committed(self, position: Position, state: State, checkpoint: bool) -> None:
        """After each own frame, and whether it holds a Checkpoint: set off what is due."""
        settings = self._settings
        if checkpoint:
            self._next_checkpoint = math.inf
            self._background.start("checkpoint", self._write_checkpoint, position, state)
        if not settings.maintenance:
            return
        if self._flush_urgency(position.address, state):
            self._set_off("flush")
        now = self._clock()
        if now - self._cleaned > settings.grace / 2:
            self._cleaned = now
            self._set_off("truncate_log", "collect_garbage")
        if state.transients and now - self._expired > settings.transient_idle / 4:
            self._expired = now
            self._set_off("expire_transients")

    def checkpoint_due(self, frames: int) -> bool:
        """Every few frames, so that opening costs the same however many came before and however large the state is.

        Where the one that is due was never made, the first frame after an opening carries the next one.
        """
        settings, head = self._settings, self._log.head.address
        if not settings.maintenance:
            return False
        if self._overdue_checkpoint is None:
            urgency = duties.checkpoint(head, self._boundary, settings.checkpoint_frames)
            self._overdue_checkpoint = urgency is Urgency.OVERDUE
        enough = frames >= settings.checkpoint_frames or self._overdue_checkpoint
        return enough and self._clock() >= self._next_checkpoint

    def after_operation(self) -> None:
        """Called after each operation of a user, whose outcome stands whatever becomes of this (W11).

        Without threads: do what it set off. After an opening the first one waits for what others should have done long
        ago, `maintenance_wait` seconds at most.
        """
        if self._listed is None and not self._background.deferred:
            return
        try:
            self._background.do_deferred()
            self._look()
        except Exception as error:
            self._background.note("look", error)
            logger.exception("container %d: upkeep failed", self._log.number)

    def _look(self) -> None:
        with self._lock:
            listed, self._listed = self._listed, None
        if listed is not None:
            self._background.do("look", self._see_to, listed)
            self._background.do_deferred()

    def _see_to(self, listed: Sequence[ObjectInfo]) -> None:
        """Set off what is due already when the log is opened, and wait for what is overdue."""
        urgencies = self._urgencies(self._log.head.address, self._log.state, listed)
        self._set_off(*(kind for kind, urgency in urgencies.items() if urgency))
        if self._overdue_checkpoint or Urgency.OVERDUE in urgencies.values():
            self._background.wait(self._settings.maintenance_wait)

    def due(self, listed: Sequence[ObjectInfo]) -> dict[str, bool]:
        """What is due, and whether it is overdue."""
        head = self._log.head.address
        boundary = address_of(listed[-1].path) if listed else -1
        urgencies = {
            "checkpoint": duties.checkpoint(head, boundary, self._settings.checkpoint_frames),
            **self._urgencies(head, self._log.state, listed),
        }
        return {kind: urgency is Urgency.OVERDUE for kind, urgency in urgencies.items() if urgency}

    def _urgencies(self, address: int, state: State, listed: Sequence[ObjectInfo]) -> dict[str, Urgency]:
        """How urgent each kind of upkeep is."""
        settings, now = self._settings, self._storage_clock.known()
        return {
            "flush": self._flush_urgency(address, state),
            "truncate_log": duties.truncation(listed, settings.grace),
            "collect_garbage": duties.collection(state, now, settings.garbage_delay),
            "expire_transients": duties.expiry(state, now, settings.transient_idle),
        }

    def _flush_urgency(self, address: int, state: State) -> Urgency:
        settings, now = self._settings, int(self._storage_clock.known() * 1000)
        return duties.flush(
            state,
            address,
            self._begun.of(state.cycle.number, lambda: duties.began(state, now)),
            self._silence(state),
            most_bytes=settings.flush_bytes,
            frames=settings.flush_frames,
            seconds=settings.flush_seconds,
            timeout=settings.timeout,
        )

    def _silence(self, state: State) -> float:
        """Seconds since the last sign of life of the last flush cycle."""
        cycle = state.cycle
        return self._alive.of((cycle.number, cycle.alive, cycle.aborted), lambda: cycle.alive)

    def relieve(self) -> str:
        """Set off a flush cycle, as appends wait for it; what went wrong with the last one."""
        state = self._log.state
        if self._settings.maintenance and not self._at_work(state):
            self._background.start("flush", self._alone, "flush", self._relieve)
            self._background.do_deferred()
        return self._background.failures.get("flush") or state.cycle.error

    def _at_work(self, state: State) -> bool:
        """Whether a cycle goes on here or elsewhere, or has failed just now."""
        pause = min(PAUSE, self._settings.timeout / 4)
        failed = state.cycle.error and self._silence(state) < pause
        return bool(failed) or self._turns["flush"].locked() or self._goes_on(state)

    def _goes_on(self, state: State) -> bool:
        return state.cycle.runs(state.cycle.number) and self._silence(state) < self._settings.timeout

    # --- what is done --------------------------------------------------------------------------------------------

    def _set_off(self, *kinds: str) -> None:
        for kind in kinds:
            self._background.start(kind, self._alone, kind)

    def _alone(self, kind: str, work: Callable[[], object] | None = None) -> None:
        """Do something unless it is being done."""
        turn = self._turns[kind]
        if turn.acquire(blocking=False):
            try:
                (work or self._kinds[kind])()
            finally:
                turn.release()

    def _write_checkpoint(self, position: Position, state: State) -> None:
        begun = self._clock()
        try:
            self._log.write_checkpoint(position, state)
            self._overdue_checkpoint = False
        finally:
            # Who commits without a pause spends no more than a tenth of the time on checkpoints.
            self._next_checkpoint = self._clock() + 9 * (self._clock() - begun)

    def _flush(self) -> None:
        def wanted(state: State) -> bool:  # and none begins behind the one that `close` has handed over
            due = self._flush_urgency(self._log.head.address, state) > Urgency.NOT_DUE
            return due and not self._background.closing

        moved = self._maintenance.run_cycle(wanted)
        while moved and wanted(self._log.state):
            moved = self._maintenance.run_cycle(wanted)  # what was appended meanwhile

    def _relieve(self) -> None:
        self._maintenance.run_cycle(lambda state: not self._goes_on(state))
