"""A table as the container's state holds it: its recent entries, and where LTS keeps the others (S4).

An entry's version is the sequence number of the operation that put it. A small table stays in memory; of a large one
only the entries since the last flush. Other entries are looked up in LTS. The content under one root of the index never
changes, so a lookup stays valid as long as the table's root is the same.
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
"""The tables that are flushed last, in this order (F1)."""

RESIDENT_BYTES = 1 << 20
"""A table of up to this size stays in memory. The flush cycle decides that."""


class Entry(NamedTuple):
    """A table's entry. version: the sequence number of the operation that put it. value None: it was removed."""

    value: bytes | None
    version: int


class LookupResult(NamedTuple):
    """The result of a lookup in LTS under one root of the index."""

    root: TreeRoot | None
    entry: Entry | None


class Table(NamedTuple):
    """recent: entries in memory; LTS also has those with versions up to `flushed`. size: of `recent`, bytes.

    dropped: LTS may have keys that are not in `recent`. layout: of the table in LTS. entries, pages: where the byte
    spaces of its entries and of its index are stored.
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

        under_way: a flush cycle may be writing the key to LTS, though it is not in `recent`.
        """
        before = self.recent.get(key)
        size = self.size - (entry_size(key, before) if before is not None else 0)
        if entry.value is None and before is None and not self.layout.length and not under_way:
            return self  # the key was never put, so no flush cycle is writing it
        return self._replace(recent=self.recent.set(key, entry), size=size + entry_size(key, entry))

    def dirty(self, upto: int) -> list[tuple[str, Entry]]:
        """The entries with versions up to `upto` that are not in LTS, in the order of their versions."""
        found = [(key, entry) for key, entry in self.recent.items() if self.flushed < entry.version <= upto]
        return sorted(found, key=lambda pair: pair[1].version)

    def unflushed(self) -> int:
        """The size of the entries that are not in LTS, bytes."""
        return sum(entry_size(key, entry) for key, entry in self.recent.items() if entry.version > self.flushed)

    def settled(self, upto: int, keep: bool) -> Table:
        """The table after the entries with versions up to `upto` were flushed. Unless `keep`, they leave memory."""
        recent = self.recent.mutate()
        dropped, size = self.dropped, self.size
        for key, entry in self.recent.items():
            if entry.version <= upto and (entry.value is None or not keep):
                dropped = dropped or entry.value is not None
                size -= entry_size(key, entry)
                del recent[key]
        return self._replace(recent=recent.finish(), size=size, flushed=upto, dropped=dropped)


def new_table(name: str, key_length: int = 0) -> Table:
    """An empty table. key_length: of all keys; 0: they may have any length. Raises ValueError for an impossible one."""
    layout = empty(ATTRIBUTE_KEY_LENGTH if name == ATTRIBUTES else key_length)
    return Table(immutables.Map(), 0, -1, False, layout, Extents(), Extents())


def entry_size(key: str, entry: Entry) -> int:
    """Approximate size of an entry, bytes."""
    return len(key) + len(entry.value or b"")


ATTRIBUTE_KEY_LENGTH = 48
ATTRIBUTE_VALUE = 8
"""Bytes of an entry of the table of attributes."""


def is_created(name: str, table: Table) -> bool:
    """Whether an operation created the table, with a fixed length of its keys."""
    return bool(table.layout.key_length) and name != ATTRIBUTES


_ATTRIBUTE = re.compile(f"[0-9a-f]{{{ATTRIBUTE_KEY_LENGTH}}}")


def attribute_key(segment_id: int, attribute: bytes) -> str:
    """The key of a segment's attribute in the table of attributes. Keys sort by segment."""
    return f"{segment_id:016x}{attribute.hex()}"


def check_attribute(key: str, value: bytes | None) -> None:
    """Raise ValueError unless key and value have the fixed lengths of the table of attributes."""
    length = ATTRIBUTE_VALUE if value is None else len(value)
    if not _ATTRIBUTE.fullmatch(key) or length != ATTRIBUTE_VALUE:
        raise ValueError(
            f"table {ATTRIBUTES!r}: key {key!r} with a value of {length} bytes: its keys have {ATTRIBUTE_KEY_LENGTH} "
            f"hexadecimal digits, and its values {ATTRIBUTE_VALUE} bytes"
        )


def stored_attribute(key: str, value: bytes) -> tuple[bytes, int]:
    """The id and the value in an entry of the table of attributes. Raises DataCorruption."""
    with understanding(f"{ATTRIBUTES}, key {key!r}", "Restore the root from a backup"):
        if len(key) != ATTRIBUTE_KEY_LENGTH or len(value) != ATTRIBUTE_VALUE:
            raise InvalidData(f"it has {len(key)} digits and a value of {len(value)} bytes")
        return bytes.fromhex(key[16:]), attribute_value(value)


def attribute_value(value: bytes) -> int:
    """An attribute's value, from its entry in the table of attributes."""
    return int.from_bytes(value, "big", signed=True)
