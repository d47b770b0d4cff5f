"""Routing of keys to segments: the hash of a routing key, and the key ranges that segments own.

The hash equals the original's for every key, so a key has the same segment for every writer. `key_columns` hashes
whole columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from pravega_spark.streams.model.hashing import murmur64

SEED = 1741865571
_FEW_RANGES = 32


def hash_key(key: str) -> float:
    """The hash of a routing key, in [0, 1)."""
    return (murmur64(key, SEED) >> 12) / 2**52


def even_ranges(count: int) -> list[tuple[float, float]]:
    """The (low, high] key ranges of a new stream with `count` segments; the last bound is exactly 1.0."""
    if count <= 0:
        raise ValueError(f"a stream needs at least one segment, not {count}")
    width = 1.0 / count
    # count * (1 / count) is a little below 1.0 for some counts, 49 the first, and would leave keys without a segment.
    bounds = [*(number * width for number in range(count)), 1.0]
    return list(pairwise(bounds))


def segment_for(
    fractions: np.ndarray, upper_bounds: Sequence[float] | np.ndarray, random: np.random.Generator | None = None
) -> np.ndarray:
    """The index of the range (low, high] that owns each fraction; 0.0 belongs to the first range.

    `upper_bounds` are the ranges' upper bounds in ascending order, the last one 1.0. A NaN fraction (a row without a
    key) goes to a place drawn from `random` uniformly over the key space. ValueError for bounds that do not cover the
    key space, and for NaN when no generator is given.
    """
    bounds = _checked_bounds(upper_bounds)
    keyless = np.isnan(fractions)
    if keyless.any():
        if random is None:
            raise ValueError("a row has no routing key: pass a random generator to spread such rows")
        fractions = np.where(keyless, random.random(len(fractions)), fractions)
    if len(bounds) > _FEW_RANGES:
        return np.searchsorted(bounds, fractions, side="left")
    found = np.zeros(len(fractions), np.uint8)
    for bound in bounds[:-1]:  # a pass for each bound is faster than a search for each key
        found += fractions > bound
    return found


def _checked_bounds(upper_bounds: Sequence[float] | np.ndarray) -> np.ndarray:
    bounds = np.asarray(upper_bounds, dtype=np.float64)
    if bounds.size == 0 or not bounds[-1] >= 1.0:
        raise ValueError("Last segment missing. The key ranges must reach 1.0.")
    if not bounds[0] > 0.0 or not bounds[-1] < 1.00001 or not np.all(bounds[1:] > bounds[:-1]):
        raise ValueError("the upper bounds of key ranges must ascend from above 0.0 to 1.0")
    return bounds
