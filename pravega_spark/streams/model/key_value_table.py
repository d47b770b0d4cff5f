"""Key-value tables as values: configuration, keys, entries, versions, updates and the stored record. No I/O.

A key is a primary and a secondary key of fixed lengths, one after the other. The engine's table has it in hexadecimal
digits, which have the order of the bytes.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, TypeAlias

import mmh3
import msgpack

from chunkstore.decoding import InvalidData, Natural, check_format, reader, unpack
from chunkstore.optional_fields import NONE, OptionalFields, with_optional, without_optional
from engine.errors import understanding
from engine.tables.content import MAX_VALUE as MAX_VALUE
from pravega_spark.streams.model.readback import readable
from pravega_spark.streams.model.stream_record import removal

FORMAT = 1

MAX_KEY_LENGTH = 256
"""The longest primary and secondary key together, bytes (Pravega: AttributeId.MAX_LENGTH)."""

MAX_PARTITIONS = 1 << 20
"""The most partitions of a table."""

MAX_UPDATE = 32 << 20
"""The most bytes of keys and values in one update (Pravega: TableSegment.MAXIMUM_BATCH_LENGTH)."""

_PARTITION_SEED = 2274733797

_VERSION = re.compile(r"(-?[0-9]{1,19}):(-?[0-9]{1,19})")


class _Version(NamedTuple):
    partition: int
    number: int


class Version(_Version):
    """The version of an entry of a key-value table (Pravega: Version).

    partition: the number of the partition of its primary key. number: grows with each update in the table; no two
    updates of one table, or of tables of the same name, have the same.
    """

    __slots__ = ()
    NOT_EXISTS: ClassVar[Version]
    """The version of a key that does not exist: the condition of an insert."""

    @classmethod
    def from_text(cls, text: str) -> Version:
        """The version in a text that `as_text` returned. Raises ValueError."""
        match = _VERSION.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is not a version: it has the form partition:number, as in '0:17'")
        return cls(int(match[1]), int(match[2]))

    def as_text(self) -> str:
        """The version as text (Pravega: Version.toString)."""
        return f"{self.partition}:{self.number}"


Version.NOT_EXISTS = Version(-1, -1)


class TableKey(NamedTuple):
    """The key of an entry of a key-value table (Pravega: TableKey). secondary: empty if the table has none."""

    primary: bytes
    secondary: bytes = b""


KeyLike: TypeAlias = TableKey | bytes
"""A key, or its primary key if the table has no secondary keys."""


def as_key(key: KeyLike) -> TableKey:
    """A key as TableKey."""
    return key if isinstance(key, TableKey) else TableKey(key)


class KeyValueTableEntry(NamedTuple):
    """An entry of a key-value table (Pravega: TableEntry). In the long-term storage of a Pravega, the number of its
    version is the offset of the entry."""

    primary: bytes
    secondary: bytes
    value: bytes
    version: Version

    @property
    def key(self) -> TableKey:
        """Its key."""
        return TableKey(self.primary, self.secondary)


class Put(NamedTuple):
    """Put an entry, whether its key exists or not; with a version only if the entry has it (Pravega: Put)."""

    key: KeyLike
    value: bytes
    version: Version | None = None


class Insert(NamedTuple):
    """Put an entry, only if its key does not exist (Pravega: Insert)."""

    key: KeyLike
    value: bytes


class Remove(NamedTuple):
    """Remove an entry; with a version only if the entry has it (Pravega: Remove)."""

    key: KeyLike
    version: Version | None = None


TableModification: TypeAlias = Put | Insert | Remove


@dataclass(frozen=True)
class KeyValueTableConfiguration:
    """The configuration of a key-value table, which never changes (Pravega: KeyValueTableConfiguration).

    partition_count: kept as it is, and part of versions; here all partitions of a table are in one container.
    primary_key_length, secondary_key_length: bytes of every key; 0: no secondary keys. rollover_size_bytes: kept as it
    is, without effect. Raises ValueError for what no table can have.
    """

    partition_count: int
    primary_key_length: int
    secondary_key_length: int = 0
    rollover_size_bytes: int = 0

    def __post_init__(self) -> None:
        _check_range("partition_count", self.partition_count, 1, MAX_PARTITIONS)
        _check_range("primary_key_length", self.primary_key_length, 1, MAX_KEY_LENGTH)
        most = MAX_KEY_LENGTH - self.primary_key_length
        _check_range("secondary_key_length", self.secondary_key_length, 0, most)
        _check_range("rollover_size_bytes", self.rollover_size_bytes, 0, (1 << 63) - 1)

    @property
    def key_length(self) -> int:
        """Bytes of both keys."""
        return self.primary_key_length + self.secondary_key_length


def stored_key(configuration: KeyValueTableConfiguration, key: KeyLike) -> str:
    """A key as the engine's table has it. Raises ValueError for other lengths."""
    primary, secondary = as_key(key)
    check_length("primary key", primary, configuration.primary_key_length)
    check_length("secondary key", secondary, configuration.secondary_key_length)
    return (primary + secondary).hex()


def key_of_stored(configuration: KeyValueTableConfiguration, stored: str) -> TableKey:
    """The inverse of `stored_key`. Raises ValueError."""
    data = bytes.fromhex(stored)
    if len(data) != configuration.key_length:
        raise ValueError(f"a key of {len(data)} bytes, where {configuration.key_length} are due")
    return TableKey(data[: configuration.primary_key_length], data[configuration.primary_key_length :])


