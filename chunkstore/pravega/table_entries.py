"""The entries of Pravega's table segments, one behind the other (Pravega: EntrySerializer).

    entry   u8 version 0, i32 length of the key, i32 length of the value (-1: a removal), i64 version; key; value

An entry's version is where it lies, unless it was written again by compaction: then the version that it had stands in
it, and not the least number. Of the entries of a key the one with the highest version counts. A table that is read as a
whole is checked against its index (`attribute_index`): compaction may have written an entry again that was removed
meanwhile, and when the removal was compacted away only the index shows it. A table whose keys have one length (that of
a key-value table) has no removals at all: what its index does not lead to is removed.

Table and index are flushed each by itself, so either may be ahead of the other. An index that is ahead leads behind the
table's end: of keys that it leads there only an older entry is there, or none, and what it does not lead to is removed.
"""

from __future__ import annotations

import hashlib
import struct
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from chunkstore.decoding import InvalidData
from chunkstore.pravega.attribute_index import Read, key_of

MAX_KEY = 8192
MAX_VALUE = (1 << 20) - 8192

_HEADER = struct.Struct(">Biiq")
_REMOVED = -1
_NO_VERSION = -1 << 63
_WINDOW = 1 << 20
_HASH = 16  # bytes of SHA-256 by which a key of any length is indexed
_BACK = (1 << 63) - 1  # the first half of an index key that leads from an entry to an older one with the same hash
_CORE = 1 << 63  # that of a segment's own attributes
_LEADS_BACK = key_of(uuid.UUID(int=_BACK << 64))[:8]
_OTHERS = (_LEADS_BACK, key_of(uuid.UUID(int=_CORE << 64))[:8])


class Entry(NamedTuple):
    """A key with its value, None for a removal, and the offset in the segment at which it begins."""

    offset: int
    key: bytes
    value: bytes | None
    version: int


class TableRows(dict[bytes, Entry]):
    """The live entries of a table, by their keys.

    ahead: index keys that lead behind the table's end: what was last put under their keys was not flushed.
    """

    def __init__(self, rows: Mapping[bytes, Entry], ahead: Collection[bytes] = ()) -> None:
        super().__init__(rows)
        self.ahead = frozenset(ahead)

    def is_newest(self, key: bytes) -> bool:
        """Whether what is here under a key, or that nothing is, is the last that was put."""
        return not self.ahead or not self.ahead & {index_key(key), key}


def entries(read: Read, start: int, end: int) -> Iterator[Entry]:
    """All entries between two borders. Raises InvalidData, and what `read` raises."""
    data, first = b"", start
    place = start
    while place < end:
        at = place - first
        size = _size(data, at, place, end) if len(data) - at >= _HEADER.size else _HEADER.size
        if len(data) - at < size:
            if size > end - place:
                raise InvalidData(f"the table's last {end - place} bytes, from {place} on, are less than an entry")
            data, first = read(place, min(end, place + max(_WINDOW, size))), place
            continue
        yield _entry(data, at, place)
        place += size


def newest(found: Iterable[Entry]) -> dict[bytes, Entry]:
    """The entry of each key that counts; removals are among them."""
    state: dict[bytes, Entry] = {}
    for entry in found:
        known = state.get(entry.key)
        if known is None or entry.version >= known.version:
            state[entry.key] = entry
    return state


def ahead_of(index: Mapping[bytes, int], end: int, *, hashes: bool = True) -> set[bytes]:
    """The keys by which an index leads behind the `end` of its table. hashes: they are those of `index_key`."""
    found = {key for key, offset in index.items() if offset >= end}
    return {key for key in found if not key.startswith(_OTHERS)} if hashes else found


