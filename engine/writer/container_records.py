"""The metadata of chunks and segments in LTS, in a table of the container (S4; Pravega: TableBasedMetadataStore).

A transaction of the chunk layer is one transaction of the log: conditional on the versions of all records that it read,
and fenced like everything in the log. The operations that come with it update the container's state and queue the
garbage that the transaction makes (G1). They go into the same append, so records and state never contradict each other.
"""

from __future__ import annotations

from collections.abc import Mapping

from chunkstore.errors import MetadataConflict
from chunkstore.metadata.metadata_records import Record, encode
from chunkstore.metadata.store import ABSENT, WithOperations
from engine.errors import BadKeyVersion
from engine.logs.durable_log import DurableLog
from engine.reading.table_store import TableStore
from engine.state.operations import CheckEntry, Operation, PutEntry
from engine.state.tables import STORAGE
from engine.storage.record_reader import RecordReader


class ContainerRecords(RecordReader):
    """The records of an open container, changed through its log. WithOperations of a transaction are `Operation`s."""

    def __init__(self, tables: TableStore, log: DurableLog) -> None:
        super().__init__(lambda keys: tables.entries(STORAGE, keys), lambda prefix: tables.scan(STORAGE, prefix))
        self._log = log

    def _store(
        self, changes: Mapping[str, Record | None], expected: Mapping[str, int], with_operations: WithOperations
    ) -> dict[str, int]:
        operations: list[Operation] = [
            PutEntry(STORAGE, key, encode(record) if record is not None else None, expected[key])
            for key, record in changes.items()
        ]
        operations += [CheckEntry(STORAGE, key, version) for key, version in expected.items() if key not in changes]
        try:
            results = self._log.commit([*operations, *with_operations]).results
        except BadKeyVersion as error:
            raise MetadataConflict(f"another process changed {error.key!r}: begin again", (error.key,)) from error
        return {
            key: version if record is not None else ABSENT
            for (key, record), version in zip(changes.items(), results, strict=False)
        }