def partition_of(configuration: KeyValueTableConfiguration, primary: bytes) -> int:
    """The partition of a primary key, by its hash."""
    hashed: int = mmh3.hash64(primary, _PARTITION_SEED, x64arch=True, signed=False)[0]
    return hashed * configuration.partition_count >> 64


def _check_range(name: str, value: int, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number, not {value!r}")
    if not least <= value <= most:
        raise ValueError(f"{name} must be {least} to {most}, not {value}")


def check_length(what: str, data: bytes, length: int) -> None:
    """Raise ValueError unless a key has the length of all keys."""
    if len(data) != length:
        none = ": the table has no secondary keys" if not length else ""
        raise ValueError(f"the {what} {data!r} has {len(data)} bytes, where {length} are due{none}")


class KeyRange(NamedTuple):
    """A range of keys as the engine's table has them: `[start, end)`; end None: to the last key."""

    start: str
    end: str | None

    @classmethod
    def of(
        cls,
        configuration: KeyValueTableConfiguration,
        *,
        primary: bytes | None = None,
        start: bytes | None = None,
        end: bytes | None = None,
        prefix: bytes | None = None,
        after: KeyLike | None = None,
    ) -> KeyRange:
        """The keys of a primary key, or of all, with their secondary (or primary) key from `start` to `end`, both
        included, or beginning with `prefix`; and behind the key `after`. Raises ValueError.
        """
        if prefix is not None and (start is not None or end is not None):
            raise ValueError("give either prefix, or start and end: a prefix is a range")
        length, what = configuration.primary_key_length, "primary key"
        if primary is not None:
            check_length(what, primary, length)
            length, what = configuration.secondary_key_length, "secondary key"
        for bound in (start, end):
            if bound is not None:
                check_length(what, bound, length)
        if prefix is not None and len(prefix) > length:
            raise ValueError(f"the prefix {prefix!r} of the {what} has {len(prefix)} bytes; {length} are possible")
        base = primary or b""
        first = (base + (prefix or start or b"")).hex()
        last = end if prefix is None else prefix
        behind = _behind((base + (last or b"")).hex())
        if after is not None:
            first = max(first, stored_key(configuration, after) + "\0")
        return cls(first, behind)


def _behind(prefix: str) -> str | None:
    """The least text above all texts of hexadecimal digits with this prefix; None if there is none."""
    return f"{prefix}g" if prefix else None  # 'g' is behind all digits


class KeyValueTableRecord(NamedTuple):
    """The stored record of a key-value table.

    id: of this table, and of no other one of its name. created: ms since the epoch. ready: False while an import fills
    the table, which does not exist for anything else until then. optional: what newer versions added that this one need
    not know (W19).
    """

    id: bytes
    created: int
    configuration: KeyValueTableConfiguration
    ready: bool = True
    optional: OptionalFields = NONE

    @classmethod
    def new(cls, configuration: KeyValueTableConfiguration, created: int) -> KeyValueTableRecord:
        """The record of a new table."""
        return cls(uuid.uuid4().bytes, created, configuration)

    def encode(self) -> bytes:
        """The table entry's value. Raises UnreadableRecord."""
        return readable("the record of a key-value table", self, _encoded, _decoded)

    @classmethod
    def decode(cls, data: bytes, table: str) -> KeyValueTableRecord:
        """The inverse of `encode`. Raises DataCorruption, which names the table."""
        remedy = removal(f"pravega-spark kvt delete {table} --yes")
        with understanding(f"key-value table {table}: its record", remedy):
            return _decoded(data)

    def engine_table(self, table: str) -> str:
        """The name of the engine's table with the entries. table: its name, as "scope/table"."""
        return f"{engine_tables(table)}{self.id.hex()}"


def engine_tables(table: str) -> str:
    """What the names of the engine's tables of a key-value table begin with."""
    return f"_kvt/{table}/"


def named_tables(names: Iterable[str]) -> set[str]:
    """The key-value tables, as "scope/table", that tables of the engine belong to, by the names of these."""
    own = (name for name in names if name.startswith("_kvt/"))
    return {name.removeprefix("_kvt/").rpartition("/")[0] for name in own}


def _encoded(record: KeyValueTableRecord) -> bytes:
    configuration = record.configuration
    sizes = configuration.partition_count, configuration.primary_key_length, configuration.secondary_key_length
    fields = record.id, record.created, record.ready, *sizes, configuration.rollover_size_bytes
    return bytes(msgpack.packb(with_optional([FORMAT, *fields], record.optional)))


_FIELDS = reader(tuple[bytes, int, bool, Natural, Natural, Natural, Natural])


def _decoded(data: bytes) -> KeyValueTableRecord:
    known, *fields = unpack(data)
    check_format(known, FORMAT)
    plain, optional = without_optional(fields, 7)
    number, created, ready, *configuration = _FIELDS(plain)
    if len(number) != 16:
        raise InvalidData(f"its id has {len(number)} bytes, not 16")
    try:
        return KeyValueTableRecord(number, created, KeyValueTableConfiguration(*configuration), ready, optional)
    except ValueError as problem:
        raise InvalidData(str(problem)) from None