def live_by_hash(
    found: Iterable[Entry], index: Mapping[bytes, int], indexed: int, ahead: Collection[bytes] = ()
) -> Iterator[Entry]:
    """The entries that are there by the index of their hashes, which knows all below the offset `indexed` at least.

    What is behind that may have been flushed when the index was not yet, so it is newer than what the index says.
    ahead: keys of the index that lead behind the table's end; those of them that are there are older than what was
    put last. Raises InvalidData where table and index contradict each other.
    """
    rows = list(found)
    state, known = newest(rows), newest(entry for entry in rows if entry.offset < indexed)
    places = {entry.offset: entry for entry in (*known.values(), *state.values())}
    led = _led_by_hash(places, index)
    for offset in led:
        if offset < indexed and offset not in places:
            raise InvalidData(f"the index leads to offset {offset}, where no entry is that counts")
    for entry in state.values():
        before = known.get(entry.key, entry)
        if entry.value is None:
            if entry.offset in led:
                raise InvalidData(f"the index leads to offset {entry.offset}, which removes {entry.key!r}")
        elif entry.offset in led or before.offset in led:
            yield entry
        elif entry.version != entry.offset and before.version == entry.version and before.offset < indexed:
            continue  # it was written again when it had been removed
        elif entry.offset >= indexed:
            yield entry
        elif ahead:
            if index_key(entry.key) in ahead:
                yield entry
        else:
            raise InvalidData(f"the index does not lead to offset {entry.offset}, where {entry.key!r} is")


def live_by_key(
    state: Mapping[bytes, Entry], index: Mapping[bytes, int], ahead: Collection[bytes] = ()
) -> Iterator[Entry]:
    """The entries of `newest` that are there by the index of their keys, which alone says what was removed.

    ahead: keys of the index that lead behind the table's end; those of them that are there are older than what was
    put last. Raises InvalidData where table and index contradict each other.
    """
    for key, offset in index.items():
        entry = state.get(key)
        if offset < 0:
            continue
        if key in ahead:
            if entry is not None and entry.value is not None:
                yield entry
            continue
        if entry is None or entry.offset != offset or entry.value is None:
            raise InvalidData(f"the index leads from {key!r} to offset {offset}, where its newest entry is not")
        yield entry


def _led_by_hash(places: Mapping[int, Entry], index: Mapping[bytes, int]) -> set[int]:
    """Where the index leads to: the newest entry of each hash, and from there back to those of other keys."""
    led: set[int] = set()
    for key, offset in index.items():
        if key.startswith(_LEADS_BACK):
            continue
        while offset >= 0 and offset not in led:
            entry = places.get(offset)
            if entry is not None and index_key(entry.key) != key:
                raise InvalidData(f"the index leads to offset {offset}, where another key is: {entry.key!r}")
            led.add(offset)
            offset = index.get(key_of(uuid.UUID(int=_BACK << 64 | offset)), -1)
    return led


def index_key(key: bytes) -> bytes:
    """By what a key of any length is indexed (Pravega: KeyHasher)."""
    found = int.from_bytes(hashlib.sha256(key).digest()[:_HASH], "big")
    first = found >> 64
    first += (first == _CORE) - (first == _BACK)
    return key_of(uuid.UUID(int=first << 64 | found & (1 << 64) - 1))


def _size(data: bytes, at: int, offset: int, end: int) -> int:
    version, key, value, _ = _HEADER.unpack_from(data, at)
    if version != 0:
        raise InvalidData(f"the entry at offset {offset} has format {version}; format 0 is due")
    if not 0 < key <= MAX_KEY or not _REMOVED <= value <= MAX_VALUE:
        raise InvalidData(f"the entry at offset {offset} has a key of {key} bytes and a value of {value}: impossible")
    size = _HEADER.size + int(key) + max(int(value), 0)
    if offset + size > end:
        raise InvalidData(f"the entry at offset {offset} has {size} bytes, but the table ends at {end}")
    return size


def _entry(data: bytes, at: int, offset: int) -> Entry:
    _, key_length, value_length, version = _HEADER.unpack_from(data, at)
    at += _HEADER.size
    key = bytes(data[at : at + key_length])
    at += key_length
    value = None if value_length == _REMOVED else bytes(data[at : at + value_length])
    if version != _NO_VERSION and not 0 <= version <= offset:
        raise InvalidData(f"the entry at offset {offset} has version {version}: its own offset is the most it can have")
    return Entry(offset, key, value, offset if version == _NO_VERSION else version)
