"""The cache of blocks: bounded, and what was used least recently goes first."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from engine.storage.cache import BLOCK_COST, BlockKey, Cache


def block(number: int) -> BlockKey:
    return BlockKey(False, "chunk", number, b"sums")


def test_what_was_used_least_recently_goes_first() -> None:
    cache = Cache(size=3 * (10 + BLOCK_COST))
    cache.put({block(number): bytes(10) for number in range(3)})
    assert list(cache.find([block(0)])) == [block(0)]  # used again, so it outlives block 1

    cache.put({block(3): bytes(10)})

    assert list(cache.find([block(number) for number in range(4)])) == [block(0), block(2), block(3)]
    assert cache.used == cache.size


def test_a_block_that_is_put_again_counts_once() -> None:
    cache = Cache(size=3 * (10 + BLOCK_COST))
    for _ in range(5):
        cache.put({block(0): bytes(10)})
    assert cache.used == 10 + BLOCK_COST


def test_a_block_larger_than_the_cache_is_not_kept() -> None:
    cache = Cache(size=5)
    cache.put({block(0): bytes(10)})
    assert cache.find([block(0)]) == {}
    assert cache.used == 0


@pytest.mark.parametrize("length", [1, 32, 1000, 100_000])
def test_the_cache_takes_no_more_memory_than_it_may_however_small_its_blocks_are(length: int) -> None:
    """Index records come in blocks of 32 bytes, and more: what keeps them is larger than they are."""
    cache = Cache(size=2 << 20)
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(10_000):
            path = f"_system/containers/0/wal/{number:020d}"
            key = BlockKey(True, path, 100_000 + number, number.to_bytes(4, "big"))
            cache.put({key: bytes(length)})
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert cache.size / 2 < taken < 1.1 * cache.size, "and it is used"
