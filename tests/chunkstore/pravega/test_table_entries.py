"""Entries of tables: which of a key's counts, what compaction left behind, and what the index has to say."""

from __future__ import annotations

import functools
import struct
import uuid

import pytest

from chunkstore.decoding import InvalidData
from chunkstore.pravega import table_entries
from chunkstore.pravega.archived_segments import ArchivedChunk, StoredSegment, table_of
from chunkstore.pravega.attribute_index import attributes_of, key_of, read_index
from chunkstore.pravega.segment_infos import SEGMENT_TYPE, SegmentInfo
from chunkstore.pravega.source import Source
from chunkstore.pravega.table_entries import Entry, TableRows, ahead_of, entries, live_by_hash, live_by_key, newest
from engine.tables import btree
from tests.archives import stored

NONE = -(1 << 63)


def packed(key: bytes, value: bytes | None, version: int = NONE) -> bytes:
    length = -1 if value is None else len(value)
    return struct.pack(">Biiq", 0, len(key), length, version) + key + (value or b"")


def read(data: bytes, start: int, end: int) -> bytes:
    return data[start:end]


def state(*parts: bytes) -> dict[bytes, Entry]:
    data = b"".join(parts)
    return newest(entries(functools.partial(read, data), 0, len(data)))


def index_of(*found: Entry) -> dict[bytes, int]:
    return {table_entries.index_key(entry.key): entry.offset for entry in found}


def test_the_newest_entry_of_a_key_counts() -> None:
    found = state(packed(b"a", b"1"), packed(b"b", b"2"), packed(b"a", b"33"), packed(b"b", None))
    assert found[b"a"].value == b"33"
    assert found[b"b"].value is None
    assert [entry.key for entry in live_by_hash(found.values(), {}, 0)] == [b"a"]


def test_compaction_writes_an_entry_again_with_its_version() -> None:
    """Behind it may lie an older place of a key that was changed in between."""
    first = packed(b"a", b"old")
    found = state(first, packed(b"a", b"new"), packed(b"a", b"old", 0))
    assert (found[b"a"].value, found[b"a"].version) == (b"new", len(first))


def test_what_was_written_again_when_it_had_been_removed_is_gone() -> None:
    """The removal was compacted away; only the index tells."""
    found = state(packed(b"b", b"1"), packed(b"a", b"old", 3))
    assert found[b"a"].version == 3
    there = list(live_by_hash(found.values(), index_of(found[b"b"]), 1000))
    assert [entry.key for entry in there] == [b"b"]
    with pytest.raises(InvalidData, match="does not lead"):
        list(live_by_hash(found.values(), index_of(found[b"a"]), 1000))


def test_entries_behind_the_index_are_newer_than_what_it_says() -> None:
    """The table was flushed, its index not yet; or it was, and knows that a key was removed behind its last entry."""
    parts = [packed(b"a", b"1"), packed(b"b", b"1"), packed(b"c", b"1"), packed(b"gone", b"1")]
    known = state(*parts)
    index = index_of(*(known[key] for key in (b"a", b"b", b"c")))
    parts[3] = packed(b"gone", b"1", known[b"c"].offset)  # written again when it had been removed
    indexed = sum(map(len, parts))
    again = packed(b"a", b"1", 0), packed(b"gone", b"1", known[b"c"].offset)
    data = b"".join([*parts, packed(b"a", b"2"), packed(b"b", None), packed(b"d", b"1"), *again])
    rows = list(entries(functools.partial(read, data), 0, len(data)))
    there = live_by_hash(rows, index, indexed)
    assert {entry.key: entry.value for entry in there} == {b"a": b"2", b"c": b"1", b"d": b"1"}
    removed = index_of(*(known[key] for key in (b"a", b"c")))
    assert {entry.key for entry in live_by_hash(rows, removed, indexed)} == {b"a", b"c", b"d"}
    with pytest.raises(InvalidData, match="index"):
        list(live_by_hash(rows, index | index_of(Entry(7, b"a", b"", 7)), indexed))


def test_an_index_that_is_ahead_of_its_table() -> None:
    """It leads behind the end, where `a` was put again and `new` was put; `gone` was removed there."""
    data = b"".join([packed(b"a", b"1"), packed(b"b", b"1"), packed(b"gone", b"1")])
    rows = list(entries(functools.partial(read, data), 0, len(data)))
    index = index_of(Entry(len(data), b"a", b"2", 0), rows[1], Entry(len(data) + 30, b"new", b"1", 0))
    ahead = ahead_of(index, len(data))
    found = TableRows({entry.key: entry for entry in live_by_hash(rows, index, len(data), ahead)}, ahead)
    assert {key: entry.value for key, entry in found.items()} == {b"a": b"1", b"b": b"1"}
    assert [found.is_newest(key) for key in (b"a", b"b", b"new", b"gone")] == [False, True, False, True]
    with pytest.raises(InvalidData, match="does not lead"):
        list(live_by_hash(rows, index, len(data)))


