"""One flush cycle: LTS is brought to what the container was when the cycle began (Pravega: StorageWriter; PDP-40).

First user segments, then system segments, each one's data before its index; then tables, the metadata tables last; then
a recovery point of where those tables lie (F1). With it, LTS alone is what the container was (F3). What is deleted or
truncated is marked in LTS's metadata in one cycle; its objects go after a later one is complete (F2).
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
from engine.state.operations import EndCycle, EvictSegments, GiveUpCycle, SaveSegments, TablesFlushed
from engine.state.segment_record import encode_segment
from engine.state.segments import Segment
from engine.state.state import State
from engine.state.tables import METADATA, STORAGE
from engine.storage import recovery_points
from engine.writer.data_source import WriterDataSource
from engine.writer.flush_steps import buckets
from engine.writer.segment_flush import SegmentFlush
from engine.writer.table_writer import Dirty, flush_tables

logger = logging.getLogger(__name__)

PARALLEL = 8
"""Segments that are flushed at a time."""

SAVED_TOGETHER = 1000
"""Records of segments in one append, at most."""

TROUBLE = 500
"""Characters of what went wrong with a cycle that the log keeps."""

T = TypeVar("T")


class FlushCycle:
    """One cycle: `state` is the container's when it began, and what LTS is brought to.

    strict: the cycle ends early if a segment is deleted before it is flushed; else it is passed over, and missing in
    the recovery point.
    """

    def __init__(
        self, source: WriterDataSource, state: State, number: int, segments: ChunkedSegmentStorage, strict: bool
    ) -> None:
        self._source = source
        self._state = state
        self._number = number
        self._strict = strict
        self._segments = SegmentFlush(source, state, number, segments, strict)
        self._stopped = False

    @property
    def moved(self) -> int:
        """Bytes of segments that were brought to LTS so far."""
        return self._segments.moved

    def carried_out(self) -> bool:
        """Carry out the cycle, or what another one leaves of it. False if a segment was in the way that is gone now.

        When it fails, the log says so, for whoever looks after the container.
        """
        try:
            self._run()
        except (FlushOvertaken, SegmentNotFound, ObjectNotFound, StorageNotPrimary) as error:
            if self._lost(error):
                return True
            if self._stopped:
                self.give_up()
                return True
            if not self._strict:
                self.give_up()  # others truncate and delete faster than this goes: no reason for anybody to pause
            return False
        except DataCorruption as error:
            if not self._lost(error):  # it is not only what another cycle has moved since
                self.give_up(error)
                raise
        except Exception as error:
            self.give_up(error)
            raise
        return True

    def stop(self) -> None:
        """Begin no further step: when those under way are done, the cycle is given up."""
        self._stopped = self._segments.stopped = True

    def give_up(self, cause: Exception | None = None) -> None:
        """Stop, and say so in the log: nobody has to wait until this cycle was silent for long."""
        self.stop()
        trouble = f"{type(cause).__name__}: {cause}"[:TROUBLE] if cause is not None else ""
        try:
            text = trouble.encode(errors="backslashreplace").decode()  # an error may name a file that is no valid text
            self._source.commit([GiveUpCycle(self._number, text)])
        except (EngineError, StorageError) as error:
            logger.info("container %d: flush cycle %d ends unsaid: %s", self._source.number, self._number, str(error))

    def _run(self) -> None:
        """Carry out the cycle. Raises FlushOvertaken if it is over, or a segment is in the way."""
        state, source, segments = self._state, self._source, self._segments
        for bucket in buckets(state):
            self._each(segments.flush, bucket)
        self._each(segments.mark, [state.segments[name] for name in state.unsaved])
        self._each(segments.forget, state.dropped)
        self._flush_tables({name: Dirty.of(state, name) for name in state.tables if name not in (STORAGE, METADATA)})
        records = self._save_segments()
        after = self._flush_tables(
            {
                STORAGE: Dirty.of(source.refresh(), STORAGE),
                METADATA: Dirty.of(state, METADATA).plus({**records, **dict.fromkeys(segments.passed_over)}),
            }
        )
        recovery_points.write(source.stores.chunks, source.number, source.head, after, state)
        source.commit([EndCycle(self._number)])
        self._evict()

    def _lost(self, error: Exception) -> bool:
        """Whether the cycle is over, because another process has begun one or it was handed over; else a segment was in
        the way, which is gone now."""
        state = self._source.refresh()
        logger.info("container %d: flush cycle %d: %s", self._source.number, self._number, str(error))
        return not state.cycle.runs(self._number)

    def _each(self, act: Callable[[T], None], items: Iterable[T]) -> None:
        """Act on all items, several at a time. The first error is raised when all are done."""
        together = list(items)
        if len(together) < 2 or not self._source.settings.threaded:
            for item in together:
                act(item)
            return
        with ThreadPoolExecutor(PARALLEL, "storage-writer") as pool:
            for future in [pool.submit(act, item) for item in together]:
                future.result()

    def _flush_tables(self, tables: Mapping[str, Dirty]) -> State:
        """Bring entries of tables to LTS. Returns a state after it."""
        flushed = flush_tables(self._source, tables)
        if not flushed:
            return self._source.refresh()
        return self._source.commit([TablesFlushed(self._number, tuple(flushed))]).state

    def _save_segments(self) -> dict[str, bytes]:
        """Put the segments that changed into the metadata table, as they were when the cycle began; their records."""
        records = {}
        for name in self._state.unsaved:
            segment = self._state.segments[name]
            if segment.length == segment.storage_length or name in self._segments.storages:
                records[name] = encode_segment(self._as_stored(segment))
        saved = [(name, self._state.segments[name].id, record) for name, record in records.items()]
        for start in range(0, len(saved), SAVED_TOGETHER):
            batch = tuple(saved[start : start + SAVED_TOGETHER])
            self._source.commit([SaveSegments(self._number, self._state.sequence, batch)])
        return records

    def _as_stored(self, segment: Segment) -> Segment:
        """A segment as it was, with what LTS knows of it by this cycle."""
        marked = segment.name in self._segments.marked
        return segment._replace(
            storage=self._segments.storages.get(segment.name, segment.storage),
            storage_length=segment.length,
            stored_start=segment.start_offset if marked else segment.stored_start,
            stored_sealed=segment.sealed if marked else segment.stored_sealed,
        )

    def _evict(self) -> None:
        """Let the segments that were used least recently be active no more, if there are too many."""
        state, most = self._source.state, self._source.settings.active_segments
        if len(state.segments) > most:
            idle = sorted(
                (segment.touched, name) for name, segment in state.segments.items() if name not in state.unsaved
            )
            surplus = len(state.segments) - most * 9 // 10
            self._source.commit([EvictSegments(tuple(name for _, name in idle[:surplus]))])
