"""The rules of W18 that an owner keeps when it tells its callers: once, live, empty, held."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from chunkstore.testing import FaultStore
from chunkstore.testing.faults import Fault
from engine.errors import BadOffset, OutcomeUnknown
from engine.logs.frames import HEADER, START, Frame, Kind, Position
from engine.logs.log import LEAST_TRIP, MAKER_TRIPS, OWNER_TRIPS
from engine.logs.outbox import PASSED_OVER, Outbox
from engine.logs.replay import carried_in
from engine.logs.submission import inbox_folder
from engine.logs.transaction import Receipt, Transaction
from engine.state.operations import Answer, AnswerSubmissions
from tests.engine.logs.company import Company, appended, carried, processor_of
from tests.support.processes import ByHand


class Failing(Company):
    """Each one's storage can fail: `broken` has that of the owner."""

    def __init__(self) -> None:
        super().__init__(through=FaultStore)
        self.broken: FaultStore = self.stores[1]

    def unknown(self, verb: str) -> Future[Receipt]:
        """The owner submits; while its requests of one kind fail, and the others stand still, it tells that it does not
        know what became of it."""
        owner = processor_of(self.owner)
        future = self.owner.submit([appended(b"first")])
        owner.step()
        self.dead = {*self.containers} - {self.owner}
        self.broken.plan = lambda at, request: Fault("before") if request.verb == verb else None
        while not future.done():
            self.simulation.advance(0.05)
            owner.step()
        self.broken.plan = None
        self.dead = set()
        assert isinstance(future.exception(), OutcomeUnknown)
        return future


def made_by_hand(others: int = 2) -> tuple[Company, ByHand]:
    """A company whose maker's requests are carried out when the test says so; until then each at once."""
    company, executor = Company(others), ByHand()
    executor.inline = True
    company.maker = company.join(executor=executor)
    company.now(company.maker, appended(b"a"))
    for container in company.containers:
        container.refresh()
        processor_of(container).log.meet()
    return company, executor


# --- once: who is told that it is unknown is told nothing else, and its submission is forgotten ----------------------


def test_who_cannot_look_for_the_outcome_tells_unknown_and_has_nothing_outstanding() -> None:
    company = Failing()
    future = company.unknown("read_ranges")
    assert not processor_of(company.owner).outbox.active
    epoch = company.maker.log.head.epoch
    later = company.owner.submit([appended(b"later")])
    company.turn()
    assert (later.result(0).results, later.result(0).tries) == ([5], 1), "what is unknown is carried all the same"
    assert company.content == b"firstlater" and company.maker.log.head.epoch == epoch
    assert isinstance(future.exception(0), OutcomeUnknown), "told once"


def test_what_is_unknown_is_not_submitted_again_when_it_is_void() -> None:
    company = Failing()
    future = company.unknown("read_ranges")
    company.now(company.containers[2], appended(b"another"))
    company.turn()
    assert isinstance(future.exception(0), OutcomeUnknown)
    assert company.content == b"another"


def test_an_own_frame_of_unknown_outcome_leaves_nothing_outstanding() -> None:
    """Its submission may be carried yet; but nobody waits for that, and what comes next is done meanwhile."""
    company = Failing()
    owner = processor_of(company.owner)
    future = company.unknown("put_if_absent")
    company.simulation.store.delete(company.inbox)  # it is on its way yet
    processor_of(company.maker).log.meet()
    company.now(company.maker, appended(b"maker "))
    later = company.owner.submit([appended(b"later")])
    for _ in range(4):  # an own frame, which loses the race
        owner.log.meet()
        owner.step()
    assert [each.future for each in owner.pending() if each in owner.outbox] == [later]
    company.turn()
    assert (later.result(0).results, company.content) == ([6], b"maker later")
    assert isinstance(future.exception(0), OutcomeUnknown)


def test_what_is_unknown_as_the_log_moved_does_not_leave_in_an_own_frame() -> None:
    company = Company()
    future = company.owner.submit([appended(b"once")])
    owner = processor_of(company.owner)
    owner.step()
    while not owner.outbox.recalled:  # the maker stands still meanwhile
        company.simulation.advance(0.01)
        owner.look()
    assert owner.queued == 1
    company.turn(company.maker)
    assert carried(company.simulation.store) == 1
    company.dead = {company.owner}  # it sleeps for longer than the grace period
    processor_of(company.maker).finishes = True
    for _ in range(2):
        company.simulation.advance(company.maker.settings.grace * 1.2)
        company.maker.checkpoint()
    company.maker.truncate_log()
    processor_of(company.maker).finishes = False
    company.dead = set()
    company.turn()
    assert isinstance(future.exception(0), OutcomeUnknown)
    assert company.content == b"once"


