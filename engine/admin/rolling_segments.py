"""Segments in the layout that old code used, before chunk metadata (RollingStorage; `chunkstore.pravega.rolling`).

Export writes the header by which old code reads a segment's chunks where they are. What old code left is found and
checked here, so that its chunks can be attached to a segment of ours without moving a byte. Neither touches the records
of long-term storage, so that no segment is known to both layouts as something to change.
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
from engine.state.horizon import creation_time
from engine.state.segments import Segment
from engine.state.tables import STORAGE
from engine.writer.flush_steps import MAX_CHUNK


class HeaderRefused(EngineError):
    """A header cannot be written for this segment, or chunks cannot be imported. Nothing was changed."""


# --- export -------------------------------------------------------------------------------------------------------


class ExportedHeader(NamedTuple):
    """A header that was written: its object, how many chunks it names, where the segment ends, whether it is sealed."""

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
    """An empty chunk, where more bytes lie behind the segment's end: old code takes the last object's end for it."""
    if last.start + store.stat(last.name).size == segment.length:
        return []
    name = chunk_name(segment.name, segment.length)
    store.put(name, b"")
    return [HeaderChunk(segment.length, name)]


# --- what old code left -------------------------------------------------------------------------------------------


class RollingSegment(NamedTuple):
    """A segment of the old layout: its chunks and their lengths, in order, and its header, if it has one."""

    name: str
    chunks: tuple[tuple[str, int], ...]
    header: str | None

    @property
    def length(self) -> int:
        """Bytes of the segment."""
        return sum(length for _, length in self.chunks)


def find_rolling_segment(store: Store, segment: str) -> RollingSegment:
    """What old code left of a segment. Raises SegmentNotFound, HeaderRefused for one that was truncated, InvalidHeader
    for one that is not there whole."""
    try:
        place = header_name(segment)
        found = parse_header(store.read(place))
    except ObjectNotFound:
        try:
            return RollingSegment(segment, ((segment, store.stat(segment).size),), None)
        except ObjectNotFound:
            raise SegmentNotFound(segment) from None
    if found is None:
        raise InvalidHeader(f"{place!r} is empty, because its creation failed: the segment does not exist")
    sizes = {name: _size(store, name) for _, name in found.chunks}
    there = [chunk for chunk in found.chunks if sizes[chunk.name] is not None]
    if there and there[0].start:  # truncation deletes chunks, and leaves the header as it is
        raise HeaderRefused(
            f"segment {segment!r} was truncated: what is left of it begins at offset {there[0].start}, maybe within an "
            "event. Only a segment that is there from its beginning can be imported; if it is of a Pravega cluster, "
            "`import` takes over its stream, truncated ones too. Nothing was imported"
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
    """Raise HeaderRefused for chunks that a segment or the root has already: no object may have two owners."""
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
    """When the first of the chunks was made (see `engine.state.horizon`), by the storage's clock. Chunks without a name
    of ours count as made now, as no sweep of orphans takes them."""
    ours = [store.stat(chunk).modified for chunk in chunks if made_for(chunk) is not None]
    return creation_time(min([store.clock(), *ours]))
