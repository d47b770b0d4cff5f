"""Orphans are found, only they are, and letting them go never takes anything away that somebody names, or will."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from chunkstore import Store
from chunkstore.chunk_names import new_chunk_name
from chunkstore.segments.storage import SegmentStorageConfig
from chunkstore.testing import WRITES, Crashed, FaultStore, Request, WrappingStore, crash_at
from engine.admin.orphans import AGE, NAMES, ImplausibleSweep, Sweep, check_plausible, expire_orphans, find_orphans
from engine.admin.verify import Report, Severity, verify
from engine.containers.container import Container
from engine.errors import ChunksExpired, DataCorruption, Rejected
from engine.logs.log import frame_path
from engine.root import Root, RootConfig
from engine.settings import Settings
from engine.state.attach_fence import CLOCKS, creation_time
from engine.state.operations import Append
from engine.state.segments import Extent
from engine.storage import recovery
from engine.storage.chunk_writer import write_chunk
from engine.storage.object_reads import Stores
from engine.writer import flush_context
from tests.support.simulation import Simulation, audit, small_sizes

DELAY = 600.0
Result = TypeVar("Result")


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    with small_sizes():
        yield


class SimulatedRoot(Root):
    """A root of one container, each opening of which is another process of the simulation."""

    def __init__(self, simulation: Simulation, through: Store | None = None) -> None:
        self.simulation = simulation
        self.through = through or simulation.store
        stores = Stores(self.through, self.through)
        super().__init__(stores, RootConfig("0" * 32, 1, DELAY, DELAY), Settings())

    def _start(self, number: int) -> Container:
        return self.simulation.open(through=self.through)


def found(root: Root, age: float = AGE, **others: Any) -> Sweep:
    return find_orphans(root, lambda segment: 0, age, **others)


def report_of(simulation: Simulation, deep: bool = True) -> Report:
    root = SimulatedRoot(simulation)
    return verify(root, deep=deep, opener=lambda root, number: simulation.open())


def assert_healthy(simulation: Simulation, orphans: int = 0) -> None:
    report = report_of(simulation)
    wrong = [finding for finding in report.findings if finding.severity is not Severity.FOREIGN]
    assert wrong == [] and report.orphans is not None
    assert report.orphans.number == orphans, report.orphans.names
    audit(simulation.open().state)


def unattached(store: Store, data: bytes = b"nobody's", segment: str = "s") -> Extent:
    """A chunk as a task leaves it."""
    (extent,) = write_chunk(store, new_chunk_name(segment, 3, 0), [[data]])
    return extent


def collect(simulation: Simulation) -> int:
    """What upkeep does once the delay is over."""
    simulation.advance(1.1 * DELAY)
    container = simulation.open()
    container.flush()
    return container.collect_garbage()


def forgotten(simulation: Simulation, path: object) -> bool:
    """Whether an object is deleted, and nobody knows that it was."""
    there = any(info.path == path for info in simulation.store.list(""))
    return not there and path not in simulation.open().state.garbage


@pytest.fixture
def simulation() -> Simulation:
    """A root in which everything lies somewhere: attached, flushed, in tables, garbage, and a recovery point."""
    simulation = Simulation(grace=DELAY, garbage_delay=DELAY)
    container = simulation.open()
    container.create_segment("s")
    container.create_segment("gone")
    for size in (500, 70, 300):
        container.append("s", random.Random(size).randbytes(size))
        container.commit([Append("s", (unattached(simulation.store, bytes(size)),))])
        container.append("gone", bytes(size))
        container.put_entries("t", {f"k{size + n}": bytes(20) for n in range(30)})
        container.flush()
    container.delete("gone")
    container.append("s", b"only in the log")
    container.commit([Append("s", (unattached(simulation.store, b"attached"),))])
    container.checkpoint()
    return simulation


def test_where_nothing_is_lost_nothing_is_found(simulation: Simulation) -> None:
    root, counts = SimulatedRoot(simulation), list[int]()
    simulation.advance(2 * AGE)
    before = [(info.path, info.modified) for info in simulation.store.list("")]
    sweep = found(root, progress=counts.append)
    assert sweep.orphans == () and sweep.recent == sweep.unknown == sweep.bytes == 0 and sweep.examined > 10
    assert counts == [len(before)]
    assert [(info.path, info.modified) for info in simulation.store.list("")] == before
    assert expire_orphans(root, sweep) == 0
    assert_healthy(simulation)


def test_every_kind_of_orphan_goes_and_nothing_else(simulation: Simulation) -> None:
    store, unique = simulation.store, uuid.uuid4()
    tables = f"_system/containers/0/E-4-S-17.{unique}"
    ours = [unattached(store).source, unattached(store, segment="s.2").source, tables, f"never/was.E-1-O-0.{unique}"]
    strange = ["notes.txt", "s/a$header", "s.E-1-O-0.1234", "_system/containers/0/other", "_system/containers/7/E-1"]
    for path in (*ours[2:], *strange):
        store.put(str(path), b"12345")
    root = SimulatedRoot(simulation)
    young = found(root)
    assert young.orphans == () and young.recent == 4 and young.unknown == len(strange)
    simulation.advance(1.1 * AGE)
    late = unattached(store).source
    sweep = found(root)
    assert sorted(orphan.path for orphan in sweep.orphans) == sorted(map(str, ours))
    assert sweep.recent == 1 and sweep.unknown_names == tuple(sorted(strange)) and sweep.bytes == 26
    before = {info.path for info in store.list("")}
    assert expire_orphans(root, sweep, 1) == 0
    assert {info.path for info in store.list("")} >= before  # the log alone has grown
    assert found(root).orphans == ()
    collect(simulation)
    left = {info.path for info in store.list("")}
    assert not left & set(map(str, ours)) and left >= {*strange, late}
    foreign = [name for name in strange if name.startswith("_system/")]  # which `verify` tells apart
    assert_healthy(simulation, orphans=len(strange) - len(foreign) + 1)


def test_only_so_many_unknown_names_are_told(simulation: Simulation) -> None:
    for number in range(NAMES + 5):
        simulation.store.put(f"x/{number}", b"")
    sweep = found(SimulatedRoot(simulation))
    assert (sweep.unknown, len(sweep.unknown_names)) == (NAMES + 5, NAMES)


def test_the_age_is_by_the_clock_of_the_store(simulation: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    unattached(simulation.store)
    simulation.advance(1000)
    monkeypatch.setattr("time.time", lambda: 0.0)
    root = SimulatedRoot(simulation)
    assert len(found(root, 999).orphans) == 1 and len(found(root, 1001).orphans) == 0
    with pytest.raises(ValueError, match="age=-1"):
        found(root, -1)


# --- what others do meanwhile ---------------------------------------------------------------------------------------


def test_what_was_given_up_cannot_be_attached(simulation: Simulation) -> None:
    extent, root = unattached(simulation.store), SimulatedRoot(simulation)
    simulation.advance(2 * AGE)
    made = creation_time(simulation.store.now)
    expire_orphans(root, found(root))
    with pytest.raises(Rejected, match="is garbage"):
        simulation.open().commit([Append("s", (extent,), created_at=made)])


@pytest.mark.parametrize("told", [True, False])
def test_what_was_given_up_and_collected_cannot_be_attached(simulation: Simulation, told: bool) -> None:
    """Whoever slept in between: what was collected is known by its name no more. What is younger can be."""
    made, extent = creation_time(simulation.store.now), unattached(simulation.store)
    simulation.advance(AGE)
    young = creation_time(simulation.store.now), unattached(simulation.store, b"young")
    simulation.advance(2 * CLOCKS)
    root = SimulatedRoot(simulation)
    sweep = found(root)
    assert [orphan.path for orphan in sweep.orphans] == [extent.source] and sweep.recent == 1
    expire_orphans(root, sweep)
    assert collect(simulation) and forgotten(simulation, extent.source)
    sleeper = simulation.open()
    length = sleeper.info("s").length
    with pytest.raises(ChunksExpired, match=r"Nothing was written.*--orphan-age"):
        sleeper.commit([Append("s", (extent,), created_at=made if told else 0)])
    assert sleeper.commit([Append("s", (young[1],), created_at=young[0])]).results == [length]
    again = creation_time(simulation.store.now), unattached(simulation.store, b" and once more")
    sleeper.commit([Append("s", (again[1],), created_at=again[0])])
    assert simulation.open().read("s", length, length + 19) == b"young and once more"
    assert_healthy(simulation)


def test_the_attach_fence_allows_for_clocks_that_differ(simulation: Simulation) -> None:
    """A writer's clock may be ahead; what is begun after the sweep is never refused."""
    container, now = simulation.open(), simulation.store.now
    unattached(simulation.store)
    for age, swept in ((2 * CLOCKS, now + 1 - CLOCKS), (CLOCKS / 2, now + 1), (0, now + 1)):
        simulation.store.now = now + 1
        assert found(SimulatedRoot(simulation), age).min_attach_time == swept * 1000
    ahead = creation_time(simulation.store.now + CLOCKS)
    extent = unattached(simulation.store)
    simulation.advance(AGE + 1)
    root = SimulatedRoot(simulation)
    expire_orphans(root, found(root))
    collect(simulation)
    with pytest.raises(ChunksExpired):
        container.commit([Append("s", (extent,), created_at=ahead)])
    simulation.store.now = now = simulation.store.now + 0.0004
    root = SimulatedRoot(simulation)
    extents = unattached(simulation.store), unattached(simulation.store)
    simulation.store.now += 0.0004  # within the same millisecond
    sweep = found(root, 0)
    assert len(sweep.orphans) == 2
    expire_orphans(root, sweep, 1)
    collect(simulation)
    with pytest.raises(ChunksExpired):
        container.commit([Append("s", extents, created_at=creation_time(now))])