def test_an_index_of_keys_of_one_length_that_is_ahead_of_its_table() -> None:
    found = state(packed(b"aa", b"1"), packed(b"bb", b"2"))
    index = {b"aa": 1000, b"cc": 1030, b"bb": found[b"bb"].offset}
    ahead = ahead_of(index, 1000, hashes=False)
    assert [entry.value for entry in live_by_key(found, index, ahead)] == [b"1", b"2"]
    assert not TableRows({}, ahead).is_newest(b"cc")


@pytest.mark.parametrize("known", [True, False])
def test_a_table_of_keys_of_one_length_is_told_by_its_index(known: bool) -> None:
    """Where its container has not said what it is."""
    rows = packed(b"aa", b"1"), packed(b"bb", b"2")
    page = btree.update(functools.partial(_ranges, b""), None, 0, {b"bb": len(rows[0])}, key_length=2, max_page=256)
    source = Source(stored({"t": b"".join(rows), "t$attributes.index": page.pages}))
    table, index = (
        StoredSegment(name, 0, source.size(name) or 0, False, (ArchivedChunk(name, 0, source.size(name) or 0),))
        for name in ("t", "t$attributes.index")
    )
    info = SegmentInfo("t", 0, 0, False, {SEGMENT_TYPE: 5}) if known else None
    assert list(table_of(source, table, index, info)) == [b"bb"]


def test_keys_with_the_same_hash_are_led_to_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_entries, "index_key", lambda key: b"h" * 16)
    found = state(packed(b"a", b"1"), packed(b"b", b"2"))
    back = key_of(uuid.UUID(int=((1 << 63) - 1) << 64 | found[b"b"].offset))
    index = {b"h" * 16: found[b"b"].offset, back: found[b"a"].offset}
    assert [entry.key for entry in live_by_hash(found.values(), index, 1000)] == [b"a", b"b"]


def test_the_index_must_lead_to_the_entries() -> None:
    found = state(packed(b"a", b"1"), packed(b"b", None))
    for index in (index_of(found[b"b"]), {table_entries.index_key(b"a"): 7}, index_of(Entry(0, b"c", b"", 0))):
        with pytest.raises(InvalidData, match="index"):
            list(live_by_hash(found.values(), index, 1000))


def test_keys_of_one_length_are_removed_in_the_index_only() -> None:
    found = state(packed(b"aa", b"1"), packed(b"bb", b"2"), packed(b"aa", b"3"))
    assert [entry.value for entry in live_by_key(found, {b"aa": found[b"aa"].offset})] == [b"3"]
    for index in ({b"aa": 0}, {b"cc": 0}):
        with pytest.raises(InvalidData, match="index"):
            list(live_by_key(found, index))


@pytest.mark.parametrize(
    "data",
    [
        packed(b"a", b"1")[:-1],
        packed(b"a", b"1") + b"\0\0",
        b"\1" + packed(b"a", b"1")[1:],
        packed(b"", b"1"),
        packed(b"a", b"1", 5),
        struct.pack(">Biiq", 0, 9000, 1, NONE),
        struct.pack(">Biiq", 0, 1, -2, NONE) + b"a",
    ],
)
def test_what_is_no_entry_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidData):
        state(data)


@pytest.mark.parametrize("count", [0, 1, 3, 1000])
def test_an_index_of_many_pages(count: int) -> None:
    values: dict[bytes, int | None] = {uuid.UUID(int=number * 7 + 1).bytes: number for number in range(count)}
    data = b""
    root = None
    for part in (dict(list(values.items())[::2]), dict(list(values.items())[1::2])):
        update = btree.update(functools.partial(_ranges, data), root, len(data), part, key_length=16, max_page=256)
        data, root = data + update.pages, update.root
    assert read_index(functools.partial(read, data), 0, len(data)) == values


def _ranges(data: bytes, ranges: list[tuple[int, int]]) -> list[bytes]:
    return [data[start : start + length] for start, length in ranges]


def test_attributes_are_uuids_with_signs_turned() -> None:
    attribute = uuid.UUID("80000000-0000-0000-7fff-ffffffffffff")
    assert key_of(attribute) == bytes(8) + b"\xff" * 8
    assert attributes_of({key_of(attribute): 5}) == {attribute: 5}
    with pytest.raises(InvalidData):
        attributes_of({b"short": 1})
