"""Segments in the rolling layout: a header beside the chunks (`rolling`), or one object without a header.

A header knows where each chunk starts, not where the segment does: chunks that lie before its head as a whole are
deleted, so the first chunk that is there is the least that the head can be. The container may know more, but old
servers were informed of it late; the controller knows where its stream was truncated. Nothing says how long the last
chunk is but the object itself, and nothing but the file's permissions that a segment is sealed, until the container was
informed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from types import MappingProxyType

from chunkstore.paths import SYSTEM
from chunkstore.pravega.archived_segments import INDEX_SUFFIX, ArchivedChunk, StoredSegment, check_chunks
from chunkstore.pravega.rolling import (
    Header,
    HeaderChunk,
    InvalidHeader,
    chunk_name,
    header_name,
    is_plain_segment,
    parse_header,
    segment_of,
)
from chunkstore.pravega.segment_infos import SegmentInfo
from chunkstore.pravega.source import Source

_CHUNK = re.compile(r"(.+)\$offset\.[0-9]{1,19}")


def rolling_segment(
    source: Source, name: str, info: SegmentInfo | None, headers: Mapping[str, bytes] = MappingProxyType({})
) -> StoredSegment | None:
    """A segment, with what its container knows of it; None if there is none. headers: those that were read already.

    What is damaged about it is its problem; raises what the store raises.
    """
    try:
        chunks = _header(source, name, headers.get(header_name(name)))
    except InvalidHeader as error:
        problem = source.damaged(header_name(name), error)
        return StoredSegment(name, 0, 0, info is not None and info.sealed, (), problem)
    return None if chunks is None else _stored(source, name, chunks, info)


def rolling_segments(
    source: Source, known: Collection[str], infos: Mapping[str, SegmentInfo]
) -> dict[str, StoredSegment]:
    """All segments in this layout whose names are not `known`."""
    found: dict[str, StoredSegment] = {}
    parts: set[str] = set()
    headers = source.read_all(header_name(name) for name in _with_header(source) if name not in known)
    for name in chain(_with_header(source), _without_header(source, infos), _with_chunks(source, parts)):
        if name in known or name in found or name in parts:
            continue
        segment = rolling_segment(source, name, infos.get(name), headers)
        if segment is not None:
            found[name] = segment
            parts.update(chunk.name for chunk in segment.chunks)
    return found


def _with_header(source: Source) -> Iterator[str]:
    return filter(None, map(segment_of, source.names()))


def _without_header(source: Source, infos: Mapping[str, SegmentInfo]) -> Iterator[str]:
    for name in infos:
        yield from (each for each in (name, name + INDEX_SUFFIX) if source.size(each) is not None)
    yield from (name for name in source.names() if is_plain_segment(name) and not name.startswith(SYSTEM))


def _with_chunks(source: Source, parts: Collection[str]) -> Iterator[str]:
    """Segments that have chunks which are not `parts` of another segment: if they have no header, it is missing."""
    for name in source.names():
        match = _CHUNK.fullmatch(name)
        if match is not None and name not in parts and source.size(name):
            yield match[1]


def _header(source: Source, name: str, data: bytes | None) -> list[HeaderChunk] | None:
    """The chunks that the header has; None if there is no segment, or its creation failed. Raises InvalidHeader."""
    if source.size(header_name(name)) is None:
        size = source.size(name)
        if size is not None:
            return [HeaderChunk(0, name)] if size else []
        chunk = next(source.names(chunk_name(name, "")), None)
        if chunk is not None and source.size(chunk):
            raise InvalidHeader(f"it is missing, but its chunk {chunk!r} is there")
        return None
    data = source.read(header_name(name)) if data is None else data
    parsed = parse_header(data)
    if data and not data.endswith(b"&"):
        raise InvalidHeader(f"it ends within an entry: {data[data.rfind(b'&') + 1 :][:80]!r}")
    chunks = list(_checked(name, parsed)) if parsed is not None else []
    known = {chunk.name for chunk in chunks}
    for other in source.names(chunk_name(name, "")):
        if other not in known and source.size(other):
            raise InvalidHeader(f"it does not have the chunk {other!r}, which is there")
    return None if parsed is None else chunks


def _checked(name: str, header: Header) -> Iterator[HeaderChunk]:
    """The chunks of a header; of those that start at one place, where writing failed, the last.

    All of them were made for the segment, or for a transaction on it in an epoch of the same number.
    """
    primary = name.partition(".#epoch.")[0].partition("#")[0].removesuffix(INDEX_SUFFIX)
    for chunk in header.chunks:
        if not chunk.name.startswith(primary) or chunk.name[len(primary) :][:1] not in ("", ".", "#", "$"):
            raise InvalidHeader(
                f"it has the chunk {chunk.name!r}, which is none of this segment: is it that of another?"
            )
        if chunk.name.startswith(chunk_name(name, "")) and chunk.name != chunk_name(name, chunk.start):
            raise InvalidHeader(f"it has the chunk {chunk.name!r} at {chunk.start}")
    for chunk, following in zip(header.chunks, [*header.chunks, None][1:], strict=True):
        if following is None or following.start > chunk.start:
            yield chunk


def _stored(source: Source, name: str, header: list[HeaderChunk], info: SegmentInfo | None) -> StoredSegment:
    chunks: list[ArchivedChunk] = []
    for chunk, following in zip(header, [*header, None][1:], strict=True):
        size = source.size(chunk.name)
        if size is None and following is not None and not chunks:
            continue  # it lay before the head
        length = following.start - chunk.start if following is not None else (size or 0)
        chunks.append(ArchivedChunk(chunk.name, chunk.start, length))
    end = chunks[-1].offset + chunks[-1].length if chunks else 0
    head = max(info.start_offset if info is not None else 0, chunks[0].offset if chunks else 0)
    segment = StoredSegment(name, min(head, end), end, info is not None and info.sealed, tuple(chunks))
    if head > end:
        problem = source.damaged(name, f"its chunks end at {end}, but it is truncated at {head}")
        return segment._replace(problem=problem)
    return check_chunks(source, segment)