# --- live: a frame that is void tells nothing ------------------------------------------------------------------------


def test_a_void_frame_that_carries_it_completes_nothing() -> None:
    """The maker's first frame in flight runs into a bell; the second one, which carries, lands all the same."""
    company, executor = made_by_hand()
    processor = processor_of(company.maker)
    future = company.owner.submit([appended(b"once")])
    processor_of(company.owner).step()
    executor.inline = False
    own = company.maker.submit([appended(b"own")])
    processor.step()  # the first flight
    assert len(processor.log.flights) == 1
    executor.inline = True
    processor.step()  # lists
    executor.inline = False
    processor.step()  # takes in
    processor.step()  # the second flight
    assert len(processor.log.flights) == 2
    processor_of(company.owner).log.ring([0])
    executor.land()
    executor.land()
    executor.inline = True
    void = processor.log.flights[1].position.address
    company.turn(company.owner)
    assert not future.done(), "the frame that carries it is not live"
    company.turn()
    assert own.exception(0) is None
    assert future.result(0).address > void
    assert company.content.count(b"once") == 1
    offset = future.result(0).results[0]
    assert company.content[offset : offset + 4] == b"once"


# --- flown: what is in flight is not queued again -------------------------------------------------------------------


def test_what_is_void_and_in_flight_is_not_queued_again() -> None:
    """The first of two own frames is live, and makes the submission of both transactions void."""
    company, executor = Company(1), ByHand()
    owner = company.join(executor=executor)
    owner.refresh()
    company.now(company.maker, appended(b"m"))
    owner.refresh()
    futures = [owner.submit([appended(data)]) for data in (b"one", b"two")]
    processor = processor_of(owner)
    processor.log.meet()
    processor.step()
    assert processor.outbox.active and not processor.queued
    processor.one_transaction_a_frame()
    while len(processor.log.flights) < 2:
        company.simulation.advance(LEAST_TRIP)
        processor.step()
    executor.land()
    processor.step()
    assert not processor.outbox.active and len(processor.log.flights) == 1
    for _ in range(4):  # what is queued would leave before the second one has landed
        processor.step()
    assert len(processor.log.flights) == 1
    executor.land()
    processor.step()
    processor.step()
    assert [future.result(0).tries for future in futures] == [2, 2]
    assert company.content == b"monetwo"


# --- held and empty: a refusal is told when nothing can make it wrong ------------------------------------------------


def test_an_empty_frame_that_loses_to_the_one_that_carries_it_refuses_nothing() -> None:
    """By the owner's state it is refused; by the maker's, which the log goes on with, it is done."""
    company, executor = Company(others=1), ByHand()
    owner = company.join(executor=executor)
    owner.refresh()
    future = owner.submit([appended(b"x", 5)])
    processor = processor_of(owner)
    processor.log.meet()
    processor.step()
    assert processor.outbox.active
    while not processor.log.flights:
        company.simulation.advance(0.02)
        processor.step()
    assert not future.done(), "its frame is not live yet"
    company.now(company.maker, appended(b"12345"))
    company.turn(company.maker)
    assert carried(company.simulation.store) == 1
    executor.inline = True
    executor.land()
    company.turn(owner)
    assert future.result(0).results == [5]
    assert company.content == b"12345x"


def test_what_the_maker_refuses_is_done_if_its_owner_finds_it_right() -> None:
    """The maker's refusal is older than what the owner knows when it decides."""
    company = Company()
    future = company.owner.submit([appended(b"late", 3)])
    processor_of(company.owner).step()
    company.turn(company.maker)
    assert carried(company.simulation.store) == 0 and not future.done()
    company.now(company.maker, appended(b"123"))
    company.turn()
    assert future.result(0).results == [3]
    assert company.content == b"123late"


def test_a_refusal_by_maker_and_owner_is_told_and_leaves_nothing_behind() -> None:
    company = Company()
    future = company.owner.submit([appended(b"late", 3)])
    company.turn()
    company.turn()
    assert isinstance(future.exception(0), BadOffset)
    assert not processor_of(company.owner).outbox.active
    assert company.content == b""


