"""Copies of chunks: whole blocks are checked, whatever is left out of the first one."""

from __future__ import annotations

import threading

import pytest

from chunkstore.checksums import BLOCK, block_checksums
from chunkstore.errors import ObjectNotFound
from chunkstore.segments.chunk_list import WrittenChunk
from chunkstore.segments.copying import copy_chunks
from chunkstore.segments.errors import SegmentDamaged
from chunkstore.testing import CountingStore, SimulatedStore
from tests.support.synced_store import SyncedStore


class ReadersStore(SimulatedStore):
    """Remembers the threads that read."""

    def __init__(self, remote: bool) -> None:
        super().__init__(remote=remote)
        self.readers: set[int] = set()

    def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        self.readers.add(threading.get_ident())
        return super().read(path, start, end)


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


@pytest.mark.parametrize("remote", [False, True])
@pytest.mark.parametrize("count", [1, 2, 3, 20])
def test_several_chunks_become_one(remote: bool, count: int) -> None:
    """Of the first one something is left out, and nothing of the others."""
    store = SimulatedStore(remote=remote)
    pieces = [bytes([number]) * (number + 5) for number in range(count)]
    sources = [WrittenChunk(f"s/{number}", len(piece), block_checksums(piece)) for number, piece in enumerate(pieces)]
    for source, piece in zip(sources, pieces, strict=True):
        store.put(source.name, piece)
    expected = b"".join(pieces)[3:]
    assert copy_chunks(store, "s", sources, "s/copy", 3) == block_checksums(expected)
    assert store.read("s/copy") == expected


@pytest.mark.parametrize(("remote", "count", "own"), [(True, 2, False), (True, 1, True), (False, 2, True)])
def test_only_chunks_that_are_slow_to_read_are_read_in_parallel(remote: bool, count: int, own: bool) -> None:
    store = ReadersStore(remote)
    sources = [WrittenChunk(f"s/{number}", 3) for number in range(count)]
    for source in sources:
        store.put(source.name, b"abc")
    copy_chunks(store, "s", sources, "s/copy")
    assert (threading.get_ident() in store.readers) is own


def test_a_chunk_that_lost_bytes_is_not_copied() -> None:
    """Its checksums may not be known."""
    store = SimulatedStore()
    store.put("s/0", b"abc")
    assert copy_chunks(store, "s", [WrittenChunk("s/0", 3)], "s/copy") == block_checksums(b"abc")
    with pytest.raises(SegmentDamaged, match="ends before its byte 4"):
        copy_chunks(store, "s", [WrittenChunk("s/0", 4)], "s/another")
    with pytest.raises(ObjectNotFound):
        store.stat("s/another")


def test_a_copy_that_is_there_is_synced() -> None:
    """The process that made it may have been killed before it had synced the file's folder."""
    store = SyncedStore()
    store.put("s/0", b"abc")
    for target in ("s/t/copy", "s/t/copy", "copy", "copy"):
        copy_chunks(store, "s", [WrittenChunk("s/0", 3)], target)
    assert store.synced == ["s/t/", ""]
