"""What is bounded to spare work is bounded, and forgetting it costs work only."""

from __future__ import annotations

from pathlib import Path

from chunkstore.backends.local import LocalStore
from chunkstore.bounded_set import BoundedSet


def test_what_is_remembered_is_bounded() -> None:
    bounded = BoundedSet[int](10, kept=0)
    for number in range(1000):
        bounded.add(number)
        assert number in bounded and 0 in bounded and len(bounded) <= 10
    bounded.clear()
    assert len(bounded) == 0 and 0 not in bounded


def test_a_store_that_remembers_few_folders_is_as_good(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path / "root"), folders=2)
    names = [f"{folder}/{number}" for number in range(2) for folder in ("a", "a/b", "c", "d/e/f")]
    for name in names:
        store.put(name, name.encode())
    assert [store.read(name) for name in names] == [name.encode() for name in names]
    assert sorted(info.path for info in store.list("")) == sorted(names)
