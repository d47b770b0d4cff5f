"""A transaction by itself: its outcome, who is woken, and what is counted of its operations."""

from __future__ import annotations

import gc
import threading
import weakref
from collections import deque
from concurrent.futures import TimeoutError as WaitTimeout
from typing import Any
from unittest import mock

import pytest

from engine.errors import InvalidOperation
from engine.logs.transaction import (
    SPILL_BYTES,
    Priority,
    Receipt,
    Transaction,
    adds_data,
    payload_size,
    wake_next,
)
from engine.state.index_records import RECORD_SIZE, IndexRecords
from engine.state.operations import (
    ActivateSegment,
    AnswerSubmissions,
    Append,
    AttributeUpdate,
    CreateSegment,
    CreateTable,
    DeleteSegment,
    DeleteTable,
    ExpireSegments,
    LoadAttributes,
    MergeSegment,
    Operation,
    Payload,
    PutEntry,
    SealSegment,
    TruncateSegment,
    UpdateAttributes,
    UpdateKind,
)
from engine.state.segments import Extent
from engine.state.state import EMPTY
from engine.state.tables import LookupResult

RECEIPT = Receipt(5, [None], 1, EMPTY)
RECORDS = IndexRecords("s/a", bytes(2 * RECORD_SIZE))
EXTENT = Extent("chunk", 0, 5, b"1234")

DATA = Payload(b"data")


def append(content: Any = DATA, **fields: Any) -> Append:
    return Append("s/a", content, **fields)


def completed(outcome: Any = RECEIPT, chain: deque[Transaction] | None = None) -> Transaction:
    transaction = Transaction([append()])
    transaction.complete(outcome, chain)
    return transaction


# --- its outcome -----------------------------------------------------------------------------------------------------


def test_a_receipt_is_the_result_for_a_thread_and_for_a_future() -> None:
    assert completed().result() is RECEIPT
    transaction = Transaction([append()])
    future = transaction.create_future()
    with pytest.raises(WaitTimeout):
        future.result(0)
    with pytest.raises(WaitTimeout):
        future.exception(0)
    assert not future.done()
    transaction.complete(RECEIPT)
    assert future.done()
    assert future.result() is future.result(0) is transaction.result() is RECEIPT
    assert future.exception() is future.exception(0) is None


def test_an_error_is_raised_for_a_thread_once_and_for_a_future_always() -> None:
    error = ValueError("rejected")
    transaction = completed(error)
    with pytest.raises(ValueError, match="rejected"):
        transaction.result()
    assert transaction.outcome is not error, "its traceback would hold the transaction"
    transaction = Transaction([append()])
    future = transaction.create_future()
    transaction.complete(error)
    assert future.done()
    for _ in range(2):
        with pytest.raises(ValueError, match="rejected"):
            future.result()
        with pytest.raises(ValueError, match="rejected"):
            transaction.result()
        assert future.exception() is error
        assert transaction.outcome is error


def test_a_transaction_that_failed_is_gone_with_its_last_user() -> None:
    """Without the collector of cycles, as it holds much payload."""
    gc.disable()
    try:
        transaction = completed(ValueError("rejected"))
        seen = Held(transaction)
        with pytest.raises(ValueError, match="rejected"):
            transaction.result()
        del transaction
        assert seen.gone
    finally:
        gc.enable()


class Held:
    """Knows whether a transaction is in memory: it has no weak references, its receipt's results have."""

    def __init__(self, transaction: Transaction) -> None:
        mark = Mark()
        transaction.looked_up["t", "k"] = mark  # type: ignore[assignment]
        self._mark = weakref.ref(mark)

    @property
    def gone(self) -> bool:
        return self._mark() is None


class Mark:
    """What a transaction holds."""


def test_a_submitted_transaction_cannot_be_cancelled() -> None:
    transaction = Transaction([append()])
    future = transaction.create_future()
    assert future.cancel() is False and not future.cancelled()
    transaction.complete(RECEIPT)
    assert future.result() is RECEIPT


def test_a_callback_of_the_future_gets_its_outcome() -> None:
    """It is called before the threads that wait are released."""
    transaction = Transaction([append()])
    found: list[Any] = []
    transaction.create_future().add_done_callback(lambda future: found.append(future.result()))
    transaction.complete(RECEIPT)
    assert found == [RECEIPT]


@pytest.mark.parametrize(("timeout", "waits"), [(None, -1), (5.0, 5.0), (0.0, 0.0)])
def test_a_future_waits_for_its_transaction(timeout: float | None, waits: float) -> None:
    transaction = Transaction([append()])
    future = transaction.create_future()
    with mock.patch.object(Transaction, "wait", side_effect=lambda _: transaction.complete(RECEIPT)) as waited:
        assert future.result(timeout) is RECEIPT
        assert future.result(timeout) is RECEIPT, "it is there without waiting"
    waited.assert_called_once_with(waits)


def test_a_thread_waits_until_the_transaction_is_completed() -> None:
    transaction, begun = Transaction([append()]), threading.Event()

    def complete() -> None:
        begun.wait()
        transaction.complete(RECEIPT)

    thread = threading.Thread(target=complete)
    thread.start()
    begun.set()
    transaction.wait(60)
    assert transaction.outcome is RECEIPT
    thread.join()


