"""Copies of folders in use, as `rsync` makes them: what vanishes between the listing and the copy is left out."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path


def copied(source: Path, place: Path) -> Path:
    """Copy the folder of a root that may be open: its upkeep makes and removes temporary objects at any time."""
    return Path(shutil.copytree(source, place, copy_function=_what_is_there))


def _what_is_there(source: str, place: str) -> None:
    with suppress(FileNotFoundError):
        shutil.copy2(source, place)
