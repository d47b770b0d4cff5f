"""CRC32C of the bytes of extents, one checksum for each block of 1 MiB.

Blocks let a reader check a part of a large extent without reading all of it, and let a writer cut an extent at a block
boundary without computing anything again.
"""

from __future__ import annotations

from collections.abc import Sequence

import google_crc32c

BLOCK = 1 << 20
WIDTH = 4


def crc32c(data: bytes | bytearray | memoryview, crc: int = 0) -> int:
    """CRC32C of `data`, continued from `crc`. The library takes bytes only, hence the copy of other buffers."""
    return int(google_crc32c.extend(crc, data if isinstance(data, bytes) else bytes(data)))


def crc32c_of(parts: Sequence[bytes | bytearray | memoryview]) -> int:
    """CRC32C of the concatenation of `parts`, taken a block at a time so that no large copy is made."""
    crc = 0
    for part in parts:
        view = memoryview(part)
        for start in range(0, len(view), BLOCK):
            crc = crc32c(view[start : start + BLOCK], crc)
    return crc


def block_checksums(data: bytes | bytearray | memoryview) -> bytes:
    """The checksums of the blocks of `data`, 4 bytes big-endian each."""
    if len(data) <= BLOCK:
        return crc32c(data).to_bytes(WIDTH, "big")
    view = memoryview(data)
    return b"".join(
        crc32c(view[start : start + BLOCK]).to_bytes(WIDTH, "big") for start in range(0, len(view), BLOCK)
    )


def first_bad_block(data: memoryview, checksums: bytes) -> int | None:
    """Index of the first block of `data` that does not match `checksums`, or None. A missing block is bad."""
    for index in range(len(checksums) // WIDTH):
        block = data[index * BLOCK : (index + 1) * BLOCK]
        if not len(block) or crc32c(block) != int.from_bytes(checksums[index * WIDTH : (index + 1) * WIDTH], "big"):
            return index
    return None
