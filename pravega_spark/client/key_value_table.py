"""The client of a key-value table (Pravega: KeyValueTable, KeyValueTableIterator).

It keeps nothing about the entries: every call looks at the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from pravega_spark.parameters import checks_parameters
from pravega_spark.streams.key_value_table import StoredTable
from pravega_spark.streams.model.key_value_table import (
    Insert,
    KeyLike,
    KeyRange,
    KeyValueTableConfiguration,
    KeyValueTableEntry,
    Put,
    Remove,
    TableKey,
    TableModification,
    Version,
    as_key,
)


@checks_parameters(hints={"key": "give TableKey(primary, secondary), or bytes if the table has no secondary keys"})
class KeyValueTable:
    """A key-value table: keys and values are bytes. `StreamManager.key_value_table` opens it. Thread-safe.

    A call that changes something is durable on return. A condition that does not hold raises BadKeyVersion, or
    NoSuchKey for a key that does not exist, and nothing is changed. If OutcomeUnknown is raised, the change may have
    been made or not: read the entry.

    Every method raises KeyValueTableNotFound if the table was deleted, KeyValueTableRecreated if another one was
    created under its name, ValueError for keys and values of wrong lengths, StorageError, and Closed after the manager
    was closed.
    """

    def __init__(self, table: StoredTable, check_open: Callable[[], None]) -> None:
        self._table = table
        self._check_open = check_open
        self._life = table.record()

    @property
    def configuration(self) -> KeyValueTableConfiguration:
        """The configuration with which it was created."""
        return self._life.configuration

    def __repr__(self) -> str:
        return f"KeyValueTable({self._table.key!r})"

    # --- updates -----------------------------------------------------------------------------------------------

    def put(self, key: KeyLike, value: bytes, version: Version | None = None) -> Version:
        """Put an entry, whether its key exists or not; with a version only if the entry has it. Returns the new
        version."""
        return self._one(Put(key, value, version))

    def insert(self, key: KeyLike, value: bytes) -> Version:
        """Put an entry, only if its key does not exist. Returns its version. Raises BadKeyVersion."""
        return self._one(Insert(key, value))

    def replace(self, key: KeyLike, value: bytes, version: Version) -> Version:
        """Replace the value of an entry that has this version. Returns the new one. Raises BadKeyVersion, NoSuchKey."""
        return self._one(Put(key, value, version))

    def remove(self, key: KeyLike, version: Version | None = None) -> None:
        """Remove an entry, if it exists; with a version only if the entry has it. Raises BadKeyVersion, NoSuchKey."""
        self._update([Remove(key, version)])

    def update(self, modifications: TableModification | Iterable[TableModification]) -> list[Version]:
        """Carry out several modifications of one primary key, all or none: Put and Insert, or Remove. Returns the
        versions of what was put, in order.

        All of them together may have 32 MiB. Raises BadKeyVersion, NoSuchKey; ValueError for keys with different
        primary keys, and for puts together with removals.
        """
        given = [modifications] if isinstance(modifications, Put | Insert | Remove) else list(modifications)
        return self._update(given)

    def _one(self, modification: TableModification) -> Version:
        [version] = self._update([modification])
        return version

    def _update(self, modifications: Sequence[TableModification]) -> list[Version]:
        self._check_open()
        for modification in modifications:
            _check(modification)
        return self._table.update(self._life, modifications) if modifications else []

    # --- reads -------------------------------------------------------------------------------------------------

    def get(self, key: KeyLike) -> KeyValueTableEntry | None:
        """The entry of a key now; None if it does not exist."""
        [entry] = self.get_all([key])
        return entry

    def get_all(self, keys: Sequence[KeyLike]) -> list[KeyValueTableEntry | None]:
        """The entries of keys, of any primary keys, at one moment: in the order of `keys`, None for those that do not
        exist."""
        self._check_open()
        return self._table.get(self._life, [as_key(key) for key in keys])

    def exists(self, key: KeyLike) -> bool:
        """Whether a key exists now."""
        return self.get(key) is not None

    def entries(
        self,
        primary: bytes | None = None,
        *,
        start: bytes | None = None,
        end: bytes | None = None,
        prefix: bytes | None = None,
        after: KeyLike | None = None,
    ) -> Iterator[KeyValueTableEntry]:
        """The entries in the order of their keys, as they are at the call. Takes bounded memory.

        By default all. primary: those of this primary key; `start`, `end` and `prefix` are then of secondary keys,
        otherwise of primary keys. start, end: whole keys, both included. prefix: the beginning of keys, instead of
        these. after: continue behind this key, also in another process.
        """
        return self._scan(primary, start, end, prefix, after, whole=True)

    def keys(
        self,
        primary: bytes | None = None,
        *,
        start: bytes | None = None,
        end: bytes | None = None,
        prefix: bytes | None = None,
        after: KeyLike | None = None,
    ) -> Iterator[TableKey]:
        """The keys, as `entries`. Long values are not read."""
        return (entry.key for entry in self._scan(primary, start, end, prefix, after, whole=False))

    def _scan(
        self,
        primary: bytes | None,
        start: bytes | None,
        end: bytes | None,
        prefix: bytes | None,
        after: KeyLike | None,
        *,
        whole: bool,
    ) -> Iterator[KeyValueTableEntry]:
        self._check_open()
        keys = KeyRange.of(self.configuration, primary=primary, start=start, end=end, prefix=prefix, after=after)
        return self._checked(self._table.scan(self._life, keys, whole=whole))

    def _checked(self, entries: Iterator[KeyValueTableEntry]) -> Iterator[KeyValueTableEntry]:
        for entry in entries:
            self._check_open()
            yield entry


def _check(modification: object) -> None:
    """Raise TypeError unless it is a modification with bytes, and a version where one is due."""
    if not isinstance(modification, Put | Insert | Remove):
        raise TypeError(f"a modification must be a Put, an Insert or a Remove, not {modification!r}")
    kind = type(modification).__name__
    key = as_key(modification.key)
    parts = {"primary key": key.primary, "secondary key": key.secondary}
    if not isinstance(modification, Remove):
        parts["value"] = modification.value
    for what, data in parts.items():
        if not isinstance(data, bytes):
            raise TypeError(f"{kind}: the {what} must be bytes, not {type(data).__name__}")
    version = None if isinstance(modification, Insert) else modification.version
    if version is not None and not isinstance(version, Version):
        raise TypeError(f"{kind}: the version must be a Version, as calls return it, not {version!r}")
