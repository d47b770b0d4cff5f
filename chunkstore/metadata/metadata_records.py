"""The records of segment metadata, and their bytes.

A segment is a `StoredSegmentRecord` and, for each of its chunks, a `ChunkRecord` that names the next one. To find an
offset without walking that list, the segment's record lists blocks, and an `IndexBlockRecord` the chunks in a block.

Segments, chunks and blocks are stored under keys (`record.key`). A chunk's key is its name; a segment's is
`segment_key(name)`, because a legacy segment may consist of one object that has its very name.

The format is Pravega's, so records that it wrote can be read. Fields of this project are in later revisions, and its
index blocks have a type of their own. Unknown revisions are skipped, and kept in `later` (W19); trailing fields are
skipped.
"""

from __future__ import annotations

import bisect
import enum
from dataclasses import dataclass
from typing import NamedTuple

from chunkstore.decoding import NewerFormat, decoding
from chunkstore.errors import InvalidRecord
from chunkstore.metadata.serialization import (
    INT,
    LONG,
    NAME,
    OPTIONAL_NAME,
    FieldForm,
    FieldReader,
    FieldWriter,
    check_version,
    later_revisions,
    read_fields,
    read_type,
    read_version,
    with_type,
    with_version,
    write_fields,
)
from chunkstore.optional_fields import LaterRevisions

BLOCK_CHUNKS = 1000
"""The most chunks that a block should have."""

_VERSION = 0


class RecordStatus(enum.IntFlag):
    """What is true of a segment, a chunk or a block. Bits of newer writers are kept as they are."""

    ACTIVE = 0x01
    SEALED = 0x02
    ATOMIC_WRITES = 0x04
    OWNERSHIP_CHANGED = 0x08
    SYSTEM_SEGMENT = 0x10


def segment_key(name: str) -> str:
    """The key of a segment's record."""
    return f"{name}$segment"


class StoredSegmentRecord(NamedTuple):
    """A segment: `length` and all offsets are in bytes from its beginning before any truncation.

    `first_chunk` and `last_chunk` are names, None if there is no chunk; their offsets are where they start in the
    segment. `last_modified` is in milliseconds since the epoch. `blocks` are the start offset and the key of each
    `IndexBlockRecord`, in their order; the first may begin before `first_chunk_start`.
    """

    name: str
    length: int = 0
    chunk_count: int = 0
    start_offset: int = 0
    status: RecordStatus = RecordStatus.ACTIVE
    max_rolling_length: int = 0
    first_chunk: str | None = None
    last_chunk: str | None = None
    last_modified: int = 0
    first_chunk_start: int = 0
    last_chunk_start: int = 0
    owner_epoch: int = 0
    blocks: tuple[tuple[int, str], ...] = ()
    later: LaterRevisions = ()

    @property
    def key(self) -> str:
        """Where it is stored."""
        return segment_key(self.name)

    def block_of(self, offset: int) -> tuple[int, str] | None:
        """Start offset and key of the block that knows the chunk at `offset`; None if there is none."""
        place = bisect.bisect_right(self.blocks, offset, key=_start)
        return self.blocks[place - 1] if place else None

    def check_invariants(self) -> None:
        """Raise InvalidRecord, which names the field, unless the fields agree with one another."""
        for field in _NOT_NEGATIVE:
            if getattr(self, field) < 0:
                raise self._invalid(field, "is negative")
        if self.start_offset > self.length:
            raise self._invalid("start_offset", f"is beyond length {self.length}")
        if self.first_chunk_start > self.start_offset:
            raise self._invalid("first_chunk_start", f"is beyond start_offset {self.start_offset}")
        if self.last_chunk_start < self.first_chunk_start:
            raise self._invalid("last_chunk_start", f"is before first_chunk_start {self.first_chunk_start}")
        if self.last_chunk_start > self.length:
            raise self._invalid("last_chunk_start", f"is beyond length {self.length}")
        if self.first_chunk is None:
            self._check_empty()
        else:
            self._check_chunks()
        self._check_blocks()

    def _check_empty(self) -> None:
        if self.last_chunk is not None:
            raise self._invalid("last_chunk", "is there, but first_chunk is not")
        if self.chunk_count:
            raise self._invalid("chunk_count", "is not 0, but there is no chunk")
        for field in ("first_chunk_start", "last_chunk_start", "start_offset"):
            if getattr(self, field) != self.length:
                raise self._invalid(field, f"is not length {self.length}, but there is no chunk")

    def _check_chunks(self) -> None:
        if self.last_chunk is None:
            raise self._invalid("last_chunk", "is missing, but first_chunk is there")
        if self.first_chunk == self.last_chunk:
            if self.chunk_count != 1:
                raise self._invalid("chunk_count", "is not 1, but the first chunk is the last")
            if self.first_chunk_start != self.last_chunk_start:
                raise self._invalid("last_chunk_start", "is not first_chunk_start, but the first chunk is the last")
        elif self.chunk_count < 2:
            raise self._invalid("chunk_count", "is below 2, but the first chunk is not the last")

    def _check_blocks(self) -> None:
        if any(after[0] <= before[0] for before, after in zip(self.blocks, self.blocks[1:], strict=False)):
            raise self._invalid("blocks", "are not in ascending order")
        if self.blocks and not 0 <= self.blocks[0][0] <= self.blocks[-1][0] <= self.length:
            raise self._invalid("blocks", f"lie outside of [0, {self.length}]")

    def _invalid(self, field: str, problem: str) -> InvalidRecord:
        value = getattr(self, field)
        return InvalidRecord(f"segment {self.name!r}: {field} {value!r} {problem}: the metadata is damaged", field)


