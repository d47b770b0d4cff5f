"""LTS alone is a backup: at every moment it holds what the container held when its last complete cycle began
(F3)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

import pytest

from chunkstore.paths import is_log
from chunkstore.testing import Crashed, FaultStore, Request, SimulatedStore, crash_at
from chunkstore.testing.faults import When
from engine.containers.container import Container
from engine.errors import LogLost
from engine.logs.durable_log import DurableLog
from engine.logs.transaction import Receipt
from engine.state.operations import (
    Append,
    AttributeUpdate,
    BeginCycle,
    CreateSegment,
    Operation,
    Payload,
    SaveSegments,
    UpdateKind,
)
from engine.state.segments import EVENT_COUNT
from engine.storage import recovery
from engine.storage.recovery import NothingToRecover
from engine.writer.compaction import compact_segments
from tests.support.container_model import Contents, contents_of
from tests.support.simulation import Simulation, audit, small_sizes

GRACE = 600.0


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    with small_sizes():
        yield


def without_log(store: SimulatedStore) -> Simulation:
    """A copy of a root from which everything is gone but LTS."""
    copy = Simulation(grace=GRACE, garbage_delay=GRACE)
    copy.store.now = store.now
    for info in store.list(""):
        if not is_log(info.path):
            copy.store.put(info.path, store.read(info.path))
    return copy


def recovered(simulation: Simulation) -> Container:
    """The container as a process finds it that recovers it."""
    with pytest.raises(LogLost, match="recover"):
        simulation.open()
    recovery.recover(simulation.stores, 0)
    container = simulation.open()
    audit(container.state)
    return container


def change(container: Container, chance: random.Random, round_: int, segments: int = 12) -> None:
    """Something of everything, to many segments."""
    for number in range(segments):
        name = f"s/{number}"
        if number % 12 not in (round_ % 12, (round_ + 5) % 12):
            container.append(name, chance.randbytes(chance.randint(1, 150)), None, [
                AttributeUpdate(EVENT_COUNT, UpdateKind.ACCUMULATE, 1),
                AttributeUpdate(chance.randbytes(2) + bytes(14), UpdateKind.REPLACE, round_),
            ])  # fmt: skip
            container.append(f"{name}#index", b"%08d" % round_)
        container.put_entries("streams", {f"{name} {chance.randint(0, 9)}": chance.randbytes(20)})
    transaction = f"s/transaction {round_}"
    container.create_segment(transaction)
    container.append(transaction, chance.randbytes(60))
    if round_ % 3 == 0:
        container.flush()
        container.append(transaction, b"and more")
    container.seal(transaction)
    container.merge(f"s/{round_ % 12}", transaction, b"header")
    for name in (f"s/{chance.randint(0, 11)}", f"s/{chance.randint(0, 11)}"):
        info = container.info(name)
        container.truncate(name, chance.randint(info.start_offset, info.length))
    doomed = f"s/doomed {round_ - 1}"
    if round_:
        container.delete(doomed)
    container.create_segment(f"s/doomed {round_}")
    container.append(f"s/doomed {round_}", b"not for long")


def prepared(simulation: Simulation, rounds: int = 3, segments: int = 12) -> Container:
    """A container with some history."""
    container, chance = simulation.open(), random.Random(7)
    for number in range(segments):
        container.create_segment(f"s/{number}")
        container.create_segment(f"s/{number}#index")
    for round_ in range(rounds):
        change(container, chance, round_, segments)
        container.flush()
        simulation.advance(1.1 * GRACE)
        container.checkpoint()
        container.truncate_log()
        container.collect_garbage()
    change(container, chance, rounds, segments)
    return container


@pytest.mark.parametrize(
    ("segments", "active_segments"),
    [
        (12, 4),
        pytest.param(12, 100, marks=pytest.mark.long),
        pytest.param(80, 50, marks=[pytest.mark.long, pytest.mark.timeout(900)]),
    ],
)
def test_after_every_request_of_a_cycle(segments: int, active_segments: int) -> None:
    """A copy of LTS after any request of a cycle recovers to its beginning, or to that of the one before."""
    simulation = Simulation(
        grace=GRACE, garbage_delay=GRACE, active_segments=active_segments, flush_frames=100_000, flush_seconds=1e9
    )
    before = prepared(simulation, rounds=4, segments=segments)  # in the fifth round nothing is flushed
    old = contents_of(recovered(without_log(simulation.store)))
    new = contents_of(before)
    assert old != new
    seen: list[Contents] = []
    lookups: list[dict[str, bytes]] = []

    def look(number: int, request: Request) -> None:
        copy = without_log(simulation.store)
        objects = {info.path: copy.store.read(info.path) for info in copy.store.list("")}
        if not lookups or objects != lookups[-1]:  # else it is the same copy as after the request before
            lookups.append(objects)
            seen.append(contents_of(recovered(copy)))
        else:
            seen.append(seen[-1])

    container = simulation.open(through=FaultStore(simulation.store, look))
    seen.clear()
    lookups.clear()
    container.flush()
    simulation.advance(1.1 * GRACE)
    container.collect_garbage()
    look(0, Request("list", ()))
    print(f"{len(seen)} copies of LTS, {len(lookups)} of them different")
    assert len(seen) >= 5 * segments and len(lookups) >= segments
    first_new = seen.index(new)
    assert all(found == old for found in seen[:first_new]), "neither the old cycle nor the new one"
    assert all(found == new for found in seen[first_new:]), "what was complete is not any more"
    assert contents_of(container) == new


def test_what_was_recovered_goes_on() -> None:
    simulation = Simulation(grace=GRACE, garbage_delay=GRACE)
    container = prepared(simulation)
    container.flush()
    expected = contents_of(container)
    container.append("s/1", b"this is lost")
    copy = without_log(simulation.store)
    survivor = recovered(copy)
    assert contents_of(survivor) == expected
    chance = random.Random(1)
    for round_ in range(4, 8):
        change(survivor, chance, round_)
        survivor.flush()
        copy.advance(1.1 * GRACE)
        survivor.checkpoint()
        survivor.truncate_log()
        survivor.collect_garbage()
        assert contents_of(copy.open()) == contents_of(survivor)
    audit(survivor.state)


def test_recovery_tells_what_it_knows() -> None:
    simulation = Simulation(grace=GRACE, garbage_delay=GRACE)
    container = prepared(simulation)
    with pytest.raises(NothingToRecover, match="more data than any"):
        recovery.recover(simulation.stores, 0)
    container.flush()
    cycle = container.state.cycle
    copy = without_log(simulation.store)
    found = recovery.recover(copy.stores, 0)
    assert (found.cycle, found.sequence, found.time) == (cycle.number, cycle.sequence, cycle.time)
    assert found.segments == len(list(contents_of(container)[0]))
    assert "lost" in " ".join(found.lines())
    with pytest.raises(NothingToRecover, match="more data than any"):
        recovery.recover(copy.stores, 0)


def test_without_a_complete_cycle_there_is_nothing_to_recover() -> None:
    simulation = Simulation(grace=GRACE, garbage_delay=GRACE)
    simulation.open().create_segment("s/a")
    copy = without_log(simulation.store)
    with pytest.raises(NothingToRecover, match="no flush cycle"):
        recovery.recover(copy.stores, 0)
    copy.open().create_segment("s/a")


def delete(container: Container) -> None:
    container.delete("s/a")


def truncate(container: Container) -> None:
    container.append("s/a", b"later")
    container.truncate("s/a", container.info("s/a").length - 2)


def merge(container: Container) -> None:
    container.seal("s/a")
    container.merge("s/b", "s/a")


@pytest.mark.parametrize("saved", [True, False], ids=["saved before", "new"])
@pytest.mark.parametrize("change", [delete, truncate, merge])
def test_what_another_process_does_during_a_cycle_is_not_in_its_recovery_point(
    change: Callable[[Container], None], saved: bool
) -> None:
    """Nor does the recovered container lose anything by what it flushes and collects."""
    simulation = Simulation(grace=10.0, garbage_delay=10.0)
    other = simulation.open()
    for name in "abc":
        other.create_segment(f"s/{name}", [AttributeUpdate(bytes(15) + b"x", UpdateKind.REPLACE, 7)])
        other.append(f"s/{name}", name.encode() * 10)
    if saved:
        other.flush()
        other.append("s/a", b"more")
    begun: list[Contents] = []

    def meanwhile(number: int, request: Request) -> None:
        if not begun and request.paths[0].startswith("_system"):
            begun.append(contents_of(simulation.open()))
            change(other)

    simulation.open(through=FaultStore(simulation.store, meanwhile, verbs={"put"})).flush()
    copy = without_log(simulation.store)
    container = recovered(copy)
    for _ in range(3):
        assert contents_of(container) == begun[0]
        container.flush()
        copy.advance(100.0)
        container.checkpoint()
        container.truncate_log()
        container.collect_garbage()
        container = copy.open()


def test_a_segment_that_was_created_as_the_cycle_began_stays_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the frame that begins a cycle there are later operations too. The cycle works on the state after them."""
    simulation = Simulation(grace=10.0, garbage_delay=10.0)
    container, other = simulation.open(), simulation.open()
    commit = DurableLog.commit
    deleted: list[str] = []

    def together(log: DurableLog, operations: Sequence[Operation], *, frees: bool = False) -> Receipt:
        if log is not other.log and not deleted:
            if any(isinstance(each, BeginCycle) for each in operations):
                operations = [*operations, CreateSegment("s/a"), Append("s/a", Payload(b"new"))]
            elif any(isinstance(each, SaveSegments) for each in operations):
                deleted.append("s/a")
                other.delete("s/a")
        return commit(log, operations, frees=frees)

    monkeypatch.setattr(DurableLog, "commit", together)
    container.flush()
    assert deleted
    container.create_segment("s/b")
    container.flush()
    for opened in (simulation.open(), recovered(without_log(simulation.store))):
        assert "s/a" not in contents_of(opened)[0]
        opened.create_segment("s/a")


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_cycle_is_not_over_before_its_recovery_point_is_there(when: When) -> None:
    """What became garbage since the last cycle is needed by its recovery point; the end of this cycle lets it go."""
    number = 0
    while True:
        number += 1
        simulation = Simulation(grace=GRACE, garbage_delay=GRACE)
        for part in range(3):
            with simulation.open(exclusive=True) as writer:  # each of another epoch, with chunks of its own
                if not part:
                    writer.create_segment("s/a")
                writer.append("s/a", b"%d" % part)
                writer.flush()
        container = simulation.open()
        assert [merged.chunks for merged in compact_segments(container.flush_context, "", 1000)] == [2]
        store = FaultStore(simulation.store)
        crashing = simulation.open(through=store)
        crashing.append("s/a", b"more")
        store.passed, store.plan = 0, crash_at(number, when)
        with suppress(Crashed):
            crashing.flush()
        simulation.advance(1.1 * GRACE)
        container.collect_garbage()
        with recovered(without_log(simulation.store)) as alone:
            info = alone.info("s/a")
            assert alone.read("s/a", 0, info.length) in (b"012", b"012more"), f"after request {number}"
        if not store.crashed:
            break
    assert number > 5
