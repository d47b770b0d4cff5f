"""The storage optimiser: runs of small chunks become one (PDP-34's defragmentation).

Small chunks come from failovers, from tasks that attach what they wrote, from merged transactions, and from storages
where every write is a chunk. A merge has three steps, which may happen in different processes:

    plan    looks at a segment's list of chunks and says which runs shall become one     needs the metadata
    copy    makes the new chunk: the storage joins them, or their bytes are copied       needs the storage only
    swap    puts it in the place of the old ones, in one transaction (S4)                needs the owner of the segment

Readers and writers go on. Who holds the old list reads the old chunks, which are garbage only after the delay (G1). A
swap that comes too late, because the chunks are others by now, is refused, and the new chunk is garbage.

A new chunk is queued as garbage before it is made, due when the merge must be over: `Merge.deadline`. A swap is refused
well before it, so nothing is swapped in that the collector may be deleting.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

from chunkstore.chunk_list import ChunkList, PlacedChunk
from chunkstore.chunk_names import new_chunk_name
from chunkstore.chunks import ChunkHandle, ChunkStorage, ConcatPart
from chunkstore.errors import ChunkNotFound, MetadataConflict, StorageError, Unsupported
from chunkstore.garbage import GarbageKind, GarbageQueue, GarbageTask
from chunkstore.metadata_store import MetadataStore
from chunkstore.records import SegmentRecord, Status
from chunkstore.segment_errors import ConcurrentModification, SegmentDamaged, SegmentNotFound
from chunkstore.segments import NO_ROLLING, ChunkedSegmentStorage, NewChunk, SegmentHandle

_log = logging.getLogger(__name__)

_ATTEMPTS = 5  # looks at a list of chunks that is being changed
_PARALLEL = 8  # parts that are read at a time from a remote storage


@dataclass(frozen=True)
class OptimiserConfig:
    """Sizes in bytes, times in seconds.

    `target`: what a merged chunk has at most; a segment's rolling length is a limit too. Chunks longer than
    `chunk_max`, or half the target, stay as they are; so do, where the storage cannot append, those below `chunk_min`.
    `parts`: chunks that one merge joins at most. `copy_buffer`: bytes copied at a time where the storage appends;
    elsewhere a merge takes as much memory as the new chunk. `merge_time`: how long a merge may take, and `margin`: how
    long before that its swap is refused; it must outlast the difference between the clocks of two machines.
    """

    target: int = 128 << 20
    chunk_max: int = NO_ROLLING
    chunk_min: int = 0
    parts: int = 1000
    copy_buffer: int = 8 << 20
    merge_time: float = 3600.0
    margin: float = 600.0


class Merge(NamedTuple):
    """The chunks `parts`, one after the other from `start` of the segment on, shall become the chunk `target`.

    It is a plain value: it may be pickled, and copied anywhere. `deadline` is in seconds since the epoch.
    """

    segment: str
    start: int
    parts: tuple[ConcatPart, ...]
    target: str
    deadline: float

    @property
    def length(self) -> int:
        """Bytes of the new chunk."""
        return sum(part.length for part in self.parts)


@dataclass
class OptimiserReport:
    """What was done: merges, the chunks they joined, the bytes of those, and merges that came too late."""

    merges: int = 0
    chunks: int = 0
    bytes: int = 0
    refused: int = 0


class StorageOptimiser:
    """Merges small chunks of the segments in `storage`. May be used by many threads."""

    def __init__(
        self,
        storage: ChunkedSegmentStorage,
        chunks: ChunkStorage,
        metadata: MetadataStore,
        garbage: GarbageQueue,
        config: OptimiserConfig | None = None,
    ) -> None:
        self._storage = storage
        self._chunks = chunks
        self._metadata = metadata
        self._garbage = garbage
        self._config = config or OptimiserConfig()

    def plan(self, segment: str, start: int = 0, *, last_too: bool = False) -> list[Merge]:
        """The merges that make sense now among the chunks from offset `start` on, none for a system segment.

        The last chunk, which may be growing, is left out unless the segment is sealed, or with `last_too`. The new
        chunks are queued as garbage, so plan what is going to be carried out. Raises SegmentNotFound.
        """
        record, placed = self._look(segment, start)
        if record.status & Status.SYSTEM_SEGMENT:
            return []
        if not (last_too or record.status & Status.SEALED):
            placed = placed[:-1]
        limit = min(self._config.target, record.max_rolling_length or NO_ROLLING)
        deadline = self._storage.clock() + self._config.merge_time
        merges = [
            Merge(
                segment,
                run[0].start,
                tuple(ConcatPart(at.chunk.name, at.chunk.length) for at in run),
                new_chunk_name(segment, self._storage.epoch, run[0].start),
                deadline,
            )
            for run in _runs(placed, self._config, limit, skip_small=not self._chunks.supports_append)
        ]
        if merges:
            self._garbage.add(
                [GarbageTask(at.target, deadline, kind=GarbageKind.NEW_CHUNK, segment=segment) for at in merges]
            )
        return merges

    def run(self, merge: Merge) -> bool:
        """Copy and swap. False if it came too late, or the chunks are others by now; then nothing has changed."""
        try:
            copy(merge, self._chunks, self._config.copy_buffer)
        except ChunkNotFound as error:
            _log.info("%r is not merged: %s", merge.segment, error)
            return False
        return self.swap(merge)

    def swap(self, merge: Merge) -> bool:
        """Put a merged chunk in the place of its parts, once it was copied; False as in `run`."""
        old = [part.name for part in merge.parts]
        handle = SegmentHandle(merge.segment, read_only=False)
        new = NewChunk(merge.target, merge.deadline - self._config.margin)
        try:
            self._storage.replace_chunks(handle, merge.start, old, merge.start, new, merge.length)
        except (ConcurrentModification, SegmentNotFound) as error:
            _log.info("%r is not merged: %s", merge.segment, error)
            return False
        return True

    def optimise(self, segment: str, start: int = 0, *, last_too: bool = False) -> OptimiserReport:
        """Plan and run all merges of a segment, as `plan` has them."""
        report = OptimiserReport()
        for merge in self.plan(segment, start, last_too=last_too):
            if self.run(merge):
                report.merges += 1
                report.chunks += len(merge.parts)
                report.bytes += merge.length
            else:
                report.refused += 1
        return report

    def optimise_all(self, prefix: str = "") -> dict[str, OptimiserReport]:
        """Optimise all segments whose names begin with `prefix`; reports of those that had merges, by name.

        A segment that cannot be optimised is logged and passed over.
        """
        reports = {}
        for info in self._storage.list(prefix):
            try:
                report = self.optimise(info.name)
            except StorageError as error:
                _log.warning("segment %r is not optimised: %s", info.name, error)
                continue
            if report.merges or report.refused:
                reports[info.name] = report
        return reports

    def concat(self, target: SegmentHandle, offset: int, source: str) -> None:
        """As `ChunkedSegmentStorage.concat`, and merge what is small around `offset`; if that fails, it is logged."""
        self._storage.concat(target, offset, source)
        try:
            self.optimise(target.segment, max(offset - self._config.target, 0), last_too=True)
        except StorageError as error:
            _log.warning("segment %r is not optimised: %s", target.segment, error)

    def _look(self, segment: str, start: int) -> tuple[SegmentRecord, list[PlacedChunk]]:
        """The segment's record, and its chunks from `start` on."""
        for _ in range(_ATTEMPTS):
            try:
                with self._metadata.begin(read_only=True) as transaction:
                    record = transaction.segment(segment)
                    if record is None or not record.status & Status.ACTIVE:
                        raise SegmentNotFound(segment)
                    start = max(start, record.start_offset)
                    chunks = ChunkList(transaction, record)
                    return record, list(chunks.covering(start, record.length)) if start < record.length else []
            except MetadataConflict:
                self._metadata.evict_all()
        raise ConcurrentModification(segment)


