"""How a sequence of pieces is divided, whatever their sizes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, strategies as st

from pravega_spark.source.even_shares import EvenShares, shares_of


def divided(pieces: Sequence[int], count: int, grain: int) -> list[int]:
    """The sizes of the shares; pieces are cut at multiples of `grain` bytes within them. 0: not at all."""
    shares: dict[int, int] = {}
    even = EvenShares(sum(pieces), count)
    for piece in pieces:
        at = 0
        while at < piece:
            cut = piece if even.takes(piece - at) or not grain else at + -(-even.room // grain) * grain
            size = min(cut, piece) - at
            if even.is_over(size):
                even.close()
                continue
            shares[even.number] = shares.get(even.number, 0) + size
            even.take(size)
            at += size
    return list(shares.values())


@given(st.lists(st.integers(0, 100_000), max_size=60), st.integers(1, 40))
def test_shares_are_even_where_pieces_can_be_cut(pieces: list[int], count: int) -> None:
    total = sum(pieces)
    shares = divided(pieces, count, 1)
    assert sum(shares) == total
    if total >= 100 * count:
        assert len(shares) == count
        assert total / count * 0.74 <= min(shares) and max(shares) <= total / count * 1.26


@given(st.lists(st.integers(1, 100_000), min_size=1, max_size=60), st.integers(1, 40))
def test_pieces_that_cannot_be_cut(pieces: list[int], count: int) -> None:
    """No share is larger than its pieces make it; two that follow each other could not have been one."""
    mean = sum(pieces) / count
    shares = divided(pieces, count, 0)
    assert sum(shares) == sum(pieces)
    assert max(shares) <= 1.6 * mean + 1 or max(shares) < max(pieces) + 1.3 * mean


@pytest.mark.parametrize("count", [1, 7, 1000, 10**9])
def test_cut_at_grains_that_are_larger_than_a_share(count: int) -> None:
    shares = divided([10_000], count, 100)
    assert sum(shares) == 10_000
    assert len(shares) == min(count, 100)


@pytest.mark.parametrize(("total", "shares"), [(0, 1), (1, 1), (100, 1), (125, 1), (126, 2), (225, 2), (226, 3)])
def test_how_many_shares(total: int, shares: int) -> None:
    assert shares_of(total, 100) == shares
