"""Copies of chunks: whole blocks are checked, whatever is left out of the first one."""

from __future__ import annotations

import pytest

from chunkstore.checksums import BLOCK, block_checksums
from chunkstore.chunk_storage import ChunkStorage
from chunkstore.segments.chunk_list import WrittenChunk
from chunkstore.segments.copying import copy_chunks
from chunkstore.segments.errors import SegmentDamaged
from chunkstore.testing import SimulatedStore


@pytest.mark.parametrize("skip", [0, 7, BLOCK, BLOCK + 7])
def test_what_is_left_of_a_chunk_is_copied_and_checked(skip: int) -> None:
    chunks = ChunkStorage(SimulatedStore())
    data = b"".join(bytes([number]) * BLOCK for number in range(2)) + b"rest"
    source = WrittenChunk("s/whole", len(data), block_checksums(data))
    chunks.create_with_content(source.name, data)
    checksums = copy_chunks(chunks, "s", [source], "s/copy", skip)
    assert chunks.store.read("s/copy") == data[skip:]
    assert checksums == block_checksums(data[skip:])
    chunks.store.put(source.name, data[:-1] + b"?")
    with pytest.raises(SegmentDamaged):
        copy_chunks(chunks, "s", [source], "s/another", skip)
