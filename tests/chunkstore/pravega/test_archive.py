"""Archives of real servers: segments, chunks, attributes and tables are what the server said they were."""

from __future__ import annotations

import uuid
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from chunkstore import open_store
from chunkstore.metadata.metadata_records import (
    ChunkRecord,
    StoredSegmentRecord,
    TransactionData,
    encode_transaction_data,
)
from chunkstore.pravega.archive import Archive, open_archive
from chunkstore.pravega.archived_segments import INDEX_SUFFIX, SegmentTruncated
from chunkstore.pravega.chunked_layout import stored_segments
from chunkstore.pravega.source import ArchiveDamaged, Source
from chunkstore.pravega.table_entries import Entry
from chunkstore.segments.errors import StoredSegmentNotFound
from tests.archives import ARCHIVES, CHUNKED, ROLLING, Case, case, stored

VOLATILE = {uuid.UUID(int=1 << 127 | number) for number in (7, 8)}  # the index's root, and when it was flushed
NULL = -(1 << 63)


@pytest.fixture(scope="module", params=ARCHIVES, ids=lambda path: path.name)
def found(request: pytest.FixtureRequest) -> tuple[Case, Archive]:
    one = case(request.param)
    return one, open_archive(one.store())


def told(one: Case) -> list[dict[str, Any]]:
    """What the server said of segments that are there. Its internal ones went on growing while it was asked."""
    rows = [row for row in one.rows("segments.jsonl") if "error" not in row]
    return [row for row in rows if "/_RG" not in row["segment"] and "/containers/" not in row["segment"]]


def test_nothing_is_damaged(found: tuple[Case, Archive]) -> None:
    _, archive = found
    assert archive.problems() == ()


def test_segments_are_what_the_server_said(found: tuple[Case, Archive]) -> None:
    one, archive = found
    assert bool(told(one)) == ("segments.jsonl" in one.expected)
    for row in told(one):
        segment = archive.segment(row["segment"])
        assert segment.start_offset == row["startOffset"]
        assert segment.length == row["length"]
        assert segment.sealed == row["sealed"]
        assert segment.container == row["container"]


def test_chunks_are_what_the_server_said(found: tuple[Case, Archive]) -> None:
    one, archive = found
    for row in told(one):
        chunks = [(chunk["name"], chunk["startOffset"], chunk["length"]) for chunk in row["chunks"]]
        assert [tuple(chunk) for chunk in archive.segment(row["segment"]).chunks] == chunks


def test_attributes_are_what_the_server_said(found: tuple[Case, Archive]) -> None:
    one, archive = found
    for row in told(one):
        if archive.segment(row["segment"]).is_table:
            continue  # its attributes are the index of the table, of which the server told those in its cache
        due = {uuid.UUID(key): value for key, value in row["attributes"].items() if value != NULL}
        there = archive.attributes(row["segment"])
        for attribute in due.keys() - VOLATILE:
            assert there[attribute] == due[attribute], (row["segment"], attribute)


def test_segments_that_the_server_did_not_have_are_not_there(found: tuple[Case, Archive]) -> None:
    one, archive = found
    gone = [row["segment"] for row in one.rows("segments.jsonl") if "error" in row]
    assert not [name for name in gone if name in archive.segments() and "/containers/" not in name]


def test_every_table_is_read(found: tuple[Case, Archive]) -> None:
    _, archive = found
    assert len(archive.tables) > 100
    entries = sum(len(archive.table(name)) for name in archive.tables)
    assert entries > 300


def test_a_whole_segment_is_read_in_any_pieces() -> None:
    archive = open_archive(case(CHUNKED).store())
    segment = archive.segment("demo/big/0.#epoch.0")
    assert len(segment.chunks) == 22  # those of a transient segment among them
    whole = archive.read(segment.name, 0, segment.length)
    borders = [0, 1, 524287, 524288, 524289, 1048576 + 116, 3000000, segment.length]
    for start, end in pairwise(borders):
        assert archive.read(segment.name, start, end) == whole[start:end]


