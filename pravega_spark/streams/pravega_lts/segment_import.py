"""A segment of a Pravega's long-term storage on its way into a root: its bytes, their checksums, and its index.

Its bytes become chunks of ours in one of two ways. Copied: they are read, and written in chunks of even size. Linked:
the storage gives each chunk of the source a second name, and no byte moves; whatever becomes of one of the two, the
other stays. Either way every byte is read once and goes into a checksum, and every event is walked over; what was
copied is then read back, checked, and walked over again. Nothing of the log is touched, so this runs anywhere.
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

_UNDER_WAY = 1  # chunks of a segment that are being written while the next one is read

Told = Callable[[int], None]
"""Hears how many more bytes are done."""


class Sizes(NamedTuple):
    """In bytes. part: of a chunk that is written. kept: of a segment, after which its progress is kept, so that no more
    has to be done again. logged: of an index that goes with the commit; that of a larger one becomes chunks."""

    part: int = 16 << 20
    kept: int = 64 << 20
    logged: int = 1 << 20


SIZES = Sizes()


class SegmentSource(NamedTuple):
    """A segment as it is in the archive: its bytes [start, end) are to come. Plain values.

    name: that of the segment, the same here. chunks: those that hold these bytes. events: False for a byte stream.
    open: whether it takes more events.
    """

    id: int
    name: str
    start: int
    end: int
    chunks: tuple[ArchivedChunk, ...]
    events: bool
    open: bool


class SegmentContent(NamedTuple):
    """A segment as it can be attached. begins: the offset of the first extent. events: how many there are from its head
    on. records: its index records, or extents of them."""

    begins: int
    extents: tuple[Extent, ...]
    records: tuple[Extent, ...] | bytes
    events: int


class SegmentImport:
    """Brings one segment. source: the store of the archive. target: that of the root's chunks; if it is the same, the
    chunks stay where they are. For one thread."""

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
        """Bring it, from where it was killed on. Raises ArchiveDamaged, Unsupported, DataCorruption, StorageError."""
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
        """Take over what was kept; the offset up to there."""
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
        """The ranges that become a chunk each, from `place` on."""
        if self._copied:
            for start in range(place, self._segment.end, self._sizes.part):
                yield start, min(start + self._sizes.part, self._segment.end)
        else:
            for chunk in self._segment.chunks:
                if chunk.offset >= place:
                    yield chunk.offset, chunk.offset + chunk.length

    def _bring(self, pool: Executor, start: int, end: int) -> None:
        """Make the chunk of a range, and walk through it."""
        name = self._begun.chunk_name(self._segment.name, start)
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
        """Wait until no more than `most` chunks are being written."""
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
                f"{self._source.root}: {self._segment.name!r}, {error}. If it is a byte stream, whose bytes are no "
                "events, say so"
            ) from error

    def _check(self) -> None:
        """Read back what was written, against the checksums of what was read, and walk over the events again."""
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
        """The index records; of a large index the chunks that they were put into."""
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
