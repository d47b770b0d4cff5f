"""More owners than a maker can serve at once (W18.10): it takes in what they submit by turns, and they know it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from unittest import mock

import pytest

from chunkstore import Store
from chunkstore.testing import CountingStore, SimulatedStore
from engine.logs.inbox import MOST_AT_FIRST, MOST_AT_ONCE, Inbox
from engine.logs.log import CROWD, LEAST_TRIP, MAKER_TRIPS, OWNER_TRIPS, InlineExecutor
from engine.logs.outbox import PASSED_OVER, PATIENCE_TIMES, PATIENCE_TRIPS, WAITED, Outbox
from engine.logs.submission import Address, encode, submission_path
from engine.logs.transaction import Transaction
from engine.state.operations import Answer, AnswerSubmissions
from tests.bench.simulated_writers import Company as Simulated
from tests.engine.logs.company import Company, appended, processor_of
from tests.support.simulation import Simulation

TRIP = 0.02
"""Seconds of a round trip of the outboxes here."""

FEW = AnswerSubmissions((Answer(b"o" * 16, 0, b"n" * 8, 0, ()),))
MANY = AnswerSubmissions(tuple(Answer(bytes([number]) * 16, 0, b"n" * 8, 0, ()) for number in range(CROWD)))


class Clock:
    """A time that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


_CHANCE = "engine.logs.outbox.random.uniform"


def _least(least: float, most: float) -> float:
    return least


class Waiting:
    """An outbox with one submission to epoch 1 whose maker listens. Chance has it wait for as short as it may."""

    def __init__(self, said: AnswerSubmissions) -> None:
        self.clock = Clock()
        self.outbox = Outbox(self.clock)
        self.read(said)
        self.submit()

    def submit(self) -> None:
        self.address = self.outbox.new_address(1)
        with mock.patch(_CHANCE, _least):
            self.outbox.submit([Transaction([appended(b"x")])], self.address)
            self.outbox.begin_to_wait(TRIP)

    def read(self, said: AnswerSubmissions) -> None:
        with mock.patch(_CHANCE, _least):
            self.outbox.read(1, said, TRIP)

    def served(self) -> None:
        """A frame answers to it, and to a crowd."""
        owner, number, nonce = self.address[1:]
        self.read(AnswerSubmissions((*MANY.answers, Answer(owner, number, nonce, 0, ()))))

    def patience(self) -> float:
        """Seconds until it makes a frame itself, if it reads none."""
        begun, now = self.clock.now, self.clock.now
        while not self.outbox.impatient:
            self.clock.now = now = now + TRIP / 8
        self.clock.now = begun
        return now - begun


def submitted(store: Store, owners: Iterable[int], number: int = 1) -> None:
    for owner in owners:
        address = Address(1, owner.to_bytes(16, "big"), number, b"n" * 8)
        store.post(submission_path(0, address), encode(0, address, [[appended(b"x")]]))


def test_what_many_submit_is_read_in_parts_that_grow() -> None:
    """The first frame does not keep a thousand owners waiting who do not know yet that it comes."""
    store = CountingStore(SimulatedStore())
    submitted(store, range(1000))
    inbox = Inbox(store, 0, InlineExecutor().submit, Clock())
    parts = []
    for _ in range(5):
        inbox.look(1, None)
        parts.append(len(inbox.take_in(TRIP)))
    assert parts == [MOST_AT_FIRST, 2 * MOST_AT_FIRST, 4 * MOST_AT_FIRST, MOST_AT_ONCE, MOST_AT_ONCE]
    inbox.look(2, None)
    inbox.take_in(TRIP)
    submitted(store, range(1000), 2)
    inbox.look(1, None)
    assert len(inbox.take_in(TRIP)) == MOST_AT_FIRST, "of another epoch"


def test_all_get_their_turn_whatever_the_first_ones_submit_meanwhile() -> None:
    store = SimulatedStore()
    owners = 2 * MOST_AT_ONCE
    submitted(store, range(owners))
    inbox = Inbox(store, 0, InlineExecutor().submit, Clock())
    served: Counter[int] = Counter()
    for number in range(2, 10):
        inbox.look(1, None)
        carried = [transaction.carrying for transaction in inbox.take_in(TRIP)]
        now = [int.from_bytes(each.address.owner, "big") for each in carried if each is not None]
        served.update(now)
        assert max(served.values()) - min(served[owner] for owner in range(owners)) <= 1
        submitted(store, now, number)
    assert set(served.values()) <= {2, 3}


def test_who_is_served_by_turns_is_not_passed_over() -> None:
    outbox = Outbox(Clock())
    for _ in range(CROWD * PASSED_OVER - 1):
        outbox.submit([Transaction([appended(b"x")])], outbox.new_address(1))
        outbox.read(1, MANY, TRIP)
        assert outbox.may_submit(1)
        outbox.forget()
    outbox.submit([Transaction([appended(b"x")])], outbox.new_address(1))
    outbox.read(1, MANY, TRIP)
    assert not outbox.may_submit(1), "that many are enough"


def test_an_owner_is_as_patient_with_the_maker_of_a_crowd_as_if_it_had_answered() -> None:
    full = PATIENCE_TRIPS * TRIP
    assert Waiting(MANY).patience() == pytest.approx(full, abs=TRIP)
    assert Waiting(FEW).patience() == pytest.approx(full / 3, abs=TRIP)


