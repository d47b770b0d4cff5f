"""The output of commands: tables for people, or one JSON document for programs. Times are in UTC.

A table fits a terminal of 80 columns. If long names would make it wider, each row is printed as a record; nothing is
folded. In a pipe a row is one line of any length, unless COLUMNS sets the width. `--wide` adds the omitted columns.
Programs get numbers in bytes and seconds; people get `10 MiB`, `1 h` and `1,000`.

Names, tags, keys and values come from other writers: what people get has no control characters, which a terminal would
execute (`printable`).
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import click

from engine.admin.progress import Progress, no_progress
from pravega_spark.quantities import count_text, duration_text, size_text

_WIDE = 100_000  # columns: output that is not for a terminal is not folded


class Column(NamedTuple):
    """A column of a table: its heading, its format, and whether only wide tables have it."""

    heading: str
    text: Callable[[Any], str] = count_text
    wide: bool = False


def size_column(heading: str, wide: bool = False) -> Column:
    """A column of sizes, given in bytes."""
    return Column(heading, size_text, wide)


def duration_column(heading: str, wide: bool = False) -> Column:
    """A column of durations, given in seconds."""
    return Column(heading, duration_text, wide)


def id_column(heading: str, wide: bool = False) -> Column:
    """A column of identifiers: their digits are not grouped."""
    return Column(heading, str, wide)


Headings = Mapping[str, str | Column]
"""Keys of rows, and their columns. A heading alone is enough for texts and counts."""


class Output:
    """The output of a command. With `as_json` the document is printed, and texts and tables are not.

    wide: print all columns of tables, whatever the width of the terminal.
    """

    def __init__(self, as_json: bool, wide: bool = False) -> None:
        self.as_json = as_json
        self.wide = wide

    def document(self, document: Mapping[str, Any]) -> None:
        """Print the JSON document, with `as_json`."""
        if self.as_json:
            click.echo(json.dumps(document, indent=2))

    def line(self, text: str) -> None:
        """Print a line for people, or several."""
        self._styled(printable(text, "\n\t"))

    def _styled(self, text: str) -> None:
        """Print what has styles, and is printable otherwise."""
        if not self.as_json:
            click.echo(text)

    def warning(self, text: str) -> None:
        """Print a warning."""
        if not self.as_json:
            click.secho(printable(text, "\n\t"), fg="yellow")

    def record(self, document: Mapping[str, Any]) -> None:
        """Print one of many JSON documents, each on its line, at once."""
        click.echo(json.dumps(document))

    def table(self, columns: Headings, rows: Iterable[Mapping[str, Any]], title: str = "") -> None:
        """Print rows for people. Numbers are aligned to the right."""
        rows = list(rows)
        if self.as_json or (title and not rows):  # no title without rows
            return
        from rich import box
        from rich.console import Console
        from rich.measure import Measurement
        from rich.table import Table
        from rich.text import Text

        chosen = {key: _column(found) for key, found in columns.items() if self.wide or not _column(found).wide}
        cells = [[row[key] for key in chosen] for row in rows]
        texts = [[shown(cell, column.text) for cell, column in zip(row, chosen.values(), strict=True)] for row in cells]
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for place, column in enumerate(chosen.values()):
            numbers = bool(cells) and all(_is_number(row[place]) or row[place] is None for row in cells)
            table.add_column(Text(column.heading), justify="right" if numbers else "left", overflow="fold")
        for line in texts:
            table.add_row(*map(Text, line))
        console = Console(file=sys.stdout, width=_WIDE, highlight=False)
        if title:
            self.line(title)  # rich would fold a title of the table
        bounded = not self.wide and (sys.stdout.isatty() or "COLUMNS" in os.environ)
        if bounded and Measurement.get(console, console.options, table).maximum > Console(file=sys.stdout).width:
            self._records([column.heading for column in chosen.values()], texts)
        else:
            console.print(table)

    def _records(self, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """The rows of a table that is wider than the terminal."""
        width = max(map(len, headings))
        for row in rows:
            self.line("")
            for heading, text in zip(headings, row, strict=True):
                self._styled(f"{click.style(heading.ljust(width), bold=True)}  {text}")
        self.line("")  # separates the last record from what follows

    def properties(self, values: Mapping[str, Any], labels: Headings) -> None:
        """Print one thing for people, a line for each property."""
        found = [(_column(column), values[key]) for key, column in labels.items()]
        width = max((len(column.heading) for column, _ in found), default=0)
        for column, value in found:
            self._styled(f"{click.style(column.heading.ljust(width), bold=True)}  {shown(value, column.text)}")

    def copied(self, label: str, text: str) -> None:
        """Print text for copying, such as a stream cut, unbroken on its own line."""
        self._styled(f"{click.style(label, bold=True)}\n{printable(text)}")

    @contextmanager
    def progress(self, wanted: bool = True) -> Iterator[Progress]:
        """A function that shows progress as a bar on stderr, if that is a terminal."""
        if not (wanted and sys.stderr.isatty()):
            yield no_progress
            return
        from rich.console import Console
        from rich.progress import Progress as Bar

        with Bar(console=Console(file=sys.stderr), transient=True) as bar:
            task = bar.add_task("", total=None)

            def show(what: str, done: int, total: int) -> None:
                counted = what if total or not done else f"{what}: {done}"
                bar.update(task, description=counted, completed=done, total=total or None)

            yield show


def _column(found: str | Column) -> Column:
    return found if isinstance(found, Column) else Column(found)


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def shown(value: Any, text: Callable[[Any], str] = count_text) -> str:
    """A value as text for people. text: the format of numbers."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return text(value) if isinstance(value, int | float) else printable(str(value))


def printable(text: str, kept: str = "") -> str:
    """Text with its control characters as escapes, but for those in `kept`."""
    return "".join(char if char.isprintable() or char in kept else repr(char)[1:-1] for char in text)


def moment(milliseconds: int | None) -> str | None:
    """A time in ms since the epoch as text (ISO 8601, UTC), None for none."""
    if not milliseconds:
        return None
    seconds, rest = divmod(milliseconds, 1000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{rest:03d}Z"
