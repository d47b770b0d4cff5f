"""A key-value table of an open root: creating and deleting it, updates, and reads.

Keeps X1 for tables: the record and the entries of a table lie in one container, so every change is one append. Each
update is conditional on the record, so none reaches a table that was deleted, or created again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from engine import errors as engine_errors
from engine.admin.inspection import describe_table
from engine.errors import DataCorruption, TableNotFound
from engine.root import Root
from engine.state.operations import CheckEntry, CreateTable, DeleteTable, Operation, PutEntry
from engine.state.state import NOT_EXISTS, State
from engine.state.tables import Entry
from pravega_spark.errors import (
    BadKeyVersion,
    ConditionalTableUpdateFailed,
    KeyValueTableNotFound,
    KeyValueTableRecreated,
    NoSuchKey,
)
from pravega_spark.streams.model.key_value_table import (
    MAX_UPDATE,
    MAX_VALUE,
    Insert,
    KeyRange,
    KeyValueTableConfiguration,
    KeyValueTableEntry,
    KeyValueTableRecord,
    Remove,
    TableKey,
    TableModification,
    Version,
    as_key,
    engine_tables,
    key_of_stored,
    named_tables,
    partition_of,
    stored_key,
)
from pravega_spark.streams.model.names import container_of, validate_scope_name, validate_stream_name
from pravega_spark.streams.model.system_tables import KEY_VALUE_TABLES, SCOPES
from pravega_spark.streams.reading.foreign_root import ForeignRoot
from pravega_spark.streams.reading.suggestions import has_key, similar_keys, similar_names
from pravega_spark.streams.scopes import unless_deleted

if TYPE_CHECKING:
    from engine.containers.container import Container


class KeyValueTableInfo(NamedTuple):
    """A key-value table at one moment.

    created: ms since the epoch. entries: live ones. stored: bytes in long-term storage, superseded entries and the
    index included. unflushed: entries and removals that are only in the log.
    """

    scope: str
    table: str
    configuration: KeyValueTableConfiguration
    created: int
    entries: int
    stored: int
    unflushed: int


class _Opened(NamedTuple):
    """A table in a state of its container. version: of the record's entry. entries: the engine's table."""

    record: KeyValueTableRecord
    version: int
    entries: str


class StoredTable:
    """A key-value table by name, whether it exists or not. Raises ValueError for names that no table can have."""

    def __init__(self, root: Root, scope: str, name: str) -> None:
        self.root = root
        self.scope = validate_scope_name(scope)
        self.name = validate_stream_name(name, "key-value table")
        self.key = f"{scope}/{name}"

    @property
    def container(self) -> Container:
        """Its container."""
        return self.root.container(container_of(self.key, self.root.config.containers))

    # --- the table itself --------------------------------------------------------------------------------------

    def create(self, configuration: KeyValueTableConfiguration, keep_scope: Callable[[], None]) -> bool:
        """Create the table, in one append. False if it exists already, whatever its configuration.

        keep_scope: raises ScopeNotFound unless the scope exists, and prevents its deletion (see `scopes`).
        """
        return self._create(KeyValueTableRecord.new(configuration, int(time.time() * 1000)), keep_scope) is not None

    def _create(self, record: KeyValueTableRecord, keep_scope: Callable[[], None]) -> int | None:
        """Create the table with this record, in the place of one that was not filled. Returns the version of the
        record's entry; None if the table exists."""
        while True:
            state = self.container.refresh()
            condition = unless_deleted(self.container, state)
            keep_scope()
            if self._opened(state) is not None:
                return None
            entry = self._entry(state)
            version = entry.version if entry is not None else NOT_EXISTS
            operations: list[Operation] = [
                condition,
                PutEntry(KEY_VALUE_TABLES, self.key, record.encode(), version),
                *map(DeleteTable, self._engine_tables(state)),
                CreateTable(record.engine_table(self.key), 2 * record.configuration.key_length),
            ]
            try:
                return int(self.container.commit(operations).results[1])
            except (engine_errors.BadKeyVersion, TableNotFound):
                continue  # another process created, or created and deleted it meanwhile

    def fill(
        self,
        configuration: KeyValueTableConfiguration,
        batches: Iterable[Sequence[tuple[TableKey, bytes]]],
        keep_scope: Callable[[], None],
    ) -> bool:
        """Create the table with all these entries: no process sees it before it has them. False if it exists already.

        If the call is interrupted, repeat it: it begins again. Raises KeyValueTableRecreated if another process began
        to fill the table meanwhile.
        """
        record = KeyValueTableRecord.new(configuration, int(time.time() * 1000))._replace(ready=False)
        version = self._create(record, keep_scope)
        if version is None:
            return False
        name = record.engine_table(self.key)
        try:
            for batch in batches:
                operations: list[Operation] = [CheckEntry(KEY_VALUE_TABLES, self.key, version)]
                operations += [PutEntry(name, stored_key(configuration, key), _value(value)) for key, value in batch]
                self.container.commit(operations)
            ready = record._replace(ready=True)
            self.container.commit([PutEntry(KEY_VALUE_TABLES, self.key, ready.encode(), version)])
        except engine_errors.BadKeyVersion:
            raise KeyValueTableRecreated(self.key) from None
        return True

    def delete(self) -> bool:
        """Delete the table with all entries, in one append, also if its record is damaged. False if it does not
        exist."""
        while True:
            state = self.container.refresh()
            entry = self._entry(state)
            if entry is None:
                return False
            removal = PutEntry(KEY_VALUE_TABLES, self.key, None, entry.version)
            try:
                self.container.commit([removal, *map(DeleteTable, self._engine_tables(state))])
            except (engine_errors.BadKeyVersion, TableNotFound):
                continue  # another process deleted it meanwhile
            return True

    def exists(self) -> bool:
        """Whether it exists now."""
        return self._opened(self.container.refresh()) is not None

    def is_stored(self) -> bool:
        """Whether there is anything of it: also what cannot be decoded, or an import that was not completed."""
        return self._entry(self.container.refresh()) is not None

    def record(self) -> KeyValueTableRecord:
        """Its record now. Raises KeyValueTableNotFound."""
        opened = self._opened(self.container.refresh())
        if opened is None:
            raise self.not_found()
        return opened.record

    def describe(self) -> KeyValueTableInfo:
        """What it is and has now. Raises KeyValueTableNotFound."""
        container = self.container
        state = container.refresh()
        opened = self._opened(state)
        if opened is None:
            raise self.not_found()
        found = describe_table(container, state, opened.entries)
        record = opened.record
        return KeyValueTableInfo(self.scope, self.name, record.configuration, record.created, *found[1:])

    def not_found(self) -> KeyValueTableNotFound:
        """The error for a table that does not exist."""
        return table_not_found(self.root, self.scope, self.name)

    def _engine_tables(self, state: State) -> list[str]:
        """The engine's tables of this name: that of the table, or what an interrupted import left."""
        return [name for name in state.tables if name.startswith(engine_tables(self.key))]

    def _entry(self, state: State) -> Entry | None:
        entry = self.container.entries(KEY_VALUE_TABLES, [self.key], state)[self.key]
        return entry if entry is not None and entry.value is not None else None

    def _opened(self, state: State) -> _Opened | None:
        """The table in a state, None while an import fills it. A recovered container may have a record whose entries
        were deleted before the recovery point was complete: then there is no table."""
        entry = self._entry(state)
        if entry is None or entry.value is None:
            return None
        record = KeyValueTableRecord.decode(entry.value, self.key)
        name = record.engine_table(self.key)
        return _Opened(record, entry.version, name) if record.ready and name in state.tables else None

    def _of(self, life: KeyValueTableRecord, state: State) -> _Opened:
        """The table with the record `life` in a state. Raises KeyValueTableNotFound, KeyValueTableRecreated."""
        opened = self._opened(state)
        if opened is None:
            raise self.not_found()
        if opened.record.id != life.id:
            raise KeyValueTableRecreated(self.key)
        return opened

    # --- its entries -------------------------------------------------------------------------------------------

    def update(self, life: KeyValueTableRecord, modifications: Sequence[TableModification]) -> list[Version]:
        """Carry out all modifications of one primary key, or none. Returns the versions of entries that were put.

        Raises ConditionalTableUpdateFailed, KeyValueTableNotFound, KeyValueTableRecreated; ValueError.
        """
        puts = checked_update(life.configuration, modifications)
        keys = {put[0]: as_key(modification.key) for put, modification in zip(puts, modifications, strict=True)}
        self._check_partitions(life.configuration, modifications)
        container = self.container
        if any(value is not None for _, value, *_ in puts):
            container.check_room()
        known = self._opened(container.state)
        opened = known if known is not None and known.record.id == life.id else self._of(life, container.refresh())
        while True:
            operations: list[Operation] = [CheckEntry(KEY_VALUE_TABLES, self.key, opened.version)]
            operations += [PutEntry(opened.entries, *put) for put in puts]
            try:
                results = container.commit(operations).results[1:]
            except engine_errors.BadKeyVersion as error:
                if error.table != KEY_VALUE_TABLES:
                    raise self._failed(life.configuration, keys[error.key], error) from None
                opened = self._of(life, container.refresh())
                continue
            break
        configuration = life.configuration
        return [
            Version(partition_of(configuration, as_key(modification.key).primary), number)
            for modification, number in zip(modifications, results, strict=True)
            if not isinstance(modification, Remove)
        ]

    def _check_partitions(
        self, configuration: KeyValueTableConfiguration, modifications: Sequence[TableModification]
    ) -> None:
        """A version with another partition than that of its key is that of no entry (Pravega: TableEntryHelper)."""
        for modification in modifications:
            version = None if isinstance(modification, Insert) else modification.version
            if version is not None and version != Version.NOT_EXISTS:
                key = as_key(modification.key)
                if version.partition != partition_of(configuration, key.primary):
                    raise BadKeyVersion(self.key, key, version.as_text())

    def _failed(
        self, configuration: KeyValueTableConfiguration, key: TableKey, error: engine_errors.BadKeyVersion
    ) -> ConditionalTableUpdateFailed:
        partition = partition_of(configuration, key.primary)
        expected = "" if error.expected == NOT_EXISTS else Version(partition, error.expected).as_text()
        if error.actual == NOT_EXISTS:
            return NoSuchKey(self.key, key, expected)
        return BadKeyVersion(self.key, key, expected, Version(partition, error.actual).as_text())

    def get(self, life: KeyValueTableRecord, keys: Sequence[TableKey]) -> list[KeyValueTableEntry | None]:
        """The entries of these keys now, None for those that do not exist.

        Raises KeyValueTableNotFound, KeyValueTableRecreated; ValueError.
        """
        configuration = life.configuration
        stored = [stored_key(configuration, key) for key in keys]
        state = self.container.refresh()
        found = self.container.entries(self._of(life, state).entries, stored, state)
        entries = (found[each] for each in stored)
        return [
            _entry(configuration, key, entry) if entry is not None and entry.value is not None else None
            for key, entry in zip(keys, entries, strict=True)
        ]

    def scan(self, life: KeyValueTableRecord, keys: KeyRange, *, whole: bool = True) -> Iterator[KeyValueTableEntry]:
        """The entries in a range, in the order of their keys, as they are now. Unless `whole`, without values.

        Raises KeyValueTableNotFound, KeyValueTableRecreated.
        """
        state = self.container.refresh()
        entries = self.container.range_entries(self._of(life, state).entries, *keys, state, whole=whole)
        configuration = life.configuration
        return (
            _entry(configuration, key_of_stored(configuration, key), entry if whole else entry._replace(value=b""))
            for key, entry in entries
        )


