"""Segments that are not active: their records are in the container's metadata table."""

from contextlib import nullcontext

import pytest

from engine.errors import Rejected, SegmentExists, SegmentNotFound, Unresolved
from engine.state.changes.apply import apply_operation, replay
from engine.state.changes.draft import StateDraft
from engine.state.index_records import RECORD_SIZE, IndexRecords
from engine.state.operations import (
    ActivateSegment,
    Append,
    BeginCycle,
    CreateSegment,
    DeleteSegment,
    EvictSegments,
    ExpireSegments,
    LoggedTransaction,
    MergeSegment,
    Operation,
    SaveSegments,
    SealSegment,
    SpillAttributes,
    TruncateSegment,
    UpdateAttributes,
    decode_transactions,
)
from engine.state.segment_record import decode_segment
from engine.state.segments import FrameRef
from engine.state.tables import METADATA, LookupResult
from engine.writer.flush_steps import FlushStep
from tests.engine.state.writer import HEADER, Writer, append, assert_equal, events, set_w, with_segments
from tests.support.simulation import audit, small_sizes

ON_A_SEGMENT: list[Operation] = [
    append("a", b"more"),
    append("a", b"more", 4, set_w(5)),
    SealSegment("a"),
    MergeSegment("b", "a"),
    MergeSegment("a", "b"),
    TruncateSegment("a", 3),
    DeleteSegment("a"),
    UpdateAttributes("a", (set_w(5),)),
    SpillAttributes("a"),
    Append("b", IndexRecords("a", bytes(RECORD_SIZE))),
]


def idle() -> Writer:
    """Segment "a" is in the metadata table only, "b" is active, "gone" was deleted before the last cycle."""
    writer = with_segments("a", "b", "gone")
    writer.commit(append("a", b"1234", None, set_w(4), events(1)), append("b", b"b"))
    writer.flush()
    writer.commit(DeleteSegment("gone"))
    writer.flush()
    writer.commit(EvictSegments(("a",)))
    assert set(writer.state.segments) == {"b"}
    return writer


@pytest.mark.parametrize("operation", ON_A_SEGMENT, ids=lambda operation: type(operation).__name__)
def test_an_operation_on_an_idle_segment_waits_for_it(operation: Operation, tables_of_size: str) -> None:
    writer, active = idle(), with_segments("a", "b")
    active.commit(append("a", b"1234", None, set_w(4), events(1)), append("b", b"b"))
    sealed = getattr(operation, "source", "")
    for each in (writer, active):
        each.commit(*([SealSegment(sealed)] if sealed else []))
    if sealed == "a":
        writer.flush()
        writer.commit(EvictSegments(("a",)))
    before = writer.state
    with pytest.raises(Unresolved) as error:
        writer.judge(operation)
    assert (error.value.table, error.value.keys, error.value.segment) == (METADATA, ("a",), "")
    assert writer.state is before
    assert writer.commit(operation) == active.commit(operation)
    assert writer.contents(writer.state) == active.contents(active.state)
    audit(writer.state)


def test_a_state_shows_no_segment_that_may_be_in_long_term_storage_only(tables_of_size: str) -> None:
    state = idle().state
    assert state.segment("b").name == "b"
    with pytest.raises(Unresolved) as error:
        state.segment("a")
    assert (error.value.table, error.value.keys) == (METADATA, ("a",))
    with pytest.raises(Unresolved if tables_of_size == "large" else SegmentNotFound, match="none"):
        state.segment("none")
    with pytest.raises(SegmentNotFound, match="none"):
        Writer().state.segment("none")


def test_names_are_judged_by_what_long_term_storage_has(tables_of_size: str) -> None:
    """Without asking, if the table is in memory whole."""
    large, writer = tables_of_size == "large", idle()
    for name, error in (("a", SegmentExists), ("gone", None), ("new", None)):
        trial = StateDraft(writer.state, 0, 0, {})
        with pytest.raises(Unresolved) if large else pytest.raises(error) if error else nullcontext():
            apply_operation(trial, CreateSegment(name))
    with pytest.raises(SegmentExists):
        writer.commit(CreateSegment("a"))
    for name in ("gone", "new"):
        with pytest.raises(Unresolved if large else SegmentNotFound):
            writer.judge(append(name, b""))
        with pytest.raises(SegmentNotFound):
            writer.commit(append(name, b""))
        writer.commit(CreateSegment(name))
        assert writer.state.segment(name).length == 0


