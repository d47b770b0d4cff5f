"""Several writers with frames in flight, on a storage that loses, delays and reorders requests, under seeds (W2, W3).

What must hold is said in `World.check`: whoever reads, whenever he starts, sees the same live frames; what was
acknowledged is among them once and in its writer's order; what was reported lost is not. Planted bugs show that the
schedules find what they are to find.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext, suppress
from typing import Any
from unittest import mock

import pytest

from chunkstore import Outcome, PutUnknown, StorageError, StorageUnavailable
from chunkstore.testing import Request, SimulatedExecutor, WrappingStore
from chunkstore.wrapping import Result
from engine.containers.container import Container
from engine.errors import BadAttributeUpdate, EngineError, OutcomeUnknown
from engine.logs.frames import Frame
from engine.logs.log import Flight, Log, Put
from engine.logs.transaction import Receipt
from engine.state.operations import Append, AttributeUpdate, Payload, UpdateKind
from tests.engine.logs.stepped import Stepped
from tests.support.processes import ByHand, Process, World
from tests.support.simulation import Simulation, small_sizes

FAULTS: dict[str, dict[str, Any]] = {
    "reordered": {},
    "lost": {"fail_before": 0.15},
    "lost responses": {"fail_after": 0.2},
    "late": {"late": 0.1, "fail_after": 0.05},
    "everything": {"fail_before": 0.1, "fail_after": 0.1, "late": 0.05, "conflict": 0.05},
}


def run(seeds: range, steps: int, faults: dict[str, Any], process: type[Process] = Process) -> int:
    """The number of frames that became live in all."""
    live = 0
    for seed in seeds:
        world = World(seed, writers=2 + seed % 2, flights=1 + seed % 4, process=process, **faults)
        try:
            world.run(steps)
        except BaseException as error:
            error.args = (f"seed {seed}: {error}",)
            raise
        live += len(world.live)
    return live


@pytest.mark.parametrize("faults", FAULTS)
def test_nothing_is_lost_and_all_see_the_same(faults: str) -> None:
    assert run(range(25), 100, FAULTS[faults]) > 125


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("faults", FAULTS)
def test_nothing_is_lost_in_thousands_of_schedules(faults: str) -> None:
    assert run(range(1000, 2000), 150, FAULTS[faults]) > 5_000


# -- planted bugs


class Hasty(Process):
    """Acknowledges whichever frame has landed, not only the first in flight."""

    def settle(self) -> None:
        for flight in list(self.log.flights)[1:]:
            landed = flight.future.done() and not flight.future.exception()
            if landed and flight.future.result().outcome is Outcome.MINE:
                self.acknowledged.append(flight.body)
        super().settle()


@contextmanager
def unknown_taken_for_lost() -> Iterator[None]:
    def outcome(self: Log, flight: Flight) -> Put:
        try:
            return flight.future.result()  # type: ignore[no-any-return]
        except PutUnknown:
            return Put(Outcome.ANOTHERS, None)

    with mock.patch.object(Log, "_outcome", outcome):
        yield


@contextmanager
def unknown_taken_for_done() -> Iterator[None]:
    def outcome(self: Log, flight: Flight) -> Put:
        try:
            return flight.future.result()  # type: ignore[no-any-return]
        except PutUnknown:
            return Put(Outcome.MINE, None)

    with mock.patch.object(Log, "_outcome", outcome):
        yield


@contextmanager
def predecessors_without_content() -> Iterator[None]:
    """A frame that never landed is taken for the next one of the same writer there."""
    with mock.patch.object(Frame, "names", lambda self, other: self.predecessor[:2] == other[:2]):
        yield


@contextmanager
def void_frames_applied() -> Iterator[None]:
    with mock.patch.object(Frame, "follows", lambda self, head: self.kind == 0):
        yield


@contextmanager
def frames_behind_a_failure_forgotten() -> Iterator[None]:
    """What was read before the storage failed is not handed over any more."""
    read_on = Log._read_on

    def forgetful(self: Log, window: int) -> None:
        try:
            read_on(self, window)
        except Exception:
            self.unapplied.clear()
            raise

    with mock.patch.object(Log, "_read_on", forgetful):
        yield


@pytest.mark.parametrize(
    ("bug", "process", "faults"),
    [
        (nullcontext, Hasty, {}),
        (unknown_taken_for_lost, Process, {"fail_after": 0.2}),
        (unknown_taken_for_done, Process, {"fail_before": 0.15}),
        (predecessors_without_content, Process, FAULTS["everything"]),
        (void_frames_applied, Process, {}),
        (frames_behind_a_failure_forgotten, Process, {"fail_before": 0.5}),
    ],
)
def test_planted_bugs_are_found(bug: Any, process: type[Process], faults: dict[str, float]) -> None:
    with bug(), pytest.raises((AssertionError, EngineError)):
        run(range(400), 100, faults, process)


# -- the same through the operation processor of containers


def finish(containers: list[Container]) -> None:
    for container in containers:
        processor = container.log.processor
        while not processor.idle:
            processor.step()  # type: ignore[attr-defined]


class FullDisk(WrappingStore):
    """Refuses to make objects once it is full."""

    full = False

    def _carry_out(self, request: Request, call: Callable[[], Result]) -> Result:
        if self.full and request.verb == "put_if_absent":
            raise StorageError("the disk is full")
        return call()


def test_a_refusal_waits_for_what_it_was_held_against() -> None:
    """Refused because of an operation that is in flight, and then does not get into the log: that is no refusal."""
    simulation, executor = Simulation(linger=0.0), ByHand()
    simulation.open().create_segment("s")
    disk = FullDisk(simulation.store)
    with mock.patch("engine.logs.durable_log.Processor", Stepped):
        container = simulation.open(through=disk, executor=executor)
    disk.full = True
    once = Append("s", Payload(b"data"), None, (AttributeUpdate(bytes(16), UpdateKind.NONE, 1),))
    futures = []
    for _ in range(2):
        futures.append(container.submit([once]))
        container.log.processor.step()  # type: ignore[attr-defined]
    assert not any(future.done() for future in futures)
    for first, second in ((True, False), (True, True)):
        executor.land()
        for _ in range(2):
            container.log.processor.step()  # type: ignore[attr-defined]
        assert [future.done() for future in futures] == [first, second]
    assert [type(future.exception()) for future in futures] == [StorageError, StorageError]


@pytest.mark.parametrize("faults", FAULTS)
@pytest.mark.parametrize(
    "seeds", [pytest.param(range(5), id="usual"), pytest.param(range(5, 60), id="more", marks=pytest.mark.long)]
)
def test_containers_with_frames_in_flight_lose_nothing(seeds: range, faults: str) -> None:
    with small_sizes():  # so that some operations span frames (W4), and go to chunks when they lose a race
        for seed in seeds:
            try:
                check_containers(seed, FAULTS[faults])
            except BaseException as error:
                error.args = (f"seed {seed}: {error}",)
                raise


def check_containers(seed: int, faults: dict[str, float]) -> None:
    """Three containers append numbered records, some of them again, and each once only: an attribute says so."""
    draw = random.Random(seed)
    simulation = Simulation(seed, linger=0.0)
    executor = SimulatedExecutor(seed)
    simulation.open().create_segment("s")
    with mock.patch("engine.logs.durable_log.Processor", Stepped):
        containers = [simulation.open(executor=executor) for _ in range(3)]
    for name, rate in faults.items():
        setattr(simulation.store, name, rate)
    sent: list[list[tuple[int, Future[Receipt]]]] = [[], [], []]
    records: list[bytes] = []
    for _ in range(150):
        index = draw.randrange(3)
        match draw.randrange(8):
            case 0 | 1 | 2 if len(sent[index]) < 30:
                if not records or draw.random() < 0.8:
                    number = len(records)
                    records.append(b"%03d" % number + b"x" * draw.choice((0, 0, 0, 200, 800)) + b" ")
                else:
                    number = draw.randrange(len(records))
                once = AttributeUpdate(number.to_bytes(16, "big"), UpdateKind.NONE, 1)
                operation = Append("s", Payload(records[number]), None, (once,))
                sent[index].append((number, containers[index].submit([operation])))
            case 3:
                with suppress(StorageUnavailable):
                    containers[index].refresh()
            case _:
                containers[index].log.processor.step()  # type: ignore[attr-defined]
    finish(containers)
    executor.drain()
    for name in faults:
        setattr(simulation.store, name, 0.0)
    simulation.store.arrive()
    newcomer = simulation.open()
    content = newcomer.read("s", 0, newcomer.info("s").length)
    check_receipts(sent, records, content)
    for container in containers:
        assert container.refresh() == newcomer.state


def check_receipts(sent: list[list[tuple[int, Future[Receipt]]]], records: list[bytes], content: bytes) -> None:
    """Hold what the callers of each container were told against what is in the segment."""
    done: dict[int, int] = {}
    refused, unknown = set(), set()
    for own in sent:
        end = 0
        for number, future in own:
            error = future.exception()
            if error is None:
                assert number not in done, "acknowledged twice"
                done[number] = future.result().results[0]
                assert done[number] >= end, "not in order"
                end = done[number] + len(records[number])
            elif isinstance(error, BadAttributeUpdate):
                refused.add(number)
            elif isinstance(error, OutcomeUnknown):  # it was submitted to another container
                unknown.add(number)
            else:  # its chunk was refused, or the log could not be read: nothing was done
                assert isinstance(error, StorageUnavailable)
    there = [int(record[:3]) for record in content.split()]
    assert len(there) == len(set(there)) and set(done) <= set(there) <= set(done) | unknown
    assert content == b"".join(records[number] for number in there)
    assert [number for number in there if number in done] == sorted(done, key=lambda number: done[number])
    assert refused <= set(there), "refused because of what is not in the log"
