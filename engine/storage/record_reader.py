"""Reading the records of chunks and segments in LTS, from a table of the container (S1, S4)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from chunkstore.decoding import InvalidData
from chunkstore.errors import InvalidRecord
from chunkstore.metadata.metadata_records import Record, decode
from chunkstore.metadata.store import ABSENT, MetadataStore, WithOperations
from engine.state.tables import Entry

Entries = Callable[[Collection[str]], Mapping[str, Entry | None]]
"""Entries of the table of the records, by their keys."""

Scan = Callable[[str], Iterator[tuple[str, Entry]]]
"""All entries of that table whose keys begin with a prefix."""


class RecordReader(MetadataStore):
    """The records, for reading only. It does not cache records, as the block cache below keeps their bytes."""

    def __init__(self, entries: Entries, scan: Scan) -> None:
        super().__init__(cache_size=0)
        self._entries = entries
        self._scan_entries = scan

    def _load(self, keys: Collection[str]) -> dict[str, tuple[int, Record | None]]:
        return {
            key: (entry.version, _record(key, entry)) if entry is not None else (ABSENT, None)
            for key, entry in self._entries(keys).items()
        }

    def _store(
        self, changes: Mapping[str, Record | None], expected: Mapping[str, int], with_operations: WithOperations
    ) -> dict[str, int]:
        raise RuntimeError("the records of one state cannot be changed")

    def _scan(self, prefix: str) -> Iterator[tuple[str, Record]]:
        for key, entry in self._scan_entries(prefix):
            yield key, _record(key, entry)


def _record(key: str, entry: Entry) -> Record:
    assert entry.value is not None
    try:
        return decode(entry.value)
    except InvalidData as error:
        raise InvalidRecord(f"the record {key!r} cannot be read: {error}", "type") from error
