"""Copies of chunks: whole blocks are checked, whatever is left out of the first one."""

from __future__ import annotations

import pytest

from chunkstore.checksums import BLOCK, block_checksums
from chunkstore.segments.chunk_list import WrittenChunk
from chunkstore.segments.copying import copy_chunks
from chunkstore.segments.errors import SegmentDamaged
from chunkstore.testing import CountingStore, SimulatedStore


@pytest.mark.parametrize("skip", [0, 7, BLOCK, BLOCK + 7])
def test_what_is_left_of_a_chunk_is_copied_and_checked(skip: int) -> None:
    chunks = SimulatedStore()
    data = b"".join(bytes([number]) * BLOCK for number in range(2)) + b"rest"
    source = WrittenChunk("s/whole", len(data), block_checksums(data))
    chunks.put(source.name, data)
    checksums = copy_chunks(chunks, "s", [source], "s/copy", skip)
    assert chunks.read("s/copy") == data[skip:]
    assert checksums == block_checksums(data[skip:])
    chunks.put(source.name, data[:-1] + b"?")
    with pytest.raises(SegmentDamaged):
        copy_chunks(chunks, "s", [source], "s/another", skip)


def test_a_copy_that_is_there_is_not_written_again() -> None:
    """The chunk may be in use by now, and on some filesystems a write over it is not atomic."""
    store = CountingStore(SimulatedStore())
    source = WrittenChunk("s/0", 3, block_checksums(b"abc"))
    store.put(source.name, b"abc")
    sums = [copy_chunks(store, "s", [source], "s/copy") for _ in range(2)]
    assert sums == [block_checksums(b"abc")] * 2
    assert store.count("put", "s/copy") == 1
