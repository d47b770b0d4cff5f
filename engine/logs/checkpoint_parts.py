"""The parts of a checkpoint that does not fit into one object (W6).

A conditional request takes no more than some megabytes everywhere. So what is larger lies in parts, which are made
before the checkpoint's object, in a folder of their own, so that none is taken for a checkpoint; that object lists them
with their sizes and checksums. A crash in between leaves parts only, and so does a race: the log's truncation deletes
them, as it does those of checkpoints that are gone.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import NamedTuple

from chunkstore import Range, Store
from chunkstore.checksums import crc32c
from chunkstore.paths import checkpoint_parts_folder, is_log
from engine.errors import DataCorruption

_PAGE = 1000


class Part(NamedTuple):
    """One part: its object, bytes, and CRC32C."""

    path: str
    size: int
    crc: int


def write(store: Store, container: int, address: int, content: bytes, largest: int) -> list[Part]:
    """Write `content` in parts of `largest` bytes, for the checkpoint of the frame at `address`."""
    view, unique = memoryview(content), uuid.uuid4().hex
    parts = []
    for number, start in enumerate(range(0, len(content), largest)):
        piece = view[start : start + largest]
        path = f"{checkpoint_parts_folder(container)}{address:020d}-{unique}-{number:05d}"
        store.put(path, piece)
        parts.append(Part(path, len(piece), crc32c(piece)))
    return parts


class PartMissing(Exception):
    """The part with this path is not there: it is lost, or the checkpoint was deleted."""


def read(store: Store, parts: Sequence[Part]) -> bytes:
    """What lies in the parts. Raises PartMissing, DataCorruption."""
    found = store.read_ranges([Range(part.path, 0, part.size) for part in parts])
    pieces = []
    for part, piece in zip(parts, found, strict=True):
        if piece is None:
            raise PartMissing(part.path)
        if len(piece) != part.size or crc32c(piece) != part.crc:
            raise DataCorruption(
                f"{part.path}: this part of a checkpoint has {len(piece)} bytes of {part.size}, or its checksum does "
                "not match. Restore the object from a copy; if an older checkpoint and all frames after it exist "
                "still, the container also opens once the checkpoint that names it is removed"
            )
        pieces.append(piece)
    return b"".join(pieces)


def delete(store: Store, container: int, address: int, before: float) -> int:
    """Delete the parts of checkpoints before `address` that were made before `before` (s, the store's clock). How many.

    The checkpoints must be gone. One that a stopped process still makes is never the newest.
    """
    deleted, last = 0, ""
    while listed := store.list(checkpoint_parts_folder(container), last, _PAGE):
        doomed = [
            info.path
            for info in listed
            if is_log(info.path) and _address_of(info.path) < address and info.modified < before
        ]
        store.delete(doomed)
        deleted, last = deleted + len(doomed), listed[-1].path
    return deleted


def _address_of(path: str) -> int:
    """The address of the checkpoint that a part belongs to."""
    return int(path.rpartition("/")[2].partition("-")[0])
