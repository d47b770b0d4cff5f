"""Damaged tables and records, as `verify` finds them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from chunkstore.metadata.metadata_records import (
    ChunkRecord,
    IndexBlockRecord,
    RecordStatus,
    StoredSegmentRecord,
    encode,
)
from engine.admin.checks.findings import Severity
from engine.admin.checks.object_index import ObjectIndex
from engine.admin.checks.table_check import table_problems
from engine.logs.transaction import Transaction
from engine.state.operations import PutEntry
from engine.state.segment_record import decode_segment, encode_segment
from engine.state.tables import ATTRIBUTES, METADATA, STORAGE, Entry, new_table
from engine.tables import content as table_content
from engine.tables.btree import TreeRoot
from engine.tables.content import TableContent, TableEntry
from tests.engine.admin.lives import Life, assert_told, flip, lived, told

pytestmark = pytest.mark.usefixtures("small")


# --- tables and records ----------------------------------------------------------------------------------------------


def test_a_flipped_bit_in_a_table() -> None:
    life = lived(7)
    for path in [path for path in life.container.state.chunks if path.startswith("_system/")]:
        data = life.store.read(path)
        flip(life.store, path, 0)
        report = life.verified()
        assert any(path in finding.problem for finding in report.findings)
        assert report.errors
        life.store.put(path, data)
    assert told(life.verified()) == []


@pytest.mark.parametrize("deep", [False, True])
def test_a_missing_object_of_tables(deep: bool) -> None:
    """Whatever can be looked at nevertheless is, and nobody takes for orphans what the table may have named."""
    life = lived(7)
    state = life.container.state
    paths = {str(extent.source) for _, extent in state.tables[STORAGE].entries}
    life.store.delete([min(paths)])
    report = life.verified(deep=deep)
    assert_told(report, min(paths), "missing")
    assert_told(report, STORAGE, "missing")
    assert report.orphans is None and report.balances == ()


def put_record(life: Life, *records: object) -> None:
    life.container.put_entries(STORAGE, {record.key: encode(record) for record in records})  # type: ignore[attr-defined, arg-type]


def test_a_broken_link_in_a_list_of_chunks() -> None:
    life = lived(7)
    path, owner = life.middle_chunk(), life.whole_segment().name.rpartition(".")[0]
    life.container.put_entries(STORAGE, {path: None})
    assert_told(life.verified(), owner, f"there is no record of {path!r}")


Change = Callable[[StoredSegmentRecord, ChunkRecord], object]
BROKEN: dict[str, tuple[Change, str]] = {
    "length of a chunk": (lambda s, c: c._replace(length=c.length + 1), "chunks end at"),
    "a link back": (lambda s, c: c._replace(next_chunk=s.first_chunk), "chunks"),
    "a link past one": (lambda s, c: c._replace(next_chunk=s.last_chunk), "chunks"),
    "a link to a segment": (lambda s, c: c._replace(next_chunk=s.key), "not a ChunkRecord"),
    "checksums": (lambda s, c: c._replace(checksums=c.checksums + b"1234"), "checksums of the wrong length"),
    "number of chunks": (lambda s, c: s._replace(chunk_count=s.chunk_count + 1), "that end at"),
    "length of the segment": (lambda s, c: s._replace(length=s.length + 5), "counts bytes"),
    "start of the segment": (lambda s, c: s._replace(start_offset=7), "counts bytes"),
    "last chunk": (lambda s, c: s._replace(last_chunk=c.name), "last chunk should be"),
    "deleted in LTS": (lambda s, c: s._replace(status=s.status & ~RecordStatus.ACTIVE), "is deleted there"),
    "a field that contradicts": (lambda s, c: s._replace(first_chunk_start=3), "first_chunk_start"),
    "a block that is not there": (lambda s, c: s._replace(blocks=((0, "none"),)), "block 'none' is missing"),
    "a block elsewhere": (lambda s, c: s._replace(blocks=((1, s.blocks[0][1]),)), "but no chunk of that name does"),
    "a block that is a chunk": (lambda s, c: s._replace(blocks=((0, c.name),)), "not a IndexBlockRecord"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_records_that_contradict_each_other(what: str) -> None:
    life = lived(7)
    segment, chunk = life.whole_segment(), life.records(ChunkRecord)[life.middle_chunk()]
    assert isinstance(chunk, ChunkRecord)
    change, problem = BROKEN[what]
    put_record(life, change(segment, chunk))
    assert_told(life.verified(), segment.name.rpartition(".")[0], problem)


def test_segments_whose_objects_hold_something_else() -> None:
    life = lived(7)
    chunk = life.records(ChunkRecord)[life.middle_chunk()]
    assert isinstance(chunk, ChunkRecord)
    put_record(life, chunk._replace(length=chunk.length - 1))
    assert_told(life.verified(), "_system/containers/0/", "but their objects have")


def test_a_block_that_names_a_chunk_behind_the_last_one() -> None:
    life = lived(7)
    segment = life.whole_segment()
    block = life.records(IndexBlockRecord)[segment.blocks[-1][1]]
    assert isinstance(block, IndexBlockRecord)
    put_record(life, block._replace(entries=(*block.entries, (1 << 20, "beyond"))))
    assert_told(life.verified(), segment.name.rpartition(".")[0], "behind its last chunk")


def test_a_chunk_of_two_segments_and_one_of_none() -> None:
    life = lived(7)
    segment, chunk = life.whole_segment(), life.records(ChunkRecord)[life.middle_chunk()]
    assert isinstance(chunk, ChunkRecord)
    twin = StoredSegmentRecord("twin", 3, 1, first_chunk="of the twin", last_chunk="of the twin")
    put_record(life, twin, ChunkRecord("of the twin", 3), ChunkRecord("stray", 4))
    life.store.put("of the twin", b"abc")
    report = life.verified()
    assert_told(report, "stray", "not reachable from any segment", Severity.WARNING)
    assert_told(report, "twin", "does not know", Severity.WARNING)
    put_record(life, twin._replace(first_chunk=chunk.name, last_chunk=chunk.name, length=chunk.length))
    report = life.verified()
    assert_told(report, chunk.name, "belongs to")
    assert segment.name.rpartition(".")[0] in next(f.problem for f in report.findings if f.object == chunk.name)


def test_records_that_are_none() -> None:
    life = lived(7)
    chunk = life.records(ChunkRecord)[life.middle_chunk()]
    life.container.put_entries(STORAGE, {"nonsense": b"nonsense", "elsewhere": encode(chunk)})  # type: ignore[arg-type]
    report = life.verified()
    assert_told(report, "nonsense", "cannot be read")
    assert_told(report, "elsewhere", "holds the record of")


def test_the_record_of_a_segment_in_tier_2_is_missing() -> None:
    life = lived(7)
    segment = life.whole_segment()
    life.container.put_entries(STORAGE, {segment.key: None})
    assert_told(life.verified(), segment.name.rpartition(".")[0], "there is no record of")


SAVED: dict[str, Any] = {"length": 5, "id": 999, "sealed": True, "storage": "other", "start_offset": 1}


@pytest.mark.parametrize("field", SAVED)
def test_the_table_of_segments_against_those_that_are_active(field: str) -> None:
    life = lived(7)
    life.container.flush()
    state = life.container.state
    name = next(name for name, segment in sorted(state.segments.items()) if name not in state.unsaved)
    entry = life.container.entry(METADATA, name)
    assert entry is not None and entry.value is not None
    changed = decode_segment(entry.value, 0, "s")._replace(**{field: SAVED[field]})
    life.container.put_entries(METADATA, {name: encode_segment(changed)})
    assert_told(life.verified(), name, f"its {field} is")


def test_entries_of_the_table_of_segments_that_are_wrong() -> None:
    life = lived(7)
    life.container.flush()
    state = life.container.state
    active = next(name for name, segment in sorted(state.segments.items()) if name not in state.unsaved)
    idle = next(name for name, _ in sorted(life.container.scan_entries(METADATA)) if name not in state.segments)
    entry = life.container.entry(METADATA, idle)
    assert entry is not None and entry.value is not None
    saved = decode_segment(entry.value, 0, "s")
    changes: dict[str, bytes | None] = {
        active: None,
        idle: encode_segment(saved._replace(length=saved.length + 1)),
        "s/twin": entry.value,
        "s/nonsense": b"nonsense",
    }
    life.container.create_segment("s/new")
    life.container.put_entries(METADATA, {**changes, "s/new": encode_segment(life.container.info("s/new"))})
    report = life.verified()
    assert_told(report, active, "is not there")
    assert_told(report, idle, "are not in LTS")
    assert_told(report, "s/twin", f"is for {idle!r}")
    assert_told(report, "s/nonsense", "cannot be understood")
    assert_told(report, "s/new", "was never saved")


def test_an_attribute_that_is_none() -> None:
    life = lived(7)
    wrong = PutEntry(ATTRIBUTES, "00" * 24, b"1234567")
    life.container.log.processor.commit(Transaction([wrong]))  # past the check of what this table can have
    assert_told(life.verified(), ATTRIBUTES, "is not an attribute")


# --- a table by itself -----------------------------------------------------------------------------------------------


class Bytes:
    """A table's two byte spaces, and its content as some bytes of them are changed."""

    def __init__(self) -> None:
        self.entries = self.pages = b""
        self.layout = table_content.empty()
        self.older: TreeRoot | None = None
        for version in range(3):
            self.older = self.layout.root
            flush = self.content().flush(
                [TableEntry(b"key %d" % key, b"value", 100 * version + key) for key in range(version, 50, version + 1)]
            )
            self.entries, self.pages, self.layout = self.entries + flush.entries, self.pages + flush.pages, flush.layout

    def content(self) -> TableContent:
        return TableContent(
            self.layout,
            lambda ranges: [self.entries[at : at + length] for at, length in ranges],
            lambda ranges: [self.pages[at : at + length] for at, length in ranges],
        )

    def problems(self, *recent: tuple[str, Entry]) -> str:
        table = new_table("t")._replace(layout=self.layout, flushed=300)
        for key, entry in recent:
            table = table.put(key, entry)
        with closing(ObjectIndex()) as inventory:
            found = list(table_problems("t", table, self.content(), inventory))
        assert all(problem.object == "t" for problem in found)
        return "; ".join(problem.problem for problem in found)


