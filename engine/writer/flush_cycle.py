"""One flush cycle: it brings LTS to the container's state at the cycle's beginning (Pravega: StorageWriter; PDP-40).

The order is fixed (F1): segments' data, then the segments attached to them (indexes, attributes), then tables, the
metadata tables last, then a recovery point that names where those tables lie. From the recovery point alone LTS gives
the container as it was (F3). Deletions and truncations are only marked in LTS's metadata; the objects are deleted after
a later cycle is complete (F2).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from chunkstore import ObjectNotFound, StorageError
from chunkstore.segments.errors import StorageNotPrimary
from chunkstore.segments.storage import ChunkedSegmentStorage
from engine.errors import DataCorruption, EngineError, FlushOvertaken, SegmentNotFound
from engine.state.operations import AbortCycle, EndCycle, EvictSegments, RecordTableFlush, SaveSegments
from engine.state.segment_record import encode_segment
from engine.state.segments import Segment
from engine.state.state import State
from engine.state.tables import METADATA, STORAGE
from engine.storage import recovery_points
from engine.writer.flush_context import FlushContext
from engine.writer.flush_steps import buckets
from engine.writer.segment_flush import SegmentFlush
from engine.writer.table_writer import Dirty, flush_tables

logger = logging.getLogger(__name__)

PARALLEL = 8
"""Segments that are flushed concurrently."""

SAVED_TOGETHER = 1000
"""The most segment records in one append."""

MAX_ERROR = 500
"""The most characters of a cycle's error that the log keeps."""

T = TypeVar("T")


class FlushCycle:
    """One cycle. state: the container's state when the cycle began, to which LTS is brought.

    strict: the cycle fails if a segment or a table is deleted before it is flushed. Otherwise what was deleted is
    skipped, and the recovery point does not have it.
    """

    def __init__(
        self, context: FlushContext, state: State, number: int, segments: ChunkedSegmentStorage, strict: bool
    ) -> None:
        self._context = context
        self._state = state
        self._number = number
        self._strict = strict
        self._segments = SegmentFlush(context, state, number, segments, strict)
        self._stopped = False

    @property
    def moved(self) -> int:
        """Bytes of segments written to LTS so far."""
        return self._segments.moved

    def run(self) -> bool:
        """Run the cycle. Returns False if it has to be repeated, because a segment was deleted or truncated meanwhile.

        If another process has begun the next cycle, that one completes the work. A failure is recorded in the log.
        """
        try:
            self._flush_all()
        except (FlushOvertaken, SegmentNotFound, ObjectNotFound, StorageNotPrimary) as error:
            if self._overtaken(error):
                return True
            if self._stopped:
                self.abort()
                return True
            if not self._strict:
                self.abort()  # segments are deleted faster than they are flushed; the next cycle may begin at once
            return False
        except DataCorruption as error:
            if not self._overtaken(error):  # otherwise another cycle may have moved the data
                self.abort(error)
                raise
        except Exception as error:
            self.abort(error)
            raise
        return True

    def stop(self) -> None:
        """Begin no further step. The cycle is aborted when the steps under way are done."""
        self._stopped = self._segments.stopped = True

    def abort(self, cause: Exception | None = None) -> None:
        """Stop, and record it in the log, so that the next cycle need not wait for this one to time out."""
        self.stop()
        reason = f"{type(cause).__name__}: {cause}"[:MAX_ERROR] if cause is not None else ""
        try:
            text = reason.encode(errors="backslashreplace").decode()  # a file name in it may not be valid text
            self._context.log.commit([AbortCycle(self._number, text)])
        except (EngineError, StorageError) as error:
            logger.info(
                "container %d: aborting flush cycle %d failed: %s", self._context.log.number, self._number, str(error)
            )

    def _flush_all(self) -> None:
        """All steps of the cycle, in order. Raises FlushOvertaken if the cycle is over or a segment changed."""
        state, context, segments = self._state, self._context, self._segments
        for bucket in buckets(state):
            self._each(segments.flush, bucket)
        self._each(segments.mark, [state.segments[name] for name in state.unsaved])
        self._each(segments.delete, state.dropped)
        self._flush_tables({name: Dirty.of(state, name) for name in state.tables if name not in (STORAGE, METADATA)})
        records = self._save_segments()
        after = self._flush_tables(
            {
                STORAGE: Dirty.of(context.log.refresh(), STORAGE),
                METADATA: Dirty.of(state, METADATA).plus({**records, **dict.fromkeys(segments.skipped)}),
            }
        )
        if self._strict and not set(state.tables) <= set(after.tables):
            raise FlushOvertaken("a table was deleted since the cycle began")
        skipped = segments.skipped.values()
        recovery_points.write(context.stores.chunks, context.log.number, context.log.head, after, state, skipped)
        context.log.commit([EndCycle(self._number)])
        self._evict()

    def _overtaken(self, error: Exception) -> bool:
        """Whether the cycle is over: aborted, or replaced by the cycle of another process."""
        state = self._context.log.refresh()
        logger.info("container %d: flush cycle %d: %s", self._context.log.number, self._number, str(error))
        return not state.cycle.runs(self._number)

    def _each(self, act: Callable[[T], None], items: Iterable[T]) -> None:
        """Act on all items concurrently. The first error is raised when all are done."""
        together = list(items)
        if len(together) < 2 or not self._context.settings.threaded:
            for item in together:
                act(item)
            return
        with ThreadPoolExecutor(PARALLEL, "storage-writer") as pool:
            for future in [pool.submit(act, item) for item in together]:
                future.result()

    def _flush_tables(self, tables: Mapping[str, Dirty]) -> State:
        """Write entries of tables to LTS. Returns a state from after that."""
        flushed = flush_tables(self._context, tables)
        if not flushed:
            return self._context.log.refresh()
        return self._context.log.commit([RecordTableFlush(self._number, tuple(flushed))]).state

    def _save_segments(self) -> dict[str, bytes]:
        """Put the segments that changed into the metadata table, as they were when the cycle began. Returns their
        records."""
        records = {}
        for name in self._state.unsaved:
            segment = self._state.segments[name]
            if segment.length == segment.storage_length or name in self._segments.storages:
                records[name] = encode_segment(self._as_stored(segment))
        saved = [(name, self._state.segments[name].id, record) for name, record in records.items()]
        for start in range(0, len(saved), SAVED_TOGETHER):
            batch = tuple(saved[start : start + SAVED_TOGETHER])
            self._context.log.commit([SaveSegments(self._number, self._state.sequence, batch)])
        return records

    def _as_stored(self, segment: Segment) -> Segment:
        """A segment as it was when the cycle began, with the properties that this cycle recorded in LTS."""
        marked = segment.name in self._segments.marked
        return segment._replace(
            storage=self._segments.storages.get(segment.name, segment.storage),
            storage_length=segment.length,
            stored_start=segment.start_offset if marked else segment.stored_start,
            stored_sealed=segment.sealed if marked else segment.stored_sealed,
        )

    def _evict(self) -> None:
        """Evict the segments that were used least recently, if too many are active."""
        state, most = self._context.log.state, self._context.settings.active_segments
        if len(state.segments) > most:
            idle = sorted(
                (segment.touched, name) for name, segment in state.segments.items() if name not in state.unsaved
            )
            surplus = len(state.segments) - most * 9 // 10
            self._context.log.commit([EvictSegments(tuple(name for _, name in idle[:surplus]))])
