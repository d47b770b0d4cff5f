"""Compaction: runs of small chunks become one (PDP-34 calls it defragmentation).

Small chunks come from failovers, from tasks that attach what they wrote, and from storages where each write is a chunk.
A merge has three steps, which may happen in different processes:

    plan    chooses the runs of a segment's chunks that are worth merging                needs the metadata
    copy    makes the new chunk, and checks the bytes that it reads                       needs the storage only
    swap    puts it in the place of the old ones, in one transaction (S4)                needs the metadata

Readers and writers are not blocked. A reader that has read the old list reads the old chunks, which are deleted after
the delay (G1). A swap that comes too late, because the list has changed, is refused, and the new chunk is garbage.

A new chunk is queued as garbage before it is made, and is swapped in within half of the garbage delay or not at all
(`ChunkedSegmentStorage.track_new_chunks`): so nothing is swapped in that the collector may be deleting.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from chunkstore.errors import MetadataConflict, ObjectNotFound
from chunkstore.metadata.metadata_records import RecordStatus, StoredSegmentRecord, segment_key
from chunkstore.metadata.store import MetadataStore
from chunkstore.port import Store
from chunkstore.segments.chunk_list import ChunkList, PlacedChunk, WrittenChunk
from chunkstore.segments.copying import copy_chunks
from chunkstore.segments.errors import (
    ConcurrentModification,
    SegmentDamaged,
    StorageNotPrimary,
    StoredSegmentNotFound,
)
from chunkstore.segments.storage import NO_ROLLING, ChunkedSegmentStorage, NewChunk

_log = logging.getLogger(__name__)

PARTS = 1000
"""Chunks that one merge joins at most."""

_ATTEMPTS = 5  # reads of a list of chunks that is being changed


class CompactionTask(NamedTuple):
    """The chunks `parts`, one after the other from `start` of the segment on, are to become the chunk `target`.

    It is a plain value: it may be pickled, and copied anywhere. `deadline` is in seconds since the epoch.
    """

    segment: str
    start: int
    parts: tuple[WrittenChunk, ...]
    target: str
    deadline: float

    @property
    def length(self) -> int:
        """Bytes of the new chunk."""
        return sum(part.length for part in self.parts)


CopyTasks: TypeAlias = Callable[[Sequence[CompactionTask]], Iterable[bytes | None]]
"""Runs `copy_task` for each task, anywhere and in any order. Returns the results in the order of the tasks."""


@dataclass
class CompactionReport:
    """What was done to a segment: merges, the chunks that they joined and their bytes, and merges that were refused
    because the list of chunks had changed, or they came too late."""

    segment: str
    merges: int = 0
    chunks: int = 0
    bytes: int = 0
    refused: int = 0


class Compactor:
    """Merges small chunks of the segments in `storage`. May be used by many threads.

    target: bytes of a new chunk, at most; a segment's rolling length is a limit too. Chunks longer than half of it stay
    as they are.
    """

    def __init__(self, storage: ChunkedSegmentStorage, chunks: Store, metadata: MetadataStore, target: int) -> None:
        self._storage = storage
        self._chunks = chunks
        self._metadata = metadata
        self._target = target

    def compact(
        self, segments: Iterable[str], copies: CopyTasks | None = None, together: int = 1
    ) -> Iterator[CompactionReport]:
        """Plan, copy and swap all merges of these segments; a report for each that had any. One that is gone had none.

        copies: copies the merges, here and one after the other by default. together: segments are planned until there
        are as many merges to be copied at a time. Raises SegmentDamaged for a chunk that is not what was written,
        StorageError.
        """
        left = deque(CompactionReport(segment) for segment in segments)
        while left:
            merges: list[CompactionTask] = []
            reports: dict[str, CompactionReport] = {}
            while left and len(merges) < together:
                report = left.popleft()
                reports[report.segment] = report
                merges += self._planned(report.segment)
            again = self._carry_out(merges, copies or self._copied_here, reports)
            left.extend(reports[segment] for segment in again)
            yield from (
                report
                for segment, report in reports.items()
                if segment not in again and (report.merges or report.refused)
            )

    def plan(self, segment: str) -> list[CompactionTask]:
        """The merges that make sense now, none for a system segment.

        The last chunk, which may be growing, is left out unless the segment is sealed. The new chunks are queued as
        garbage, so plan what is going to be carried out. Raises StoredSegmentNotFound.
        """
        found = self._small_chunks(segment)
        targets = self._storage.track_new_chunks(segment, [run[0].start for run in found])
        return [
            CompactionTask(segment, run[0].start, tuple(map(_written, run)), target.name, target.deadline)
            for run, target in zip(found, targets, strict=True)
        ]

    def estimate(self, segments: Iterable[str]) -> Iterator[CompactionReport]:
        """What `compact` would do to these segments now, without changing anything."""
        for segment in segments:
            with suppress(StoredSegmentNotFound):  # it was deleted meanwhile
                runs = self._small_chunks(segment)
                size = sum(chunk.length for run in runs for chunk in map(_written, run))
                if runs:
                    yield CompactionReport(segment, len(runs), sum(map(len, runs)), size)

    def _small_chunks(self, segment: str) -> list[list[PlacedChunk]]:
        """The runs of chunks that are worth merging. Raises StoredSegmentNotFound."""
        record, placed = self._layout(segment)
        if record.status & RecordStatus.SYSTEM_SEGMENT:
            return []
        if not record.status & RecordStatus.SEALED:
            placed = placed[:-1]
        return list(_runs(placed, min(self._target, record.max_rolling_length or NO_ROLLING)))

    def swap(self, merge: CompactionTask, checksums: bytes) -> bool:
        """Put a merged chunk with these checksums in the place of its parts, once it was copied.

        False if it came too late, or the list of chunks has changed; then nothing is done.
        """
        old = [part.name for part in merge.parts]
        new = NewChunk(merge.target, merge.deadline)
        try:
            self._storage.replace_chunks(merge.segment, merge.start, old, new, merge.length, checksums)
        except (ConcurrentModification, StoredSegmentNotFound, StorageNotPrimary) as error:
            _log.info("%r is not merged: %s", merge.segment, str(error))
            return False
        return True

    def _planned(self, segment: str) -> list[CompactionTask]:
        try:
            return self.plan(segment)
        except StoredSegmentNotFound:  # it was deleted meanwhile
            return []

    def _carry_out(
        self, merges: Sequence[CompactionTask], copies: CopyTasks, reports: dict[str, CompactionReport]
    ) -> set[str]:
        """Copy and swap. Returns the segments of which more should be merged: time may be all that was lacking."""
        done, refused = set[str](), set[str]()
        for report in reports.values():
            report.refused = 0
        for merge, checksums in zip(merges, copies(merges), strict=True):
            report = reports[merge.segment]
            if checksums is None:
                self._check_gone(merge)
            if checksums is not None and self.swap(merge, checksums):
                report.merges += 1
                report.chunks += len(merge.parts)
                report.bytes += merge.length
                done.add(merge.segment)
            else:
                report.refused += 1
                refused.add(merge.segment)
        return done & refused

    def _copied_here(self, merges: Sequence[CompactionTask]) -> Iterator[bytes | None]:
        for merge in merges:
            is_late = self._storage.clock() >= merge.deadline
            yield None if is_late else copy_task(merge, self._chunks)

    def _check_gone(self, merge: CompactionTask) -> None:
        """Raise SegmentDamaged if the segment has the chunks still that could not be copied."""
        if self._storage.clock() >= merge.deadline:
            return
        names = [part.name for part in merge.parts]
        self._metadata.evict_all()
        with suppress(MetadataConflict), self._metadata.begin(segment_key(merge.segment)) as transaction:
            record = transaction.segment(merge.segment)
            if record is None or not record.status & RecordStatus.ACTIVE or merge.start < record.first_chunk_start:
                return
            covering = ChunkList(transaction, record).covering(merge.start, merge.start + merge.length)
            found = [placed.chunk.name for placed in covering]
            transaction.put(record)  # unchanged: the commit fails if what is known here is not the newest
            transaction.commit()
            if found == names:
                raise SegmentDamaged(f"one of its chunks {names[0]!r} to {names[-1]!r} is missing", merge.segment)

    def _layout(self, segment: str) -> tuple[StoredSegmentRecord, list[PlacedChunk]]:
        """The segment's record, and its chunks."""
        for _ in range(_ATTEMPTS):
            try:
                with self._metadata.begin(read_only=True) as transaction:
                    record = transaction.segment(segment)
                    if record is None or not record.status & RecordStatus.ACTIVE:
                        raise StoredSegmentNotFound(segment)
                    if record.start_offset == record.length:
                        return record, []
                    return record, list(ChunkList(transaction, record).covering(record.start_offset, record.length))
            except MetadataConflict:
                self._metadata.evict_all()
        raise ConcurrentModification(segment)


