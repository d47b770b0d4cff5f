"""The page that compares Pravega's API with this one: all that it names of this one exists, and is used by tests or
examples."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import pravega_spark
from pravega_spark.serve.openapi import openapi
from pravega_spark.serve.settings import ServeSettings

PROJECT = Path(__file__).resolve().parents[2]
PAGE = PROJECT / "docs" / "pravega-api.md"
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


def test_what_is_named_exists() -> None:
    missing = [name for name in NAMES if not exists(Named.of(name))]
    assert not missing, f"the page names what does not exist: {', '.join(missing)}"


class Named(NamedTuple):
    """A public name, of which a member and a parameter may be meant."""

    name: str
    member: str | None
    parameter: str | None

    @classmethod
    def of(cls, text: str) -> Named:
        match = NAME.fullmatch(text)
        assert match, text
        return cls(*match.group("name", "member", "parameter"))


def exists(named: Named) -> bool:
    if named.name not in pravega_spark.__all__:
        return False
    found = getattr(pravega_spark, named.name)
    if named.member is not None:
        if named.member not in members(found):
            return False
        found = getattr(found, named.member, None)
    return named.parameter is None or named.parameter in inspect.signature(found).parameters


def members(kind: type) -> set[str]:
    """The names of its attributes, also of those that only its objects have."""
    fields = {field.name for field in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else set()
    return {*dir(kind), *fields, *(name for each in kind.__mro__ for name in vars(each).get("__annotations__", ()))}


def test_what_is_named_is_used_by_a_test_or_an_example() -> None:
    unused = [name for name in NAMES if not is_used(Named.of(name))]
    assert not unused, f"write tests that use {', '.join(unused)}"


def is_used(named: Named) -> bool:
    if named.name not in pravega_spark.__all__:
        return False
    programs = [program for program in sources() if deals_with(program, named.name)]
    if named.member is None:  # the parameters of a class are given in their order, too
        return bool(programs)
    is_called = callable(getattr(getattr(pravega_spark, named.name), named.member, None))
    programs = [each for each in programs if named.member in (each.calls if is_called else each.attributes)]
    return any(named.parameter is None or named.parameter in each.parameters for each in programs)


class Program(NamedTuple):
    """The names in a test or an example: all, and those that follow a dot, are called after a dot, are given a value in
    a call."""

    words: set[str]
    attributes: set[str]
    calls: set[str]
    parameters: set[str]


@functools.cache
def sources() -> tuple[Program, ...]:
    """All tests and examples, but not this module."""
    paths = [*(PROJECT / "tests").rglob("*.py"), *(PROJECT / "examples").glob("*.py")]
    texts = [path.read_text("utf-8") for path in paths if path != Path(__file__).resolve()]
    patterns = r"\w+", r"\.(\w+)", r"\.(\w+)\(", r"\w+(?==)|(?<=\")\w+(?=\":)"
    return tuple(Program(*(set(re.findall(pattern, text)) for pattern in patterns)) for text in texts)


def deals_with(program: Program, name: str) -> bool:
    """Whether a program names a class, or calls what returns its objects. So `flush` of a file is not that of a
    writer."""
    kind = getattr(pravega_spark, name)
    if not inspect.isclass(kind):
        return name in program.words
    return bool(names_of_class(name) & program.words or makers()[kind.__name__] & program.calls)


@functools.cache
def names_of_class(name: str) -> set[str]:
    """All public names of a class, of which some have two."""
    kind = getattr(pravega_spark, name)
    return {each for each in pravega_spark.__all__ if getattr(pravega_spark, each) is kind}


@functools.cache
def makers() -> defaultdict[str, set[str]]:
    """The public methods that return objects of a class, by its name."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for kind in filter(inspect.isclass, (getattr(pravega_spark, name) for name in pravega_spark.__all__)):
        for method, function in inspect.getmembers(kind, inspect.isroutine):
            returned = getattr(function, "__annotations__", {}).get("return", "")
            for each in [] if method.startswith("_") else re.findall(r"\w+", str(returned)):
                found[each].add(method)
    return found


def test_each_request_is_an_operation_of_the_server() -> None:
    paths = openapi(ServeSettings())["paths"]
    known = {f"{method.upper()} {path}" for path, operations in paths.items() for method in operations}
    assert set(REQUESTS) - known == set()


def test_a_row_of_the_page_is_read_as_it_is_written() -> None:
    page = f"## Java client\n\n### A\n\n{HEADER}\n| --- | --- | --- | --- |\n| `a`, `b` | `C.d` | differs | why |\n"
    assert rows(page) == [Row("Java client", "A", ("a", "b"), ("C.d",), "differs", "why")]
    assert rows(page.replace(HEADER, "| another | table | than | these |")) == []
