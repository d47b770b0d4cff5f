"""The part of a table that is in LTS: a segment of entries, and a B+tree index from keys to the offsets of entries.

Both segments are append-only, and truncated at the head. Each put or removal is an entry, and the index has the offset
of the newest entry of each live key. If too few entries are live, the live ones at the head are rewritten at the end
with their versions, and the head is truncated (Pravega: HashTableCompactor). This module does no I/O, and knows nothing
of entries that are not in LTS yet.

A table has keys of any length, which are indexed by the first 16 bytes of their SHA-256, or keys of one fixed length,
which are indexed, and therefore sorted, by themselves (Pravega: HashTableSegmentLayout,
FixedKeyLengthTableSegmentLayout).

    entry   u8 version 0, i32 length of the key, i32 length of the value (-1: a removal), i64 version; key; value

Each entry that is read is compared with the index and the limits. A mismatch raises DataCorruption.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import NamedTuple, TypeAlias, TypeVar

from engine.errors import DataCorruption, EngineError
from engine.tables import btree
from engine.tables.btree import MAX_PAGE, Read, TreeRoot

MAX_KEY = 8192
"""The longest key, bytes (Pravega: TableStore.MAXIMUM_KEY_LENGTH)."""

MAX_VALUE = (1 << 20) - 8192
"""The longest value, bytes (Pravega: TableStore.MAXIMUM_VALUE_LENGTH)."""

COMPACT_BYTES = 4 << 20
"""Bytes at the head that one flush compacts (Pravega: compaction.bytes.max)."""

UTILIZATION = 0.75
"""The share of live entries below which the head is compacted (Pravega: utilization.min)."""

MIN_WRITTEN = 64
"""A table with no more entries than this, live or not, is not compacted."""

_CATCH_UP = 4  # compaction covers so many times the bytes that a flush appends, so that garbage stays bounded
_INDEX_SHARE = 4  # the index may be so many times as large as its entries,
_INDEX_LEAST = 64 << 10  # and so much larger
_HASH = 16
_HEADER = struct.Struct(">Biiq")
_REMOVED = -1
_GUESS = 512  # bytes of an entry that are read before its length is known
_WINDOW = 256 << 10  # bytes that are read at once where entries are read one after the other
_FIRST, _TOGETHER = 16, 256  # entries whose beginnings a scan reads at once, at first and later
_REST = 4 << 20  # bytes that are read at once of long entries, and by compaction

Place: TypeAlias = tuple[bytes, int]
"""A key of the index, and the offset of its entry."""

Item = TypeVar("Item")


class TableEntry(NamedTuple):
    """An entry. value: None for a removal. version: the number of the operation that wrote it."""

    key: bytes
    value: bytes | None
    version: int


class TableLayout(NamedTuple):
    """The layout of a table in LTS.

    start, length: of the segment of entries, bytes. index_start, index_length: of the segment of the index. root: of
    the index. entries: live keys. written: entries from `start` on, superseded ones included. key_length: of all keys,
    or 0.
    """

    start: int
    length: int
    index_start: int
    index_length: int
    root: TreeRoot | None
    entries: int
    written: int
    key_length: int


class Flush(NamedTuple):
    """Bytes to append to the segments of entries and of the index, and the layout after that."""

    entries: bytes
    pages: bytes
    layout: TableLayout


class KeyCollision(EngineError):
    """Two keys have the same first 16 bytes of SHA-256. A table can hold only one of them."""

    def __init__(self, table: str, first: bytes, second: bytes) -> None:
        super().__init__(f"{table}: keys {first!r} and {second!r} have the same hash; rename one of them")
        self.keys = (first, second)


def empty(key_length: int = 0) -> TableLayout:
    """The layout of a table without entries in LTS. Raises ValueError for an invalid key length."""
    if not 0 <= key_length <= btree.MAX_KEY:
        raise ValueError(f"keys of {key_length} bytes: a fixed length is 1 to {btree.MAX_KEY}, or 0 for any length")
    return TableLayout(0, 0, 0, 0, None, 0, 0, key_length)


def check_entry(key: bytes, value: bytes | None) -> None:
    """Raise ValueError if the key or the value is too long."""
    if len(key) > MAX_KEY:
        raise ValueError(f"a key of {len(key)} bytes: {MAX_KEY} are possible at most")
    if value is not None and len(value) > MAX_VALUE:
        raise ValueError(f"a value of {len(value)} bytes: {MAX_VALUE} are possible at most")


def encode(entry: TableEntry) -> bytes:
    """Encode an entry (Pravega: EntrySerializer)."""
    key, value, version = entry
    if value is None:
        return _HEADER.pack(0, len(key), _REMOVED, version) + key
    return _HEADER.pack(0, len(key), len(value), version) + key + value


def decode(data: bytes, offset: int = 0) -> tuple[TableEntry, int]:
    """Decode the entry at `offset` of `data`. Returns it and its end. Raises DataCorruption."""
    size = _size(data, offset, offset)
    if offset + size > len(data):
        raise _damaged(offset, f"it has {size} bytes, of which {len(data) - offset} are there")
    return _entry(data, offset), offset + size


class TableContent:
    """A table's entries in LTS. name: for errors. max_page: limit of the index pages that a flush writes."""

    def __init__(
        self,
        layout: TableLayout,
        read_entries: Read,
        read_index: Read,
        *,
        name: str = "table",
        max_page: int = MAX_PAGE,
    ) -> None:
        self.layout = layout
        self._name = name
        self._max_page = max_page
        self._stored = _Stored(layout, read_entries, read_index)

    def get(self, keys: Collection[bytes]) -> dict[bytes, TableEntry]:
        """The live entries of these keys. Raises DataCorruption."""
        with _named(self._name):
            return self._stored.newest(keys, whole=True)

    def versions(self, keys: Collection[bytes]) -> dict[bytes, int]:
        """The versions of the live entries of these keys. Long values are not read. Raises DataCorruption."""
        with _named(self._name):
            return {key: entry.version for key, entry in self._stored.newest(keys, whole=False).items()}

    def scan(self, prefix: bytes = b"", after: bytes | None = None) -> Iterator[TableEntry]:
        """All live entries whose key begins with `prefix`, behind the key `after`, in the order of the index.

        Keys of a fixed length are in order, and only the range of the prefix is read. Other keys are in the order of
        their hashes, and all are read. Raises DataCorruption.
        """
        return _naming_table(self._name, self._stored.scan(prefix, after))

    def range(self, start: bytes, end: bytes | None, *, whole: bool = True) -> Iterator[TableEntry]:
        """The live entries whose keys, of a fixed length, are in `[start, end)`, in order. The bounds may have any
        length; end None: to the last key. Unless `whole`, long values are not read, and all are left out (empty).

        Raises DataCorruption.
        """
        return _naming_table(self._name, self._stored.range(start, end, whole))

    def changes(self, position: int) -> Iterator[tuple[int, TableEntry]]:
        """The entries from `position` on, which must be the end of an entry, each with its own end.

        They include removals, and entries that compaction rewrote: of two entries of a key, the one with the higher
        version is newer.
        Raises ValueError for a position outside the segment, DataCorruption.
        """
        start, length = self.layout.start, self.layout.length
        if not start <= position <= length:
            raise ValueError(f"{self._name}: position {position} is not between {start} and {length}")
        return _naming_table(self._name, ((end, entry) for _, end, entry in self._stored.walk(position)))

    def flush(self, dirty: Sequence[TableEntry], *, compact: int = COMPACT_BYTES) -> Flush:
        """The bytes that bring `dirty` to LTS: at most one entry for each key, newer than the one in LTS.

        compact: bytes at the head to compact if too few entries are live, or more if the flush itself is large. 0: no
        compaction. The same input gives the same bytes. Raises ValueError for an invalid entry, KeyCollision,
        DataCorruption.
        """
        with _named(self._name):
            flushing = _Flushing(self._stored, self._name)
            flushing.append(dirty)
            if compact:
                flushing.compact(compact)
            return flushing.finish(self._max_page, compact)


