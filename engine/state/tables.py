"""A table as the container's state holds it: its recent entries, and where LTS keeps the others (S4).

An entry's version is the sequence number of the operation that put it. A small table stays in memory whole; of a large
one only what was put since the last flush. What is not in memory is looked up in LTS, whose content never changes
under one root of the index, so that what was found there stays true as long as the root is the same.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import immutables

from chunkstore.decoding import InvalidData
from engine.errors import understanding
from engine.state.segments import Extents
from engine.tables.btree import TreeRoot
from engine.tables.content import TableLayout, empty

METADATA = "_system/containers/metadata"
"""The table of segments that may not be active (Pravega: the container metadata segment)."""

STORAGE = "_system/containers/storage_metadata"
"""The table of the records of chunks and of segments in LTS (Pravega: the storage metadata segment)."""

ATTRIBUTES = "_system/containers/attributes"
"""The table of extended attributes that do not fit into memory."""

METADATA_TABLES = (ATTRIBUTES, STORAGE, METADATA)
"""What is flushed last, in this order (F1)."""

RESIDENT_BYTES = 1 << 20
"""A table whose entries take no more than this stays in memory whole. Whoever flushes it decides."""


class Entry(NamedTuple):
    """A table's entry; the version is the sequence number of the operation that put it. None: it was removed."""

    value: bytes | None
    version: int


class LookupResult(NamedTuple):
    """What a look-up in LTS found under one root of the index."""

    root: TreeRoot | None
    entry: Entry | None


class Table(NamedTuple):
    """recent: entries by key; those with versions up to `flushed` are in LTS as well. size: bytes in them.

    dropped: keys that are not in `recent` may be in LTS. layout, entries, pages: what LTS holds, and the two
    byte spaces it lies in, that of the entries and that of the index.
    """

    recent: immutables.Map[str, Entry]
    size: int
    flushed: int
    dropped: bool
    layout: TableLayout
    entries: Extents
    pages: Extents

    def put(self, key: str, entry: Entry, under_way: bool = False) -> Table:
        """The table with an entry put, or removed.

        `under_way`: the key may be on its way to LTS, though it is not known here.
        """
        before = self.recent.get(key)
        size = self.size - (entry_size(key, before) if before is not None else 0)
        if entry.value is None and before is None and not self.layout.length and not under_way:
            return self  # what was put before may just be on its way to LTS, but this key never was
        return self._replace(recent=self.recent.set(key, entry), size=size + entry_size(key, entry))

    def dirty(self, upto: int) -> list[tuple[str, Entry]]:
        """The entries that are not in LTS yet, of versions up to `upto`, in the order of their versions."""
        found = [(key, entry) for key, entry in self.recent.items() if self.flushed < entry.version <= upto]
        return sorted(found, key=lambda pair: pair[1].version)

    def settled(self, upto: int, keep: bool) -> Table:
        """The table after entries of versions up to `upto` came to be in LTS; unless `keep`, they are dropped."""
        recent = self.recent.mutate()
        dropped, size = self.dropped, self.size
        for key, entry in self.recent.items():
            if entry.version <= upto and (entry.value is None or not keep):
                dropped = dropped or entry.value is not None
                size -= entry_size(key, entry)
                del recent[key]
        return self._replace(recent=recent.finish(), size=size, flushed=upto, dropped=dropped)


def new_table(name: str) -> Table:
    """An empty table."""
    layout = empty(ATTRIBUTE_KEY_LENGTH if name == ATTRIBUTES else 0)
    return Table(immutables.Map(), 0, -1, False, layout, Extents(), Extents())


def entry_size(key: str, entry: Entry) -> int:
    """About how many bytes an entry takes."""
    return len(key) + len(entry.value or b"")


ATTRIBUTE_KEY_LENGTH = 48
ATTRIBUTE_VALUE = 8
"""Bytes of an entry of the table of attributes."""

_ATTRIBUTE = re.compile(f"[0-9a-f]{{{ATTRIBUTE_KEY_LENGTH}}}")


def attribute_key(segment_id: int, attribute: bytes) -> str:
    """The key of a segment's attribute in the table of attributes, which is sorted by segment."""
    return f"{segment_id:016x}{attribute.hex()}"


def check_attribute(key: str, value: bytes | None) -> None:
    """Raise ValueError for what the table of attributes cannot have, with its keys of one length."""
    length = ATTRIBUTE_VALUE if value is None else len(value)
    if not _ATTRIBUTE.fullmatch(key) or length != ATTRIBUTE_VALUE:
        raise ValueError(
            f"table {ATTRIBUTES!r}: key {key!r} with a value of {length} bytes: its keys have {ATTRIBUTE_KEY_LENGTH} "
            f"hexadecimal digits, and its values {ATTRIBUTE_VALUE} bytes"
        )


def stored_attribute(key: str, value: bytes) -> tuple[bytes, int]:
    """The id and the value in an entry of the table of attributes. Raises DataCorruption."""
    with understanding(f"{ATTRIBUTES}, key {key!r}", "Restore the root from a copy"):
        if len(key) != ATTRIBUTE_KEY_LENGTH or len(value) != ATTRIBUTE_VALUE:
            raise InvalidData(f"it has {len(key)} digits and a value of {len(value)} bytes")
        return bytes.fromhex(key[16:]), attribute_value(value)


def attribute_value(value: bytes) -> int:
    """An attribute as its entry in that table has it."""
    return int.from_bytes(value, "big", signed=True)
