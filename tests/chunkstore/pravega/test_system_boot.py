"""The boot of an archive: the newest epoch's snapshot and all journals behind it, none of them passed over."""

from __future__ import annotations

import pytest

from chunkstore.metadata.metadata_records import ChunkRecord, RecordStatus, StoredSegmentRecord
from chunkstore.pravega.journal import system_segments
from chunkstore.pravega.journal_records import (
    JournalSnapshot,
    SegmentSnapshot,
    SnapshotInfo,
    encode_batch,
    encode_info,
    encode_snapshot,
    journal_name,
    snapshot_info_name,
    snapshot_name,
)
from chunkstore.pravega.source import ArchiveDamaged, Source
from chunkstore.pravega.system_boot import boot
from chunkstore.segments.system_changes import Appended, ChunkAdded, Truncated
from tests.archives import stored

TABLE, INDEX, OTHER, OTHER_INDEX = system_segments(0)
UUID = "00000000-0000-4000-8000-00000000000"


def chunk(segment: str, epoch: int, offset: int) -> str:
    return f"{segment}.E-{epoch}-O-{offset}.{UUID}0"


def snapshot(epoch: int, file: int, length: int = 0) -> JournalSnapshot:
    """All system segments; the table has one chunk of so many bytes."""
    name = chunk(TABLE, 1, 0)
    segments = [SegmentSnapshot(StoredSegmentRecord(other), ()) for other in (INDEX, OTHER, OTHER_INDEX)]
    table = (
        StoredSegmentRecord(TABLE, length, 1, first_chunk=name, last_chunk=name)
        if length
        else StoredSegmentRecord(TABLE)
    )
    chunks = (ChunkRecord(name, length),) if length else ()
    return JournalSnapshot(epoch, file, (SegmentSnapshot(table, chunks), *segments))


def objects() -> dict[str, bytes]:
    """Epoch 1 was given up; epoch 2 took a snapshot, and wrote on."""
    return {
        snapshot_name(0, 1, 1): encode_snapshot(snapshot(1, 1)),
        snapshot_name(0, 2, 1): encode_snapshot(snapshot(2, 1, 10)),
        journal_name(0, 1, 2): b"what an older epoch wrote does not count",
        journal_name(0, 2, 2): encode_batch([ChunkAdded(TABLE, chunk(TABLE, 2, 10), chunk(TABLE, 1, 0), 10)])
        + encode_batch([Appended(TABLE, chunk(TABLE, 2, 10), 0, 5)]),
        journal_name(0, 2, 3): encode_batch([Truncated(TABLE, 12, chunk(TABLE, 2, 10), 10)]),
        chunk(TABLE, 1, 0): b"x" * 10,
        chunk(TABLE, 2, 10): b"y" * 5,
    }


def booted(found: dict[str, bytes]) -> StoredSegmentRecord:
    return boot(Source(stored(found)), [])[0][TABLE].segment


def test_the_newest_snapshot_and_what_follows_it() -> None:
    table = booted(objects())
    assert (table.start_offset, table.length, table.first_chunk) == (12, 15, chunk(TABLE, 2, 10))


def test_a_new_owner_writes_its_first_snapshot_into_its_first_journal() -> None:
    found = objects()
    found[journal_name(0, 3, 1)] = encode_batch([snapshot(3, 0, 10)]) + encode_batch(
        [ChunkAdded(TABLE, chunk(TABLE, 3, 10), chunk(TABLE, 1, 0), 10), Appended(TABLE, chunk(TABLE, 3, 10), 0, 2)]
    )
    found[chunk(TABLE, 3, 10)] = b"zz"
    table = booted(found)
    assert (table.start_offset, table.length, table.last_chunk) == (0, 12, chunk(TABLE, 3, 10))
    del found[journal_name(0, 2, 3)]  # the older epoch's are not needed any more
    assert booted(found) == table


@pytest.mark.parametrize(
    ("name", "data"),
    [
        (journal_name(0, 2, 2), None),
        (journal_name(0, 2, 2), encode_batch([Appended(TABLE, chunk(TABLE, 2, 10), 0, 5)])),
        (snapshot_name(0, 2, 1), encode_snapshot(snapshot(1, 1, 10))),
        (snapshot_name(0, 2, 1), b"\0"),
        (chunk(TABLE, 2, 10), None),
        (chunk(TABLE, 2, 10), b"y" * 4),
    ],
)
def test_what_is_missing_or_contradicts_is_named(name: str, data: bytes | None) -> None:
    found = objects()
    found.pop(name, None)
    if data is not None:
        found[name] = data
    with pytest.raises(ArchiveDamaged) as raised:
        booted(found)
    assert repr(name) in str(raised.value)


