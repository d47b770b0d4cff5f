"""The page that compares Pravega's API with this one: what it names of ours is there, and tests or examples call it."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import pravega_spark
from pravega_spark.serve.openapi import openapi
from pravega_spark.serve.settings import ServeSettings

PROJECT = Path(__file__).resolve().parents[2]
PAGE = PROJECT / "docs" / "pravega-api.md"
NEVER = r"(?!)"
"""Matches nothing."""
HEADER = "| Pravega | here | status | reason |"
STATUSES = {"same", "differs", "left out"}
NAME = re.compile(r"(?P<name>\w+)(?:\.(?P<member>\w+))?(?:\((?P<parameter>\w+)=\))?")
"""`StreamManager`, `StreamManager.create_scope`, or with a parameter `StreamManager.delete_scope(force=)`."""


class Row(NamedTuple):
    """theirs, ours: what stands in code marks in the first and the second cell."""

    part: str
    section: str
    theirs: tuple[str, ...]
    ours: tuple[str, ...]
    status: str
    reason: str


def rows(text: str) -> list[Row]:
    """The rows of all tables with the header of a comparison."""
    found = []
    part = section = ""
    comparing = False
    for line in text.splitlines():
        if line.startswith("#"):
            level, _, title = line.partition(" ")
            part, section = (title, "") if level == "##" else (part, title)
        comparing = line.startswith("|") and (comparing or line == HEADER)
        if comparing and line != HEADER and not line.startswith("| ---"):
            theirs, ours, status, reason = (cell.strip() for cell in line.strip("|").split("|"))
            found.append(Row(part, section, spans(theirs), spans(ours), status, reason))
    return found


def spans(cell: str) -> tuple[str, ...]:
    return tuple(re.findall(r"`([^`]+)`", cell))


ROWS = rows(PAGE.read_text("utf-8"))
REST = "REST"
NAMES = sorted({name for row in ROWS if row.part != REST for name in row.ours})
REQUESTS = sorted({request for row in ROWS if row.part == REST for request in row.ours})


def test_each_row_has_a_status_and_a_difference_has_a_reason() -> None:
    assert len(ROWS) > 200 and {row.part for row in ROWS} == {"Java client", "Python package", REST}
    for row in ROWS:
        assert row.theirs and row.status in STATUSES, row
        assert row.status == "same" or row.reason, row
        assert bool(row.ours) == (row.status != "left out"), row


def test_no_call_has_two_rows() -> None:
    found = [(row.part, row.section, name) for row in ROWS for name in row.theirs]
    assert [each for each in found if found.count(each) > 1] == []


@pytest.mark.parametrize("name", NAMES)
def test_what_is_named_exists(name: str) -> None:
    match = NAME.fullmatch(name)
    assert match, name
    found = getattr(pravega_spark, match["name"])
    if match["member"]:
        assert match["member"] in members(found), name
        found = getattr(found, match["member"], None)
    if match["parameter"]:
        assert match["parameter"] in inspect.signature(found).parameters, name


def members(kind: type) -> set[str]:
    """The names of its attributes, also of those that only its objects have."""
    fields = {field.name for field in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else set()
    return {*dir(kind), *fields, *(name for each in kind.__mro__ for name in vars(each).get("__annotations__", ()))}


@pytest.mark.parametrize("name", NAMES)
def test_what_is_named_is_used_by_a_test_or_an_example(name: str) -> None:
    match = NAME.fullmatch(name)
    assert match, name
    kind, member, parameter = getattr(pravega_spark, match["name"]), match["member"], match["parameter"]
    used = rf"\b{match['name']}\b" if member is None else rf"\.{member}\b"
    if member is not None and callable(getattr(kind, member, None)):
        used += r"\("
    # The parameters of a class are given in their order, too.
    given = "" if member is None or parameter is None else rf"\b{parameter}=|\"{parameter}\":"
    assert any(re.search(used, text) and re.search(given, text) for text in programs_with(match["name"])), (
        f"{name}: write a test that uses it"
    )


@functools.cache
def programs_with(name: str) -> tuple[str, ...]:
    """The texts of the tests and examples that have to do with a class: they name it, or call what returns its objects.
    So `flush` of a file is not that of a writer."""
    kind = getattr(pravega_spark, name)
    if not inspect.isclass(kind):
        return sources()
    names = [each for each in pravega_spark.__all__ if getattr(pravega_spark, each) is kind]
    pattern = re.compile(rf"\b({'|'.join(names)})\b|\.({'|'.join(makers()[kind.__name__])})\(")
    return tuple(text for text in sources() if pattern.search(text))


@functools.cache
def sources() -> tuple[str, ...]:
    """The texts of all tests and examples, but not of this module."""
    paths = [*(PROJECT / "tests").rglob("*.py"), *(PROJECT / "examples").glob("*.py")]
    return tuple(path.read_text("utf-8") for path in paths if path != Path(__file__).resolve())


@functools.cache
def makers() -> dict[str, list[str]]:
    """The public methods that return objects of a class, by its name."""
    found: dict[str, list[str]] = defaultdict(lambda: [NEVER])
    for name in pravega_spark.__all__:
        kind = getattr(pravega_spark, name)
        if not inspect.isclass(kind):
            continue
        for method, function in inspect.getmembers(kind, inspect.isroutine):
            if method.startswith("_"):
                continue
            for returned in re.findall(r"\w+", str(getattr(function, "__annotations__", {}).get("return", ""))):
                found[returned].append(method)
    return found


def test_each_request_is_an_operation_of_the_server() -> None:
    paths = openapi(ServeSettings())["paths"]
    known = {f"{method.upper()} {path}" for path, operations in paths.items() for method in operations}
    assert REQUESTS and set(REQUESTS) <= known


def test_a_row_of_the_page_is_read_as_it_is_written() -> None:
    page = f"## Java client\n\n### A\n\n{HEADER}\n| --- | --- | --- | --- |\n| `a`, `b` | `C.d` | differs | why |\n"
    assert rows(page) == [Row("Java client", "A", ("a", "b"), ("C.d",), "differs", "why")]
    assert rows(page.replace(HEADER, "| another | table | than | these |")) == []
