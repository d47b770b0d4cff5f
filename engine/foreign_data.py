"""Data of other programs, recognised by the names of its objects: no root is created in it or above it.

A root in a table's folder would be deleted by the next VACUUM of the table, and its objects read as files of the table.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from chunkstore import StorageRefused, Store

MOST_LISTED = 100
"""The most objects that are listed of a folder that may hold a table's metadata."""


class _Kind(NamedTuple):
    """what: the data's name. folder: where its metadata lies, below its own folder. name: of an object there."""

    what: str
    folder: str
    name: str = ".*"


_KINDS = (
    _Kind("a Delta table", "_delta_log/"),
    _Kind("an Iceberg table", "metadata/", r"[^/]+\.metadata\.json"),
    _Kind("a Hudi table", ".hoodie/"),
    _Kind("the output of a streaming query", "_spark_metadata/"),
    _Kind("the checkpoint of a streaming query", "offsets/", "[0-9]+"),
)

_PATTERNS = [(kind.what, re.compile(f"(.*/)?{re.escape(kind.folder)}{kind.name}")) for kind in _KINDS]


class ForeignData(NamedTuple):
    """what: its name. folder: its folder, "" for the one that was looked at, else with a slash at the end. path: the
    object by which it was recognised."""

    what: str
    folder: str
    path: str


def recognise(path: str) -> ForeignData | None:
    """The data that an object belongs to, if its path shows that."""
    for what, pattern in _PATTERNS:
        if (found := pattern.fullmatch(path)) is not None:
            return ForeignData(what, found[1] or "", path)
    return None


def data_at(store: Store) -> ForeignData | None:
    """The data whose folder this is. Costs a listing for each kind. Raises StorageError."""
    for kind in _KINDS:
        for info in store.list(kind.folder, limit=MOST_LISTED):
            found = recognise(info.path)
            if found is not None and not found.folder:
                return found
    return None


def refused(root: str, place: str, found: ForeignData, what: str) -> StorageRefused:
    """The error for data of another program in, at or above the place where something would be created."""
    inside = found.folder or root != place
    relation = f"{'contains' if found.folder else 'lies in'} {place}/{found.folder}".rstrip("/") if inside else "is"
    which = f", {found.what}" if inside else f" {found.what}"
    return StorageRefused(
        f"{root} {relation}{which} (it has {found.path}): {what} is not created in or above the data of another "
        "program, which may delete its objects, or read them as its own. Use a folder or bucket of its own"
    )
