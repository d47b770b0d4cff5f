"""The import of a key-value table of a Pravega: all of its live entries become entries of a table of the same name.

The table appears with all of them, or not at all. Versions are those of the new table.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from chunkstore import StorageError
from chunkstore.errors import fact_of
from engine.errors import EngineError
from engine.root import Root
from pravega_spark.errors import StreamError
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.model.key_value_table import KeyValueTableConfiguration, TableKey
from pravega_spark.streams.pravega_lts.streams import PravegaTable

BATCH, BATCH_BYTES = 1000, 1 << 20
"""The most entries in one append, and the bytes of keys and values after which it is made."""


class ImportedTable(NamedTuple):
    """The outcome of an import for a key-value table.

    outcome: `new`: would be imported; `present`: is there already, and stays as it is; `imported`; `failed`: with a
    problem. entries, bytes: live entries, and their keys and values; 0 if they were not read.
    """

    scope: str
    table: str
    outcome: Literal["new", "present", "imported", "failed"]
    entries: int = 0
    bytes: int = 0
    problem: str | None = None


class TableImport:
    """The import of one table."""

    def __init__(self, source: PravegaTable) -> None:
        self._source = source
        self._entries = self._bytes = 0

    def found(self, root: Root | None) -> ImportedTable:
        """What an import into a root, or into a new one, would do."""
        try:
            self._configuration()
            there = root is not None and Catalog(root).key_value_table(self._source.scope, self._source.name).exists()
        except (ValueError, StreamError, EngineError, StorageError) as error:
            return self._outcome("failed", fact_of(error))
        return self._outcome("present" if there else "new")

    def run(self, root: Root) -> ImportedTable:
        """Import it. Can be repeated after a crash, and begins again."""
        catalog, (scope, name) = Catalog(root), (self._source.scope, self._source.name)
        try:
            configuration = self._configuration()
            catalog.create_scope(scope)
            table = catalog.key_value_table(scope, name)
            if table.exists() or not table.fill(configuration, self._batches(), lambda: catalog.keep_scope(scope)):
                return self._outcome("present")
        except (ValueError, StreamError, EngineError, StorageError) as error:
            return self._outcome("failed", fact_of(error))
        return self._outcome("imported")

    def _configuration(self) -> KeyValueTableConfiguration:
        """The configuration of the table. Raises ValueError if its keys have no fixed lengths."""
        records = self._source.records
        known = records.configuration if records is not None else None
        if known is None or not known.primary_key:
            raise ValueError("the lengths of its keys are not known: read it where it is")
        return KeyValueTableConfiguration(max(known.partitions, 1), known.primary_key, known.secondary_key)

    def _batches(self) -> Iterator[list[tuple[TableKey, bytes]]]:
        batch: list[tuple[TableKey, bytes]] = []
        size = 0
        for entry in self._source.entries():
            batch.append((entry.key, entry.value))
            self._entries += 1
            size += len(entry.primary) + len(entry.secondary) + len(entry.value)
            if len(batch) == BATCH or size >= BATCH_BYTES:
                self._bytes += size
                yield batch
                batch, size = [], 0
        self._bytes += size
        yield batch

    def _outcome(
        self, outcome: Literal["new", "present", "imported", "failed"], problem: str | None = None
    ) -> ImportedTable:
        source = self._source
        told = f"key-value table {source.scope}/{source.name}: {problem}" if problem is not None else None
        return ImportedTable(source.scope, source.name, outcome, self._entries, self._bytes, told)
