"""The B+tree in an append-only segment: against a dict, its bytes, its shape, and damage of every kind."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import pytest
from hypothesis import given, settings, strategies as st

from engine.errors import DataCorruption
from engine.tables import btree
from engine.tables.btree import MAX_PAGE, TreeRoot

KEY = 16
SMALL = 128
"""Pages of 4 entries, and index pages of 3."""


class Tree:
    """A tree and its segment. What is below `start` is overwritten, and must not be read."""

    def __init__(self, max_page: int = MAX_PAGE, key_length: int = KEY) -> None:
        self.data = bytearray()
        self.start = 0
        self.root: TreeRoot | None = None
        self.reads: list[int] = []
        self._sizes = {"max_page": max_page, "key_length": key_length}

    def read(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        self.reads.append(len(ranges))
        assert all(self.start <= offset and offset + length <= len(self.data) for offset, length in ranges)
        return [bytes(self.data[offset : offset + length]) for offset, length in ranges]

    def update(self, changes: Mapping[bytes, int | None], compact: int = 0) -> int:
        """How many bytes were appended."""
        pages, root, start = btree.update(self.read, self.root, len(self.data), changes, compact=compact, **self._sizes)
        assert self.start <= start <= len(self.data) + len(pages)
        self.data += pages
        self.data[self.start : start] = b"\xee" * (start - self.start)
        self.root, self.start = root, start
        end = struct.unpack(">qi", self.data[-12:]) if self.data else (-1, 0)
        assert end == (root or (-1, 0))
        return len(pages)

    def find(self, *keys: bytes) -> dict[bytes, int]:
        return btree.find(self.read, self.root, keys)

    def scan(self, after: bytes | None = None, upto: bytes | None = None) -> list[tuple[bytes, int]]:
        return list(btree.scan(self.read, self.root, after, upto))

    def pages(self) -> Iterator[tuple[int, int, int, list[tuple[bytes, bytes]]]]:
        """Depth, offset, length and entries of all pages; read without the module's help."""
        below = [(0, *self.root)] if self.root else []
        while below:
            depth, offset, length = below.pop()
            flags, count = self.data[offset + 1], int.from_bytes(self.data[offset + 6 : offset + 10], "big")
            width = (length - 14) // count
            key = width - (18 if flags else 8)
            body = bytes(self.data[offset + 10 : offset + length - 4])
            entries = [(body[at : at + key], body[at + key : at + width]) for at in range(0, len(body), width)]
            yield depth, offset, length, entries
            if flags:
                below += [(depth + 1, *struct.unpack(">qh", pointer[:10])) for _, pointer in entries]

    @property
    def size(self) -> int:
        """Bytes of the pages in use."""
        return sum(length for _, _, length, _ in self.pages())

    @property
    def height(self) -> int:
        return max((depth + 1 for depth, *_ in self.pages()), default=0)


def key_of(number: int) -> bytes:
    return number.to_bytes(KEY, "big")


def keys_of(count: int, seed: int = 1) -> list[bytes]:
    chance = random.Random(seed)
    return [chance.randbytes(KEY) for _ in range(count)]


def test_the_format_of_a_leaf_is_fixed() -> None:
    tree = Tree(key_length=2)
    tree.update({b"bb": -1, b"aa": 258})
    assert (
        tree.data.hex()
        == (
            "00" + "00" + "00000000" + "00000002"  # version, leaf, id, count
            "6161" + "0000000000000102" + "6262" + "ffffffffffffffff"
            "00000000"  # id
            "0000000000000000" + "00000022"  # the root's offset and length
        )
    )


