"""What an owner knows of its submission, from the frames that it reads (W18)."""

from __future__ import annotations

from typing import Any

import pytest

from engine.errors import Rejected
from engine.logs.log import CROWD
from engine.logs.outbox import (
    EXPECTED,
    LEAST_PATIENCE,
    LONGEST_WAIT_TRIPS,
    LOOK_TRIPS,
    PASSED_OVER,
    PATIENCE_TIMES,
    PATIENCE_TRIPS,
    UNANSWERED,
    WAITED,
    Outbox,
)
from engine.logs.transaction import Receipt, Transaction
from engine.state.operations import Answer, AnswerSubmissions, Append, OperationResult, Payload
from engine.state.state import EMPTY

TRIP = 1.0
LISTENING = AnswerSubmissions(())


class Owner:
    """An owner with a submission of two transactions to the maker of epoch 5."""

    def __init__(self, count: int = 2) -> None:
        self.time = 100.0
        self.outbox = Outbox(lambda: self.time)
        self.batch = [Transaction([Append("s", Payload(b"x"))]) for _ in range(count)]
        self.address = self.outbox.new_address(5)
        self.outbox.submit(self.batch, self.address)

    def answer(self, place: int, results: tuple[OperationResult, ...] | None, **changes: Any) -> AnswerSubmissions:
        owner, number, nonce = self.address[1:]
        return AnswerSubmissions((Answer(owner, number, nonce, place, results)._replace(**changes),))

    def knows(self) -> tuple[bool, bool, bool]:
        return self.outbox.active, self.outbox.waiting, self.outbox.recalled


@pytest.fixture
def owner() -> Owner:
    return Owner()


def test_submissions_are_numbered_and_have_nonces_of_their_own(owner: Owner) -> None:
    following = owner.outbox.new_address(6)
    assert (owner.address.epoch, owner.address.number, following.epoch, following.number) == (5, 1, 6, 2)
    assert owner.address.owner == following.owner and len({owner.address.nonce, following.nonce}) == 2
    assert (len(owner.address.owner), len(owner.address.nonce)) == (16, 8)
    assert owner.batch[0] in owner.outbox and Transaction([]) not in owner.outbox


def test_a_live_frame_completes_what_it_carries(owner: Owner) -> None:
    one, other = owner.batch
    assert owner.knows() == (True, True, False)
    outcomes = owner.outbox.read(5, owner.answer(1, (OperationResult(7, None), OperationResult(None, ("a",)))), TRIP)
    assert outcomes == ([(other, [7, ("a",)])], [], []) and owner.outbox.active
    assert owner.outbox.read(5, LISTENING, TRIP) == owner.outbox.read(5, None, TRIP) == ([], [], [])
    assert other not in owner.outbox and one in owner.outbox
    assert owner.outbox.read(5, owner.answer(1, ()), TRIP) == ([], [], []), "once"
    assert owner.outbox.read(5, owner.answer(0, None), TRIP) == ([], [], [one])
    assert owner.knows() == (False, False, False), "nothing is outstanding"
    assert owner.outbox.read(5, owner.answer(0, ()), TRIP) == ([], [], [])


ANOTHER = {"nonce": b"another!"}


@pytest.mark.parametrize("changes", [{"owner": b"o" * 16, **ANOTHER}, {"number": 2, **ANOTHER}, ANOTHER], ids=str)
def test_answers_to_other_submissions_are_none_of_its_own(owner: Owner, changes: dict[str, Any]) -> None:
    assert owner.outbox.read(5, owner.answer(0, (), **changes), TRIP) == ([], [], [])
    assert owner.outbox.read(5, owner.answer(2, ()), TRIP) == ([], [], []), "it has no third transaction"
    assert owner.outbox.active and owner.outbox.recall() == owner.batch
    renamed = owner.outbox.new_address(5).owner != owner.address.owner
    assert renamed is (len(changes) == 1), "only a clone of this process has submitted under its name"


