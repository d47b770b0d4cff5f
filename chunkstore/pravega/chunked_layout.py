"""Segments in the chunked layout: the table `storage_metadata_<container>` has a record of each and of its chunks.

A chunk's name says for which segment it was created, not to which it belongs: a merge moves chunks between segments,
and a chunk that is shorter than its object ends where the record says. So only the records count.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from chunkstore.decoding import InvalidData, decoding
from chunkstore.errors import InvalidRecord
from chunkstore.metadata.metadata_records import (
    ChunkRecord,
    Record,
    RecordStatus,
    StoredSegmentRecord,
    decode_transaction_data,
)
from chunkstore.pravega.archived_segments import ArchivedChunk, StoredSegment, check_chunks
from chunkstore.pravega.journal_records import SegmentSnapshot
from chunkstore.pravega.source import ArchiveDamaged, Source
from chunkstore.pravega.table_entries import Entry

_EXACT = RecordStatus.ATOMIC_WRITES | RecordStatus.SEALED
"""The status of segments whose length is what the metadata says. Servers before 0.13 set none of it at first."""


def system_segment(source: Source, snapshot: SegmentSnapshot) -> StoredSegment:
    """A system segment, whose records the journal has."""
    records: dict[str, Record] = {chunk.name: chunk for chunk in snapshot.chunks}
    return _stored(source, snapshot.segment, records)


def stored_segments(source: Source, table: str, found: Mapping[bytes, Entry]) -> dict[str, StoredSegment]:
    """The segments by their names, as the live entries of a container's storage metadata say.

    `table`: that table's name. Raises ArchiveDamaged for an entry that cannot be understood.
    """
    records: dict[str, Record] = {}
    for key, entry in found.items():
        with decoding(functools.partial(_damaged_entry, source, table, entry)):
            data = decode_transaction_data(entry.value or b"")
            if data.key.encode() != key:
                raise InvalidData(f"it says that it is {data.key!r}")
            if data.record is not None:  # else its removal from the table failed
                records[data.key] = data.record
    segments = [
        record
        for record in records.values()
        if isinstance(record, StoredSegmentRecord) and record.status & RecordStatus.ACTIVE
    ]
    return {record.name: _stored(source, record, records) for record in segments}


def _damaged_entry(source: Source, table: str, entry: Entry, problem: InvalidData) -> ArchiveDamaged:
    return source.damaged(table, f"the entry {entry.key!r} at offset {entry.offset}: {problem}")


def _stored(source: Source, record: StoredSegmentRecord, records: Mapping[str, Record]) -> StoredSegment:
    sealed = bool(record.status & RecordStatus.SEALED)
    segment = StoredSegment(record.name, record.start_offset, record.length, sealed, ())
    try:
        record.check_invariants()
        segment = segment._replace(chunks=_chunks(record, records))
        return check_chunks(source, segment if record.status & _EXACT else _with_last_object(source, segment))
    except (InvalidRecord, InvalidData) as error:
        return segment._replace(problem=source.damaged(record.name, error))


def _with_last_object(source: Source, segment: StoredSegment) -> StoredSegment:
    """A segment whose metadata may be behind its last chunk, as its next owner has it (Pravega: claimOwnership)."""
    last = segment.chunks[-1] if segment.chunks else None
    size = source.size(last.name) if last is not None else None
    if last is None or size is None or size <= last.length:
        return segment
    chunks = (*segment.chunks[:-1], last._replace(length=size))
    return segment._replace(length=last.offset + size, chunks=chunks)


def _chunks(record: StoredSegmentRecord, records: Mapping[str, Record]) -> tuple[ArchivedChunk, ...]:
    chunks: list[ArchivedChunk] = []
    name, offset = record.first_chunk, record.first_chunk_start
    while name is not None:
        chunk = records.get(name)
        if not isinstance(chunk, ChunkRecord) or chunk.name != name:
            raise InvalidData(f"its chunk {name!r} at {offset} has no record")
        if len(chunks) == record.chunk_count:
            raise InvalidData(f"it has {record.chunk_count} chunks, but {name!r} follows them")
        chunks.append(ArchivedChunk(name, offset, chunk.length))
        name, offset = chunk.next_chunk, offset + chunk.length
    last = chunks[-1] if chunks else None
    if len(chunks) != record.chunk_count or (last.name if last else None) != record.last_chunk:
        raise InvalidData(f"its chunks end with {last.name if last else None!r}; {record.last_chunk!r} is due")
    if last is not None and last.offset != record.last_chunk_start:
        raise InvalidData(f"its last chunk is at {last.offset}; {record.last_chunk_start} is due")
    return tuple(chunks)
