"""Backups of segment metadata: made while segments are written, restored into metadata that is empty, and verified.

A backup is a folder: a file for each segment, which holds its record and those of its chunks, and a manifest of the
files, written last, so a folder without it is no backup. Every file has a version and a checksum. The chunks themselves
are not in it; they stay where they are, or are copied with the storage's own tools.

Every segment is in the backup as it was at one moment, and no chunk is in two of them. What is garbage is not in it: a
copy of the chunks must be taken within the garbage delay, or before the collector runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import crc32c

from chunkstore.chunk_list import ChunkList, WrittenChunk
from chunkstore.chunks import ChunkStorage
from chunkstore.errors import InvalidRecord, MetadataConflict, ObjectNotFound, StorageError
from chunkstore.journal_records import SegmentSnapshot, read_segment_snapshot, segment_snapshot_fields
from chunkstore.metadata_store import MetadataStore
from chunkstore.port import Store, check_prefix
from chunkstore.records import ChunkRecord, SegmentRecord, Status, segment_key
from chunkstore.serialization import FieldReader, FieldWriter, InvalidData, open_version, with_version

_VERSION = 0
_HEAD = 8  # bytes of a file before its fields
_CHECKSUM = 8
_MANIFEST = "manifest"
_ATTEMPTS = 10
_PAGE = 1000


class BackupRefused(StorageError):
    """A backup that cannot be made here, is damaged, or cannot be restored here."""


@dataclass
class BackupReport:
    """What is in a backup: segments, their chunks, and the bytes that count in those."""

    segments: int = 0
    chunks: int = 0
    bytes: int = 0

    def add(self, snapshot: SegmentSnapshot) -> None:
        """Count a segment."""
        self.segments += 1
        self.chunks += len(snapshot.chunks)
        self.bytes += sum(chunk.length for chunk in snapshot.chunks)


@dataclass
class VerifyReport(BackupReport):
    """What was looked at, and `problems`: what is wrong with a segment, by its name."""

    problems: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))


class _File(NamedTuple):
    segment: str
    checksum: int


def back_up(metadata: MetadataStore, store: Store, folder: str) -> BackupReport:
    """Write the metadata of all segments into `folder` ("a/b/") of `store`, where there must be no backup yet.

    Segments may be changed meanwhile. Raises BackupRefused, and what storage and metadata raise.
    """
    check_prefix(folder)
    if store.list(folder, limit=1):
        raise BackupRefused(f"{store.root}: folder {folder!r} is not empty: back up into another")
    found: dict[str, SegmentSnapshot] = {}
    for listed in _segments(metadata):
        # One that is gone may have been merged into another that was looked at before: its bytes must not be lost.
        snapshot = _snapshot(metadata, listed.name) or _as_listed(metadata, listed)
        if snapshot is not None:
            found[listed.name] = snapshot
    for _ in range(_ATTEMPTS):
        contested = _contested(found.values())
        if not contested:
            break
        # A segment was merged into another, which was looked at later.
        for name in contested:
            snapshot = _snapshot(metadata, name)
            if snapshot is None:
                del found[name]
            else:
                found[name] = snapshot
    else:
        raise BackupRefused(f"chunk in two segments: {', '.join(sorted(contested))}: verify the metadata")
    report = BackupReport()
    files = []
    for name, snapshot in sorted(found.items()):
        data = _sealed_with_checksum(segment_snapshot_fields(snapshot))
        store.put(_file_name(folder, name), data)
        files.append(_File(name, crc32c.crc32c(data)))
        report.add(snapshot)
    store.put(folder + _MANIFEST, _encode_manifest(files))
    return report


def verify_backup(store: Store, folder: str) -> BackupReport:
    """Read a backup whole. Raises BackupRefused if it is damaged."""
    report = BackupReport()
    for snapshot in _read_all(store, folder):
        report.add(snapshot)
    return report


def restore(store: Store, folder: str, metadata: MetadataStore) -> BackupReport:
    """Put the segments of a backup into `metadata`, which holds none yet, or those that an earlier try restored.

    They belong to no epoch until they are opened. System segments are passed over: their layout is in the journal.
    Raises BackupRefused, and what storage and metadata raise; then it may be repeated.
    """
    names = {file.segment for file in _read_manifest(store, folder)}
    for segment in _segments(metadata, with_system=False):
        if segment.name not in names:
            raise BackupRefused(f"the metadata has segment {segment.name!r}, which the backup lacks: use an empty root")
    report = BackupReport()
    for snapshot in _read_all(store, folder):
        if not snapshot.segment.status & Status.SYSTEM_SEGMENT:
            _restore_segment(metadata, snapshot)
            report.add(snapshot)
    return report


def verify(metadata: MetadataStore, chunks: ChunkStorage) -> VerifyReport:
    """Look whether the metadata of every segment agrees with itself, and with the chunks that are there."""
    report = VerifyReport()
    expected: dict[str, tuple[str, int]] = {}
    for name in (segment.name for segment in _segments(metadata)):
        try:
            snapshot = _snapshot(metadata, name)
        except (InvalidRecord, MetadataConflict) as error:
            report.problems[name].append(str(error))
            continue
        if snapshot is None:
            continue
        report.add(snapshot)
        for chunk in snapshot.chunks:
            other, _ = expected.setdefault(chunk.name, (name, chunk.length))
            if other != name and _snapshot(metadata, other) is not None:
                report.problems[name].append(f"chunk {chunk.name!r} belongs to segment {other!r} too")
    for chunk_name, problem in _wrong_objects(chunks, expected):
        name, length = expected[chunk_name]
        if _still_counts(metadata, name, chunk_name, length):
            report.problems[name].append(problem)
    return report


# -- metadata


def _segments(metadata: MetadataStore, *, with_system: bool = True) -> Iterator[SegmentRecord]:
    for _, record in metadata.records():
        if not isinstance(record, SegmentRecord) or not record.status & Status.ACTIVE:
            continue
        if with_system or not record.status & Status.SYSTEM_SEGMENT:
            yield record


def _snapshot(metadata: MetadataStore, segment: str) -> SegmentSnapshot | None:
    """The records of a segment and its chunks, as they were at one moment; None if it is gone.

    Raises InvalidRecord for records that contradict each other, and MetadataConflict for a segment never at rest.
    """
    for attempt in range(_ATTEMPTS):
        try:
            with metadata.begin(segment_key(segment)) as transaction:
                record = transaction.segment(segment)
                if record is None or not record.status & Status.ACTIVE:
                    return None
                record.check_invariants()
                chunks = ChunkList(transaction, record)
                walk = chunks.walk(record.first_chunk_start, record.first_chunk, record.length)
                found = tuple(placed.chunk for placed in walk)
                transaction.commit()
            _check_chunks(record, found)
            return SegmentSnapshot(record, found)
        except MetadataConflict:
            if attempt == _ATTEMPTS - 1:
                raise
            metadata.evict_all()
    raise AssertionError("unreachable")


def _as_listed(metadata: MetadataStore, record: SegmentRecord) -> SegmentSnapshot | None:
    """A segment that is gone, as it was; None if its chunks are gone too. A merge leaves them as they were."""
    try:
        with metadata.begin(read_only=True) as transaction:
            chunk_list = ChunkList(transaction, record._replace(blocks=()))  # those may be merged
            walk = chunk_list.walk(record.first_chunk_start, record.first_chunk, record.length)
            chunks = tuple(placed.chunk for placed in walk)
        _check_chunks(record, chunks)
    except (InvalidRecord, MetadataConflict):
        return None
    return SegmentSnapshot(record, chunks)


def _check_chunks(record: SegmentRecord, chunks: tuple[ChunkRecord, ...]) -> None:
    """Raise InvalidRecord unless the chunks are those that the segment's record tells of."""
    end = record.first_chunk_start + sum(chunk.length for chunk in chunks)
    last_start = end - chunks[-1].length if chunks else record.length
    for field_name, told, found in (
        ("length", record.length, end),
        ("chunk_count", record.chunk_count, len(chunks)),
        ("last_chunk", record.last_chunk, chunks[-1].name if chunks else None),
        ("last_chunk_start", record.last_chunk_start, last_start),
    ):
        if told != found:
            message = f"segment {record.name!r}: {field_name} is {told!r}, but {found!r} by its chunks"
            raise InvalidRecord(message, field_name)


