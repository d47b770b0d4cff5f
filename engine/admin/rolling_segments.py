"""Segments in RollingStorage's layout, which Pravega used before chunk metadata (`chunkstore.pravega.rolling`).

Export writes a header by which RollingStorage reads a segment's chunks where they are. Import finds and checks the
chunks of such a segment, so that they can be attached here without a copy. Neither changes the records in long-term
storage, so no segment is writable in both layouts.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from chunkstore import ObjectNotFound, Store
from chunkstore.chunk_names import made_for
from chunkstore.errors import Unsupported
from chunkstore.paths import place_of
from chunkstore.pravega.rolling import (
    Header,
    HeaderChunk,
    InvalidHeader,
    chunk_name,
    format_header,
    header_name,
    parse_header,
)
from engine.admin.inspection import segment_chunks
from engine.containers.container import Container
from engine.errors import EngineError, SegmentNotFound
from engine.root import Root
from engine.state.attach_fence import creation_time
from engine.state.segments import Segment
from engine.state.tables import STORAGE
from engine.writer.flush_steps import MAX_CHUNK


class HeaderRefused(EngineError):
    """A header cannot be written for this segment, or its chunks cannot be imported. Nothing was changed."""


# --- export -------------------------------------------------------------------------------------------------------


class ExportedHeader(NamedTuple):
    """A header that was written. object: its path. chunks: how many it names. length, sealed: of the segment."""

    object: str
    chunks: int
    length: int
    sealed: bool


def export_header(container: Container, name: str) -> ExportedHeader:
    """Write the header of a segment. Raises SegmentNotFound, HeaderRefused, StorageError."""
    segment = container.info(name)
    if segment.storage_length < segment.length:
        waiting = segment.length - segment.storage_length
        raise HeaderRefused(f"segment {name!r}: {waiting} bytes are only in the log; run `container flush` first")
    if segment.start_offset == segment.length:
        raise HeaderRefused(f"segment {name!r} is empty, so it has no header")
    store = container.stores.chunks
    chunks = [HeaderChunk(part.start, part.object) for part in segment_chunks(container, name)]
    chunks += _end(store, segment, chunks[-1])
    place, data = header_name(name), format_header(Header(MAX_CHUNK, tuple(chunks)))
    store.put(place, data)
    with suppress(Unsupported):
        store.set_read_only(place, segment.sealed)
    return ExportedHeader(place, len(chunks), segment.length, segment.sealed)


def _end(store: Store, segment: Segment, last: HeaderChunk) -> list[HeaderChunk]:
    """An empty chunk if the last object is longer than its part of the segment: RollingStorage takes that object's end
    for the segment's end."""
    if last.start + store.stat(last.name).size == segment.length:
        return []
    name = chunk_name(segment.name, segment.length)
    store.put(name, b"")
    return [HeaderChunk(segment.length, name)]


# --- import -------------------------------------------------------------------------------------------------------


class RollingSegment(NamedTuple):
    """A segment in RollingStorage's layout. chunks: their names and lengths, in order. header: None if it has none."""

    name: str
    chunks: tuple[tuple[str, int], ...]
    header: str | None

    @property
    def length(self) -> int:
        """Bytes of the segment."""
        return sum(length for _, length in self.chunks)


def find_rolling_segment(store: Store, segment: str) -> RollingSegment:
    """A segment in RollingStorage's layout. Raises SegmentNotFound, HeaderRefused if it was truncated, InvalidHeader if
    it is incomplete."""
    try:
        place = header_name(segment)
        found = parse_header(store.read(place))
    except ObjectNotFound:
        try:
            return RollingSegment(segment, ((segment, store.stat(segment).size),), None)
        except ObjectNotFound:
            raise SegmentNotFound(segment) from None
    if found is None:
        raise InvalidHeader(f"{place!r} is empty: the creation of the segment failed, so it does not exist")
    sizes = {name: _size(store, name) for _, name in found.chunks}
    there = [chunk for chunk in found.chunks if sizes[chunk.name] is not None]
    if there and there[0].start:  # truncation deletes chunks, and leaves the header as it is
        raise HeaderRefused(
            f"segment {segment!r} was truncated: the rest of it begins at offset {there[0].start}, possibly within an "
            "event. Only segments that were never truncated can be imported this way. For a stream of a Pravega "
            "cluster, use `import`. Nothing was imported"
        )
    ends = [chunk.start for chunk in found.chunks[1:]]
    chunks, at = [], 0
    for (start, name), end in zip(found.chunks, [*ends, None], strict=True):
        size = sizes[name]
        if size is None:
            raise InvalidHeader(f"{place!r}: chunk {name!r} at {start} is missing: restore it")
        length = size if end is None else end - start
        if start != at or length > size:
            raise InvalidHeader(
                f"{place!r}: chunk {name!r} at {start} has {size} bytes, which does not match the header: restore it"
            )
        chunks.append((name, length))
        at += length
    return RollingSegment(segment, tuple((name, length) for name, length in chunks if length), place)


def _size(store: Store, name: str) -> int | None:
    try:
        return store.stat(name).size
    except ObjectNotFound:
        return None


def check_unused(root: Root, chunks: list[str]) -> None:
    """Raise HeaderRefused if a chunk already belongs to a segment or to the root: no object may have two owners."""
    for chunk in chunks:
        if place_of(chunk) is not None:
            raise HeaderRefused(f"{chunk!r} belongs to the root itself; nothing was imported")
    for number in range(root.config.containers):
        container = root.container(number)
        state = container.refresh()
        entries = container.entries(STORAGE, chunks, state)
        for chunk in chunks:
            if chunk in state.chunks or chunk in state.garbage or entries[chunk] is not None:
                raise HeaderRefused(f"chunk {chunk!r} already belongs to container {number}; nothing was imported")


def creation_time_of(store: Store, chunks: list[str]) -> int:
    """When the first of the chunks was created (see `engine.state.attach_fence`), by the storage's clock.

    Chunks with foreign names count as created now, because the sweep of orphans leaves them alone.
    """
    ours = [store.stat(chunk).modified for chunk in chunks if made_for(chunk) is not None]
    return creation_time(min([store.clock(), *ours]))