_NOT_NEGATIVE = (
    "length",
    "chunk_count",
    "start_offset",
    "max_rolling_length",
    "last_modified",
    "first_chunk_start",
    "last_chunk_start",
    "owner_epoch",
)


class ChunkRecord(NamedTuple):
    """A chunk: the object `name`, of which the first `length` bytes count. `next_chunk` is None for the last.

    `checksums` of its blocks (see `chunkstore.checksums`) are not in Pravega's format; empty if they are not known.
    """

    name: str
    length: int
    next_chunk: str | None = None
    status: RecordStatus = RecordStatus.ACTIVE
    checksums: bytes = b""
    later: LaterRevisions = ()

    @property
    def key(self) -> str:
        """Where it is stored."""
        return self.name


class IndexBlockRecord(NamedTuple):
    """A run of consecutive chunks: where each starts, in bytes from the block's start, and its name; ascending.

    Where the block starts is in the segment's record only, so a concat leaves its blocks as they are.
    """

    key: str
    entries: tuple[tuple[int, str], ...]
    later: LaterRevisions = ()

    def chunk_at(self, offset: int) -> tuple[int, str] | None:
        """Start (in bytes from the block's start) and name of the last chunk that starts at or before `offset`."""
        place = bisect.bisect_right(self.entries, offset, key=_start)
        return self.entries[place - 1] if place else None


class ReadIndexBlock(NamedTuple):
    """Pravega's own index block, which knows one chunk: the one that holds the offset that its key ends in.

    `chunk_start` is where that chunk starts in the segment. It is read when metadata is imported.
    """

    key: str
    chunk: str
    chunk_start: int
    status: RecordStatus = RecordStatus.ACTIVE
    later: LaterRevisions = ()


Record = StoredSegmentRecord | ChunkRecord | IndexBlockRecord | ReadIndexBlock


@dataclass(frozen=True, slots=True)
class TransactionData:
    """A record as it lies in a table: the version of the transaction that wrote it, its key, None for a deletion."""

    version: int
    key: str
    record: Record | None