def test_all_journals_behind_the_snapshot_cannot_be_missing() -> None:
    found = objects()
    del found[journal_name(0, 2, 2)], found[journal_name(0, 2, 3)]
    with pytest.raises(ArchiveDamaged, match=r"epoch2\.container0\.file2.*missing"):
        booted(found)


def test_the_snapshot_that_counts_must_be_there() -> None:
    found = objects()
    found[snapshot_info_name(0)] = encode_info(SnapshotInfo(2, 1))
    assert booted(found).length == 15
    found[snapshot_info_name(0)] = encode_info(SnapshotInfo(2, 2))
    with pytest.raises(ArchiveDamaged, match=r"epoch2\.container0\.snapshot2.*missing"):
        booted(found)


def test_chunks_of_overtaken_owners_do_not_matter() -> None:
    found = objects()
    found[chunk(TABLE, 1, 15)] = b"of a zombie"
    assert booted(found).length == 15


def atomic(found: dict[str, bytes], flag: RecordStatus = RecordStatus.ATOMIC_WRITES) -> dict[str, bytes]:
    """The objects, with a snapshot that says this of all system segments."""
    first = snapshot(2, 1, 10)
    segments = tuple(
        each._replace(segment=each.segment._replace(status=each.segment.status | flag)) for each in first.segments
    )
    return {**found, snapshot_name(0, 2, 1): encode_snapshot(first._replace(segments=segments))}


def test_what_a_killed_server_did_not_record_is_no_damage() -> None:
    """A batch of which a part is there, a chunk that is longer, and the next one: the server itself passes over all."""
    found = atomic(objects())
    found[journal_name(0, 2, 3)] += b"\0\0\1\0\0"
    found[chunk(TABLE, 2, 10)] += b"more"
    found[chunk(TABLE, 2, 19)] = b"unknown"
    findings: list[str] = []
    table = boot(Source(stored(found)), findings)[0][TABLE].segment
    assert (table.start_offset, table.length) == (12, 15)
    assert len(findings) == 2 and all("not used" in each for each in findings)
    del found[journal_name(0, 2, 2)]  # what is missing before the end cannot be
    with pytest.raises(ArchiveDamaged):
        boot(Source(stored(found)), [], salvage=True)


def test_where_segments_are_not_written_atomically_the_last_chunk_is_as_long_as_its_object() -> None:
    """As servers before 0.13 had it: their journals have no record of appends, or no later one."""
    found = objects()
    found[journal_name(0, 2, 2)] = encode_batch([ChunkAdded(TABLE, chunk(TABLE, 2, 10), chunk(TABLE, 1, 0), 10)])
    findings: list[str] = []
    table = boot(Source(stored(found)), findings)[0][TABLE].segment
    assert (table.start_offset, table.length, table.last_chunk) == (12, 15, chunk(TABLE, 2, 10))
    assert not findings
    with pytest.raises(ArchiveDamaged):
        boot(Source(stored(atomic(found))), [])  # truncated at 12, and no journal knows of bytes there


def test_a_server_writes_one_system_segment_at_a_time_so_two_that_are_ahead_lost_a_journal() -> None:
    found = atomic(objects())
    found[chunk(TABLE, 2, 10)] += b"more"
    found[chunk(OTHER, 2, 0)] = b"unknown"
    with pytest.raises(ArchiveDamaged, match=r"file3.*is missing.*2 system segments"):
        boot(Source(stored(found)), [])
    findings: list[str] = []
    assert boot(Source(stored(found)), findings, salvage=True)[0][TABLE].segment.length == 15
    assert len(findings) == 2
    # A later owner left the first one as it was: then each of them was written when its server was killed.
    found[chunk(TABLE, 2, 10)] = found[chunk(TABLE, 2, 10)][:5]
    found[journal_name(0, 3, 1)] = encode_batch([Truncated(TABLE, 13, chunk(TABLE, 2, 10), 10)])
    found[chunk(TABLE, 2, 10)] += b"more"
    found[chunk(OTHER, 3, 0)] = found.pop(chunk(OTHER, 2, 0))
    assert boot(Source(stored(found)), [])[0][TABLE].segment.length == 15


def test_a_snapshot_that_was_not_written_to_its_end_does_not_count() -> None:
    found = objects()
    newest = snapshot_name(0, 2, 2)
    found[newest] = encode_snapshot(snapshot(2, 3, 10))[:40]
    findings: list[str] = []
    assert boot(Source(stored(found)), findings)[0][TABLE].segment.length == 15
    assert len(findings) == 1 and newest in findings[0]
    del found[journal_name(0, 2, 2)]  # which it covered: so it did count
    with pytest.raises(ArchiveDamaged, match="snapshot2"):
        boot(Source(stored(found)), [])
