"""The order and the steps in which a flush cycle brings segments to LTS (F1).

A step is one append to the log. Bytes from the log are written to chunks. Chunks that tasks attached, and segments that
were merged, are taken over by LTS without a copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from chunkstore.segments.chunk_list import WrittenChunk
from engine.state.segments import Extent, FrameRef, Segment, StoredRef
from engine.state.state import State

MAX_CHUNK = 64 << 20
"""The most bytes of a chunk that is written from the log."""

MAX_EXTENTS = 1000
"""The most extents that one step reads, so that a step stays short on a slow storage."""


class FlushStep(NamedTuple):
    """Neighbouring extents of a segment, from `offset` to `end`, that go to LTS in one step.

    Either their bytes are written, or the chunks `attached` are attached, or the merged segment `joined` is appended.
    """

    offset: int
    end: int
    attached: tuple[WrittenChunk, ...] = ()
    joined: str = ""


def buckets(state: State) -> Iterator[list[Segment]]:
    """The segments that have to be flushed: first those with data, then those attached to them (F1)."""
    buckets: dict[bool, list[Segment]] = {}
    for segment in state.logged():
        buckets.setdefault(is_attached(segment.name), []).append(segment)
    return (buckets[key] for key in sorted(buckets))


def is_attached(segment: str) -> bool:
    """Whether a segment belongs to another one, as its index or its attributes. Their names contain '#' or '$'."""
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
    """An attached chunk that no other extent refers to, so that LTS can take it over; None for all others."""
    source, position, length, checksums = extent
    if isinstance(source, FrameRef | StoredRef) or position or state.chunks.get(source) != 1:
        return None
    return WrittenChunk(source, length, checksums)
