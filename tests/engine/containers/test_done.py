"""A flush returns when a recovery point covers what was acknowledged before it began, whoever else flushes (W17)."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from chunkstore.errors import StorageError, StorageUnavailable
from chunkstore.paths import is_log
from chunkstore.port import Store
from chunkstore.testing import Crashed, FaultStore, Request, WrappingStore, crash_at
from chunkstore.wrapping import WRITES, Result
from engine.containers.container import Container
from engine.errors import ContainerOffline, FlushIncomplete, FlushOvertaken
from engine.state.operations import AbortCycle, BeginCycle
from engine.storage import recovery, recovery_points
from engine.storage.recovery import NothingToRecover
from tests.support.simulation import Simulation

KEPT = b"acknowledged before the flush"


class Paused(WrappingStore):
    """Holds the process at its write of this number, counted from `count()` on, until `resume()`."""

    def __init__(self, inner: Store, number: int) -> None:
        super().__init__(inner)
        self.passed: int | None = None
        self.reached, self._resumed = threading.Event(), threading.Event()
        self._number = number

    def count(self) -> None:
        self.passed = 0

    def resume(self) -> None:
        self._resumed.set()

    def _carry_out(self, request: Request, call: Callable[[], Result]) -> Result:
        if self.passed is not None and request.verb in WRITES:
            self.passed += 1
            if self.passed == self._number:
                self.reached.set()
                assert self._resumed.wait(60)
        return call()


class Flush(threading.Thread):
    """A process that flushes, held at a write. result: what the flush returned, or its error."""

    def __init__(self, simulation: Simulation, number: int) -> None:
        super().__init__()
        self.store = Paused(simulation.store, number)
        self.container = simulation.open(through=self.store)
        self.result: int | Exception | None = None
        self.store.count()

    def run(self) -> None:
        try:
            self.result = self.container.flush()
        except Exception as error:
            self.result = error
        finally:
            self.store.reached.set()

    def start(self) -> None:
        """Run up to the write where it is held, or to the end."""
        super().start()
        assert self.store.reached.wait(60)

    def finish(self) -> None:
        self.store.resume()
        self.join(60)
        assert not self.is_alive()
        assert isinstance(self.result, int), self.result


def in_lts(simulation: Simulation) -> bytes:
    """What a recovery finds of the segment when the log is lost."""
    copy = Simulation()
    copy.store.now = simulation.store.now
    for info in simulation.store.list(""):
        if not is_log(info.path):
            copy.store.put(info.path, simulation.store.read(info.path))
    recovery.recover(copy.stores, 0)
    container = copy.open()
    return container.read("s/a", 0, container.info("s/a").length)


def prepared() -> tuple[Simulation, Container]:
    simulation = Simulation(poll=1.0)
    container = simulation.open()
    container.create_segment("s/a")
    container.flush()
    container.append("s/a", KEPT)
    return simulation, container


def writes_of_a_flush() -> int:
    simulation, _ = prepared()
    flush = Flush(simulation, 0)
    flush.start()
    flush.finish()
    assert flush.store.passed
    return flush.store.passed


def test_a_flush_that_is_overtaken_at_any_step_returns_when_its_data_is_covered() -> None:
    """Another process begins a cycle at each step of it, and is held at each of its own steps, as long as it likes."""
    steps, early = writes_of_a_flush(), 0
    for at in range(1, steps + 1):
        for held in range(1, steps + 2):
            simulation, container = prepared()
            one, other = Flush(simulation, at), Flush(simulation, held)
            one.start()
            container.append("s/a", b", and more")
            other.start()
            one.finish()
            assert in_lts(simulation).startswith(KEPT), f"returned at {at}, the other was at {held}: not in LTS"
            early += other.is_alive()
            other.finish()
            assert in_lts(simulation) == KEPT + b", and more", f"the later one, {at} {held}: a recovery point is gone"
            point = recovery_points.newest(simulation.store, 0)
            assert point is not None and point.state.cycle.sequence <= container.refresh().cycle.recovery_point
    print(f"{steps} steps: {steps * (steps + 1)} cases, in {early} the other one was still held")
    assert steps >= 6 and early > steps


def dies_in_a_flush(simulation: Simulation, held: int) -> Callable[[int, Request], None]:
    """At the first object that is put, another process begins a flush, and dies after its write `held`."""
    died: list[int] = []

    def overtake(number: int, request: Request) -> None:
        if request.verb == "put" and not died:
            died.append(number)
            another = simulation.open(through=FaultStore(simulation.store, crash_at(held, "after"), verbs=WRITES))
            with pytest.raises(Crashed):
                another.flush()

    return overtake


def test_a_flush_goes_on_where_the_process_that_overtook_it_died() -> None:
    for held in range(1, writes_of_a_flush()):
        simulation, _ = prepared()
        plan = dies_in_a_flush(simulation, held)
        simulation.open(through=FaultStore(simulation.store, plan, verbs=WRITES)).flush()
        assert in_lts(simulation) == KEPT, f"the other one died at its write {held}"


def test_a_flush_waits_for_a_later_one_that_is_at_work_and_no_longer_than_it_shows_life() -> None:
    simulation, container = prepared()
    other = simulation.open()

    class Overtaken(WrappingStore):
        begun = 0.0

        def _carry_out(self, request: Request, call: Callable[[], Result]) -> Result:
            if request.verb == "put" and not self.begun:
                self.begun = simulation.clock()
                other.commit([BeginCycle(other.refresh().cycle.number + 1)])
            return call()

    through = Overtaken(simulation.store)
    simulation.open(through=through, timeout=100.0).flush()
    assert 100 <= simulation.clock() - through.begun < 110
    assert in_lts(simulation) == KEPT
    assert container.refresh().cycle.number == 4


def test_flushes_that_are_always_overtaken_end_with_an_error_that_says_so() -> None:
    simulation, container = prepared()
    other = simulation.open()

    def overtake(number: int, request: Request) -> None:
        if request.verb == "put":
            cycle = other.refresh().cycle.number + 1
            other.commit([BeginCycle(cycle)])
            other.commit([AbortCycle(cycle, "")])

    wanted = container.refresh().sequence
    with pytest.raises(FlushIncomplete, match="8 flush cycles were begun, but none was completed") as raised:
        simulation.open(through=FaultStore(simulation.store, overtake, verbs=WRITES)).flush()
    assert raised.value.wanted == wanted > raised.value.covered >= 0
    assert container.flush() > 0 and in_lts(simulation) == KEPT


def test_a_flush_of_a_container_that_is_closed_meanwhile_fails() -> None:
    simulation, _ = prepared()
    closing: list[Container] = []

    def close(number: int, request: Request) -> None:
        if request.verb == "put":
            closing[0].writer.stop()

    closing.append(simulation.open(through=FaultStore(simulation.store, close, verbs=WRITES)))
    with pytest.raises(ContainerOffline, match="closed before its flush was complete"):
        closing[0].flush()


def test_a_late_recovery_point_deletes_no_newer_one() -> None:
    """An old cycle's process was stopped before it put its recovery point, and wakes after a newer cycle is
    complete."""
    simulation, container = prepared()
    late: list[tuple[str, bytes]] = []

    class Late(WrappingStore):
        def _carry_out(self, request: Request, call: Callable[[], Result]) -> Result:
            if request.verb == "put" and "recovery-points" in request.paths[0] and not late:
                late.append((request.paths[0], b""))
                container.append("s/a", b", and more")
                container.flush()
            return call()

    simulation.open(through=Late(simulation.store)).flush()
    assert late and in_lts(simulation) == KEPT + b", and more"
    newest = recovery_points.newest(simulation.store, 0)
    assert newest is not None and newest.state.cycle.sequence == container.refresh().cycle.recovery_point


def test_the_newest_recovery_point_is_found_while_others_replace_it() -> None:
    simulation, container = prepared()
    rounds = iter(range(3))

    def replace(number: int, request: Request) -> None:
        if "recovery-points" in request.paths[0] and next(rounds, None) is not None:
            container.flush()

    through = FaultStore(simulation.store, replace, verbs={"read"})
    newest = recovery_points.newest(through, 0)
    assert newest is not None and newest.number == container.refresh().cycle.number


@pytest.mark.parametrize("flushed", [False, True], ids=["unflushed", "flushed"])
def test_an_intact_log_without_a_checkpoint_is_not_given_up(flushed: bool) -> None:
    """It has its frames, whatever else there is: a recovery point knows less."""
    simulation = Simulation(checkpoint_frames=1000)
    container = simulation.open()
    container.flush()
    container.create_segment("s/a")
    container.append("s/a", KEPT)
    if flushed:
        container.flush()
    assert recovery_points.newest(simulation.store, 0) is not None
    with pytest.raises(NothingToRecover, match="its log still has its first frame, and more data"):
        recovery.recover(simulation.stores, 0)
    with pytest.raises(NothingToRecover, match="its log still has its first frame, and more data"):
        recovery.recoverable(simulation.stores, 0)
    assert simulation.open().read("s/a", 0, len(KEPT)) == KEPT
    assert recovery.recoverable(simulation.stores, 0, force=True).number == container.refresh().cycle.number
    recovery.recover(simulation.stores, 0, force=True)


class CheckpointsFail(WrappingStore):
    """The first so many requests that make a checkpoint fail."""

    def __init__(self, inner: Store, failing: int) -> None:
        super().__init__(inner)
        self.failing = failing

    def _carry_out(self, request: Request, call: Callable[[], Result]) -> Result:
        if request.verb in WRITES and "/checkpoints/" in request.paths[0] and self.failing:
            self.failing -= 1
            raise StorageUnavailable(f"{request.paths[0]}: no answer")
        return call()


def test_a_checkpoint_whose_first_request_fails_is_made_all_the_same() -> None:
    simulation, _ = prepared()
    through = CheckpointsFail(simulation.store, 1)
    container = simulation.open(through=through)
    container.checkpoint()
    assert not through.failing and container.log.log_start() == container.log.head.address


def test_a_checkpoint_that_cannot_be_made_says_so() -> None:
    simulation, _ = prepared()
    with pytest.raises(StorageError, match=r"the checkpoint at \d+ could not be written: .*no answer"):
        simulation.open(through=CheckpointsFail(simulation.store, 1000)).checkpoint()


def test_the_step_of_a_flush_that_is_over_is_refused() -> None:
    _, container = prepared()
    with pytest.raises(FlushOvertaken):
        container.commit([AbortCycle(container.refresh().cycle.number, "")])
