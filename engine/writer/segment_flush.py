"""The segments' part of a flush cycle: content, truncation, sealing and deletion are brought to LTS.

Each change is one append to the log, which changes the chunk layer's records and the container's state together. It
carries the cycle's number, so a cycle that is over changes nothing (F1). Only the seal of a merged source is an append
of its own, without the number: it may be repeated. Truncation and deletion are only marked here;
the objects are deleted after a later cycle (F2).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from chunkstore.errors import StorageFull
from chunkstore.room import FLUSHES, SMALL_OBJECT
from chunkstore.segments.errors import (
    ChunkInUse,
    ConcurrentModification,
    SegmentError,
    StorageNotPrimary,
    StoredSegmentNotFound,
)
from chunkstore.segments.storage import ChunkedSegmentStorage
from engine.errors import DataCorruption, FlushOvertaken, SegmentNotFound
from engine.state.operations import RecordDeletion, RecordFlush, RecordStoredBounds
from engine.state.segments import Segment, storage_name
from engine.state.state import State
from engine.storage.object_reads import fetch
from engine.writer import flush_steps
from engine.writer.flush_context import FlushContext
from engine.writer.flush_steps import FlushStep, steps_of


class SegmentFlush:
    """Brings segments to LTS as they are in `state`, with which the flush cycle `number` began. Thread-safe.

    strict: raise if a segment is deleted before it is flushed; otherwise it is skipped.

    moved: bytes written to LTS. storages: the names in LTS of the segments that this cycle wrote. marked: the segments
    whose start and seal this cycle recorded in LTS. skipped: the segments that were deleted meanwhile, with the names
    that they have, or would have, in LTS. stopped: no further step is begun.
    """

    def __init__(
        self, context: FlushContext, state: State, number: int, segments: ChunkedSegmentStorage, strict: bool
    ) -> None:
        self.moved = 0
        self.storages: dict[str, str] = {}
        self.marked: set[str] = set()
        self.skipped: dict[str, str] = {}
        self.stopped = False
        self._context = context
        self._state = state
        self._number = number
        self._segments = segments
        self._strict = strict

    def flush(self, segment: Segment) -> None:
        """Write a segment's content to LTS."""
        try:
            storage = segment.storage or self._create(segment)
            for step in steps_of(segment, self._state):
                for part in self._parts(step):
                    self._check_not_stopped()
                    self._flush_step(segment, storage, part)
                    self.moved += part.end - part.offset
            self.storages[segment.name] = storage
        except (SegmentError, FlushOvertaken, SegmentNotFound) as error:
            cause = self._explained(segment, error) if isinstance(error, SegmentError) else error
            if self._strict or not isinstance(cause, SegmentNotFound):
                raise cause from error
            self.skipped[segment.name] = segment.storage or _storage_of(segment)

    def _parts(self, step: FlushStep) -> Iterator[FlushStep]:
        """A step that writes takes no more than there is room for, and nothing of the last room (P6). The frames whose
        bytes it wrote can be deleted, so that there is room for the rest."""
        if step.attached or step.joined:
            yield step
            return
        store, offset = self._context.stores.chunks, step.offset
        while offset < step.end:
            store.check_room(0, FLUSHES)
            room = store.largest_object() / 2  # others write meanwhile
            end = int(min(step.end, offset + max(room, SMALL_OBJECT)))
            yield step._replace(offset=offset, end=end)
            offset = end

    def _check_not_stopped(self) -> None:
        if self.stopped:
            raise FlushOvertaken(f"flush cycle {self._number} was stopped")

    def _create(self, segment: Segment) -> str:
        """Create an empty segment in LTS. The state names it from then on, so it goes with its segment."""
        storage, offset = _storage_of(segment), segment.storage_length
        named = RecordFlush(self._number, segment.name, storage, offset, offset)
        self._segments.create(storage, flush_steps.MAX_CHUNK, offset, with_operations=[named])
        return storage

    def _flush_step(self, segment: Segment, storage: str, step: FlushStep) -> None:
        moved = tuple(chunk.name for chunk in step.attached) or ((step.joined,) if step.joined else ())
        flushed = RecordFlush(self._number, segment.name, storage, step.offset, step.end, moved)
        if step.joined:
            self._segments.seal(step.joined)
            self._segments.concat(storage, step.offset, step.joined, with_operations=[flushed])
            return
        if step.attached:
            with contextlib.suppress(ChunkInUse):
                self._segments.attach(storage, step.offset, step.attached, with_operations=[flushed])
                return
            flushed = flushed._replace(moved=())  # LTS has this chunk from an earlier attachment, so it is copied
        data = fetch(self._context.stores, self._context.segments.plan_of(segment, step.offset, step.end))
        self._segments.write(storage, step.offset, data, with_operations=[flushed])

    def _explained(self, segment: Segment, error: SegmentError) -> Exception:
        """Why LTS contradicts the state: another process changed it meanwhile (FlushOvertaken), or it is damaged.

        A full storage proves neither.
        """
        if isinstance(error, StorageFull):
            return error
        state = self._context.log.refresh()
        now = state.segments.get(segment.name)
        if not state.cycle.runs(self._number) or now is None or now.id != segment.id:
            return FlushOvertaken(str(error))
        if now.storage_length != segment.storage_length:
            return FlushOvertaken(str(error))
        if isinstance(error, StorageNotPrimary | ConcurrentModification):
            return FlushOvertaken(str(error))
        return DataCorruption(
            f"segment {segment.name!r}: flushed up to {now.storage_length} according to the container, but LTS "
            f"contradicts that: {error}. Nothing was changed; check the root with `verify`"
        )

    def mark(self, segment: Segment) -> None:
        """Record truncation and sealing in LTS, unless the segment was deleted or replaced meanwhile."""
        self._check_not_stopped()
        storage = self.storages.get(segment.name, segment.storage)
        start, sealed = segment.start_offset, segment.sealed
        if not storage or (start <= segment.stored_start and sealed <= segment.stored_sealed):
            return
        mark = RecordStoredBounds(self._number, segment.name, storage, start, segment.stored_sealed)
        try:
            if start > segment.stored_start:
                self._segments.truncate(storage, start, with_operations=[mark])
            if sealed and not segment.stored_sealed:
                self._segments.seal(storage, with_operations=[mark._replace(sealed=True)])
            self.marked.add(segment.name)
        except (FlushOvertaken, SegmentNotFound):
            if not self._context.log.refresh().cycle.runs(self._number):
                raise
        except SegmentError as error:
            raise self._explained(segment, error) from error

    def delete(self, storage: str) -> None:
        """Mark a segment as deleted in LTS's metadata."""
        self._check_not_stopped()
        deletion = RecordDeletion(self._number, (storage,))
        try:
            self._segments.delete(storage, with_operations=[deletion])
        except StoredSegmentNotFound:  # nothing was ever written for it
            self._context.log.commit([deletion])
        except (ConcurrentModification, StorageNotPrimary) as error:  # another cycle deletes it too
            raise FlushOvertaken(str(error)) from error


def _storage_of(segment: Segment) -> str:
    """The name in LTS of a segment that is not there yet."""
    return storage_name(segment.name, segment.id, segment.storage_length)
