"""HTML tables for notebooks: how values of streams show in Jupyter, by their method `_repr_html_`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import islice

MOST_ROWS = 20
"""Default number of rows; the number of further rows is printed below."""


def html_table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[object]], most: int = MOST_ROWS) -> str:
    """A table as HTML, of `most` rows at most. Everything is escaped; numbers are aligned at the right."""
    remaining = iter(rows)
    lines = ["".join(map(_cell, row)) for row in islice(remaining, most)]
    more = sum(1 for _ in remaining)
    if more:
        lines.append(f'<td colspan="{len(columns)}">and {more} more</td>')
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: object) -> str:
    align = "right" if isinstance(value, int | float) else "left"
    return f'<td style="text-align: {align}">{escape(str(value))}</td>'
