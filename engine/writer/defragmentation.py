"""Defragmentation: runs of small chunks of a segment in LTS become one (Pravega: PDP-34).

Planning, copying and swapping are the chunk layer's (`chunkstore.compaction`), over the container's records:
a swap is one append to the container's log, conditional on the segment's record, which queues the old chunks as garbage
as well (S4, G1).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from chunkstore.chunk_storage import ChunkStorage
from chunkstore.compaction import CompactionReport, Compactor, CopyTasks
from chunkstore.segments.errors import SegmentDamaged
from chunkstore.segments.storage import ChunkedSegmentStorage, SegmentStorageConfig
from engine.errors import DataCorruption
from engine.writer.data_source import WriterDataSource
from engine.writer.records import LogGarbage


class Merged(NamedTuple):
    """What was done to a segment: merges, the chunks that they joined, the bytes of those, and merges not made because
    its chunks were others by then, or it was too late."""

    segment: str
    container: int
    merges: int
    chunks: int
    bytes: int
    refused: int


def defragment(
    source: WriterDataSource, prefix: str, target: int, copies: CopyTasks | None = None, together: int = 1
) -> Iterator[Merged]:
    """Merge the small chunks of all segments in LTS whose names there begin with `prefix`; those that had any.

    target: bytes of a new chunk, at most. copies, together: who copies, and how many merges are copied at a time (see
    `Compactor.compact`). Raises DataCorruption if a chunk fails its checks, StorageError.
    """
    chunks = ChunkStorage(source.stores.chunks)
    storage = ChunkedSegmentStorage(
        chunks,
        source.records,
        LogGarbage(source),
        source.head.epoch,
        SegmentStorageConfig(garbage_delay=source.settings.garbage_delay),
        clock=source.storage_clock.now,
    )
    compactor = Compactor(storage, chunks, source.records, target)
    try:
        for report in compactor.compact(sorted(info.name for info in storage.list(prefix)), copies, together):
            yield _merged(report, source.number)
    except SegmentDamaged as error:
        raise DataCorruption(str(error)) from error


def _merged(report: CompactionReport, container: int) -> Merged:
    return Merged(report.segment, container, report.merges, report.chunks, report.bytes, report.refused)
