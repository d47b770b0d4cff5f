"""A segment as its layout in long-term storage says, and reading its bytes and its table.

The two layouts (`chunked_layout`, `rolling_layout`) make `StoredSegment`s. What cannot be right about one segment stays
with it, as its `problem`, and is an error when it is read: other segments are not affected.
"""

from __future__ import annotations

import bisect
import functools
from typing import NamedTuple

from chunkstore.decoding import decoding
from chunkstore.errors import StorageError
from chunkstore.pravega.attribute_index import read_index
from chunkstore.pravega.segment_infos import SegmentInfo
from chunkstore.pravega.source import ArchiveDamaged, Source
from chunkstore.pravega.table_entries import TableRows, ahead_of, entries, live_by_hash, live_by_key, newest

INDEX_SUFFIX = "$attributes.index"
"""What the name of the segment ends in that has a segment's attribute index."""


class ArchivedChunk(NamedTuple):
    """The object `name`, of which the first `length` bytes are those of the segment from `offset` on."""

    name: str
    offset: int
    length: int


class SegmentTruncated(StorageError):
    """Bytes before the head of a segment were to be read. start_offset: its head."""

    def __init__(self, message: str, start_offset: int) -> None:
        super().__init__(message)
        self.start_offset = start_offset


class StoredSegment(NamedTuple):
    """A segment from `start` to `length`. The first chunk may begin before `start`. `problem`: why it is damaged."""

    name: str
    start: int
    length: int
    sealed: bool
    chunks: tuple[ArchivedChunk, ...]
    problem: ArchiveDamaged | None = None


def read_segment(source: Source, segment: StoredSegment, start: int, end: int) -> bytes:
    """The bytes [start, end) of a segment. Raises SegmentTruncated, ValueError, ArchiveDamaged, and the store's."""
    if segment.problem is not None:
        raise segment.problem
    if not 0 <= start <= end <= segment.length:
        raise ValueError(f"{segment.name!r} has no bytes [{start}, {end}): it is [{segment.start}, {segment.length})")
    if start < segment.start:
        raise SegmentTruncated(
            f"{source.where}: {segment.name!r} is truncated at {segment.start}; {start} is before that", segment.start
        )
    parts = []
    place = max(bisect.bisect_right(segment.chunks, start, key=lambda chunk: chunk.offset) - 1, 0)
    while start < end:
        chunk = segment.chunks[place]
        stop = min(end, chunk.offset + chunk.length)
        parts.append(source.read(chunk.name, start - chunk.offset, stop - chunk.offset))
        start = stop
        place += 1
    return parts[0] if len(parts) == 1 else b"".join(parts)


def check_chunks(source: Source, segment: StoredSegment) -> StoredSegment:
    """The segment, with a problem if its chunks are not all there or do not make [start, length)."""
    end = segment.chunks[0].offset if segment.chunks else segment.length
    problem = None
    for chunk in segment.chunks:
        size = source.size(chunk.name)
        if chunk.offset != end:
            problem = source.damaged(chunk.name, f"it is at {chunk.offset} of {segment.name!r}, where {end} is due")
        elif size is None:
            problem = source.damaged(chunk.name, f"it is missing: {segment.name!r} has it at {chunk.offset}")
        elif size < chunk.length:
            problem = source.damaged(
                chunk.name, f"it has {size} bytes; {segment.name!r} has {chunk.length} of it at {chunk.offset}"
            )
        if problem is not None:
            return segment._replace(problem=problem)
        end += chunk.length
    if end != segment.length or (segment.chunks[0].offset if segment.chunks else end) > segment.start:
        problem = source.damaged(
            segment.name,
            f"its chunks are [{segment.chunks[0].offset if segment.chunks else end}, {end}), "
            f"and it is [{segment.start}, {segment.length})",
        )
    return segment._replace(problem=problem) if problem is not None else segment


def from_head(source: Source, segment: StoredSegment, start: int) -> StoredSegment:
    """The segment truncated at `start`. A server deletes chunks before a head, and may not have recorded it yet."""
    if start <= segment.start or not segment.chunks:
        return segment._replace(start=max(start, segment.start))
    kept = tuple(chunk for chunk in segment.chunks if chunk.offset + chunk.length > start)
    if segment.problem is None:
        return segment._replace(start=start)
    return check_chunks(source, segment._replace(start=start, chunks=kept, problem=None))


def index_of(source: Source, index: StoredSegment) -> dict[bytes, int]:
    """The keys and values in an attribute index. Raises ArchiveDamaged, and the store's."""
    if index.problem is not None:
        raise index.problem
    with decoding(functools.partial(source.damaged, index.name)):
        return read_index(functools.partial(read_segment, source, index), index.start, index.length)


def removed_of(source: Source, table: StoredSegment) -> set[bytes]:
    """The keys whose newest entry is a removal, as far as compaction left them. Raises ArchiveDamaged, the store's."""
    with decoding(functools.partial(source.damaged, table.name)):
        read = functools.partial(read_segment, source, table)
        state = newest(entries(read, table.start, table.length))
        return {key for key, entry in state.items() if entry.value is None}


def table_of(source: Source, table: StoredSegment, index: StoredSegment | None, info: SegmentInfo | None) -> TableRows:
    """The live entries of a table segment, by their keys. Raises ArchiveDamaged, and the store's.

    Without an index the entries alone say it; where the table was flushed and the index not yet, the entries behind the
    last one that is indexed say what changed since. But not in a table whose keys have one length, where only the index
    knows what was removed. Where the index was flushed and the table not yet, its rows are what they were before.
    """
    if table.problem is not None:
        raise table.problem
    with decoding(functools.partial(source.damaged, table.name)):
        read = functools.partial(read_segment, source, table)
        rows = list(entries(read, table.start, table.length))
        found = index_of(source, index) if index is not None else {}
        is_fixed = info.has_fixed_keys if info is not None else any(found.get(row.key) == row.offset for row in rows)
        if is_fixed:
            state = newest(rows)
            if state and index is None:
                raise source.damaged(table.name + INDEX_SUFFIX, "it is missing: only it tells which keys were removed")
            ahead = ahead_of(found, table.length, hashes=False)
            return TableRows({entry.key: entry for entry in live_by_key(state, found, ahead)}, ahead)
        ahead = ahead_of(found, table.length)
        # What the container's metadata says of how far the index goes may have been flushed before the index.
        indexed = min(max(found.values(), default=-1) + 1, table.length)
        return TableRows({entry.key: entry for entry in live_by_hash(rows, found, indexed, ahead)}, ahead)