def test_the_format_of_an_index_page_is_fixed() -> None:
    tree = Tree(max_page=74, key_length=2)  # pages of 6 entries
    tree.update({bytes([97, 97 + n]): n for n in range(7)})
    assert (
        tree.data[44 + 54 :].hex()
        == (
            "00" + "01" + "00000062" + "00000002"  # version, index page, id, count
            "6161" + "0000000000000000" + "002c" + "0000000000000000"  # first key, offset, length, lowest offset
            "6164" + "000000000000002c" + "0036" + "000000000000002c"
            "00000062"  # id
            "0000000000000062" + "00000036"
        )
    )
    before = len(tree.data)
    tree.update({b"ad": 99})
    assert tree.data[before + 54 + 10 : -16].hex() == (
        "6161" + "0000000000000000" + "002c" + "0000000000000000"
        "6164" + before.to_bytes(8, "big").hex() + "0036" + before.to_bytes(8, "big").hex()
    )


def test_an_emptied_tree_is_a_pointer_to_nothing() -> None:
    tree = Tree()
    tree.update({key_of(1): 1})
    assert tree.update({key_of(1): None}) == 12
    assert tree.data[-12:].hex() == "ffffffffffffffff" + "00000000"
    assert (tree.root, tree.start, tree.scan(), tree.find(key_of(1))) == (None, len(tree.data) - 12, [], {})
    assert tree.update({key_of(1): None}, compact=1000) == 0
    assert (tree.root, tree.start) == (None, len(tree.data) - 12)
    tree.update({key_of(2): 2})
    assert tree.scan() == [(key_of(2), 2)]


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 40, 200])
def test_an_update_that_changes_nothing_writes_nothing(count: int) -> None:
    tree = Tree(SMALL)
    tree.update({key_of(2 * n): n for n in range(count)})
    state = tree.root, tree.start, len(tree.data)
    for changes in ({}, {key_of(2 * n + 1): None for n in range(count)}, {key_of(2 * n): n for n in range(count)}):
        assert tree.update(changes) == 0
        assert (tree.root, tree.start, len(tree.data)) == state


Changes: TypeAlias = dict[bytes, int | None]

BATCH = st.dictionaries(
    st.one_of(st.integers(0, 60), st.integers(0, 2000)).map(key_of),
    st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
    max_size=30,
)


class Many(NamedTuple):
    """A batch of `number` random keys, of which a share is removed."""

    seed: int
    number: int
    removed: float

    def changes(self) -> Changes:
        chance = random.Random(self.seed)
        keys = (key_of(chance.randrange(2001)) for _ in range(self.number))
        return {key: None if chance.random() < self.removed else chance.randrange(1000) for key in keys}


class Removal(NamedTuple):
    """All keys from one number to another are removed."""

    first: int
    last: int


STEP = st.one_of(
    BATCH,
    st.builds(Many, st.integers(0, 99), st.integers(0, 600), st.sampled_from([0.0, 0.3, 0.9])),
    st.builds(Removal, st.integers(0, 2000), st.integers(0, 2000)),
)


@given(st.lists(st.tuples(STEP, st.integers(0, 2000)), max_size=10), st.randoms())
@settings(max_examples=80, deadline=None)
def test_it_is_a_sorted_dict(steps: list[tuple[Changes | Many | Removal, int]], chance: random.Random) -> None:
    """Small pages: many levels, splits and joins."""
    tree, model = Tree(SMALL), dict[bytes, int]()
    for step, compact in steps:
        changes = changes_of(step, model)
        lowest, length = tree.start, len(tree.data)
        tree.update(changes, compact)
        model |= {key: value for key, value in changes.items() if value is not None}
        for key in [key for key, value in changes.items() if value is None]:
            model.pop(key, None)
        assert tree.scan() == sorted(model.items())
        assert tree.root is None or tree.start >= min(lowest + compact, length)
        check_shape(tree)
    known = [key_of(number) for number in range(2001)]
    sample = chance.sample(known, 30)
    assert tree.find(*sample) == {key: model[key] for key in sample if key in model}
    low, high = chance.choice(known), chance.choice([*known, b"", b"\x00", b"\xff", key_of(7)[:-1]])
    for after, upto in ((low, high), (high, low), (None, high), (low, None)):
        inside = [key for key in sorted(model) if (after is None or key > after) and (upto is None or key < upto)]
        assert tree.scan(after, upto) == [(key, model[key]) for key in inside]


