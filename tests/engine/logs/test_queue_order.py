"""The order in which transactions leave the commit queue, and what it counts."""

from __future__ import annotations

import pytest

from engine.logs.commit_queue import CommitQueue, priority_of, segments_of
from engine.logs.payload import MAX_PAYLOAD
from engine.logs.transaction import SPILL_BYTES, Priority, Receipt, Transaction
from engine.state.operations import (
    Append,
    BeginCycle,
    CheckEntry,
    CreateSegment,
    DeleteSegment,
    EvictSegments,
    MergeSegment,
    Operation,
    Payload,
    PutEntry,
    SealSegment,
    TruncateSegment,
)
from engine.state.state import EMPTY
from engine.state.tables import METADATA, LookupResult


def append(size: int = 1, segment: str = "s") -> Transaction:
    return Transaction([Append(segment, Payload(bytes(size)))])


def queue_of(*transactions: Transaction) -> CommitQueue:
    queue = CommitQueue()
    for transaction in transactions:
        queue.put(transaction)
    return queue


def waiting(queue: CommitQueue) -> list[Transaction]:
    assert queue.size == sum(transaction.size for transaction in queue.transactions)
    return list(queue.transactions)


@pytest.mark.parametrize(
    ("operations", "priority"),
    [
        ((), Priority.NORMAL),
        ((BeginCycle(1),), Priority.SYSTEM),
        ((PutEntry(METADATA, "k", b""), CheckEntry(METADATA, "k", 1), EvictSegments(("s",))), Priority.SYSTEM),
        ((PutEntry("t", "k", b""),), Priority.NORMAL),
        ((CheckEntry("t", "k", 1),), Priority.NORMAL),
        ((BeginCycle(1), CreateSegment("a")), Priority.NORMAL),
        ((DeleteSegment("a"),), Priority.DELETION),
        ((DeleteSegment("a"), DeleteSegment("b")), Priority.DELETION),
        ((DeleteSegment("a"), BeginCycle(1)), Priority.NORMAL),
        ((DeleteSegment("a"), DeleteSegment("s")), Priority.NORMAL),
        ((DeleteSegment("target"),), Priority.NORMAL),
        ((DeleteSegment("source"),), Priority.NORMAL),
        ((DeleteSegment("parent"),), Priority.NORMAL),
        ((DeleteSegment("child"),), Priority.NORMAL),
        ((Append("a", ()), DeleteSegment("a")), Priority.NORMAL),
        ((SealSegment("a"),), Priority.NORMAL),
    ],
    ids=str,
)
def test_the_container_and_deletions_go_first(operations: tuple[Operation, ...], priority: Priority) -> None:
    """But a deletion never before a transaction that changes one of its segments."""
    queue = [
        append(),
        Transaction([PutEntry("t", "k", b""), MergeSegment("target", "source")]),
        Transaction([CreateSegment("child", (), "parent")]),
    ]
    assert priority_of(operations, queue) is priority


def test_the_segments_of_an_operation_are_all_that_it_changes() -> None:
    changing: list[Operation] = [MergeSegment("a", "b"), CreateSegment("c", (), "d"), TruncateSegment("e", 0)]
    assert segments_of([*changing, PutEntry("t", "k", b"")]) - {""} == {"a", "b", "c", "d", "e"}


def test_the_most_urgent_leaves_first_and_others_in_their_order() -> None:
    first, second, third = append(1), append(2), append(3)
    deletion, cycle = Transaction([DeleteSegment("x")]), Transaction([BeginCycle(1)])
    late = Transaction([DeleteSegment("y")])
    queue = queue_of(first, second, deletion)
    assert not queue.closing and waiting(queue) == [deletion, first, second]
    queue.put(late)
    assert waiting(queue) == [deletion, late, first, second], "behind one that is as urgent"
    for transaction in (third, cycle):
        queue.put(transaction)
    assert waiting(queue) == [cycle, deletion, late, first, second, third]
    assert [each.number for each in (first, second, deletion, late, third, cycle)] == list(range(6))
    assert queue.newest == 5
    assert queue.take(4) == [cycle, deletion, late, first]
    assert waiting(queue) == [second, third]
    queue.put_back([first, cycle])
    assert waiting(queue) == [cycle, first, second, third], "they have their places again"


def test_a_frame_takes_what_fits_into_it() -> None:
    rest = MAX_PAYLOAD - 5
    transactions = [append(5), append(rest - 1), append(1), append(1), append(2 * MAX_PAYLOAD), append(1)]
    queue = queue_of(*transactions)
    assert queue.take(9) == transactions[:3], "exactly as much as a frame holds"
    assert queue.take(9) == transactions[3:4]
    assert queue.take(9) == transactions[4:5], "more than that goes alone"
    assert queue.take(9) == transactions[5:]
    assert queue.take(9) == [] and queue.size == 0
    queue.put_back(transactions[2:4])
    assert queue.take(1) == transactions[2:3] and waiting(queue) == transactions[3:4]


def test_it_fills_a_frame_with_what_it_has_and_what_comes() -> None:
    queue = queue_of(append(MAX_PAYLOAD - 5))
    assert not queue.fills_a_frame() and not queue.fills_a_frame(4) and queue.fills_a_frame(5)
    queue.put(append(5))
    assert queue.fills_a_frame()


def test_what_was_completed_is_not_put_back() -> None:
    done, open_, new = append(1), append(2), append(4)
    queue = queue_of(done, open_)
    batch = queue.take(9)
    queue.put(new)
    done.complete(Receipt(1, [0], 1, EMPTY))
    queue.put_back(batch)
    assert waiting(queue) == [open_, new]
    queue.put_back([open_])
    assert waiting(queue) == [open_, new], "once, although it was there"


@pytest.mark.parametrize("lost", [False, True])
def test_what_is_tried_again_is_validated_anew(lost: bool) -> None:
    small, large, spilled = append(1), append(SPILL_BYTES), append(2)
    queue = queue_of(small, large, spilled)
    batch = queue.take(9)
    for transaction in batch:
        transaction.sent, transaction.looked_up = True, {("t", "k"): LookupResult(None, None)}
    spilled.spill = True
    (queue.retry_after_lost_race if lost else queue.retry)(batch)
    assert waiting(queue) == batch
    assert not any(each.sent or each.looked_up for each in batch)
    assert [each.spill for each in batch] == [False, lost, True], "a lost race must not cost the payload again"


def test_what_is_discarded_or_cleared_is_gone() -> None:
    transactions = [append(1), append(2), append(4)]
    queue = queue_of(*transactions)
    queue.discard(transactions[1:2])
    assert waiting(queue) == [transactions[0], transactions[2]]
    assert queue.clear() == [transactions[0], transactions[2]]
    assert waiting(queue) == [] and queue.size == 0
