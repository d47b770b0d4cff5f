"""The records of the system journal, their bytes, and the names of the files that hold them.

A journal file is a row of batches, a snapshot file one `JournalSnapshot`, the info file one `SnapshotInfo`. The format
is Pravega's. Snapshots written here end in a checksum, which Pravega does not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

import crc32c

from chunkstore.decoding import InvalidData, NewerFormat, decoding
from chunkstore.metadata.metadata_records import ChunkRecord, Record, StoredSegmentRecord, encode, read_record
from chunkstore.metadata.serialization import (
    LONG,
    NAME,
    OPTIONAL_NAME,
    FieldForm,
    FieldReader,
    FieldWriter,
    check_version,
    open_version,
    read_fields,
    read_type,
    read_version,
    with_type,
    with_version,
    write_fields,
)
from chunkstore.paths import CONTAINERS
from chunkstore.segments.system_changes import Appended, ChunkAdded, SystemChange, Truncated

_Kind = TypeVar("_Kind", StoredSegmentRecord, ChunkRecord)

_VERSION = 0
_HEAD = 8  # bytes before the fields of a value with one revision
_CHECKSUM = 8  # bytes of the checksum behind a snapshot's fields
_FILE = re.compile(re.escape(CONTAINERS) + r"_sysjournal\.epoch(\d+)\.container(\d+)\.(file|snapshot)(\d+)")


class SegmentSnapshot(NamedTuple):
    """The records of a segment and of its chunks, in their order."""

    segment: StoredSegmentRecord
    chunks: tuple[ChunkRecord, ...]


class JournalSnapshot(NamedTuple):
    """The system segments as they were after journal file `file_index` of `epoch`."""

    epoch: int
    file_index: int
    segments: tuple[SegmentSnapshot, ...]


class SnapshotInfo(NamedTuple):
    """Which snapshot counts."""

    epoch: int
    number: int


JournalRecord = SystemChange | JournalSnapshot | SegmentSnapshot
"""What may stand in a batch. Snapshots do so in old journals only."""


class JournalFile(NamedTuple):
    """A file of a journal; `number` counts from 1 in each epoch, journals and snapshots each by themselves."""

    epoch: int
    number: int
    name: str


def journal_name(container: int, epoch: int, number: int) -> str:
    """Where a journal file is stored."""
    return f"{CONTAINERS}_sysjournal.epoch{epoch}.container{container}.file{number}"


def snapshot_name(container: int, epoch: int, number: int) -> str:
    """Where a snapshot is stored."""
    return f"{CONTAINERS}_sysjournal.epoch{epoch}.container{container}.snapshot{number}"


def snapshot_info_name(container: int) -> str:
    """Where it is stored which snapshot counts."""
    return f"{CONTAINERS}_sysjournal.container{container}.snapshot_info"


def parse_name(name: str) -> tuple[int, bool, JournalFile] | None:
    """Container, whether it is a snapshot, and the file; None for other objects."""
    match = _FILE.fullmatch(name)
    if match is None:
        return None
    epoch, container, kind, number = match.groups()
    return int(container), kind == "snapshot", JournalFile(int(epoch), int(number), name)


def encode_batch(records: Sequence[JournalRecord]) -> bytes:
    """The bytes of records that count together or not at all."""
    fields = FieldWriter()
    fields.compact_int(len(records))
    for record in records:
        fields.raw(_encode_typed(record))
    return with_version(_VERSION, fields.getvalue())


def decode_batches(data: bytes) -> Iterator[list[JournalRecord]]:
    """The batches in a journal file; one whose writing ended part-way is passed over. Raises InvalidData."""
    for batch in _complete_values(data):
        with decoding():
            fields = _opened(batch)
            records = [_read_typed(fields) for _ in range(fields.count(4))]
        yield records


def encode_snapshot(snapshot: JournalSnapshot) -> bytes:
    """The bytes of a snapshot file."""
    fields = _snapshot_fields(snapshot)
    checked = FieldWriter()
    checked.raw(fields)
    checked.long(crc32c.crc32c(fields))
    return with_version(_VERSION, checked.getvalue())


def decode_snapshot(data: bytes) -> tuple[JournalSnapshot, bool]:
    """The snapshot in a file, and whether it has a checksum, which then is right. Raises InvalidData."""
    with decoding():
        fields = _opened(data)
        snapshot = _read_snapshot(fields)
    try:
        checksum = fields.long()
    except InvalidData:
        return snapshot, False
    if checksum != crc32c.crc32c(data[_HEAD:-_CHECKSUM]):
        raise InvalidData("the checksum of a snapshot does not match its content")
    return snapshot, True


def encode_info(info: SnapshotInfo) -> bytes:
    """The bytes of the info file."""
    return with_version(_VERSION, write_fields(info, _INFO))


def decode_info(data: bytes) -> SnapshotInfo:
    """What the info file says. Raises InvalidData."""
    with decoding():
        return SnapshotInfo(**read_fields(_opened(data), _INFO))


def segment_snapshot_fields(snapshot: SegmentSnapshot) -> bytes:
    """The fields of a segment's records, without a version around them."""
    fields = FieldWriter()
    fields.raw(encode(snapshot.segment))
    fields.compact_int(len(snapshot.chunks))
    for chunk in snapshot.chunks:
        fields.raw(encode(chunk))
    return fields.getvalue()


