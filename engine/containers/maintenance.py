"""The maintenance of a container, done at once by whoever calls: flush cycles, truncation of the log, collection of
garbage, and the end of transient segments that are idle.

When each is due is `engine.containers.upkeep`'s business. No host's own clock decides what goes (W13).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from chunkstore.metrics import default_metrics
from engine.clocks import StorageClock
from engine.containers.writer_source import WriterSource
from engine.logs.durable_log import DurableLog
from engine.logs.truncation import truncate_log
from engine.logs.witness import Seen, seen_before
from engine.reading.segment_store import SegmentStore
from engine.state.operations import ExpireSegments
from engine.state.segments import Segment
from engine.state.state import State
from engine.writer.garbage import collect_garbage
from engine.writer.storage_writer import StorageWriter

logger = logging.getLogger(__name__)

_METRICS = default_metrics().layer("container")


class Maintenance:
    """What keeps one container small. log_clock: the time of day of the log's storage. clock: of no host's setting."""

    def __init__(
        self,
        source: WriterSource,
        log: DurableLog,
        segments: SegmentStore,
        writer: StorageWriter,
        log_clock: StorageClock,
        clock: Callable[[], float],
    ) -> None:
        self._source = source
        self._log = log
        self._segments = segments
        self._writer = writer
        self._log_clock = log_clock
        self._clock = clock
        self._settings = source.settings
        self._number = log.number

    def flush(self, wanted: Callable[[State], bool] = lambda state: True) -> int:
        """Run a flush cycle: bring everything that lies only in the log to LTS. Returns how many bytes were moved.

        wanted: says of the newest state whether it is; another process may have begun one. Raises StorageError,
        DataCorruption.
        """
        with _METRICS.measure("flush") as measurement:
            measurement.bytes = self._writer.run(wanted)
            return measurement.bytes

    def truncate_log(self) -> int:
        """Delete frames that nothing needs any more, once their boundary is older than the grace period (W7). Returns
        how many objects were deleted."""
        grace = self._settings.grace
        covered = self._seen_before(grace).address
        now = self._log_clock.agreed("the log is not truncated")
        return truncate_log(self._source.stores.log, self._number, self._log.refresh, grace, now, covered)

    def collect_garbage(self) -> int:
        """Delete chunks that have been garbage for the delay (G1). Returns their number."""
        delay = self._settings.garbage_delay
        covered = self._seen_before(delay).sequence
        now = self._source.storage_clock.agreed("garbage is not collected")
        return collect_garbage(self._source, now, delay, covered)

    def _seen_before(self, delay: float) -> Seen:
        """What has been in the log for so many seconds, also by a clock that cannot be stepped (W13)."""
        longest = max(self._settings.grace, self._settings.garbage_delay)
        return seen_before(self._source.stores.log, self._number, delay, longest, self._seen_now, self._clock)

    def _seen_now(self) -> Seen:
        return Seen(self._log.boundary(), self._log.refresh().sequence)

    def idle_transients(self) -> dict[str, Segment]:
        """The transient segments that nobody has appended to for `transient_idle`, by the time in the appends."""
        before = self._idle_before(self._source.storage_clock.now())
        found = self._segments.activated(self._log.refresh().transients)
        return {name: segment for name, segment in found.items() if segment and segment.modified < before}

    def expire_transients(self) -> tuple[str, ...]:
        """Delete the transient segments that are idle; their names. One that is appended to meanwhile stays."""
        before = self._idle_before(self._source.storage_clock.agreed("no upload is given up"))
        found = self._segments.activated(self._log.refresh().transients)
        idle = tuple(name for name, segment in found.items() if segment is None or segment.modified < before)
        expired: tuple[str, ...] = self._log.commit([ExpireSegments(idle, before)]).results[0] if idle else ()
        if expired:
            logger.info("container %d: %d transient segments were idle and are deleted", self._number, len(expired))
        return expired

    def _idle_before(self, now: float) -> int:
        return int((now - self._settings.transient_idle) * 1000)
