"""A segment's list of chunks, as it is seen and changed within one metadata transaction.

The list is linked through the chunks' records, and indexed by blocks. Entries of a block are relative to its start, and
what an entry of a key says stays true: entries are added and removed, never moved. A block that must move gets a
new key. So a reader that holds an old record of the segment finds the right chunk, or finds a record missing and looks
again.

Chunks that are taken out become a list of their own, under the name of a deleted segment, so that they are one piece of
garbage however many they are: the queue does not grow with their number.

This module changes metadata only (S4). Chunks are created before it names them, and collected after it dropped them
(G1).
"""

from __future__ import annotations

import bisect
import uuid
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from chunkstore.errors import MetadataConflict
from chunkstore.metadata.metadata_records import (
    BLOCK_CHUNKS,
    ChunkRecord,
    IndexBlockRecord,
    RecordStatus,
    StoredSegmentRecord,
)
from chunkstore.metadata.store import MetadataTransaction

DELETED = "#deleted."
"""What the names of deleted segments begin with, and of lists of chunks that were taken out: they cannot be opened."""

_TOGETHER = 256  # chunk records that a walk reads at once

Entries = tuple[tuple[int, str], ...]


class PlacedChunk(NamedTuple):
    """A chunk and where it starts in its segment."""

    start: int
    chunk: ChunkRecord

    @property
    def end(self) -> int:
        """Where it ends in its segment."""
        return self.start + self.chunk.length


class WrittenChunk(NamedTuple):
    """A chunk that is added to a segment: its name, its length in bytes, and its checksums if they are known."""

    name: str
    length: int
    checksums: bytes = b""


def deleted_name(segment: str) -> str:
    """A name for what is deleted of a segment, under which the collector finds the chunks."""
    return f"{DELETED}{uuid.uuid4().hex}/{segment}"


