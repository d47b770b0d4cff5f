"""Whether the records of a segment in LTS are consistent: the list of its chunks is unbroken and covers it (S4)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from chunkstore.errors import InvalidRecord, MetadataConflict, fact_of
from chunkstore.metadata.metadata_records import StoredSegmentRecord
from chunkstore.segments.chunk_list import ChunkList, PlacedChunk
from engine.admin.checks.reference_counts import checksums_of
from engine.storage.record_reader import RecordReader

TOGETHER = 4096
"""The most chunk records in memory."""


class BrokenList(Exception):
    """The list of chunks cannot be followed any further."""


def list_problems(records: RecordReader, segment: StoredSegmentRecord) -> Iterator[PlacedChunk | str]:
    """The chunks of a segment, in order, and the problems of the list and of its index blocks, as texts."""
    try:
        segment.check_invariants()
    except InvalidRecord as error:
        yield fact_of(error)
    count, end, last = 0, segment.first_chunk_start, None
    index = _Indexed(records, segment)
    try:
        for placed in _walk(records, segment):
            yield placed
            yield from _chunk_problems(placed)
            yield from index.compare(placed)
            count, end, last = count + 1, placed.end, placed.chunk
    except BrokenList as error:
        yield fact_of(error)
        return
    if (count, end) != (segment.chunk_count, segment.length):
        yield f"its {count} chunks end at {end}, but {segment.chunk_count} that end at {segment.length} are recorded"
    if (last.name if last is not None else None) != segment.last_chunk:
        yield f"its last chunk should be {segment.last_chunk!r}, but is {last.name if last is not None else None!r}"
    elif last is not None and last.next_chunk is not None:
        yield f"its last chunk {last.name!r} names {last.next_chunk!r} as the next one"
    yield from index.rest()


def _walk(records: RecordReader, segment: StoredSegmentRecord) -> Iterator[PlacedChunk]:
    at, name, left = segment.first_chunk_start, segment.first_chunk, segment.chunk_count + 1
    while name is not None and at < segment.length and left:
        with records.begin(read_only=True) as transaction:
            walk = ChunkList(transaction, segment).walk(at, name, segment.length)
            try:
                for placed in islice(walk, min(TOGETHER, left)):
                    yield placed
                    at, name, left = placed.end, placed.chunk.next_chunk, left - 1
            except MetadataConflict as error:
                names = ", ".join(map(repr, error.keys))
                raise BrokenList(f"its list of chunks breaks at offset {at}: there is no record of {names}") from error
            except InvalidRecord as error:
                raise BrokenList(f"its list of chunks breaks at offset {at}: {fact_of(error)}") from error


def _chunk_problems(placed: PlacedChunk) -> Iterator[str]:
    chunk = placed.chunk
    if chunk.length <= 0:
        yield f"chunk {chunk.name!r} has a length of {chunk.length}"
    elif chunk.checksums and len(chunk.checksums) != checksums_of(chunk.length):
        yield f"chunk {chunk.name!r} of {chunk.length} bytes has checksums of the wrong length"


class _Indexed:
    """The entries of a segment's index blocks. Each must name a chunk and the offset at which it begins."""

    def __init__(self, records: RecordReader, segment: StoredSegmentRecord) -> None:
        self._records = records
        self._segment = segment
        self._entries = self._all()
        self._next = next(self._entries, None)

    def _all(self) -> Iterator[tuple[int, str] | str]:
        for base, key in self._segment.blocks:
            with self._records.begin(read_only=True) as transaction:
                try:
                    block = transaction.block(key)
                except InvalidRecord as error:
                    yield fact_of(error)
                    continue
            if block is None:
                yield f"its index block {key!r} is missing"
                continue
            for at, name in block.entries:
                if base + at >= self._segment.first_chunk_start:
                    yield base + at, name

    def compare(self, placed: PlacedChunk) -> Iterator[str]:
        """The problems of the entries up to a chunk."""
        while self._next is not None:
            if isinstance(self._next, str):
                yield self._next
            elif self._next[0] > placed.start:
                return
            elif self._next != (placed.start, placed.chunk.name):
                yield f"by its index, chunk {self._next[1]!r} begins at {self._next[0]}, but no chunk of that name does"
            self._next = next(self._entries, None)

    def rest(self) -> Iterator[str]:
        """The problems of the entries behind the last chunk."""
        while self._next is not None:
            yield (
                self._next
                if isinstance(self._next, str)
                else (f"its index says that chunk {self._next[1]!r} begins at {self._next[0]}, behind its last chunk")
            )
            self._next = next(self._entries, None)
