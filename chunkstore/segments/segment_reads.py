"""Reading segments: from offsets to ranges of chunks (S1), and their bytes, many ranges at a time.

No ownership is needed to read: any process with the metadata and the storage reads by itself. What the metadata says
may be outdated by the time a chunk is read; then a record or an object is missing, and everything is looked up again.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import NamedTuple, TypeVar

from chunkstore.errors import MetadataConflict, ObjectNotFound
from chunkstore.metadata.metadata_records import RecordStatus, StoredSegmentRecord
from chunkstore.metadata.store import MetadataStore, MetadataTransaction
from chunkstore.port import Store
from chunkstore.segments.chunk_list import ChunkList, PlacedChunk
from chunkstore.segments.errors import BadStoredOffset, SegmentDamaged, StoredSegmentNotFound, StoredSegmentTruncated

_TRIES = 5  # times that a read looks everything up, as chunks are merged and truncated meanwhile
_TOGETHER = 256  # chunks that are looked up together

Result = TypeVar("Result")


@dataclass(frozen=True)
class ReadConfig:
    """`part`: bytes that one request reads at most; `parallel`: requests at a time; `ahead`: parts of a sequential read
    that are fetched ahead of the caller."""

    part: int = 8 << 20
    parallel: int = 8
    ahead: int = 8


class ChunkRange(NamedTuple):
    """`length` bytes of a chunk from `start` on."""

    chunk: str
    start: int
    length: int


class SegmentReads:
    """Reads of all segments in `metadata`. May be used by many threads.

    `executor` carries out requests in parallel; it must not be the one that calls these methods. Without one, threads
    are started at the first read that can use them, until `close`.
    """

    def __init__(
        self,
        chunks: Store,
        metadata: MetadataStore,
        config: ReadConfig | None = None,
        executor: Executor | None = None,
    ) -> None:
        self._chunks = chunks
        self._metadata = metadata
        self._config = config or ReadConfig()
        self._executor = executor
        self._own_executor: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()

    def read(self, segment: str, offset: int, length: int) -> bytes:
        """Exactly these bytes of the segment.

        Raises StoredSegmentNotFound, StoredSegmentTruncated, BadStoredOffset, SegmentDamaged.
        """
        return self._looked_up(segment, lambda: self._read(segment, self._extents(segment, offset, length)))

    def scan(self, segment: str, offset: int, end: int | None = None) -> Iterator[bytes]:
        """The bytes [offset, end) in order, in pieces, the next of which are fetched meanwhile.

        `end` None means to where the segment ends now. Holds at most `ahead` pieces. Raises as `read`.
        """
        if end is None:
            end = self._looked_up(segment, lambda: self._length(segment))
        self._looked_up(segment, lambda: self._extents(segment, offset, end - offset, limit=0))  # are they there?
        planned = self._planned(segment, offset, end)
        under_way: deque[tuple[int, ChunkRange, Future[bytes]]] = deque()
        try:
            while True:
                for at, part in islice(planned, self._config.ahead - len(under_way)):
                    under_way.append((at, part, self._submit(partial(self._read_extent, segment, part))))
                if not under_way:
                    return
                at, part, future = under_way.popleft()
                try:
                    yield future.result()
                except ObjectNotFound:
                    yield self.read(segment, at, part.length)
        finally:
            for _, _, future in under_way:
                future.cancel()

    def layout(self, segment: str) -> Iterator[PlacedChunk]:
        """The segment's chunks from the first on, and where they start. Empty ones are left out.

        They are looked up some at a time: what is merged or truncated meanwhile may be met before, after, or not.
        """
        batch = self._looked_up(segment, lambda: self._placed_from(segment, 0))
        while batch:
            yield from batch
            batch = self._looked_up(segment, partial(self._placed_from, segment, batch[-1].end))

    def close(self) -> None:
        """End the threads that were started here."""
        with self._lock:
            if self._own_executor is not None:
                self._own_executor.shutdown()
                self._own_executor = None

    # -- looking up

    def _looked_up(self, segment: str, read: Callable[[], Result]) -> Result:
        for _ in range(_TRIES):
            try:
                return read()
            except (MetadataConflict, ObjectNotFound) as error:
                reason = error
                self._metadata.evict_all()  # the segment was changed: what is in memory may be outdated
        raise SegmentDamaged(f"looked up {_TRIES} times, and still: {reason}", segment) from reason

    def _planned(self, segment: str, offset: int, end: int) -> Iterator[tuple[int, ChunkRange]]:
        """The parts of [offset, end), each with its offset; looked up some chunks at a time, as there may be many."""
        while offset < end:
            look_up = partial(self._extents, segment, offset, end - offset, _TOGETHER)
            for part in self._parts(self._looked_up(segment, look_up)):
                yield offset, part
                offset += part.length

    def _extents(self, segment: str, offset: int, length: int, limit: int | None = None) -> list[ChunkRange]:
        with self._metadata.begin(read_only=True) as transaction:
            record = self._record(transaction, segment)
            if offset < 0:
                raise BadStoredOffset(segment, record.start_offset, offset, "read")
            if length < 0:
                raise BadStoredOffset(segment, offset, offset + length, f"read of {length} bytes")
            if offset + length > record.length:
                raise BadStoredOffset(segment, record.length, offset + length, f"read of {length} bytes beyond the end")
            if offset < record.start_offset:
                raise StoredSegmentTruncated(segment, offset, record.start_offset)
            covering = ChunkList(transaction, record).covering(offset, offset + length)
            return [_overlap(placed, offset, offset + length) for placed in islice(covering, limit)]

    def _length(self, segment: str) -> int:
        with self._metadata.begin(read_only=True) as transaction:
            return self._record(transaction, segment).length

    def _placed_from(self, segment: str, offset: int) -> list[PlacedChunk]:
        with self._metadata.begin(read_only=True) as transaction:
            record = self._record(transaction, segment)
            start = max(record.first_chunk_start, offset)
            return list(islice(ChunkList(transaction, record).covering(start, record.length), _TOGETHER))

    @staticmethod
    def _record(transaction: MetadataTransaction, segment: str) -> StoredSegmentRecord:
        record = transaction.segment(segment)
        if record is None or not record.status & RecordStatus.ACTIVE:
            raise StoredSegmentNotFound(segment)
        return record

    # -- reading

    def _read(self, segment: str, extents: Sequence[ChunkRange]) -> bytes:
        pieces = self._in_parallel([partial(self._read_extent, segment, part) for part in self._parts(extents)])
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _parts(self, extents: Sequence[ChunkRange]) -> Iterator[ChunkRange]:
        """The extents, of which large ones are split so that they are read in parallel."""
        for name, start, length in extents:
            for at in range(0, length, self._config.part):
                yield ChunkRange(name, start + at, min(self._config.part, length - at))

    def _in_parallel(self, calls: Sequence[Callable[[], Result]]) -> list[Result]:
        """The results of the calls. The first is made by this thread, which would wait anyway."""
        futures = [self._submit(call) for call in calls[1:]]
        try:
            return [call() for call in calls[:1]] + [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()

    def _submit(self, call: Callable[[], Result]) -> Future[Result]:
        with self._lock:
            executor = self._executor or self._own_executor
            if executor is None:
                executor = self._own_executor = ThreadPoolExecutor(self._config.parallel, "segment-reads")
        return executor.submit(call)

    def _read_extent(self, segment: str, part: ChunkRange) -> bytes:
        end = part.start + part.length
        data = self._chunks.read(part.chunk, part.start, end)
        if len(data) != part.length:
            raise SegmentDamaged(
                f"chunk {part.chunk!r} ends at {part.start + len(data)}, and the metadata counts bytes up to {end}",
                segment,
            )
        return data


def _overlap(placed: PlacedChunk, start: int, end: int) -> ChunkRange:
    """What of a chunk lies in [start, end) of its segment."""
    first = max(start, placed.start)
    return ChunkRange(placed.chunk.name, first - placed.start, min(end, placed.end) - first)
