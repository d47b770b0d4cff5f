"""The model of the commit queue: with all rules it keeps its promises, and without any one of them it does not."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.engine.logs.commit_queue_model import (
    ANY,
    DIRECT,
    REJECTED,
    RULES,
    UNKNOWN,
    Bounds,
    Faults,
    Model,
    Report,
    State,
    Unfinished,
    search,
)

TWICE = "an operation counts twice"
ORDER = "two operations of one owner count in the wrong order"
RESULT = "a live frame records a result that its replay does not give"
LOST = "an operation was acknowledged, and is not in the log"
DONE = "an operation was reported as not done, and is in the log"
OUTCOMES = "an operation got two outcomes"
STUCK = "an owner cannot complete its operations by itself"


# --- all rules -------------------------------------------------------------------------------------------------------

SMALL = {
    "three processes and a crash": Bounds(((), (ANY,), (ANY,)), (2, 1, 1), 2, Faults(crashes=1)),
    "two owners with one condition": Bounds(((), (0,), (0,)), (2, 1, 1), 2, Faults(undecided=1)),
    "submissions of two, split and refused": Bounds(
        ((ANY,), (0, ANY)), (2, 1), 3, Faults(undecided=1), together=2, split=True
    ),
    "no answer, a rejected request and a crash": Bounds(
        ((), (1, ANY)), (1, 2), 3, Faults(unknowns=1, failures=1, crashes=1), together=2
    ),
    "two submissions, and no answer": Bounds(((), (ANY, ANY)), (2, 2), 3, Faults(unknowns=1)),
    "a sleeper": Bounds(((ANY,), (ANY,)), (2, 2), 3, Faults(sleeps=1, truncations=1)),
    "a sleeper, and a process that opens late": Bounds(
        ((ANY,), (ANY,)), (3, 1), 3, Faults(sleeps=1, truncations=1), late=True
    ),
    "a void frame in the way": Bounds(((ANY,), (ANY,)), (2, 2), 3, Faults(bells=1)),
    "a clone": Bounds(((), (ANY,)), (2, 1), 3, Faults(clones=1)),
    "a clone, and no answer": Bounds(((), (ANY,)), (1, 1), 3, Faults(clones=1, unknowns=1)),
}

LARGE = {
    "three processes, a crash and no answer": Bounds(
        ((ANY,), (ANY,), (0,)), (2, 1, 1), 2, Faults(crashes=1, unknowns=1), submissions=1
    ),
    "three processes, a sleeper among them": Bounds(
        ((ANY,), (ANY,), (ANY,)), (2, 1, 1), 3, Faults(sleeps=1, truncations=1), late=True
    ),
    "a sleeper, and a rejected request": Bounds(
        ((ANY,), (ANY, 1)), (2, 2), 3, Faults(sleeps=1, truncations=1, failures=1), together=2
    ),
}


@pytest.mark.parametrize("bounds", SMALL.values(), ids=SMALL)
def test_with_all_rules_no_order_of_steps_breaks_a_promise_or_blocks_an_owner(bounds: Bounds) -> None:
    found = search(bounds, check_progress=True)
    assert not found.violation, found


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("bounds", LARGE.values(), ids=LARGE)
def test_with_all_rules_no_order_of_many_steps_breaks_a_promise_or_blocks_an_owner(bounds: Bounds) -> None:
    found = search(bounds, most=2_000_000, check_progress=True)
    assert not found.violation, found


# --- without one rule ------------------------------------------------------------------------------------------------


class Broken(NamedTuple):
    """Bounds in which it shows that a rule is missing, and the promise that is broken then."""

    bounds: Bounds
    violation: str


ONE = ((), (ANY,))
TWO = ((), (ANY, ANY))

WITHOUT = {
    # An owner's own frame holds the operation; the maker of the next epoch carries the submission to the last one.
    "epoch": Broken(Bounds(ONE, (1, 1), 2), TWICE),
    # Two frames of the maker carry the same submission.
    "ahead": Broken(Bounds(ONE, (2, 0), 2), TWICE),
    # An old submission is carried behind a newer one, after OutcomeUnknown for the old one.
    "mono": Broken(Bounds(TWO, (2, 1), 2, Faults(unknowns=1)), ORDER),
    # The maker refuses, and accepts the same submission in its next frame; the owner has reported the refusal.
    "nil": Broken(Bounds(((), (1,), (ANY,)), (2, 0, 0), 2), DONE),
    # Two submissions in one frame get the same result.
    "judged": Broken(Bounds(((), (ANY,), (ANY,)), (1, 0, 0), 1), RESULT),
    # An own frame holds the second operation in front of the first, which was submitted.
    "first": Broken(Bounds(TWO, (0, 1), 1), ORDER),
    # The first operation is in an own frame, which loses its race to the frame that carries the second one.
    "idle": Broken(Bounds(TWO, (1, 2), 2), ORDER),
    # An owner submits the same operation twice, in two submissions that the maker carries.
    "early": Broken(Bounds(ONE, (1, 0), 1), TWICE),
    # The first of two own frames makes the submission void, and the second holds the operation that is queued again.
    "flown": Broken(Bounds(TWO, (0, 3), 3, together=2), TWICE),
    # A frame that carries the submission is void, as the one before it lost its address to a bell.
    "live": Broken(Bounds(((ANY,), (ANY,)), (2, 0), 2, Faults(bells=1)), LOST),
    # Two clones submit under one number. One is carried, and both are completed.
    "nonce": Broken(Bounds(ONE, (1, 0), 1, Faults(clones=1)), LOST),
    # The owner refuses what the maker then accepts, behind another owner's operation.
    "held": Broken(Bounds(((), (1,), (ANY,)), (2, 0, 0), 2), DONE),
    # The storage rejects an own frame, and the maker has carried the submission.
    "failed": Broken(Bounds(ONE, (1, 1), 1, Faults(failures=1)), DONE),
    # An operation of unknown outcome is completed when its submission is carried.
    "once": Broken(Bounds(ONE, (1, 1), 1, Faults(unknowns=1)), OUTCOMES),
    # The maker carried the submission; its owner reports it as unknown, and has it in a frame of its own later.
    "dequeued": Broken(Bounds(ONE, (1, 1), 2, Faults(failures=1)), TWICE),
    # The frame that carried the submission is deleted while the owner sleeps.
    "moved": Broken(Bounds(((ANY,), (ANY,)), (2, 1), 3, Faults(sleeps=1, truncations=1)), TWICE),
    # The maker's clone goes on in the same epoch, and does not know what the maker has carried.
    "identity": Broken(Bounds(ONE, (2, 0), 2, Faults(clones=1)), TWICE),
    # The second frame of one clone follows on the first frame of the other one.
    "seal": Broken(Bounds(((ANY, ANY),), (2,), 2, Faults(clones=1)), RESULT),
    # The owner waits for ever for a maker that is silent.
    "patience": Broken(Bounds(ONE, (0, 1), 1), STUCK),
    # The same: its state refuses the operation, which it may not report while the submission can still be carried.
    "empty": Broken(Bounds(((), (1,)), (0, 1), 1), STUCK),
}


def test_every_rule_is_tried() -> None:
    assert set(WITHOUT) == set(RULES)


def test_every_rule_of_the_docs_is_in_the_model() -> None:
    page = Path(__file__).resolve().parents[3] / "docs" / "invariants.md"
    listed = set(re.findall(r"^#.*>(W18\.\d+) ", page.read_text("utf-8"), re.MULTILINE))
    # How submissions travel on one host, and which makers get any: in the model they arrive at any time, or never.
    not_modelled = {"W18.11", "W18.12"}
    assert listed - not_modelled == set(re.findall(r"W18\.\d+", " ".join(RULES.values())))


@pytest.mark.parametrize("rule", WITHOUT)
def test_without_a_rule_a_promise_is_broken(rule: str) -> None:
    bounds, violation = WITHOUT[rule]
    found = search(bounds, off=[rule], check_progress=violation == STUCK)
    assert found.violation == violation, found
    assert not search(bounds, check_progress=True).violation, "and with it none is"


# --- what happens with all rules -------------------------------------------------------------------------------------


def is_reachable(bounds: Bounds, wanted: Callable[[State], bool]) -> bool:
    """Whether some order of steps leads to a state like this."""
    model = Model(bounds)
    queue, seen = deque([model.start()]), {model.start()}
    while queue:
        for step in model.steps(queue.popleft()):
            if step.state not in seen:
                if wanted(step.state):
                    return True
                seen.add(step.state)
                queue.append(step.state)
    return False


def carried(state: State) -> int:
    """How many operations the live log has that came with submissions."""
    return sum(entry.number != DIRECT for frame in state.chain for entry in frame.entries)


def test_of_a_submission_of_two_operations_one_may_be_refused() -> None:
    bounds = Bounds(((), (1, ANY)), (1, 0), 1, together=2)
    assert is_reachable(bounds, lambda state: set(state.reports) == {Report(1, 0, REJECTED), Report(1, 1, 0)})


def test_an_operation_that_the_maker_sets_aside_is_overtaken() -> None:
    bounds = Bounds(TWO, (2, 0), 2, Faults(undecided=1), together=2)
    assert is_reachable(bounds, lambda state: state.reports == (Report(1, 0, 1), Report(1, 1, 0)))


def test_an_operation_that_the_maker_refuses_may_be_accepted_later_by_its_owner() -> None:
    bounds = Bounds(((), (1, ANY)), (1, 1), 2, together=2)
    assert is_reachable(bounds, lambda state: state.reports == (Report(1, 0, 1), Report(1, 1, 0)))
    alone = Bounds(((1, ANY),), (2,), 2)
    assert not is_reachable(alone, lambda state: Report(0, 0, 1) in state.reports), "without a maker it is refused"


def test_an_operation_that_the_maker_refused_is_not_submitted_again() -> None:
    bounds = Bounds(((), (1,), (ANY,)), (2, 1, 0), 3)
    assert is_reachable(bounds, lambda state: Report(1, 0, 1) in state.reports and state.chain[-1].epoch == 1)
    assert not is_reachable(bounds, lambda state: state.processes[1].number == 2 and bool(state.processes[1].direct))


def test_a_submission_may_be_carried_in_two_frames() -> None:
    bounds = Bounds(TWO, (2, 0), 2, submissions=1, together=2, split=True)
    assert is_reachable(bounds, lambda state: len(state.chain) == 3 and len(state.reports) == 2)
    assert not is_reachable(bounds._replace(split=False), lambda state: len(state.chain) == 3)


def test_two_owners_are_served_by_one_frame() -> None:
    bounds = Bounds(((), (0,), (0,)), (1, 0, 0), 1)
    assert is_reachable(bounds, lambda state: set(state.reports) == {Report(1, 0, 0), Report(2, 0, REJECTED)})


def test_both_clones_of_an_owner_have_their_operation_done() -> None:
    bounds = Bounds(ONE, (1, 1), 2, Faults(clones=1))
    assert is_reachable(bounds, lambda state: {report[:2] for report in state.reports} == {(1, 0), (2, 0)})


def test_an_operation_of_unknown_outcome_may_have_been_carried() -> None:
    slept = Bounds(((ANY,), (ANY,)), (2, 0), 2, Faults(sleeps=1, truncations=1))
    assert is_reachable(slept, lambda state: carried(state) == 1 and Report(1, 0, UNKNOWN) in state.reports)


# --- the search ------------------------------------------------------------------------------------------------------


def test_the_shortest_way_to_a_violation_is_shown() -> None:
    found = search(WITHOUT["ahead"].bounds, off=["ahead"])
    assert str(found).splitlines() == [
        f"{TWICE} ({found.states} states)",
        "1 submits 1.0 as number 0 to epoch 0",
        "0 sends @1 of epoch 0 [1.0 of number 0 = 0]",
        "0 sends @2 of epoch 0 [1.0 of number 0 = 1]",
        "0 creates @1 of epoch 0 [1.0 of number 0 = 0]",
        "0 creates @2 of epoch 0 [1.0 of number 0 = 1]",
    ]


def test_a_search_that_would_be_too_large_is_not_taken_for_a_complete_one() -> None:
    with pytest.raises(Unfinished, match="no violation in the first 100 states"):
        search(SMALL["a sleeper"], most=100)


def test_a_rule_that_does_not_exist_cannot_be_switched_off() -> None:
    with pytest.raises(ValueError, match="no such rule: speed"):
        search(SMALL["a sleeper"], off=["speed"])
