"""The storage writer: flush cycles, which bring everything that the log holds to LTS (Pravega: StorageWriter).

Nobody holds a lease. Whoever begins the next cycle ends the one before; all that a cycle did stays, as each step is one
append to the log, which says what the chunk layer's metadata and the container's state are from then on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from chunkstore.chunk_storage import ChunkStorage
from chunkstore.segments.storage import ChunkedSegmentStorage, SegmentStorageConfig
from engine.errors import FlushOvertaken
from engine.state.operations import BeginCycle, SpillAttributes
from engine.state.segments import is_core
from engine.state.state import State
from engine.writer.data_source import WriterDataSource
from engine.writer.flush_cycle import FlushCycle
from engine.writer.records import LogGarbage

CACHED_ATTRIBUTES = 4096
"""Extended attributes of a segment that are kept in memory (Pravega: extended.attribute.cached.count.max)."""

TRIES = 4
"""Cycles that are begun until one is not disturbed by a segment that is deleted meanwhile."""


class StorageWriter:
    """Runs the flush cycles of a container, in this process one at a time."""

    def __init__(self, source: WriterDataSource) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._segments: ChunkedSegmentStorage | None = None
        self._cycle: FlushCycle | None = None
        self._stopping = False

    def run(self, wanted: Callable[[State], bool]) -> int:
        """Run a cycle if the newest state says that it is wanted. Returns how many bytes of segments it brought to LTS.

        If another process begins a cycle meanwhile, that one will do what is left. Raises StorageError, DataCorruption.
        """
        moved = 0
        with self._lock:
            for left in reversed(range(TRIES)):
                if self._stopping:
                    break
                state = self._source.refresh()
                if left == TRIES - 1 and not wanted(state):
                    break
                try:
                    cycle = self._cycle = self.begin(state, strict=left > 0)
                except FlushOvertaken:
                    break
                if self._stopping:  # since this was looked at: whoever stops finds either the cycle or this
                    cycle.stop()
                try:
                    again = not cycle.carried_out()
                finally:
                    self._cycle = None
                    moved += cycle.moved
                if not again:
                    break
        return moved

    @property
    def stopping(self) -> bool:
        """Whether the process ends, so that no cycle begins here any more."""
        return self._stopping

    def stop(self) -> None:
        """The process ends before the cycle under way does: it begins no further step, and is given up when the steps
        under way are done, for whoever commits next (W12). So each process brings the container on, however slow the
        storage is."""
        self._stopping = True
        cycle = self._cycle
        if cycle is not None:
            cycle.stop()

    def begin(self, state: State, strict: bool) -> FlushCycle:
        """Begin a flush cycle, which the caller carries out. strict: see `FlushCycle`."""
        source = self._source
        source.storage_clock.now()  # asked now, if ever: what the cycle makes garbage is dated by it
        number = state.cycle.number + 1
        spills = [
            SpillAttributes(name)
            for name in state.unsaved
            if sum(not is_core(attribute) for attribute in state.segments[name].attributes) > CACHED_ATTRIBUTES
        ]
        state = source.commit([*spills, BeginCycle(number)]).state
        return FlushCycle(source, state, number, self._storage(), strict)

    def _storage(self) -> ChunkedSegmentStorage:
        """The segments in LTS, as this epoch of the container changes them: it adds only to chunks of its own
        (S2)."""
        source, epoch = self._source, self._source.head.epoch
        if self._segments is None or self._segments.epoch != epoch:
            self._segments = ChunkedSegmentStorage(
                ChunkStorage(source.stores.chunks),
                source.records,
                LogGarbage(source, announce=False),
                epoch,
                SegmentStorageConfig(garbage_delay=source.settings.garbage_delay),
                clock=source.storage_clock.now,
            )
        return self._segments