def test_its_answers_are_found_among_those_to_others(owner: Owner) -> None:
    ours = [owner.answer(place, ()).answers[0] for place in (1, 0)]
    theirs = [ours[0]._replace(owner=b"o" * 16), ours[0]._replace(place=9)]
    mixed = AnswerSubmissions((theirs[0], ours[0], ours[0], theirs[1], ours[1]))
    assert owner.outbox.read(5, mixed, TRIP) == ([(owner.batch[1], []), (owner.batch[0], [])], [], [])


@pytest.mark.parametrize("recalled", [False, True])
def test_a_higher_epoch_makes_what_it_does_not_carry_void(owner: Owner, recalled: bool) -> None:
    one, other = owner.batch
    if recalled:
        assert owner.outbox.recall() == [one, other] and owner.knows() == (True, False, True)
    assert owner.outbox.read(4, LISTENING, TRIP) == owner.outbox.read(5, LISTENING, TRIP) == ([], [], [])
    outcomes = owner.outbox.read(6, owner.answer(0, (OperationResult(3, None),)), TRIP)
    assert outcomes == ([(one, [3])], [] if recalled else [other], []), "what is in own frames is not queued again"
    assert owner.knows() == (False, False, False)
    owner.outbox.submit([other], owner.outbox.new_address(6))
    assert owner.outbox.active and other in owner.outbox


def test_own_frames_that_lost_a_race_wait_for_the_outcome_again(owner: Owner) -> None:
    one, other = owner.batch
    owner.outbox.recall()
    assert owner.outbox.wait_again(TRIP) == [one, other] and owner.knows() == (True, True, False)
    owner.outbox.recall()
    one.complete(Receipt(1, [0], 1, EMPTY))
    assert owner.outbox.wait_again(TRIP) == [other] and owner.knows() == (True, True, False)
    assert owner.outbox.read(5, owner.answer(0, ()), TRIP) == ([], [], []), "it was completed"
    owner.outbox.recall()
    other.complete(Rejected("no"))
    assert owner.outbox.wait_again(TRIP) == [] and owner.knows() == (False, False, False)


def test_what_is_forgotten_is_returned_and_not_outstanding(owner: Owner) -> None:
    assert owner.outbox.forget() == owner.batch and owner.knows() == (False, False, False)
    assert owner.outbox.forget() == [] and owner.batch[0] not in owner.outbox


def test_only_a_maker_whose_newest_frame_says_that_it_listens_is_submitted_to() -> None:
    outbox = Outbox(lambda: 100.0)
    assert not any(outbox.may_submit(epoch) for epoch in (0, 1, 5))
    assert (outbox.active, outbox.waiting, outbox.recalled, outbox.next_look) == (False, False, False, 0.0)
    outbox.read(5, LISTENING, TRIP)
    assert outbox.may_submit(5) and not outbox.may_submit(4) and not outbox.may_submit(6)
    for says in (None, AnswerSubmissions((), leaving=True)):
        outbox.read(5, says, TRIP)
        assert not outbox.may_submit(5)
        outbox.read(5, LISTENING, TRIP)


@pytest.mark.parametrize("answered", [1, CROWD - 1, CROWD])
def test_frames_that_answer_a_crowd_pass_over_less(answered: int) -> None:
    owner = Owner()
    answers = AnswerSubmissions(tuple(Answer(b"o" * 16, 1, bytes(8), place, ()) for place in range(answered)))
    frames = PASSED_OVER * (CROWD if answered == CROWD else 1)
    for _ in range(frames - 1):
        owner.outbox.read(5, answers, TRIP)
        owner.outbox.read(5, LISTENING, TRIP)  # it answers nobody
    assert owner.outbox.may_submit(5)
    owner.outbox.read(5, answers, TRIP)
    assert not owner.outbox.may_submit(5)
    owner.outbox.read(5, owner.answer(0, ()), TRIP)
    assert owner.outbox.may_submit(5), "it was served"


