"""A B+tree of fixed-length keys and 64-bit values in an append-only segment (Pravega: BTreeIndex).

A page is immutable. An update appends the pages that it changes, from the leaves to the root, and then the location of
the root (Pravega finds the tree by it; here the container's state has it too). Each pointer to a page has the lowest
offset in the subtree. So the segment can be truncated below the lowest page in use, and the lowest pages can be found
and rewritten at the end (`compact`).

This module does no I/O; the caller passes a function that reads. Each page is checked: that its pointer points to it,
and that its keys ascend. All numbers are big-endian.

    page    u8 version, u8 flags (1: index page), i32 id, i32 count, entries, i32 id
    entry   leaf: key, i64 value.  Index page: first key of the page below, i64 offset, i16 length, i64 lowest offset
    end     i64 offset and i32 length of the root; -1 and 0 where the tree is empty
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, pairwise
from operator import lt
from typing import NamedTuple, TypeAlias

from engine.errors import DataCorruption

MAX_PAGE = 8192
"""The default limit of a page, bytes."""

MAX_KEY = 512
"""The longest key, bytes: the 256 of Pravega (AttributeId.MAX_LENGTH) in hexadecimal digits."""

_PAGE_LIMIT = (1 << 15) - 1  # a page's length is an i16
_LEAST_FAN_OUT = 3
_HEADER = struct.Struct(">BBii")
_FOOTER = struct.Struct(">i")
_POINTER = struct.Struct(">qhq")
_ROOT = struct.Struct(">qi")
_FRAME = _HEADER.size + _FOOTER.size
_VALUE = 8
_IDS = (1 << 31) - 1  # a page's id is its offset, as far as it fits
_SCAN_TOGETHER = 32  # pages that a scan reads at once, after a cautious beginning

Read: TypeAlias = Callable[[Sequence[tuple[int, int]]], Sequence[bytes]]
"""Reads many ranges, each an offset and a length. Raises if one cannot be read."""

Entry: TypeAlias = tuple[bytes, bytes]


class TreeRoot(NamedTuple):
    """The location of the root page in the segment, bytes."""

    offset: int
    length: int


class Update(NamedTuple):
    """The result of an update. pages: the bytes to append, empty if nothing changes. root: None if the tree is empty.
    start: the lowest offset in use; the segment may be truncated there."""

    pages: bytes
    root: TreeRoot | None
    start: int


class _Child(NamedTuple):
    """A pointer to a page. key: the first one of the page; empty for the root, whose pointer has none. low: the lowest
    offset of the subtree."""

    key: bytes
    offset: int
    length: int
    low: int

    def entry(self) -> Entry:
        return self.key, _POINTER.pack(self.offset, self.length, self.low)


class _Page(NamedTuple):
    """A page that was read and checked. at: the pointer to it."""

    at: _Child
    inner: bool
    keys: tuple[bytes, ...]
    values: tuple[bytes, ...]

    def child(self, place: int) -> _Child:
        """The pointer at `place` of an index page. It must point to a lower offset than this page."""
        child = _Child(self.keys[place], *_POINTER.unpack(self.values[place]))
        if not 0 <= child.low <= child.offset <= self.at.offset - child.length:
            raise _damaged(self.at, f"its entry {place} points to offset {child.offset}, length {child.length}")
        return child

    def children(self) -> list[_Child]:
        """All pointers of an index page."""
        return [self.child(place) for place in range(len(self.keys))]

    def entries(self) -> list[Entry]:
        return list(zip(self.keys, self.values, strict=True))


class _Visit(NamedTuple):
    """A page that an update reads, with its part `[first, last)` of the changed keys.

    children: all pointers of an index page. below: the index of a child's visit in the next level, by the child's
    place.
    """

    page: _Page
    first: int
    last: int
    children: list[_Child]
    below: dict[int, int]


_Slot: TypeAlias = "_Child | list[Entry]"  # a page that stays as it is, or the content of one that is to be written


def find(read: Read, root: TreeRoot | None, keys: Collection[bytes]) -> dict[bytes, int]:
    """The values of those of `keys` that are in the tree. One call of `read` for each level.

    Raises ValueError if the keys differ in length, DataCorruption if a page is damaged.
    """
    found: dict[bytes, int] = {}
    if root is None or not keys:
        return found
    wanted = sorted(set(keys))
    length = len(wanted[0])
    _check_keys(wanted, length)
    level = [(_top(root), 0, len(wanted))]
    while level:
        below: list[tuple[_Child, int, int]] = []
        for page, (_, first, last) in zip(_load(read, [at for at, _, _ in level], length), level, strict=True):
            if page.inner:
                below += [(page.child(at), *part) for at, part in _routes(page.keys, wanted, first, last)]
                continue
            for key in wanted[first:last]:
                place = bisect_left(page.keys, key)
                if place < len(page.keys) and page.keys[place] == key:
                    found[key] = _number(page.values[place])
        level = below
    return found


def scan(
    read: Read,
    root: TreeRoot | None,
    after: bytes | None = None,
    upto: bytes | None = None,
    *,
    key_length: int | None = None,
) -> Iterator[tuple[bytes, int]]:
    """Keys above `after` and below `upto`, and their values, in the order of the keys. The bounds may have any length.

    Pages of one level are read in groups. key_length: checked, if given. Raises DataCorruption.
    """
    if root is not None:
        yield from _scan(read, [_top(root)], after, upto, key_length)


def update(
    read: Read,
    root: TreeRoot | None,
    end: int,
    changes: Mapping[bytes, int | None],
    *,
    key_length: int,
    max_page: int = MAX_PAGE,
    compact: int = 0,
) -> Update:
    """Set keys to values, or remove those whose value is None, in the tree whose segment ends at `end`.

    compact: the pages in so many bytes above the lowest one in use are rewritten, so that the segment can be truncated
    there. Raises ValueError for keys of another length, or a page size that is too small for them; DataCorruption.
    """
    _check_sizes(key_length, max_page)
    _check_keys(changes, key_length)
    keys = sorted(changes)
    output = _Output(read, end, key_length, max_page)
    if root is None:
        added = ((key, changes[key]) for key in keys)
        return output.finish([(key, _bytes(value)) for key, value in added if value is not None], None, inner=False)
    levels, bound = _visits(read, root, keys, key_length, compact)
    slots: list[_Slot] = []
    above_leaves = True
    for level in reversed(levels):
        if not level[0].page.inner:
            slots = [_leaf_slot(visit, keys, changes, bound) for visit in level]
            continue
        lists = output.settle([_slots(visit, slots) for visit in level], not above_leaves)
        slots = [_inner_slot(visit, children) for visit, children in zip(level, lists, strict=True)]
        above_leaves = False
    return output.finish(slots[0], root, levels[0][0].page.inner)


class _Output:
    """The pages that an update writes. Small pages are merged with neighbours, and large ones are split."""

    def __init__(self, read: Read, end: int, key_length: int, max_page: int) -> None:
        self._read = read
        self._end = end
        self._at = end
        self._key_length = key_length
        self._room = max_page - _FRAME
        self._pages: list[bytes] = []

    def settle(self, groups: Sequence[Sequence[_Slot]], inner: bool) -> list[list[_Child]]:
        """Write the changed pages in each group of neighbours. Returns the pointers to all pages of each group.

        Small pages are merged with neighbours, which are read for all groups at once.
        """
        runs = [list(self._runs(slots, inner)) for slots in groups]
        joined = [slot for run in chain.from_iterable(runs) if len(run) > 1 for slot in run if isinstance(slot, _Child)]
        loaded = {page.at: page.entries() for page in _load(self._read, joined, self._key_length)} if joined else {}
        return [list(chain.from_iterable(self._settled(run, loaded, inner) for run in group)) for group in runs]

    def _settled(self, run: list[_Slot], loaded: Mapping[_Child, list[Entry]], inner: bool) -> list[_Child]:
        if len(run) == 1 and isinstance(run[0], _Child):
            return [run[0]]
        parts = (loaded[slot] if isinstance(slot, _Child) else slot for slot in run)
        return self._write(list(chain.from_iterable(parts)), inner)

    def finish(self, top: _Slot, root: TreeRoot | None, inner: bool) -> Update:
        """Write index pages up to a single root, and the location of the root. root: the previous one."""
        while isinstance(top, list) and len(top) > (1 if inner else 0):
            children = self._write(top, inner)
            top = children[0] if len(children) == 1 else [child.entry() for child in children]
            inner = True
        pages = b"".join(self._pages)
        if isinstance(top, list):
            if not top:
                return self._without_root(root)
            top = self._below_single_children(_Child(top[0][0], *_POINTER.unpack(top[0][1])), pages)
        found = TreeRoot(top.offset, top.length)
        return Update(pages if found == root else pages + _ROOT.pack(*found), found, top.low)

    def _without_root(self, root: TreeRoot | None) -> Update:
        """The update that leaves the tree empty, without pages."""
        if root is None:
            return Update(b"", None, max(self._end - _ROOT.size, 0))
        return Update(_ROOT.pack(-1, 0), None, self._end)

    def _below_single_children(self, child: _Child, pages: bytes) -> _Child:
        """The first page, from `child` downwards, that is a leaf or has several children."""
        while True:
            if child.offset >= self._end:
                page = _decode(pages[child.offset - self._end :][: child.length], child, self._key_length)
            else:
                [page] = _load(self._read, [child], self._key_length)
            if not page.inner or len(page.keys) > 1:
                return child
            child = page.child(0)

    def _runs(self, slots: Sequence[_Slot], inner: bool) -> Iterator[list[_Slot]]:
        """Lists of neighbours that become one page. Two are merged if one is small and the result is not too full."""
        size = self._entry_size(inner)
        capacity = self._room // size
        run: list[_Slot] = []
        held, loose = 0, False
        for slot in slots:
            if not slot:
                continue
            new = isinstance(slot, list)
            count = len(slot) if isinstance(slot, list) else (slot.length - _FRAME) // size
            if run and (loose or new) and 3 * min(held, count) <= capacity and 4 * (held + count) <= 3 * capacity:
                run.append(slot)
                held, loose = held + count, True
                continue
            if run:
                yield run
            run, held, loose = [slot], count, new
        if run:
            yield run

    def _entry_size(self, inner: bool) -> int:
        return self._key_length + (_POINTER.size if inner else _VALUE)

    def _write(self, entries: Sequence[Entry], inner: bool) -> list[_Child]:
        """Write the entries in as few pages as possible, equally filled."""
        pieces = -(-len(entries) // (self._room // self._entry_size(inner)))
        borders = [len(entries) * piece // pieces for piece in range(pieces + 1)]
        return [self._write_page(entries[first:last], inner) for first, last in pairwise(borders)]

    def _write_page(self, entries: Sequence[Entry], inner: bool) -> _Child:
        offset, name = self._at, self._at & _IDS
        page = b"".join((_HEADER.pack(0, inner, name, len(entries)), *chain.from_iterable(entries), _FOOTER.pack(name)))
        low = min((_POINTER.unpack(value)[2] for _, value in entries), default=offset) if inner else offset
        self._pages.append(page)
        self._at += len(page)
        return _Child(entries[0][0], offset, len(page), low)


def _visits(
    read: Read, root: TreeRoot, keys: Sequence[bytes], key_length: int, compact: int
) -> tuple[list[list[_Visit]], int]:
    """The pages on the paths to `keys` and to the lowest `compact` bytes, by level; and the end of these bytes."""
    levels: list[list[_Visit]] = []
    wanted = [(_top(root), 0, len(keys))]
    bound = -1
    while wanted:
        pages = _load(read, [at for at, _, _ in wanted], key_length)
        level: list[_Visit] = []
        below: list[tuple[_Child, int, int]] = []
        for page, (_, first, last) in zip(pages, wanted, strict=True):
            children = page.children() if page.inner else []
            low = min((child.low for child in children), default=page.at.offset)
            if bound < 0:
                page, bound = page._replace(at=page.at._replace(low=low)), low + compact
            if low != page.at.low:
                raise _damaged(page.at, f"the lowest offset below it is {low}, where {page.at.low} is expected")
            parts = dict(_routes(page.keys, keys, first, last))
            chosen = [place for place, child in enumerate(children) if place in parts or child.low < bound]
            level.append(_Visit(page, first, last, children, {p: len(below) + n for n, p in enumerate(chosen)}))
            below += [(children[place], *parts.get(place, (0, 0))) for place in chosen]
        levels.append(level)
        wanted = below
    return levels, bound


def _slots(visit: _Visit, below: Sequence[_Slot]) -> list[_Slot]:
    """The children of a page, with the visited ones replaced."""
    slots: list[_Slot] = list(visit.children)
    for place, number in visit.below.items():
        slots[place] = below[number]
    return slots


def _inner_slot(visit: _Visit, children: list[_Child]) -> _Slot:
    """A page is kept if its children are. Its offset is above theirs, so compaction reaches them first."""
    if children == visit.children:
        return visit.page.at
    return [child.entry() for child in children]


def _leaf_slot(visit: _Visit, keys: Sequence[bytes], changes: Mapping[bytes, int | None], bound: int) -> _Slot:
    page = visit.page
    entries = dict(zip(page.keys, page.values, strict=True))
    changed = False
    for key in keys[visit.first : visit.last]:
        value = changes[key]
        old = entries.get(key)
        new = None if value is None else _bytes(value)
        if old == new:
            continue
        changed = True
        if new is None:
            del entries[key]
        else:
            entries[key] = new
    if not changed and page.at.offset >= bound:
        return page.at
    return sorted(entries.items())


def _scan(
    read: Read, level: Sequence[_Child], after: bytes | None, upto: bytes | None, key_length: int | None
) -> Iterator[tuple[bytes, int]]:
    for group in _growing(level):
        for page in _load(read, group, key_length):
            first = 0 if after is None else bisect_right(page.keys, after)
            last = len(page.keys) if upto is None else bisect_left(page.keys, upto)
            if page.inner:
                below = [page.child(place) for place in range(max(first - 1, 0), last)]
                yield from _scan(read, below, after, upto, key_length)
            else:
                yield from zip(page.keys[first:last], map(_number, page.values[first:last]), strict=True)


def _growing(level: Iterable[_Child]) -> Iterator[list[_Child]]:
    """Groups of growing size, as many scans stop early."""
    rest, size = iter(level), 2
    while group := list(islice(rest, size)):
        yield group
        size = min(2 * size, _SCAN_TOGETHER)


def _routes(
    page: Sequence[bytes], keys: Sequence[bytes], first: int, last: int
) -> Iterator[tuple[int, tuple[int, int]]]:
    """The children of an index page to which the sorted `keys[first:last]` belong: child, and its part of `keys`.

    Keys below the first key of the page belong to its first child.
    """
    while first < last:
        place = max(bisect_right(page, keys[first]) - 1, 0)
        stop = last if place + 1 == len(page) else bisect_left(keys, page[place + 1], first, last)
        yield place, (first, stop)
        first = stop


def _load(read: Read, level: Sequence[_Child], key_length: int | None) -> list[_Page]:
    """Pages of one level."""
    found = read([(at.offset, at.length) for at in level])
    pages = [_decode(data, at, key_length) for data, at in zip(found, level, strict=True)]
    for page in pages:
        if page.inner != pages[0].inner:
            raise _damaged(page.at, "it is an index page beside a leaf, or a leaf beside an index page")
    return pages


def _decode(data: bytes, at: _Child, key_length: int | None) -> _Page:
    if len(data) != at.length or len(data) <= _FRAME:
        raise _damaged(at, f"{len(data)} bytes were read of a page of {at.length}")
    version, flags, name, count = _HEADER.unpack_from(data)
    [footer] = _FOOTER.unpack_from(data, len(data) - _FOOTER.size)
    if version != 0:
        raise _damaged(at, f"its version is {version}; this program knows version 0")
    if flags not in (0, 1):
        raise _damaged(at, f"its flags are {flags}; this program knows 0 and 1")
    if not name == footer == at.offset & _IDS:
        raise _damaged(at, f"its id is {name} at the beginning and {footer} at the end")
    body = memoryview(data)[_HEADER.size : -_FOOTER.size]
    length = (len(body) // count if count > 0 else 0) - (_POINTER.size if flags else _VALUE)
    if count <= 0 or len(body) % count or length < 1 or length != (key_length or length):
        raise _damaged(at, f"{count} entries do not fit its {len(data)} bytes")
    found = struct.iter_unpack(f"{length}s{_POINTER.size if flags else _VALUE}s", body)
    keys, values = zip(*found, strict=True)
    if at.key not in (b"", keys[0]):
        raise _damaged(at, f"its first key is {keys[0].hex()}, where {at.key.hex()} is expected")
    if not all(map(lt, keys, keys[1:])):
        raise _damaged(at, "its keys do not ascend")
    return _Page(at, bool(flags), keys, values)


def _top(root: TreeRoot) -> _Child:
    return _Child(b"", *root, root.offset)


def _number(value: bytes) -> int:
    return int.from_bytes(value, "big", signed=True)


def _bytes(value: int) -> bytes:
    return value.to_bytes(_VALUE, "big", signed=True)


def _check_sizes(key_length: int, max_page: int) -> None:
    if not 1 <= key_length <= MAX_KEY:
        raise ValueError(f"keys of {key_length} bytes: 1 to {MAX_KEY} are possible")
    least = _FRAME + _LEAST_FAN_OUT * (key_length + _POINTER.size)
    if not least <= max_page <= _PAGE_LIMIT:
        raise ValueError(f"pages of {max_page} bytes: with such keys {least} to {_PAGE_LIMIT} are possible")


def _check_keys(keys: Iterable[bytes], length: int) -> None:
    for key in keys:
        if len(key) != length:
            raise ValueError(f"key {key.hex()} has {len(key)} bytes, where all keys have {length}")


def _damaged(at: _Child, reason: str) -> DataCorruption:
    return DataCorruption(
        f"index page at offset {at.offset}: {reason}. Restore the segment from a copy, or rebuild the index from the "
        "entries"
    )