def encode(record: Record) -> bytes:
    """The bytes of a record. Raises ValueError for a value that the format cannot hold."""
    revisions = [write_fields(record, _FIELDS[type(record)])]
    added = _ADDED.get(type(record), {})
    if added and (record.later or any(getattr(record, name) for name in added)):
        revisions.append(write_fields(record, added))
    return with_type(_KINDS[type(record)], _VERSION, *revisions, later=record.later)


def decode(data: bytes) -> Record:
    """The record with these bytes. Raises InvalidData."""
    with decoding():
        return read_record(FieldReader(data))


def read_record(reader: FieldReader) -> Record:
    """The record that comes next, which other fields may follow. Raises InvalidData."""
    number, version, revisions = read_type(reader)
    kind = _TYPES.get(number)
    if kind is None:
        raise NewerFormat(f"unknown type of record {number}: it was written by a newer version; upgrade this one")
    check_version(version, _VERSION, f"a record of type {number}")
    found = read_fields(revisions[0], _FIELDS[kind])
    added = _ADDED.get(kind)
    if added and 1 in revisions:
        found |= read_fields(revisions[1], added)
    return kind(**found, later=later_revisions(revisions, 2 if added else 1))


def encode_transaction_data(data: TransactionData) -> bytes:
    """The bytes of a table value. Raises ValueError for a value that the format cannot hold."""
    fields = FieldWriter()
    fields.long(data.version)
    fields.name(data.key)
    fields.boolean(data.record is not None)
    if data.record is not None:
        fields.raw(encode(data.record))
    return with_version(_VERSION, fields.getvalue())


def decode_transaction_data(data: bytes) -> TransactionData:
    """The table value with these bytes. Raises InvalidData."""
    with decoding():
        version, fields = read_version(FieldReader(data))
        check_version(version, _VERSION, "a metadata value")
        return TransactionData(fields.long(), fields.name(), read_record(fields) if fields.boolean() else None)


def _start(entry: tuple[int, str]) -> int:
    return entry[0]


def _write_entries(fields: FieldWriter, entries: tuple[tuple[int, str], ...]) -> None:
    fields.compact_int(len(entries))
    for offset, name in entries:
        fields.compact_long(offset)
        fields.name(name)


def _read_entries(fields: FieldReader) -> tuple[tuple[int, str], ...]:
    return tuple((fields.compact_long(), fields.name()) for _ in range(fields.count(3)))


_STATUS = FieldForm(FieldWriter.compact_int, lambda fields: RecordStatus(fields.compact_int()))
_ENTRIES = FieldForm(_write_entries, _read_entries)
_REST = FieldForm(FieldWriter.raw, lambda fields: fields.take(fields.rest))

_FIELDS: dict[type[Record], dict[str, FieldForm]] = {
    StoredSegmentRecord: {
        "name": NAME,
        "length": LONG,
        "chunk_count": INT,
        "start_offset": LONG,
        "status": _STATUS,
        "max_rolling_length": LONG,
        "first_chunk": OPTIONAL_NAME,
        "last_chunk": OPTIONAL_NAME,
        "last_modified": LONG,
        "first_chunk_start": LONG,
        "last_chunk_start": LONG,
        "owner_epoch": LONG,
    },
    ChunkRecord: {"name": NAME, "length": LONG, "next_chunk": OPTIONAL_NAME, "status": _STATUS},
    IndexBlockRecord: {"key": NAME, "entries": _ENTRIES},
    ReadIndexBlock: {"key": NAME, "chunk": NAME, "chunk_start": LONG, "status": _STATUS},
}
"""The fields of each type of record in their order in the format, in revision 0."""

_ADDED = {StoredSegmentRecord: {"blocks": _ENTRIES}, ChunkRecord: {"checksums": _REST}}
"""Those of this project, in revision 1, which is left out where they are empty."""

_KINDS: dict[type[Record], int] = {ChunkRecord: 2, StoredSegmentRecord: 3, ReadIndexBlock: 4, IndexBlockRecord: 32}
_TYPES: dict[int, type[Record]] = {number: kind for kind, number in _KINDS.items()}