def test_an_owner_waits_longer_for_frames_that_take_long() -> None:
    """It was never served, so it does not know how long that takes."""
    waiting = Waiting(MANY)
    slow = PATIENCE_TRIPS * TRIP / 2
    for _ in range(2):
        waiting.clock.now += slow
        waiting.read(MANY)
        assert waiting.patience() == pytest.approx(PATIENCE_TRIPS * TRIP + PATIENCE_TIMES * slow, abs=TRIP)


def test_a_maker_that_was_away_for_long_is_not_waited_for_as_long() -> None:
    waiting = Waiting(MANY)
    waiting.clock.now += 3600
    waiting.read(MANY)
    assert waiting.patience() <= (1 + PATIENCE_TIMES) * PATIENCE_TRIPS * TRIP + TRIP


def test_the_longer_an_outcome_takes_the_more_rarely_it_is_looked_for() -> None:
    """The looks of a thousand owners are more than a storage answers."""
    waiting = Waiting(MANY)
    waiting.clock.now += 1
    waiting.served()
    waiting.submit()
    looks = 0
    begun = waiting.clock.now
    assert waiting.outbox.next_look == begun + 0.7
    while waiting.clock.now < begun + 2:
        waiting.clock.now = waiting.outbox.next_look
        waiting.outbox.looked(TRIP)
        looks += 1
        waiting.read(MANY)
    assert looks <= WAITED + 2


def test_a_frame_for_a_crowd_is_company_to_one_that_was_away() -> None:
    """A race won against its maker would make all of them submit again."""
    company = Company(CROWD)
    back = company.join()
    for round_of in range(2):
        processor_of(back).refresh()
        company.simulation.advance(10 * OWNER_TRIPS * LEAST_TRIP)
        for container in company.containers[1 : CROWD + round_of]:
            processor_of(container).log.meet()
            container.submit([appended(b".")])
            processor_of(container).step()
        company.work(company.maker)
        processor_of(back).refresh()
        company.work(*company.containers[1:-1])
        assert processor_of(back).log.in_company(OWNER_TRIPS) == bool(round_of)


def test_who_takes_over_from_a_maker_listens() -> None:
    """However long it has waited: what others had submitted is void, and they submit to it."""
    company = Company(1)
    owner = processor_of(company.owner)
    company.dead.add(company.maker)
    future = company.owner.submit([appended(b"x")])
    owner.step()
    assert owner.outbox.waiting
    company.simulation.advance(2 * MAKER_TRIPS * LEAST_TRIP)
    while not future.done():
        company.simulation.advance(LEAST_TRIP)
        owner.step()
    assert owner.log.makes_frames and owner.log.in_company(MAKER_TRIPS)


def test_an_owner_whose_submission_became_void_knows_of_others() -> None:
    """Also if the new maker did not know of any, and nothing came for long."""
    company = Company(2)
    owner, winner = processor_of(company.owner), company.containers[2]
    company.owner.submit([appended(b"x")])
    owner.step()
    company.simulation.advance(2 * MAKER_TRIPS * LEAST_TRIP)
    company.now(winner, appended(b"y"))
    assert not owner.log.in_company(OWNER_TRIPS)
    owner.refresh()
    assert not owner.outbox.active and owner.log.in_company(OWNER_TRIPS)


def test_own_transactions_of_a_maker_wait_for_a_round_that_takes_long() -> None:
    """All owners would read a frame more for each of them."""
    store, clock = SimulatedStore(), Clock()
    begun: list[partial[object]] = []

    def later(call: Callable[..., object], *arguments: object) -> Future[object]:
        begun.append(partial(call, *arguments))
        return Future()

    inbox = Inbox(store, 0, later, clock)
    for took in (0.0, 1.0, 60.0):
        submitted(store, range(CROWD), 1 + int(took))
        inbox.look(1, None)
        clock.now += took
        inbox.listing.set_result(begun.pop()())
        assert len(inbox.take_in(TRIP)) == CROWD
        inbox.look(1, None)
        assert inbox.in_rounds(TRIP)
        clock.now += 5 * TRIP
        assert inbox.in_rounds(TRIP) == bool(took)
        clock.now += 2
        assert not inbox.in_rounds(TRIP), "the storage may not answer"
        inbox.listing.set_result(begun.pop()())
        inbox.take_in(TRIP)


def test_an_owner_knows_how_long_a_round_trip_takes() -> None:
    """Also if it never made a frame: it took a storage far away for a near one, and its maker for dead."""
    simulation = Simulation(linger=0.0)
    company = Company(2, simulation=simulation)
    owner = processor_of(company.owner)
    post = simulation.store.post

    def slow(path: str, data: bytes) -> None:
        simulation.advance(TRIP)
        post(path, data)

    with mock.patch.object(simulation.store, "post", slow):
        company.owner.submit([appended(b"x")])
        owner.step()
    assert owner.outbox.waiting
    assert owner.log.round_trip == pytest.approx(TRIP, rel=0.1)


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("count", [256, 1000])
def test_many_hosts_stay_within_what_a_bucket_takes(count: int) -> None:
    outcome = Simulated(count, 1).run(10.0, 10.0)
    by_writer = Counter(writer for _, writer, _ in outcome.acknowledged)
    assert len(by_writer) == count, "each writer is served"
    assert outcome.epochs == 0, "they do not race"
    assert outcome.of_limit < 1, outcome.peaks