def test_a_sweep_that_finds_nothing_writes_nothing(simulation: Simulation) -> None:
    root = SimulatedRoot(simulation)
    before = simulation.open().state
    unattached(simulation.store)
    assert expire_orphans(root, found(root)) == 0
    assert simulation.open().state == before and before.min_attach_time == 0


def sweep_one(simulation: Simulation) -> None:
    """A day later a clean-up gives up the only orphan, and it is deleted and forgotten."""
    simulation.advance(2 * AGE)
    root = SimulatedRoot(simulation)
    given = found(root)
    assert len(given.orphans) == 1
    expire_orphans(root, given, 1)
    assert collect(simulation) and forgotten(simulation, given.orphans[0].path)


def test_what_lost_a_race_is_refused_if_it_slept_too_long(simulation: Simulation) -> None:
    """A payload that went to a chunk, and was given up before the frame left that refers to it."""
    payload = random.Random(1).randbytes(1000)
    container = simulation.open()
    length = container.info("s").length
    pausing = Pausing(simulation.store, lambda path: path.startswith("s.E-"), partial(sweep_one, simulation))
    slow = simulation.open(through=pausing)
    container.append("s", b"faster")
    with pytest.raises(ChunksExpired):
        slow.append("s", payload)
    container.append("s", b"faster again")
    at = slow.append("s", payload)
    assert slow.state.chunks[str(slow.plan("s", at, at + 1)[0].path)], "it went to a chunk, which is young enough"
    assert at == length + 18 and simulation.open().read("s", at, at + 1000) == payload
    assert_healthy(simulation)


