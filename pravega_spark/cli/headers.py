"""`header`: the layout that segments had before chunk metadata (RollingStorage; see `chunkstore.rolling`).

Export writes beside a segment's chunks the header by which old code reads them. Import makes a stream of what old code
left, without moving a byte: the old chunks are attached to the stream's segment, once all events in them were walked
(S3). Neither touches the records of tier 2, so that a segment is never known to both layouts as something to change.
"""

from __future__ import annotations

import struct
import time
from array import array
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import click

from chunkstore import ObjectNotFound, Store
from chunkstore.checksums import continued
from chunkstore.chunk_names import made_for
from chunkstore.errors import Unsupported
from chunkstore.rolling import Header, HeaderChunk, InvalidHeader, chunk_name, format_header, header_name, parse_header
from engine.errors import SegmentNotFound
from engine.horizon import made_at
from engine.inspection import open_for_reading, segment_chunks
from engine.root import Root
from engine.segments import Extent, Segment
from engine.storage_writer import MAX_CHUNK
from engine.tables import STORAGE
from pravega_spark.cli.arguments import StreamName, StreamNameType
from pravega_spark.cli.session import Refused, Session, pass_session
from pravega_spark.streams.names import owner_of

if TYPE_CHECKING:
    from pravega_spark.streams.stream import Part

STEP = 8 << 20
"""Bytes that are read at a time."""

_EVENT = struct.Struct(">ii")


@click.group()
def header() -> None:
    """Exchange segments with old code: legacy header files."""


# --- export -------------------------------------------------------------------------------------------------------


@header.command()
@click.argument("name")
@pass_session
def export(session: Session, name: str) -> None:
    """Write the header by which old code reads segment NAME, such as scope/stream/0.#epoch.0.

    All of the segment must be in tier 2. The header tells how it is now; a merge of chunks makes it invalid.
    """
    root = session.root
    with open_for_reading(root, owner_of(name, root.config.containers)) as container:
        segment = container.info(name)
        if segment.storage_length < segment.length:
            waiting = segment.length - segment.storage_length
            raise Refused(f"segment {name!r}: {waiting} bytes are only in the log; run `container flush` first")
        if segment.start_offset == segment.length:
            raise Refused(f"segment {name!r} has no bytes, so there is nothing to tell")
        parts = [(part.start, part.object) for part in segment_chunks(container, name)]
        store = container.stores.chunks
        chunks = [HeaderChunk(start, path) for start, path in parts]
        chunks += _end(store, segment, chunks[-1])
        place, data = header_name(name), format_header(Header(MAX_CHUNK, tuple(chunks)))
        store.put(place, data)
        with suppress(Unsupported):
            store.set_read_only(place, segment.sealed)
    row = {"segment": name, "object": place, "chunks": len(chunks), "length": segment.length, "sealed": segment.sealed}
    session.output.document({"header": row})
    session.output.line(f"{place} tells of {len(chunks)} chunks up to offset {segment.length}")


def _end(store: Store, segment: Segment, last: HeaderChunk) -> list[HeaderChunk]:
    """An empty chunk, where more bytes lie behind the segment's end: old code takes the last object's end for it."""
    if last.start + store.stat(last.name).size == segment.length:
        return []
    name = chunk_name(segment.name, segment.length)
    store.put(name, b"")
    return [HeaderChunk(segment.length, name)]


# --- import -------------------------------------------------------------------------------------------------------


class Legacy(NamedTuple):
    """A segment of the old layout: its chunks and their lengths, in order, and its header, if it has one."""

    name: str
    chunks: tuple[tuple[str, int], ...]
    header: str | None

    @property
    def length(self) -> int:
        """Bytes of the segment."""
        return sum(length for _, length in self.chunks)


@header.command("import")
@click.argument("segment")
@click.argument("name", metavar="SCOPE/STREAM", type=StreamNameType())
@pass_session
def import_(session: Session, segment: str, name: StreamName) -> None:
    """Make the events of SEGMENT, which old code left below the root, a new stream of one segment.

    Its chunks belong to the stream then, and are deleted with it; its header goes. Old code must not use them any more.
    """
    store, manager = session.root.stores.chunks, session.manager
    legacy = find_legacy(store, segment)
    _check_free(session.root, [chunk for chunk, _ in legacy.chunks])
    with session.output.progress() as bar:
        task = bar.add_task(segment, total=legacy.length) if bar is not None else None
        walk = _Walk(legacy)
        for done in walk.over(store):
            if bar is not None and task is not None:
                bar.update(task, completed=done)
    if not manager.create_stream(*name, 1):
        raise Refused(f"stream {name} exists already: name a new one")
    from pravega_spark.streams.catalog import Catalog

    stream = Catalog(session.root).stream(*name)
    if legacy.length:
        made = _made(store, [chunk for chunk, _ in legacy.chunks])
        stream.write([walk.part(stream.snapshot().record.current.segments[0].id, made)])
    if legacy.header is not None:
        store.delete([legacy.header])
    row = {"segment": segment, "stream": str(name), "events": len(walk.lengths), "bytes": legacy.length}
    session.output.document({"imported": {**row, "chunks": len(legacy.chunks)}})
    session.output.line(f"stream {name} has the {len(walk.lengths)} events of {segment}, {legacy.length} bytes")