def test_a_table_that_agrees_with_itself() -> None:
    assert Bytes().problems() == ""
    assert Bytes().problems(("key 2", Entry(b"value", 202)), ("key 7", Entry(None, 400))) == ""


def test_an_index_entry_that_leads_to_another_key() -> None:
    content = Bytes()
    content.entries = content.entries.replace(b"key 3", b"key X")
    assert "the index points to it for another key" in content.problems()


def test_an_index_that_leads_to_what_is_superseded() -> None:
    content = Bytes()
    content.layout = content.layout._replace(root=content.older)
    assert "its index points to version 102 of key b'key 2', whose newest version is 202" not in content.problems()
    assert "whose newest version is" in content.problems()


def test_an_index_that_leads_to_what_is_removed() -> None:
    content = Bytes()
    flush = content.content().flush([TableEntry(b"key 1", None, 290)])
    content.entries += flush.entries
    content.layout = content.layout._replace(length=flush.layout.length, written=flush.layout.written)
    assert "which was removed" in content.problems()


@pytest.mark.parametrize("field", ["entries", "written"])
def test_numbers_of_entries_that_are_wrong(field: str) -> None:
    content = Bytes()
    content.layout = content.layout._replace(**{field: 7})  # type: ignore[arg-type]
    assert "but 7 are counted" in content.problems()


def test_a_damaged_entry_and_a_damaged_page_are_both_told() -> None:
    content = Bytes()
    start = content.layout.start
    content.entries = content.entries[:start] + b"\x09" + content.entries[start + 1 :]
    content.pages = content.pages[:-20] + bytes(20)
    assert "its format is 9" in content.problems() and "index page" in content.problems()


def test_entries_in_memory_that_tier_2_has_not() -> None:
    problems = Bytes().problems(("key 2", Entry(b"other", 202)), ("none", Entry(b"", 203)))
    assert "'key 2': version 202 was flushed, but LTS has version 202" in problems
    assert "'none': version 203 was flushed, but LTS has no entry" in problems


def test_an_entry_that_is_newer_than_what_was_flushed() -> None:
    content = Bytes()
    flush = content.content().flush([TableEntry(b"key 1", b"", 301)])
    content.entries, content.pages = content.entries + flush.entries, content.pages + flush.pages
    content.layout = flush.layout
    assert "an entry has version 301, but only versions up to 300 were flushed" in content.problems()
