"""The page of figures is what `tests.bench.page` makes of docs/performance.json."""

from __future__ import annotations

import json

from tests.bench.page import KEPT, PAGE, with_run, with_tables


def test_the_page_has_the_figures_of_the_runs_that_are_kept() -> None:
    page = PAGE.read_text("utf-8")
    assert with_tables(page, json.loads(KEPT.read_text("utf-8"))) == page


def test_a_table_has_a_row_for_what_was_measured_and_a_column_for_who_took_part() -> None:
    figures = [
        {"part": "read", "what": "1 row", "of": "no-op", "best": 0.1, "median": 0.2, "shares": [1, 1]},
        {"part": "read", "what": "1 row", "of": "pravega", "best": 0.2, "median": 0.25, "shares": [0.5, 0.8]},
        {"part": "client", "what": "one at a time", "p50_ms": 1234.5, "MB_s": 7.0},
    ]
    about = {
        "date": "2026-01-31",
        "commit": "0123456789",
        "machine": "2 CPUs",
        "python": "3.12",
        "versions": {"a": "1"},
    }
    assert with_tables(f"# A page\n{PAGE_MARKS} more", [{**about, "figures": figures}]) == (
        "# A page\n<!-- figures: begin -->\n\n"
        "Of 2026-01-31: 2 CPUs; Python 3.12, a 1; commit 0123456.\n\n"
        "### Read\n\n"
        "| median ms (share of the ceiling: best, median) | no-op | pravega |\n"
        "| --- | ---: | ---: |\n"
        "| 1 row | 200 (1.00, 1.00) | 250 (0.50, 0.80) |\n\n"
        "### Client\n\n"
        "|  | p50 (ms) | MB/s |\n"
        "| --- | ---: | ---: |\n"
        "| one at a time | 1,234.5 | 7 |\n\n"
        "<!-- figures: end --> more"
    )


def test_a_newer_run_takes_the_place_of_what_it_measured_again() -> None:
    old = {"commit": "old", "figures": [{"part": "read", "a": 1}, {"part": "client", "a": 2}]}
    new = {"commit": "new", "figures": [{"part": "client", "a": 3}]}
    both = with_run([old], new)
    assert both == [new, {"commit": "old", "figures": [{"part": "read", "a": 1}]}]
    assert with_run(both, {**old, "commit": "newest"}) == [{**old, "commit": "newest"}]


PAGE_MARKS = "<!-- figures: begin --><!-- figures: end -->"
