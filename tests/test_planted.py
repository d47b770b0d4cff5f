"""The planted breakages fit the product as it is: each quotes a place that is there once."""

from __future__ import annotations

from tests.planted.__main__ import TREE, chosen


def test_each_planted_breakage_quotes_a_place_that_is_there_once() -> None:
    stale = [each.name for each in chosen([]) if (TREE / each.file).read_text("utf-8").count(each.old) != 1]
    assert not stale, "write in tests/planted what these lines are now"
