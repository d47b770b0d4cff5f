"""Runs a notebook from top to bottom: `python -m tests.notebooks.execute NOTEBOOK EXECUTED FOLDER`.

A program of its own, because nbclient leaves sockets open. Each cell has a limit of time. After each cell the bytes of
temporary files are counted; the most is in the executed notebook's metadata.
"""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import suppress

import nbformat
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

CELL_SECONDS = 300
SPARK_SECONDS = 600  # of a cell of a notebook that starts a JVM


def main(path: str, executed: str, folder: str) -> None:
    """Run the notebook `path` in `folder`, and write it with its outputs to `executed`."""
    notebook = nbformat.read(path, as_version=4)
    seconds = (
        SPARK_SECONDS if any("spark" in cell.metadata.get("tags", ()) for cell in notebook.cells) else CELL_SECONDS
    )
    notebook.metadata["most_bytes"] = 0

    def count_bytes(**_: object) -> None:
        notebook.metadata["most_bytes"] = max(notebook.metadata["most_bytes"], _bytes_in(tempfile.gettempdir()))

    # Without folders to look into, what is left is the kernel of this very interpreter.
    specs, connection = KernelSpecManager(kernel_dirs=[]), os.path.join(folder, "kernel.json")
    manager = AsyncKernelManager(kernel_name="python3", kernel_spec_manager=specs, connection_file=connection)
    resources = {"metadata": {"path": folder}}
    NotebookClient(notebook, km=manager, timeout=seconds, on_cell_executed=count_bytes, resources=resources).execute()
    nbformat.write(notebook, executed)


def _bytes_in(folder: str) -> int:
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):  # files come and go
                total += os.stat(os.path.join(place, name)).st_size
    return total


if __name__ == "__main__":
    main(*sys.argv[1:])
