"""The public API is the recorded one: what users import, call and read, as docs/versioning.md promises."""

from __future__ import annotations

import pytest

from docs.hooks import public_api


def test_the_public_api_is_the_recorded_one() -> None:
    """Additions too have to be recorded, as nothing becomes public by accident."""
    recorded = public_api.described(public_api.RECORDED.read_text("utf-8").splitlines())
    found = public_api.compared(recorded, public_api.described(public_api.facts()))
    assert not any(found), f"\n{public_api.report(found)}"


def test_what_public_calls_take_and_return_can_be_imported() -> None:
    assert public_api.unexported() == {}


OLD = {"== Python: m": ["class A", "A.call() -> int", "A.call(0: first: int)", "pravega-spark go", "opt in read"]}


@pytest.mark.parametrize(
    ("more", "compatible"),
    [
        ("A.call(1: second: int = 1)", True),
        ("A.call(by name: second: int = 1)", True),
        ("A.call(by name: **more: Any)", True),
        ("A.other(0: first: int)", True),
        ("class B", True),
        ("pravega-spark stop --name NAME, required", True),
        ("pravega-spark go --name NAME", True),
        ("A.call(1: second: int)", False),
        ("A.call(by name: second: int)", False),
        ("pravega-spark go --name NAME, required", False),
        ("pravega-spark go argument 0: NAME", False),
        ("pravega-spark go argument 0: [NAME]", True),
    ],
)
def test_additions_are_compatible_unless_callers_have_to_give_them(more: str, compatible: bool) -> None:
    (section, lines) = next(iter(OLD.items()))
    found = public_api.compared(OLD, {section: [*lines, more]})
    assert found.added == [f"Python: m: {more}"] and found.removed == []
    assert found.compatible is compatible
    assert more in public_api.report(found)


@pytest.mark.parametrize("line", OLD["== Python: m"])
def test_what_is_gone_or_changed_is_not_compatible(line: str) -> None:
    (section, lines) = next(iter(OLD.items()))
    found = public_api.compared(OLD, {section: [each for each in lines if each != line]})
    assert not found.compatible and found.removed == [f"Python: m: {line}"]
    assert f"- Python: m: {line}" in public_api.report(found)


def test_a_section_that_is_gone_is_not_compatible() -> None:
    assert len(public_api.compared(OLD, {}).removed) == len(OLD["== Python: m"])
