"""A durable log by itself: complete without whoever looks after it, and what its observers are told and asked."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from chunkstore import ObjectInfo, StorageFull, StorageUnavailable
from chunkstore.room import SMALL_ADDITIONS, USERS_DATA
from chunkstore.testing import FaultStore
from engine.clocks import StorageClock
from engine.errors import SegmentExists, Throttled
from engine.logs.durable_log import DurableLog
from engine.logs.frames import Position
from engine.logs.log import checkpoints_folder
from engine.logs.observer import LogObserver
from engine.settings import Settings
from engine.state.operations import Append, Checkpoint, CreateSegment, Payload, TruncateSegment
from engine.state.state import State
from engine.storage.cache import Cache
from engine.storage.container_storage import ContainerStorage
from engine.storage.lookups import Lookups
from engine.storage.object_reads import Stores
from tests.engine.logs.company import Company, appended
from tests.support.simulation import Simulation


def opened(simulation: Simulation, **settings: int | float) -> DurableLog:
    store = simulation.store
    stores, clock = Stores(store, store), StorageClock(store, lambda: store.now, simulation.clock)
    storage = ContainerStorage(stores, 0, Lookups(stores, 0, Cache()), clock.now)
    return DurableLog(
        store,
        0,
        Settings(threaded=False, **settings),  # type: ignore[arg-type]
        storage,
        store_clock=clock,
        now=clock.known,
        clock=simulation.clock,
        sleep=simulation.advance,
    )


class Watching(LogObserver):
    """An observer that notes what it is told."""

    def __init__(self, checkpoints: bool = False) -> None:
        self.openings: list[int] = []
        self.frames: list[tuple[int, bool]] = []
        self.relieved = 0
        self.made_room = 0
        self._checkpoints = checkpoints

    def opened(self, listed: Sequence[ObjectInfo]) -> None:
        self.openings.append(len(listed))

    def checkpoint_due(self, frames: int) -> bool:
        return self._checkpoints

    def committed(self, position: Position, state: State, checkpoint: bool) -> None:
        self.frames.append((position.address, checkpoint))

    def relieve(self) -> str:
        self.relieved += 1
        return "LTS is full"

    def make_room(self) -> None:
        self.made_room += 1


def test_a_log_that_nobody_looks_after_is_complete() -> None:
    simulation = Simulation()
    log, other = opened(simulation), opened(simulation)
    assert log.commit([CreateSegment("s")]).address == 0
    with pytest.raises(SegmentExists):
        other.commit([CreateSegment("s")])
    for number in range(20):
        assert other.commit([Append("s", Payload(b"x"))]).results == [number]
    assert log.refresh() == other.state and log.head == other.head
    assert not log.checkpoints and not simulation.store.list(checkpoints_folder(0))
    log.close()
    other.close()


def test_the_observer_is_told_of_own_frames_and_asked_for_checkpoints() -> None:
    simulation = Simulation()
    log, other = opened(simulation), opened(simulation)
    watching = Watching(checkpoints=True)
    log.observe(watching)
    log.commit([CreateSegment("s")])
    other.commit([Append("s", Payload(b"x"))])
    log.commit([Append("s", Payload(b"y"))])
    assert watching.frames == [(0, True), (2, True)]
    log.write_checkpoint(log.head, log.state)
    assert log.log_start() == 2 and len(opened(simulation).checkpoints) == 1
    assert opened(simulation).state == log.state, "it is opened from there"


def test_the_observer_hears_of_a_log_that_had_to_be_opened_again() -> None:
    """Who slept for longer than the grace period begins again at the newest checkpoint (W7)."""
    simulation, watching = Simulation(), Watching()
    log, other = opened(simulation), opened(simulation)
    log.observe(watching)
    log.commit([CreateSegment("s")])
    for _ in range(3):
        other.commit([Append("s", Payload(b"x")), Checkpoint()])
    other.write_checkpoint(other.head, other.state)
    simulation.advance(1000)
    assert log.refresh() == other.state
    assert watching.openings == [1] and len(log.checkpoints) == 1


def test_whoever_waits_for_room_hears_what_is_wrong() -> None:
    log, watching = opened(Simulation(), backlog_bytes=1000, timeout=1.0), Watching()
    log.observe(watching)
    log.commit([CreateSegment("s"), Append("s", Payload(bytes(900)))])
    with pytest.raises(Throttled, match="LTS is full"):
        log.commit([Append("s", Payload(bytes(900)))])
    assert watching.relieved and log.outstanding == 0


def test_room_is_given_back_whatever_becomes_of_the_operation() -> None:
    simulation = Simulation()
    broken = FaultStore(simulation.store, verbs=["put_if_absent"])
    with simulation.open(through=broken) as container:
        container.create_segment("s")
        broken.plan = lambda at, request: (_ for _ in ()).throw(StorageUnavailable("no answer"))
        with pytest.raises(Exception, match="no answer"):
            container.append("s", bytes(100))
        with pytest.raises(ValueError, match="reserved"):
            container.commit([Append("s", Payload(bytes(100))), CreateSegment("_system/s")])
        assert container.log.outstanding == 0


def test_each_append_of_a_frame_gets_its_own_offset() -> None:
    company = Company(others=0)
    futures = [company.maker.submit([appended(data)]) for data in (b"one", b"three", b"six")]
    company.turn()
    receipts = [future.result(0) for future in futures]
    assert len({receipt.address for receipt in receipts}) == 1, "one frame"
    assert [receipt.results for receipt in receipts] == [[0], [3], [8]]
    assert company.content == b"onethreesix"


# --- room (P6) -------------------------------------------------------------------------------------------------------


def test_the_room_that_is_asked_for_is_that_of_all_that_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, float]] = []
    monkeypatch.setattr(ContainerStorage, "check_room", lambda _, size, part: asked.append((size, part)))
    company = Company(others=0)
    log = company.maker.log
    log.submit([appended(bytes(1000))])
    company.turn()
    backlog = log.state.backlog
    assert backlog > 1000
    asked.clear()
    log.submit([appended(bytes(200)), appended(bytes(30))])
    log.submit([appended(bytes(4))])
    log.check_room()
    assert log.outstanding == 234 and log.state.backlog == backlog
    assert asked == [
        (backlog + 230, SMALL_ADDITIONS),
        (backlog + 230 + 4, SMALL_ADDITIONS),
        (backlog + 234, USERS_DATA),
    ]


def test_where_there_is_no_room_only_additions_are_refused_and_the_observer_makes_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log, watching = opened(Simulation()), Watching()
    log.observe(watching)
    log.commit([CreateSegment("s"), Append("s", Payload(b"0123"))])

    def refuse(_: ContainerStorage, size: int, part: float) -> None:
        raise StorageFull("no room")

    monkeypatch.setattr(ContainerStorage, "check_room", refuse)
    for submit in (log.commit, log.submit):
        made = watching.made_room
        with pytest.raises(StorageFull, match="no room"):
            submit([Append("s", Payload(b"4"))])
        assert watching.made_room == made + 1
    with pytest.raises(StorageFull, match="no room"):
        log.check_room()
    assert watching.made_room == 3
    log.commit([TruncateSegment("s", 1)])
    assert watching.made_room == 3 and log.outstanding == 0
    assert (log.state.segments["s"].start_offset, log.state.segments["s"].length) == (1, 4)