def test_what_is_truncated_or_not_there_is_an_error() -> None:
    archive = open_archive(case(CHUNKED).store())
    name = "demo/truncated/0.#epoch.0"
    with pytest.raises(SegmentTruncated, match="truncated at 1213707") as raised:
        archive.read(name, 1213706, 1213710)
    assert raised.value.start_offset == 1213707
    with pytest.raises(ValueError, match="no bytes"):
        archive.read(name, 2014990, 2014998)
    with pytest.raises(StoredSegmentNotFound):
        archive.read("demo/deleted/0.#epoch.0", 0, 1)


def test_nothing_of_the_folder_is_changed(tmp_path: Path) -> None:
    one = case(ROLLING)
    for name, data in one.objects.items():
        path = tmp_path / "root" / "a" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    before = listing(tmp_path)
    archive = open_archive(open_store(str(tmp_path / "root")), "a/")
    for name, segment in archive.segments().items():
        archive.read(name, segment.start_offset, segment.length)
        archive.attributes(name)
    assert listing(tmp_path) == before


def listing(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in sorted(folder.rglob("*")) if path.is_file()
    }


def test_segments_in_the_old_layout_are_read_beside_new_ones() -> None:
    """A root whose layout is being upgraded: what is not adopted yet has a header, or is one object."""
    objects = dict(case(CHUNKED).objects)
    name = "old/s/0.#epoch.0"
    header = f"maxsize=10&0={name}$offset.0&10={name}$offset.10&".encode()
    objects |= {f"{name}$header": header, f"{name}$offset.0": b"x" * 10, f"{name}$offset.10": b"y"}
    objects["old/t/0.#epoch.0"] = b"plain"
    archive = open_archive(stored(objects))
    assert archive.read(name, 5, 11) == b"xxxxxy"
    assert archive.read("old/t/0.#epoch.0", 0, 5) == b"plain"
    assert any(name in finding for finding in archive.findings)  # no container knows them, and it is said


def test_chunks_without_their_header_are_an_error() -> None:
    objects = {name: data for name, data in case(ROLLING).objects.items() if name != "demo/sealed/0.#epoch.0$header"}
    archive = open_archive(stored(objects))
    with pytest.raises(ArchiveDamaged, match=r"demo/sealed/0\.#epoch\.0\$header.*missing"):
        archive.read("demo/sealed/0.#epoch.0", 0, 10)


def test_headers_with_concat_and_segments_without_header() -> None:
    """Without containers' metadata all that looks like a segment is one."""
    transaction = "a/s/0.#epoch.0#transaction." + "0" * 32
    concat = f"concat=2@5&maxsize=5&0={transaction}$offset.0&3={transaction}$offset.3&"
    objects = {
        "a/s/0.#epoch.0$header": f"maxsize=5&0=a/s/0.#epoch.0$offset.0&{concat}".encode(),
        "a/s/0.#epoch.0$offset.0": b"01234",
        f"{transaction}$offset.0": b"567",
        f"{transaction}$offset.3": b"89",
        "a/plain/0.#epoch.0": b"plain",
        "a/cut/0.#epoch.0$header": b"maxsize=5&0=a/cut/0$a&5=a/cut/0$b&10=a/cut/0$c&",
        "a/cut/0$b": b"56789",
        "a/cut/0$c": b"abc",
        "a/none/0.#epoch.0$header": b"",
        "a/swapped/0.#epoch.0$header": b"maxsize=5&0=a/s/0.#epoch.0$offset.0&",
    }
    archive = open_archive(stored(objects))
    assert archive.read("a/s/0.#epoch.0", 0, 10) == b"0123456789"
    assert archive.read("a/plain/0.#epoch.0", 0, 5) == b"plain"
    cut = archive.segment("a/cut/0.#epoch.0")
    assert (cut.start_offset, cut.length, cut.head_recorded) == (5, 13, False)
    assert archive.read(cut.name, 6, 12) == b"6789ab"
    assert "a/none/0.#epoch.0" not in archive.segments()
    with pytest.raises(ArchiveDamaged, match=r"a/swapped/0\.#epoch\.0\$header.*another"):
        archive.read("a/swapped/0.#epoch.0", 0, 0)
    assert any("no container's metadata" in finding for finding in archive.findings)


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("_system/containers/_sysjournal.epoch2.container1.snapshot2", None),
        ("_system/containers/_sysjournal.epoch2.container1.snapshot2", b"\0\0\1"),
        ("_system/containers/_sysjournal.epoch2.container1.file3", None),
        ("_system/containers/metadata_1.E-1-O-0.78e5eee5-5bf2-4bd6-9964-331c66132559", None),
        ("_system/containers/storage_metadata_1.E-2-O-51457.8c459a81-df88-4197-8b07-c5af468716ef", b"\1" * 131072),
    ],
)
def test_what_all_depends_on_is_an_error_when_the_archive_is_opened(name: str, damage: bytes | None) -> None:
    objects = dict(case(CHUNKED).objects)
    del objects[name]
    if damage is not None:
        objects[name] = damage
    stem = name.partition(".E-")[0].replace("snapshot2", "")
    with pytest.raises(ArchiveDamaged) as raised:
        open_archive(stored(objects))
    assert stem in str(raised.value)


