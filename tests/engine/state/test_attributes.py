"""Attributes of segments, and those that do not fit into memory."""

import pytest

from engine.errors import BadAttributeUpdate, SegmentSealed, Unresolved
from engine.state.changes.apply import apply_operation, replay
from engine.state.changes.draft import StateDraft
from engine.state.operations import (
    AttributeUpdate,
    CreateSegment,
    DeleteSegment,
    DequeueGarbage,
    EvictSegments,
    LoadAttributes,
    MergeSegment,
    Operation,
    SealSegment,
    SpillAttributes,
    UpdateAttributes,
    UpdateKind,
    decode_transactions,
)
from engine.state.segments import CREATION_TIME, EVENT_COUNT, MAX_VALUE, NULL_VALUE, FrameRef
from engine.state.state import ATTRIBUTES_GARBAGE, GarbageEntry
from engine.state.tables import ATTRIBUTES, attribute_key
from tests.engine.state.writer import HEADER, W, Writer, X, append, assert_equal, set_w, spilled, with_segments

# --- rules one by one ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("present", "update", "after"),
    [
        (None, set_w(5, UpdateKind.NONE), 5),
        (4, set_w(5, UpdateKind.NONE), BadAttributeUpdate),
        (None, set_w(5), 5),
        (4, set_w(3), 3),
        (4, set_w(NULL_VALUE), None),
        (None, set_w(NULL_VALUE), None),
        (None, set_w(-5, UpdateKind.REPLACE_IF_GREATER), -5),
        (4, set_w(5, UpdateKind.REPLACE_IF_GREATER), 5),
        (4, set_w(4, UpdateKind.REPLACE_IF_GREATER), BadAttributeUpdate),
        (4, set_w(3, UpdateKind.REPLACE_IF_GREATER), BadAttributeUpdate),
        (None, set_w(5, UpdateKind.ACCUMULATE), 5),
        (4, set_w(5, UpdateKind.ACCUMULATE), 9),
        (4, set_w(-5, UpdateKind.ACCUMULATE), -1),
        (4, set_w(MAX_VALUE - 4, UpdateKind.ACCUMULATE), MAX_VALUE),
        (4, set_w(MAX_VALUE - 3, UpdateKind.ACCUMULATE), BadAttributeUpdate),
        (-4, set_w(NULL_VALUE + 3, UpdateKind.ACCUMULATE), BadAttributeUpdate),
        (4, set_w(5, UpdateKind.REPLACE_IF_EQUALS, 4), 5),
        (4, set_w(5, UpdateKind.REPLACE_IF_EQUALS, 3), BadAttributeUpdate),
        (None, set_w(5, UpdateKind.REPLACE_IF_EQUALS, NULL_VALUE), 5),
        (None, set_w(5, UpdateKind.REPLACE_IF_EQUALS, 0), BadAttributeUpdate),
        (4, set_w(NULL_VALUE, UpdateKind.REPLACE_IF_EQUALS, 4), None),
    ],
)
def test_attribute_updates(
    present: int | None, update: AttributeUpdate, after: int | type[BadAttributeUpdate] | None
) -> None:
    trials: list[Operation] = [UpdateAttributes("a", (update,)), append("a", b"x", None, update)]
    for operation in trials:
        trial = with_segments("a")
        if present is not None:
            trial.commit(UpdateAttributes("a", (set_w(present),)))
        if isinstance(after, type):
            with pytest.raises(after):
                trial.commit(operation)
        else:
            trial.commit(operation)
            assert trial.state.segment("a").attributes.get(W) == after


def test_attribute_conditions_are_checked_before_the_offset_and_after_the_seal() -> None:
    writer = with_segments("a")
    impossible = set_w(1, UpdateKind.REPLACE_IF_EQUALS, 77)
    with pytest.raises(BadAttributeUpdate):
        writer.commit(append("a", b"x", 99, impossible))
    writer.commit(SealSegment("a"))
    with pytest.raises(SegmentSealed):
        writer.commit(append("a", b"x", 99, impossible))


def test_all_attributes_of_an_append_are_checked_before_one_is_set() -> None:
    writer = with_segments("a")
    with pytest.raises(BadAttributeUpdate):
        writer.commit(append("a", b"x", None, set_w(1), set_w(2, UpdateKind.NONE)))
    assert W not in writer.state.segment("a").attributes
    writer.commit(append("a", b"x", None, set_w(1), set_w(2, UpdateKind.ACCUMULATE)))
    assert writer.state.segment("a").attributes[W] == 3


