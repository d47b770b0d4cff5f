"""The log on the simulated store (on all backends in tests/backends), and what its protocol says of single requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgpack
import pytest

from chunkstore import PutUnknown, StorageError, StorageUnavailable, Store
from chunkstore.paths import ContainerId
from chunkstore.port import joined
from chunkstore.testing import CountingStore, FaultStore, Request, SimulatedStore
from chunkstore.testing.faults import Fault, Plan
from chunkstore.wrapping import Result, WrappingStore
from engine.errors import FrameDamaged, LogMoved, OutcomeUnknown, Overtaken
from engine.logs import frames
from engine.logs.frames import START, Kind, Position
from engine.logs.log import (
    address_of,
    age_evidence_path,
    checkpoint_path,
    checkpoints_folder,
    frame_path,
    frames_folder,
)
from tests.support.log_contracts import LogContract, append, append_in_turn, contents, metas, open_log, raised
from tests.support.processes import ByHand
from tests.support.simulation import Simulation


class TestSimulated(LogContract):
    @pytest.fixture
    def store(self) -> Store:
        return SimulatedStore()


@pytest.fixture
def store() -> SimulatedStore:
    return SimulatedStore()


def puts_fail(**faults: str) -> Plan:
    """A plan by which the first put of each of these frames fails; the names are "at" and the address."""
    left = {frame_path(0, int(name[2:])): when for name, when in faults.items()}

    def plan(_: int, request: Request) -> Fault | None:
        when = left.pop(request.paths[0], None) if request.verb == "put_if_absent" else None
        return Fault(when) if when else None  # type: ignore[arg-type]

    return plan


# -- W1


def becomes_live(store: Store, meta: bytes, head: Position, writer: bytes | None = None) -> bool:
    """Whether a frame at the end of the log does that names `head` as its predecessor, and counts its epoch from it."""
    log = open_log(store, new_writer=lambda: writer) if writer else open_log(store)
    log.follow()
    log.head = head
    append(log, meta)
    return meta in contents(store)


def test_another_writer_must_raise_the_epoch_by_one(store: SimulatedStore) -> None:
    log = open_log(store)
    append(log, b"a")
    head = log.head
    assert not becomes_live(store, b"same epoch", head._replace(epoch=head.epoch - 1))
    assert not becomes_live(store, b"two higher", head._replace(epoch=head.epoch + 1))
    assert becomes_live(store, b"one higher", head)


def test_the_same_writer_must_keep_its_epoch(store: SimulatedStore) -> None:
    log = open_log(store)
    append(log, b"a")
    head = log.head
    assert not becomes_live(store, b"one higher", head._replace(epoch=head.epoch + 1), head.writer)
    assert becomes_live(store, b"same epoch", head, head.writer)


def test_a_frame_must_name_writer_and_address_before_it(store: SimulatedStore) -> None:
    log = open_log(store)
    append(log, b"a", b"b")
    head = log.head
    assert not becomes_live(store, b"other address", head._replace(address=0))
    assert not becomes_live(store, b"other writer", head._replace(writer=b"x" * 16))
    assert not becomes_live(store, b"other content", head._replace(seal=head.seal ^ 1))
    assert becomes_live(store, b"as it must", head)


def test_metadata_of_a_frame_is_never_read_twice(store: SimulatedStore) -> None:
    """A follower that is up to date makes one request for nothing, and two for one new frame."""
    counting = CountingStore(store)
    writer, reader = open_log(store), open_log(counting)
    reader.follow()
    assert counting.counts == {"read_ranges": 2} and len(counting.requests[0].paths) == 1  # and one behind the end
    counting.reset()
    reader.follow()
    assert counting.counts == {"read_ranges": 1} and len(counting.requests[0].paths) == 1
    append(writer, b"a")
    counting.reset()
    assert metas(reader.follow()) == [b"a"]
    assert counting.counts == {"read_ranges": 2} and sum(len(request.paths) for request in counting.requests) == 3


# -- W2 and W3


def test_frames_are_acknowledged_in_order_only(store: SimulatedStore) -> None:
    executor = ByHand()
    log = open_log(store, executor=executor)
    for meta in (b"first", b"second"):
        log.send(meta, [], meta)
    executor.land(1)
    assert not log.flights[0].future.done() and contents(store) == []
    executor.land()
    assert [log.settle().body, log.settle().body] == [b"first", b"second"]
    assert contents(store) == [b"first", b"second"]


def test_a_frame_that_never_landed_gives_no_life_to_those_behind_it(store: SimulatedStore) -> None:
    """Of three frames in flight the first lost to a void frame, the second failed, the third landed: the next frame at
    the second's place must not make the third live, which was reported lost."""
    log = open_log(FaultStore(store, puts_fail(at2="before")))
    append(log, b"first")
    store.put_if_absent(frame_path(0, 1), frames.encode(0, Position(1, b"z" * 16, 9), 1, START, b"void"))
    for number in range(3):
        log.send(b"lost %d" % number, [], None)
    raised(Overtaken, log.settle)
    log.drop()
    assert log.follow() == []
    append(log, b"next")
    assert contents(store) == [b"first", b"next"]


