"""Flush cycles, truncation of the log and garbage of a container."""

from collections.abc import Callable
from functools import partial

import pytest

from chunkstore.paths import is_log
from chunkstore.testing import FaultStore, Request
from engine.containers.container import Container
from engine.state.operations import Append, CreateSegment, PutEntry
from engine.storage.chunks import write_chunk
from engine.storage.reads import Stores
from engine.storage.recovery import recover
from engine.testing.model import contents_of
from engine.testing.simulation import Simulation
from tests.engine.containers.segments import append, chunks_in, chunks_of, content


@pytest.mark.parametrize("first", ["the delay", "a later cycle"])
def test_garbage_is_deleted_after_the_delay_and_a_later_cycle_and_only_then(first: str) -> None:
    """The first flush marks what was deleted; its recovery point is good until the second one is complete (F2)."""
    simulation = Simulation(garbage_delay=1000.0)
    container, other = simulation.open(), simulation.open()
    for name in ("s/a", "s/b"):
        container.create_segment(name)
        container.append(name, name.encode())
    container.flush()
    container.delete("s/a")
    doomed, kept = chunks_in(simulation.store)
    assert doomed.startswith("s/a.")

    def is_kept() -> bool:
        other.collect_garbage()
        return chunks_in(simulation.store) == [doomed, kept]

    simulation.advance(2000)
    assert is_kept(), "LTS knows it still"
    container.flush()
    assert is_kept()
    if first == "the delay":
        simulation.advance(2000)
        assert is_kept(), "the last recovery point names it"
        container.flush()
    else:
        container.flush()
        simulation.advance(999)
        assert is_kept(), "a reader may be at it"
        simulation.advance(2)
    assert other.collect_garbage() > 0
    assert chunks_in(simulation.store) == [kept]
    assert chunks_of(other) == [kept]
    assert container.collect_garbage() == 0
    assert content(container, "s/b") == b"s/b"


def test_an_attached_chunk_that_was_let_go_is_deleted_after_the_delay() -> None:
    simulation = Simulation(garbage_delay=1000.0)
    container = simulation.open()
    container.create_segment("s/a")
    container.flush()
    container.commit([Append("s/a", tuple(write_chunk(simulation.store, "s/chunk", [[b"1"], [b"2"]])))])
    container.truncate("s/a", 1)
    simulation.advance(1001)
    container.flush()
    container.collect_garbage()
    assert "s/chunk" in chunks_in(simulation.store), "it was copied just now"
    container.flush()
    simulation.advance(999)
    container.collect_garbage()
    assert "s/chunk" in chunks_in(simulation.store)
    simulation.advance(2)
    container.collect_garbage()
    assert chunks_in(simulation.store) == chunks_of(container) != []
    assert content(simulation.open(), "s/a") == b"2"


def test_the_log_keeps_what_is_not_flushed_even_below_a_boundary() -> None:
    """Also where a merge has put older frames behind younger ones."""
    simulation = Simulation()
    container = simulation.open()
    container.commit([CreateSegment("s/old"), CreateSegment("s/young")])
    container.append("s/old", b"old")
    container.append("s/young", b"young")
    container.seal("s/old")
    container.merge("s/young", "s/old")
    for _ in range(2):
        container.checkpoint()
        simulation.advance(700)
        container.truncate_log()
    assert content(simulation.open(), "s/young") == b"youngold"
    container.flush()
    container.checkpoint()
    simulation.advance(700)
    assert container.truncate_log() > 0
    assert len(simulation.store.list("_system/containers/0/wal/")) == 1
    assert content(simulation.open(), "s/young") == b"youngold"


def goes_on_while_asleep(
    simulation: Simulation, container: Container, asleep_at: int, number: int, request: Request
) -> None:
    """Before that request of somebody else a boundary is made behind what is not flushed, and comes of age."""
    if number == asleep_at:
        container.append("s/a", b"not flushed")
        container.checkpoint()
        for _ in range(2):
            container.truncate_log()
            simulation.advance(700)


def test_a_truncation_that_sleeps_knows_of_all_that_the_boundary_covers() -> None:
    """Its state is newer than the boundary that it goes by: else it would miss what was appended before that."""
    asleep_at = 0
    while True:
        asleep_at += 1
        simulation = Simulation()
        container = simulation.open()
        container.create_segment("s/a")
        container.checkpoint()
        simulation.advance(700)

        sleeper = simulation.open(through=(store := FaultStore(simulation.store)))
        store.passed, store.plan = 0, partial(goes_on_while_asleep, simulation, container, asleep_at)
        sleeper.truncate_log()
        if store.passed < asleep_at:
            break
        assert content(simulation.open(), "s/a") == b"not flushed", f"asleep before request {asleep_at}"
    assert asleep_at > 3