def _contested(snapshots: Iterable[SegmentSnapshot]) -> set[str]:
    """Segments that have a chunk in common with another one."""
    owners: dict[str, str] = {}
    contested = set()
    for segment, chunks in snapshots:
        for chunk in chunks:
            other = owners.setdefault(chunk.name, segment.name)
            if other != segment.name:
                contested |= {other, segment.name}
    return contested


def _restore_segment(metadata: MetadataStore, snapshot: SegmentSnapshot) -> None:
    segment = snapshot.segment
    with metadata.begin(segment_key(segment.name), *(chunk.key for chunk in snapshot.chunks)) as transaction:
        if transaction.segment(segment.name) is not None:
            return  # by an earlier try
        for chunk in snapshot.chunks:
            if transaction.get(chunk.key) is not None:
                raise BackupRefused(f"chunk {chunk.name!r} belongs to another segment: restore into an empty root")
        start = segment.first_chunk_start
        empty = segment._replace(
            length=start,
            start_offset=start,
            chunk_count=0,
            first_chunk=None,
            last_chunk=None,
            last_chunk_start=start,
            owner_epoch=0,
            blocks=(),
        )
        chunks = ChunkList(transaction, empty)
        chunks.extend([WrittenChunk(chunk.name, chunk.length, chunk.checksums) for chunk in snapshot.chunks])
        chunks.record = chunks.record._replace(start_offset=segment.start_offset)
        chunks.save()
        transaction.commit()


