"""An LRU cache of blocks that were read (Pravega: CacheStorage and CacheManager).

A block is a checksummed part of an object, which never changes. So the cache cannot be outdated, and every block may be
evicted, as the log or LTS has it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

DEFAULT_BYTES = 64 << 20

BLOCK_COST = 640
"""Approximate overhead of a block in bytes: its key, with a path, and its place in the map."""

_LOCKS = 64


class BlockKey(NamedTuple):
    """A block: its object (a frame below the log's root if `logged`, or a chunk), position and checksum."""

    logged: bool
    path: str
    position: int
    checksum: bytes


class Cache:
    """At most `size` bytes of blocks, BLOCK_COST for each included. Thread-safe."""

    def __init__(self, size: int = DEFAULT_BYTES) -> None:
        self.size = size
        self.used = 0
        self._blocks: OrderedDict[BlockKey, bytes] = OrderedDict()
        self._lock = threading.Lock()
        self._locks = [threading.Lock() for _ in range(_LOCKS)]

    def lock(self, key: BlockKey) -> threading.Lock:
        """The lock to hold while a missing block is fetched, so that threads that need the same block fetch it once."""
        return self._locks[hash(key) % _LOCKS]

    def find(self, keys: Iterable[BlockKey]) -> dict[BlockKey, bytes]:
        """Those of the blocks that the cache has."""
        found = {}
        with self._lock:
            for key in keys:
                data = self._blocks.get(key)
                if data is not None:
                    self._blocks.move_to_end(key)
                    found[key] = data
        return found

    def put(self, blocks: Mapping[BlockKey, bytes]) -> None:
        """Add blocks, and evict others if there is no room."""
        with self._lock:
            for key, data in blocks.items():
                before = self._blocks.pop(key, None)
                self.used += len(data) - len(before) if before is not None else len(data) + BLOCK_COST
                self._blocks[key] = data
            while self.used > self.size:
                _, data = self._blocks.popitem(last=False)
                self.used -= len(data) + BLOCK_COST