def test_a_transaction_that_was_not_submitted_yet_has_no_place_and_no_frame() -> None:
    for direct in (False, True):
        new = Transaction([append()], direct)
        assert (new.number, new.priority, new.direct) == (-1, Priority.NORMAL, direct)
        assert (new.admitted, new.tries, new.sent, new.spill, new.abandoned) == (0, 0, False, False, False)
        assert [new.carrying, new.outcome, new.future, new.chunk, new.missing_table] == [None] * 5
    assert new.queued_at <= Transaction([append()]).queued_at


def test_a_transaction_is_waited_for_as_often_as_one_likes_and_not_longer() -> None:
    transaction = Transaction([append()])
    transaction.wait(0)
    transaction.complete(RECEIPT)
    transaction.release()
    for timeout in (-1, 0, 5):
        transaction.wait(timeout)
    transaction.wait()
    assert transaction.result() is RECEIPT


# --- threads that wake each other ------------------------------------------------------------------------------------


def test_threads_that_wait_are_woken_one_after_the_other() -> None:
    chain: deque[Transaction] = deque()
    first, second, third = (completed(chain=chain) for _ in range(3))
    assert list(chain) == [first, second, third]
    wake_next(chain)
    assert list(chain) == [second, third]
    assert first.result() is RECEIPT
    assert list(chain) == [third], "the first one has woken the second one"
    assert second.result() is third.result() is RECEIPT
    assert not chain
    wake_next(chain)


def test_a_future_is_completed_at_once_although_there_is_a_chain() -> None:
    chain: deque[Transaction] = deque()
    transaction = Transaction([append()])
    future = transaction.create_future()
    transaction.complete(RECEIPT, chain)
    assert future.done() and not chain


def test_an_abandoned_transaction_is_passed_over_and_wakes_the_next_one_if_it_was_its_turn() -> None:
    chain: deque[Transaction] = deque()
    abandoned, gone, woken, last = (completed(chain=chain) for _ in range(4))
    abandoned.abandon()
    gone.abandon()
    assert len(chain) == 4, "it was not its turn"
    wake_next(chain)
    assert list(chain) == [last]
    abandoned.wait()
    gone.wait()
    woken.abandon()
    assert not chain
    assert last.result() is RECEIPT
    last.abandon()
    Transaction([append()]).abandon()


# --- what its operations bring ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "operation", [ActivateSegment("s/a", b"record", 5), LoadAttributes("s/a", ()), AnswerSubmissions(())]
)
def test_operations_that_the_log_makes_by_itself_are_refused(operation: Operation) -> None:
    with pytest.raises(InvalidOperation, match="never submitted"):
        Transaction([append(), operation])


def test_payload_is_what_lies_in_the_frame() -> None:
    operations: list[Operation] = [
        append(),
        append(RECORDS),
        append((EXTENT,)),
        CreateSegment("s/b"),
        MergeSegment("s/a", "s/b", Payload(b"header")),
        MergeSegment("s/a", "s/b", (EXTENT,)),
        append(Payload(b"more")),
    ]
    assert payload_size(operations) == Transaction(operations).size == 4 + 2 * RECORD_SIZE + 6 + 4
    assert Transaction(operations).spillable_bytes() == 8
    assert payload_size([]) == 0


def test_a_transaction_is_large_by_the_payload_that_can_go_to_a_chunk() -> None:
    half, rest = Payload(bytes(SPILL_BYTES // 2)), Payload(bytes(SPILL_BYTES // 2 - 1))
    assert Transaction([append(half), append(half)]).is_large()
    assert not Transaction([append(half), append(rest)]).is_large()
    assert not Transaction([append(half), append(rest), append(RECORDS)]).is_large()
    assert not Transaction([append(half), MergeSegment("s/a", "s/b", half)]).is_large()
    assert Transaction([append(half), append(half), append(RECORDS)]).is_large()


def test_a_plain_append_has_no_conditions() -> None:
    plain = append()
    assert Transaction([plain]).plain_append() == plain
    assert Transaction([plain]).appended_payload() is DATA
    update = AttributeUpdate(bytes(16), UpdateKind.REPLACE, 1)
    others: list[list[Operation]] = [
        [],
        [plain, plain],
        [CreateSegment("s/a")],
        [append(offset=0)],
        [append(updates=(update,))],
        [append(RECORDS)],
        [append((EXTENT,))],
    ]
    assert [Transaction(operations).plain_append() for operations in others] == [None] * len(others)
    looked_up = Transaction([plain])
    looked_up.looked_up["t", "k"] = LookupResult(None, None)
    assert looked_up.plain_append() is None


def test_only_what_adds_data_and_frees_nothing_needs_room() -> None:
    adding: list[Operation] = [append(), CreateSegment("s/a"), CreateTable("t", 4)]
    freeing: list[Operation] = [
        TruncateSegment("s/a", 1),
        DeleteSegment("s/a"),
        ExpireSegments(("s/a",), 1),
        SealSegment("s/a"),
        MergeSegment("s/a", "s/b", ()),
        DeleteTable("t"),
    ]
    neither: list[Operation] = [PutEntry("t", "k", b"v", None), UpdateAttributes("s/a", ())]
    for operation in adding:
        assert adds_data([operation]) and adds_data([*neither, operation])
        assert not any(adds_data([operation, each]) or adds_data([each, operation]) for each in freeing)
    assert not any(adds_data([each]) for each in (*freeing, *neither))
    assert not adds_data([])
