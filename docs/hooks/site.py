"""What `mkdocs build` does besides rendering docs/: it adds the pages that are made from something else.

The reference comes from the code, README, CONTRIBUTING and CHANGELOG from the root of the repository, the examples and
notebooks from their files. None of these pages is kept, so none can be out of date.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from docs.hooks import notebooks, reference

PROJECT = Path(__file__).resolve().parents[2]

REPOSITORY_PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""Files of the repository that are pages of the site."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made."""
    for name, content in pages(execute=os.environ.get("NOTEBOOKS") == "1").items():
        files.append(File.generated(config, name, content=content))
    return files


def pages(execute: bool = False) -> dict[str, str]:
    """The content of each page or file that is made, by its path. execute: run the notebooks, which takes minutes."""
    made = {name: from_repository(source) for source, name in REPOSITORY_PAGES.items()}
    made |= {
        "LICENSE": (PROJECT / "LICENSE").read_text("utf-8"),
        "options.md": reference.options(),
        "commands.md": reference.commands(),
        "errors.md": reference.errors(),
        "metrics.md": reference.metrics(),
        "log-operations.md": reference.operations(),
        "api.md": reference.api(),
        "examples.md": reference.examples(PROJECT / "examples"),
    }
    for path in sorted((PROJECT / "notebooks").glob("*.ipynb")):
        made[f"notebook-{path.stem}.md"] = notebooks.page(path, execute)
    return made


def from_repository(name: str) -> str:
    """A file of the repository's root, its links changed to those of the site."""
    return re.sub(r"(\]\(|src=\")([^)\"#:]+)(#[^)\"]*)?(?=[)\"])", _site_link, (PROJECT / name).read_text("utf-8"))


def _site_link(match: re.Match[str]) -> str:
    opening, target, anchor = match[1], match[2], match[3] or ""
    if target in REPOSITORY_PAGES:
        return f"{opening}{REPOSITORY_PAGES[target]}{anchor}"
    if target.startswith("docs/"):
        return f"{opening}{target.removeprefix('docs/')}{anchor}"
    if target.startswith("examples"):
        return f"{opening}examples.md"
    if target.startswith("notebooks"):
        return f"{opening}notebook-first_steps.md"
    return f"{opening}{target}{anchor}"
