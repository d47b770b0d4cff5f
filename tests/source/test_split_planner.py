"""The split planner divides any sequence of pieces evenly."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, strategies as st

from pravega_spark.source.split_planner import SplitPlanner, split_count


def split_sizes(pieces: Sequence[int], count: int, grain: int) -> list[int]:
    """The sizes of the splits; pieces are cut at multiples of `grain` bytes within them. 0: not at all."""
    planner = SplitPlanner[int](sum(pieces), count)
    for piece in pieces:
        at = 0
        while at < piece:
            cut = piece if planner.takes(piece - at) or not grain else at + -(-planner.room // grain) * grain
            size = min(cut, piece) - at
            if planner.is_over(size):
                planner.close()
                continue
            planner.add(size, size)
            at += size
    return [sum(split) for split in planner.splits()]


@given(st.lists(st.integers(0, 100_000), max_size=60), st.integers(1, 40))
def test_splits_are_even_where_pieces_can_be_cut(pieces: list[int], count: int) -> None:
    total = sum(pieces)
    splits = split_sizes(pieces, count, 1)
    assert sum(splits) == total
    if total >= 100 * count:
        assert len(splits) == count
        assert total / count * 0.74 <= min(splits) and max(splits) <= total / count * 1.26


@given(st.lists(st.integers(1, 100_000), min_size=1, max_size=60), st.integers(1, 40))
def test_pieces_that_cannot_be_cut_are_packed(pieces: list[int], count: int) -> None:
    """No split is larger than its pieces make it; two that follow each other could not have been one."""
    mean = sum(pieces) / count
    splits = split_sizes(pieces, count, 0)
    assert sum(splits) == sum(pieces)
    assert max(splits) <= 1.6 * mean + 1 or max(splits) < max(pieces) + 1.3 * mean


@pytest.mark.parametrize("count", [1, 7, 1000, 10**9])
def test_cut_at_grains_that_are_larger_than_a_split(count: int) -> None:
    splits = split_sizes([10_000], count, 100)
    assert sum(splits) == 10_000
    assert len(splits) == min(count, 100)


@pytest.mark.parametrize(("total", "splits"), [(0, 1), (1, 1), (100, 1), (125, 1), (126, 2), (225, 2), (226, 3)])
def test_split_count_keeps_splits_below_five_quarters_of_the_size(total: int, splits: int) -> None:
    assert split_count(total, 100) == splits