@pytest.mark.parametrize("accepted", [0, 1])
def test_an_empty_frame_makes_a_submission_void_that_nobody_listed(accepted: int) -> None:
    """Whether or not others in it are done: one epoch more, and what arrives late is carried by nobody."""
    company = Company()
    futures = [company.owner.submit([appended(b"y")]) for _ in range(accepted)]
    refused = company.owner.submit([appended(b"x", 5)])
    owner = processor_of(company.owner)
    owner.step()
    messages = company.inbox
    epoch = owner.log.head.epoch
    while not refused.done():
        company.simulation.advance(0.02)
        owner.step()
    assert isinstance(refused.exception(), BadOffset)
    assert [future.result(0).results for future in futures] == [[0]] * accepted
    assert owner.log.head.epoch == epoch + 1
    company.now(company.maker, appended(b"12345"))
    assert [path for path in messages if path.startswith(inbox_folder(0, epoch))] == messages
    company.turn()
    assert company.content == b"y" * accepted + b"12345"


# --- patience: an owner is served in bounded frames -------------------------------------------------------------------


def test_who_is_passed_over_makes_a_frame_itself() -> None:
    """The maker cannot read what it submitted, and carries another's all the time."""
    company = Company()
    other = company.containers[2]
    future = company.owner.submit([appended(b"once")])
    processor_of(company.owner).step()
    company.simulation.store.put(company.inbox[0], b"?")
    for _ in range(4 * PASSED_OVER):
        other.submit([appended(b".")])
        company.turn()
        if future.done():
            break
    assert future.result(0).tries == 2
    company.turn()
    assert company.content.count(b"once") == 1


def test_frames_that_pass_over_an_owner_count_until_it_is_served() -> None:
    """Whatever became of its submissions meanwhile. That they become void does not count by itself."""
    others = AnswerSubmissions((Answer(b"o" * 16, 0, b"n" * 8, 0, ()),))
    outbox = Outbox(lambda: 5.0)
    for epoch in range(2 * PASSED_OVER):
        outbox.read(epoch, others, 0.01)
        assert outbox.may_submit(epoch) == (epoch < PASSED_OVER)
        outbox.submit([Transaction([appended(b"x")])], outbox.new_address(epoch))
        if epoch < PASSED_OVER:
            outbox.read(epoch, others, 0.01)
        assert outbox.active
        outbox.read(epoch + 1, AnswerSubmissions(()), 0.01)
        assert not outbox.active, "void"
    outbox.served()
    for epoch in range(2 * PASSED_OVER):
        outbox.read(epoch, others, 0.01)
        outbox.submit([Transaction([appended(b"x")])], outbox.new_address(epoch))
        outbox.read(epoch + 1, AnswerSubmissions(()), 0.01)
    assert outbox.may_submit(outbox.listening)


def test_an_owner_whose_maker_stopped_listening_makes_a_frame_itself() -> None:
    """At once, when it sees that in the maker's next frame."""
    company = Company()
    future = company.owner.submit([appended(b"once")])
    owner, maker = processor_of(company.owner), processor_of(company.maker)
    owner.step()
    maker.listens = False
    company.now(company.maker, appended(b"maker "))
    for _ in range(8):
        company.simulation.advance(owner.log.round_trip)
        owner.step()
    assert future.result(0).address == company.maker.log.head.address + 1
    assert company.content == b"maker once"


def test_nothing_is_submitted_to_a_maker_that_does_not_say_that_it_listens() -> None:
    company = Company()
    owner, maker = processor_of(company.owner), processor_of(company.maker)
    maker.listens = False
    company.now(company.maker, appended(b"maker "))
    company.owner.refresh()
    future = company.owner.submit([appended(b"owner")])
    owner.log.meet()
    owner.step()
    assert owner.log.flights and company.inbox == []
    owner.step()
    assert future.result(0).tries == 1


def test_an_owner_whose_submissions_become_void_goes_on_submitting() -> None:
    """Whoever raced because of that would begin an epoch, and make the submissions of all others void."""
    outbox = Outbox(lambda: 5.0)
    for epoch in range(2 * PASSED_OVER):
        outbox.submit([Transaction([])], outbox.new_address(epoch))
        assert len(outbox.read(epoch + 1, AnswerSubmissions(()), 0.01).void) == 1
        assert outbox.may_submit(epoch + 1)


