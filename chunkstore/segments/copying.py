"""Copying chunks: the bytes of some become one new chunk, and are checked on the way (S1).

The bytes pass through this process, even where a storage could join objects by itself: then they would not be checked,
and the checksums of the result would not be known (`docs/decisions/chunks-are-copied.md`).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from chunkstore.checksums import BLOCK, WIDTH, block_checksums, first_bad_block
from chunkstore.errors import ObjectNotFound
from chunkstore.port import Store
from chunkstore.segments.chunk_list import WrittenChunk
from chunkstore.segments.errors import SegmentDamaged

_PARALLEL = 8  # chunks that are read at a time from a remote storage


def copy_chunks(chunks: Store, segment: str, sources: Sequence[WrittenChunk], target: str, skip: int = 0) -> bytes:
    """Make the chunk `target` of the bytes of `sources`, without the first `skip` of the first one.

    Returns the checksums of the new chunk. Needs no metadata, and as much memory as the new chunk has bytes. May be
    repeated, also by several at once: the chunk appears whole, with the same bytes each time.

    Raises ObjectNotFound if a source is gone, SegmentDamaged if one is too short or fails its checksums, StorageError.
    """
    skipped = [skip, *(0 for _ in sources[1:])]
    if chunks.remote and len(sources) > 1:
        with ThreadPoolExecutor(_PARALLEL, "copy-chunks") as pool:
            data = list(pool.map(lambda source, start: _read(chunks, segment, source, start), sources, skipped))
    else:
        data = [_read(chunks, segment, source, start) for source, start in zip(sources, skipped, strict=True)]
    try:
        chunks.stat(target)  # an earlier attempt made it, which may have been killed before it had synced anything
        chunks.sync(target[: target.rfind("/") + 1])
    except ObjectNotFound:
        chunks.check_room(sum(map(len, data)))
        chunks.put(target, data)
    return block_checksums(*data)


def _read(chunks: Store, segment: str, source: WrittenChunk, start: int) -> memoryview:
    """The bytes of a chunk from `start` on, checked."""
    first = start // BLOCK  # only whole blocks can be checked
    wanted = source.length - first * BLOCK
    data = memoryview(chunks.read(source.name, first * BLOCK, source.length))
    if len(data) < wanted:
        raise SegmentDamaged(
            f"chunk {source.name!r} ends before its byte {source.length}, and the metadata counts bytes up to there",
            segment,
        )
    if source.checksums and first_bad_block(data, source.checksums[first * WIDTH :]) is not None:
        raise SegmentDamaged(f"chunk {source.name!r} fails its checksums, so it is not what was written there", segment)
    return data[start - first * BLOCK :]
