"""A slow process commits while another one appends at full speed, and that one hardly notices (W18)."""

from __future__ import annotations

import random
import statistics
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import chain
from typing import NamedTuple

import pytest

from chunkstore.testing import LatencyStore, SimulatedStore
from engine.containers.container import Container
from engine.logs.submitter import Submitter
from engine.logs.transaction import Receipt
from engine.settings import Settings
from engine.state.operations import Append, Payload
from engine.storage.object_reads import Stores

LATENCY = 0.05


class FullSpeed:
    """Appends one frame after the other to segment "fast", as many in flight as the container allows."""

    def __init__(self, container: Container) -> None:
        self.done = 0
        self._container = container
        self._outstanding = threading.Semaphore(16)
        self._stopping = False
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> FullSpeed:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping = True
        self._thread.join()

    def rate_during(self, work: Callable[[], object]) -> float:
        """Appends per second while `work` is done."""
        begun, before = time.monotonic(), self.done
        work()
        return (self.done - before) / (time.monotonic() - begun)

    def _work(self) -> None:
        while not self._stopping:
            if self._outstanding.acquire(timeout=1.0):
                future = self._container.submit([Append("fast", Payload(b"x" * 100))])
                future.add_done_callback(self._count)

    def _count(self, future: Future[Receipt]) -> None:
        self.done += future.exception() is None
        self._outstanding.release()


class Outcome(NamedTuple):
    """tries: frames that each small commit took. kept: the share of its rate that the fast process kept."""

    tries: list[int]
    kept: float


def opened(count: int) -> list[Container]:
    """The same container as so many processes have it, with the segments fast and slow.

    One transaction in a frame: else the fast process would have all that it has to append in one, and never several in
    flight.
    """
    store = LatencyStore(SimulatedStore(), LATENCY)
    stores, settings = Stores(store, store), Settings(linger=0.0, flights=4, frame_transactions=1, maintenance=False)
    containers = [Container(stores, 0, settings) for _ in range(count)]
    for name in ("fast", "slow"):
        containers[0].create_segment(name)
    for container in containers:
        container.refresh()
    return containers


def compete(slow: int, commits: int, alone: float) -> Outcome:
    """One process at full speed for `alone` seconds; then with `slow` others that make so many small commits each, one
    every 1 to 1.5 s; then alone again."""
    fast, *others = opened(1 + slow)

    def commit(other: Container) -> list[int]:
        draw, tries = random.Random(others.index(other)), []
        for _ in range(commits):
            time.sleep(draw.uniform(1.0, 1.5))
            tries.append(other.commit([Append("slow", Payload(b"small"))]).tries)
        return tries

    tries: list[int] = []
    with ThreadPoolExecutor(slow) as pool, FullSpeed(fast) as full_speed:
        time.sleep(10 * LATENCY)
        before = full_speed.rate_during(lambda: time.sleep(alone))
        together = full_speed.rate_during(lambda: tries.extend(chain.from_iterable(pool.map(commit, others))))
        after = full_speed.rate_during(lambda: time.sleep(alone))
    for container in (fast, *others):
        container.close()
    outcome = Outcome(sorted(tries), together / statistics.mean((before, after)))
    print(f"{slow} slow: {before:.1f}/s alone, {together:.1f}/s together, {after:.1f}/s alone again, {outcome}")
    return outcome


def check(slow: int, commits: int, alone: float, kept: float) -> None:
    outcome = compete(slow, commits, alone)
    if outcome.kept < kept:  # the machine may have been busy with something else; not twice
        outcome = compete(slow, commits, alone)
    assert outcome.kept >= kept
    assert max(outcome.tries) <= 5
    assert statistics.median(outcome.tries) <= 3


@pytest.mark.long
def test_small_commits_are_carried() -> None:
    check(slow=1, commits=6, alone=1.5, kept=0.8)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_twenty_small_commits_are_carried() -> None:
    check(slow=1, commits=20, alone=5.0, kept=0.8)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_those_of_several_slow_processes_are_carried() -> None:
    check(slow=3, commits=8, alone=3.0, kept=0.5)


@pytest.mark.long
def test_without_submitting_it_takes_many_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Proves that the tests above can fail: a small commit may wait for as long as the fast process goes on."""
    monkeypatch.setattr(Submitter, "accepts", lambda self, batch: False)
    fast, slow = opened(2)
    commits = []
    with FullSpeed(fast):
        time.sleep(10 * LATENCY)
        for _ in range(3):
            commits.append(slow.submit([Append("slow", Payload(b"small"))]))
            wait(commits, 5.0)
    tries = [commit.result(60).tries for commit in commits]
    for container in (fast, slow):
        container.close()
    assert max(tries) > 5