# --- attributes that do not fit into memory --------------------------------------------------------------------------


def in_table(writer: Writer) -> dict[bytes, int | None]:
    """What the table of attributes has of segment "a"."""
    prefix = attribute_key(writer.state.segment("a").id, b"")
    return {
        bytes.fromhex(key[len(prefix) :]): int.from_bytes(entry.value or b"", "big", signed=True)
        for key, entry in writer.lookups.scan(writer.state, ATTRIBUTES, prefix)
    }


def test_extended_attributes_spill_and_core_attributes_stay(tables_of_size: str) -> None:
    writer = spilled()
    segment = writer.state.segment("a")
    assert segment.spilled and set(segment.attributes) == {CREATION_TIME, EVENT_COUNT}
    assert in_table(writer) == {W: 4, X: 5}
    writer.commit(UpdateAttributes("a", (set_w(-4), AttributeUpdate(EVENT_COUNT, UpdateKind.ACCUMULATE, 2))))
    assert writer.state.segment("a").attributes[EVENT_COUNT] == 3
    assert in_table(writer)[W] == 4
    writer.commit(SpillAttributes("a"))
    assert in_table(writer) == {W: -4, X: 5}
    writer.flush(evict=True)
    writer.commit(SealSegment("a"))
    assert in_table(writer) == {W: -4, X: 5} and W not in writer.state.segment("a").attributes


@pytest.mark.parametrize("appending", [False, True], ids=["update", "append"])
@pytest.mark.parametrize(
    ("update", "after"),
    [
        (set_w(7), 7),
        (set_w(7, UpdateKind.NONE), None),
        (set_w(3, UpdateKind.REPLACE_IF_GREATER), None),
        (set_w(7, UpdateKind.REPLACE_IF_GREATER), 7),
        (set_w(7, UpdateKind.ACCUMULATE), 11),
        (set_w(7, UpdateKind.REPLACE_IF_EQUALS, 4), 7),
        (set_w(7, UpdateKind.REPLACE_IF_EQUALS, NULL_VALUE), None),
    ],
    ids=str,
)
def test_updates_of_spilled_attributes_wait_for_them(
    update: AttributeUpdate, after: int | None, appending: bool, tables_of_size: str
) -> None:
    writer = spilled()
    operation = append("a", b"x", None, update) if appending else UpdateAttributes("a", (update,))
    key = attribute_key(writer.state.segment("a").id, W)
    with pytest.raises(Unresolved) as error:
        writer.judge(operation)
    assert (error.value.table, error.value.keys, error.value.segment) == (ATTRIBUTES, (key,), "a")
    if after is None:
        with pytest.raises(BadAttributeUpdate) as bad:
            writer.commit(operation)
        assert bad.value.previous == 4
    else:
        writer.commit(operation)
        assert writer.state.segment("a").attributes[W] == after
        writer.judge(operation._replace(updates=(set_w(8),)))  # nothing has to be looked up any more
    assert writer.attributes(writer.state, writer.state.segment("a"))[X] == 5


def test_an_attribute_that_was_never_there_is_known_not_to_be(tables_of_size: str) -> None:
    writer, other = spilled(), bytes(15) + b"y"
    update = UpdateAttributes("a", (AttributeUpdate(other, UpdateKind.NONE, 1),))
    if tables_of_size == "large":
        with pytest.raises(Unresolved):
            writer.judge(update)
    else:
        apply_operation(StateDraft(writer.state, 0, 0, {}), update)
    writer.commit(update)
    assert writer.attributes(writer.state, writer.state.segment("a")).items() >= {W: 4, X: 5, other: 1}.items()


def test_what_was_validated_once_is_replayed_without_a_look_at_the_table(tables_of_size: str) -> None:
    """Whoever follows the log has not looked anything up: the conditions held when the frame was made."""
    writer, never_set = spilled(), bytes(15) + b"y"
    before = writer.state
    writer.commit(
        append("a", b"x", None, set_w(7, UpdateKind.REPLACE_IF_EQUALS, 4)),
        UpdateAttributes("a", (AttributeUpdate(never_set, UpdateKind.NONE, 1), set_w(NULL_VALUE))),
    )
    address = len(writer.frames) - 1
    transactions = decode_transactions(writer.frames[address], FrameRef(address, HEADER))
    assert_equal(replay(before, transactions, address), writer.state)
    assert writer.attributes(writer.state, writer.state.segment("a")).items() >= {X: 5, never_set: 1}.items()


