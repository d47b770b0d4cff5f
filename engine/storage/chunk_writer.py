"""Writing chunks: objects that hold users' bytes and nothing else (S2).

Each chunk is written once, by one request, under a name that is never used again (`chunkstore.chunk_names`). Its
content is known from extents only, never from its name.
"""

from __future__ import annotations

from collections.abc import Sequence

from chunkstore import Store
from chunkstore.checksums import block_checksums
from chunkstore.chunk_names import new_chunk_name
from chunkstore.paths import SYSTEM
from chunkstore.port import check_path
from engine.state.segments import Extent


def check_name(segment: str) -> None:
    """Raise ValueError unless every storage can hold chunks of a segment of that name, outside the reserved folder
    (P1)."""
    if segment.startswith(SYSTEM):
        raise ValueError(f"segment {segment!r} would lie in {SYSTEM}, which is reserved: give it another name")
    longest = 1 << 63
    check_path(segment)
    check_path(new_chunk_name(segment, longest, longest))


def write_chunk(store: Store, name: str, groups: Sequence[Sequence[bytes | memoryview]]) -> list[Extent]:
    """Write a chunk with the buffers of all groups, in order. Returns an extent for each group that has bytes."""
    store.put(name, [buffer for group in groups for buffer in group])
    extents, position = [], 0
    for group in groups:
        length = sum(len(buffer) for buffer in group)
        if length:
            extents.append(Extent(name, position, length, block_checksums(*group)))
        position += length
    return extents
