"""What callers hear (W11) where processes commit together (W18): one of them meets a fault, as owner or as maker.

Each caller is told once and truly, no event is lost or doubled, and the other processes go on.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import FunctionType

import pytest

from chunkstore import Store
from chunkstore.testing import FaultStore, fail_at
from chunkstore.testing.faults import When
from engine.logs.inbox import Inbox
from engine.logs.outbox import Outbox
from engine.logs.transaction import Receipt, payload_size
from tests.engine.logs.company import Company, S, appended, carried, processor_of
from tests.engine.logs.test_outcomes import (
    CRUCIAL,
    REFUSED,
    SETTINGS,
    WORK,
    CallFaults,
    Meanwhile,
    Outcomes,
    Site,
    numbered,
    sites,
)
from tests.support.simulation import Simulation, small_sizes

LOSING = "AG"
"""Before these the maker loses a race, so that what it has taken in is void."""

BOXES = {each.__code__ for kind in (Inbox, Outbox) for each in vars(kind).values() if isinstance(each, FunctionType)}
"""What these call, and each call of them, fails in turn, each time: there a submission passes from hand to hand."""


def is_crucial(site: Site) -> bool:
    called, caller, _ = site
    return caller in CRUCIAL or called in BOXES or caller in BOXES


class Together(ABC):
    """A process that carries out WORK in company: one that `tested` names meets the faults.

    What another one submits or appends meanwhile is in `beside`, by its bytes.
    """

    def __init__(self, faults: CallFaults, wrap: Callable[[Store], Store] = lambda store: store) -> None:
        simulation = Simulation(**SETTINGS, linger=0.0)
        numbered(simulation)
        self._losing: list[Meanwhile] = []

        def through(store: Store) -> Store:
            meanwhile = Meanwhile(simulation, faults.paused)
            self._losing.append(meanwhile)
            return meanwhile

        self.faults = faults
        self.company = Company(2, simulation=simulation, through=through, others_work=faults.paused)
        self.tested = self.company.containers[self.number]
        self.broken = wrap(self._losing[self.number].inner)
        self._losing[self.number].inner = self.broken
        self.beside: dict[bytes, Future[Receipt]] = {}
        self.outcomes = Outcomes()
        processor_of(self.tested).finishes = True

    number: int

    def work(self) -> None:
        """Carry out WORK one by one."""
        for letter in WORK:
            with self.faults.paused():
                self.prepare(letter)
            self.outcomes.submit(self.tested, letter)

    @abstractmethod
    def prepare(self, letter: str) -> None:
        """What the others do before one of WORK is submitted."""

    def lose(self) -> None:
        """Let the maker lose its next race, against the third process."""
        self._losing[0].other = lambda: self.company.now(self.company.containers[2], appended(b"other;"))

    def finish(self) -> None:
        """Let the others go on, until all of them have heard; the one that met a fault does not help."""
        others = [each for each in self.company.containers if each is not self.tested]
        self.beside[b"last;"] = self.company.containers[2].submit([appended(b"last;")])
        for _ in range(300):
            if all(future.done() for future in self.beside.values()):
                break
            self.company.turn(*others)
            self.company.simulation.advance(0.02)

    def check(self, unknown: bool) -> None:
        """Each was told, once and truly."""
        simulation = self.company.simulation
        with simulation.open() as fresh:
            self.outcomes.check(fresh, unknown)
            content = fresh.read("s", 0, fresh.info("s").length)
            for letter, heard in self.outcomes.heard.items():
                size = payload_size(WORK[letter])
                assert content.count(letter.encode()) in (0, size), f"{letter} is there in part, or twice: {heard}"
            besides = fresh.read(S, 0, fresh.info(S).length)
        for data, future in self.beside.items():
            assert besides.count(data) == 1 and future.exception(0) is None, data


class AsOwner(Together):
    """Its transactions are carried by another process."""

    number = 1

    def prepare(self, letter: str) -> None:
        company = self.company
        if company.maker.log.processor.log.makes_frames is False or letter in LOSING:
            company.now(company.maker, appended(b"maker;"))
            processor_of(self.tested).log.meet()
        if letter in LOSING:
            self.lose()


class AsMaker(Together):
    """It carries transactions of another process, which submits one before each of its own."""

    number = 0

    def prepare(self, letter: str) -> None:
        company, data = self.company, b"%s;" % letter.lower().encode()
        self.beside[data] = company.owner.submit([appended(data)])
        company.work(company.owner)
        if letter in LOSING:
            self.lose()
        processor_of(self.tested).log.meet()


def with_call_faults(kind: type[Together]) -> Callable[[CallFaults], None]:
    def work(faults: CallFaults) -> None:
        together = kind(faults)
        with faults.installed():
            faults.armed = True
            together.work()
        together.finish()
        together.check(unknown=True)
        if faults.site is None:
            told = {letter for letter in WORK if together.outcomes.error(letter)}
            assert told == set(REFUSED)
            assert carried(together.company.simulation.store) >= 5

    return work


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    with small_sizes():
        yield


@pytest.mark.parametrize("step", [9, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", [AsOwner, AsMaker])
def test_a_fault_at_every_call_in_company(kind: type[Together], step: int) -> None:
    work = with_call_faults(kind)
    found = sites(work)
    assert len(found) > 200
    tried: list[Site] = [site for n, site in enumerate(found) if n % step == 0 or is_crucial(site)]
    for site in tried:
        try:
            work(CallFaults(site))
        except BaseException as error:
            where = f"{site[0].co_name} called from {site[1].co_name} in {site[1].co_filename}, line {site[2]}"
            raise AssertionError(where) from error
    print(f"{len(tried)} of {len(found)} sites")


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("forever", [False, True], ids=["once", "forever"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("kind", [AsOwner, AsMaker])
def test_a_storage_that_fails_at_every_request_in_company(
    kind: type[Together], when: When, forever: bool, step: int
) -> None:
    most = 0
    for number in itertools.count(1, step):
        together = kind(CallFaults(), FaultStore)
        broken = together.broken
        assert isinstance(broken, FaultStore)
        last = broken.passed + number
        broken.plan = fail_at(last, when, forever=forever)
        together.work()
        together.finish()
        together.check(unknown=forever)
        most = max(most, carried(together.company.simulation.store))
        if broken.passed < last:
            break
    assert number > 20 and most >= 5
    print(f"{number} requests, {most} carried")
