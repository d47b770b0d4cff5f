"""The page of invariants names modules and tests that exist, and the code cites invariants that the page has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

PROJECT = Path(__file__).resolve().parents[2]
PAGE = (PROJECT / "docs" / "invariants.md").read_text("utf-8")

_HEADING = re.compile(r"^#{3,4} <a id=\"(?P<anchor>[\w-]+)\"></a>(?P<title>.+)$", re.MULTILINE)
_NUMBER = re.compile(r"[PWSXFGL]\d+(?:\.\d+)?")


class Rule(NamedTuple):
    """A heading of the page and the text below it."""

    anchor: str
    title: str
    text: str

    @property
    def number(self) -> str:
        found = _NUMBER.match(self.title)
        return found[0] if found else ""


def rules(page: str) -> list[Rule]:
    """The rules of a page, in its order."""
    _, *parts = _HEADING.split(page)
    return [Rule(*parts[index : index + 3]) for index in range(0, len(parts), 3)]


def cited(text: str) -> Iterator[tuple[str, str]]:
    """Each path of the repository between backticks, and the name of the test behind its `::`, or ""."""
    yield from re.findall(r"`((?:chunkstore|engine|pravega_spark|tests)/[\w/.-]+)(?:::(\w+))?`", text)


def missing(text: str) -> set[str]:
    """The paths and tests that a text cites and the repository does not have."""
    return {
        f"{path}::{name}"
        for path, name in cited(text)
        if not (PROJECT / path).exists() or (name and not _has_test(PROJECT / path, name))
    }


def _has_test(path: Path, name: str) -> bool:
    return re.search(rf"^ *(?:async )?def {name}\(", path.read_text("utf-8"), re.MULTILINE) is not None


def test_every_path_and_test_exists() -> None:
    assert missing("`engine/logs/none.py`, `tests/docs/test_site.py::test_none`, `tests/docs`") == {
        "engine/logs/none.py::",
        "tests/docs/test_site.py::test_none",
    }
    assert len([*cited(PAGE)]) > 150
    assert missing(PAGE) == set()


@pytest.mark.parametrize("page", sorted((PROJECT / "docs").rglob("*.md")), ids=lambda page: page.stem)
def test_other_pages_cite_what_exists_too(page: Path) -> None:
    assert missing(page.read_text("utf-8")) == set()


def test_every_class_and_function_exists() -> None:
    """Names that stand beside a path: `whole_ends` in `path`, `Store.sync` (`path`), `path` (`ContainerId`)."""
    beside = re.findall(r"`([\w.]+)`,? (?:in |\()`([\w/]+\.py)`", PAGE)
    beside += [(name, path) for path, name in re.findall(r"`([\w/]+\.py)` \(`(\w+)`\)", PAGE)]
    assert len(beside) > 8
    for name, path in beside:
        source = (PROJECT / path).read_text("utf-8")
        for word in name.split("."):
            assert re.search(rf"^ *(?:class|def) {word}\b", source, re.MULTILINE), (name, path)


def test_every_rule_says_what_keeps_it_and_what_shows_it() -> None:
    for rule in rules(PAGE):
        kept, shown = rule.text.find("\n- Kept by: "), rule.text.find("\n- Shown by: ")
        assert 0 < kept < shown, rule.title
        assert "`tests/" in rule.text[shown:] or "chunkstore/testing/" in rule.text[shown:], rule.title


def test_anchors_are_the_numbers() -> None:
    anchors = [rule.anchor for rule in rules(PAGE)]
    assert len(anchors) == len(set(anchors)) == PAGE.count("<a id=")
    for rule in rules(PAGE):
        if rule.number:
            assert rule.anchor == rule.number.lower().replace(".", "-")


def test_the_code_cites_rules_of_the_page() -> None:
    numbers = {rule.number for rule in rules(PAGE)} - {""}
    assert len(numbers) > 50
    for package in ("chunkstore", "engine", "pravega_spark"):
        for path in (PROJECT / package).rglob("*.py"):
            for found in re.findall(rf"\(({_NUMBER.pattern}(?:, {_NUMBER.pattern})*)[),:;]", path.read_text("utf-8")):
                assert set(found.split(", ")) <= numbers, (path.name, found)
