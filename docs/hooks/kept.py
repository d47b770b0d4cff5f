"""The reference pages that are kept in docs/, where readers of the repository find them.

`python -m docs.hooks.kept` writes them from the code. A test fails if they are out of date.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from docs.hooks import reference

DOCS = Path(__file__).resolve().parents[1]

PAGES: Mapping[str, Callable[[], str]] = {
    "options.md": reference.options,
    "commands.md": reference.commands,
    "errors.md": reference.errors,
    "metrics.md": reference.metrics,
    "settings.md": reference.settings,
}


def content(name: str) -> str:
    """The expected content of a page."""
    return PAGES[name]().rstrip() + "\n"


def main() -> None:
    """Write all pages."""
    for name in PAGES:
        (DOCS / name).write_text(content(name), "utf-8")


if __name__ == "__main__":
    main()
