"""Runs of notebooks, by the interpreter that runs the tests, and what they showed."""

from __future__ import annotations

import base64
import subprocess
import sys
from io import BytesIO
from pathlib import Path

import nbformat
import numpy as np
from nbformat import NotebookNode
from PIL import Image

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"


class Run:
    """The cells of a notebook that was run from top to bottom, and what they gave. A cell is named by its tag."""

    def __init__(self, notebook: NotebookNode) -> None:
        self.cells: list[NotebookNode] = [cell for cell in notebook.cells if cell.cell_type == "code"]
        self._tagged = {tag: cell for cell in self.cells for tag in cell.metadata.get("tags", ())}

    @classmethod
    def of(cls, name: str, folder: Path) -> Run:
        """Run a notebook in `folder`. Fails if a cell does."""
        executed = folder / f"executed-{name}"
        done = subprocess.run(
            [sys.executable, "-m", "tests.notebooks.execute", NOTEBOOKS / name, executed, folder],
            cwd=NOTEBOOKS.parent,
            capture_output=True,
            text=True,
            timeout=550,
        )
        assert done.returncode == 0, done.stderr
        return cls(nbformat.read(executed, as_version=4))

    def text(self, tag: str) -> str:
        """What a cell printed."""
        return "".join(out.text for out in self._outputs(tag) if out.output_type == "stream" and out.name == "stdout")

    def shown(self, tag: str, kind: str) -> str:
        """The one value of some kind (a MIME type) that a cell showed."""
        (found,) = [out.data[kind] for out in self._outputs(tag) if kind in out.get("data", {})]
        return str(found)

    def picture(self, tag: str) -> np.ndarray:
        """The one picture that a cell showed: height, width, and RGB."""
        with Image.open(BytesIO(base64.b64decode(self.shown(tag, "image/png")))) as image:
            return np.asarray(image.convert("RGB"))

    def complaints(self) -> list[str]:
        """What cells wrote to stderr, but for the one that starts Spark: Java has something to say there."""
        others = [cell for cell in self.cells if "spark" not in cell.metadata.get("tags", ())]
        return [out.text for cell in others for out in cell.outputs if out.get("name") == "stderr"]

    def _outputs(self, tag: str) -> list[NotebookNode]:
        return list(self._tagged[tag].outputs)
