"""The storage writer: it runs the flush cycles that bring everything in the log to LTS (Pravega: StorageWriter).

There is no lease: beginning the next cycle ends the previous one, whichever process runs it. The steps of an unfinished
cycle keep their effect, as each is one append to the log that changes the chunk layer's records and the container's
state together.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from chunkstore.room import FLUSHES
from chunkstore.segments.storage import ChunkedSegmentStorage
from engine.errors import FlushOvertaken
from engine.state.operations import BeginCycle, SpillAttributes
from engine.state.segments import is_core
from engine.state.state import State
from engine.writer.flush_context import FlushContext
from engine.writer.flush_cycle import FlushCycle

CACHED_ATTRIBUTES = 4096
"""The most extended attributes of a segment that are kept in memory (Pravega: extended.attribute.cached.count.max)."""

TRIES = 4
"""The most cycles that one call begins, if segments are deleted or truncated while they are flushed."""


class StorageWriter:
    """Runs the flush cycles of a container, one at a time in this process."""

    def __init__(self, context: FlushContext) -> None:
        self._context = context
        self._lock = threading.Lock()
        self._segments: ChunkedSegmentStorage | None = None
        self._cycle: FlushCycle | None = None
        self._stopping = False

    def run(self, wanted: Callable[[State], bool]) -> int:
        """Run a cycle if `wanted` says so for the newest state. Returns how many bytes of segments it wrote to LTS.

        If another process begins a cycle meanwhile, that cycle completes the work. Raises StorageError, DataCorruption.
        """
        moved = 0
        with self._lock:
            for left in reversed(range(TRIES)):
                if self._stopping:
                    break
                state = self._context.log.refresh()
                if left == TRIES - 1 and not wanted(state):
                    break
                try:
                    cycle = self._cycle = self.begin(state, strict=left > 0)
                except FlushOvertaken:
                    break
                if self._stopping:  # set since the check above: `stop` may not have found the cycle yet
                    cycle.stop()
                try:
                    again = not cycle.run()
                finally:
                    self._cycle = None
                    moved += cycle.moved
                if not again:
                    break
        return moved

    @property
    def stopping(self) -> bool:
        """Whether the process is closing the container, so that it begins no further cycle."""
        return self._stopping

    def stop(self) -> None:
        """Abort the cycle under way after its present steps, as the process ends. The next process that commits
        begins another, which skips what this one recorded (W12). So every process makes progress, however slow the
        storage is."""
        self._stopping = True
        cycle = self._cycle
        if cycle is not None:
            cycle.stop()

    def begin(self, state: State, strict: bool) -> FlushCycle:
        """Begin a flush cycle, which the caller runs. strict: see `FlushCycle`. Raises StorageFull if there is no room
        for what it would copy, before it writes anything."""
        context = self._context
        if any(state.logged()):
            context.stores.chunks.check_room(0, FLUSHES)
        context.storage_clock.now()  # a reading from now dates the garbage that the cycle makes
        number = state.cycle.number + 1
        spills = [
            SpillAttributes(name)
            for name in state.unsaved
            if sum(not is_core(attribute) for attribute in state.segments[name].attributes) > CACHED_ATTRIBUTES
        ]
        state = context.log.commit([*spills, BeginCycle(number)]).state
        return FlushCycle(context, state, number, self._storage(), strict)

    def _storage(self) -> ChunkedSegmentStorage:
        if self._segments is None or self._segments.epoch != self._context.log.head.epoch:
            self._segments = self._context.segment_storage(announce=False)
        return self._segments