def _entry(configuration: KeyValueTableConfiguration, key: TableKey, entry: Entry) -> KeyValueTableEntry:
    version = Version(partition_of(configuration, key.primary), entry.version)
    return KeyValueTableEntry(*key, entry.value or b"", version)


StoredPut = tuple[str, bytes | None, int | None]
"""The key of the engine's table, the value, None for a removal, and the expected version, None for any."""


def checked_update(
    configuration: KeyValueTableConfiguration, modifications: Sequence[TableModification]
) -> list[StoredPut]:
    """What the engine has to put for an update of one primary key. Raises ValueError."""
    if len({as_key(modification.key).primary for modification in modifications}) > 1:
        raise ValueError("all keys of one update must have the same primary key: only those are updated atomically")
    if len({isinstance(modification, Remove) for modification in modifications}) > 1:
        raise ValueError("one update cannot both put and remove entries: make two calls")
    puts = [_stored_put(configuration, modification) for modification in modifications]
    size = sum(len(key) // 2 + len(value or b"") for key, value, _ in puts)
    if size > MAX_UPDATE:
        raise ValueError(f"keys and values of one update have {size} bytes; {MAX_UPDATE} are possible: make several")
    return puts


def _stored_put(configuration: KeyValueTableConfiguration, modification: TableModification) -> StoredPut:
    key = stored_key(configuration, modification.key)
    if isinstance(modification, Insert):
        return key, _value(modification.value), NOT_EXISTS
    expected = modification.version.number if modification.version is not None else None
    return key, None if isinstance(modification, Remove) else _value(modification.value), expected


def _value(value: bytes) -> bytes:
    if len(value) > MAX_VALUE:
        raise ValueError(f"a value has {len(value)} bytes; {MAX_VALUE} are possible")
    return value


# --- the tables of a root, ours or the long-term storage of a Pravega -------------------------------------------------


def key_value_tables(root: Root, scope: str, *, ready: bool = True) -> list[str]:
    """The key-value tables of a scope, sorted. Unless `ready`, with those that an import fills."""
    if isinstance(root, ForeignRoot):
        return root.key_value_tables(scope)
    prefix = f"{scope}/"
    return sorted(key.removeprefix(prefix) for key in _keys(root, prefix, ready))


def key_value_table_entries(root: Root, scope: str, name: str) -> Iterator[KeyValueTableEntry]:
    """The live entries of a key-value table. Raises KeyValueTableNotFound, ArchiveDamaged."""
    if isinstance(root, ForeignRoot):
        if not has_key(root, SCOPES, scope) or name not in root.key_value_tables(scope):
            raise table_not_found(root, scope, name)
        yield from root.key_value_table_entries(scope, name)
        return
    table = StoredTable(root, scope, name)
    record = table.record()
    yield from table.scan(record, KeyRange.of(record.configuration))


def table_not_found(root: Root, scope: str, name: str) -> KeyValueTableNotFound:
    """The error for a table that does not exist, with similar names."""
    key = f"{scope}/{name}"
    if not has_key(root, SCOPES, scope):
        return KeyValueTableNotFound(key, similar_keys(root, SCOPES, scope), without_scope=True)
    return KeyValueTableNotFound(key, similar_names(_keys(root), key))


def _keys(root: Root, prefix: str = "", ready: bool = True) -> Iterator[str]:
    """All key-value tables of a root, as "scope/table", whose names begin with `prefix`."""
    for number in range(root.config.containers):
        container = root.container(number)
        if isinstance(root, ForeignRoot):
            for scope, _ in container.scan_entries(SCOPES):
                yield from (f"{scope}/{name}" for name in root.key_value_tables(scope))
            continue
        there = named_tables(container.refresh().tables)
        for key, entry in container.scan_entries(KEY_VALUE_TABLES, prefix):
            if key in there and (not ready or _is_ready(entry, key)):
                yield key


def _is_ready(entry: Entry, key: str) -> bool:
    """Whether a table exists, by the entry of its record; also one whose record is damaged, so that it is noticed."""
    try:
        return KeyValueTableRecord.decode(entry.value or b"", key).ready
    except DataCorruption:
        return True