def test_what_was_deleted_lately_is_known_not_to_be_there(tables_of_size: str) -> None:
    writer = idle()
    writer.commit(DeleteSegment("a"))
    with pytest.raises(SegmentNotFound):
        writer.judge(append("a", b""))
    writer.judge(CreateSegment("a"), append("a", b"new"))
    assert writer.contents(writer.state)[0]["a"].data == b"new"
    writer.flush(evict=True)
    assert writer.contents(writer.state)[0]["a"].data == b"new"


def test_what_was_looked_up_under_another_root_is_not_believed() -> None:
    with small_sizes():
        writer = idle()
        known = writer.lookups.look_up(writer.state, METADATA, ["new"])
        assert known == {(METADATA, "new"): LookupResult(writer.state.tables[METADATA].layout.root, None)}
        before = writer.state
        writer.judge(CreateSegment("new"), known=known)
        writer.flush(evict=True)
        assert writer.state.tables[METADATA].layout.root != before.tables[METADATA].layout.root
        with pytest.raises(Unresolved):
            writer.judge(CreateSegment("new"), known=known)
        with pytest.raises(SegmentExists):
            writer.commit(CreateSegment("new"))


def test_a_segment_comes_back_as_it_was(tables_of_size: str) -> None:
    writer = with_segments("a")
    writer.commit(append("a", b"1234", None, set_w(7), events(3)), TruncateSegment("a", 1), SealSegment("a"))
    writer.flush()
    before = writer.state.segment("a")
    entry = writer.entry(METADATA, "a")
    assert entry is not None and entry.value is not None
    writer.commit(EvictSegments(("a",)))
    known = writer.lookups.look_up(writer.state, METADATA, ["a"]) if tables_of_size == "large" else {}
    writer.judge(ActivateSegment("a", entry.value, entry.version), known=known)
    now = writer.state.sequence
    assert writer.state.segment("a") == before._replace(touched=now, saved=now, spilled=True)
    assert "a" not in writer.state.unsaved
    again = writer.state.segment("a")
    writer.judge(ActivateSegment("a", b"whatever", 0), known=known)
    assert writer.state.segment("a") is again, "nothing happens to a segment that is active"
    writer.commit(EvictSegments(("a",)))
    assert "a" not in writer.state.segments, "it has not changed since it was saved"


def test_a_stale_record_is_not_mapped(tables_of_size: str) -> None:
    writer = with_segments("a")
    writer.flush()
    stale = writer.entry(METADATA, "a")
    assert stale is not None and stale.value is not None
    writer.commit(append("a", b"1"))
    writer.flush(evict=True)
    known = writer.lookups.look_up(writer.state, METADATA, ["a", "b"]) if tables_of_size == "large" else {}
    for name in ("a", "b"):
        with pytest.raises(Unresolved) as error:
            writer.judge(ActivateSegment(name, stale.value, stale.version), known=known)
        assert (error.value.table, error.value.keys) == (METADATA, (name,))
    assert not writer.state.segments
    writer.commit(append("a", b"2", 1))
    assert writer.read("a") == b"12"


def test_segments_that_changed_since_they_were_saved_stay_active() -> None:
    writer = with_segments("clean", "new", "appended", "marked")
    for name in ("clean", "appended", "marked"):
        writer.commit(append(name, b"1"))
    writer.flush()
    writer.commit(DeleteSegment("new"), CreateSegment("new"), append("appended", b"2"), UpdateAttributes("marked", ()))
    assert set(writer.state.unsaved) == {"new", "appended", "marked"}
    writer.commit(EvictSegments(("clean", "new", "appended", "marked", "unknown")))
    assert set(writer.state.segments) == {"new", "appended", "marked"}
    writer.flush()
    assert not writer.state.unsaved
    writer.commit(EvictSegments(("new", "marked")))
    assert set(writer.state.segments) == {"appended"}