# -- objects


def _wrong_objects(chunks: ChunkStorage, expected: dict[str, tuple[str, int]]) -> Iterator[tuple[str, str]]:
    """Of the chunks that should be there, by name: those that are not, or are too short, and what is wrong."""
    missing = set(expected)
    last = ""
    while page := chunks.list("", last, _PAGE):
        for found in page:
            if found.name in missing:
                missing.remove(found.name)
                length = expected[found.name][1]
                if found.length < length:
                    yield found.name, f"chunk {found.name!r} has {found.length} bytes, but {length} should be there"
        last = page[-1].name
    for name in sorted(missing):
        yield name, f"chunk {name!r} is missing"


def _still_counts(metadata: MetadataStore, segment: str, chunk: str, length: int) -> bool:
    """Whether a chunk belongs to the segment now: it may have been replaced, and collected, since it was looked at."""
    metadata.evict_all()
    snapshot = _snapshot(metadata, segment)
    return snapshot is not None and any(now.name == chunk and now.length >= length for now in snapshot.chunks)


# -- files


def _file_name(folder: str, segment: str) -> str:
    return f"{folder}segments/{segment}$metadata"


def _sealed_with_checksum(fields: bytes) -> bytes:
    checked = FieldWriter()
    checked.raw(fields)
    checked.long(crc32c.crc32c(fields))
    return with_version(_VERSION, checked.getvalue())


def _checked_fields(data: bytes) -> FieldReader:
    version, _ = open_version(data)
    if version != _VERSION:
        raise InvalidData(f"version {version} is unknown: upgrade this program")
    fields = data[_HEAD:-_CHECKSUM]
    if _sealed_with_checksum(fields) != data:
        raise InvalidData("the checksum does not match")
    return FieldReader(fields)


def _encode_manifest(files: list[_File]) -> bytes:
    fields = FieldWriter()
    fields.compact_int(len(files))
    for segment, checksum in files:
        fields.utf(segment)
        fields.long(checksum)
    return _sealed_with_checksum(fields.getvalue())


def _read_manifest(store: Store, folder: str) -> list[_File]:
    check_prefix(folder)
    name = folder + _MANIFEST
    try:
        fields = _checked_fields(store.read(name))
        return [_File(fields.utf(), fields.long()) for _ in range(fields.compact_int())]
    except ObjectNotFound:
        raise BackupRefused(f"{store.root}: there is no {name!r}: {folder!r} holds no complete backup") from None
    except InvalidData as error:
        raise BackupRefused(f"{store.root}: {name!r} is damaged: {error}") from None


def _read_all(store: Store, folder: str) -> Iterator[SegmentSnapshot]:
    for segment, checksum in _read_manifest(store, folder):
        name = _file_name(folder, segment)
        try:
            data = store.read(name)
            if crc32c.crc32c(data) != checksum:
                raise InvalidData("it is not the file that the manifest lists")
            snapshot = read_segment_snapshot(_checked_fields(data))
            _check_chunks(snapshot.segment, snapshot.chunks)
            yield snapshot
        except ObjectNotFound:
            raise BackupRefused(f"{store.root}: {name!r} is missing from the backup") from None
        except (InvalidData, InvalidRecord) as error:
            raise BackupRefused(f"{store.root}: {name!r} is damaged: {error}") from None
