"""Transactions of a frame are validated one after the other, each against the state before it (W5)."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from engine.errors import BadOffset, DataCorruption, InvalidOperation, SegmentNotFound, Unresolved
from engine.logs.payload import MAX_PAYLOAD, Layout
from engine.logs.submission import Address, Carrying
from engine.logs.transaction import Transaction
from engine.logs.validation import ValidationResult, keys_together, load_of, spans, validate
from engine.state.index_records import THIS_APPEND, IndexRecords
from engine.state.operations import (
    ActivateSegment,
    Append,
    AttributeUpdate,
    CheckEntry,
    CreateSegment,
    CreateTable,
    LoadAttributes,
    Operation,
    Payload,
    PutEntry,
    SealSegment,
    UpdateAttributes,
    UpdateKind,
)
from engine.state.segments import Segment
from engine.state.state import State
from engine.state.tables import ATTRIBUTES, METADATA, Entry, LookupResult, attribute_key
from tests.engine.state.writer import W, Writer, X, append, set_w, with_segments
from tests.support.simulation import audit, small_sizes

ADDRESS = 9
NOW = 5000
OWNER = Address(3, b"o" * 16, 1, b"n" * 8)


def transaction(*operations: Operation, carried: bool = False) -> Transaction:
    made = Transaction(operations)
    made.carrying = Carrying(OWNER, 0) if carried else None
    return made


def validated(state: State, *batch: Transaction) -> tuple[ValidationResult, bytes]:
    """The result, and the payload of the frame."""
    layout = Layout(ADDRESS)
    result = validate(state, batch, layout, NOW)
    payload = b"".join(layout.buffers)
    assert layout.size == len(payload)
    assert [each.time for each in result.logged] == [NOW] * len(result.logged)
    audit(result.state)
    return result, payload


def content(segment: Segment, payload: bytes) -> bytes:
    """What a segment has in the frame."""
    return b"".join(payload[each.position :][: each.length] for _, each in segment.extents)


def results_of(result: ValidationResult) -> list[tuple[Transaction, list[Any]]]:
    return list(result.accepted)


def logged(result: ValidationResult) -> list[list[str]]:
    """The operations of the frame, by their types."""
    return [[type(operation).__name__ for operation in each.operations] for each in result.logged]


def test_appends_to_a_segment_are_one_operation_as_long_as_nothing_comes_between() -> None:
    one, two, three, empty = (transaction(append("a", data)) for data in (b"1", b"22", b"333", b""))
    other = transaction(append("b", b"other"))
    condition = transaction(append("a", b"at 6", 6))
    guarded = transaction(append("a", b"!", None, set_w(1, UpdateKind.NONE)))
    last, seal = transaction(append("a", b"last")), transaction(SealSegment("a"))
    batch = (one, other, two, three, empty, condition, guarded, last, seal)
    result, payload = validated(with_segments("a", "b").state, *batch)
    assert results_of(result) == [
        (one, [0]),
        (two, [1]),
        (three, [3]),
        (empty, [6]),
        (other, [0]),
        (condition, [6]),
        (guarded, [10]),
        (last, [11]),
        (seal, [None]),
    ]
    assert logged(result) == [["Append"]] * 5 + [["SealSegment"]]
    assert content(result.state.segments["a"], payload) == b"122333at 6!last"
    assert content(result.state.segments["b"], payload) == b"other"
    assert result.transactions() == [each for each, _ in result.accepted] and not result.carries


def test_a_rejected_transaction_leaves_nothing_in_the_frame() -> None:
    """Those behind it are validated as if it had never been."""
    first, second, third = (transaction(append("a", data)) for data in (b"first", b"second", b"third"))
    late = transaction(append("a", b"wrong"), append("a", b"never", 3))
    missing = transaction(append("a", b"wrong"), SealSegment("none"))
    result, payload = validated(with_segments("a").state, first, late, second, missing, third)
    assert results_of(result) == [(first, [0]), (second, [5]), (third, [11])]
    assert payload == content(result.state.segments["a"], payload) == b"firstsecondthird"
    assert [(each, type(error)) for each, error in result.rejected] == [(late, BadOffset), (missing, SegmentNotFound)]
    assert result.transactions() == [first, second, third, late, missing]
    assert not result.unresolved and not result.invalid and not result.carries and not result.checkpoint


def test_a_later_transaction_of_a_frame_sees_the_earlier_ones() -> None:
    create, put = transaction(CreateSegment("new"), PutEntry("t", "k", b"1", -1)), transaction(append("new", b"x", 0))
    again = transaction(CreateSegment("new"))
    check = transaction(CheckEntry("t", "k", 2))
    result, _ = validated(Writer().state, create, put, again, check)
    assert results_of(result) == [(create, [None, 2]), (put, [0]), (check, [None])]
    assert [each for each, _ in result.rejected] == [again]


def test_index_records_name_the_append_that_they_belong_to() -> None:
    """By the number of the operation before the transaction; what had to be loaded for it does not count."""
    writer = with_segments("a", "index")
    writer.commit(append("a", b"1234"))
    record = struct.pack(">4q", 0, 0, 0, THIS_APPEND)
    both = transaction(Append("index", IndexRecords("a", record)), append("a", b"56"))
    result, payload = validated(writer.state, transaction(append("a", b"!")), both)
    indexed = content(result.state.segments["index"], payload)
    assert struct.unpack(">4q", indexed) == (5, 0, 0, writer.state.sequence + 1)


@pytest.mark.parametrize("place", range(4))
def test_a_frame_knows_whether_it_answers_other_processes(place: int) -> None:
    def batch(carried: int) -> list[Transaction]:
        operations: list[Operation] = [append("a", b"1"), append("a", b"2"), SealSegment("none"), append("a", b"3")]
        return [transaction(each, carried=number == carried) for number, each in enumerate(operations)]

    writer = with_segments("a")
    assert validated(writer.state, *batch(place))[0].carries
    assert not validated(writer.state, *batch(-1))[0].carries
    together = [each for number, each in enumerate(batch(place)) if number != 2]
    assert validated(writer.state, *together)[0].carries is (place != 2)


@pytest.mark.parametrize("carried", [False, True])
def test_what_cannot_be_decoded_is_told_to_the_caller_or_left_to_the_owner(carried: bool) -> None:
    writer = with_segments("a")
    writer.commit(PutEntry(METADATA, "broken", b"nonsense"))
    fine = transaction(append("a", b"fine"))
    broken = transaction(append("broken", b"x"), carried=carried)
    root = writer.state.tables[METADATA].layout.root
    version = writer.state.sequence
    broken.looked_up = {(METADATA, "broken"): LookupResult(root, Entry(b"nonsense", version))}
    created = transaction(CreateSegment("b"))
    result, payload = validated(writer.state, fine, broken, created)
    assert results_of(result) == [(fine, [0]), (created, [None])] and payload == b"fine"
    ((found, error),) = result.rejected if carried else result.invalid
    assert found is broken and isinstance(error, DataCorruption)
    assert not (result.invalid if carried else result.rejected) and result.carries is carried


def idle() -> Writer:
    """Within `small_sizes`: segment "a" is in the metadata table only, with attributes W = 4 and X = 5 in the other."""
    writer = with_segments("a", "b", "c")
    writer.commit(append("a", b"1234"), UpdateAttributes("a", (set_w(4), AttributeUpdate(X, UpdateKind.REPLACE, 5))))
    writer.commit(append("b", b"b"), append("c", b"c"), PutEntry("t", "k", b"v" * 50))
    writer.flush(evict=True)
    assert not writer.state.segments
    return writer


def looked_up(writer: Writer, table: str, *keys: str) -> dict[tuple[str, str], LookupResult]:
    return dict(writer.lookups.look_up(writer.state, table, keys))


def test_what_is_only_in_long_term_storage_is_loaded_in_front_of_the_operations_that_need_it() -> None:
    with small_sizes():
        writer = idle()
        new = transaction(CreateSegment("new"))
        new.looked_up = looked_up(writer, METADATA, "new")
        needs = transaction(append("a", b"more", 4, set_w(5, UpdateKind.REPLACE_IF_EQUALS, 4)), append("b", b"B"))
        result, payload = validated(writer.state, new, needs)
        assert results_of(result) == [(new, [None])] and payload == b""
        ((found, error),) = result.unresolved
        assert found is needs and (error.table, error.keys) == (METADATA, ("a",))
        assert keys_together(needs, error, writer.state) == ("a", "b")

        needs.looked_up = looked_up(writer, METADATA, "a", "b")
        result, payload = validated(writer.state, new, needs)
        ((found, error),) = result.unresolved
        key = attribute_key(1, W)
        assert found is needs and (error.table, error.keys, error.segment) == (ATTRIBUTES, (key,), "a")
        assert keys_together(needs, error, writer.state) == (key,) and payload == b""

        needs.looked_up |= looked_up(writer, ATTRIBUTES, key)
        result, payload = validated(writer.state, new, needs)
        assert results_of(result) == [(new, [None]), (needs, [4, 1])] and payload == b"moreB"
        assert logged(result)[1] == ["ActivateSegment", "ActivateSegment", "LoadAttributes", "Append", "Append"]
        assert result.state.segments["a"].attributes[W] == 5

        again = transaction(append("b", b"!"))
        again.looked_up = looked_up(writer, METADATA, "b")
        result, _ = validated(result.state, again)
        assert logged(result) == [["Append"]], "it is active by now"


def test_what_was_looked_up_under_another_root_is_looked_up_again() -> None:
    with small_sizes():
        writer = idle()
        needs = transaction(append("a", b"more"))
        needs.looked_up = looked_up(writer, METADATA, "a")
        assert results_of(validated(writer.state, needs)[0]) == [(needs, [4])]
        writer.commit(append("a", b"56"))
        writer.flush(evict=True)
        result, payload = validated(writer.state, needs, transaction(CreateSegment("b")))
        assert not result.accepted and payload == b""
        assert [each for each, _ in result.unresolved][:1] == [needs]


def test_keys_of_a_table_are_looked_up_together() -> None:
    with small_sizes():
        writer = idle()
        writer.commit(CreateSegment("active"))
        there, absent = CheckEntry("t", "k", 1), CheckEntry("t", "l", -1)
        entries = transaction(PutEntry("t", "k", b"", 1), absent, PutEntry("u", "m", b""), there)
        assert keys_together(entries, Unresolved("t", ("k",)), writer.state) == ("k", "l")
        segments = transaction(append("a", b""), append("active", b""), SealSegment("b"), there, append("a", b""))
        assert keys_together(segments, Unresolved(METADATA, ("a",)), writer.state) == ("a", "b")


def test_what_is_loaded_is_a_segment_or_an_attribute() -> None:
    value = (-7).to_bytes(8, "big", signed=True)
    assert load_of(METADATA, "a", Entry(b"record", 3), "") == ActivateSegment("a", b"record", 3)
    assert load_of(ATTRIBUTES, attribute_key(5, W), Entry(value, 3), "a") == LoadAttributes("a", ((W, -7),))
    assert load_of("t", "k", Entry(b"value", 3), "") is None
    for table in (METADATA, ATTRIBUTES):
        assert load_of(table, "a", None, "") is None and load_of(table, "a", Entry(None, 3), "") is None


def test_what_does_not_fit_into_a_frame_is_tried_before_its_pieces_are_sent() -> None:
    sent: list[int] = []

    def spill(layout: Layout) -> int:
        sent.append(layout.size)
        return ADDRESS + len(sent)

    state = with_segments("a").state
    fits = transaction(Append("a", Payload(bytes(MAX_PAYLOAD))))
    large = transaction(Append("a", Payload(bytes(MAX_PAYLOAD + 1))))
    wrong = transaction(Append("a", Payload(bytes(MAX_PAYLOAD + 1))), append("a", b"x", 3))
    assert (spans(fits), spans(large)) == (False, True)
    result = validate(state, [wrong, transaction(append("a", b"x"))], Layout(ADDRESS, spill), NOW)
    assert [each for each, _ in result.rejected] == [wrong] and len(result.accepted) == 1 and not sent
    result = validate(state, [large, transaction(append("a", b"x"))], Layout(ADDRESS, spill), NOW)
    assert [results for _, results in result.accepted] == [[0], [MAX_PAYLOAD + 1]] and sent == [MAX_PAYLOAD]
    large.chunk = "chunk"
    assert not spans(large)


def test_what_does_not_fit_into_a_frame_may_need_what_is_in_long_term_storage() -> None:
    with small_sizes():
        writer = idle()
        sent: list[int] = []

        def spill(layout: Layout) -> int:
            sent.append(layout.size)
            return ADDRESS + len(sent)

        large = transaction(Append("a", Payload(bytes(1000)), 4), append("b", b"x", 1))
        assert spans(large)
        for known, found in (((), 0), (("a",), 0), (("a", "b"), 1)):
            large.looked_up = looked_up(writer, METADATA, *known)
            result = validate(writer.state, [large], Layout(ADDRESS, spill), NOW)
            assert (len(result.accepted), len(result.unresolved)) == (found, 1 - found)
            assert bool(sent) == bool(found)
        assert result.accepted == [(large, [4, 1])]


@pytest.mark.parametrize("carried", [False, True])
def test_operations_that_make_no_sense_cost_their_transaction_only(carried: bool) -> None:
    odd = transaction(append("a", b"lost"), CreateTable("t", 0), carried=carried)
    result, payload = validated(with_segments("a").state, transaction(append("a", b"fine")), odd)
    assert payload == b"fine" and "t" not in result.state.tables
    ((found, error),) = result.rejected if carried else result.invalid
    assert found is odd and isinstance(error, InvalidOperation)
    assert "Append, CreateTable cannot be applied" in str(error)
