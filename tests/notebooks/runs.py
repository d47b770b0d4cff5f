"""Runs of notebooks, by the interpreter that runs the tests, and what they showed."""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path

import nbformat
import numpy as np
from nbformat import NotebookNode
from PIL import Image

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"


_MARK = "PRAVEGA_NOTEBOOK_RUN"
"""The environment variable by which the processes of a run are known."""

_END_SECONDS = 30  # in which a JVM ends after the kernel that started it


def _await_end(mark: str) -> list[str]:
    """Wait until the processes of a run have ended. Kills those that have not, and returns their commands."""
    deadline = time.monotonic() + _END_SECONDS
    while (there := dict(_processes(mark))) and time.monotonic() < deadline:
        time.sleep(0.1)
    for number in there:
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
    return list(there.values())


def _processes(mark: str) -> Iterator[tuple[int, str]]:
    """The processes with a mark in their environment: their numbers and commands."""
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"{_MARK}={mark}".encode() in (path / "environ").read_bytes().split(b"\0"):
                yield int(path.name), (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")


_BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(100_000))"


@contextmanager
def load(processes: int) -> Iterator[None]:
    """So many processes that compute all the time."""
    busy = [subprocess.Popen([sys.executable, "-c", _BUSY]) for _ in range(processes)]
    try:
        yield
    finally:
        for each in busy:
            each.kill()
            each.wait()


class Run:
    """The cells of a notebook that was run from top to bottom, and what they gave. A cell is named by its tag."""

    def __init__(self, notebook: NotebookNode) -> None:
        self.most_bytes: int = notebook.metadata["most_bytes"]
        self.cells: list[NotebookNode] = [cell for cell in notebook.cells if cell.cell_type == "code"]
        self._tagged = {tag: cell for cell in self.cells for tag in cell.metadata.get("tags", ())}

    @classmethod
    def of(cls, name: str, folder: Path, seconds: float) -> Run:
        """Run a notebook in `folder`, for so long at most. Fails if a cell does, and if the run leaves a process or
        a temporary file behind."""
        executed, temporary, mark = folder / f"executed-{name}", folder / "temporary", uuid.uuid4().hex
        temporary.mkdir()
        with subprocess.Popen(
            [sys.executable, "-m", "tests.notebooks.execute", NOTEBOOKS / name, executed, folder],
            cwd=NOTEBOOKS.parent,
            env={**os.environ, "TMPDIR": str(temporary), _MARK: mark},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as runner:
            try:
                errors = runner.communicate(timeout=seconds)[1]
            finally:
                left = _await_end(mark)
        assert runner.returncode == 0, errors
        assert left == [], "processes of the notebook were left"
        assert [path.name for path in temporary.iterdir() if not path.name.startswith("hsperfdata")] == []
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
