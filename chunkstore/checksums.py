"""CRC32C of the bytes of extents, one checksum for each block of 1 MiB.

Blocks let a reader check a part of a large extent without reading all of it, and let a writer cut an extent at a block
boundary without computing anything again.
"""

from __future__ import annotations

from collections.abc import Iterable

import crc32c as library

BLOCK = 1 << 20
WIDTH = 4


def crc32c(data: bytes | bytearray | memoryview, crc: int = 0) -> int:
    """CRC32C of `data`, continued from `crc`."""
    return library.crc32c(data, crc)


def crc32c_of(parts: Iterable[bytes | bytearray | memoryview]) -> int:
    """CRC32C of the concatenation of `parts`."""
    crc = 0
    for part in parts:
        crc = crc32c(part, crc)
    return crc


def block_checksums(*parts: bytes | bytearray | memoryview) -> bytes:
    """The checksums of the blocks of the concatenation of `parts`, 4 bytes big-endian each; of one block at least."""
    return _block_checksums(0, BLOCK, parts)


def _block_checksums(crc: int, room: int, parts: Iterable[bytes | bytearray | memoryview]) -> bytes:
    """The same, of parts that continue a block: its checksum so far, and how many bytes it still takes."""
    sums = []
    for part in parts:
        view, start = memoryview(part), 0
        while start < len(view):
            if not room:
                sums.append(crc)
                crc, room = 0, BLOCK
            piece = view[start : start + room]
            crc = crc32c(piece, crc)
            start += len(piece)
            room -= len(piece)
    return b"".join(crc.to_bytes(WIDTH, "big") for crc in [*sums, crc])


def continued(checksums: bytes, length: int, *parts: bytes | bytearray | memoryview) -> bytes:
    """The checksums of `length` bytes that have `checksums`, with `parts` behind them."""
    if not length:
        return block_checksums(*parts)
    kept, crc, room = checksums, 0, BLOCK
    if length % BLOCK:
        kept, crc, room = checksums[:-WIDTH], int.from_bytes(checksums[-WIDTH:], "big"), BLOCK - length % BLOCK
    return kept + _block_checksums(crc, room, parts)


def first_bad_block(data: memoryview, checksums: bytes) -> int | None:
    """Index of the first block of `data` that does not match `checksums`, or None. A missing block is bad."""
    for index in range(len(checksums) // WIDTH):
        block = data[index * BLOCK : (index + 1) * BLOCK]
        if not len(block) or crc32c(block) != int.from_bytes(checksums[index * WIDTH : (index + 1) * WIDTH], "big"):
            return index
    return None
