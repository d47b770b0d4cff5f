"""Defragmentation: runs of small chunks of a segment in tier 2 become one (Pravega: PDP-34).

What shall be merged, the chunk layer's optimiser says, and queues the new chunk as garbage before it is made. Copying
and swapping are done here, as the engine needs it: bytes are checked before they are copied, and the new chunk has
checksums too; the swap is one append to the container's log, conditional on the segment's record, which queues the old
chunks as garbage as well (S4, G1). It is made in half of the garbage delay, or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from chunkstore import ObjectNotFound
from chunkstore.chunk_list import ChunkList
from chunkstore.chunks import ChunkStorage
from chunkstore.errors import MetadataConflict
from chunkstore.garbage import GarbageTask
from chunkstore.optimiser import Merge, OptimiserConfig, StorageOptimiser
from chunkstore.records import ChunkRecord, Status, decode, segment_key
from chunkstore.segment_errors import SegmentNotFound
from chunkstore.segments import ChunkedSegmentStorage, SegmentStorageConfig
from engine.chunks import write_chunk
from engine.container import Container
from engine.reads import Piece, fetch
from engine.storage_metadata import LogGarbage, queueing
from engine.tables import STORAGE


class Merged(NamedTuple):
    """What was done to a segment: merges, the chunks that they joined, the bytes of those, and merges not made because
    its chunks were others by then, or it was too late."""

    segment: str
    container: int
    merges: int = 0
    chunks: int = 0
    bytes: int = 0
    refused: int = 0


def defragment(container: Container, prefix: str, target: int) -> Iterator[Merged]:
    """Merge the small chunks of all segments in tier 2 whose names there begin with `prefix`; those that had any.

    target: bytes of a new chunk, at most. Raises DataCorruption if a chunk fails its checks, StorageError.
    """
    chunks, delay = ChunkStorage(container.stores.chunks), container.settings.garbage_delay
    queue = LogGarbage(container, container.records)
    storage = ChunkedSegmentStorage(
        chunks,
        container.records,
        queue,
        container.head.epoch,
        SegmentStorageConfig(garbage_delay=delay),
        clock=container.now,
    )
    config = OptimiserConfig(target=target, merge_time=delay / 2, margin=0.0)
    optimiser = StorageOptimiser(storage, chunks, container.records, queue, config)
    for name in sorted(info.name for info in storage.list(prefix)):
        merged = _merge_all(container, optimiser, Merged(name, container.number))
        if merged.merges or merged.refused:
            yield merged


def _merge_all(container: Container, optimiser: StorageOptimiser, merged: Merged) -> Merged:
    """Merge what is to be merged in a segment; again, as long as time was all that was lacking."""
    while True:
        before = merged.merges
        try:
            merges = optimiser.plan(merged.segment)
        except SegmentNotFound:
            return merged  # it was deleted meanwhile
        refused = 0
        for merge in merges:
            if _merge(container, merge):
                merged = merged._replace(
                    merges=merged.merges + 1,
                    chunks=merged.chunks + len(merge.parts),
                    bytes=merged.bytes + merge.length,
                )
            else:
                refused += 1
        if not refused or merged.merges == before:
            return merged._replace(refused=refused)


def _merge(container: Container, merge: Merge) -> bool:
    """Copy and swap. False if it is too late, or the chunks are others by now; then nothing has changed."""
    if container.now() >= merge.deadline:
        return False
    try:
        pieces = _pieces(container, merge)
        if pieces is None:
            return False
        data = fetch(container.stores, pieces)
    except ObjectNotFound:
        if _pieces(container, merge) is not None:
            raise
        return False
    [extent] = write_chunk(container.stores.chunks, merge.target, [data])
    return _swap(container, merge, extent.checksums)


def _pieces(container: Container, merge: Merge) -> list[Piece] | None:
    """Where the bytes lie, by the records of the chunks; None if those are others by now."""
    names = [part.name for part in merge.parts]
    entries = container.entries(STORAGE, names, container.refresh())
    pieces = []
    for name, length in merge.parts:
        entry = entries[name]
        record = decode(entry.value) if entry is not None and entry.value else None
        if not isinstance(record, ChunkRecord) or record.length != length:
            return None
        pieces.append(Piece(False, name, 0, length, record.checksums, 0, length))
    return pieces


def _swap(container: Container, merge: Merge, checksums: bytes) -> bool:
    old = [part.name for part in merge.parts]
    garbage = queueing([GarbageTask(name, container.now(), segment=merge.segment) for name in old])
    try:
        with container.records.together(garbage), container.records.begin(segment_key(merge.segment)) as transaction:
            record = transaction.segment(merge.segment)
            # Looked at when the record was read: if the collector comes after that, it forestalls this commit.
            late = container.now() >= merge.deadline
            if record is None or not record.status & Status.ACTIVE or late:
                raise MetadataConflict(f"{merge.segment!r} is deleted, or it is too late", (merge.segment,))
            chunks = ChunkList(transaction, record)
            chunks.replace(merge.start, old, merge.start, merge.target, merge.length, checksums)
            chunks.save()
            transaction.commit()
    except MetadataConflict:
        return False
    return True
