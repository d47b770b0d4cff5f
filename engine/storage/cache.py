"""Blocks of what was read, kept in memory (Pravega: CacheStorage and CacheManager).

A block is a checksummed part of an object that never changes, so that nothing in the cache can be out of date, and
whatever is in it can go: all of it is in the log or in LTS. What was used least recently goes first.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

DEFAULT_BYTES = 64 << 20

BLOCK_COST = 640
"""Bytes that a block takes beside its data, about: its key, with a path, and its place."""

_TURNS = 64


class BlockKey(NamedTuple):
    """A block: the object (a frame below the log's root, or a chunk), where in it, and the block's checksum."""

    logged: bool
    path: str
    position: int
    checksum: bytes


class Cache:
    """At most `size` bytes of blocks, with what each costs beside its data: small ones are many. May be used by many
    threads."""

    def __init__(self, size: int = DEFAULT_BYTES) -> None:
        self.size = size
        self.used = 0
        self._blocks: OrderedDict[BlockKey, bytes] = OrderedDict()
        self._lock = threading.Lock()
        self._turns = [threading.Lock() for _ in range(_TURNS)]

    def turn(self, key: BlockKey) -> threading.Lock:
        """The lock to hold while a missing block is fetched, so that threads that need the same block fetch it once."""
        return self._turns[hash(key) % _TURNS]

    def find(self, keys: Iterable[BlockKey]) -> dict[BlockKey, bytes]:
        """Those of the blocks that are here."""
        found = {}
        with self._lock:
            for key in keys:
                data = self._blocks.get(key)
                if data is not None:
                    self._blocks.move_to_end(key)
                    found[key] = data
        return found

    def put(self, blocks: Mapping[BlockKey, bytes]) -> None:
        """Keep blocks, as far as there is room."""
        with self._lock:
            for key, data in blocks.items():
                before = self._blocks.pop(key, None)
                self.used += len(data) - len(before) if before is not None else len(data) + BLOCK_COST
                self._blocks[key] = data
            while self.used > self.size:
                _, data = self._blocks.popitem(last=False)
                self.used -= len(data) + BLOCK_COST