def find_legacy(store: Store, segment: str) -> Legacy:
    """What old code left of a segment. Raises SegmentNotFound, InvalidHeader for one that is not there whole."""
    try:
        place = header_name(segment)
        found = parse_header(store.read(place))
    except ObjectNotFound:
        try:
            return Legacy(segment, ((segment, store.stat(segment).size),), None)
        except ObjectNotFound:
            raise SegmentNotFound(segment) from None
    if found is None:
        raise InvalidHeader(f"{place!r} is empty, because its creation failed: there is no such segment")
    ends = [chunk.start for chunk in found.chunks[1:]]
    chunks, at = [], 0
    for (start, name), end in zip(found.chunks, [*ends, None], strict=True):
        try:
            size = store.stat(name).size
        except ObjectNotFound:
            raise InvalidHeader(f"{place!r}: chunk {name!r} at {start} is missing: it was truncated, or lost") from None
        length = size if end is None else end - start
        if start != at or length > size:
            raise InvalidHeader(f"{place!r}: chunk {name!r} at {start} has {size} bytes and does not fit: restore it")
        chunks.append((name, length))
        at += length
    return Legacy(segment, tuple((name, length) for name, length in chunks if length), place)


def _check_free(root: Root, chunks: list[str]) -> None:
    """Refuse chunks that belong to a segment already: who deletes one of two would take them from the other."""
    for number in range(root.config.containers):
        container = root.container(number)
        state = container.refresh()
        entries = container.entries(STORAGE, chunks, state)
        for chunk in chunks:
            if chunk in state.chunks or chunk in state.garbage or entries[chunk] is not None:
                raise Refused(f"chunk {chunk!r} belongs to container {number} here already; nothing was imported")


def _made(store: Store, chunks: list[str]) -> int:
    """When the first of the chunks was made (see `engine.horizon`), by the storage's clock. No sweep of orphans takes
    what has not a name as chunks have here: that counts as made now."""
    ours = [store.stat(chunk).modified for chunk in chunks if made_for(chunk) is not None]
    return made_at(min([store.clock(), *ours]))


class _Walk:
    """Goes through all events of a legacy segment, and makes the checksums of its chunks."""

    def __init__(self, legacy: Legacy) -> None:
        self._legacy = legacy
        self._rest = b""  # the beginning of an event's header that goes on in the next bytes
        self._skip = 0  # bytes that are left of the event before
        self._place = 0
        self.lengths = array("q")
        self.extents: list[Extent] = []

    def over(self, store: Store) -> Iterator[int]:
        """Read everything; how many bytes were. Raises Refused for what are no events."""
        for name, length in self._legacy.chunks:
            checksums = b""
            for start in range(0, length, STEP):
                end = min(start + STEP, length)
                data = store.read(name, start, end)
                if len(data) != end - start:
                    raise Refused(f"chunk {name!r} ends before its byte {end}")
                checksums = continued(checksums, start, data)
                self._take(data)
                yield self._place
            self.extents.append(Extent(name, 0, length, checksums))
        if self._rest or self._skip:
            raise self._broken("an event runs over the end of the segment")

    def _take(self, data: bytes) -> None:
        self._place += len(data)
        data, at = self._rest + data, self._skip
        self._rest, self._skip = b"", 0
        while at < len(data):
            if len(data) - at < _EVENT.size:
                self._rest = data[at:]
                return
            kind, length = _EVENT.unpack_from(data, at)
            if kind or length < 0:
                self._place -= len(data) - at
                raise self._broken(f"an event has type {kind} and length {length}")
            self.lengths.append(_EVENT.size + length)
            at += _EVENT.size + length
        self._skip = at - len(data)

    def _broken(self, what: str) -> Refused:
        return Refused(f"segment {self._legacy.name!r}, offset {self._place}: {what}; nothing was imported")

    def part(self, segment_id: int, made: int) -> Part:
        """What a write appends."""
        import numpy as np

        from pravega_spark.streams.index import sparse_records
        from pravega_spark.streams.stream import Part

        records = sparse_records(np.frombuffer(self.lengths, np.int64), int(time.time() * 1000))
        return Part(segment_id, tuple(self.extents), records, len(self.lengths), made)