def read_segment_snapshot(fields: FieldReader) -> SegmentSnapshot:
    """A segment's records, from their fields. Raises InvalidData."""
    segment = _expect(StoredSegmentRecord, read_record(fields))
    return SegmentSnapshot(segment, tuple(_expect(ChunkRecord, read_record(fields)) for _ in range(fields.count(4))))


def _complete_values(data: bytes) -> Iterator[bytes]:
    place = 0
    while place + 3 <= len(data):
        end = place + 3
        for _ in range(data[place + 2]):
            end += 5 + int.from_bytes(data[end + 1 : end + 5], "big")
        if end > len(data) or end == place + 3:  # part of a batch, or zeros that a power failure left
            return
        yield data[place:end]
        place = end


def _opened(data: bytes) -> FieldReader:
    version, fields = open_version(data)
    check_version(version, _VERSION, "it")
    return fields


def _encode_typed(record: JournalRecord) -> bytes:
    match record:
        case JournalSnapshot():
            fields = _snapshot_fields(record)
        case SegmentSnapshot():
            fields = segment_snapshot_fields(record)
        case _:
            fields = write_fields(record, _CHANGES[type(record)])
    return with_type(_KINDS[type(record)], _VERSION, fields)


def _read_typed(reader: FieldReader) -> JournalRecord:
    number, version, revisions = read_type(reader)
    kind = _TYPES.get(number)
    if kind is None:
        raise NewerFormat(
            f"unknown type of journal record {number}: it was written by a newer version; upgrade this one"
        )
    check_version(version, _VERSION, f"a journal record of type {number}")
    if kind is JournalSnapshot:
        return _read_snapshot(revisions[0])
    if kind is SegmentSnapshot:
        return read_segment_snapshot(revisions[0])
    return kind(**read_fields(revisions[0], _CHANGES[kind]))


def _snapshot_fields(snapshot: JournalSnapshot) -> bytes:
    fields = FieldWriter()
    fields.compact_long(snapshot.epoch)
    fields.compact_int(snapshot.file_index)
    fields.compact_int(len(snapshot.segments))
    for segment in snapshot.segments:
        fields.raw(with_version(_VERSION, segment_snapshot_fields(segment)))
    return fields.getvalue()


def _read_snapshot(fields: FieldReader) -> JournalSnapshot:
    epoch, file_index, count = fields.compact_long(), fields.compact_int(), fields.count(4)
    return JournalSnapshot(epoch, file_index, tuple(_read_nested_snapshot(fields) for _ in range(count)))


def _read_nested_snapshot(fields: FieldReader) -> SegmentSnapshot:
    version, nested = read_version(fields)
    check_version(version, _VERSION, "the snapshot of a segment")
    return read_segment_snapshot(nested)


def _expect(kind: type[_Kind], record: Record) -> _Kind:
    if not isinstance(record, kind):
        raise InvalidData(f"a snapshot has a {type(record).__name__} where a {kind.__name__} is due")
    return record


_KINDS: dict[type[JournalRecord], int] = {
    ChunkAdded: 1,
    Truncated: 2,
    JournalSnapshot: 3,
    SegmentSnapshot: 4,
    Appended: 5,
}
_TYPES: dict[int, type[JournalRecord]] = {number: kind for kind, number in _KINDS.items()}
_CHANGES: dict[type[JournalRecord], dict[str, FieldForm]] = {
    ChunkAdded: {"segment": NAME, "new_chunk": NAME, "old_chunk": OPTIONAL_NAME, "offset": LONG},
    Truncated: {"segment": NAME, "offset": LONG, "first_chunk": OPTIONAL_NAME, "first_chunk_start": LONG},
    Appended: {"segment": NAME, "chunk": NAME, "offset": LONG, "length": LONG},
}
_INFO = {"epoch": LONG, "number": LONG}
