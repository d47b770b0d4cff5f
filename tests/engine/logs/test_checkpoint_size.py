"""What the checkpoints of a container grow with, each of which is bounded; and checkpoints of any size (W6)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import pytest

from chunkstore.checksums import block_checksums
from chunkstore.testing import Crashed, FaultStore, Request, crash_at
from chunkstore.testing.counting import CountingStore
from chunkstore.testing.faults import When
from engine.containers.container import Container
from engine.errors import DataCorruption, Throttled
from engine.logs import checkpoint_parts, checkpoints, truncation
from engine.state import tables
from engine.state.operations import Append, AttributeUpdate, CreateSegment, UpdateKind
from engine.state.segments import Extent
from engine.state.state import EXTENT
from engine.writer import container_gc
from tests.support.simulation import Simulation, audit


@contextmanager
def small_batches() -> Iterator[None]:
    with ExitStack() as patches:
        for owner, name, value in (
            (truncation, "BATCH", 20),
            (container_gc, "BATCH", 20),
            (container_gc, "UNFLUSHED", 3000),
            (tables, "RESIDENT_BYTES", 1000),
        ):
            patches.enter_context(patch.object(owner, name, value))
        yield


# --- however much is deleted ----------------------------------------------------------------------------------------


def of_many_chunks(count: int, **settings: Any) -> tuple[Simulation, Container]:
    """A root with a segment whose `count` chunks are in LTS."""
    simulation = Simulation(garbage_delay=1000.0, **settings)
    container = simulation.open()
    container.create_segment("s/a")
    for first in range(0, count, 500):
        paths = [f"s/a/{number:06d}" for number in range(first, min(first + 500, count))]
        for path in paths:
            simulation.store.put(path, b"x")
        checksums = block_checksums(b"x")
        container.commit([Append("s/a", tuple(Extent(path, 0, 1, checksums) for path in paths))])
    container.flush()
    return simulation, container


def checkpoint_bytes(container: Container) -> int:
    return len(checkpoints.encode(0, container.head, container.refresh()))


@pytest.mark.parametrize("how", ["deleted", "truncated", "truncated away"])
def test_the_state_does_not_grow_with_the_chunks_of_what_is_deleted(how: str) -> None:
    """Each step of it is bounded: those names would be in every checkpoint, until their objects are gone."""
    with small_batches():
        simulation, container = of_many_chunks(200)
        largest = before = checkpoint_bytes(container)
        if how == "deleted":
            container.delete("s/a")
        else:
            container.truncate("s/a", 199 if how == "truncated" else 200)
        for _ in range(8):
            container.flush()
            largest = max(largest, checkpoint_bytes(container))
            simulation.advance(1001)
            container.collect_garbage()
            largest = max(largest, checkpoint_bytes(container))
        assert len(chunks_in(simulation)) == (1 if how == "truncated" else 0)
        assert largest - before < 4000


def chunks_in(simulation: Simulation) -> list[str]:
    return [info.path for info in simulation.store.list("s/")]


# --- what waits for a flush cycle -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "each"), [("append", 30), ("attribute", 30), ("chunk", 200), ("let go", 150), ("deleted", 100)]
)
def test_what_each_thing_adds_to_a_checkpoint(what: str, each: int) -> None:
    """In bytes, until it is flushed. Attributes stay up to a number, what was let go until it is collected."""
    count = 200
    container = Simulation().open()
    names = [f"scope/stream/{number}.#epoch.0" for number in range(count)]
    container.commit([CreateSegment(name) for name in names])
    chunks = tuple(Extent(f"{name}.E-1-O-0.{uuid4()}", 0, 1, block_checksums(b"x")) for name in names)
    if what == "let go":
        container.commit([Append(names[0], chunks)])
    container.flush()
    before = checkpoint_bytes(container)
    match what:
        case "append":
            for _ in names:
                container.append(names[0], b"x")
        case "attribute":
            updates = [AttributeUpdate(key.bytes, UpdateKind.REPLACE, 1 << 40) for key in (uuid4() for _ in names)]
            container.update_attributes(names[0], updates)
        case "chunk":
            container.commit([Append(names[0], chunks)])
        case "let go":
            container.truncate(names[0], count)
        case "deleted":
            container.delete(*names)
    assert checkpoint_bytes(container) - before <= each * count


def test_tiny_appends_set_off_a_flush_by_what_they_take_in_memory() -> None:
    container = Simulation(maintenance=True, flush_bytes=50 * EXTENT, flush_frames=10**6, flush_seconds=1e9).open()
    container.create_segment("s/a")
    for _ in range(200):
        container.append("s/a", b"x")
    assert container.state.cycle.number >= 3
    assert container.state.extents < 100
    audit(container.state)


def test_extents_are_counted_whatever_becomes_of_them() -> None:
    container = Simulation().open()
    counts = []
    for act in (
        lambda: container.commit([CreateSegment(name) for name in ("s/a", "s/b", "s/c")]),
        lambda: [container.append(name, b"xy") for name in ("s/a", "s/b", "s/b", "s/c")],
        lambda: container.seal("s/b"),
        lambda: container.merge("s/a", "s/b"),
        lambda: container.truncate("s/a", 2),
        lambda: container.delete("s/c"),
        container.flush,
    ):
        act()
        audit(container.state)
        counts.append(container.state.extents)
    assert counts == [0, 4, 4, 4, 3, 2, 0]


def test_tiny_appends_are_held_back_when_nothing_flushes_them() -> None:
    container = Simulation(backlog_bytes=100 * EXTENT, timeout=1.0).open()
    container.create_segment("s/a")
    with pytest.raises(Throttled):
        for _ in range(101):
            container.append("s/a", b"x")
    container.flush()
    container.append("s/a", b"x")


def test_what_was_deleted_is_flushed_although_nothing_else_is_to_be() -> None:
    simulation = Simulation(maintenance=True, flush_seconds=300.0)
    container = simulation.open()
    container.create_segment("s/a")
    container.append("s/a", b"x")
    container.flush()
    container.delete("s/a")
    assert container.state.dropped and not container.state.unsaved
    simulation.advance(301)
    container.put_entries("streams", {"any": b"commit"})
    assert not container.state.dropped


# --- checkpoints in parts -------------------------------------------------------------------------------------------

PARTS = "_system/containers/0/checkpoint-parts/"


def in_parts(**settings: Any) -> tuple[Simulation, Container]:
    """A root whose checkpoints have several parts."""
    simulation = Simulation(checkpoint_part=100, **settings)
    container = simulation.open()
    for number in range(10):
        container.create_segment(f"s/{number}")
        container.append(f"s/{number}", b"%d" % number)
    return simulation, container


def paths(simulation: Simulation, folder: str) -> list[str]:
    return [info.path for info in simulation.store.list(folder)]


def test_a_state_of_any_size_has_a_checkpoint() -> None:
    simulation, container = in_parts()
    container.checkpoint()
    assert len(paths(simulation, PARTS)) > 5
    [checkpoint] = paths(simulation, "_system/containers/0/checkpoints/")
    assert simulation.store.stat(checkpoint).size < 2000
    for path in paths(simulation, "_system/containers/0/wal/"):
        simulation.store.delete([path])
    other = simulation.open()
    assert other.state == container.state


def test_the_requests_of_a_checkpoint_in_one_object_are_as_they_were() -> None:
    simulation, container = in_parts()
    store = CountingStore(simulation.store)
    checkpoints.write(store, 0, container.head, container.state)
    checkpoints.read_newest(store, 0)
    assert store.counts == {"put_if_absent": 1, "list": 1, "read": 1}


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_anywhere_leaves_a_checkpoint_or_parts_that_the_truncation_deletes(when: When) -> None:
    number = 0
    while True:
        number += 1
        simulation, container = in_parts()
        before = container.refresh()
        faulty = FaultStore(simulation.store)
        crashing = simulation.open(through=faulty)
        crashing.refresh()
        faulty.passed, faulty.plan = 0, crash_at(number, when)
        try:
            crashing.checkpoint()
        except Crashed:
            pass
        else:
            break
        other = simulation.open()
        assert other.state.segments == before.segments
        other.checkpoint()
        simulation.advance(601)
        other.truncate_log()
        [checkpoint] = paths(simulation, "_system/containers/0/checkpoints/")
        address = checkpoint.rpartition("/")[2]
        kept = paths(simulation, PARTS)
        assert kept and all(path.startswith(PARTS + address) for path in kept)
        assert simulation.open().state == other.state
    assert number > 10


def test_parts_of_a_checkpoint_that_is_being_made_stay() -> None:
    simulation, container = in_parts()
    container.checkpoint()
    simulation.advance(601)
    container.append("s/0", b"x")
    address = container.head.address
    checkpoint_parts.write(simulation.store, 0, address, bytes(300), 100)
    checkpoint_parts.write(simulation.store, 0, 0, bytes(300), 100)  # of a sleeper: it may be about to name them
    made = len(paths(simulation, PARTS))
    container.truncate_log()
    assert len(paths(simulation, PARTS)) == made
    simulation.advance(601)
    container.truncate_log()
    assert len(paths(simulation, PARTS)) == made - 3
    assert simulation.open().state == container.state


@pytest.mark.parametrize("damage", ["missing", "short", "flipped"])
def test_a_damaged_part_is_named(damage: str) -> None:
    simulation, container = in_parts()
    container.checkpoint()
    path = paths(simulation, PARTS)[2]
    data = simulation.store.read(path)
    if damage == "missing":
        simulation.store.delete([path])
    else:
        simulation.store.put(path, data[:-1] if damage == "short" else bytes([data[0] ^ 1]) + data[1:])
    with pytest.raises(DataCorruption, match=path):
        simulation.open()


def test_who_opens_while_a_newer_checkpoint_takes_the_place_of_one_in_parts() -> None:
    simulation, container = in_parts()
    container.checkpoint()
    store = FaultStore(simulation.store)
    happened: list[int] = []

    def meanwhile(number: int, request: Request) -> None:
        if request.verb == "read_ranges" and PARTS in request.paths[0] and not happened:
            happened.append(number)
            container.append("s/0", b"x")
            container.checkpoint()
            simulation.advance(601)
            container.truncate_log()

    store.plan = meanwhile
    assert simulation.open(through=store).refresh() == container.refresh()
    assert happened
