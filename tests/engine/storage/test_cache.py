"""The cache of blocks: bounded, and what was used least recently goes first."""

from __future__ import annotations

from engine.storage.cache import BlockKey, Cache


def block(number: int) -> BlockKey:
    return BlockKey(False, "chunk", number, b"sums")


def test_what_was_used_least_recently_goes_first() -> None:
    cache = Cache(size=30)
    cache.put({block(number): bytes(10) for number in range(3)})
    assert list(cache.find([block(0)])) == [block(0)]  # used again, so it outlives block 1

    cache.put({block(3): bytes(10)})

    assert list(cache.find([block(number) for number in range(4)])) == [block(0), block(2), block(3)]
    assert cache.used == 30


def test_a_block_that_is_put_again_counts_once() -> None:
    cache = Cache(size=30)
    for _ in range(5):
        cache.put({block(0): bytes(10)})
    assert cache.used == 10


def test_a_block_larger_than_the_cache_is_not_kept() -> None:
    cache = Cache(size=5)
    cache.put({block(0): bytes(10)})
    assert cache.find([block(0)]) == {}
    assert cache.used == 0
