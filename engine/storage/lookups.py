"""Lookups in LTS: entries of a container's tables, and the chunks of its segments.

They need a state but no log, so every process, and a recovery without a log, reads LTS alike (S1).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NoReturn

from chunkstore.errors import InvalidRecord, MetadataConflict, fact_of
from chunkstore.metadata.metadata_records import RecordStatus, StoredSegmentRecord
from chunkstore.segments.chunk_list import ChunkList
from engine.errors import DataCorruption, Unresolved, understanding
from engine.state.segments import Extents
from engine.state.state import State
from engine.state.tables import STORAGE, Entry, LookupResult, Table
from engine.storage.cache import Cache
from engine.storage.object_reads import ObjectRange, Stores, fetch_through, plan_extents
from engine.storage.record_reader import RecordReader
from engine.tables.content import TableContent, TableEntry


class Lookups:
    """Lookups in LTS of one container. Thread-safe."""

    def __init__(self, stores: Stores, container: int, cache: Cache) -> None:
        self._stores = stores
        self._container = container
        self._cache = cache

    def content(self, name: str, table: Table) -> TableContent:
        """The part of a table that is in LTS."""
        return TableContent(table.layout, self._reader(table.entries), self._reader(table.pages), name=name)

    def _reader(self, extents: Extents) -> Callable[[Sequence[tuple[int, int]]], Sequence[bytes]]:
        def read(ranges: Sequence[tuple[int, int]]) -> list[bytes]:
            plans = [plan_extents(extents, self._container, at, at + length) for at, length in ranges]
            found = iter(fetch_through(self._stores, [piece for pieces in plans for piece in pieces], self._cache))
            return [b"".join(next(found) for _ in pieces) for pieces in plans]

        return read

    def records(self, state: State) -> RecordReader:
        """The records of chunks and segments in LTS, as of `state`."""
        return RecordReader(
            lambda keys: self.entries(state, STORAGE, keys), lambda prefix: self.scan(state, STORAGE, prefix)
        )

    def entries(self, state: State, name: str, keys: Collection[str]) -> dict[str, Entry | None]:
        """Entries of a table, from memory or LTS; None for those that do not exist. Raises ObjectNotFound as
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
        """Entries of a table in LTS, under the root that the state names.

        Raises ObjectNotFound if the state is so old that its objects are deleted.
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

    def range(
        self, state: State, name: str, start: str, end: str | None, *, whole: bool = True
    ) -> Iterator[tuple[str, Entry]]:
        """The entries of a created table whose keys are in `[start, end)`, in the order of the keys, as of `state`.

        Unless `whole`, values are left out (empty) or not. Raises ObjectNotFound as `look_up`.
        """
        table = state.tables.get(name)
        if table is None:
            return
        keys = sorted(key for key in table.recent if start <= key and (end is None or key < end))
        recent = ((key, table.recent[key]) for key in keys)
        stored = self._stored_range(name, table, start, end, whole) if table.dropped else iter(())
        for key, entry in _merged(recent, stored):
            if entry.value is not None:
                yield key, entry

    def _stored_range(
        self, name: str, table: Table, start: str, end: str | None, whole: bool
    ) -> Iterator[tuple[str, Entry]]:
        last = end.encode() if end is not None else None
        for found in self.content(name, table).range(start.encode(), last, whole=whole):
            yield _key(name, found), Entry(found.value, found.version)

    def pieces(self, state: State, storage: str, start: int, end: int) -> list[ObjectRange]:
        """The object ranges with the bytes `[start, end)` of a segment in LTS. Raises DataCorruption,
        ObjectNotFound."""
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


def _merged(recent: Iterator[tuple[str, Entry]], stored: Iterator[tuple[str, Entry]]) -> Iterator[tuple[str, Entry]]:
    """Entries of both in the order of their keys; of a key that is in both, the recent one."""
    newer, older = next(recent, None), next(stored, None)
    while newer is not None or older is not None:
        if older is None or (newer is not None and newer[0] <= older[0]):
            assert newer is not None
            if older is not None and older[0] == newer[0]:
                older = next(stored, None)
            yield newer
            newer = next(recent, None)
        else:
            yield older
            older = next(stored, None)


def _key(table: str, entry: TableEntry) -> str:
    with understanding(f"table {table!r}, key {entry.key!r}", "Restore the root from a backup"):
        return entry.key.decode()


def _contradiction(storage: str, start: int, end: int, record: StoredSegmentRecord | None) -> NoReturn:
    what = "nothing" if record is None else f"{record.start_offset} to {record.length}"
    raise DataCorruption(
        f"segment {storage!r}: its container counts bytes {start} to {end} in LTS, but the records there have {what}. "
        "Check the root with `verify`"
    )
