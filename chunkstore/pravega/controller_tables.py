"""What Pravega's controller knows: scopes, streams and key-value tables, from its tables `_system/_tables/…`.

    scopes                                          scope: its id
    <scope>/streamsInScope.#.<scope id>             stream: its id. kvTablesInScope, readerGroupsInScope alike
    <scope>/<stream>/metadata.#.<id>                the stream's records, by the keys below
    <scope>/<stream>/transactionsInEpoch-<n>.#.<id> transaction: its record, while it is not completed

A table that is not there was never flushed, or is lost: then its content is reported as not known. If only a table's
index was flushed after a change, the entry before that change is returned.
"""

from __future__ import annotations

import functools
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from chunkstore.decoding import decoding
from chunkstore.pravega.archive import Archive
from chunkstore.pravega.controller_records import (
    ActiveTransaction,
    ControllerEpoch,
    RetentionCut,
    StreamConfiguration,
    StreamState,
    TableConfiguration,
    Truncation,
    decode_configuration,
    decode_epoch,
    decode_int,
    decode_long,
    decode_retention_cut,
    decode_retention_set,
    decode_sealed_sizes,
    decode_state,
    decode_table_configuration,
    decode_table_epoch,
    decode_transaction,
    decode_truncation,
    decode_uuid,
)
from chunkstore.pravega.source import ArchiveDamaged
from chunkstore.pravega.table_entries import Entry, TableRows

_TABLES = "_system/_tables/"
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_SCOPE_TABLE = re.compile(re.escape(_TABLES) + rf"([^/]+)/streamsInScope\.#\.({_UUID})")
_METADATA_TABLE = re.compile(re.escape(_TABLES) + rf"([^/]+)/([^/]+)/metadata\.#\.({_UUID})")
_TRANSACTIONS = "transactionsInEpoch-"
_MOST_EPOCHS = 1 << 20

Value = TypeVar("Value")


class Ids(dict[str, uuid.UUID]):
    """Ids by their names. whole: whether these are all; else there may be more, which were not flushed. is_empty:
    whether nothing says that there are any."""

    def __init__(self, ids: Mapping[str, uuid.UUID], whole: bool = True, is_empty: bool = False) -> None:
        super().__init__(ids)
        self.whole = whole
        self.is_empty = is_empty

    @classmethod
    def unknown(cls) -> Ids:
        """Those of which nothing is known."""
        return cls({}, whole=False)


@dataclass
class StreamRecords:
    """A stream as the controller knows it; None or empty where that is not known, which `unknown` says in words.

    epochs: all, from the first to the current one. sealed_sizes: bytes, by ids of segments. created: ms.
    """

    scope: str
    stream: str
    id: uuid.UUID | None = None
    created: int | None = None
    state: StreamState | None = None
    configuration: StreamConfiguration | None = None
    epochs: tuple[ControllerEpoch, ...] = ()
    truncation: Truncation | None = None
    sealed_sizes: dict[int, int] = field(default_factory=dict)
    retention: tuple[RetentionCut, ...] = ()
    transactions: dict[uuid.UUID, ActiveTransaction] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)


@dataclass
class TableRecords:
    """A key-value table as the controller knows it."""

    scope: str
    table: str
    id: uuid.UUID
    configuration: TableConfiguration | None = None
    epoch: ControllerEpoch | None = None
    unknown: list[str] = field(default_factory=list)


