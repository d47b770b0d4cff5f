"""Each transaction is completed once, in the order of the log (W3, W11)."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest

from engine.errors import ContainerOffline, Rejected
from engine.logs.acknowledgements import Acknowledgements, guarded
from engine.logs.frames import Position
from engine.logs.log import Flight
from engine.logs.throttle import Throttle
from engine.logs.transaction import Receipt, Transaction
from engine.logs.validation import ValidationResult
from engine.state.operations import Append, Payload
from engine.state.state import EMPTY

STATE = EMPTY._replace(sequence=5)


class Callers:
    """Acknowledgements of transactions of 10 bytes, whose callbacks are kept in order."""

    def __init__(self) -> None:
        self.throttle = Throttle(1000, 1000, 1.0, relieve=lambda: "", clock=lambda: 0.0, sleep=lambda seconds: None)
        self.deleted: list[str] = []
        self.acknowledgements = Acknowledgements(self.throttle, self.deleted.append)
        self.told: list[Transaction] = []

    def transaction(self, chunk: str | None = None, queued: bool = True) -> Transaction:
        transaction = Transaction([Append("s", Payload(bytes(10)))])
        self.throttle.admit(transaction, lambda: 0)
        self.acknowledgements.register(transaction)
        transaction.chunk = chunk
        transaction.number = 0 if queued else -1
        transaction.create_future().add_done_callback(lambda future: self.told.append(transaction))
        return transaction

    def settle(
        self,
        address: int,
        accepted: Sequence[Transaction],
        rejected: Sequence[tuple[Transaction, BaseException]] = (),
    ) -> None:
        result = ValidationResult(STATE)
        result.accepted = [(each, [place]) for place, each in enumerate(accepted)]
        result.rejected = list(rejected)
        self.acknowledgements.settled.append(Flight(Position(address, b"w" * 16, 1), b"", 0.0, None, result))


@pytest.fixture
def callers() -> Callers:
    return Callers()


def test_transactions_of_live_frames_are_completed_in_the_order_of_the_log(callers: Callers) -> None:
    first, second, third, refused, fourth = (callers.transaction() for _ in range(5))
    second.tries = 3
    callers.settle(7, [first, second], [(refused, Rejected("no"))])
    callers.settle(8, [third])
    assert callers.acknowledgements.complete_settled() and not callers.acknowledgements.settled
    assert callers.told == [first, second, refused, third]
    assert first.outcome == Receipt(7, [0], 0, STATE) and second.outcome == Receipt(7, [1], 3, STATE)
    assert third.outcome == Receipt(8, [0], 0, STATE) and isinstance(refused.outcome, Rejected)
    assert callers.acknowledgements.pending() == [fourth] and callers.throttle.outstanding == 10
    assert not callers.acknowledgements.complete_settled()


def test_the_first_outcome_stands(callers: Callers) -> None:
    one, other = callers.transaction(), callers.transaction()
    receipt = Receipt(7, [0], 1, STATE)
    callers.acknowledgements.complete(one, receipt)
    callers.acknowledgements.fail([one, other], ContainerOffline("late"))
    assert one.outcome is receipt and isinstance(other.outcome, ContainerOffline)
    assert callers.told == [one, other] and callers.throttle.outstanding == 0


def test_a_callback_may_complete_the_frames_that_follow(callers: Callers) -> None:
    one, other, last = (callers.transaction() for _ in range(3))
    assert one.future is not None
    one.future.add_done_callback(lambda future: callers.acknowledgements.complete_settled())
    callers.settle(7, [one])
    callers.settle(8, [other])
    callers.settle(9, [last])
    assert callers.acknowledgements.complete_settled()
    assert callers.told == [one, other, last] and not callers.acknowledgements.settled
    assert not callers.acknowledgements.pending()


def test_a_frame_that_settles_during_a_callback_is_not_lost(callers: Callers) -> None:
    one, other = callers.transaction(), callers.transaction()

    def call_back(future: object) -> None:
        callers.acknowledgements.complete_settled()
        callers.settle(8, [other])

    assert one.future is not None
    one.future.add_done_callback(call_back)
    callers.settle(7, [one])
    callers.acknowledgements.complete_settled()
    assert callers.told == [one, other] and not callers.acknowledgements.pending()


@pytest.mark.parametrize(
    ("outcome", "deleted"),
    [(Rejected("no"), True), (ContainerOffline("maybe"), False), (Receipt(7, [0], 1, STATE), False)],
    ids=lambda value: type(value).__name__,
)
def test_a_chunk_is_deleted_if_its_transaction_was_rejected(
    callers: Callers, outcome: Receipt | BaseException, deleted: bool
) -> None:
    """Otherwise a segment names it, or may name it."""
    callers.acknowledgements.complete(callers.transaction("chunk"), outcome)
    callers.acknowledgements.complete(callers.transaction(), outcome)
    assert callers.deleted == ["chunk"] * deleted


def test_what_was_not_queued_is_withdrawn(callers: Callers) -> None:
    queued, unqueued = callers.transaction(), callers.transaction(queued=False)
    for transaction in (queued, unqueued):
        callers.acknowledgements.withdraw(transaction)
    assert callers.acknowledgements.pending() == [queued] and callers.throttle.outstanding == 10
    callers.acknowledgements.withdraw(unqueued)
    assert callers.throttle.outstanding == 10, "its room is given back once"


def test_an_error_after_an_acknowledgement_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def delete(chunk: str) -> None:
        raise OSError(f"no way to {chunk}")

    with caplog.at_level(logging.ERROR):
        guarded(delete, "chunk")
    assert "no way to chunk" in caplog.text and "operations before it are not affected" in caplog.text
