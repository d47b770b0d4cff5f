"""The planted breakages fit the product as it is: each quotes a place that is there once."""

from __future__ import annotations

import re

from tests.planted.__main__ import TREE, chosen


def test_each_planted_breakage_quotes_a_place_that_is_there_once() -> None:
    stale = [each.name for each in chosen([]) if (TREE / each.file).read_text("utf-8").count(each.old) != 1]
    assert not stale, "write in tests/planted what these lines are now"


def test_each_planted_breakage_names_tests_that_are_there() -> None:
    missing = [(each.name, named) for each in chosen([]) for named in each.tests if not _is_there(named)]
    assert not missing, "pytest would find no test, and the breakage would be reported as unusable"


def _is_there(named: str) -> bool:
    """Whether an argument of pytest names a file, and a test in it; of an inherited test the class is enough."""
    path, _, test = named.partition("::")
    if not path.startswith("tests/"):
        return True  # an option, or its value
    if not (TREE / path).exists():
        return False
    name = test.partition("[")[0].partition("::")[0]
    return (
        not name or re.search(rf"(def |class |^){name}\b", (TREE / path).read_text("utf-8"), re.MULTILINE) is not None
    )
