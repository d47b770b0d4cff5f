"""The table in docs/spark-options-by-version.md: what each option does in each of its uses, with each version of Spark.

Tests observe it with the Spark that runs, and compare it with the column of that version. With the option
`--options-by-version write` the session writes the cells that it has observed instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from pathlib import Path

import pytest

from pravega_spark.source.option_table import OPTIONS

PAGE = Path(__file__).parent.parent / "docs" / "spark-options-by-version.md"
BEGIN, END = "<!-- begin: made by make options-by-version -->\n", "<!-- end -->\n"
FLAG = "--options-by-version"
PROPERTY = "option outcome"

USES = {
    "batch read": "read",
    "stream read": "readStream",
    "batch write": "write",
    "stream write": "writeStream",
    "metadata": "metadata",
    "table": "SQL",
}
"""The uses, in the order of the table, and how the table calls them."""

Key = tuple[str, str]
"""An option and a use."""

Columns = dict[str, dict[Key, str]]
"""What an option does in a use, by the version of Spark."""

_UNKNOWN = "?"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(FLAG, choices=("write",), help=f"write the column of the running Spark into docs/{PAGE.name}")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption(FLAG) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_ColumnWriter())


class _ColumnWriter:
    """Collects the outcomes of a session, those of its worker processes included, and writes them into the page. What
    a failed test should have observed stays as it is."""

    def __init__(self) -> None:
        self.found: Columns = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties:
            if name == PROPERTY:
                assert isinstance(value, list)
                version, option, use, cell = value
                self.found.setdefault(version, {})[option, use] = cell

    def pytest_sessionfinish(self) -> None:
        text = PAGE.read_text("utf-8")
        columns = columns_of(text)
        for version, found in self.found.items():
            columns[version] = {**columns.get(version, {}), **found}
        PAGE.write_text(with_columns(text, columns), "utf-8")


def columns_of(text: str) -> Columns:
    """The columns of the table of a page."""
    lines = [
        [cell.strip() for cell in line.strip().strip("|").split("|")]
        for line in text.partition(BEGIN)[2].partition(END)[0].splitlines()
    ]
    if not lines:
        return {}
    by_word = {word: use for use, word in USES.items()}
    columns: Columns = {version: {} for version in lines[0][2:]}
    for option, words, *cells in lines[2:]:
        for version, cell in zip(columns, cells, strict=True):
            if cell != _UNKNOWN:
                columns[version] |= {(option.strip("`"), by_word[word]): cell for word in words.split(", ")}
    return columns


def with_columns(text: str, columns: Columns) -> str:
    """The page with another table."""
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + _table(columns) + END + rest.partition(END)[2]


def _table(columns: Columns) -> str:
    versions = sorted(columns, key=lambda version: tuple(map(int, version.split("."))))
    lines = [["option", "used in", *versions], ["---"] * (2 + len(versions))]
    for option in (option.name for option in OPTIONS):
        keys = [(option, use) for use in USES if any((option, use) in columns[version] for version in versions)]
        cells = {key: tuple(columns[version].get(key, _UNKNOWN) for version in versions) for key in keys}
        lines += [
            [f"`{option}`", ", ".join(USES[use] for _, use in some), *row] for row, some in _by_outcome(keys, cells)
        ]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _by_outcome(
    keys: Iterable[Key], cells: Mapping[Key, tuple[str, ...]]
) -> Iterable[tuple[tuple[str, ...], list[Key]]]:
    """The uses of an option that have the same outcomes, as one row; the row of the first use first."""
    order = list(dict.fromkeys(cells.values()))
    ordered = sorted(keys, key=lambda key: order.index(cells[key]))
    return ((row, list(some)) for row, some in groupby(ordered, cells.__getitem__))
