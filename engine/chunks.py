"""Chunks as the engine writes them: objects with the users' bytes and nothing else (S2).

Each is written once, whole, under a name that is never used again (epoch and uuid4, as pravega-style chunk names are).
Names are opaque: what lies in a chunk is known from the extents alone.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from chunkstore import Store
from chunkstore.checksums import block_checksums
from chunkstore.port import check_path
from engine.segments import Extent


def chunk_name(segment: str, epoch: int, offset: int) -> str:
    """A new name for a chunk of `segment` whose first byte has the given offset."""
    return f"{segment}.E-{epoch}-O-{offset}.{uuid.uuid4()}"


def check_name(segment: str) -> None:
    """Raise ValueError unless the chunks of a segment of that name can be objects of every storage."""
    longest = 1 << 63
    check_path(segment)
    check_path(chunk_name(segment, longest, longest))


def write_chunk(store: Store, name: str, groups: Sequence[Sequence[bytes | memoryview]]) -> list[Extent]:
    """Make a chunk of the buffers of all groups, one behind the other; an extent for each group that has bytes."""
    store.put(name, [buffer for group in groups for buffer in group])
    extents, position = [], 0
    for group in groups:
        length = sum(len(buffer) for buffer in group)
        if length:
            extents.append(Extent(name, position, length, block_checksums(*group)))
        position += length
    return extents
