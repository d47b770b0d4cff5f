"""Flushing: the bytes that lie only in the log are written to chunks, and the segments' extents point there.

Nobody holds a lease: whoever finds that it is time flushes. Of several who flush the same range one succeeds, the
others delete their own chunks. Within a cycle a segment's data goes before its index and its attributes (F1).
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING

from chunkstore import ObjectNotFound
from engine.chunks import MAX_CHUNK, chunk_name, write_chunk
from engine.errors import DataCorruption, Rejected
from engine.operations import Flushed
from engine.processor import Receipt
from engine.reads import fetch, plan_extents
from engine.segments import Extent, Segment

if TYPE_CHECKING:
    from engine.container import Container


def flush(container: Container) -> int:
    """Flush all segments of a container. Returns the number of bytes that are in tier 2 now and were not before."""
    state, moved = container.refresh(), 0
    under_way: list[tuple[Flushed, Future[Receipt]]] = []
    for segment in sorted(state.logged(), key=_order):
        for offset, run in logged_runs(segment):
            operation = _write(container, segment, offset, run)
            if operation is not None:
                under_way.append((operation, container.submit([operation])))
    for operation, future in under_way:
        try:
            future.result()
            moved += sum(extent.length for extent in operation.extents)
        except Rejected:  # flushed by somebody else, truncated or deleted meanwhile: our chunk is of no use
            container.stores.chunks.delete(sorted({str(extent.source) for extent in operation.extents}))
    return moved


def _order(segment: Segment) -> tuple[bool, str]:
    """Segments that belong to another one (their names hold a '#' or '$') go last."""
    tail = segment.name.rpartition("/")[2].removeprefix("_").partition(".#epoch.")[2] or segment.name
    return "#" in tail or "$" in tail, segment.name


def logged_runs(segment: Segment) -> Iterator[tuple[int, list[Extent]]]:
    """The runs of neighbouring extents that lie in the log, each small enough for one chunk, with their offsets."""
    begin, size = 0, 0
    run: list[Extent] = []
    for offset, extent in segment.extents:
        if run and (extent.flushed or size + extent.length > MAX_CHUNK):
            yield begin, run
            run, size = [], 0
        if not extent.flushed:
            begin = begin if run else offset
            run.append(extent)
            size += extent.length
    if run:
        yield begin, run


def _write(container: Container, segment: Segment, offset: int, run: list[Extent]) -> Flushed | None:
    """Copy a run to a new chunk. None when its frames are gone, which means that somebody else has flushed it."""
    try:
        parts = fetch(container.stores, plan_extents(run, container.number))
    except (ObjectNotFound, DataCorruption):
        known = container.refresh().segments.get(segment.name)
        if known is not None and any(pair == (offset, run) for pair in logged_runs(known)):
            raise
        return None
    name = chunk_name(segment.name, container.head.epoch, offset)
    extents = write_chunk(container.stores.chunks, name, [parts])
    return Flushed(segment.name, offset, tuple(extents))
