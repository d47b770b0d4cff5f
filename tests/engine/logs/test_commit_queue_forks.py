"""Processes that commit together (W18) fork while a submission is outstanding, with Python's knowledge or without.

Of a fork that Python does not see, both lives have the memory of one process: the same owner and numbers, or the same
maker, inbox and queue. Whatever each acknowledges is in the log once (W15).
"""

from __future__ import annotations

import os
from concurrent.futures import Future
from pathlib import Path

import pytest

from chunkstore import open_store
from engine.containers.container import Container
from engine.logs.submission import inbox_folder
from engine.logs.transaction import Receipt
from engine.state.operations import Operation
from tests.engine.forks import in_child, in_unseen_child, refusals
from tests.engine.logs.company import Company, OnFolder, S, appended, carried, processor_of

pytestmark = [pytest.mark.processes, pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")]


@pytest.fixture
def company(tmp_path: Path) -> Company:
    return Company(simulation=OnFolder(str(tmp_path)))


class Signal:
    """What one process gives and another one waits for."""

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe()

    def give(self) -> None:
        os.write(self._writing, b".")

    def wait(self) -> None:
        os.read(self._reading, 1)


def outcome(company: Company, container: Container, *operations: Operation, alone: bool = True) -> int:
    """Let a container commit; the offset of what was appended. alone: the others do nothing meanwhile."""
    future = container.submit(operations)
    for _ in range(300):
        if future.done():
            return int(future.result(0).results[0])
        company.turn(*[container] if alone else [])
        company.simulation.advance(0.02)
    raise AssertionError("no outcome")


@pytest.mark.parametrize("steps", range(4))
@pytest.mark.parametrize("appends", [False, True])
def test_a_fork_that_python_sees_leaves_a_submission_to_the_parent(company: Company, appends: bool, steps: int) -> None:
    """Wherever it is: posted, listed, taken in, or in a frame. The child may append by a container of its own."""
    owner, maker = company.owner, company.maker
    future = owner.submit([appended(b"once;")])
    company.step(owner)
    for _ in range(steps):
        company.step(maker)
    calls = [lambda each=each: each.submit([appended(b"child;")]) for each in (owner, maker)]
    assert refusals(*calls) == [True, True]

    def append() -> int:
        with company.simulation.open() as own:
            return own.append(S, b"child;")

    in_child(append if appends else owner.close)
    for _ in range(100):
        company.turn()
        company.simulation.advance(0.02)
    offset = future.result(0).results[0]
    later = outcome(company, owner, appended(b"later;"), alone=False)
    content = company.content
    assert content[offset:].startswith(b"once;") and content[later:].startswith(b"later;")
    assert sorted(content.split(b";")[:-1]) == sorted([b"once", b"later", *[b"child"] * appends])


def test_two_lives_of_an_owner_know_what_was_carried_and_submit_under_one_number(tmp_path: Path) -> None:
    company = Company(simulation=OnFolder(str(tmp_path)))
    owner, maker = company.owner, company.maker
    future = owner.submit([appended(b"once;")])
    company.step(owner)
    carries, submitted, go_on = Signal(), Signal(), Signal()

    def submit(event: bytes) -> Future[Receipt]:
        company.turn(owner)
        assert future.result(0).results == [0]
        own = owner.submit([appended(event)])
        company.step(owner)
        assert processor_of(owner).outbox.waiting
        return own

    def child() -> None:
        carries.wait()
        own = submit(b"child;")
        submitted.give()
        go_on.wait()
        while not own.done():
            company.turn(owner)
        assert company.content[own.result(0).results[0] :].startswith(b"child;")

    number = in_unseen_child(child)
    company.turn(maker)
    carries.give()
    submitted.wait()
    own = submit(b"parent;")
    assert len(open_store(str(tmp_path)).list(inbox_folder(0))) >= 2
    company.turn(maker)
    go_on.give()
    for _ in range(100):
        company.turn(owner)
        company.simulation.advance(0.02)
    assert os.waitpid(number, 0)[1] == 0
    content = company.content
    assert content[own.result(0).results[0] :].startswith(b"parent;")
    assert sorted(content.split(b";")[:-1]) == [b"child", b"once", b"parent"]
    assert carried(open_store(str(tmp_path))) >= 2


@pytest.mark.parametrize("steps", range(6))
@pytest.mark.parametrize("first", ["child", "parent"])
def test_two_lives_of_a_maker_carry_a_submission_once(company: Company, first: str, steps: int) -> None:
    """It is posted, listed, taken in, or in a frame when the maker forks."""
    owner, maker = company.owner, company.maker
    future = owner.submit([appended(b"once;")])
    company.step(owner)
    for _ in range(steps):
        company.step(maker)
    go_on = Signal()

    def child() -> None:
        go_on.wait()
        company.turn(maker)
        outcome(company, maker, appended(b"child;"))

    number = in_unseen_child(child)
    if first == "child":
        go_on.give()
        assert os.waitpid(number, 0)[1] == 0
    company.turn(maker)
    outcome(company, maker, appended(b"parent;"))
    if first == "parent":
        go_on.give()
        assert os.waitpid(number, 0)[1] == 0
    for _ in range(50):
        company.turn()
        company.simulation.advance(0.02)
    content = company.content
    assert content[future.result(0).results[0] :].startswith(b"once;")
    assert sorted(content.split(b";")[:-1]) == [b"child", b"once", b"parent"]