def test_a_writer_that_returns_to_a_busy_log_submits() -> None:
    """It lost one race only; that there is company it sees by how many frames were made meanwhile."""
    company = Company()
    owner, maker = processor_of(company.owner), processor_of(company.maker)
    pause = 10 * OWNER_TRIPS * LEAST_TRIP
    for few in (True, False):
        company.simulation.advance(pause)
        for _ in range(2 if few else 2 * OWNER_TRIPS * 10):
            maker.log.meet()
            company.now(company.maker, appended(b"m"))
        future = company.owner.submit([appended(b"o")])
        for _ in range(3):  # it loses a race, reads on, and sends again or submits
            owner.step()
        assert owner.outbox.active != few
        while not future.done():
            company.simulation.advance(LEAST_TRIP)
            company.work(company.maker, company.owner)


def test_a_maker_that_begins_an_epoch_in_company_keeps_listening() -> None:
    company = Company()
    owner = processor_of(company.owner)
    owner.log.meet()
    company.simulation.advance((MAKER_TRIPS - 1) * LEAST_TRIP)
    assert not owner.log.in_company(OWNER_TRIPS)
    future = company.owner.submit([appended(b"o")])
    owner.step()
    owner.step()
    assert future.done() and owner.log.makes_frames
    company.simulation.advance((MAKER_TRIPS - 1) * LEAST_TRIP)
    assert owner.log.in_company(MAKER_TRIPS)
    company.simulation.advance(MAKER_TRIPS * LEAST_TRIP)
    company.now(company.owner, appended(b"p"))
    assert not owner.log.in_company(MAKER_TRIPS), "a later frame of the epoch is no sign of others"


def test_the_pieces_of_a_large_operation_are_not_raced_with() -> None:
    """A maker that sends payload ahead of an operation is busy, and listens when that has left."""
    piece = Frame(Position(1, b"w" * 16, 1), Kind.DATA, START, b"", HEADER, 100)
    assert carried_in(piece) == AnswerSubmissions(())
    outbox = Outbox(lambda: 5.0)
    outbox.read(1, carried_in(piece), 0.01)
    assert outbox.may_submit(1)
    outbox.read(1, None, 0.01)
    assert not outbox.may_submit(1)


@pytest.mark.parametrize("outstanding", [False, True])
def test_nothing_is_submitted_to_a_maker_that_was_heard_to_close(outstanding: bool) -> None:
    company = Company()
    owner = processor_of(company.owner)
    futures = [company.owner.submit([appended(b"first")])] if outstanding else []
    owner.step()
    company.close_maker()
    company.owner.refresh()
    futures.append(company.owner.submit([appended(b"last")]))
    messages = company.inbox
    for _ in range(30):
        owner.log.meet()
        owner.step()
        company.simulation.advance(0.001)
    assert [future.exception(0) for future in futures] == [None] * len(futures)
    assert futures[-1].result().tries == 1 and company.inbox == messages
    assert company.content == b"first" * outstanding + b"last"


@pytest.mark.parametrize("direct", [False, True])
def test_what_was_refused_waits_for_no_round(direct: bool) -> None:
    """A maker that is busy keeps its own transactions for the round that is under way, but not those."""
    company, executor = made_by_hand(others=3)
    maker = processor_of(company.maker)
    for container in company.containers[:4]:
        container.submit([appended(b".")])
        processor_of(container).step()
    for _ in range(4):  # it lists, takes in, sends and settles
        maker.step()
    assert company.content == b"a...."
    executor.inline = False
    maker.log.meet()
    maker.step()  # the next round
    maker.submit(Transaction([appended(b"own")], direct=direct))
    maker.step()
    assert len(maker.log.flights) == direct


# --- epoch: what was taken in for a past one is carried no more ------------------------------------------------------


def test_what_a_slow_listing_brings_is_not_carried_in_a_later_epoch() -> None:
    """The epoch has changed twice since the listing began, and the maker is the same. Its owner has gone on: it would
    be there twice."""
    company, executor = made_by_hand()
    processor = processor_of(company.maker)
    future = company.owner.submit([appended(b"once")])
    processor_of(company.owner).step()
    executor.inline = False
    processor.step()  # lists
    executor.inline = True
    company.now(company.containers[2], appended(b"b"))
    company.now(company.maker, appended(b"c"))
    executor.land()
    processor.sends = False  # as many are in flight as may be
    for _ in range(3):  # it takes in what was listed, and lists for the new epoch
        company.simulation.advance(1.0)
        processor.log.meet()
        processor.step()
    processor.sends = True
    company.turn()
    assert future.result(0).tries == 2
    assert company.content.count(b"once") == 1
