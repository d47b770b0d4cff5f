"""A table's entries and index in LTS: against a dict, their bytes, what is read, what is kept, and damage."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import pytest
from hypothesis import given, settings, strategies as st

from engine.errors import DataCorruption
from engine.tables import content as table_content
from engine.tables.btree import TreeRoot
from engine.tables.content import (
    MAX_KEY,
    MAX_VALUE,
    MIN_WRITTEN,
    Flush,
    KeyCollision,
    TableContent,
    TableEntry,
    TableLayout,
    check_entry,
    decode,
    empty,
    encode,
)

NO_VERSION = -(1 << 63)
SMALL = 128


class Segment:
    """A segment's bytes. What is below `start` is overwritten, and must not be read."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.start = 0
        self.reads: list[list[int]] = []
        """The lengths of the ranges of each call."""

    def read(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        self.reads.append([length for _, length in ranges])
        assert all(self.start <= offset and offset + length <= len(self.data) for offset, length in ranges)
        return [bytes(self.data[offset : offset + length]) for offset, length in ranges]

    def change(self, added: bytes, start: int) -> None:
        assert self.start <= start <= len(self.data) + len(added)
        self.data += added
        self.data[self.start : start] = b"\xee" * (start - self.start)
        self.start = start


class Table:
    """A table with its two segments, and what it should hold."""

    def __init__(self, key_length: int = 0, max_page: int = SMALL) -> None:
        self.entries = Segment()
        self.index = Segment()
        self.layout = empty(key_length)
        self.model: dict[bytes, TableEntry] = {}
        self.version = 0
        self._max_page = max_page

    @property
    def content(self) -> TableContent:
        return TableContent(self.layout, self.entries.read, self.index.read, name="the table", max_page=self._max_page)

    def flush(self, changes: Mapping[bytes, bytes | None], **options: int) -> Flush:
        dirty = [TableEntry(key, value, self.version + number) for number, (key, value) in enumerate(changes.items())]
        self.version += len(dirty)
        flush = self.content.flush(dirty, **options)
        self.layout = flush.layout
        self.entries.change(flush.entries, self.layout.start)
        self.index.change(flush.pages, self.layout.index_start)
        assert (len(self.entries.data), len(self.index.data)) == (self.layout.length, self.layout.index_length)
        self.model |= {entry.key: entry for entry in dirty}
        for entry in dirty:
            if entry.value is None:
                del self.model[entry.key]
        return flush

    def expected(self) -> list[TableEntry]:
        return sorted(self.model.values(), key=lambda entry: self.order(entry.key))

    def order(self, key: bytes) -> bytes:
        return key if self.layout.key_length else hashlib.sha256(key).digest()

    def forget_reads(self) -> None:
        self.entries.reads.clear()
        self.index.reads.clear()


@pytest.mark.parametrize(
    ("entry", "data"),
    [
        (TableEntry(b"abc", b"xy", NO_VERSION), "00 00000003 00000002 8000000000000000 616263 7879"),
        (TableEntry(b"abc", None, NO_VERSION), "00 00000003 ffffffff 8000000000000000 616263"),
        (TableEntry(b"", b"", 258), "00 00000000 00000000 0000000000000102"),
    ],
    ids=["put", "removal", "empty"],
)
def test_the_format_of_an_entry_is_fixed(entry: TableEntry, data: str) -> None:
    assert encode(entry) == bytes.fromhex(data)
    assert decode(bytes.fromhex("ff" + data), 1) == (entry, 1 + len(bytes.fromhex(data)))


@given(st.binary(max_size=40), st.one_of(st.none(), st.binary(max_size=40)), st.integers(NO_VERSION, 2**63 - 1))
def test_what_is_encoded_is_decoded(key: bytes, value: bytes | None, version: int) -> None:
    entry = TableEntry(key, value, version)
    data = encode(entry)
    assert decode(data + b"more") == (entry, len(data))
    with pytest.raises(DataCorruption, match="entry at offset 0: "):
        decode(data[:-1])


def test_the_layout_says_what_was_written() -> None:
    table = Table(max_page=8192)
    flush = table.flush({b"abc": b"xy", b"d": b""})
    assert flush.entries == encode(TableEntry(b"abc", b"xy", 0)) + encode(TableEntry(b"d", b"", 1))
    assert len(flush.pages) == 14 + 2 * 24 + 12
    assert flush.layout == TableLayout(0, 40, 0, 74, TreeRoot(0, 62), 2, 2, 0)
    assert flush.pages[34:50] == bytes.fromhex("ba7816bf8f01cfea414140de5dae2223")  # of SHA-256 of abc


KEYS = {0: [b"k%d" % number for number in range(150)] + [b""], 2: [bytes([n // 12 * 5, n % 12]) for n in range(150)]}
VALUE = st.one_of(st.none(), st.sampled_from([b"", b"v", b"value" * 30, b"long" * 500]))


class Many(NamedTuple):
    """`number` random keys get values of up to 40 bytes, or are removed."""

    seed: int
    number: int
    removed: float

    def changes(self) -> dict[int, bytes | None]:
        chance = random.Random(self.seed)
        numbers = [chance.randrange(150) for _ in range(self.number)]
        return {n: None if chance.random() < self.removed else chance.randbytes(chance.randrange(40)) for n in numbers}


STEP = st.one_of(
    st.dictionaries(st.integers(0, 149), VALUE, max_size=10),
    st.builds(Many, st.integers(0, 99), st.integers(0, 150), st.sampled_from([0.0, 0.3, 0.9])),
)


@pytest.mark.parametrize("key_length", KEYS)
@given(
    st.lists(st.tuples(STEP, st.sampled_from([0, 1, 300, 2000, table_content.COMPACT_BYTES])), max_size=12),
    st.integers(0, 149),
    st.integers(0, 12),
)
@settings(max_examples=80, deadline=None)
def test_it_is_a_dict(
    key_length: int, steps: list[tuple[dict[int, bytes | None] | Many, int]], chosen: int, watched: int
) -> None:
    """Small pages and steps of compaction, and no byte that was given up is ever read."""
    table, keys = Table(key_length), KEYS[key_length]
    position, seen = 0, dict[bytes, TableEntry]()
    for number, (step, compact) in enumerate(steps):
        changes = {keys[n]: value for n, value in (step.changes() if isinstance(step, Many) else step).items()}
        dropped = {key for key, value in changes.items() if value is None and key not in table.model}
        table.model |= {key: TableEntry(key, None, 0) for key in dropped}
        table.flush(changes, compact=compact)
        check_layout(table)
        if number == watched:
            position, seen = table.layout.length, dict(table.model)
    check_answers(table, keys, keys[chosen])
    if position < table.layout.start:
        with pytest.raises(ValueError, match="is not between"):
            table.content.changes(position)
        position, seen = table.layout.start, {}
    check_changes(table, position, seen)


def check_layout(table: Table) -> None:
    layout = table.layout
    assert layout.entries == len(table.model)
    written = list(table.content.changes(layout.start))
    assert layout.written == len(written)
    assert [position for position, _ in written[-1:]] == [layout.length][: len(written)]


def check_answers(table: Table, keys: Sequence[bytes], key: bytes) -> None:
    content, expected = table.content, table.expected()
    asked = [*keys, b"absent", b"xx", b"x" * (MAX_KEY + 1)]
    assert content.get(asked) == table.model
    assert content.versions(asked) == {key: entry.version for key, entry in table.model.items()}
    assert list(content.scan()) == expected
    behind = [entry for entry in expected if table.order(entry.key) > table.order(key)]
    assert list(content.scan(after=key)) == behind
    for prefix in (key[:1], key, key + b"x", b"\xff", keys[149][:1]):
        assert list(content.scan(prefix)) == [entry for entry in expected if entry.key.startswith(prefix)]
        assert list(content.scan(prefix, after=key)) == [entry for entry in behind if entry.key.startswith(prefix)]


def check_changes(table: Table, position: int, seen: dict[bytes, TableEntry]) -> None:
    """What was true at a position, with what was written since, is what is true now."""
    for _, entry in table.content.changes(position):
        if entry.key not in seen or seen[entry.key].version <= entry.version:
            seen[entry.key] = entry
    assert {key: entry for key, entry in seen.items() if entry.value is not None} == table.model


@pytest.mark.parametrize("prefix", [b"", b"\x00", b"\xff", b"\xff\xff", b"a\xff", b"a\xff\xff", b"b", b"\x00\x00"])
def test_prefixes_at_the_edges(prefix: bytes) -> None:
    table = Table(key_length=3)
    bytes_ = [b"\x00", b"a", b"b", b"\xff"]
    table.flush({one + two + three: b"v" for one in bytes_ for two in bytes_ for three in bytes_})
    assert [entry.key for entry in table.content.scan(prefix)] == sorted(
        key for key in table.model if key.startswith(prefix)
    )


def test_a_prefix_reads_its_range_only() -> None:
    table = Table(key_length=4)
    table.flush({number.to_bytes(4, "big"): b"v" * 100 for number in range(3000)})
    table.forget_reads()
    assert len(list(table.content.scan(b"\x00\x00\x05"))) == 256
    assert sum(map(len, table.entries.reads)) == 256
    assert sum(map(len, table.index.reads)) < 256


@pytest.mark.parametrize("size", [1, 450, 512, 513, 5000, 100_000])
def test_a_get_reads_each_level_once_and_long_entries_in_one_more_call(size: int) -> None:
    table = Table(max_page=8192)
    table.flush({b"%d" % number: bytes([number % 256]) * size for number in range(700 if size < 10_000 else 20)})
    height = 2 if size < 10_000 else 1
    for keys in ([b"7"], [b"%d" % number for number in range(20)]):
        table.forget_reads()
        assert table.content.get(keys) == {key: table.model[key] for key in keys}
        assert (len(table.index.reads), len(table.entries.reads)) == (height, 1 if size <= 450 else 2)
        table.forget_reads()
        assert table.content.versions(keys) == {key: table.model[key].version for key in keys}
        assert (len(table.index.reads), len(table.entries.reads)) == (height, 1)
    table.forget_reads()
    assert table.content.get([b"absent"]) == {}
    assert (len(table.index.reads), len(table.entries.reads)) == (height, 0)


def test_a_scan_that_is_given_up_has_read_little() -> None:
    table = Table(max_page=8192)
    table.flush({b"%d" % number: b"v" for number in range(2000)})
    table.forget_reads()
    next(table.content.scan())
    assert list(map(len, table.entries.reads)) == [16]
    assert list(map(len, table.index.reads)) == [1, 2]
    table.forget_reads()
    assert len(list(table.content.scan())) == 2000
    assert len(table.entries.reads) == 11


def test_an_empty_table_is_not_read() -> None:
    table = Table()
    assert (table.content.get([b"k"]), table.content.versions([b"k"])) == ({}, {})
    assert (list(table.content.scan()), list(table.content.changes(0))) == ([], [])
    assert table.flush({}) == Flush(b"", b"", empty())
    assert not table.entries.reads + table.index.reads


def test_the_longest_entries_are_read_a_few_at_a_time() -> None:
    table = Table(max_page=8192)
    values = {b"%d" % number + b"k" * (MAX_KEY - 2): bytes([number]) * MAX_VALUE for number in range(10, 30)}
    table.flush(values)
    table.forget_reads()
    content = table.content
    assert {entry.key: entry.value for entry in content.scan()} == values
    assert content.get(values).keys() == values.keys()
    assert [entry.value for _, entry in content.changes(0)] == list(values.values())
    assert content.versions(values) == {key: number for number, key in enumerate(values)}
    assert max(map(sum, table.entries.reads)) <= 4 << 20


def test_a_flush_with_long_keys_compares_all_of_them() -> None:
    table = Table()
    keys = [b"k" * 5000 + b"%d" % number for number in range(30)]
    table.flush(dict.fromkeys(keys, b"1"))
    table.flush(dict.fromkeys(keys, b"2"))
    assert table.layout.entries == 30
    assert {entry.value for entry in table.content.get(keys).values()} == {b"2"}


def test_a_removal_of_a_key_that_is_not_there_is_written_too() -> None:
    table = Table()
    table.model[b"gone"] = TableEntry(b"gone", None, 0)
    flush = table.flush({b"gone": None})
    assert flush.entries == encode(TableEntry(b"gone", None, 0))
    assert (flush.pages, flush.layout) == (b"", empty()._replace(length=21, written=1))
    assert list(table.content.changes(0)) == [(21, TableEntry(b"gone", None, 0))]


@pytest.mark.parametrize("key_length", [0, 2])
def test_the_same_input_gives_the_same_bytes(key_length: int) -> None:
    tables = Table(key_length), Table(key_length)
    for seed in range(12):
        changes = Many(seed, 100, 0.0).changes()
        flushes = [table.flush({KEYS[key_length][n]: value for n, value in changes.items()}) for table in tables]
        assert flushes[0] == flushes[1]
    assert tables[0].layout.start > 0


def sizes(table: Table) -> tuple[int, int]:
    """Bytes of both segments that are kept, as a multiple of what the live entries need."""
    layout = table.layout
    live = sum(len(encode(entry)) for entry in table.model.values())
    index = len(table.model) * ((layout.key_length or 16) + 8)
    return round(100 * (layout.length - layout.start) / live), round(
        100 * (layout.index_length - layout.index_start) / index
    )


def random_keys(chance: random.Random, keys: Sequence[bytes], _: int) -> Iterable[bytes]:
    return chance.sample(keys, 150)


def hot_keys(chance: random.Random, keys: Sequence[bytes], _: int) -> Iterable[bytes]:
    return chance.sample(keys[::10], 150)


def few_keys(_: random.Random, keys: Sequence[bytes], number: int) -> Iterable[bytes]:
    return keys[number % 3 : number % 3 + 1]


def keys_in_turn(_: random.Random, keys: Sequence[bytes], number: int) -> Iterable[bytes]:
    return islice([*keys, *keys], number * 150 % len(keys), number * 150 % len(keys) + 150)


def all_keys(_: random.Random, keys: Sequence[bytes], number: int) -> Iterable[bytes]:
    return keys


CHOICES = [random_keys, hot_keys, few_keys, keys_in_turn, all_keys]


@pytest.mark.long
@pytest.mark.parametrize("compact", [1, table_content.COMPACT_BYTES])
@pytest.mark.parametrize("choice", CHOICES, ids=lambda choice: choice.__name__)
@pytest.mark.parametrize("key_length", [0, 8])
def test_garbage_does_not_grow_however_long_a_table_is_overwritten(
    key_length: int, choice: Callable[..., Iterable[bytes]], compact: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the least steps of compaction too."""
    monkeypatch.setattr(table_content, "_INDEX_LEAST", 1000)
    check_garbage(Table(key_length, 512), choice, compact, flushes=40 if choice is all_keys else 300)


@pytest.mark.parametrize("choice", CHOICES, ids=lambda choice: choice.__name__)
def test_garbage_does_not_grow(choice: Callable[..., Iterable[bytes]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_content, "_INDEX_LEAST", 1000)
    """In the least steps, and with as many flushes as garbage needs to grow if nothing is done."""
    check_garbage(Table(0, 512), choice, 1, flushes={all_keys: 10, few_keys: 300}.get(choice, 40))


def check_garbage(table: Table, choice: Callable[..., Iterable[bytes]], compact: int, flushes: int) -> None:
    chance = random.Random(5)
    keys = [b"%08d" % number for number in range(1500)]
    table.flush({key: chance.randbytes(chance.randrange(60)) for key in keys})
    kept = []
    for number in range(flushes):
        values = {key: chance.randbytes(chance.randrange(60)) for key in choice(chance, keys, number)}
        table.flush(values, compact=compact)
        if number % 5 == 4:
            kept.append(sizes(table))
    assert max(entries for entries, _ in kept) < 150
    assert max(index for _, index in kept) < 500
    assert dict(sorted(table.model.items())) == {entry.key: entry for entry in sorted(table.content.scan())}


def test_a_table_that_was_emptied_gives_up_all() -> None:
    table = Table()
    keys = [b"%d" % number for number in range(500)]
    table.flush(dict.fromkeys(keys, b"v"))
    for first in range(0, 500, 50):
        table.flush(dict.fromkeys(keys[first : first + 50]), compact=500)
    table.flush({}, compact=table_content.COMPACT_BYTES)
    assert (table.layout.root, table.layout.entries) == (None, 0)
    assert table.layout.index_length - table.layout.index_start == 12
    assert table.layout.written <= MIN_WRITTEN
    table.flush({b"1": b"w"})
    assert list(table.content.scan()) == table.expected()


def test_nothing_is_given_up_while_enough_is_live_or_little_is_written() -> None:
    table = Table()
    for _ in range(MIN_WRITTEN):
        table.flush({b"k": b"v"})
    assert (table.layout.start, table.layout.written) == (0, MIN_WRITTEN)
    table.flush({b"k": b"v"})
    assert (table.layout.start, table.layout.written) == (19 * MIN_WRITTEN, 1)
    table = Table()
    table.flush({b"%03d" % number: b"v" for number in range(300)})
    table.flush({b"%03d" % number: b"w" for number in range(100)})
    assert table.layout.start == 0
    table.flush({b"100": b"w"}, compact=0)
    assert table.layout.start == 0
    table.flush({}, compact=1)
    assert (table.layout.start, table.layout.written) == (21, 400)


def test_a_removal_at_the_head_is_dropped_and_a_live_entry_keeps_its_version() -> None:
    table = Table()
    table.flush({b"live": b"v", **{b"%d" % number: b"v" for number in range(100)}})
    table.flush({b"%d" % number: None for number in range(100)}, compact=0)
    flush = table.flush({})
    assert flush.entries == encode(TableEntry(b"live", b"v", 0))
    assert [entry for _, entry in table.content.changes(table.layout.start)][-1] == TableEntry(b"live", b"v", 0)
    table.flush({})
    assert (table.layout.entries, table.content.get([b"live"])) == (1, {b"live": TableEntry(b"live", b"v", 0)})
    assert table.layout.written <= MIN_WRITTEN


def test_changes_outside_the_segment_are_refused() -> None:
    table = Table()
    for _ in range(100):
        table.flush({b"k": b"v"})
    start = table.layout.start
    assert start > 0
    with pytest.raises(ValueError, match=rf"the table: position {start - 19} is not between {start} and"):
        table.content.changes(start - 19)
    assert list(table.content.changes(table.layout.length)) == []
    with pytest.raises(ValueError, match="is not between"):
        table.content.changes(table.layout.length + 1)


def test_changes_come_over_many_windows() -> None:
    table = Table(max_page=8192)
    values = [bytes([number % 251]) * (number * 37 % 3000) for number in range(1000)]
    values[500] = b"l" * 600_000
    table.flush({b"%d" % number: value for number, value in enumerate(values)})
    found = list(table.content.changes(0))
    assert [entry.value for _, entry in found] == values
    middle = found[300][0]
    assert list(table.content.changes(middle)) == found[301:]


class Limit(NamedTuple):
    key: bytes
    value: bytes | None
    message: str


LIMITS = {
    "key": Limit(b"k" * (MAX_KEY + 1), b"", "a key of 8193 bytes: 8192 are possible"),
    "removed key": Limit(b"k" * (MAX_KEY + 1), None, "a key of 8193 bytes: 8192 are possible"),
    "value": Limit(b"k", b"v" * (MAX_VALUE + 1), "a value of 1040385 bytes: 1040384 are possible"),
}


@pytest.mark.parametrize("name", LIMITS)
def test_what_is_too_long_is_refused(name: str) -> None:
    key, value, message = LIMITS[name]
    with pytest.raises(ValueError, match=message):
        check_entry(key, value)
    with pytest.raises(ValueError, match=message):
        Table().content.flush([TableEntry(key, value, 0)])
    check_entry(key[:MAX_KEY], value and value[:MAX_VALUE])


@pytest.mark.parametrize(
    ("key_length", "dirty", "message"),
    [
        (3, [TableEntry(b"ab", b"", 0)], r"key b'ab' has 2 bytes; all keys of the table have 3"),
        (0, [TableEntry(b"ab", b"", -1)], "version -1, but versions begin at 0"),
        (0, [TableEntry(b"ab", b"", 1), TableEntry(b"ab", None, 2)], r"key b'ab' is to be flushed twice"),
    ],
    ids=["length", "version", "twice"],
)
def test_entries_that_are_not_possible_are_refused(key_length: int, dirty: list[TableEntry], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Table(key_length).content.flush(dirty)


@pytest.mark.parametrize("length", [-1, 513])
def test_a_fixed_length_that_is_not_possible_is_refused(length: int) -> None:
    with pytest.raises(ValueError, match=f"keys of {length} bytes: a fixed length is 1 to 512"):
        empty(length)


@pytest.fixture
def colliding(monkeypatch: pytest.MonkeyPatch) -> tuple[bytes, bytes]:
    """Two keys with one hash, where hashes have one byte."""
    monkeypatch.setattr(table_content, "_HASH", 1)
    seen: dict[bytes, bytes] = {}
    for number in range(257):
        key = b"%d" % number
        other = seen.setdefault(hashlib.sha256(key).digest()[:1], key)
        if other != key:
            return other, key
    raise AssertionError("257 keys have 257 different bytes")


def test_a_key_with_the_hash_of_another_is_not_found_and_not_written(colliding: tuple[bytes, bytes]) -> None:
    first, second = colliding
    table = Table()
    table.flush({first: b"v"})
    assert (table.content.get([second]), table.content.versions([second])) == ({}, {})
    assert table.content.get([second, first]) == table.model
    assert list(table.content.scan(after=second)) == []
    names = f"the table: keys {first!r} and {second!r} have the same hash"
    for value in (b"w", None):
        with pytest.raises(KeyCollision, match=names) as caught:
            table.content.flush([TableEntry(second, value, 9)])
        assert caught.value.keys == colliding
    with pytest.raises(KeyCollision):
        Table().content.flush([TableEntry(first, b"", 1), TableEntry(second, b"", 2)])


# Damage: ten entries of 17 + 2 + 10 bytes; the first is changed, and all that come to it must say so.
SIZE = 29


def set_bytes(place: int, data: bytes) -> Callable[[bytearray], None]:
    def change(entries: bytearray) -> None:
        entries[place : place + len(data)] = data

    return change


DAMAGED_ENTRY = {
    "format": (set_bytes(0, b"\x01"), "its format is 1"),
    "negative key length": (set_bytes(1, b"\xff\xff\xff\xff"), "a key of -1 bytes with a value of 10 is not possible"),
    "long key": (set_bytes(1, (MAX_KEY + 1).to_bytes(4, "big")), "a key of 8193 bytes"),
    "negative value length": (set_bytes(5, b"\xff\xff\xff\xfe"), "a value of -2 is not possible"),
    "long value": (set_bytes(5, (MAX_VALUE + 1).to_bytes(4, "big")), "a value of 1040385 is not possible"),
    "longer than the segment": (set_bytes(5, b"\x00\x00\x10\x00"), "it has 4115 bytes, but the segment ends at"),
    "zeros": (set_bytes(0, bytes(SIZE)), r"for another key than b''"),
    "key": (set_bytes(17, b"xx"), r"the index points to it for another key than b'xx'"),
    "shorter key": (set_bytes(4, b"\x01"), r"the index points to it for another key than b'k'"),
    "removal": (set_bytes(5, b"\xff\xff\xff\xff"), r"it removes b'k0', but the index points to it"),
}


@pytest.mark.parametrize("key_length", [0, 2])
@pytest.mark.parametrize("name", DAMAGED_ENTRY)
def test_a_damaged_entry_is_found(name: str, key_length: int) -> None:
    damage, message = DAMAGED_ENTRY[name]
    table = Table(key_length)
    table.flush({b"k%d" % number: b"0123456789" for number in range(10)})
    damage(table.entries.data)
    content = table.content
    for reading in (
        lambda: content.get([b"k5", b"k0"]),
        lambda: content.versions([b"k0"]),
        lambda: list(content.scan()),
    ):
        with pytest.raises(DataCorruption, match=f"^the table: entry at offset 0: .*{message}"):
            reading()
    assert content.get([b"k5"]) == {b"k5": table.model[b"k5"]}


@pytest.mark.parametrize("name", ["format", "long key", "long value", "longer than the segment"])
def test_a_damaged_entry_is_not_passed_over_by_compaction(name: str) -> None:
    damage, message = DAMAGED_ENTRY[name]
    table = wasteful()
    damage(table.entries.data)
    with pytest.raises(DataCorruption, match=f"^the table: entry at offset 0: .*{message}"):
        table.flush({b"new": b"v"})


def test_a_live_entry_that_became_a_removal_is_not_dropped() -> None:
    table = wasteful(b"")
    table.entries.data[5:9] = b"\xff\xff\xff\xff"
    with pytest.raises(DataCorruption, match=r"^the table: entry at offset 0: it removes b'k0', but the index points"):
        table.flush({b"new": b"v"})


def wasteful(value: bytes = b"0123456789") -> Table:
    """A table that will be compacted with the next flush. The entry at its head is live."""
    table = Table()
    table.flush({b"k%d" % number: value for number in range(10)})
    for _ in range(MIN_WRITTEN):
        table.flush({b"k9": b"w"}, compact=0)
    return table


@pytest.mark.parametrize("name", ["format", "long key", "long value", "longer than the segment"])
def test_a_damaged_entry_ends_the_changes(name: str) -> None:
    damage, message = DAMAGED_ENTRY[name]
    table = Table()
    table.flush({b"k%d" % number: b"0123456789" for number in range(10)})
    damage(table.entries.data)
    with pytest.raises(DataCorruption, match=f"^the table: entry at offset 0: .*{message}"):
        list(table.content.changes(0))
    with pytest.raises(DataCorruption, match=r"^the table: entry at offset 280: 10 bytes are there"):
        list(table.content.changes(280))


@pytest.mark.parametrize("offset", [-1, 274, 290, 1 << 40])
def test_an_index_that_leads_out_of_the_segment_is_found(offset: int) -> None:
    table = Table(max_page=8192)
    table.flush({b"k%d" % number: b"0123456789" for number in range(10)})
    table.index.data[26:34] = offset.to_bytes(8, "big", signed=True)
    for reading in (lambda: table.content.get(table.model), lambda: list(table.content.scan())):
        with pytest.raises(DataCorruption, match=rf"^the table: entry at offset {offset}: the index points there"):
            reading()


def test_a_damaged_page_is_named_with_the_table() -> None:
    table = Table(max_page=8192)
    table.flush({b"k%d" % number: b"0123456789" for number in range(10)})
    table.index.data[0] = 7
    for reading in (
        lambda: table.content.get([b"k1"]),
        lambda: table.content.versions([b"k1"]),
        lambda: list(table.content.scan()),
        lambda: table.content.flush([TableEntry(b"k1", b"", 1)]),
    ):
        with pytest.raises(DataCorruption, match=r"^the table: index page at offset 0: its version is 7"):
            reading()


@pytest.mark.parametrize("size", [10, 5000])
def test_fewer_bytes_than_were_asked_for_are_found(size: int) -> None:
    table = Table()
    table.flush({b"k": b"v" * size})
    content = TableContent(
        table.layout, lambda ranges: [data[:-1] for data in table.entries.read(ranges)], table.index.read
    )
    for reading in (lambda: content.get([b"k"]), lambda: list(content.scan()), lambda: list(content.changes(0))):
        with pytest.raises(DataCorruption, match=r"^table: entry at offset 0: "):
            reading()
