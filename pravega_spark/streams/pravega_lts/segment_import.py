"""Importing a segment of a Pravega's long-term storage: its bytes, their checksums, and its index.

Its bytes become chunks of the root in one of two ways. Copied: they are read, and written as chunks of even size.
Linked: the storage gives each chunk of the source a second name; no data moves, and deleting one name keeps the
other. Either way every byte is read once for a checksum, and every event is checked. Copied data is then read back,
verified, and checked again. The log is not used, so this can run anywhere.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from chunkstore import ObjectNotFound, Store
from chunkstore.checksums import block_checksums, continued
from chunkstore.pravega.archived_segments import ArchivedChunk
from chunkstore.pravega.source import ArchiveDamaged
from engine.errors import DataCorruption
from engine.state.segments import Extent
from engine.storage.object_reads import ObjectRange, Stores, fetch
from pravega_spark.streams.model.index import encode_records
from pravega_spark.streams.model.names import index_segment_name
from pravega_spark.streams.pravega_lts.event_scanner import BrokenEvent, EventScanner, ScannerState
from pravega_spark.streams.pravega_lts.unfinished_imports import Begun, Reached, keep, reached
from pravega_spark.streams.reading.object_ranges import windows

STEP = 4 << 20
"""Bytes that are read at a time."""

_UNDER_WAY = 1  # chunks that are being written while the next one is read

Told = Callable[[int], None]
"""Called with the number of further bytes that are done."""


class Sizes(NamedTuple):
    """Sizes in bytes. part: of a written chunk. kept: of a segment between two saves of its progress, which bounds
    repeated work. logged: of an index that is committed through the log; a larger one is written to chunks."""

    part: int = 16 << 20
    kept: int = 64 << 20
    logged: int = 1 << 20


SIZES = Sizes()


class SegmentSource(NamedTuple):
    """A segment in the source, with the bytes [start, end) to import. Plain values.

    name: of the segment, the same in the root. chunks: those that hold these bytes. events: False for a byte stream.
    open: whether it accepts more events.
    """

    id: int
    name: str
    start: int
    end: int
    chunks: tuple[ArchivedChunk, ...]
    events: bool
    open: bool


class SegmentContent(NamedTuple):
    """A segment that is ready to be attached. begins: the offset of the first extent. events: their number from its
    head on. records: its index records, or extents of them."""

    begins: int
    extents: tuple[Extent, ...]
    records: tuple[Extent, ...] | bytes
    events: int


class SegmentImport:
    """Imports one segment. source: the store of the Pravega. target: the root's chunk store; if it is the same, the
    chunks stay in place. For one thread."""

    def __init__(
        self, source: Store, target: Store, begun: Begun, segment: SegmentSource, copied: bool, sizes: Sizes, told: Told
    ) -> None:
        self._source = source
        self._target = target
        self._begun = begun
        self._segment = segment
        self._copied = copied
        self._sizes = sizes
        self._told = told
        self._begins = segment.start if copied or not segment.chunks else segment.chunks[0].offset
        self._walk = EventScanner(ScannerState(segment.start, segment.start))
        self._extents: list[Extent] = []
        self._records: list[np.ndarray] = [np.empty((0, 4), np.int64)]
        self._written: deque[Future[None]] = deque()

    def run(self) -> SegmentContent:
        """Import it, continuing saved progress. Raises ArchiveDamaged, Unsupported, DataCorruption, StorageError."""
        place = kept = self._resumed()
        self._told(max(place - self._segment.start, 0))
        extents, records = len(self._extents), len(self._records)
        with ThreadPoolExecutor(1, "import") as pool:
            for start, end in self._parts(place):
                self._bring(pool, start, end)
                self._told(end - max(start, self._segment.start))
                if end - kept >= self._sizes.kept and end < self._segment.end:
                    self._wait(0)
                    self._keep(extents, records, kept, end)
                    extents, records, kept = len(self._extents), len(self._records), end
            self._wait(0)
        with self._sound():
            self._walk.finish()
        if self._copied:
            self._check()
        return SegmentContent(self._begins, tuple(self._extents), self._index(), self._walk.events)

    def _resumed(self) -> int:
        """Load saved progress; returns its end offset."""
        place = self._begins
        for part in reached(self._target, self._begun, self._segment.id, place):
            self._extents += part.extents
            self._records.append(part.records)
            self._walk, place = EventScanner(part.walk), part.walk.place
        return place

    def _keep(self, extents: int, records: int, since: int, end: int) -> None:
        walk = self._walk.state() if self._segment.events else ScannerState(end, end)
        part = Reached(tuple(self._extents[extents:]), np.concatenate(self._records[records:]), walk)
        keep(self._target, self._begun, self._segment.id, part, since)

    def _parts(self, place: int) -> Iterator[tuple[int, int]]:
        """The range of each chunk, from `place` on."""
        if self._copied:
            for start in range(place, self._segment.end, self._sizes.part):
                yield start, min(start + self._sizes.part, self._segment.end)
        else:
            for chunk in self._segment.chunks:
                if chunk.offset >= place:
                    yield chunk.offset, chunk.offset + chunk.length

    def _bring(self, pool: Executor, start: int, end: int) -> None:
        """Write the chunk of a range, and check its events."""
        name = self._begun.chunk_name(self._segment.name, start)
        if self._copied or self._source is not self._target:
            self._target.check_room(end - start)
        if not self._copied:
            chunk = self._segment.chunks[self._chunk_at(start)].name
            if self._source is self._target:
                name = chunk
            else:
                self._target.link(name, self._source, chunk)
        pieces: list[bytes] = []
        checksums, place = b"", start
        for data in self._read(start, end):
            checksums = continued(checksums, place - start, data)
            if self._segment.events:
                with self._sound():
                    self._walk.take(data[max(self._segment.start - place, 0) :])
            place += len(data)
            if self._copied:
                pieces.append(data)
        if self._copied:
            self._written.append(pool.submit(self._target.put, name, pieces))
            self._wait(_UNDER_WAY)
        self._extents.append(Extent(name, 0, end - start, checksums))
        self._records.append(self._walk.records(self._begun.created))

    def _wait(self, most: int) -> None:
        """Wait until at most `most` chunks are being written."""
        while len(self._written) > most:
            self._written.popleft().result()

    def _chunk_at(self, offset: int) -> int:
        return bisect_right(self._segment.chunks, offset, key=lambda chunk: chunk.offset) - 1

    def _read(self, start: int, end: int) -> Iterator[bytes]:
        """The bytes [start, end) of the segment in the source. Raises ArchiveDamaged."""
        while start < end:
            chunk = self._segment.chunks[self._chunk_at(start)]
            stop = min(end, chunk.offset + chunk.length, start + STEP)
            try:
                data = self._source.read(chunk.name, start - chunk.offset, stop - chunk.offset)
            except ObjectNotFound:
                raise ArchiveDamaged(f"{self._source.root}: {chunk.name!r}: it was there, and is missing now") from None
            if len(data) != stop - start:
                raise ArchiveDamaged(
                    f"{self._source.root}: {chunk.name!r}: {len(data)} of {stop - start} bytes were read at "
                    f"{start - chunk.offset}"
                )
            yield data
            start = stop

    @contextmanager
    def _sound(self) -> Iterator[None]:
        try:
            yield
        except BrokenEvent as error:
            raise ArchiveDamaged(
                f"{self._source.root}: {self._segment.name!r}, {error}. If it belongs to a byte stream, whose "
                "bytes are no events, name the stream as one: --byte-stream SCOPE/STREAM"
            ) from error

    def _check(self) -> None:
        """Read back what was written, verify the checksums, and check the events again."""
        stores = Stores(self._target, self._target)
        walk = EventScanner(ScannerState(self._segment.start, self._segment.start))
        pieces = [ObjectRange(False, str(e.source), 0, e.length, e.checksums, 0, e.length) for e in self._extents]
        for window in windows(pieces, STEP):
            for data in fetch(stores, window):
                if self._segment.events:
                    with self._sound():
                        walk.take(bytes(data))
                    walk.records(0)
        if walk.events != self._walk.events:
            raise DataCorruption(
                f"segment {self._segment.name!r}: {self._walk.events} events were copied, {walk.events} are there"
            )

    def _index(self) -> tuple[Extent, ...] | bytes:
        """The index records; of a large index the chunks that hold them."""
        data = encode_records(np.concatenate(self._records))
        if len(data) <= self._sizes.logged:
            return data
        return tuple(self._index_chunks(memoryview(data)))

    def _index_chunks(self, data: memoryview) -> Iterator[Extent]:
        name = index_segment_name(self._segment.name)
        for start in range(0, len(data), self._sizes.part):
            part, chunk = data[start : start + self._sizes.part], self._begun.chunk_name(name, start)
            self._target.put(chunk, part)
            yield Extent(chunk, 0, len(part), block_checksums(part))