def changes_of(step: Changes | Many | Removal, model: Mapping[bytes, int]) -> Changes:
    if isinstance(step, Many):
        return step.changes()
    if isinstance(step, Removal):
        return {key: None for key in model if key_of(step.first) <= key < key_of(step.last)}
    return step


def check_shape(tree: Tree) -> None:
    """All leaves are equally deep, no page is too long, the root has two children, and lowest offsets are right."""
    pages = list(tree.pages())
    if not pages:
        return
    leaves = {depth for depth, offset, _, _ in pages if not tree.data[offset + 1]}
    assert len(leaves) == 1
    assert all(length <= SMALL for _, _, length, _ in pages)
    assert len(pages) == 1 or len(pages[0][3]) > 1
    assert tree.start == min(offset for _, offset, _, _ in pages)


@given(st.lists(BATCH, min_size=1, max_size=5))
@settings(max_examples=20, deadline=None)
def test_the_same_changes_give_the_same_bytes(batches: list[Changes]) -> None:
    one, other = Tree(SMALL), Tree(SMALL)
    for batch in batches:
        one.update(batch, compact=100)
        other.update(dict(sorted(batch.items(), reverse=True)), compact=100)
    assert one.data == other.data


def test_a_bulk_load_fills_pages_and_each_level_is_read_at_once() -> None:
    tree, keys = Tree(), keys_of(100_000)
    size = tree.update({key: number for number, key in enumerate(keys)})
    assert tree.height == 3
    assert size < 1.03 * 24 * len(keys)
    assert not tree.reads
    tree.reads.clear()
    assert tree.find(*keys[:1000]) == {key: number for number, key in enumerate(keys[:1000])}
    assert [tree.reads[0], len(tree.reads)] == [1, 3]
    tree.reads.clear()
    assert tree.find(key_of(0)) == {}
    assert tree.reads == [1, 1, 1]
    tree.reads.clear()
    changed = tree.update({keys[0]: 1})
    assert tree.reads == [1, 1, 1]
    assert changed < 3 * MAX_PAGE + 12
    tree.reads.clear()
    assert len(tree.scan()) == 100_000
    assert max(tree.reads) <= 32


def test_a_scan_that_is_given_up_has_read_little() -> None:
    tree = Tree()
    tree.update(dict.fromkeys(keys_of(50000), 0))
    tree.reads.clear()
    assert next(btree.scan(tree.read, tree.root, after=key_of(1 << 127)))[0] > key_of(1 << 127)
    assert sum(tree.reads) <= 5


@pytest.mark.parametrize("steps", [1, 7, 100])
@pytest.mark.parametrize("order", ["ascending", "random"])
def test_a_tree_shrinks_when_most_is_removed(steps: int, order: str) -> None:
    tree, keys = Tree(1024), sorted(keys_of(20_000))
    tree.update(dict.fromkeys(keys, 1))
    kept, gone = keys[::100], [key for number, key in enumerate(keys) if number % 100]
    if order == "random":
        random.Random(3).shuffle(gone)
    for step in range(steps):
        tree.update(dict.fromkeys(gone[step::steps] if order == "random" else part(gone, step, steps)))
    assert [key for key, _ in tree.scan()] == kept
    assert tree.height == 2
    assert tree.size < 3 * 24 * len(kept)