def test_frames_that_land_late_are_void(store: SimulatedStore) -> None:
    store.late = 1.0
    log = open_log(store, timeout=0.0)
    for meta in (b"given up 0", b"given up 1"):
        log.send(meta, [], None)
    raised(OutcomeUnknown, log.settle)
    log.renew()
    store.late = 0.0
    append_in_turn(log, b"new")
    store.arrive()
    assert contents(store) in ([b"new"], [b"given up 0", b"new"], [b"given up 0", b"given up 1", b"new"])
    append_in_turn(log, b"newer")
    assert contents(store)[-2:] == [b"new", b"newer"]


def test_a_refusal_after_an_unknown_outcome_leaves_it_unknown(store: SimulatedStore) -> None:
    """The first request may have made the frame, so that the second is refused says nothing."""

    class FullDisk(FaultStore):
        def put_if_absent(self, path: str, data: Any) -> Any:
            if self.passed:
                raise StorageError("the disk is full")
            return super().put_if_absent(path, data)

    log = open_log(FullDisk(store, lambda at, request: Fault("after")))
    log.send(b"made", [], None)
    raised(OutcomeUnknown, log.settle)
    assert contents(store) == [b"made"]


def test_a_refusal_at_once_is_told_as_it_is(store: SimulatedStore) -> None:
    class Refusing(FaultStore):
        def put_if_absent(self, path: str, data: Any) -> Any:
            raise StorageError("the disk is full")

    log = open_log(Refusing(store))
    log.send(b"refused", [], None)
    assert not isinstance(raised(StorageError, log.settle), PutUnknown)


def test_the_same_bytes_are_put_again_at_the_same_address(store: SimulatedStore) -> None:
    seen: list[tuple[str, bytes]] = []

    class Watched(FaultStore):
        def put_if_absent(self, path: str, data: Any) -> Any:
            seen.append((path, bytes(joined(data))))
            return super().put_if_absent(path, data)

    log = open_log(Watched(store, lambda at, request: Fault("before") if at <= 3 else None))
    append(log, b"a")
    assert len(seen) == 4 and len(set(seen)) == 1


def test_nothing_read_before_a_failure_is_lost(store: SimulatedStore) -> None:
    """A follower that fails half-way has passed frames that its owner has not seen; they are in the next answer."""
    append(open_log(store), *(b"%d" % number for number in range(10)))
    failing = FaultStore(store, lambda at, request: Fault("before") if at >= 3 else None)
    log = open_log(failing, timeout=0.0)
    raised(StorageUnavailable, log.follow)
    assert log.head.address > 0
    failing.plan = None
    assert metas(log.follow()) == [b"%d" % number for number in range(10)]


def test_reading_many_at_once_may_be_too_much(store: SimulatedStore) -> None:
    """A storage that fails whenever it is asked for several objects slows a follower down; it hides nothing from it."""
    append(open_log(store), *(b"%d" % number for number in range(10)))
    log = open_log(FaultStore(store, lambda at, request: Fault("before") if len(request.paths) > 1 else None))
    assert metas(log.follow()) == [b"%d" % number for number in range(10)]


# -- W7


class Sleeper:
    """A log whose clock the test sets, on a store of which frames 0 to 4 are deleted behind a truncation point at 5."""

    def __init__(self, store: Store, plan: Plan | None = None, timeout: float = 60.0) -> None:
        self.now = 0.0
        self.store = store
        self.requests = FaultStore(store, plan)
        self.executor = ByHand()
        self.log = open_log(self.requests, grace=10.0, executor=self.executor, clock=lambda: self.now, timeout=timeout)
        self.log.follow()

    def meanwhile(self) -> None:
        """Others append, make a checkpoint, and truncate."""
        others = open_log(self.store)
        others.follow()
        while others.upcoming().address < 6:
            append(others, b"other %d" % others.upcoming().address)
        self.store.put_if_absent(checkpoint_path(0, 5), bytes(24))
        self.store.delete([frame_path(0, address) for address in range(5)])


