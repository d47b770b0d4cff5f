"""Runs a notebook from top to bottom: `python -m tests.notebooks.execute NOTEBOOK EXECUTED FOLDER`.

A program of its own, because nbclient leaves sockets open.
"""

from __future__ import annotations

import sys

import nbformat
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

CELL_SECONDS = 300


def main(path: str, executed: str, folder: str) -> None:
    """Run the notebook `path` in `folder`, and write it with its outputs to `executed`."""
    notebook = nbformat.read(path, as_version=4)
    # Without folders to look into, what is left is the kernel of this very interpreter.
    manager = AsyncKernelManager(kernel_name="python3", kernel_spec_manager=KernelSpecManager(kernel_dirs=[]))
    NotebookClient(notebook, km=manager, timeout=CELL_SECONDS, resources={"metadata": {"path": folder}}).execute()
    nbformat.write(notebook, executed)


if __name__ == "__main__":
    main(*sys.argv[1:])