def copy(merge: Merge, chunks: ChunkStorage, buffer: int = OptimiserConfig.copy_buffer) -> None:
    """Make the new chunk of a merge; nothing happens if it is there, and one that was begun is completed.

    So it may be repeated. Raises ChunkNotFound if a part is gone by now, SegmentDamaged if one is too short, and what
    the storage raises; of two at once one may fail.
    """
    done = _length_of(merge, chunks)
    if done is None and chunks.supports_concat:
        try:
            chunks.concat(merge.target, merge.parts)
            return
        except Unsupported as error:
            _log.debug("%r is copied: %s", merge.target, error)
    step = buffer if chunks.supports_append else merge.length
    for start in range(done or 0, merge.length, step):
        data = _read(merge, chunks, start, min(start + step, merge.length))
        if done is None and not start:
            chunks.create_with_content(merge.target, data)
        else:
            chunks.write(ChunkHandle(merge.target, read_only=False), start, data)


class _Piece(NamedTuple):
    """`length` bytes of a chunk from `start` on."""

    chunk: str
    start: int
    length: int


def _read(merge: Merge, chunks: ChunkStorage, start: int, end: int) -> list[bytes]:
    """The bytes [start, end) of the new chunk, from the parts."""
    pieces = []
    at = 0
    for name, length in merge.parts:
        first, last = max(start, at), min(end, at + length)
        if first < last:
            pieces.append(_Piece(name, first - at, last - first))
        at += length
    if not chunks.store.remote:
        return [_read_piece(merge.segment, piece, chunks) for piece in pieces]
    with ThreadPoolExecutor(_PARALLEL) as pool:
        return list(pool.map(lambda piece: _read_piece(merge.segment, piece, chunks), pieces))


def _read_piece(segment: str, piece: _Piece, chunks: ChunkStorage) -> bytes:
    data = chunks.read(ChunkHandle(piece.chunk, read_only=True), piece.start, piece.length)
    if len(data) != piece.length:
        end = piece.start + piece.length
        raise SegmentDamaged(f"chunk {piece.chunk!r} ends before its byte {end}, which the metadata counts", segment)
    return data


def _length_of(merge: Merge, chunks: ChunkStorage) -> int | None:
    try:
        return chunks.info(merge.target).length
    except ChunkNotFound:
        return None


def _runs(
    placed: Sequence[PlacedChunk], config: OptimiserConfig, limit: int, *, skip_small: bool
) -> Iterator[list[PlacedChunk]]:
    """Runs of chunks that are worth merging into one of at most `limit` bytes."""
    run: list[PlacedChunk] = []
    length = 0
    longest = min(config.chunk_max, limit // 2)
    for at in placed:
        size = at.chunk.length
        fits = size <= longest and not (skip_small and size < config.chunk_min)
        if run and (not fits or length + size > limit or len(run) == config.parts):
            yield from _worthwhile(run, length)
            run, length = [], 0
        if fits:
            run.append(at)
            length += size
    yield from _worthwhile(run, length)


def _worthwhile(run: list[PlacedChunk], length: int) -> Iterator[list[PlacedChunk]]:
    """The run, unless most of it was merged before: so a byte is copied a few times, not with every new chunk."""
    if len(run) > 1 and 2 * max(at.chunk.length for at in run) <= length:
        yield run
