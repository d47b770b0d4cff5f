"""The chunk layer against the bare files it consists of."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from chunkstore import open_store
from chunkstore.metadata.store import MemoryMetadataStore
from chunkstore.segments.segment_reads import ReadConfig
from chunkstore.segments.storage import ChunkedSegmentStorage
from chunkstore.testing import CountingStore
from tests.support.garbage_queue import StoreGarbageQueue

CHUNK, CHUNKS = 16 << 20, 64
READS = ReadConfig()


class Layer:
    """A chunk layer on a folder, with the requests that it sends."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.store = CountingStore(open_store(folder))
        self.chunks = self.store
        self.segments = ChunkedSegmentStorage(
            self.chunks, MemoryMetadataStore(), StoreGarbageQueue(self.store, 0), epoch=1
        )

    def segment(self, size: int, chunk: int = CHUNK) -> str:
        """A new segment of `size` bytes in chunks of `chunk` bytes."""
        segment = f"bench/{uuid.uuid4()}"
        self.segments.create(segment, chunk)
        piece = os.urandom(min(size, chunk))
        for offset in range(0, size, chunk):
            self.segments.write(segment, offset, piece)
        return segment

    def requests_of(self, action: Callable[[], object]) -> tuple[float, int]:
        """Seconds and requests that something takes."""
        self.store.reset()
        begun = time.perf_counter()
        action()
        return time.perf_counter() - begun, len(self.store.requests)


def sequential_read(layer: Layer) -> dict[str, Callable[[], None]]:
    """Ways to read 1 GiB of 64 chunks: through the layer, and the files themselves, as many parts at a time."""
    segment = layer.segment(CHUNK * CHUNKS)
    paths = [f"{layer.folder}/{placed.chunk.name}" for placed in layer.segments.layout(segment)]

    def through_layer() -> None:
        assert sum(len(piece) for piece in layer.segments.scan(segment, 0)) == CHUNK * CHUNKS

    def bare_files() -> None:
        with ThreadPoolExecutor(READS.parallel) as pool:
            parts = [(path, at) for path in paths for at in range(0, CHUNK, READS.part)]
            assert sum(map(len, pool.map(_read_part, parts))) == CHUNK * CHUNKS

    return {"the files themselves": bare_files, "pravega": through_layer}


def _read_part(part: tuple[str, int]) -> bytes:
    path, at = part
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.pread(fd, READS.part, at)
    finally:
        os.close(fd)


def concat(layer: Layer, size: int, chunk: int) -> tuple[float, int]:
    """Seconds and requests of merging a segment of `size` bytes into another; the least of some."""
    found = []
    for _ in range(3):
        target, source = layer.segment(1 << 10), layer.segment(size, chunk)
        layer.segments.seal(source)
        found.append(layer.requests_of(partial(layer.segments.concat, target, 1 << 10, source)))
    return min(found)
