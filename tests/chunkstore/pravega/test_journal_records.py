"""The bytes of the system journal's records."""

from __future__ import annotations

import pytest

from chunkstore.decoding import InvalidData
from chunkstore.metadata.metadata_records import ChunkRecord, StoredSegmentRecord
from chunkstore.pravega.journal_records import (
    JournalFile,
    JournalRecord,
    JournalSnapshot,
    SegmentSnapshot,
    SnapshotInfo,
    decode_batches,
    decode_info,
    decode_snapshot,
    encode_batch,
    encode_info,
    encode_snapshot,
    journal_name,
    parse_name,
    snapshot_info_name,
    snapshot_name,
)
from chunkstore.segments.system_changes import Appended, ChunkAdded, Truncated

SEGMENT = "_system/containers/metadata_0"
SNAPSHOT = JournalSnapshot(
    7,
    3,
    (
        SegmentSnapshot(
            StoredSegmentRecord(SEGMENT, 30, 2, 5, first_chunk="a", last_chunk="b", last_chunk_start=10),
            (ChunkRecord("a", 10, "b"), ChunkRecord("b", 20)),
        ),
        SegmentSnapshot(StoredSegmentRecord("_system/containers/storage_metadata_0"), ()),
    ),
)


def test_a_batch_is_written_as_in_the_original() -> None:
    encoded = (
        "000001000000003201"
        "000100010000000028"
        "001d5f73797374656d2f636f6e7461696e6572732f6d657461646174615f30"
        "00046e6577630000"
        "00"
    )
    records = [ChunkAdded(SEGMENT, "newc", None, 0)]
    assert encode_batch(records).hex() == encoded
    assert list(decode_batches(bytes.fromhex(encoded))) == [records]


def test_the_snapshot_info_is_written_as_in_the_original() -> None:
    assert encode_info(SnapshotInfo(1, 2)).hex() == "00000100000000020102"
    assert decode_info(bytes.fromhex("00000100000000020102")) == (1, 2)


def test_every_record_is_read_as_it_was_written() -> None:
    records: list[JournalRecord] = [
        ChunkAdded(SEGMENT, "new", "old", 1 << 50),
        Truncated(SEGMENT, 12, "first", 10),
        Truncated(SEGMENT, 12, None, 12),
        Appended(SEGMENT, "chunk", 0, 1 << 40),
        SNAPSHOT,
        SNAPSHOT.segments[0],
    ]
    data = encode_batch(records[:2]) + encode_batch(records[2:])
    assert list(decode_batches(data)) == [records[:2], records[2:]]


def test_of_a_torn_file_all_complete_batches_are_read() -> None:
    first, second = [Appended(SEGMENT, "chunk", 0, 1)], [ChunkAdded(SEGMENT, "new", "chunk", 1)]
    whole, torn = encode_batch(first), encode_batch(second)
    for end in range(len(torn)):
        assert list(decode_batches(whole + torn[:end])) == [first], f"torn at byte {end}"
    assert list(decode_batches(whole + bytes(100))) == [first], "zeros behind the last batch"
    assert list(decode_batches(whole + torn)) == [first, second]


def test_a_damaged_batch_is_not_taken_for_a_torn_one() -> None:
    damaged = bytearray(encode_batch([Appended(SEGMENT, "chunk", 0, 1)]))
    damaged[10] = 99  # the record's type
    with pytest.raises(InvalidData):
        list(decode_batches(bytes(damaged)))


def test_a_snapshot_is_read_as_it_was_written_and_every_flipped_byte_is_found() -> None:
    data = encode_snapshot(SNAPSHOT)
    assert decode_snapshot(data) == (SNAPSHOT, True)
    for place in range(8, len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 0x10
        try:
            snapshot, checked = decode_snapshot(bytes(damaged))
        except (InvalidData, ValueError):
            continue
        assert not checked, f"byte {place} flipped: {snapshot}"


def test_a_snapshot_of_the_original_has_no_checksum() -> None:
    data = encode_snapshot(SNAPSHOT)
    fields = data[8:-8]
    original = data[:4] + len(fields).to_bytes(4, "big") + fields
    assert decode_snapshot(original) == (SNAPSHOT, False)


def test_files_are_named_as_in_the_original() -> None:
    journal, snapshot = journal_name(3, 12, 4), snapshot_name(3, 12, 1)
    assert journal == "_system/containers/_sysjournal.epoch12.container3.file4"
    assert snapshot == "_system/containers/_sysjournal.epoch12.container3.snapshot1"
    assert snapshot_info_name(3) == "_system/containers/_sysjournal.container3.snapshot_info"
    assert parse_name(journal) == (3, False, JournalFile(12, 4, journal))
    assert parse_name(snapshot) == (3, True, JournalFile(12, 1, snapshot))
    assert parse_name(snapshot_info_name(3)) is None
