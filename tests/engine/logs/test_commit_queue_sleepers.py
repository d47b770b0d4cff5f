"""One of several processes that commit together (W18) sleeps for longer than the grace period, at any of its requests.

Meanwhile the others go on, the log is truncated, and the inboxes are swept (W7). A sleeping owner reports that it does
not know the outcome of what it had submitted (rules once, moved). A sleeping maker carries nothing that counts twice.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Literal

import pytest

from chunkstore.testing import FaultStore, Request
from chunkstore.wrapping import Result
from engine.errors import OutcomeUnknown
from tests.engine.logs.company import Company, S, appended, carried, processor_of
from tests.engine.logs.producers import Producer, check, finish, make_segments, take_turns
from tests.engine.logs.stepped import Neighbour, Stepped
from tests.support.simulation import Simulation

GRACE = 600.0
MAKER, OWNER = 0, 1

Meanwhile = Literal["carried", "void"]
"""What becomes of a submission while its owner sleeps: the maker carries it, or another process begins an epoch."""

When = Literal["before", "after"]
"""Whether it sleeps before a request, or after the request took effect."""

TRANSPORTS = [pytest.param(Stepped, id="objects"), pytest.param(Neighbour, id="mailboxes", marks=pytest.mark.long)]


@pytest.fixture(autouse=True, params=TRANSPORTS)
def transport(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How submissions travel."""
    monkeypatch.setattr(Company, "processor", request.param)


def go_on(company: Company, sleeper: Producer, others: list[Producer], meanwhile: Meanwhile) -> int:
    """What the others do while one sleeps: they commit, and another process truncates the log. How many objects that
    deletes."""
    simulation, asleep = company.simulation, sleeper.container
    company.dead.add(asleep)
    if meanwhile == "carried":
        take_turns(company, others, 2, 0)
        finish(company, others)
    with simulation.open() as another:
        another.append("s/other", b"x")
        take_turns(company, others, 1, 1)
        finish(company, others)
        another.flush()
        another.checkpoint()
        another.append("s/other", b"x")
        for _ in range(11):
            simulation.advance(GRACE / 10)
            for producer in others:
                producer.container.refresh()
        deleted = another.truncate_log()
    company.dead.discard(asleep)
    return deleted


class Sleepy(FaultStore):
    """A process that can sleep before a request, and before it learns the answer."""

    sleep_after: Callable[[int], None] | None = None

    def _request(self, request: Request, call: Callable[[], Result], call_partway: Callable[[], None]) -> Result:
        result = super()._request(request, call, call_partway)
        if self.sleep_after is not None:
            self.sleep_after(self.passed)
        return result


class Asleep:
    """A company in which one process sleeps before one of its requests, or after it took effect. frozen: its clocks
    stand still then."""

    def __init__(self, role: int, point: int, meanwhile: Meanwhile, frozen: bool, when: When = "before"):
        simulation = Simulation(linger=0.0, grace=GRACE, garbage_delay=GRACE, timeout=1.0)
        self.slept = [0.0]
        self.company = Company(2, simulation=simulation, through=Sleepy)
        company, store = self.company, Sleepy(simulation.store)
        if frozen:
            company.containers[role] = company.join(store, stopped=lambda: self.slept[0])
            company.containers.pop()
        else:
            store = company.stores[role]
        make_segments(company)
        with simulation.open() as another:
            another.create_segment("s/other")
        company.now(company.containers[MAKER], appended(b""))
        for container in company.containers:
            container.refresh()
        self.producers = [Producer(name, each) for name, each in zip("mop", company.containers, strict=True)]
        self.sleeper = self.producers[role]
        self.others = [producer for producer in self.producers if producer is not self.sleeper]
        self.deleted = self.carried = 0
        self.last = store.passed + point
        self.meanwhile: Meanwhile = meanwhile
        self.frozen = frozen
        self.seed = point
        if when == "before":
            store.plan = lambda at, _: self.sleep(at)
        else:
            store.sleep_after = self.sleep

    def sleep(self, at: int) -> None:
        if at == self.last:
            self.last = -1
            self.carried = carried(self.company.simulation.store)
            before = self.company.simulation.store.now
            self.deleted = go_on(self.company, self.sleeper, self.others, self.meanwhile)
            if self.frozen:
                self.slept[0] = self.company.simulation.store.now - before

    def run(self) -> None:
        take_turns(self.company, self.producers, 5, self.seed)
        finish(self.company, self.producers)
        with self.company.simulation.open() as newcomer:
            check(newcomer, self.producers)
        for producer in self.others:
            assert producer.acknowledged == list(range(producer.submitted)), producer.name


