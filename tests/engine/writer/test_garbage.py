"""Garbage of a container is let go of only when its objects are gone, whatever fails meanwhile (G2)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress

import pytest

from chunkstore import StorageError
from chunkstore.testing import Crashed, Fault, FaultStore
from chunkstore.testing.faults import When
from engine.containers.container import Container
from engine.errors import EngineError
from engine.state.operations import Append
from engine.state.tables import STORAGE
from engine.storage.chunk_writer import write_chunk
from tests.support.simulation import Simulation, small_sizes

_CHUNK = re.compile(r"s/.*|.*/E-\d+-S-.*")


@pytest.fixture(scope="module", autouse=True)
def small() -> Iterator[None]:
    with small_sizes():
        yield


@pytest.fixture(scope="module")
def littered(small: None) -> Simulation:
    """A root whose flush cycles, and segments that were deleted, truncated or let go, left garbage that is due."""
    simulation = Simulation(garbage_delay=1000.0)
    container = simulation.open()
    for name in ("s/deleted", "s/truncated", "s/kept"):
        container.create_segment(name)
    container.commit([Append("s/kept", tuple(write_chunk(simulation.store, "s/copied", [[b"1"], [b"2"]])))])
    container.truncate("s/kept", 1)
    for number in range(4):
        for name in ("s/deleted", "s/truncated", "s/kept"):
            container.append(name, b"%d" % number)
        container.close()
        container = simulation.open(exclusive=True)  # of another epoch: each flush makes chunks of its own
        container.flush()
    container.delete("s/deleted")
    container.truncate("s/truncated", 3)
    for _ in range(3):
        container.flush()
    container.close()
    simulation.advance(1001)
    return simulation


def again(simulation: Simulation) -> Simulation:
    """A simulation of the same storage, of its own."""
    copied = Simulation(**simulation.settings)
    copied.store.copy_of(simulation.store)
    return copied


def unnamed(container: Container) -> list[str]:
    """The chunks and tables' objects that nothing names, be it as garbage."""
    state = container.refresh()
    paths = [info.path for info in container.stores.chunks.list("") if _CHUNK.fullmatch(info.path)]
    records = container.entries(STORAGE, paths, state)
    return [path for path in paths if path not in state.chunks and path not in state.garbage and records[path] is None]


def collected(simulation: Simulation) -> list[str]:
    """What is left of the garbage, and beside it, after two more flush cycles and collections."""
    container = simulation.open()
    for _ in range(2):
        container.flush()
        simulation.advance(1001)
        container.collect_garbage()
    due = {
        name for name, garbage in container.state.garbage.items() if not container.state.is_kept_for_recovery(garbage)
    }
    listed = {info.path for info in simulation.store.list("")}
    deleted = [key for key, _ in container.scan_entries(STORAGE, "#deleted")]
    return [*unnamed(container), *(due & listed), *deleted]


def test_garbage_is_all_collected(littered: Simulation) -> None:
    simulation = again(littered)
    container = simulation.open()
    assert unnamed(container) == []
    assert collected(simulation) == []
    assert len([info for info in simulation.store.list("") if info.path.startswith("s/")]) == 2 + 3


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("when", ["before", "partway", "after"])
def test_a_collection_that_fails_anywhere_is_made_up_for_by_a_later_one(
    littered: Simulation, when: When, crash: bool
) -> None:
    number = 0
    while True:
        number += 1
        simulation = again(littered)
        faulty = FaultStore(simulation.store)
        container = simulation.open(through=faulty, timeout=0.0)
        faulty.passed = 0
        faulty.plan = lambda at, request, number=number: Fault(when, crash) if at == number else None
        with suppress(StorageError, EngineError, Crashed):
            container.collect_garbage()
        if faulty.passed < number:
            break
        assert collected(simulation) == [], f"after request {number} failed"
    assert number > 10


def test_what_can_never_be_deleted_stays_garbage_and_is_in_nobodys_way(littered: Simulation) -> None:
    """As with an object lock, or without the right to delete."""
    simulation = again(littered)
    faulty = FaultStore(simulation.store, lambda at, request: Fault("before"), verbs={"delete"})
    container = simulation.open(through=faulty)
    before = container.refresh().garbage
    for _ in range(5):
        assert container.collect_garbage() == 0
    assert container.refresh().garbage == before
    faulty.plan = None
    assert container.collect_garbage() > 0
    assert collected(simulation) == []
