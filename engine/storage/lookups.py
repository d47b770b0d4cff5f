"""What a container looks up in LTS: entries of its tables, and where the chunks of segments lie.

It needs a state and no log, so that any process, and a recovery without a log, reads LTS alike (S1).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple, NoReturn

from chunkstore.errors import InvalidRecord, MetadataConflict, fact_of
from chunkstore.metadata.metadata_records import RecordStatus, StoredSegmentRecord
from chunkstore.segments.chunk_list import ChunkList
from engine.errors import DataCorruption, Unresolved, understanding
from engine.state.segments import Extents
from engine.state.state import State
from engine.state.tables import STORAGE, Entry, LookupResult, Table
from engine.storage.cache import Cache
from engine.storage.reads import ObjectRange, Stores, fetch_through, plan_extents
from engine.storage.records import RecordReader
from engine.tables.content import TableContent, TableEntry


class Changes(NamedTuple):
    """Entries that were put or removed (value None), by their keys, in the order of their versions; only the newest of
    each key. position: where the next look begins."""

    entries: tuple[tuple[str, Entry], ...]
    position: int


class Lookups:
    """Look-ups in LTS of one container. May be used by many threads."""

    def __init__(self, stores: Stores, container: int, cache: Cache) -> None:
        self._stores = stores
        self._container = container
        self._cache = cache

    def content(self, name: str, table: Table) -> TableContent:
        """What LTS holds of a table."""
        return TableContent(table.layout, self._reader(table.entries), self._reader(table.pages), name=name)

    def _reader(self, extents: Extents) -> Callable[[Sequence[tuple[int, int]]], Sequence[bytes]]:
        def read(ranges: Sequence[tuple[int, int]]) -> list[bytes]:
            plans = [plan_extents(extents, self._container, at, at + length) for at, length in ranges]
            found = iter(fetch_through(self._stores, [piece for pieces in plans for piece in pieces], self._cache))
            return [b"".join(next(found) for _ in pieces) for pieces in plans]

        return read

    def records(self, state: State) -> RecordReader:
        """The records of chunks and of segments in LTS, as they are in `state`."""
        return RecordReader(
            lambda keys: self.entries(state, STORAGE, keys), lambda prefix: self.scan(state, STORAGE, prefix)
        )

    def entries(self, state: State, name: str, keys: Collection[str]) -> dict[str, Entry | None]:
        """The entries of a table, from memory or LTS, None where there is none. Raises ObjectNotFound as
        `look_up`."""
        found: dict[str, Entry | None] = {}
        missing = []
        for key in keys:
            try:
                found[key] = state.entry(name, key)
            except Unresolved:
                missing.append(key)
        if missing:
            found |= {key: known.entry for (_, key), known in self.look_up(state, name, missing).items()}
        return found

    def look_up(self, state: State, name: str, keys: Collection[str]) -> dict[tuple[str, str], LookupResult]:
        """What LTS holds of these keys of a table, under the root that the state names.

        Raises ObjectNotFound when the state is so old that its objects are gone.
        """
        table = state.tables[name]
        found = self.content(name, table).get([key.encode() for key in keys])
        known = {}
        for key in keys:
            entry = found.get(key.encode())
            value = Entry(entry.value, entry.version) if entry is not None else None
            known[name, key] = LookupResult(table.layout.root, value)
        return known

    def scan(self, state: State, name: str, prefix: str = "") -> Iterator[tuple[str, Entry]]:
        """All entries of a table whose keys begin with `prefix`, in no order. Raises ObjectNotFound as `look_up`."""
        table = state.tables.get(name)
        if table is None:
            return
        for key, entry in table.recent.items():
            if key.startswith(prefix) and entry.value is not None:
                yield key, entry
        if table.dropped:
            for found in self.content(name, table).scan(prefix.encode()):
                key = _key(name, found)
                if key not in table.recent:
                    yield key, Entry(found.value, found.version)

    def changes(self, state: State, name: str, position: int) -> Changes:
        """What changed in a table since `position`; see Container.changed_entries. Raises ChangesLost."""
        table = state.tables.get(name)
        if table is None:
            return Changes((), 0)
        newest: dict[str, Entry] = {}
        for _, found in self.content(name, table).changes(position or table.layout.start):
            newest[_key(name, found)] = Entry(found.value, found.version)
        newest |= dict(table.dirty(state.sequence))
        return Changes(tuple(sorted(newest.items(), key=lambda pair: pair[1].version)), table.layout.length)

    def pieces(self, state: State, storage: str, start: int, end: int) -> list[ObjectRange]:
        """Where the bytes `[start, end)` of a segment in LTS lie. Raises DataCorruption, ObjectNotFound."""
        try:
            return self._pieces(state, storage, start, end)
        except (InvalidRecord, MetadataConflict) as error:  # one state's records never change
            raise DataCorruption(f"segment {storage!r}: {fact_of(error)}") from error

    def _pieces(self, state: State, storage: str, start: int, end: int) -> list[ObjectRange]:
        with self.records(state).begin(read_only=True) as transaction:
            record = transaction.segment(storage)
            if record is None or not record.status & RecordStatus.ACTIVE:
                _contradiction(storage, start, end, None)
            if not record.start_offset <= start <= end <= record.length:
                _contradiction(storage, start, end, record)
            covering = ChunkList(transaction, record).covering(start, end)
            return [
                ObjectRange(
                    False,
                    chunk.name,
                    0,
                    chunk.length,
                    chunk.checksums,
                    max(start - begin, 0),
                    min(end - begin, chunk.length) - max(start - begin, 0),
                )
                for begin, chunk in covering
            ]


def _key(table: str, entry: TableEntry) -> str:
    with understanding(f"table {table!r}, key {entry.key!r}", "Restore the root from a copy"):
        return entry.key.decode()


def _contradiction(storage: str, start: int, end: int, record: StoredSegmentRecord | None) -> NoReturn:
    what = "nothing" if record is None else f"{record.start_offset} to {record.length}"
    raise DataCorruption(
        f"segment {storage!r}: its container counts bytes {start} to {end} in LTS, whose metadata knows of {what}; "
        "check the root with `verify`"
    )
