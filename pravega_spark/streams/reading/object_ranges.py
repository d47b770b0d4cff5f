"""Dividing the object ranges of a read, so that any part can be read, with little memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from chunkstore.checksums import BLOCK
from engine.storage.object_reads import ObjectRange, Stores, fetch

WINDOW = 4 << 20
"""Bytes of a large event that are fetched at once from local storage."""

WINDOW_REMOTE = 16 << 20
"""The same from remote storage, where the ranges of one call are fetched together."""


def between(pieces: Sequence[ObjectRange], start: int, end: int) -> list[ObjectRange]:
    """The pieces that make up the bytes `[start, end)` of `pieces`."""
    found, offset = [], 0
    for piece in pieces:
        low, high = max(start, offset), min(end, offset + piece.taken)
        if low < high:
            found.append(piece._replace(skip=piece.skip + low - offset, taken=high - low))
        offset += piece.taken
        if offset >= end:
            break
    return found


def windows(pieces: Sequence[ObjectRange], size: int) -> Iterator[list[ObjectRange]]:
    """The pieces in groups of `size` bytes at most, divided so that no checksum block is read twice.

    `size` is two blocks or more.
    """
    group: list[ObjectRange] = []
    room = size
    for piece in pieces:
        while piece.taken > room:
            taken = (piece.skip + room) // BLOCK * BLOCK - piece.skip
            if taken > 0:
                group.append(piece._replace(taken=taken))
                piece = piece._replace(skip=piece.skip + taken, taken=piece.taken - taken)
            yield group
            group, room = [], size
        group.append(piece)
        room -= piece.taken
    if group:
        yield group


def fetch_whole(stores: Stores, pieces: Sequence[ObjectRange]) -> list[memoryview]:
    """The bytes of all pieces in one new buffer, with little more memory than that. Raises as `fetch`."""
    found = np.empty(sum(piece.taken for piece in pieces), np.uint8)
    place = 0
    for window in windows(pieces, WINDOW_REMOTE if stores.chunks.remote else WINDOW):
        for part in fetch(stores, window):
            found[place : place + len(part)] = np.frombuffer(part, np.uint8)
            place += len(part)
    return [found.data]
