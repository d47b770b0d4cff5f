"""Reading object ranges into a room that the caller reuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from chunkstore import open_store
from chunkstore.checksums import block_checksums
from engine.storage.object_reads import ObjectRange, Stores, fetch


def _place(part: memoryview) -> int:
    return int(np.frombuffer(part, np.uint8).ctypes.data)


@pytest.mark.parametrize("names", ["abcd", "dcba", "badc"])
def test_whole_objects_lie_one_behind_another_in_a_room(tmp_path: Path, names: str) -> None:
    """Whatever their names: who reads all of them need not copy them together."""
    store = open_store(str(tmp_path))
    contents = {name: name.encode() * (1000 * number + 1) for number, name in enumerate(names)}
    for name, content in contents.items():
        store.put(name, content)
    pieces = [
        ObjectRange(False, name, 0, len(content), block_checksums(content), 0, len(content))
        for name, content in contents.items()
    ]
    parts = fetch(Stores(store, store), pieces, bytearray(1 << 20))
    assert [bytes(part) for part in parts] == list(contents.values())
    places = [_place(part) for part in parts]
    assert places[1:] == [place + len(part) for place, part in zip(places[:-1], parts[:-1], strict=True)]


def test_a_range_that_is_wanted_twice_lies_where_it_is_wanted_first(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    store.put("b", b"0123456789")
    store.put("a", b"abc")
    sums = block_checksums(b"0123456789")
    wanted = [(2, 3), (8, 2), (0, 10)]
    pieces = [ObjectRange(False, "b", 0, 10, sums, skip, taken) for skip, taken in wanted]
    pieces.insert(1, ObjectRange(False, "a", 0, 3, block_checksums(b"abc"), 0, 3))
    parts = fetch(Stores(store, store), pieces, bytearray(100))
    assert [bytes(part) for part in parts] == [b"234", b"abc", b"89", b"0123456789"]
    assert _place(parts[1]) == _place(parts[3]) + 10
