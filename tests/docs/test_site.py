"""The site is built without a complaint and without the network, and its pages have what they are made from."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from docs.hooks import notebooks, site

PROJECT = site.PROJECT
NOTEBOOKS = sorted((PROJECT / "notebooks").glob("*.ipynb"))


@pytest.mark.timeout(600)
def test_the_site_is_built_and_asks_nobody(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    # A proxy that is not there: whoever asks the network fails.
    offline = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    environment = {**os.environ, **offline, "NOTEBOOKS": "", "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for page in tmp_path.rglob("*.html"):
        loaded = re.findall(r"<(?:script|img|link)[^>]+(?:src|href)=\"(https?:[^\"]+)\"", page.read_text("utf-8"))
        assert loaded == [], page


def test_links_of_the_repository_become_links_of_the_site() -> None:
    page = site.from_repository("README.md")
    assert "](tutorial.md)" in page and 'src="picture.svg"' in page and "](contributing.md)" in page
    assert "](docs/" not in page


DOCUMENTS = [*site.REPOSITORY_PAGES, *(str(path.relative_to(PROJECT)) for path in (PROJECT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_somewhere_in_the_repository_too(name: str) -> None:
    """With the anchors that GitHub gives to headings, and those that a page sets itself (`<a id="w7"></a>`)."""
    links = re.findall(r"\]\(([^)#:\s]*)(#[^):\s]*)?\)|src=\"([^\":]+)\"", (PROJECT / name).read_text("utf-8"))
    for target, anchor, source in links:
        there = (PROJECT / name).parent / (target or source) if target or source else PROJECT / name
        assert there.exists(), target or source
        if anchor:
            text = there.read_text("utf-8")
            anchors = {*map(_anchor, re.findall(r"(?m)^#+ (.*)$", text)), *re.findall(r"<a id=\"([^\"]+)\">", text)}
            assert anchor[1:] in anchors, f"{target}{anchor}"


def _anchor(heading: str) -> str:
    text = re.sub(r"\[([^]]*)\]\([^)]*\)|<[^>]+>", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")


@pytest.mark.parametrize("name", [name for name in DOCUMENTS if name != "CHANGELOG.md"])
def test_places_in_the_code_are_there(name: str) -> None:
    places = r"`((?:chunkstore|engine|pravega_spark|tests|docs)/[\w/.-]+)`"
    for place in re.findall(places, (PROJECT / name).read_text("utf-8")):
        assert (PROJECT / place).exists(), place


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_that_is_not_run_shows_its_code_and_says_so(path: Path) -> None:
    page = notebooks.page(path, execute=False)
    assert notebooks.NOT_EXECUTED in page
    for cell in nbformat.read(path, as_version=4).cells:
        assert cell.cell_type == "markdown" or cell.source in page
    assert ".ipynb)" not in page


def test_outputs_are_shown() -> None:
    cell = nbformat.v4.new_code_cell("1 + 1")
    cell.outputs = [
        nbformat.v4.new_output("stream", name="stdout", text="printed\n"),
        nbformat.v4.new_output("stream", name="stderr", text="of the JVM\n"),
        nbformat.v4.new_output("execute_result", {"text/plain": "2"}),
        nbformat.v4.new_output("display_data", {"text/html": "<table></table>", "text/plain": "a table"}),
        nbformat.v4.new_output("display_data", {"image/png": "AAAA\n", "text/plain": "a picture"}),
    ]
    shown = list(notebooks.shown(cell))
    assert shown == [
        "```python\n1 + 1\n```",
        "```text\nprinted\n```",
        "```text\n2\n```",
        "<div><table></table></div>",
        '<img alt="output" src="data:image/png;base64,AAAA">',
    ]
