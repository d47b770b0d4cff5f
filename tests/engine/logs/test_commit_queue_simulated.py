"""Writers of one log in simulated time: each event is there once and in order, and a seed gives the same run again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

from chunkstore import StorageError, StorageFull, StorageRefused, StorageUnavailable, Store
from chunkstore.testing import Request, SimulatedStore, WrappingStore
from chunkstore.wrapping import Result
from engine.logs.frames import START
from engine.logs.log import BELLS_AHEAD, InlineExecutor, Log, address_of, frames_folder
from tests.bench.simulated_writers import Company
from tests.bench.virtual_time import LATENCIES, Bill, FarStore, Objects, VirtualCondition, VirtualExecutor, World

WRITERS = 8

MOST_TRIPS = 60
"""Round trips in which the slowest of some hundred commits is durable."""


def run(seed: int) -> Company:
    """Eight writers, some hundred events; fails if one of them is not there once and in order."""
    company = Company(WRITERS, seed)
    company.run(2.0, 4.0)
    return company


def test_a_seed_gives_the_same_run() -> None:
    one, again, other = run(1), run(1), run(2)
    assert len(one.trace) > 150 and {writer for _, writer, _ in one.trace} == set(range(WRITERS))
    assert one.trace == again.trace and one.bill.requests == again.bill.requests
    assert one.trace != other.trace


@pytest.mark.parametrize("seed", range(3))
def test_impatient_owners_lose_and_double_nothing(seed: int) -> None:
    """Epochs change all the time, so that submissions become void."""
    with mock.patch.multiple("engine.logs.outbox", PATIENCE_TRIPS=0.5, PATIENCE_TIMES=0.1, LEAST_PATIENCE=0.01):
        company = run(seed)
    assert max(container.log.head.epoch for container in company.containers) > 4
    assert len(company.trace) > 100


@pytest.mark.parametrize(
    ("count", "pause"), [(2, 0.3), (8, 0.3), (8, 1.0), pytest.param(32, 1.0, marks=pytest.mark.long)]
)
def test_writers_that_commit_now_and_then_starve_nobody(count: int, pause: float) -> None:
    """Each one forgets between two commits that there are others."""
    company = Company(count, 2, pause)
    outcome = company.run(5.0, 30.0)
    longest = max(took for _, _, took in outcome.acknowledged)
    assert len(outcome.acknowledged) > 30 * count / (pause + 1) / 2
    assert longest < MOST_TRIPS * LATENCIES["PUT"][0], f"{longest:.2f} s"


@pytest.mark.parametrize(("count", "least"), [(32, 300), pytest.param(128, 600, marks=pytest.mark.long)])
def test_many_writers_that_begin_together_stop_racing(count: int, least: int) -> None:
    company = Company(count, 1)
    outcome = company.run(3.0, 4.0)
    by_writer = Counter(writer for _, writer, _ in outcome.acknowledged)
    assert len(outcome.acknowledged) > least and len(by_writer) == count, "each writer is served"


def test_who_waits_for_something_sleeps_meanwhile() -> None:
    """Also a maker whose own transactions wait for a round of the others'."""
    waits = 0
    wait = VirtualCondition.wait

    def counted(self: VirtualCondition, *timeout: Any) -> None:
        nonlocal waits
        waits += 1
        wait(self, *timeout)

    with mock.patch.object(VirtualCondition, "wait", counted):
        company = run(3)
    assert waits < 20 * len(company.trace), f"{waits} waits for {len(company.trace)} events"


class Refusing(WrappingStore):
    """Answers each request with an error, and counts them."""

    refused = 0

    def __init__(self, inner: Store, kind: type[StorageError]) -> None:
        super().__init__(inner)
        self._kind = kind

    def _carry_out(self, request: Request, call: Callable[[], Result]) -> Result:
        self.refused += 1
        raise self._kind(f"{self.root}: {request.verb} is refused: it is a test")


@pytest.mark.parametrize("kind", [StorageFull, StorageRefused, StorageUnavailable])
def test_a_bell_that_the_storage_refuses_raises_no_error(kind: type[StorageError]) -> None:
    store = Refusing(SimulatedStore(), kind)
    Log(store, 0, START, 0.0, grace=600.0, executor=InlineExecutor()).ring()
    assert store.refused == 1


def test_many_bells_are_few_requests() -> None:
    """However many owners ring at the same time, each of them tries few addresses, near the log's end."""
    world, objects, bill = World(0), Objects(0), Bill()
    for _ in range(100):
        store = FarStore(objects, world, bill)
        log = Log(store, 0, START, 0.0, grace=600.0, executor=VirtualExecutor(world), clock=world.clock)
        world.spawn(log.ring)
    world.sleep(10)
    assert bill.requests["PUT"] <= 100 * len(BELLS_AHEAD)
    assert {address_of(info.path) for info in objects.list(frames_folder(0))} == set(BELLS_AHEAD)
