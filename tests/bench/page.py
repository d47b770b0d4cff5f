"""The tables of docs/performance.md, made from the figures of runs: `python -m tests.bench.page [FILE]`.

They are kept in docs/performance.json, from which the page is made. The parts of FILE (see `figures`) take the place of
the same parts of earlier runs there.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[2] / "docs"
KEPT, PAGE = DOCS / "performance.json", DOCS / "performance.md"
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
UNITS = {"_ms": " (ms)", "_us": " (µs)", "MB_s": "MB/s", "_s": "/s"}


def tables(run: dict[str, Any]) -> str:
    """All figures of a run as Markdown."""
    versions = ", ".join(f"{name} {version}" for name, version in run["versions"].items())
    about = f"Of {run['date']}: {run['machine']}; Python {run['python']}, {versions}; commit {run['commit'][:7]}."
    parts = [about]
    for part, found in by_part(run).items():
        lines = _compared(found) if "shares" in found[0] else _told(found)
        parts.append("\n".join([f"### {part.capitalize()}", "", *lines]))
    return "\n\n".join(parts)


def by_part(run: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The figures of a run by their parts."""
    found: dict[str, list[dict[str, Any]]] = {}
    for figure in run["figures"]:
        found.setdefault(figure["part"], []).append(figure)
    return found


def with_run(runs: list[dict[str, Any]], run: dict[str, Any]) -> list[dict[str, Any]]:
    """The runs with one more, the newest first, without what it measured again."""
    again = by_part(run).keys()
    older = [{**each, "figures": [one for one in each["figures"] if one["part"] not in again]} for each in runs]
    return [run, *(each for each in older if each["figures"])]


def with_tables(page: str, runs: list[dict[str, Any]]) -> str:
    """The page with the tables of `runs` in the place of those that it has."""
    before, rest = page.split(BEGIN)
    shown = "\n\n".join(map(tables, runs))
    return f"{before}{BEGIN}\n\n{shown}\n\n{END}{rest.split(END)[1]}"


def _compared(found: list[dict[str, Any]]) -> Iterator[str]:
    names = list(dict.fromkeys(figure["of"] for figure in found))
    yield from _row(["median ms (share of the ceiling: best, median)", *names], head=True)
    for what, row in groupby(found, lambda figure: figure["what"]):
        cells = {figure["of"]: figure for figure in row}
        yield from _row([what, *(_cell(cells[name]) if name in cells else "" for name in names)])


def _cell(figure: dict[str, Any]) -> str:
    best, median = figure["shares"]
    milliseconds = figure["median"] * 1000
    return f"{milliseconds:,.{2 if milliseconds < 10 else 0}f} ({best:.2f}, {median:.2f})"


def _told(found: list[dict[str, Any]]) -> Iterator[str]:
    names = list(dict.fromkeys(name for figure in found for name in figure if name not in ("part", "what")))
    yield from _row(["", *map(_title, names)], head=True)
    for figure in found:
        yield from _row([figure["what"], *(f"{figure[name]:,.6g}" if name in figure else "" for name in names)])


def _title(name: str) -> str:
    end, unit = next(((end, unit) for end, unit in UNITS.items() if name.endswith(end)), ("", ""))
    return f"{name.removesuffix(end)}{unit}".replace("_", " ")


def _row(cells: Iterable[str], head: bool = False) -> Iterator[str]:
    shown = list(cells)
    yield f"| {' | '.join(shown)} |"
    if head:
        yield f"| --- |{' ---: |' * (len(shown) - 1)}"


if __name__ == "__main__":
    kept = json.loads(KEPT.read_text("utf-8"))
    for file in sys.argv[1:]:
        kept = with_run(kept, json.loads(Path(file).read_text("utf-8")))
    KEPT.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")
    PAGE.write_text(with_tables(PAGE.read_text("utf-8"), kept), "utf-8")