@pytest.mark.parametrize("cut", [0, 1, 100, 5000])
def test_a_journal_that_ends_early_is_an_error(cut: int) -> None:
    objects = dict(case(CHUNKED).objects)
    name = "_system/containers/_sysjournal.epoch2.container2.file3"
    objects[name] = objects[name][:cut]
    with pytest.raises(ArchiveDamaged, match="container"):
        open_archive(stored(objects))


def test_of_journals_with_a_gap_the_missing_one_is_named() -> None:
    objects = dict(case(CHUNKED).objects)
    name = "_system/containers/_sysjournal.epoch2.container2.file"
    objects[f"{name}5"] = objects[f"{name}3"][:0]
    with pytest.raises(ArchiveDamaged, match=r"container2\.file4'.*missing"):
        open_archive(stored(objects))


def test_a_container_without_its_journal_is_an_error() -> None:
    objects = {name: data for name, data in case(CHUNKED).objects.items() if ".container3." not in name}
    with pytest.raises(ArchiveDamaged, match="metadata_3"):
        open_archive(stored(objects))


@pytest.mark.parametrize("damage", ["missing", "short"])
def test_a_chunk_that_is_damaged_is_an_error_when_it_is_read(damage: str) -> None:
    objects = dict(case(CHUNKED).objects)
    name = next(name for name in objects if name.startswith("demo/scaled/2.#epoch.1.E-"))
    objects[name] = objects[name][:-1]
    if damage == "missing":
        del objects[name]
    archive = open_archive(stored(objects))
    with pytest.raises(ArchiveDamaged) as raised:
        archive.read("demo/scaled/2.#epoch.1", 0, 10)
    assert name in str(raised.value)
    assert [str(problem) for problem in archive.problems()] == [str(raised.value)]
    archive.read("demo/scaled/1.#epoch.1", 0, 10)


def test_storage_metadata_that_contradicts_itself_is_a_problem_of_its_segment() -> None:
    chunks = [ChunkRecord("s.1", 5, "s.2"), ChunkRecord("s.2", 4)]
    segment = StoredSegmentRecord("s", 10, 2, first_chunk="s.1", last_chunk="s.2", last_chunk_start=5)
    records: list[ChunkRecord | StoredSegmentRecord] = [*chunks, segment]
    rows = {
        record.name.encode(): Entry(
            0, record.name.encode(), encode_transaction_data(TransactionData(1, record.name, record)), 0
        )
        for record in records
    }
    source = Source(stored({"s.1": b"12345", "s.2": b"6789"}))
    [found] = stored_segments(source, "table", rows).values()
    assert found.problem is not None and "[0, 9)" in str(found.problem)
    rows.pop(b"s.2")
    [found] = stored_segments(source, "table", rows).values()
    assert found.problem is not None and "'s.2'" in str(found.problem)


def test_a_key_value_table_needs_its_index() -> None:
    """Only the index says what was removed from it."""
    one = case(CHUNKED)
    name = "demo/kvt_kvtable/0.#epoch.0"
    objects = {key: data for key, data in one.objects.items() if not key.startswith(name + INDEX_SUFFIX)}
    with pytest.raises(ArchiveDamaged, match="index"):
        open_archive(stored(objects)).table(name)
