"""Names that are numbers, among names that are not."""

from __future__ import annotations

import pytest

from chunkstore.metadata.garbage_queue import GarbageTask
from chunkstore.numbered import list_numbered, number_of
from chunkstore.pravega.layout_mode import LayoutMode, layout_mode, set_layout_mode
from chunkstore.testing import CountingStore, SimulatedStore
from tests.support.garbage_queue import StoreGarbageQueue


@pytest.mark.parametrize("limit", [None, 1, 3, 100])
def test_pages_of_foreign_names_do_not_end_a_listing(limit: int | None) -> None:
    store = SimulatedStore()
    numbers = [f"a/{number:020d}" for number in range(3, 7)]
    foreign = [f"a/{number:019d}" for number in range(5)] + [f"a/{number:020d}~" for number in range(9)]
    for name in [*numbers, *foreign, "a/9", f"a/{8:020d}/deeper"]:
        store.put(name, b"")
    assert [info.path for info in list_numbered(store, "a/", limit=limit)] == numbers[:limit]
    assert [info.path for info in list_numbered(store, "a/", after=numbers[1], limit=limit)] == numbers[2:][:limit]
    assert set(store.passed_over()) >= {"a/9", f"a/{8:020d}/deeper"} or limit == 1


def test_it_costs_one_request() -> None:
    store = CountingStore(SimulatedStore())
    for number in range(5):
        store.put(f"a/{number:020d}", b"")
    store.reset()
    for limit in (None, 3, 5, 100):
        list_numbered(store, "a/", limit=limit)
    assert store.count("list") == 4


@pytest.mark.parametrize(
    "name", ["", "1", "+" + "1" * 19, "1" * 21, "\u0661" * 20, " " + "1" * 19, "1_" * 10, "x/" + "1" * 20]
)
def test_foreign_names(name: str) -> None:
    assert number_of(f"a/{name}", "a/") is None
    assert number_of("b/" + "1" * 20, "a/") is None


def test_foreign_objects_in_the_queue_of_garbage_and_among_layouts() -> None:
    store = SimulatedStore()
    queue = StoreGarbageQueue(store, 0)
    queue.add([GarbageTask("chunk", 1.0)])
    set_layout_mode(store, LayoutMode.NO_UPGRADE)
    for info in store.list(""):
        folder = info.path.rpartition("/")[0]
        for name in ("!", "0", "zzz", info.path.rpartition("/")[2] + " (copy)"):
            store.put(f"{folder}/{name}", b"precious")
    assert [batch.tasks[0].name for batch in queue.due(2.0)] == ["chunk"]
    assert layout_mode(store) is LayoutMode.NO_UPGRADE