def part(keys: list[bytes], number: int, parts: int) -> list[bytes]:
    return keys[len(keys) * number // parts : len(keys) * (number + 1) // parts]


def leaves(tree: Tree) -> list[int]:
    """How many keys the leaves have, in order."""
    found = {entries[0][0]: len(entries) for _, offset, _, entries in tree.pages() if not tree.data[offset + 1]}
    return [found[first] for first in sorted(found)]


@pytest.mark.parametrize(
    ("filled", "kept", "after"),
    [
        ([30, 30], [1, 30], [31]),
        ([30, 30], [30, 1], [31]),
        ([30, 30], [15, 15], [15, 15]),
        ([40, 40], [1, 40], [1, 40]),
        ([42, 42, 42], [14, 14, 14], [28, 14]),
        ([42, 42, 42], [42, 5, 6], [42, 11]),
        ([42, 42, 42], [0, 5, 42], [5, 42]),
        ([42, 42, 42], [10, 0, 10], [20]),
    ],
)
def test_a_small_leaf_is_joined_with_a_neighbour_where_that_leaves_room(
    filled: list[int], kept: list[int], after: list[int]
) -> None:
    """42 keys are a full leaf, of which a third is small and three quarters leave room."""
    tree = Tree(14 + 42 * 24)
    tree.update({key_of(n): n for n in range(sum(filled))})
    assert leaves(tree) == filled
    starts = [sum(filled[:number]) for number in range(len(filled))]
    parts = zip(starts, filled, kept, strict=True)
    tree.update({key_of(start + n): None for start, full, left in parts for n in range(left, full)})
    assert leaves(tree) == after


@pytest.mark.parametrize("step", [1, 4, 9])
@pytest.mark.parametrize("order", ["ascending", "descending", "inwards"])
def test_the_root_sinks_when_it_has_one_child(order: str, step: int) -> None:
    tree, keys = Tree(SMALL), [key_of(n) for n in range(200)]
    tree.update(dict.fromkeys(keys, 1))
    while keys:
        gone = {"ascending": keys[:step], "descending": keys[-step:], "inwards": keys[:step] + keys[-step:]}[order]
        tree.update(dict.fromkeys(gone))
        keys = [key for key in keys if key not in gone]
        check_shape(tree)
        assert [key for key, _ in tree.scan()] == keys


@pytest.mark.parametrize("kept", [0, 1, 57, 198, 199])
def test_the_root_sinks_to_the_only_leaf(kept: int) -> None:
    tree = Tree(SMALL)
    tree.update({key_of(n): n for n in range(200)})
    tree.update({key_of(n): None for n in range(200) if n != kept})
    assert (tree.height, tree.scan()) == (1, [(key_of(kept), kept)])
    check_shape(tree)


@pytest.mark.parametrize("order", [1, -1], ids=["ascending", "descending"])
def test_one_key_after_the_other_leaves_pages_half_full(order: int) -> None:
    tree, keys = Tree(1024), sorted(keys_of(3000))[::order]
    for first in range(0, len(keys), 3):
        tree.update(dict.fromkeys(keys[first : first + 3], 1))
    assert tree.size < 2.4 * 24 * len(keys)
    for first in range(0, len(keys), 3):
        tree.update(dict.fromkeys(keys[first : first + 3]))
    assert tree.root is None


def test_the_head_is_given_up_in_steps() -> None:
    tree = Tree(1024)
    content = {key: number for number, key in enumerate(keys_of(5000))}
    tree.update(content)
    before, steps = len(tree.data), 0
    while tree.start < before:
        lowest = tree.start
        assert tree.update({}, compact=8 << 10) < (8 << 10) * 2.5
        assert tree.start >= min(lowest + (8 << 10), before)
        steps += 1
    assert steps > 10
    assert dict(tree.scan()) == content


@pytest.mark.parametrize("length", [1, 2, 255, 256])
def test_keys_of_other_lengths(length: int) -> None:
    chance = random.Random(length)
    tree, content = Tree(key_length=length), {chance.randbytes(length): number for number in range(300)}
    tree.update(content)
    assert tree.scan() == sorted(content.items())
    assert tree.find(*content) == content


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"key_length": 0}, "keys of 0 bytes: 1 to 512"),
        ({"key_length": 513}, "keys of 513 bytes: 1 to 512"),
        ({"max_page": 115}, "pages of 115 bytes: with such keys 116 to 32767"),
        ({"max_page": 32768}, "pages of 32768 bytes: with such keys 116 to 32767"),
        ({"key_length": 15}, "has 16 bytes, where all keys have 15"),
    ],
    ids=["no key", "long key", "small page", "large page", "other key"],
)
def test_impossible_sizes_are_refused(sizes: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Tree(**sizes).update({key_of(1): 1})


def test_keys_of_different_lengths_are_not_looked_for() -> None:
    tree = Tree()
    tree.update({key_of(1): 1})
    with pytest.raises(ValueError, match="key 006162 has 3 bytes, where all keys have 16"):
        tree.find(key_of(1), b"\x00ab")


Damage = Callable[[bytearray], None]


def set_byte(place: int, value: int) -> Damage:
    def change(page: bytearray) -> None:
        page[place] = value

    return change


def swap_keys(page: bytearray) -> None:
    page[34:50], page[58:74] = page[58:74], page[34:50]


def repeat_key(page: bytearray) -> None:
    page[58:74] = page[34:50]


def halve_count(page: bytearray) -> None:
    page[6:10] = (int.from_bytes(page[6:10], "big") // 2).to_bytes(4, "big")


def shift_key(page: bytearray) -> None:
    page[10 + KEY - 1] ^= 1


def both_ids(page: bytearray) -> None:
    page[2:6] = page[-4:] = b"abcd"


LEAF = {
    "version": (set_byte(0, 1), "its version is 1"),
    "flags": (set_byte(1, 2), "its flags are 2"),
    "kind": (set_byte(1, 1), "do not fit its 110 bytes"),
    "id": (set_byte(2, 9), "its id is"),
    "footer": (set_byte(-1, 9), "its id is"),
    "both ids": (both_ids, "its id is"),
    "count": (set_byte(9, 3), "3 entries do not fit"),
    "no entries": (set_byte(9, 0), "0 entries do not fit"),
    "negative count": (set_byte(6, 255), "entries do not fit"),
    "count that does not divide": (set_byte(9, 5), "5 entries do not fit"),
    "half the entries": (halve_count, "2 entries do not fit"),
    "order": (swap_keys, "its keys do not ascend"),
    "repeated": (repeat_key, "its keys do not ascend"),
    "first key": (shift_key, "its first key is"),
}


@pytest.mark.parametrize("name", LEAF)
def test_a_damaged_leaf_is_found(name: str) -> None:
    """By each way of reading; and nothing is written."""
    damage, reason = LEAF[name]
    tree = Tree(SMALL)
    tree.update({key_of(10 * n): n for n in range(8)})
    page = tree.data[110:220]  # the second leaf, of keys 40 to 70
    damage(page)
    tree.data[110:220] = page
    for read in readings(tree, key_of(50)):
        with pytest.raises(DataCorruption, match=f"^index page at offset 110: .*{reason}"):
            read()
    assert tree.find(key_of(10)) == {key_of(10): 1}


@pytest.mark.parametrize("count", [5, 7, 96])
def test_a_count_that_does_not_fit_is_found_without_the_length_of_keys(count: int) -> None:
    tree = Tree(SMALL)
    tree.update({key_of(10 * n): n for n in range(4)})
    tree.data[9] = count
    with pytest.raises(DataCorruption, match=f"{count} entries do not fit its 110 bytes"):
        tree.scan()


def readings(tree: Tree, key: bytes) -> list[Callable[[], object]]:
    return [
        lambda: tree.find(key),
        lambda: list(btree.scan(tree.read, tree.root, key_length=KEY)),
        lambda: tree.update({key: 3}),
    ]


def set_pointer(offset: int, length: int, low: int) -> Damage:
    def change(page: bytearray) -> None:
        page[10 + KEY : 10 + KEY + 18] = struct.pack(">qhq", offset, length, low)

    return change


INDEX = {
    "below the segment": set_pointer(-1, 110, -1),
    "to itself": set_pointer(220, 82, 0),
    "beyond": set_pointer(10**12, 110, 0),
    "into itself": set_pointer(111, 110, 0),
    "lowest offset above": set_pointer(0, 110, 1),
    "lowest offset negative": set_pointer(0, 110, -1),
    "another leaf": set_pointer(110, 110, 0),
    "not a page": set_pointer(1, 110, 0),
    "too short": set_pointer(0, 109, 0),
    "much too short": set_pointer(0, 3, 0),
    "negative length": set_pointer(0, -5, 0),
}


@pytest.mark.parametrize("name", INDEX)
def test_a_pointer_that_does_not_fit_is_found(name: str) -> None:
    tree = Tree(SMALL)
    tree.update({key_of(10 * n): n for n in range(8)})
    page = tree.data[220:-12]
    INDEX[name](page)
    tree.data[220:-12] = page

    def read(ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return [bytes(tree.data[max(offset, 0) :][: max(length, 0)]) for offset, length in ranges]

    for reading in (
        lambda: btree.find(read, tree.root, [key_of(10)]),
        lambda: list(btree.scan(read, tree.root)),
        lambda: btree.update(read, tree.root, len(tree.data), {key_of(10): 5}, key_length=KEY, max_page=SMALL),
    ):
        with pytest.raises(DataCorruption, match=r"^index page at offset"):
            reading()


@pytest.mark.parametrize("height", [2, 3])
def test_a_lowest_offset_that_is_not_that_of_the_pages_is_found(height: int) -> None:
    """Truncation relies on it. The last pointer of the root gets that of the first."""
    tree = Tree(SMALL)
    tree.update({key_of(10 * n): n for n in range(4**height // 2)})
    assert tree.height == height
    tree.data[-24:-16] = bytes(8)
    with pytest.raises(DataCorruption, match=r"the lowest offset below it is \d+, where 0 is expected"):
        tree.update({key_of(1000): 5})


def test_a_leaf_beside_an_index_page_is_found() -> None:
    """A whole leaf where an index page is expected, with the right first key: only its kind is wrong."""
    tree = Tree(SMALL)
    tree.update({key_of(n): n for n in range(40)})
    [upper] = [entries for depth, _, _, entries in tree.pages() if depth == 0]
    place = bytes(tree.data).index(b"".join(upper[0])) + KEY
    tree.data[place : place + 18] = struct.pack(">qhq", 0, 110, 0)
    for reading in (
        lambda: tree.find(key_of(0), key_of(39)),
        lambda: tree.scan(),
        lambda: tree.update({key_of(0): 5, key_of(39): 5}),
    ):
        with pytest.raises(DataCorruption, match="it is an index page beside a leaf, or a leaf beside an index page"):
            reading()


def test_fewer_bytes_than_a_page_has_are_found() -> None:
    tree = Tree()
    tree.update({key_of(n): n for n in range(8)})
    with pytest.raises(DataCorruption, match="index page at offset 0: 205 bytes were read of a page of 206"):
        btree.find(lambda ranges: [data[:-1] for data in tree.read(ranges)], tree.root, [key_of(3)])


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_damage_never_gives_a_key_that_was_not_there_or_ends_in_another_error(data: st.DataObject) -> None:
    """One changed byte anywhere: an error, or an answer that differs by what that byte is, a key or a value."""
    tree, content = Tree(SMALL), {key_of(10 * n): n for n in range(40)}
    tree.update(content)
    check_damaged(tree, content, data.draw(st.integers(0, len(tree.data) - 13)), data.draw(st.integers(1, 255)))


def test_a_damaged_root_gives_no_key_that_was_not_there() -> None:
    """Nothing is beside it that it could be compared with, but the length of its keys is known."""
    content = {key_of(10 * n): n for n in range(40)}
    tree = Tree(SMALL)
    tree.update(content)
    assert tree.root is not None
    for place in range(tree.root.offset, tree.root.offset + tree.root.length):
        for bit in range(8):
            check_damaged(tree, content, place, 1 << bit)


def check_damaged(tree: Tree, content: dict[bytes, int], place: int, change: int) -> None:
    tree.data[place] ^= change
    try:
        found = list(btree.scan(tree.read, tree.root, key_length=KEY))
    except DataCorruption:
        return
    finally:
        tree.data[place] ^= change
    assert len(set(found) ^ set(content.items())) <= 2
