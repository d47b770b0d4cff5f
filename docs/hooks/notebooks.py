"""A notebook as a page: its text, its code and, if it was executed, what each cell showed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import nbformat

NOT_EXECUTED = (
    "!!! note\n\n    This page was built without running the notebook, so it has no outputs. `make docs NOTEBOOKS=1` "
    "runs it.\n"
)


def page(path: Path, execute: bool) -> str:
    """The Markdown of a notebook."""
    notebook = executed(path) if execute else nbformat.read(path, as_version=4)
    cells = ["\n\n".join(shown(cell)) for cell in notebook.cells]
    if not execute:
        cells.insert(1, NOT_EXECUTED)
    return "\n\n".join(cells) + "\n"


def executed(path: Path) -> nbformat.NotebookNode:
    """The notebook after a run from top to bottom. Raises CalledProcessError if a cell fails."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, path.name)
        command = [sys.executable, "-m", "tests.notebooks.execute", str(path), str(target), folder]
        subprocess.run(command, cwd=path.parents[1], env={**os.environ, "IPYTHONDIR": folder}, check=True)
        found: nbformat.NotebookNode = nbformat.read(target, as_version=4)
        return found


def shown(cell: nbformat.NotebookNode) -> Iterator[str]:
    """A cell and what it showed, as blocks of Markdown."""
    if cell.cell_type == "markdown":
        yield re.sub(r"\]\((\w+)\.ipynb\)", r"](notebook-\1.md)", cell.source)
    elif cell.cell_type == "code":
        yield fenced(cell.source, "python")
        for output in cell.outputs:
            yield from _output(output)


def _output(output: nbformat.NotebookNode) -> Iterator[str]:
    if output.output_type == "stream":
        if output.name == "stdout":  # what the JVM says to stderr is of no interest
            yield fenced(output.text.rstrip("\n"))
        return
    data = output.data
    if "image/png" in data:
        yield f'<img alt="output" src="data:image/png;base64,{data["image/png"].strip()}">'
    elif "text/html" in data:
        yield f"<div>{data['text/html'].strip()}</div>"
    else:
        yield fenced(data["text/plain"])


def fenced(text: str, language: str = "text") -> str:
    """A block of code."""
    return f"```{language}\n{text}\n```"