def test_an_owner_is_patient_in_proportion_to_the_round_trip(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.uniform", lambda least, most: least)
    outbox = owner.outbox
    outbox.begin_to_wait(TRIP)
    patience = PATIENCE_TRIPS * TRIP
    assert outbox.next_look == owner.time + TRIP / 2
    owner.time += patience / UNANSWERED - 0.01
    assert not outbox.impatient
    owner.time += 0.02
    assert outbox.impatient
    outbox.read(5, LISTENING, TRIP)  # the maker lives: patience begins again, by what its frame took
    took = patience / UNANSWERED + 0.01
    owner.time += patience + PATIENCE_TIMES * took - 0.01
    assert not outbox.impatient
    owner.time += 0.02
    assert outbox.impatient
    outbox.begin_to_wait(0.0)
    owner.time += LEAST_PATIENCE - 0.01
    assert not outbox.impatient
    owner.time += 0.02
    assert outbox.impatient


def test_an_outcome_is_looked_for_when_it_is_expected(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.uniform", lambda least, most: least)
    outbox = owner.outbox
    for took in (8.0, 4.0):
        owner.time += took
        outbox.read(5, owner.answer(0 if took == 8.0 else 1, ()), TRIP)
    assert not outbox.active
    outbox.submit(owner.batch, outbox.new_address(5))
    sent = owner.time
    outbox.begin_to_wait(TRIP)
    assert outbox.next_look == sent + min(EXPECTED * 8.0, LONGEST_WAIT_TRIPS * TRIP), "the quickest of those so far"
    owner.time += 6.0
    outbox.looked(TRIP)
    assert outbox.next_look == owner.time + max(LOOK_TRIPS * TRIP, 6.0 / WAITED)
    outbox.begin_to_wait(TRIP, notified=True)
    deadline = outbox.next_look
    outbox.looked(TRIP)
    assert outbox.next_look == deadline, "the maker sends a message"
    assert not outbox.impatient
    owner.time = deadline
    assert outbox.impatient


def test_an_owner_that_was_passed_over_for_long_stays_impatient(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.uniform", lambda least, most: least)
    others = AnswerSubmissions((Answer(b"o" * 16, 1, bytes(8), 0, ()),))
    for _ in range(PASSED_OVER - 1):
        owner.outbox.read(5, others, TRIP)
    owner.time += 1000.0
    assert owner.outbox.impatient
    for _ in range(2):
        owner.outbox.read(5, others, TRIP)
        assert owner.outbox.impatient, "the frame does not make it patient again"
    owner.outbox.served()
    owner.outbox.read(5, others, TRIP)
    assert not owner.outbox.impatient


def test_a_maker_that_serves_a_crowd_is_waited_for(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its frames take long, and it takes in what many submit by turns."""
    monkeypatch.setattr("random.uniform", lambda least, most: least)
    crowd = AnswerSubmissions(tuple(Answer(b"o" * 16, 1, bytes(8), place, ()) for place in range(CROWD)))
    for place, took in enumerate((20.0, 10.0)):
        owner.time += took
        owner.outbox.read(5, owner.answer(place, ()), TRIP)
    owner.outbox.read(5, crowd, TRIP)
    owner.outbox.submit(owner.batch, owner.outbox.new_address(5))
    owner.outbox.begin_to_wait(TRIP)
    assert owner.outbox.next_look == owner.time + EXPECTED * 20.0, "the quickest took so long"
    owner.time += PATIENCE_TRIPS * TRIP + PATIENCE_TIMES * 20.0 - 0.01
    assert not owner.outbox.impatient
    owner.time += 0.02
    assert owner.outbox.impatient


def test_an_owner_whose_maker_does_not_listen_any_more_acts_soon(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.random", lambda: 0.5)
    owner.outbox.begin_to_wait(TRIP, notified=True)
    owner.outbox.read(5, None, TRIP)
    assert owner.outbox.next_look == owner.time + TRIP and not owner.outbox.impatient
    owner.time += TRIP
    assert owner.outbox.impatient