class _Stored:
    """Reads the two segments: entries by the index, and entries in the order of writing."""

    def __init__(self, layout: TableLayout, read_entries: Read, read_index: Read) -> None:
        self.layout = layout
        self.read_index = read_index
        self._read = read_entries

    def index_key(self, key: bytes) -> bytes:
        """The bytes by which a key is indexed."""
        return key if self.layout.key_length else hashlib.sha256(key).digest()[:_HASH]

    def find(self, index_keys: Collection[bytes]) -> dict[bytes, int]:
        """The offsets of the live entries of these index keys."""
        return btree.find(self.read_index, self.layout.root, index_keys)

    def newest(self, keys: Collection[bytes], whole: bool) -> dict[bytes, TableEntry]:
        """The live entries of these keys. Unless `whole`, values may be left out (empty)."""
        wanted = {key: self.index_key(key) for key in keys if self._possible(key)}
        entries = self.entries(set(wanted.values()), whole)
        return {key: entries[own] for key, own in wanted.items() if own in entries and entries[own].key == key}

    def entries(self, index_keys: Collection[bytes], whole: bool) -> dict[bytes, TableEntry]:
        """The live entries of these index keys."""
        places = sorted(self.find(index_keys).items(), key=lambda place: place[1])
        return {own: entry for (own, _), entry in zip(places, self._entries(places, whole), strict=True)}

    def scan(self, prefix: bytes, after: bytes | None) -> Iterator[TableEntry]:
        """Entries in the order of the index."""
        for entry in self._all(self._scan_index(prefix, after), whole=True):
            if entry.key.startswith(prefix):
                yield entry

    def range(self, start: bytes, end: bytes | None, whole: bool) -> Iterator[TableEntry]:
        """Entries with keys in `[start, end)`, in order."""
        assert self.layout.key_length, "the index of a table with keys of any length is not in their order"
        below = start[:-1] or None  # the index is read from behind a key, and `start` itself is wanted
        places = btree.scan(self.read_index, self.layout.root, below, end, key_length=self.layout.key_length)
        return self._all((place for place in places if place[0] >= start), whole)

    def _all(self, places: Iterator[Place], whole: bool) -> Iterator[TableEntry]:
        """The entries at these places, of which ever more are read at once."""
        size = _FIRST
        while batch := list(islice(places, size)):
            yield from self._entries(batch, whole)
            size = min(2 * size, _TOGETHER)

    def walk(self, position: int, window: int = _WINDOW) -> Iterator[tuple[int, int, TableEntry]]:
        """Entries in the order of writing, each with its beginning and end. window: bytes that are read at once."""
        data, first = b"", position  # bytes that were read, and their offset
        while position < self.layout.length:
            at = position - first
            size = self._size(data, at, position) if len(data) - at >= _HEADER.size else _HEADER.size
            if len(data) - at < size:
                data, first = self._window(position, max(window, size)), position
                continue
            yield position, position + size, _entry(data, at)
            position += size

    def check(self, own: bytes, offset: int, entry: TableEntry) -> TableEntry:
        """The entry, after checking that the index key `own` may point to it."""
        if self.index_key(entry.key) != own:
            raise _damaged(offset, f"the index points to it for another key than {entry.key!r}")
        if entry.value is None:
            raise _damaged(offset, f"it removes {entry.key!r}, but the index points to it")
        return entry

    def _possible(self, key: bytes) -> bool:
        return len(key) == self.layout.key_length if self.layout.key_length else len(key) <= MAX_KEY

    def _scan_index(self, prefix: bytes, after: bytes | None) -> Iterator[Place]:
        root, length = self.layout.root, self.layout.key_length
        if not length:
            behind = None if after is None else self.index_key(after)
            return btree.scan(self.read_index, root, behind, key_length=_HASH)
        if len(prefix) >= length:
            return iter(self.find([prefix] if self._possible(prefix) and prefix > (after or b"") else []).items())
        behind = max(prefix, after or b"")
        return btree.scan(self.read_index, root, behind, _end_of_prefix(prefix), key_length=length)

    def _entries(self, places: Sequence[Place], whole: bool) -> Iterator[TableEntry]:
        """The entries at these places, in order. Their beginnings are read at once, then the missing rest."""
        group: list[tuple[Place, int, bytes]] = []
        missing = 0
        for (own, offset), begin in zip(places, self._begins(places), strict=True):
            size = self._size(begin, 0, offset)
            if not whole:
                size = _HEADER.size + int(_HEADER.unpack_from(begin)[1])
            if missing + size > _REST:
                yield from self._completed(group, whole)
                group, missing = [], 0
            group.append(((own, offset), size, begin))
            missing += max(size - len(begin), 0)
        yield from self._completed(group, whole)

    def _begins(self, places: Sequence[Place]) -> Sequence[bytes]:
        start, length = self.layout.start, self.layout.length
        for _, offset in places:
            if not start <= offset <= length - _HEADER.size:
                raise _damaged(offset, f"the index points there, but entries are between {start} and {length}")
        return self._read([(at, min(_GUESS, length - at)) for _, at in places]) if places else ()

    def _completed(self, group: Sequence[tuple[Place, int, bytes]], whole: bool) -> Iterator[TableEntry]:
        """Entries, from their place, the size that is needed, and their beginning."""
        long = [(at + len(begin), size - len(begin)) for (_, at), size, begin in group if size > len(begin)]
        rests = iter(self._read(long) if long else ())
        for (own, offset), size, begin in group:
            data = bytes(begin) + bytes(next(rests)) if size > len(begin) else begin
            if len(data) < size:
                raise _damaged(offset, f"{len(data)} of {size} bytes were read")
            yield self.check(own, offset, _entry(data, 0, whole))

    def _size(self, data: bytes, at: int, offset: int) -> int:
        """The size of the entry at `at` of `data`, which is at `offset` of the segment."""
        size = _size(data, at, offset)
        if offset + size > self.layout.length:
            raise _damaged(offset, f"it has {size} bytes, but the segment ends at {self.layout.length}")
        return size

    def _window(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position` on."""
        length = min(size, self.layout.length - position)
        [data] = self._read([(position, length)])
        if len(data) != length or length < _HEADER.size:
            raise _damaged(position, f"{len(data)} bytes are there, which is less than an entry")
        return data


class _Flushing:
    """Builds a flush: the bytes to append, the changes of the index, and the new counts."""

    def __init__(self, stored: _Stored, name: str) -> None:
        self._stored = stored
        self._name = name
        self._layout = stored.layout  # `length` and the fields of the index change only in `finish`
        self._parts: list[bytes] = []
        self._end = stored.layout.length
        self._dirty: dict[bytes, TableEntry] = {}
        self._changes: dict[bytes, int | None] = {}

    def append(self, dirty: Sequence[TableEntry]) -> None:
        """Append the new entries."""
        for entry in dirty:
            self._check(entry)
            self._dirty[self._stored.index_key(entry.key)] = entry
        there = self._there()
        entries = self._layout.entries
        for own, entry in self._dirty.items():
            offset = self._add(entry)
            self._changes[own] = None if entry.value is None else offset
            entries += (entry.value is not None) - (own in there)
        self._layout = self._layout._replace(entries=entries, written=self._layout.written + len(dirty))

    def compact(self, size: int) -> None:
        """Move the live entries at the head to the end, in steps of about `size` bytes, and truncate the head."""
        limit = self._layout.start + max(size, _CATCH_UP * (self._end - self._layout.length))
        entries = self._stored.walk(self._layout.start, min(size, _REST))
        while self._wasteful() and self._layout.start < min(limit, self._layout.length):
            self._move(_some(entries, size))

    def finish(self, max_page: int, compact: int) -> Flush:
        """The flush, with the pages that change in the index."""
        layout = self._layout
        width = layout.key_length or _HASH
        allowed = _INDEX_SHARE * layout.entries * (width + 8) + _INDEX_LEAST
        excess = max(layout.index_length - layout.index_start - allowed, 0)
        update = btree.update(
            self._stored.read_index,
            layout.root,
            layout.index_length,
            self._changes,
            key_length=width,
            max_page=max_page,
            compact=min(excess, compact + _CATCH_UP * max_page * len(self._changes)) if compact else 0,
        )
        layout = layout._replace(
            length=self._end,
            index_start=update.start,
            index_length=layout.index_length + len(update.pages),
            root=update.root,
        )
        return Flush(b"".join(self._parts), update.pages, layout)

    def _check(self, entry: TableEntry) -> None:
        check_entry(entry.key, entry.value)
        length = self._layout.key_length
        if length and len(entry.key) != length:
            raise ValueError(f"key {entry.key!r} has {len(entry.key)} bytes; all keys of {self._name} have {length}")
        if entry.version < 0:
            raise ValueError(f"key {entry.key!r}: version {entry.version}, but versions begin at 0")
        other = self._dirty.get(self._stored.index_key(entry.key))
        if other is not None and other.key == entry.key:
            raise ValueError(f"key {entry.key!r} is to be flushed twice; only its newest entry can be")
        if other is not None:
            raise KeyCollision(self._name, other.key, entry.key)

    def _there(self) -> Collection[bytes]:
        """The index keys of the new entries that have an older entry."""
        if self._layout.key_length:
            return self._stored.find(self._dirty)
        there = self._stored.entries(self._dirty, whole=False)
        for own, entry in there.items():
            if entry.key != self._dirty[own].key:
                raise KeyCollision(self._name, entry.key, self._dirty[own].key)
        return there

    def _add(self, entry: TableEntry) -> int:
        """Append an entry. Returns its offset."""
        offset = self._end
        self._parts.append(encode(entry))
        self._end += len(self._parts[-1])
        return offset

    def _wasteful(self) -> bool:
        entries, written = self._layout.entries, self._layout.written
        return written > MIN_WRITTEN and entries < UTILIZATION * written

    def _move(self, batch: Sequence[tuple[int, int, TableEntry]]) -> None:
        """Append those of the first entries that are live, and truncate behind `batch`."""
        keys = [self._stored.index_key(entry.key) for _, _, entry in batch]
        found = self._stored.find({key for key in keys if key not in self._dirty})
        copied = 0
        for own, (offset, _, entry) in zip(keys, batch, strict=True):
            if found.get(own) == offset:
                self._changes[own] = self._add(self._stored.check(own, offset, entry))
                copied += 1
        written = self._layout.written - len(batch) + copied
        self._layout = self._layout._replace(start=batch[-1][1], written=written)


def _some(entries: Iterator[tuple[int, int, TableEntry]], size: int) -> list[tuple[int, int, TableEntry]]:
    """The next entries, at least one, up to about `size` bytes in total."""
    batch = []
    for start, end, entry in entries:
        batch.append((start, end, entry))
        size -= end - start
        if size <= 0:
            break
    return batch


def _size(data: bytes, at: int, offset: int) -> int:
    """The size of the entry at `at` of `data`. `offset` is for errors."""
    if len(data) - at < _HEADER.size:
        raise _damaged(offset, f"{len(data) - at} bytes are there, which is less than an entry")
    version, key, value, _ = _HEADER.unpack_from(data, at)
    if version != 0:
        raise _damaged(offset, f"its format is {version}; this program knows format 0")
    if not 0 <= key <= MAX_KEY or not _REMOVED <= value <= MAX_VALUE:
        raise _damaged(offset, f"a key of {key} bytes with a value of {value} is not possible")
    return _HEADER.size + int(key) + max(int(value), 0)


def _entry(data: bytes, at: int, whole: bool = True) -> TableEntry:
    """The entry at `at` of `data`. Unless `whole`, its value is left out (empty)."""
    _, key_length, value_length, version = _HEADER.unpack_from(data, at)
    at += _HEADER.size
    key = bytes(data[at : at + key_length])
    if value_length == _REMOVED:
        return TableEntry(key, None, version)
    at += key_length
    return TableEntry(key, bytes(data[at : at + value_length]) if whole else b"", version)


def _end_of_prefix(prefix: bytes) -> bytes | None:
    """The least key above all keys with this prefix; None if there is none."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def _naming_table(name: str, items: Iterator[Item]) -> Iterator[Item]:
    with _named(name):
        yield from items


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Add the table's name to errors about damage."""
    try:
        yield
    except DataCorruption as error:
        raise DataCorruption(f"{name}: {error}") from error


def _damaged(offset: int, reason: str) -> DataCorruption:
    return DataCorruption(f"entry at offset {offset}: {reason}. Restore the segment from a copy")