def test_the_log_is_not_truncated_before_its_boundary_is_old_by_the_stores_clock() -> None:
    simulation = Simulation()
    container = simulation.open()
    container.create_segment("s/a")
    container.checkpoint()
    simulation.store.now += 599
    assert container.truncate_log() == 0
    simulation.store.now += 2
    assert container.truncate_log() == 1


def test_of_two_who_flush_the_same_one_has_nothing_to_do() -> None:
    simulation = Simulation()
    one = simulation.open()
    one.commit([CreateSegment("s/a"), CreateSegment("s/b"), append("s/a", b"a"), append("s/b", b"b")])

    def meanwhile(number: int, request: Request) -> None:
        if number == 1:
            one.append("s/b", b"more")
            assert one.flush() == 6

    two = simulation.open(through=FaultStore(simulation.store, meanwhile, verbs={"put"}))
    assert two.flush() == 0
    assert set(chunks_of(one)) < set(chunks_in(simulation.store))
    for process in (one, two, simulation.open()):
        assert content(process, "s/a") + content(process, "s/b") == b"abmore"
        assert process.state.cycle.complete


@pytest.mark.parametrize("meanwhile", ["flush", "truncate"])
def test_the_loser_of_a_race_deletes_its_chunks(meanwhile: str) -> None:
    simulation = Simulation(garbage_delay=100.0)
    one = simulation.open()
    one.commit([CreateSegment("s/a"), append("s/a", b"12345")])

    def overtake(number: int, request: Request) -> None:
        if number == 1:
            one.flush() if meanwhile == "flush" else one.truncate("s/a", 3)

    two = simulation.open(through=FaultStore(simulation.store, overtake, verbs={"put"}))
    two.flush()
    for _ in range(3):
        simulation.advance(101)
        one.flush()
        one.collect_garbage()
    assert chunks_in(simulation.store) == chunks_of(one)
    assert content(one, "s/a") == (b"12345" if meanwhile == "flush" else b"45")


@pytest.mark.parametrize("what", ["merge", "delete", "truncate"])
def test_a_recovery_point_is_what_the_container_was_when_its_cycle_began(what: str) -> None:
    """Or what it was at the beginning of a later one, which then is the one that is complete."""
    simulation = Simulation()
    other = simulation.open()
    for name in ("s/a", "s/b"):
        other.commit([CreateSegment(name), append(name, b"flushed")])
    other.seal("s/b")
    other.flush()
    other.commit([append("s/a", b",more"), PutEntry("t", "k", b"v")])
    before = contents_of(other)
    acts: dict[str, Callable[[], object]] = {
        "merge": lambda: other.merge("s/a", "s/b"),
        "delete": lambda: other.delete("s/b"),
        "truncate": lambda: (other.append("s/a", b",and more"), other.truncate("s/a", 15)),
    }

    def meanwhile(number: int, request: Request) -> None:
        if number == 2:  # the segments are in LTS; now the tables
            assert request.paths[0].startswith("_system/")
            acts[what]()

    simulation.open(through=FaultStore(simulation.store, meanwhile, verbs={"put"})).flush()
    after = contents_of(other)
    assert after != before
    simulation.store.delete([info.path for info in simulation.store.list("") if is_log(info.path)])
    recover(Stores(simulation.store, simulation.store), 0)
    assert contents_of(simulation.open()) in (before, after)


def test_what_is_truncated_or_deleted_while_it_is_flushed() -> None:
    simulation = Simulation()
    other = simulation.open()
    other.commit([CreateSegment("s/a"), CreateSegment("s/b"), append("s/b", b"b")])
    for _ in range(3):
        other.append("s/a", b"12345")

    def meanwhile(number: int, request: Request) -> None:
        if number == 1:
            other.truncate("s/a", 7)
            other.delete("s/b")

    two = simulation.open(through=FaultStore(simulation.store, meanwhile, verbs={"put"}))
    assert two.flush() >= 8
    assert two.refresh().cycle.complete and not two.state.unsaved
    assert content(other, "s/a") == content(simulation.open(), "s/a") == b"34512345"
    assert b"".join(simulation.store.read(path) for path in chunks_of(two)) == b"34512345"
