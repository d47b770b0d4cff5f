"""A table as the container's state holds it: its recent entries, and where tier 2 keeps the others (S4).

An entry's version is the sequence number of the operation that put it. A small table stays in memory whole; of a large
one only what was put since the last flush. What is not in memory is looked up in tier 2, whose content never changes
under one root of the index, so that what was found there stays true as long as the root is the same.
"""

from __future__ import annotations

from typing import NamedTuple

import immutables

from engine.btree import Root
from engine.segments import Extents
from engine.table_content import TableLayout, empty

METADATA = "_system/containers/metadata"
"""The table of segments that may not be active (Pravega: the container metadata segment)."""

STORAGE = "_system/containers/storage_metadata"
"""The table of the records of chunks and of segments in tier 2 (Pravega: the storage metadata segment)."""

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


class Known(NamedTuple):
    """What a look-up in tier 2 found under one root of the index."""

    root: Root | None
    entry: Entry | None


class Table(NamedTuple):
    """recent: entries by key; those with versions up to `flushed` are in tier 2 as well. size: bytes in them.

    dropped: keys that are not in `recent` may be in tier 2. layout, entries, pages: what tier 2 holds, and the two
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

        `under_way`: the key may be on its way to tier 2, though it is not known here.
        """
        before = self.recent.get(key)
        size = self.size - (entry_size(key, before) if before is not None else 0)
        if entry.value is None and before is None and not self.layout.length and not under_way:
            return self  # what was put before may just be on its way to tier 2, but this key never was
        return self._replace(recent=self.recent.set(key, entry), size=size + entry_size(key, entry))

    def dirty(self, upto: int) -> list[tuple[str, Entry]]:
        """The entries that are not in tier 2 yet, of versions up to `upto`, in the order of their versions."""
        found = [(key, entry) for key, entry in self.recent.items() if self.flushed < entry.version <= upto]
        return sorted(found, key=lambda pair: pair[1].version)

    def settled(self, upto: int, keep: bool) -> Table:
        """The table after entries of versions up to `upto` came to be in tier 2; unless `keep`, they are dropped."""
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


def attribute_key(segment_id: int, attribute: bytes) -> str:
    """The key of a segment's attribute in the table of attributes, which is sorted by segment."""
    return f"{segment_id:016x}{attribute.hex()}"