def test_a_create_at_a_deleted_address_is_not_acknowledged(store: SimulatedStore) -> None:
    sleeper = Sleeper(store)
    sleeper.log.send(b"late", [], None)
    sleeper.meanwhile()
    sleeper.now = 5.1
    sleeper.executor.land()
    assert sleeper.log.flights[0].future.result().outcome.value == "mine"
    raised(LogMoved, sleeper.log.settle)


def test_a_truncation_point_that_is_gone_is_no_proof(store: SimulatedStore) -> None:
    """Another storage lies where the log was: that nothing covers the address there says nothing."""
    sleeper = Sleeper(store)
    store.put_if_absent(checkpoint_path(0, 5), bytes(24))
    assert sleeper.log.log_start() == 5
    sleeper.log.send(b"late", [], None)
    sleeper.executor.land()
    store.delete([checkpoint_path(0, 5)])
    sleeper.now = 5.1
    assert "mounted" in str(raised(OutcomeUnknown, sleeper.log.settle))


def test_a_truncation_point_that_is_replaced_while_it_is_listed_is_not_lost(store: SimulatedStore) -> None:
    """The listing has passed the new one's place before that is made, and comes to the old one when it is deleted."""

    class Replacing(WrappingStore):
        replaces = False

        def _carry_out(self, request: Request, call: Callable[[], Result]) -> Result:
            if request.verb == "list" and self.replaces:
                self.replaces = False
                store.delete([checkpoint_path(0, 5)])
                found = call()
                store.put_if_absent(checkpoint_path(0, 9), bytes(24))
                return found
            return call()

    store.put_if_absent(checkpoint_path(0, 5), bytes(24))
    through = Replacing(store)
    log = open_log(through)
    assert log.log_start() == 5
    through.replaces = True
    assert log.log_start() == 9


def test_half_the_grace_period_needs_no_look_at_the_truncation_point(store: SimulatedStore) -> None:
    counting = CountingStore(store)
    sleeper = Sleeper(counting)
    sleeper.log.send(b"in time", [], None)
    sleeper.now = 4.9
    sleeper.executor.land()
    sleeper.log.settle()
    assert not counting.count("list")


def test_a_proof_counts_from_before_its_request(store: SimulatedStore) -> None:
    """Sent at 0, answered and settled at 4.9: at 5.1 that proves nothing any more."""
    sleeper = Sleeper(store)
    sleeper.log.send(b"sent at 0", [], None)
    sleeper.executor.land()
    sleeper.now = 4.9
    sleeper.log.settle()
    sleeper.meanwhile()
    sleeper.now = 5.1
    raised(LogMoved, sleeper.log.follow)


def test_a_miss_counts_from_before_its_request(store: SimulatedStore) -> None:
    sleeper = Sleeper(store)

    def slow(_: int, request: Request) -> Fault | None:
        sleeper.now += 4.9
        return None

    sleeper.requests.plan = slow
    assert sleeper.log.follow() == []  # sent at 0, answered at 4.9
    sleeper.requests.plan = None
    sleeper.meanwhile()
    sleeper.now = 5.1
    raised(LogMoved, sleeper.log.follow)


def test_a_present_frame_proves_nothing(store: SimulatedStore) -> None:
    """A sleeper finds a frame that another sleeper made at a deleted address."""
    sleeper = Sleeper(store)
    zombie = open_log(store)
    sleeper.meanwhile()
    zombie.send(b"made by a zombie", [], None)
    sleeper.now = 5.1
    raised(LogMoved, sleeper.log.follow)


def test_reading_for_longer_than_the_grace_period_proves_nothing(store: SimulatedStore) -> None:
    """Each request in time after the one before, but all of them together not: those still to come may be deleted."""
    sleeper = Sleeper(store)
    others = open_log(store)
    append(others, *(b"%d" % number for number in range(8)))
    store.put_if_absent(checkpoint_path(0, 7), bytes(24))
    sleeper.now = 3.0

    def slow(_: int, request: Request) -> Fault | None:
        sleeper.now += 1.9
        return None

    sleeper.requests.plan = slow
    raised(LogMoved, sleeper.log.follow)


def test_a_race_lost_at_a_deleted_address_is_no_proof_of_loss(store: SimulatedStore) -> None:
    """Our frame was live, then deleted, and another sleeper's frame stands there now: the outcome is not known."""
    sleeper = Sleeper(store, puts_fail(at0="after"))
    sleeper.log.send(b"live", [], None)
    sleeper.executor.land()
    assert contents(store) == [b"live"]
    sleeper.meanwhile()
    zombie = open_log(store)
    zombie.send(b"made by a zombie", [], None)
    sleeper.now = 5.1
    sleeper.executor.inline = True  # the put is repeated, and finds the other's frame
    raised(LogMoved, sleeper.log.settle)


