"""A limit is divided among streams and segments: nothing of it is lost, and none starves."""

from __future__ import annotations

from hypothesis import given, strategies as st

from pravega_spark.streams.reading.limits import allocate

DEMANDS = st.dictionaries(st.integers(0, 9), st.integers(0, 1000), max_size=6)


def test_a_limit_is_divided_fairly() -> None:
    assert allocate(21, {"a": 100, "b": 1, "c": 100}) == {"a": 10, "b": 1, "c": 10}
    assert allocate(10, {"a": 1, "b": 2}) == {"a": 1, "b": 2}
    assert [allocate(1, {"a": 9, "b": 9, "c": 9}, turn) for turn in range(2)] == [
        {"a": 1, "b": 0, "c": 0},
        {"a": 0, "b": 1, "c": 0},
    ]
    assert allocate(5, {}) == {}


def test_by_weight_all_are_used_up_at_the_same_time() -> None:
    left = {1: 1000, 2: 10, 3: 0}
    assert allocate(101, left, weights=left) == {1: 100, 2: 1, 3: 0}
    assert allocate(2000, left, weights=left) == left
    assert allocate(1, left, weights=left) == {1: 1, 2: 0, 3: 0}


@given(DEMANDS, st.integers(0, 3000), st.integers(0, 9), st.booleans())
def test_nothing_of_a_limit_is_lost(demands: dict[int, int], limit: int, first: int, by_weight: bool) -> None:
    shares = allocate(limit, demands, first, weights=demands if by_weight else None)
    assert shares.keys() == demands.keys()
    assert all(0 <= shares[name] <= demands[name] for name in demands)
    assert sum(shares.values()) == min(limit, sum(demands.values()))
