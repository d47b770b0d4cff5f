"""The part of a flush cycle that is about segments: their content, truncation, sealing and deletion go to LTS.

Each change is one append to the log, which says what the chunk layer's records and the container's state are from then
on (`chunkstore.metadata.store`, `with_operations`). It carries the cycle's number, so that a cycle that is over changes
nothing any more (F1). What is deleted or truncated here is only marked: its objects go after a later cycle (F2).
"""

from __future__ import annotations

import contextlib

from chunkstore.errors import StorageFull
from chunkstore.segments.errors import (
    ChunkInUse,
    ConcurrentModification,
    SegmentError,
    StorageNotPrimary,
    StoredSegmentExists,
    StoredSegmentNotFound,
)
from chunkstore.segments.storage import ChunkedSegmentStorage, SegmentHandle
from engine.errors import DataCorruption, FlushOvertaken, SegmentNotFound
from engine.state.operations import Flushed, Forgotten, Stored
from engine.state.segments import Segment, storage_name
from engine.state.state import State
from engine.storage.reads import fetch
from engine.writer import flush_steps
from engine.writer.data_source import WriterDataSource
from engine.writer.flush_steps import FlushStep, steps_of


class SegmentFlush:
    """Brings segments to LTS as they are in `state`, with which the flush cycle `number` began. For many threads.

    strict: raise FlushOvertaken if a segment is deleted before it is flushed; else it is passed over.

    moved: bytes of segments that were brought to LTS. storages: what segments are called there, if this cycle wrote
    there. marked: those of which LTS knows how they begin and end. passed_over: those that are gone. stopped: no
    further step is begun.
    """

    def __init__(
        self, source: WriterDataSource, state: State, number: int, segments: ChunkedSegmentStorage, strict: bool
    ) -> None:
        self.moved = 0
        self.storages: dict[str, str] = {}
        self.marked: set[str] = set()
        self.passed_over: set[str] = set()
        self.stopped = False
        self._source = source
        self._state = state
        self._number = number
        self._segments = segments
        self._strict = strict

    def flush(self, segment: Segment) -> None:
        """Bring a segment's content to LTS."""
        storage, known = segment.storage, bool(segment.storage)
        try:
            storage = storage or self._create(segment)
            for step in steps_of(segment, self._state):
                self._check_not_stopped()
                self._flush_step(segment, storage, step)
                self.moved += step.end - step.offset
                known = True  # to the state: whoever deletes or merges the segment deals with what is in LTS
            self.storages[segment.name] = storage
        except (SegmentError, FlushOvertaken, SegmentNotFound) as error:
            doubt = self._doubtful(segment, error) if isinstance(error, SegmentError) else error
            if storage and not known:
                self._abandon(segment, storage)
            if self._strict or not isinstance(doubt, SegmentNotFound):
                raise doubt from error
            self.passed_over.add(segment.name)

    def _check_not_stopped(self) -> None:
        if self.stopped:
            raise FlushOvertaken(f"flush cycle {self._number} was given up")

    def _abandon(self, segment: Segment, storage: str) -> None:
        """Delete what was begun in LTS, if nobody will ever go on with it: the segment is gone, or begins later."""
        now = self._source.infos([segment.name])[segment.name]
        if now is None or now.id != segment.id or (not now.storage and now.storage_length > segment.storage_length):
            with contextlib.suppress(SegmentError):  # another process does the same
                self._segments.delete(SegmentHandle(storage, read_only=False))

    def _create(self, segment: Segment) -> str:
        storage = storage_name(segment.name, segment.id, segment.storage_length)
        with contextlib.suppress(StoredSegmentExists):  # made by a cycle that did not come any further
            self._segments.create(storage, flush_steps.MAX_CHUNK, segment.storage_length)
        return storage

    def _flush_step(self, segment: Segment, storage: str, step: FlushStep) -> None:
        handle = SegmentHandle(storage, read_only=False)
        moved = tuple(chunk.name for chunk in step.attached) or ((step.joined,) if step.joined else ())
        flushed = Flushed(self._number, segment.name, storage, step.offset, step.end, moved)
        if step.joined:
            self._segments.seal(SegmentHandle(step.joined, read_only=False))
            self._segments.concat(handle, step.offset, step.joined, with_operations=[flushed])
            return
        if step.attached:
            with contextlib.suppress(ChunkInUse):
                self._segments.attach(handle, step.offset, step.attached, with_operations=[flushed])
                return
            flushed = flushed._replace(moved=())  # it was attached once before, and LTS has it: now it is copied
        data = fetch(self._source.stores, self._source.plan_of(segment, step.offset, step.end))
        self._segments.write(handle, step.offset, data, with_operations=[flushed])

    def _doubtful(self, segment: Segment, error: SegmentError) -> Exception:
        """LTS is not what the state says: because somebody changed it meanwhile, or it is damaged.

        That there is no room left says nothing about what is there.
        """
        if isinstance(error, StorageFull):
            return error
        state = self._source.refresh()
        now = state.segments.get(segment.name)
        if not state.cycle.runs(self._number) or now is None or now.id != segment.id:
            return FlushOvertaken(str(error))
        if now.storage_length != segment.storage_length:
            return FlushOvertaken(str(error))
        if isinstance(error, StorageNotPrimary | ConcurrentModification):
            return FlushOvertaken(str(error))
        return DataCorruption(
            f"segment {segment.name!r}: the container has flushed it up to {now.storage_length}, and LTS does not "
            f"agree: {error}. Nothing was changed; check the root with `verify`"
        )

    def mark(self, segment: Segment) -> None:
        """Let LTS know of truncation and sealing, unless the segment is something else by now."""
        self._check_not_stopped()
        storage = self.storages.get(segment.name, segment.storage)
        start, sealed = segment.start_offset, segment.sealed
        if not storage or (start <= segment.stored_start and sealed <= segment.stored_sealed):
            return
        handle = SegmentHandle(storage, read_only=False)
        mark = Stored(self._number, segment.name, storage, start, segment.stored_sealed)
        try:
            if start > segment.stored_start:
                self._segments.truncate(handle, start, with_operations=[mark])
            if sealed and not segment.stored_sealed:
                self._segments.seal(handle, with_operations=[mark._replace(sealed=True)])
            self.marked.add(segment.name)
        except (FlushOvertaken, SegmentNotFound):
            if not self._source.refresh().cycle.runs(self._number):
                raise
        except SegmentError as error:
            raise self._doubtful(segment, error) from error

    def forget(self, storage: str) -> None:
        """Mark a segment as deleted in LTS's metadata."""
        self._check_not_stopped()
        forgotten = Forgotten(self._number, (storage,))
        try:
            self._segments.delete(SegmentHandle(storage, read_only=False), with_operations=[forgotten])
        except StoredSegmentNotFound:  # nothing was written there
            self._source.commit([forgotten])
        except (ConcurrentModification, StorageNotPrimary) as error:  # another cycle does the same
            raise FlushOvertaken(str(error)) from error
