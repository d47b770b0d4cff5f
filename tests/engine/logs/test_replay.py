"""Replay: what a live frame does to a state and says to other processes, and what a repair leaves out of it."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest

from engine.errors import DataCorruption, UnknownFormat
from engine.logs.frames import Frame, Kind, Position
from engine.logs.replay import applied, apply_frame, carried_in, not_applicable, repaired_in
from engine.state.operations import (
    AnswerSubmissions,
    Append,
    Checkpoint,
    CreateSegment,
    LoggedTransaction,
    Operation,
    PutEntry,
    encode_transactions,
)
from engine.state.segments import Extent, FrameRef
from engine.state.state import EMPTY

ME = b"m" * 16
ADDRESS, PAYLOAD_START = 7, 150
OWN = FrameRef(ADDRESS, PAYLOAD_START)
PIECE = AnswerSubmissions(())
LEAVING = AnswerSubmissions((), leaving=True)

UNDECODABLE: Any = [7, [[5, "t", "k", 5.0, None], [7, "s/a", 3]]]
"""A transaction of two operations, of which the first has a value of another type."""

INAPPLICABLE: Any = [7, [[7, "s/none", 3]]]
"""A transaction that truncates a segment which does not exist."""

NEWER: Any = [7, [[77, "s/a"]]]
"""A transaction with an operation that only a newer version knows."""


def frame(meta: bytes, kind: Kind = Kind.DATA, address: int = ADDRESS) -> Frame:
    return Frame(Position(address, ME, 3), kind, Position(address - 1, ME, 0), meta, PAYLOAD_START, 50)


def of(*transactions: Any) -> Frame:
    """A frame of transactions: lists of operations, or as they stand in the frame."""
    plain = []
    for each in transactions:
        if isinstance(each, list) and all(isinstance(operation, tuple) for operation in each):
            each = msgpack.unpackb(encode_transactions([LoggedTransaction(7, tuple(each))], OWN))[0]
        plain.append(each)
    return frame(msgpack.packb(plain))


def repair(damaged: int, fence: int, skipped: list[int] | None = None, address: int = ADDRESS) -> Frame:
    return frame(msgpack.packb([damaged, fence, skipped]), Kind.REPAIR, address)


def put(key: str) -> list[Operation]:
    return [PutEntry("t", key, key.encode(), None)]


def test_a_frame_is_applied_at_its_address_with_its_payload_where_it_lies() -> None:
    append = Append("s/a", (Extent(OWN, 3, 5, b""),))
    state = apply_frame(EMPTY, of([CreateSegment("s/a"), append], [Checkpoint()]), 0)
    [(offset, extent)] = state.segments["s/a"].extents
    assert (offset, extent.source, extent.position, extent.length) == (0, OWN, 3, 5)
    assert (state.checkpoint, state.sequence, state.segments["s/a"].length) == (ADDRESS, 3, 5)
    assert apply_frame(EMPTY, of([CreateSegment("s/a"), append], [Checkpoint()]), 0, ()) == state


def test_a_repair_raises_the_attach_fence_and_never_lowers_it() -> None:
    before = EMPTY._replace(sequence=5, min_attach_time=100)
    assert applied(before, repair(3, 200), 0) == (before._replace(min_attach_time=200), None)
    assert applied(before, repair(3, 50), 0) == (before, None)


@pytest.mark.parametrize(
    ("transactions", "carried"),
    [
        ([], None),
        ([[PIECE]], PIECE),
        ([put("k"), [LEAVING, Checkpoint()]], LEAVING),
        ([[LEAVING], put("k")], None),
        ([put("k"), [Checkpoint(), LEAVING]], None),
        ([[LEAVING], []], None),
    ],
)
def test_only_the_first_operation_of_the_last_transaction_answers_submissions(
    transactions: list[list[Operation]], carried: AnswerSubmissions | None
) -> None:
    made = of(*transactions)
    assert applied(EMPTY, made, 0)[1] == carried
    assert applied(EMPTY, made, 0, ())[1] == carried
    assert carried_in(made) == carried


def test_a_frame_with_payload_only_says_that_its_maker_makes_the_next_one() -> None:
    assert applied(EMPTY, frame(b""), 0) == (EMPTY, PIECE)
    assert applied(EMPTY, frame(b""), 0, ()) == (EMPTY, PIECE)
    assert carried_in(frame(b"")) == PIECE


@pytest.mark.parametrize("kind", [Kind.BELL, Kind.REPAIR])
def test_bells_and_repairs_say_nothing_to_others(kind: Kind) -> None:
    assert carried_in(frame(b"", kind)) is None
    assert carried_in(of([LEAVING])._replace(kind=kind)) is None


def test_a_transaction_that_cannot_be_decoded_says_nothing_and_those_before_it_do_not_stand_in_for_it() -> None:
    assert carried_in(of([LEAVING], UNDECODABLE)) is None
    assert carried_in(of(UNDECODABLE, [LEAVING])) == LEAVING
    assert carried_in(frame(b"\xc1")) is None


def test_a_repair_skips_transactions_and_keeps_the_numbers_of_the_operations_behind_them() -> None:
    odd: list[Any] = [5, [7, 5], [7], [7, [[7, "s/a", 3]], 5]]  # they have no operations that could be counted
    made = of(put("a"), UNDECODABLE, put("b"), INAPPLICABLE, *odd, [LEAVING], put("c"))
    state, carried = applied(EMPTY, made, 0, (1, 3, 4, 5, 6, 7))
    assert carried is None
    assert {key: entry.version for key, entry in state.tables["t"].recent.items()} == {"a": 1, "b": 4, "c": 7}
    assert applied(EMPTY, of(UNDECODABLE, [LEAVING]), 0, (0,)) == (EMPTY._replace(sequence=3), LEAVING)
    assert applied(EMPTY, frame(b"\xc1"), 0, ()) == (EMPTY, None)


def test_a_transaction_that_is_not_skipped_must_be_applicable() -> None:
    with pytest.raises(DataCorruption, match=r"wal/0+7: .*cannot be understood"):
        apply_frame(EMPTY, of(put("a"), UNDECODABLE), 0, (0,))
    with pytest.raises(DataCorruption, match=r"wal/0+7: it cannot be applied"):
        apply_frame(EMPTY, of(put("a"), INAPPLICABLE), 0, (0,))
    for bad in (UNDECODABLE, INAPPLICABLE):
        with pytest.raises(DataCorruption, match=r"wal/0+7: .*container repair 0 7"):
            apply_frame(EMPTY, of(put("a"), bad), 0)


def test_what_cannot_be_applied_of_a_frame_is_found_by_its_places() -> None:
    assert not_applicable(EMPTY, of(put("a"), put("b")), 0) is None
    assert not_applicable(EMPTY, frame(b"\xc1"), 0) == ()
    checked = [PutEntry("t", "a", b"again", 3)]  # by the number of the operation: UNDECODABLE has two
    made = of(UNDECODABLE, put("a"), INAPPLICABLE, checked)
    assert not_applicable(EMPTY, made, 0) == (0, 2)
    assert not_applicable(apply_frame(EMPTY, of([CreateSegment("s/none")]), 0), of(put("a")), 0) is None


def test_what_a_newer_version_wrote_is_not_found_to_be_inapplicable() -> None:
    for made in (of(NEWER), of(UNDECODABLE, NEWER), of(put("a"), INAPPLICABLE, NEWER)):
        with pytest.raises(UnknownFormat, match="upgrade"):
            not_applicable(EMPTY, made, 0)


def test_repairs_name_the_frames_of_which_they_skip_transactions() -> None:
    live = [of(put("k")), repair(5, 0, [0, 2], address=8), repair(7, 0, address=9), repair(10, 0, [], address=10)]
    assert repaired_in(live, 0) == {5: (0, 2), 10: ()}
    with pytest.raises(DataCorruption, match=r"wal/0+6"):
        repaired_in([frame(b"\xc1", Kind.REPAIR, 6)], 0)