def test_a_segment_has_any_number_of_attributes_unless_it_is_transient() -> None:
    many = tuple(AttributeUpdate(bytes(15) + b"%c" % each, UpdateKind.NONE, each) for each in range(1, 10))
    writer = with_segments("a")
    writer.commit(CreateSegment("b", many), UpdateAttributes("a", many))
    for name in ("a", "b"):
        assert {each[0] for each in many} <= set(writer.state.segment(name).attributes)


def test_an_attribute_that_is_removed_does_not_come_back_from_the_table(tables_of_size: str) -> None:
    writer = spilled()
    for removal in (UpdateAttributes("a", (set_w(NULL_VALUE),)), append("a", b"x", None, set_w(NULL_VALUE))):
        writer.commit(UpdateAttributes("a", (set_w(4),)))
        writer.flush()
        assert in_table(writer) == {W: 4, X: 5}
        writer.commit(removal)
        assert in_table(writer) == {X: 5}
        assert W not in writer.attributes(writer.state, writer.state.segment("a"))
        writer.flush(evict=True)
        writer.commit(UpdateAttributes("a", (set_w(1, UpdateKind.NONE),)))


def test_loading_attributes_changes_nothing_that_is_in_memory() -> None:
    writer = spilled()
    writer.commit(UpdateAttributes("a", (set_w(9),)))
    before = writer.state.segment("a")
    writer.judge(LoadAttributes("a", ((W, 4), (X, 5))))
    assert writer.state.segment("a") == before._replace(attributes=before.attributes.set(X, 5))
    writer.flush()
    writer.judge(LoadAttributes("a", ((X, 5),)))
    writer.commit(EvictSegments(("a",)))
    assert "a" not in writer.state.segments, "loading is no change of the segment"


def test_a_stale_attribute_is_not_loaded(tables_of_size: str) -> None:
    """Neither what another value has taken the place of, nor what was removed, nor what was looked up elsewhere."""
    writer = spilled()
    key = attribute_key(writer.state.segment("a").id, W)
    then = writer.lookups.look_up(writer.state, ATTRIBUTES, [key]) if tables_of_size == "large" else {}
    writer.judge(LoadAttributes("a", ((W, 4),)), known=then)
    for update in (set_w(6), set_w(NULL_VALUE)):
        writer.commit(UpdateAttributes("a", (update,)))
        writer.flush()
        for known in (then, writer.lookups.look_up(writer.state, ATTRIBUTES, [key])):
            with pytest.raises(Unresolved) as error:
                writer.judge(LoadAttributes("a", ((W, 4),)), known=known)
            assert (error.value.table, error.value.keys, error.value.segment) == (ATTRIBUTES, (key,), "a")


def test_what_a_deleted_segment_left_in_the_table_of_attributes_is_garbage() -> None:
    writer = spilled()
    prefix = attribute_key(writer.state.segment("a").id, b"")
    writer.commit(CreateSegment("b"), UpdateAttributes("b", (set_w(1),)))
    writer.commit(SealSegment("a"), MergeSegment("b", "a"), DeleteSegment("b"))
    assert dict(writer.state.garbage) == {
        prefix: GarbageEntry(1000 + len(writer.frames) - 1, writer.state.sequence - 1, ATTRIBUTES_GARBAGE, "a")
    }
    writer.commit(DequeueGarbage((prefix,)))
    assert not writer.state.garbage


# --- garbage ---------------------------------------------------------------------------------------------------------


def test_of_a_sealed_segment_only_core_attributes_are_updated() -> None:
    writer = with_segments("a")
    writer.commit(UpdateAttributes("a", (AttributeUpdate(W, UpdateKind.REPLACE, 1),)), SealSegment("a"))
    extended, core = AttributeUpdate(W, UpdateKind.REPLACE, 2), AttributeUpdate(EVENT_COUNT, UpdateKind.REPLACE, 7)
    for updates in ((extended,), (core, extended)):
        with pytest.raises(SegmentSealed):
            writer.commit(UpdateAttributes("a", updates))
    writer.commit(UpdateAttributes("a", (core,)))
    attributes = writer.state.segment("a").attributes
    assert (attributes[W], attributes[EVENT_COUNT]) == (1, 7)
