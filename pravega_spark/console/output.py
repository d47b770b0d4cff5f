"""What commands print: tables for people, or one JSON document for programs. Times are in UTC."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import click

from engine.admin.progress import Progress, no_progress

_WIDE = 100_000  # columns: what is not for a terminal is not folded

Headings = Mapping[str, str]
"""Keys of rows, and their headings."""


class Output:
    """Where commands print. With `as_json` the document is printed, and texts and tables are not."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json

    def document(self, document: Mapping[str, Any]) -> None:
        """Print the JSON document, if one was asked for."""
        if self.as_json:
            click.echo(json.dumps(document, indent=2))

    def line(self, text: str) -> None:
        """Print a line for people."""
        if not self.as_json:
            click.echo(text)

    def warning(self, text: str) -> None:
        """Print a line that people must not overlook."""
        if not self.as_json:
            click.secho(text, fg="yellow")

    def record(self, document: Mapping[str, Any]) -> None:
        """Print one of many JSON documents, each on its line, at once."""
        click.echo(json.dumps(document))

    def table(self, columns: Headings, rows: Iterable[Mapping[str, Any]], title: str = "") -> None:
        """Print rows for people. Numbers stand to the right."""
        if self.as_json:
            return
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        cells = [[row[key] for key in columns] for row in rows]
        table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        for place, heading in enumerate(columns.values()):
            numbers = bool(cells) and all(_is_number(row[place]) or row[place] is None for row in cells)
            table.add_column(Text(heading), justify="right" if numbers else "left", overflow="fold")
        for row in cells:
            table.add_row(*(Text(shown(cell)) for cell in row))
        width = None if sys.stdout.isatty() else _WIDE
        Console(file=sys.stdout, width=width, highlight=False).print(table)

    def properties(self, values: Mapping[str, Any], labels: Headings) -> None:
        """Print one thing for people, a line for each property."""
        self.table({"name": "property", "value": "value"}, _named(values, labels))

    @contextmanager
    def progress(self, wanted: bool = True) -> Iterator[Progress]:
        """Show progress as a bar on stderr, if that is a terminal: call what is given."""
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


def _named(values: Mapping[str, Any], labels: Headings) -> Sequence[Mapping[str, Any]]:
    return [{"name": label, "value": shown(values[key])} for key, label in labels.items()]


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def shown(value: Any) -> str:
    """A value as people read it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def moment(milliseconds: int | None) -> str | None:
    """A time in ms since the epoch as text (ISO 8601, UTC), None for none."""
    if not milliseconds:
        return None
    seconds, rest = divmod(milliseconds, 1000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{rest:03d}Z"
