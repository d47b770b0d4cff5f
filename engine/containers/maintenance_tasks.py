"""The maintenance tasks of a container: flush cycles, truncation of the log, garbage collection, and the expiry of idle
transient segments.

Each runs on the calling thread. When each is due is decided by `engine.containers.maintenance_policy`. No host's own
clock decides what is deleted (W13).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from chunkstore.metrics import default_metrics
from engine.clocks import StorageClock
from engine.errors import ContainerOffline, FlushIncomplete
from engine.identity import ANY_IDENTITY, Identity
from engine.logs.age_evidence import Observed, observed_before
from engine.logs.truncation import truncate_log
from engine.state.operations import ExpireSegments
from engine.state.segments import Segment
from engine.state.state import State
from engine.writer.container_gc import collect_garbage
from engine.writer.flush_context import FlushContext
from engine.writer.storage_writer import StorageWriter

logger = logging.getLogger(__name__)

_METRICS = default_metrics().layer("container")

ATTEMPTS = 8
"""Flush cycles that a flush begins or waits for until one of them is complete."""

LONGEST_PAUSE = 1.0
"""Seconds between two looks at the flush cycle of another process, at most."""


class MaintenanceTasks:
    """The maintenance tasks of one container. log_clock: the time of day of the log's storage. clock: seconds of a
    monotonic clock. sleep: waits for so many seconds."""

    def __init__(
        self,
        context: FlushContext,
        writer: StorageWriter,
        log_clock: StorageClock,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
        identity: Identity = ANY_IDENTITY,
    ) -> None:
        self._identity = identity
        self._context = context
        self._log = context.log
        self._segments = context.segments
        self._writer = writer
        self._log_clock = log_clock
        self._clock = clock
        self._sleep = sleep
        self._settings = context.settings
        self._number = context.log.number

    def run_cycle(self, wanted: Callable[[State], bool]) -> int:
        """Run one flush cycle. Returns how many bytes were moved; another process's cycle may end it (W12).

        wanted: returns whether a cycle is wanted in the newest state, as another process may have begun one. Raises
        StorageError, DataCorruption.
        """
        with _METRICS.measure("flush") as measurement:
            measurement.bytes = self._writer.run(wanted)
            return measurement.bytes

    def flush(self) -> int:
        """Return when a recovery point covers every operation that the log had when the call began (W17).

        Runs a flush cycle. If another process begins a later one, that covers the same operations: this call waits for
        it, and runs a cycle of its own if it fails or makes no progress for `timeout`. Returns how many bytes this
        process moved. Raises FlushIncomplete, ContainerOffline if the container is closed meanwhile, StorageError,
        DataCorruption.
        """
        wanted = self._log.refresh().sequence
        moved = 0
        for _ in range(ATTEMPTS):
            moved += self.run_cycle(lambda state: state.cycle.recovery_point < wanted)
            state = self._wait_for_running_cycle(wanted)
            if state.cycle.recovery_point >= wanted:
                return moved
            if self._writer.stopping:
                raise ContainerOffline(
                    f"container {self._number} was closed before its flush was complete; open it again and flush"
                )
        raise FlushIncomplete(self._number, wanted, state.cycle.recovery_point, ATTEMPTS, state.cycle.error)

    def _wait_for_running_cycle(self, wanted: int) -> State:
        """The state once no flush cycle runs that covers the operations up to `wanted`."""
        last_progress, since, pause = (-1, -1), self._clock(), self._settings.poll
        while True:
            state = self._log.refresh()
            cycle = state.cycle
            if self._writer.stopping or not cycle.runs(cycle.number) or cycle.sequence < wanted:
                return state
            if (cycle.number, cycle.alive) != last_progress:
                last_progress, since = (cycle.number, cycle.alive), self._clock()
            elif self._clock() - since > self._settings.timeout:
                return state
            self._sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def truncate_log(self) -> int:
        """Delete frames before a truncation point that is older than the grace period (W7), except those that a segment
        needs. Returns how many objects were deleted."""
        grace = self._settings.grace
        covered = self._observed_before(grace).address
        now = self._log_clock.agreed("the log is not truncated")
        return truncate_log(self._context.stores.log, self._number, self._log.refresh, grace, now, covered)

    def collect_garbage(self) -> int:
        """Delete chunks that have been garbage for the garbage delay (G1). Returns their number."""
        delay = self._settings.garbage_delay
        covered = self._observed_before(delay).sequence
        now = self._context.storage_clock.agreed("garbage is not collected")
        self._identity.verify()  # a root restored in this place may need what an earlier one has for garbage
        return collect_garbage(self._context, now, delay, covered)

    def _observed_before(self, delay: float) -> Observed:
        """What has been in the log for so many seconds, also by a clock that cannot be stepped (W13)."""
        longest = max(self._settings.grace, self._settings.garbage_delay)
        return observed_before(self._context.stores.log, self._number, delay, longest, self._observe, self._clock)

    def _observe(self) -> Observed:
        return Observed(self._log.log_start(), self._log.refresh().sequence)

    def idle_transients(self) -> dict[str, Segment]:
        """The transient segments without an append for `transient_idle`, by the time in the appends."""
        before = self._idle_before(self._context.storage_clock.now())
        found = self._segments.activated(self._log.refresh().transients)
        return {name: segment for name, segment in found.items() if segment and segment.modified < before}

    def expire_transients(self) -> tuple[str, ...]:
        """Delete the transient segments that are idle; their names. One that is appended to meanwhile stays."""
        before = self._idle_before(self._context.storage_clock.agreed("no upload expires"))
        found = self._segments.activated(self._log.refresh().transients)
        idle = tuple(name for name, segment in found.items() if segment is None or segment.modified < before)
        expired: tuple[str, ...] = self._log.commit([ExpireSegments(idle, before)]).results[0] if idle else ()
        if expired:
            logger.info("container %d: %d transient segments were idle and are deleted", self._number, len(expired))
        return expired

    def _idle_before(self, now: float) -> int:
        return int((now - self._settings.transient_idle) * 1000)
