"""The attribute index of a segment of Pravega's: a B+tree in the segment `<segment>$attributes.index` (BTreeIndex).

It has the attributes of a segment that are not its own core attributes, and is the index of a table segment. Pages are
only ever appended; the segment ends in where the root page is.

    page    u8 version 0, u8 flags (1: index page), i32 id, i32 count, entries, i32 id
    entry   leaf: key, i64 value. Index page: first key of the page below, i64 offset, i16 length, i64 lowest offset
    end     i64 offset and i32 length of the root; -1 and 0 where the tree is empty

The keys are UUIDs, both halves with the highest bit turned over so that they sort as signed numbers; in a table of keys
of one length they are the table's keys.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from chunkstore.decoding import InvalidData

_HEADER = struct.Struct(">BBii")
_FOOTER = struct.Struct(">i")
_POINTER = struct.Struct(">qhq")
_VALUE = struct.Struct(">q")
_ROOT = struct.Struct(">qi")
_FRAME = _HEADER.size + _FOOTER.size
_INNER = 1
_LONGEST_KEY = 256
_SIGNS = 1 << 127 | 1 << 63
_UUID = 16

Read: TypeAlias = Callable[[int, int], bytes]
"""The bytes [start, end) of a segment, all of them."""


class _Place(NamedTuple):
    """Where a page lies."""

    offset: int
    length: int


def key_of(attribute: uuid.UUID) -> bytes:
    """The key under which the value of an attribute lies."""
    return (attribute.int ^ _SIGNS).to_bytes(_UUID, "big")


def attributes_of(index: Mapping[bytes, int]) -> dict[uuid.UUID, int]:
    """The values of a segment's attributes, by what `read_index` found. Raises InvalidData for a table's keys."""
    if any(len(key) != _UUID for key in index):
        raise InvalidData(f"the index has keys that are not {_UUID} bytes long, which ids of attributes are")
    return {uuid.UUID(int=int.from_bytes(key, "big") ^ _SIGNS): value for key, value in index.items()}


def read_index(read: Read, start: int, length: int) -> dict[bytes, int]:
    """Keys and values of the index whose segment is [start, length). Raises InvalidData, and what `read` raises."""
    if length - start <= 0:
        return {}
    footer = length - _ROOT.size
    if footer < start:
        raise InvalidData(f"the index has {length - start} bytes; the place of its root needs {_ROOT.size}")
    offset, size = _ROOT.unpack(read(footer, length))
    if (offset, size) == (-1, 0):
        return {}
    found: dict[bytes, int] = {}
    last = b""
    for key, value in _leaves(read, start, footer, _Place(offset, size)):
        if last and (len(key) != len(last) or key <= last):
            raise InvalidData(f"the keys of the index do not ascend: {key!r} is behind {last!r}")
        found[key] = value
        last = key
    return found


def _leaves(read: Read, start: int, end: int, root: _Place) -> Iterator[tuple[bytes, int]]:
    """The entries of the leaves below a page, in their order. What a page leads to was written before it."""
    pages = [(root, end)]
    seen: set[int] = set()
    while pages:
        place, behind = pages.pop()
        if not (start <= place.offset and place.length >= _FRAME and place.offset + place.length <= behind):
            raise InvalidData(
                f"the index leads to a page of {place.length} bytes at {place.offset}, which is not within "
                f"[{start}, {behind})"
            )
        if place.offset in seen:
            raise InvalidData(f"the index leads to the page at {place.offset} twice")
        seen.add(place.offset)
        inner, rows = _page(read(place.offset, place.offset + place.length), place)
        if inner:
            below = [_Place(*_POINTER.unpack(value)[:2]) for _, value in rows]
            pages += [(child, place.offset) for child in reversed(below)]
        else:
            yield from ((key, _VALUE.unpack(value)[0]) for key, value in rows)


def _page(data: bytes, place: _Place) -> tuple[bool, list[tuple[bytes, bytes]]]:
    version, flags, number, count = _HEADER.unpack_from(data)
    inner = bool(flags & _INNER)
    if version != 0 or flags & ~_INNER or number != _FOOTER.unpack_from(data, len(data) - _FOOTER.size)[0]:
        raise InvalidData(f"there is no page of the index at offset {place.offset}")
    body = data[_HEADER.size : -_FOOTER.size]
    if count == 0 and not body and not inner:
        return inner, []
    width = (_POINTER if inner else _VALUE).size
    size = len(body) // count if count > 0 else 0
    if size * count != len(body) or not width < size <= width + _LONGEST_KEY:
        raise InvalidData(f"the page of the index at {place.offset} has {count} entries in {len(body)} bytes")
    rows = [(body[at : at + size - width], body[at + size - width : at + size]) for at in range(0, len(body), size)]
    return inner, rows