def test_an_unreachable_truncation_point_leaves_the_outcome_unknown(store: SimulatedStore) -> None:
    sleeper = Sleeper(store, lambda at, request: Fault("before") if request.verb == "list" else None, timeout=0.0)
    sleeper.log.send(b"there", [], None)
    sleeper.executor.land()
    sleeper.now = 5.1
    raised(OutcomeUnknown, sleeper.log.settle)
    assert contents(store) == [b"there"]


# -- W8


def test_only_the_right_repair_passes_over_damage(store: SimulatedStore) -> None:
    log = open_log(store)
    append(log, b"a", b"damaged")
    store.put(frame_path(0, 1), b"?" * 100)
    reader = open_log(store)
    raised(FrameDamaged, reader.follow)
    first = reader.head
    operator = Position(2, b"o" * 16, 2)

    def repair(predecessor: Position, address: int, kind: Kind = Kind.REPAIR) -> None:
        meta = msgpack.packb([address, 0, None])
        store.put(frame_path(0, 2), frames.encode(0, operator, 1, predecessor, meta, (), kind))

    for predecessor, address, kind in (
        (first, 7, Kind.REPAIR),
        (first._replace(writer=b"x" * 16), 1, Kind.REPAIR),
        (first._replace(address=1), 1, Kind.REPAIR),
        (first, 1, Kind.DATA),
    ):
        repair(predecessor, address, kind)
        raised(FrameDamaged, open_log(store).follow)
    repair(first, 1)
    assert [frame.kind for frame in open_log(store).follow()] == [Kind.DATA, Kind.REPAIR]


def test_a_container_stops_at_damage_and_goes_on_after_the_repair() -> None:
    simulation = Simulation()
    writer, other = simulation.open(), simulation.open()
    writer.create_segment("s")
    writer.append("s", b"kept")
    other.refresh()
    address = writer.head.address + 1
    writer.append("s", b"damaged")
    whole = simulation.store.read(frame_path(0, address))
    simulation.store.put(frame_path(0, address), whole[:60] + b"?" + whole[61:])
    for use in (other.refresh, simulation.open):
        damage = raised(FrameDamaged, use)
        assert frame_path(0, address) in str(damage) and f"repair(container, {address})" in str(damage)
    other.repair(address)
    assert other.append("s", b"after") == 4
    newcomers = [simulation.open(), simulation.open()]
    for container in (other, *newcomers):
        assert container.read("s", 0, 9) == b"keptafter"
        assert container.head == other.head
    kinds = {frame.kind for frame in open_log(simulation.store).follow()}
    assert kinds == {Kind.DATA, Kind.REPAIR}


# -- W6: what opening costs


def test_opening_costs_no_more_after_10_000_commits_than_after_10() -> None:
    """Requests, with a checkpoint every few frames and truncation. The worst of ten openings in a row is taken, as the
    cost goes up and down with the frames since the last checkpoint."""
    simulation = Simulation(maintenance=True, grace=60.0)
    container = simulation.open()
    container.create_segment("s")

    def worst(commits: int) -> tuple[int, int]:
        costs: list[tuple[int, int]] = []
        while True:
            length = container.state.segment("s").length // 4
            if length == commits + 10:
                return max(costs)
            if length >= commits:
                counting = CountingStore(simulation.store)
                assert simulation.open(through=counting, maintenance=False).info("s").length == 4 * length
                costs.append((sum(counting.counts.values()), len([p for r in counting.requests for p in r.paths])))
            container.append("s", b"data")
            simulation.advance(1.0)

    early = worst(10)
    late = worst(10_000)
    assert late <= early
    left = simulation.store.list("_system/containers/0/")
    assert len(left) < 1200, "truncation keeps what is not flushed, and no more"


# -- W6, W7: where its objects lie


def test_the_names_of_a_logs_objects_are_fixed() -> None:
    of_root = ContainerId(3, "0123456789abcdef" * 2)
    for container, folder in ((3, ""), (of_root, f"{of_root.generation}/")):
        assert frames_folder(container) == f"_system/containers/3/wal/{folder}"
        assert frame_path(container, 5) == f"_system/containers/3/wal/{folder}00000000000000000005"
        assert checkpoints_folder(container) == f"_system/containers/3/checkpoints/{folder}"
        assert checkpoint_path(container, 5) == f"_system/containers/3/checkpoints/{folder}00000000000000000005"
        assert age_evidence_path(container) == f"_system/containers/3/witness/{folder}newest"
    assert address_of(frame_path(of_root, 1 << 62)) == 1 << 62