def test_a_relocated_chunk_of_a_cycle_that_slept(simulation: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a cycle copies to save space is named in a transaction of its own, which the cycle's number fences too."""
    config = partial(SegmentStorageConfig, relocate_min=10)
    monkeypatch.setattr(flush_context, "SegmentStorageConfig", config)
    container = simulation.open()
    container.create_segment("long")
    payload = random.Random(2).randbytes(400)
    container.append("long", payload)
    container.flush()
    container.truncate("long", 390)
    pausing = Pausing(simulation.store, lambda path: "O-390" in path, partial(sweep_one, simulation), "put")
    slow = simulation.open(through=pausing)
    slow.flush()
    assert pausing.happens is None
    collect(simulation)
    assert simulation.open().read("long", 390, 400) == payload[390:]
    assert_healthy(simulation)
    again = simulation.open()
    again.append("long", payload)
    again.flush()
    again.truncate("long", 790)
    again.flush()
    assert any("O-790" in info.path for info in simulation.store.list("")), "nothing is relocated any more"
    assert simulation.open().read("long", 790, 800) == payload[390:]


def test_a_recovery_gives_up_what_nobody_knows_of(simulation: Simulation) -> None:
    """The sweeps after the recovery point are forgotten with the log, and what they gave up may be deleted."""
    container = simulation.open()
    container.flush()
    made, extent = creation_time(simulation.store.now), unattached(simulation.store)
    simulation.advance(2 * AGE)
    root = SimulatedRoot(simulation)
    expire_orphans(root, found(root))
    fence = root.container(0).state.min_attach_time
    assert fence == found(root).min_attach_time > made
    recovery.recover(simulation.stores, 0, force=True)
    recovered = simulation.open()
    assert extent.source not in recovered.state.garbage
    assert recovered.state.min_attach_time >= fence
    with pytest.raises(ChunksExpired):
        recovered.commit([Append("s", (extent,), created_at=made)])
    simulation.advance(1)
    recovered.commit([Append("s", (unattached(simulation.store),), created_at=creation_time(simulation.store.now))])
    assert_healthy(simulation, orphans=1)


def test_a_repair_gives_up_what_nobody_knows_of(simulation: Simulation) -> None:
    """A sweep that hangs on a damaged frame is forgotten with it."""
    root = SimulatedRoot(simulation)
    container = root.container(0)
    made, extent = creation_time(simulation.store.now), unattached(simulation.store)
    simulation.advance(2 * AGE)
    address = container.refresh().checkpoint + 1
    container.append("s", b"damaged")
    address = container.head.address
    expire_orphans(root, found(root))
    simulation.store.put(frame_path(0, address), b"x" * 200)
    container.close()
    operator = simulation.open(repair=address)
    for repaired in (operator, simulation.open()):
        assert extent.source not in repaired.state.garbage
        assert repaired.state.min_attach_time >= creation_time(simulation.store.now)
        with pytest.raises(ChunksExpired):
            repaired.commit([Append("s", (extent,), created_at=made)])


def test_what_others_attached_lately_is_no_orphan(simulation: Simulation) -> None:
    root, extent = SimulatedRoot(simulation), unattached(simulation.store)
    root.container(0)
    simulation.advance(2 * AGE)
    simulation.open().commit([Append("s", (extent,))])
    assert found(root).orphans == ()


@pytest.mark.parametrize("flushed", [False, True])
def test_who_attaches_before_it_is_given_up_keeps_it(simulation: Simulation, flushed: bool) -> None:
    extent, root = unattached(simulation.store, b"just in time"), SimulatedRoot(simulation)
    simulation.advance(2 * AGE)
    sweep = found(root)
    assert len(sweep.orphans) == 1
    other = simulation.open()
    at = other.commit([Append("s", (extent,))]).results[0]
    if flushed:
        other.flush()
    assert expire_orphans(root, sweep) == (0 if flushed else 1)
    collect(simulation)
    assert simulation.open().read("s", at, at + 12) == b"just in time"
    assert_healthy(simulation)


class Pausing(WrappingStore):
    """Lets something happen right after the first put, or another request, of a path that is wanted."""

    def __init__(
        self, inner: Store, wanted: Callable[[str], bool], happens: Callable[[], None], verb: str = "put"
    ) -> None:
        super().__init__(inner)
        self.verb = verb
        self.wanted = wanted
        self.happens: Callable[[], None] | None = happens

    def _carry_out(self, request: Request, call: Callable[[], Result]) -> Result:
        result = call()
        if request.verb == self.verb and self.happens is not None and self.wanted(request.paths[0]):
            happens, self.happens = self.happens, None
            happens()
        return result


@pytest.mark.parametrize("kind", [".E-", "/E-"], ids=["chunk", "tables"])
@pytest.mark.parametrize("cycles", [0, 1], ids=["first cycle", "second cycle"])
@pytest.mark.parametrize("collected", [False, True])
def test_a_flush_that_slept_with_an_object_in_its_hands(kind: str, cycles: int, collected: bool) -> None:
    simulation = Simulation(grace=10 * AGE, garbage_delay=DELAY)
    container = simulation.open()
    container.create_segment("s")
    for _ in range(cycles):
        container.append("s", b"before")
        container.flush()
    container.append("s", b"slow")

    def sweep() -> None:
        simulation.advance(2 * AGE)
        root = SimulatedRoot(simulation)
        given = found(root)
        assert len(given.orphans) == 1
        expire_orphans(root, given, 1)
        simulation.advance(1.1 * DELAY)
        assert simulation.open().collect_garbage() == 0  # it may be committed yet
        if collected:
            assert collect(simulation) > 0

    slow = simulation.open(through=Pausing(simulation.store, lambda path: kind in path, sweep))
    with suppress(Rejected):
        slow.flush()
    slow.flush()
    expected = b"before" * cycles + b"slow"
    assert simulation.open().read("s", 0, len(expected)) == expected
    collect(simulation)
    assert_healthy(simulation)


def test_sweeps_at_any_time_take_nothing_away(simulation: Simulation) -> None:
    """With no age at all, so that everything that is under way is in danger, however long it waits."""
    dice, root = random.Random(7), SimulatedRoot(simulation)
    container = simulation.open()
    expected = container.read("s", 0, container.info("s").length)
    waiting: list[tuple[float, bytes, Extent]] = []
    rejected = given = attached = 0
    for step in range(150):
        match dice.randrange(7):
            case 0:
                data = dice.randbytes(dice.randint(1, 300))
                waiting.append((simulation.store.now, data, unattached(simulation.store, data)))
            case 1 if waiting:
                made, data, extent = waiting.pop(dice.randrange(len(waiting)))
                try:
                    container.commit([Append("s", (extent,), created_at=creation_time(made))])
                    expected += data
                    attached += bool(given)
                except Rejected:
                    rejected += 1
            case 2:
                container.append("s", b"x" * step)
                expected += b"x" * step
            case 3:
                container.flush()
            case 4:
                container.put_entries("t", {f"k{dice.randrange(50)}": dice.randbytes(20)})
            case 5:
                simulation.advance(1)
                sweep = found(root, 0)
                given += len(sweep.orphans)
                expire_orphans(root, sweep, 1)
            case 6:
                simulation.advance(dice.choice((1, DELAY / 3)))
                container.collect_garbage()
    assert rejected > 5 and given > 5 and attached > 2
    waiting.clear()
    simulation.advance(1)
    expire_orphans(root, found(root, 0), 1)
    collect(simulation)
    assert simulation.open().read("s", 0, len(expected)) == expected
    assert_healthy(simulation)


# --- when it stops --------------------------------------------------------------------------------------------------


def orphaned() -> Simulation:
    simulation = Simulation(grace=10 * AGE, garbage_delay=DELAY)
    container = simulation.open()
    container.create_segment("s")
    container.append("s", b"kept")
    container.flush()
    container.append("s", b" in the log")
    for segment in ("s", f"s.{container.info('s').id}", "s"):
        unattached(simulation.store, segment=segment)
    simulation.advance(2 * AGE)
    return simulation


def give_all_up(simulation: Simulation, through: Store) -> None:
    root = SimulatedRoot(simulation, through)
    expire_orphans(root, found(root), 1)
    simulation.advance(1.1 * DELAY)
    root.container(0).flush()
    root.container(0).collect_garbage()


def test_a_crash_at_any_request_does_no_harm() -> None:
    counting = FaultStore((simulation := orphaned()).store, verbs=WRITES)
    give_all_up(simulation, counting)
    assert counting.passed > 10
    for number in range(1, counting.passed + 1):
        for when in ("before", "after"):
            simulation = orphaned()
            with pytest.raises(Crashed):
                give_all_up(simulation, FaultStore(simulation.store, crash_at(number, when), WRITES))
            simulation.advance(2 * AGE)
            assert simulation.open().read("s", 0, 15) == b"kept in the log"
            assert list(report_of(simulation).findings) == []
            give_all_up(simulation, simulation.store)
            assert_healthy(simulation)
            assert simulation.open().read("s", 0, 15) == b"kept in the log"


def test_an_implausible_share_stops_it(simulation: Simulation) -> None:
    for _ in range(20):
        unattached(simulation.store)
    simulation.advance(2 * AGE)
    root = SimulatedRoot(simulation)
    sweep, before = found(root), simulation.open().state
    share = len(sweep.orphans) / sweep.examined
    with pytest.raises(ImplausibleSweep, match=r"20 of \d+ objects are orphans, such as 's\.E-3"):
        expire_orphans(root, sweep)
    with pytest.raises(ImplausibleSweep):
        check_plausible(root, sweep, share - 0.001)
    assert simulation.open().state.sequence == before.sequence
    with pytest.raises(ValueError, match="between 0 and 1"):
        check_plausible(root, sweep, 1.1)
    assert expire_orphans(root, sweep, share) == 0 and len(simulation.open().state.garbage) >= 20


def test_a_container_that_cannot_be_opened_stops_it(simulation: Simulation) -> None:
    unattached(simulation.store)
    simulation.advance(2 * AGE)
    checkpoint = simulation.store.list("_system/containers/0/checkpoints/")[-1].path
    simulation.store.put(checkpoint, b"damaged")
    with pytest.raises(DataCorruption, match="checkpoints"):
        found(SimulatedRoot(simulation))


def test_each_orphan_goes_to_the_container_that_owns_it(tmp_path: Path) -> None:
    """And every container is asked whether it names an object, whosever it is by its name."""
    with Root.open(str(tmp_path), containers=3, garbage_delay_seconds=0) as root:
        store = root.stores.chunks
        for number in range(3):
            root.container(number).create_segment(f"{number}/s")
        strayed = unattached(store, segment="0/s")
        root.container(2).commit([Append("2/s", (strayed,))])
        for number in range(3):
            unattached(store, segment=f"{number}/s")
        store.put(f"_system/containers/1/E-1-S-1.{uuid.uuid4()}", b"")
        store.put(f"_system/containers/3/E-1-S-1.{uuid.uuid4()}", b"")
        unattached(store, segment="9/s")

        def look(age: float = 0) -> Sweep:
            return find_orphans(root, lambda segment: int(segment.split("/")[0]), age)

        assert look(AGE).recent == 4
        while len((sweep := look()).orphans) < 4:  # until the clock of the storage has moved on
            pass
        assert sorted(orphan.container for orphan in sweep.orphans) == [0, 1, 1, 2] and sweep.unknown == 2
        expire_orphans(root, sweep, 1)
        assert [len(root.container(number).state.garbage) for number in range(3)] == [1, 2, 1]
        for number in range(3):
            root.container(number).flush()
            root.container(number).collect_garbage()
        assert root.container(2).read("2/s", 0, 8) == b"nobody's"
        assert look().orphans == ()
