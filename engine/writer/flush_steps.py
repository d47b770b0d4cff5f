"""What a flush cycle brings to LTS of segments: in which order, and in which steps (F1).

A step is one append to the log. Bytes from the log are written to chunks; chunks that tasks attached, and segments that
were merged, become LTS's as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from chunkstore.segments.chunk_list import WrittenChunk
from engine.state.segments import Extent, FrameRef, Segment, StoredRef
from engine.state.state import State

MAX_CHUNK = 64 << 20
"""The most bytes of a chunk that is made of what lies in the log."""

MAX_EXTENTS = 1000
"""The most extents of one step that are read, so that a step is short on a storage where each read is slow."""


class FlushStep(NamedTuple):
    """Neighbouring extents of a segment that go to LTS in one step: from `offset` to `end`.

    Bytes to be written, or else chunks to be attached, or else a merged segment to be joined.
    """

    offset: int
    end: int
    attached: tuple[WrittenChunk, ...] = ()
    joined: str = ""


def buckets(state: State) -> Iterator[list[Segment]]:
    """The segments that are to be flushed: first the data, then what is attached to it (F1)."""
    buckets: dict[bool, list[Segment]] = {}
    for segment in state.logged():
        buckets.setdefault(is_attached(segment.name), []).append(segment)
    return (buckets[key] for key in sorted(buckets))


def is_attached(segment: str) -> bool:
    """Whether a segment belongs to another one, as its index or its attributes: their names hold a '#' or '$'."""
    tail = segment.rpartition("/")[2].removeprefix("_").partition(".#epoch.")[2] or segment
    return "#" in tail or "$" in tail


def steps_of(segment: Segment, state: State) -> Iterator[FlushStep]:
    """The steps by which a segment's content goes to LTS, in order."""
    offset, position = segment.storage_length, segment.storage_length
    attached: list[WrittenChunk] = []
    extents = 0
    for at, extent in segment.extents:
        end = at + extent.length
        whole = at >= segment.storage_length
        joined = isinstance(extent.source, StoredRef) and whole
        chunk = _whole_chunk(extent, state) if whole else None
        if (joined or chunk is not None) and not attached and position > offset:
            yield FlushStep(offset, position)
            offset = position
        if attached and chunk is None:
            yield FlushStep(offset, position, tuple(attached))
            attached, offset = [], position
        if joined:
            assert isinstance(extent.source, StoredRef)
            yield FlushStep(offset, end, joined=extent.source.storage)
            offset = end
        elif chunk is not None:
            attached.append(chunk)
        elif (end - offset > MAX_CHUNK or extents == MAX_EXTENTS) and position > offset:
            yield FlushStep(offset, position)
            offset = position
        extents = extents + 1 if position > offset else 1
        position = end
    if position > offset:
        yield FlushStep(offset, position, tuple(attached))


def _whole_chunk(extent: Extent, state: State) -> WrittenChunk | None:
    """An attached chunk that is nobody else's, which LTS can take over as it is."""
    source, position, length, checksums = extent
    if isinstance(source, FrameRef | StoredRef) or position or state.chunks.get(source) != 1:
        return None
    return WrittenChunk(source, length, checksums)
