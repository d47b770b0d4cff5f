"""What `mkdocs build` does besides rendering docs/: it adds the pages that are made from something else.

The Python API and the operations of the log come from the code, README, CONTRIBUTING and CHANGELOG from the root of the
repository, the examples and notebooks from their files. None of these pages is kept, so none can be out of date; those
of the reference that are kept are checked (`docs.hooks.kept`).
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from docs.hooks import notebooks, reference

PROJECT = Path(__file__).resolve().parents[2]

REPOSITORY_PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security-policy.md",
}
"""Files of the repository that are pages of the site."""

MADE_FROM = {
    "pravega_spark/__init__.py": "api.md",
    "engine/state/operations.py": "log-operations.md",
    "notebooks": "notebook-first_steps.md",
    "examples": "examples.md",
}
"""What a page of the site is made from: documents link to that, and lead somewhere in the repository too."""

_LINK = re.compile(r"(\]\(|src=\")([^)\"#:\s]+)(#[^)\"]*)?(?=[)\"])")


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
        "log-operations.md": reference.operations(),
        "api.md": reference.api(),
        "examples.md": reference.examples(PROJECT / "examples"),
    }
    for path in sorted((PROJECT / "notebooks").glob("*.ipynb")):
        made[f"notebook-{path.stem}.md"] = notebooks.page(path, execute)
    return made


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """A page of docs/, its links into the rest of the repository changed to those of the site."""
    folder = "docs" / Path(page.file.src_uri).parent
    return markdown if page.file.generated_by else _LINK.sub(lambda match: _site_link(match, folder), markdown)


def from_repository(name: str) -> str:
    """A file of the repository's root, its links changed to those of the site."""
    return _LINK.sub(lambda match: _site_link(match, Path()), (PROJECT / name).read_text("utf-8"))


def _site_link(match: re.Match[str], folder: Path) -> str:
    """A link of a document in this folder of the repository."""
    opening, target, anchor = match[1], os.path.normpath(folder / match[2]), match[3] or ""
    if target in REPOSITORY_PAGES:
        page = REPOSITORY_PAGES[target]
    elif target in MADE_FROM:
        page, anchor = MADE_FROM[target], ""
    elif target.startswith("examples/"):
        page, anchor = "examples.md", f"#{Path(target).name.replace('.', '')}"
    elif target.startswith("docs/"):
        page = target.removeprefix("docs/")
    else:
        return match[0]
    up = os.path.relpath(".", folder.relative_to("docs")) if folder != Path() else "."
    return f"{opening}{os.path.normpath(os.path.join(up, page))}{anchor}"