def copy_task(merge: CompactionTask, chunks: Store) -> bytes | None:
    """Make the new chunk of a merge; returns its checksums, or None if a part is gone by now. See `copy_chunks`."""
    try:
        return copy_chunks(chunks, merge.segment, merge.parts, merge.target)
    except ObjectNotFound as error:
        _log.info("%r is not merged: %s", merge.segment, str(error))
        return None


def _written(placed: PlacedChunk) -> WrittenChunk:
    return WrittenChunk(placed.chunk.name, placed.chunk.length, placed.chunk.checksums)


def _runs(placed: Sequence[PlacedChunk], limit: int) -> Iterator[list[PlacedChunk]]:
    """Runs of chunks that are worth merging into one of at most `limit` bytes."""
    run: list[PlacedChunk] = []
    length = 0
    for at in placed:
        fits = 2 * at.chunk.length <= limit
        if run and (not fits or length + at.chunk.length > limit or len(run) == PARTS):
            yield from _worthwhile(run, length)
            run, length = [], 0
        if fits:
            run.append(at)
            length += at.chunk.length
    yield from _worthwhile(run, length)


def _worthwhile(run: list[PlacedChunk], length: int) -> Iterator[list[PlacedChunk]]:
    """The run, unless most of it was merged before: so a byte is copied a few times, not with every new chunk."""
    if len(run) > 1 and 2 * max(at.chunk.length for at in run) <= length:
        yield run