def test_segments_are_saved_as_they_were_unless_they_are_gone() -> None:
    writer = with_segments("same", "changed", "deleted", "other", "merged")
    writer.commit(*(append(name, b"12") for name in ("same", "changed", "deleted", "other", "merged")))
    writer.commit(BeginCycle(1))
    begun = writer.state
    storages = {name: writer.flush_step(1, begun.segments[name], FlushStep(0, 2)) for name in begun.segments}
    records = writer.records(begun, storages)
    writer.commit(append("changed", b"34"), DeleteSegment("deleted"), DeleteSegment("other"), CreateSegment("other"))
    writer.commit(SealSegment("merged"), MergeSegment("changed", "merged"))
    writer.commit(SaveSegments(1, begun.sequence, records))
    saved = {name: entry.value for name, entry in writer.lookups.scan(writer.state, METADATA)}
    assert saved == {name: record for name, _, record in records if name in ("same", "changed")}
    assert set(writer.state.unsaved) == {"changed", "other"}
    assert writer.state.segment("same").saved == writer.state.segment("changed").saved == begun.sequence
    assert writer.state.segment("other").saved == -1
    assert decode_segment(saved["changed"] or b"", 0, "changed").length == 2
    assert writer.read("changed") == b"123412"
    audit(writer.state)


def test_a_segment_that_is_deleted_while_a_cycle_saves_it_does_not_come_back(tables_of_size: str) -> None:
    """It was never saved before; the cycle writes its record to LTS all the same."""
    writer = with_segments("a", "b")
    cycle = writer.cycle()
    assert next(cycle) == "begun"
    writer.commit(DeleteSegment("a"))
    assert list(cycle)[-1] == "ended"
    writer.flush(evict=True)
    assert {key for key, _ in writer.lookups.scan(writer.state, METADATA)} == {"b"}
    writer.commit(CreateSegment("a"))
    assert set(writer.contents(writer.state)[0]) == {"a", "b"}
    audit(writer.state)


def test_a_segment_is_saved_with_the_last_operation_that_the_cycle_saw() -> None:
    writer = with_segments("a", "b")
    writer.commit(BeginCycle(1), UpdateAttributes("a", ()))
    begun = writer.state
    assert begun.segments["a"].touched == begun.sequence
    writer.commit(UpdateAttributes("b", ()))
    writer.commit(SaveSegments(1, begun.sequence, writer.records(begun, {})))
    assert set(writer.state.unsaved) == {"b"}, "it changed after the cycle began"


def test_an_activation_is_replayed_without_a_look_at_long_term_storage(tables_of_size: str) -> None:
    """Whoever follows the log has not looked anything up: the record was the newest when the frame was made."""
    writer = idle()
    before = writer.state
    writer.commit(append("a", b"more"), CreateSegment("new"), DeleteSegment("b"))
    address = len(writer.frames) - 1
    transactions = decode_transactions(writer.frames[address], FrameRef(address, HEADER))
    assert_equal(replay(before, transactions, address), writer.state)


@pytest.mark.parametrize("operation", [DeleteSegment("b"), ExpireSegments(("gone",), 0)], ids=str)
def test_the_name_of_a_transient_segment_that_a_recovery_lost_is_removed(
    operation: Operation, tables_of_size: str
) -> None:
    """By a replay as well, which looks nothing up."""
    writer = idle()
    writer.state = before = writer.state._replace(transients=writer.state.transients.set("gone", "b"))
    writer.commit(operation)
    assert not writer.state.transients
    address = len(writer.frames) - 1
    transactions = decode_transactions(writer.frames[address], FrameRef(address, HEADER))
    assert_equal(replay(before, transactions, address), writer.state)


def test_a_frame_on_a_segment_that_nothing_activated_cannot_be_replayed(tables_of_size: str) -> None:
    """A faulty program made it: that is an error of the log, and found as such."""
    with pytest.raises(Unresolved if tables_of_size == "large" else Rejected, match="a"):
        replay(idle().state, [LoggedTransaction(0, (SealSegment("a"),))], 9)


def test_a_deleted_segment_leaves_the_metadata_table() -> None:
    writer = with_segments("saved", "merged", "never saved", "target")
    writer.commit(SealSegment("merged"))
    writer.flush()
    writer.commit(DeleteSegment("saved"), MergeSegment("target", "merged"))
    writer.commit(CreateSegment("late"), DeleteSegment("late"))
    assert {key for key, _ in writer.lookups.scan(writer.state, METADATA)} == {"never saved", "target"}
    assert "late" not in writer.state.tables[METADATA].recent, "it never was there"