class ControllerTables:
    """The controller's tables in an archive. All methods raise ArchiveDamaged, and what the store raises."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._transactions_of: dict[str, list[str]] = {}
        self._ids_of: dict[str, Ids | None] = {}
        self._metadata_of: dict[tuple[str, str], list[uuid.UUID]] = {}
        for name in archive.segments():
            folder, _, last = name.rpartition("/")
            if name.startswith(_TABLES) and last.startswith(_TRANSACTIONS):
                self._transactions_of.setdefault(folder, []).append(name)
            elif match := _METADATA_TABLE.fullmatch(name):
                self._metadata_of.setdefault((match[1], match[2]), []).append(uuid.UUID(match[3]))

    def scopes(self) -> Ids:
        """Scopes and their ids; those too of which the table of streams is there, where that of scopes is not whole."""
        known = self._ids(f"{_TABLES}scopes")
        if known is not None and known.whole:
            return known
        found = Ids.unknown()
        for match in map(_SCOPE_TABLE.fullmatch, self._archive.segments()):
            if match is not None:
                found[match[1]] = uuid.UUID(match[2])
        found.update(known or {})
        return found

    def streams(self, scope: str, scope_id: uuid.UUID) -> Ids | None:
        """The streams of a scope and their ids; None if that is not known."""
        return self._ids(f"{_TABLES}{scope}/streamsInScope.#.{scope_id}")

    def stream_id(self, scope: str, stream: str) -> uuid.UUID | None:
        """The id of a stream by the name of its own table; None if there is none, or more than one."""
        found = self._metadata_of.get((scope, stream), [])
        return found[0] if len(found) == 1 else None

    def key_value_tables(self, scope: str, scope_id: uuid.UUID) -> Ids | None:
        """The key-value tables of a scope and their ids; None if that is not known."""
        return self._ids(f"{_TABLES}{scope}/kvTablesInScope.#.{scope_id}")

    def reader_groups(self, scope: str, scope_id: uuid.UUID) -> Ids | None:
        """The reader groups of a scope and their ids; None if that is not known."""
        return self._ids(f"{_TABLES}{scope}/readerGroupsInScope.#.{scope_id}")

    def stream(self, scope: str, stream: str, stream_id: uuid.UUID) -> StreamRecords:
        """All that is known of a stream."""
        found = StreamRecords(scope, stream, stream_id)
        name = f"{_TABLES}{scope}/{stream}/metadata.#.{stream_id}"
        records = _Records(self, name, found.unknown)
        if records.rows is None:
            found.unknown.append(f"the controller's table of stream {scope}/{stream} is not there: {name!r}")
        else:
            found.created = records.value("creationTime", decode_long)
            found.state = records.value("state", decode_state)
            found.configuration = records.value("configuration", decode_configuration)
            found.truncation = self._truncation(records)
            found.epochs = records.epochs(decode_epoch)
            for shard in records.keys("segmentsSealedSizeMapShard-"):
                found.sealed_sizes |= records.value(shard, decode_sealed_sizes) or {}
            times = records.value("retention", decode_retention_set) or []
            cuts = [records.value(f"retentionCuts-{time}", decode_retention_cut) for time in times]
            found.retention = tuple(cut for cut in cuts if cut is not None)
        found.transactions = self._transactions(scope, stream, stream_id)
        return found

    def key_value_table(self, scope: str, table: str, table_id: uuid.UUID) -> TableRecords:
        """All that is known of a key-value table."""
        found = TableRecords(scope, table, table_id)
        name = f"{_TABLES}{scope}/{table}/metadata.#.{table_id}"
        records = _Records(self, name, found.unknown)
        if records.rows is None:
            found.unknown.append(f"the controller's table of {scope}/{table} is not there: {name!r}")
        else:
            found.configuration = records.value("configuration", decode_table_configuration)
            found.epoch = next(reversed(records.epochs(decode_table_epoch)), None)
        return found

    def rows(self, name: str) -> TableRows | None:
        """The entries of a table by their keys, which are text; None if it is not there."""
        return self._archive.table(name) if name in self._archive.segments() else None

    def _truncation(self, records: _Records) -> Truncation | None:
        """Where a stream is truncated. Raises ArchiveDamaged if that may have been cut off from the table."""
        if records.is_cut_off("truncation"):
            raise self._archive.damaged(
                f"{records.name!r}: its record 'truncation' was not flushed, or its end is missing: where the stream "
                "begins is not known"
            )
        return records.value("truncation", decode_truncation)

    def _texts(self, name: str, rows: TableRows) -> Iterator[tuple[str, Entry]]:
        for key, entry in rows.items():
            with decoding(functools.partial(self._damaged, name, entry)):
                yield key.decode(), entry

    def _ids(self, name: str) -> Ids | None:
        """The ids in a table. One of which nothing was flushed is as empty as one to which nothing was ever added."""
        if name not in self._ids_of:
            self._ids_of[name] = self._read_ids(name)
        return self._ids_of[name]

    def _read_ids(self, name: str) -> Ids | None:
        rows = self.rows(name)
        if rows is None:
            return None
        found = {key: self._decoded(name, entry, decode_uuid) for key, entry in self._texts(name, rows)}
        is_empty = not self._archive.segment(name).length and not rows.ahead
        return Ids(found, not rows.ahead and not is_empty, is_empty)

    def _transactions(self, scope: str, stream: str, stream_id: uuid.UUID) -> dict[uuid.UUID, ActiveTransaction]:
        found: dict[uuid.UUID, ActiveTransaction] = {}
        for name in self._transactions_of.get(f"{_TABLES}{scope}/{stream}", ()):
            if name.endswith(f".#.{stream_id}"):
                for key, entry in self._texts(name, self._archive.table(name)):
                    with decoding(functools.partial(self._damaged, name, entry)):
                        found[uuid.UUID(key)] = decode_transaction(entry.value or b"")
        return found

    def _decoded(self, name: str, entry: Entry, decode: Callable[[bytes], Value]) -> Value:
        with decoding(functools.partial(self._damaged, name, entry)):
            return decode(entry.value or b"")

    def _damaged(self, name: str, entry: Entry, problem: object) -> ArchiveDamaged:
        return self._archive.damaged(f"{name!r}: the entry {entry.key!r} at offset {entry.offset}: {problem}")


class _Records:
    """The records in one table of metadata. What is missing among them goes to `unknown`."""

    def __init__(self, tables: ControllerTables, name: str, unknown: list[str]) -> None:
        self._tables = tables
        self.name = name
        self._unknown = unknown
        found = tables.rows(name)
        self.rows = found if found is not None and (found or tables._archive.segment(name).length) else None

    def keys(self, prefix: str) -> list[str]:
        """The keys that begin so."""
        rows = self._tables._texts(self.name, self.rows) if self.rows is not None else ()
        return [key for key, _ in rows if key.startswith(prefix)]

    def is_newest(self, key: str) -> bool:
        """Whether what is here of a record is what was last put."""
        return self.rows is None or self.rows.is_newest(key.encode())

    def is_cut_off(self, key: str) -> bool:
        """Whether what was last put of a record is missing, and no record says that it was not flushed."""
        return not self.is_newest(key) and not self._tables._archive.segment(self.name).length_recorded

    def value(self, key: str, decode: Callable[[bytes], Value]) -> Value | None:
        """A record; None if it is not there."""
        entry = self.rows.get(key.encode()) if self.rows is not None else None
        if not self.is_newest(key):
            before = "none before it is there" if entry is None else "it is as it was before"
            self._unknown.append(f"{self.name!r}: the last change of record {key!r} was not flushed: {before}")
        elif entry is None:
            self._unknown.append(f"{self.name!r} has no record {key!r}")
        return self._tables._decoded(self.name, entry, decode) if entry is not None else None

    def epochs(self, decode: Callable[[bytes], ControllerEpoch]) -> tuple[ControllerEpoch, ...]:
        """All epochs up to the current one. Raises ArchiveDamaged if one of them is missing."""
        current = self.value("currentEpochRecord", decode_int)
        if current is None:
            return ()
        found = []
        for number in range(min(current, _MOST_EPOCHS) + 1):
            key = f"epochRecord-{number}"
            epoch = self.value(key, decode)
            if epoch is None and not self.is_newest(key):
                break  # the names say what its segments are
            if epoch is None or epoch.epoch != number:
                is_there = "is missing" if epoch is None else f"is that of epoch {epoch.epoch}"
                raise self._tables._archive.damaged(
                    f"{self.name!r}: record {key!r} {is_there}; the current epoch is {current}"
                )
            found.append(epoch)
        return tuple(found)