@pytest.mark.parametrize("step", [6, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("frozen", [False, True], ids=["clocks go on", "clocks stand still"])
@pytest.mark.parametrize("meanwhile", ["carried", "void"])
@pytest.mark.parametrize("role", [OWNER, MAKER], ids=["owner", "maker"])
def test_a_process_in_company_that_sleeps_at_any_request_loses_and_doubles_nothing(
    role: int, meanwhile: Meanwhile, frozen: bool, when: When, step: int
) -> None:
    unknown = most = 0
    for point in itertools.count(1, 1 if Company.processor is Neighbour else step):  # few requests where mailboxes are
        try:
            asleep = Asleep(role, point, meanwhile, frozen, when)
            asleep.run()
        except BaseException as error:
            raise AssertionError(f"asleep {when} request {point}") from error
        unknown += len(asleep.sleeper.unknown)
        if not asleep.deleted:
            break
        most = max(most, asleep.carried)
    print(f"{point} requests, {unknown} unknown, {most} carried")
    assert point > 5 and unknown and most > 1


def made() -> Company:
    company = Company(2, simulation=Simulation(linger=0.0, grace=GRACE, garbage_delay=GRACE))
    make_segments(company)
    with company.simulation.open() as another:
        another.create_segment("s/other")
    processor_of(company.maker).log.meet()
    company.now(company.maker, appended(b"first;"))
    for container in company.containers:
        container.refresh()
    return company


def test_an_owner_that_never_needs_to_read_to_the_logs_end_does_so_now_and_then() -> None:
    """Its outcome is always there when it looks, and the log goes on behind that: it would not know after a while
    whether the next address was truncated."""
    company = made()
    owner, maker = processor_of(company.owner), processor_of(company.maker)
    behind = 0
    for number in range(40):
        future = company.owner.submit([appended(b"%d;" % number)])
        company.step(company.owner)
        company.work(company.maker)
        for _ in range(2):
            company.now(company.maker, appended(b"."))
        maker.finishes = True
        company.maker.checkpoint()
        maker.finishes = False
        company.simulation.advance(GRACE / 50)
        owner.look()
        company.step(company.owner)
        assert (future.exception(0), future.result(0).tries) == (None, 1)
        behind += company.owner.log.head.address < company.maker.log.head.address
    assert behind > 30


def test_a_maker_that_slept_with_submissions_taken_in_carries_none_of_them() -> None:
    """Their owner has put the event into its own frame, and the log was truncated behind that."""
    company = made()
    future = company.owner.submit([appended(b"once;")])
    company.step(company.owner)
    maker = processor_of(company.maker)
    for _ in range(10):
        if not maker.queued:
            company.step(company.maker)
    assert maker.queued
    others = [Producer(name, each) for name, each in zip("op", company.containers[1:], strict=True)]
    assert go_on(company, Producer("m", company.maker), others, "void")
    assert future.result(0).tries > 1
    for _ in range(20):
        company.turn()
        company.simulation.advance(0.02)
    assert not maker.queued
    with company.simulation.open() as newcomer:
        assert newcomer.read(S, 0, newcomer.info(S).length).count(b"once;") == 1


@pytest.mark.parametrize("meanwhile", ["carried", "void"])
def test_an_owner_that_slept_over_a_swept_inbox_reports_its_submission_unknown_once(meanwhile: Meanwhile) -> None:
    company = made()
    future = company.owner.submit([appended(b"once;")])
    company.step(company.owner)
    others = [Producer(name, company.containers[number]) for name, number in (("m", MAKER), ("p", 2))]
    assert go_on(company, Producer("o", company.owner), others, meanwhile)
    assert company.inbox == [], "swept"
    later = company.owner.submit([appended(b"later;")])
    for _ in range(20):
        company.turn()
        company.simulation.advance(0.02)
    assert isinstance(future.exception(0), OutcomeUnknown) and not processor_of(company.owner).outbox.active
    assert later.exception(0) is None
    with company.simulation.open() as newcomer:
        found = newcomer.read(S, 0, newcomer.info(S).length)
    assert (found.count(b"once;"), found.count(b"later;")) == (meanwhile == "carried", 1)
