"""One of several processes that commit together (W18) crashes at each of its storage requests, as owner or as maker.

The others go on, and the crashed one is started again. What was acknowledged is there once and in order, and nothing is
there that no producer submitted.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from chunkstore.testing import FaultStore, crash_at
from chunkstore.testing.faults import When
from tests.engine.logs.company import Company, carried
from tests.engine.logs.producers import Producer, check, finish, make_segments, take_turns
from tests.engine.logs.stepped import Neighbour, Stepped
from tests.support.simulation import Simulation, small_sizes

SETTINGS: dict[str, Any] = {
    "maintenance": True,
    "checkpoint_frames": 3,
    "flush_frames": 1 << 20,
    "flush_seconds": 1e9,
    "timeout": 1.0,
}
ROUNDS = 5
MAKER, OWNER = 0, 1


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    with small_sizes():
        yield


@pytest.fixture(autouse=True, params=[Stepped, Neighbour], ids=["objects", "mailboxes"])
def transport(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How submissions travel."""
    monkeypatch.setattr(Company, "processor", request.param)


class Crashing:
    """A company in which one process crashes at one of its requests."""

    def __init__(self, role: int, point: int, when: When, idempotent: bool, seed: int) -> None:
        self.company = Company(2, simulation=Simulation(linger=0.0, **SETTINGS), through=FaultStore)
        make_segments(self.company)
        self.producers = [
            Producer(name, container, idempotent=idempotent)
            for name, container in zip("mop", self.company.containers, strict=True)
        ]
        self.tested = self.producers[role]
        self.broken: FaultStore = self.company.stores[role]
        self.last = self.broken.passed + point
        self.broken.plan = crash_at(self.last, when)
        self.seed = 1000 * seed + point

    def run(self) -> None:
        """Let all of them produce, and those that live know the outcomes."""
        take_turns(self.company, self.producers, ROUNDS, self.seed)
        finish(self.company, self.producers)
        self.check()

    def check(self) -> None:
        with self.company.simulation.open(maintenance=False) as newcomer:
            check(newcomer, self.producers)
        for producer in self.producers:
            if producer.container not in self.company.dead:
                assert producer.acknowledged == list(range(producer.submitted)), producer.name

    def restart(self) -> None:
        """Start the crashed process again, which meets the others."""
        container = self.company.join(self.company.simulation.store)
        container.refresh()
        if self.tested.idempotent:
            self.tested.restart(container)
        else:
            self.tested = Producer("n", container)
            self.producers.append(self.tested)
        take_turns(self.company, self.producers, 2, self.seed)
        finish(self.company, self.producers)
        self.check()


def crashes(role: int, when: When, idempotent: bool, step: int, seed: int) -> tuple[int, int]:
    """Crash at every `step`th request of a run; how often, and how many transactions were carried in a run at most."""
    crashed = most = 0
    for point in itertools.count(1, step):
        crashing = Crashing(role, point, when, idempotent, seed)
        try:
            crashing.run()
            if crashing.broken.passed < crashing.last:
                return crashed, most
            assert crashing.company.dead == {crashing.company.containers[role]}
            crashed += 1
            crashing.restart()
        except BaseException as error:
            raise AssertionError(f"crash at request {point}, seed {seed}") from error
        most = max(most, carried(crashing.company.simulation.store))
    raise AssertionError


@pytest.mark.parametrize(("step", "seeds"), [(8, 1), pytest.param(1, 4, marks=pytest.mark.long)])
@pytest.mark.parametrize("idempotent", [False, True], ids=["anonymous", "idempotent"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("role", [OWNER, MAKER], ids=["owner", "maker"])
def test_a_crash_at_every_request_in_company_loses_and_doubles_nothing(
    role: int, when: When, idempotent: bool, step: int, seeds: int
) -> None:
    for seed in range(seeds):
        crashed, most = crashes(role, when, idempotent, step, seed)
        print(f"{crashed} crashes, {most} carried")
        assert crashed > 8 // step and most >= 8  # an owner makes few requests where there are mailboxes
