"""Compaction: runs of small chunks of a segment in LTS are replaced by larger chunks (Pravega: PDP-34).

The chunk layer (`chunkstore.compaction`) plans, copies and swaps, over the container's records. A swap is one
append to the container's log, conditional on the segment's record; it also queues the old chunks as garbage (S4, G1).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from chunkstore.compaction import Compactor, CopyTasks
from chunkstore.errors import fact_of
from chunkstore.segments.errors import SegmentDamaged
from engine.errors import DataCorruption
from engine.writer.flush_context import FlushContext


class CompactedSegment(NamedTuple):
    """What compaction did to a segment.

    merges: new chunks; chunks, bytes: the old chunks that they replace, and their size. refused: merges that were
    dropped because the segment's chunks had changed meanwhile, or the merge took too long.
    """

    segment: str
    container: int
    merges: int
    chunks: int
    bytes: int
    refused: int


def compact_segments(
    context: FlushContext,
    prefix: str,
    target: int,
    copies: CopyTasks | None = None,
    together: int = 1,
    *,
    dry_run: bool = False,
) -> Iterator[CompactedSegment]:
    """Merge the small chunks of all segments in LTS whose names there begin with `prefix`. Yields segments that had
    any.

    target: the most bytes of a new chunk. copies, together: who copies, and how many merges are copied at a time (see
    `Compactor.compact`). dry_run: change nothing, and yield what would be merged. Raises DataCorruption if a chunk
    fails its checks, StorageError.
    """
    storage = context.segment_storage(announce=True)
    compactor = Compactor(storage, context.stores.chunks, context.records, target)
    try:
        segments = sorted(info.name for info in storage.list(prefix))
        for report in compactor.estimate(segments) if dry_run else compactor.compact(segments, copies, together):
            counts = report.merges, report.chunks, report.bytes, report.refused
            yield CompactedSegment(report.segment, context.log.number, *counts)
    except SegmentDamaged as error:
        raise DataCorruption(fact_of(error)) from error