class ChunkList:
    """The chunks of the segment `record`. Every change replaces `record`; `save` notes it in the transaction.

    A system segment's records are pinned, and it has no index: its list is in memory anyway.
    A record of the list that is not there raises MetadataConflict: the list was changed since `record` was read.
    """

    def __init__(self, transaction: MetadataTransaction, record: StoredSegmentRecord) -> None:
        self.record = record
        self._transaction = transaction
        self._pinned = bool(record.status & RecordStatus.SYSTEM_SEGMENT)

    def save(self) -> None:
        """Note the segment's record in the transaction."""
        self._transaction.put(self.record, pinned=self._pinned)

    # -- looking

    def find(self, offset: int) -> PlacedChunk:
        """The chunk that holds the byte at `offset`, which must be in the list."""
        for placed in self.walk(*self._nearest(offset), offset + 1):
            if offset < placed.end:
                return placed
        raise self._changed(self.record.last_chunk)

    def covering(self, start: int, end: int) -> Iterator[PlacedChunk]:
        """The chunks that hold the bytes [start, end), which must be in the list; empty ones hold none."""
        for placed in self.walk(*self._nearest(start), end):
            if start < placed.end and placed.chunk.length:
                yield placed

    def walk(self, start: int, name: str | None, end: int) -> Iterator[PlacedChunk]:
        """The chunks from `name`, which begins at `start`, to the one that holds the byte before `end`."""
        together: Sequence[str] | None = None
        while name is not None and start < end:
            if together is None:
                together = ()  # often one chunk is all: more are read when there is a second
            elif name not in together:
                together = self._names_from(start, end)
                self._transaction.load(*together)
            chunk = self.chunk(name)
            yield PlacedChunk(start, chunk)
            start += chunk.length
            name = chunk.next_chunk
        if start < end:
            raise self._changed(self.record.last_chunk)

    def chunk(self, name: str) -> ChunkRecord:
        """The record of a chunk of the list."""
        found = self._transaction.chunk(name)
        if found is None:
            raise self._changed(name)
        return found

    # -- changing

    def extend(self, chunks: Sequence[WrittenChunk]) -> None:
        """Add chunks at the end."""
        if not chunks:
            return
        record = self.record
        if record.last_chunk is not None:
            self._put(self.chunk(record.last_chunk)._replace(next_chunk=chunks[0].name))
        names = [chunk.name for chunk in chunks]
        placed = []
        end = record.length
        for (name, length, checksums), following in zip(chunks, [*names[1:], None], strict=True):
            self._put(ChunkRecord(name, length, following, checksums=checksums))
            placed.append((end, name))
            end += length
        self.record = record._replace(
            length=end,
            chunk_count=record.chunk_count + len(chunks),
            first_chunk=record.first_chunk or names[0],
            first_chunk_start=record.length if record.first_chunk is None else record.first_chunk_start,
            last_chunk=names[-1],
            last_chunk_start=placed[-1][0],
        )
        if not self._pinned:
            self._index([place for place, chunk in zip(placed, chunks, strict=True) if chunk.length])

    def grow(self, length: int, checksums: bytes = b"") -> None:
        """The last chunk got `length` more bytes, and has these checksums now, if they are known."""
        assert self.record.last_chunk is not None
        last = self.chunk(self.record.last_chunk)
        self._put(last._replace(length=last.length + length, checksums=checksums))
        self.record = self.record._replace(length=self.record.length + length)

    def cut(self, limit: int) -> list[str]:
        """Take out the chunks that lie before the start offset, at most `limit`, for good; returns their names."""
        doomed = self._doomed(limit)
        for placed in doomed:
            self._transaction.delete(placed.chunk.key)
        if doomed:
            for _, key in self._begin_after(doomed):
                self._transaction.delete(key)
        return [placed.chunk.name for placed in doomed]

    def detach(self, limit: int) -> StoredSegmentRecord | None:
        """Take out the chunks that lie before the start offset, at most `limit`, as a list of their own; None if there
        are none."""
        doomed = self._doomed(limit)
        if not doomed:
            return None
        before = self.record
        return self._detached(before, doomed, self._begin_after(doomed))

    def join(self, source: StoredSegmentRecord) -> None:
        """Take over all chunks of another segment, which begins at offset 0; its record is taken out."""
        record = self.record
        self._transaction.delete(source.key)
        if source.first_chunk is None:
            return
        if record.last_chunk is not None:
            self._put(self.chunk(record.last_chunk)._replace(next_chunk=source.first_chunk))
        self.record = record._replace(
            length=record.length + source.length,
            chunk_count=record.chunk_count + source.chunk_count,
            first_chunk=record.first_chunk or source.first_chunk,
            first_chunk_start=record.length if record.first_chunk is None else record.first_chunk_start,
            last_chunk=source.last_chunk,
            last_chunk_start=record.length + source.last_chunk_start,
        )
        self._join_blocks([(record.length + start, key) for start, key in source.blocks])

    def replace(
        self, start: int, old: Sequence[str], new_start: int, new: str, length: int, checksums: bytes = b""
    ) -> StoredSegmentRecord:
        """Put one chunk in the place of the consecutive chunks `old`, of which the first begins at `start`.

        The new chunk of `length` bytes begins at `new_start`, beyond `start` only where everything before is truncated,
        and ends where the last of the old ones does. Raises MetadataConflict if the list does not look like that.
        Returns the old chunks as a list of their own.
        """
        run = self._run(start, old)
        record, end = self.record, run[-1].end
        if end != new_start + length:
            raise self._changed(old[-1])
        is_first = old[0] == record.first_chunk
        if new_start != start and not (is_first and start < new_start <= min(record.start_offset, end - 1)):
            raise ValueError(f"a chunk from {new_start} on cannot replace those in [{start}, {end})")
        following = run[-1].chunk.next_chunk
        taken_out = self._detached(record, run, ())
        self._put(ChunkRecord(new, length, following, checksums=checksums))
        if not is_first:
            self._put(self._before(run[0])._replace(next_chunk=new))
        self.record = record._replace(
            chunk_count=record.chunk_count - len(run) + 1,
            first_chunk=new if is_first else record.first_chunk,
            first_chunk_start=new_start if is_first else record.first_chunk_start,
            last_chunk=record.last_chunk if following else new,
            last_chunk_start=record.last_chunk_start if following else new_start,
        )
        self._replace_entries(start, end, (new_start, new))
        return taken_out

    # -- within

    def _doomed(self, limit: int) -> list[PlacedChunk]:
        """The chunks that lie before the start offset, from the first one on, at most `limit`."""
        record = self.record
        doomed: list[PlacedChunk] = []
        end, name = record.first_chunk_start, record.first_chunk
        for placed in self.walk(end, name, record.start_offset):
            if placed.end > record.start_offset or len(doomed) == limit:
                return doomed
            doomed.append(placed)
            end, name = placed.end, placed.chunk.next_chunk
        while name is not None and end == record.length and len(doomed) < limit:  # empty ones at the end
            doomed.append(PlacedChunk(end, self.chunk(name)))
            name = doomed[-1].chunk.next_chunk
        return doomed

    def _begin_after(self, doomed: Sequence[PlacedChunk]) -> tuple[tuple[int, str], ...]:
        """Let the list begin behind these chunks. Returns the index blocks that it needs no more."""
        record, start, name = self.record, doomed[-1].end, doomed[-1].chunk.next_chunk
        if name is None:
            self.record = record._replace(
                first_chunk=None,
                last_chunk=None,
                chunk_count=0,
                first_chunk_start=record.length,
                last_chunk_start=record.length,
                blocks=(),
            )
            return record.blocks
        count = max(bisect.bisect_right(record.blocks, start, key=_start) - 1, 0)
        self.record = record._replace(
            first_chunk=name,
            first_chunk_start=start,
            chunk_count=record.chunk_count - len(doomed),
            blocks=record.blocks[count:],
        )
        return record.blocks[:count]

    def _detached(
        self, record: StoredSegmentRecord, chunks: Sequence[PlacedChunk], blocks: tuple[tuple[int, str], ...]
    ) -> StoredSegmentRecord:
        """These consecutive chunks of the list `record` as one that is deleted."""
        first, last = chunks[0], chunks[-1]
        if last.chunk.next_chunk is not None:
            self._put(last.chunk._replace(next_chunk=None))
        return record._replace(
            name=deleted_name(record.name),
            status=record.status & ~RecordStatus.ACTIVE,
            start_offset=first.start,
            first_chunk=first.chunk.name,
            first_chunk_start=first.start,
            last_chunk=last.chunk.name,
            last_chunk_start=last.start,
            length=last.end,
            chunk_count=len(chunks),
            blocks=blocks,
        )

    def _put(self, chunk: ChunkRecord) -> None:
        self._transaction.put(chunk, pinned=self._pinned)

    def _changed(self, key: str | None) -> MetadataConflict:
        return MetadataConflict(f"{key!r} is no longer in the list of segment {self.record.name!r}", (key or "",))

    def _run(self, start: int, names: Sequence[str]) -> list[PlacedChunk]:
        run: list[PlacedChunk] = []
        place = self._nearest(start)
        for placed in self.walk(*place, self.record.length):
            if placed.start < start:
                continue
            if len(run) == len(names) or placed.chunk.name != names[len(run)]:
                break
            run.append(placed)
        if not names or len(run) != len(names) or run[0].start != start:
            raise self._changed(names[0] if names else None)
        return run

    def _before(self, chunk: PlacedChunk) -> ChunkRecord:
        """The chunk that names this one, which is not the first, as its next."""
        for placed in self.walk(*self._nearest(chunk.start - 1), chunk.start + 1):
            if placed.chunk.next_chunk == chunk.chunk.name:
                return placed.chunk
        raise self._changed(chunk.chunk.name)

    def _block(self, key: str) -> IndexBlockRecord:
        block = self._transaction.block(key)
        if block is None:
            raise self._changed(key)
        return block

    def _put_entries(self, key: str, entries: Entries) -> None:
        """Change the entries of a block that there is."""
        self._transaction.put(self._block(key)._replace(entries=entries))

    def _left(self, base: int, key: str) -> Entries:
        """The entries of a block without those of chunks that were cut off: a short list has a short block, however
        many chunks it had before."""
        entries = self._block(key).entries
        return entries[bisect.bisect_left(entries, self.record.first_chunk_start - base, key=_start) :]

    def _nearest(self, offset: int) -> tuple[int, str | None]:
        """Start and name of a chunk that begins at or before `offset`, as near as the index knows."""
        record = self.record
        if offset >= record.last_chunk_start:
            return record.last_chunk_start, record.last_chunk
        place = record.block_of(offset)
        if place is not None:
            entry = self._block(place[1]).chunk_at(offset - place[0])
            if entry is not None and place[0] + entry[0] >= record.first_chunk_start:
                return place[0] + entry[0], entry[1]
        return record.first_chunk_start, record.first_chunk

    def _names_from(self, start: int, end: int) -> Sequence[str]:
        """Names of some chunks that begin in [start, end), from the first on."""
        place = self.record.block_of(start)
        if place is None:
            return ()
        entries = self._block(place[1]).entries
        first = bisect.bisect_left(entries, start - place[0], key=_start)
        return [name for at, name in entries[first : first + _TOGETHER] if place[0] + at < end]

    def _index(self, chunks: Sequence[tuple[int, str]]) -> None:
        """Add chunks, by start and name, to the last block, and to new ones."""
        blocks = list(self.record.blocks)
        if blocks:
            base, key = blocks[-1]
            entries = self._left(base, key)
            room = max(BLOCK_CHUNKS - len(entries), 0)
            fitting, chunks = chunks[:room], chunks[room:]
            if fitting:
                self._put_entries(key, entries + _relative(base, fitting))
        starts = range(0, len(chunks), BLOCK_CHUNKS)
        blocks.extend(self._new_block(chunks[first : first + BLOCK_CHUNKS]) for first in starts)
        self.record = self.record._replace(blocks=tuple(blocks))

    def _new_block(self, chunks: Sequence[tuple[int, str]]) -> tuple[int, str]:
        base = chunks[0][0]
        key = f"{self.record.name}.B-{base}.{uuid.uuid4()}"
        self._transaction.put(IndexBlockRecord(key, _relative(base, chunks)))
        return base, key

    def _join_blocks(self, added: list[tuple[int, str]]) -> None:
        """Add blocks at the end. Two small ones become one: else a million merges would make a million blocks."""
        blocks = list(self.record.blocks)
        if blocks and added:
            (base, key), (next_base, next_key) = blocks[-1], added[0]
            entries, more = self._left(base, key), self._block(next_key).entries
            if len(entries) + len(more) <= BLOCK_CHUNKS:
                moved = tuple((next_base + at - base, name) for at, name in more)
                self._put_entries(key, entries + moved)
                self._transaction.delete(next_key)
                del added[0]
        self.record = self.record._replace(blocks=(*blocks, *added))

    def _replace_entries(self, start: int, end: int, new: tuple[int, str]) -> None:
        """Put one entry in the place of those in [start, end)."""
        blocks: list[tuple[int, str]] = []
        home = self.record.block_of(start)
        for base, key in self.record.blocks:
            if base >= end or (base < start and (base, key) != home):
                blocks.append((base, key))
                continue
            entries = self._block(key).entries
            before = tuple((at, name) for at, name in entries if base + at < start)
            after = tuple((at, name) for at, name in entries if base + at >= end)
            if (base, key) == home:
                kept = (*before, (new[0] - base, new[1]), *after)
                self._put_entries(key, kept)
                blocks.append((base, key))
                continue
            self._transaction.delete(key)
            if after:
                blocks.append(self._new_block([(base + at, name) for at, name in after]))
        self.record = self.record._replace(blocks=tuple(blocks))


def _relative(base: int, chunks: Sequence[tuple[int, str]]) -> Entries:
    return tuple((start - base, name) for start, name in chunks)


def _start(entry: tuple[int, str]) -> int:
    return entry[0]
