"""Flush cycles in the state: what is flushed, deleted and truncated in LTS, and what happens to segments meanwhile."""

from collections.abc import Iterator
from contextlib import nullcontext

import immutables
import pytest

from engine.errors import FlushOvertaken, SegmentExists, SegmentNotFound
from engine.state.changes.apply import apply_operation
from engine.state.changes.draft import StateDraft
from engine.state.operations import (
    AbortCycle,
    Append,
    BeginCycle,
    Checkpoint,
    CreateSegment,
    DeleteSegment,
    DiscardChunks,
    EndCycle,
    EvictSegments,
    MergeSegment,
    Operation,
    Payload,
    PutEntry,
    RecordDeletion,
    RecordFlush,
    RecordStoredBounds,
    RecordTableFlush,
    SaveSegments,
    SealSegment,
    TruncateSegment,
)
from engine.state.state import EMPTY, EXTENT, Cycle
from engine.state.tables import METADATA, RESIDENT_BYTES, new_table
from engine.storage.chunk_writer import write_chunk
from engine.writer.flush_steps import FlushStep
from tests.engine.state.writer import (
    Writer,
    append,
    assert_equal,
    assert_recovered,
    events,
    merged,
    set_w,
    through_checkpoint,
    with_segments,
)
from tests.support.container_model import Contents
from tests.support.simulation import audit

# --- rules one by one ------------------------------------------------------------------------------------------------


def test_what_was_flushed_is_not_the_logs_any_more() -> None:
    writer = with_segments("a")
    for data in (b"12", b"345", b"6"):
        writer.commit(append("a", data))
    writer.commit(BeginCycle(1))
    assert writer.state.flushed == 4
    before = writer.state.segment("a")
    writer.flush_step(1, before, FlushStep(0, 5))
    segment = writer.state.segment("a")
    assert (segment.logged, segment.storage_length, segment.storage) == (1, 5, "a.1")
    assert (writer.state.logged_bytes, list(writer.state.logged())) == (1, [segment])
    assert (segment.touched, segment.modified) == (before.touched, before.modified), "flushing is no change of it"
    assert writer.stored == {"a.1": (0, b"12345")}
    assert writer.read("a") == b"123456"
    with pytest.raises(FlushOvertaken):  # somebody else flushed the same range a moment later
        writer.commit(RecordFlush(1, "a", "a.1", 0, 5))
    writer.commit(TruncateSegment("a", 2))
    with pytest.raises(FlushOvertaken):
        writer.commit(RecordFlush(1, "a", "a.1", 2, 6))
    writer.commit(RecordFlush(1, "a", "a.1", 5, 6))
    assert (writer.state.logged_bytes, list(writer.state.logged())) == (0, [])
    audit(writer.state)


def test_a_flush_may_end_within_an_extent() -> None:
    writer = with_segments("a")
    writer.commit(append("a", b"1234"), append("a", b"5678"), BeginCycle(1))
    writer.flush_step(1, writer.state.segment("a"), FlushStep(0, 6))
    assert writer.state.segment("a").logged == 4, "the frame is needed still"
    assert writer.read("a") == b"12345678"
    audit(writer.state)
    writer.flush_step(1, writer.state.segment("a"), FlushStep(6, 8))
    assert (writer.state.logged_bytes, writer.stored["a.1"]) == (0, (0, b"12345678"))


def test_an_attached_chunk_that_long_term_storage_took_over_is_no_garbage() -> None:
    writer = with_segments("a", "b")
    for chunk, names in (("whole", "a"), ("shared", "ab")):
        extents = write_chunk(writer.store, chunk, [[b"12"] for _ in names])
        writer.commit(*(Append(name, (extent,)) for name, extent in zip(names, extents, strict=True)))
    writer.flush()
    assert set(writer.state.garbage) == {"shared"}, "which was copied"
    assert not {"whole", "shared"} & set(writer.state.chunks)
    assert writer.stored == {"a.1": (0, b"1212"), "b.2": (0, b"12")}


@pytest.mark.parametrize(
    "over", [(EndCycle(1),), (BeginCycle(2),), (EndCycle(1), BeginCycle(2)), (AbortCycle(1, "trouble"),)], ids=str
)
@pytest.mark.parametrize(
    "operation",
    [
        EndCycle(1),
        AbortCycle(1, "trouble"),
        BeginCycle(1),
        RecordFlush(1, "a", "a.1", 0, 2),
        RecordStoredBounds(1, "b", "b.2", 0, True),
        RecordDeletion(1, ("c.3",)),
        SaveSegments(1, 3, ()),
        RecordTableFlush(1, ()),
    ],
    ids=str,
)
def test_a_cycle_that_is_over_does_nothing_more(over: tuple[Operation, ...], operation: Operation) -> None:
    writer = with_segments("a", "b", "c")
    writer.commit(append("a", b"12"), append("b", b"12"), append("c", b"12"), BeginCycle(1))
    writer.commit(RecordFlush(1, "b", "b.2", 0, 2), RecordFlush(1, "c", "c.3", 0, 2), DeleteSegment("c"))
    if operation != BeginCycle(1):
        apply_operation(StateDraft(writer.state, 0, 0, {}), operation)  # as long as it is not over
    writer.commit(*over)
    before = writer.state
    with pytest.raises(FlushOvertaken):
        writer.commit(operation)
    assert writer.state is before


def test_a_cycle_runs_until_it_is_complete_or_aborted() -> None:
    cycle = Cycle(3, complete=False)
    assert cycle.runs(3) and not cycle.runs(2)
    assert not cycle._replace(complete=True).runs(3) and not cycle._replace(aborted=True).runs(3)


def test_an_aborted_cycle_says_why_and_lets_the_next_one_begin() -> None:
    writer = with_segments("a")
    writer.commit(BeginCycle(1), EndCycle(1), append("a", b"1"), BeginCycle(2))
    begun = writer.state.cycle
    writer.commit(AbortCycle(2, "trouble"))
    aborted = begun._replace(aborted=True, error="trouble", alive=1000 + len(writer.frames) - 1)
    assert writer.state.cycle == aborted
    writer.commit(BeginCycle(3))
    time = aborted.alive + 1
    assert writer.state.cycle == begun._replace(number=3, sequence=writer.state.sequence, time=time, alive=time)
    assert begun.recovery_point == 2, "the first cycle is the last one that is complete"


def test_a_checkpoint_is_marked_with_the_address_of_its_frame() -> None:
    writer = with_segments("a")
    assert writer.state.checkpoint == -1
    writer.commit(append("a", b"1"), Checkpoint())
    assert writer.state.checkpoint == 1
    writer.commit(append("a", b"2"))
    assert writer.state.checkpoint == 1


def test_a_state_knows_what_waits_for_a_flush() -> None:
    assert EMPTY._replace(logged_bytes=5, extents=3, table_bytes=7).backlog == 5 + 3 * EXTENT + 7
    names, small = immutables.Map({"a": True}), new_table("t")._replace(size=RESIDENT_BYTES)
    large = small._replace(size=RESIDENT_BYTES + 1)
    assert not EMPTY.awaits_flush and not EMPTY._replace(tables=immutables.Map({"t": small})).awaits_flush
    for state in (
        EMPTY._replace(unsaved=names),
        EMPTY._replace(dropped=names),
        EMPTY._replace(table_bytes=1),
        EMPTY._replace(tables=immutables.Map({"t": small, "u": large})),
    ):
        assert state.awaits_flush


def test_cycles_are_counted_and_the_last_complete_one_is_remembered() -> None:
    writer = with_segments("a")
    writer.commit(append("a", b"1"), BeginCycle(1))
    first = writer.state.cycle
    assert (first.number, first.sequence, first.time, first.complete, first.recovery_point) == (1, 3, 1001, False, -1)
    writer.commit(EndCycle(1))
    assert writer.state.cycle == first._replace(complete=True, recovery_point=3, alive=1002)
    writer.commit(append("a", b"2"), BeginCycle(2))
    assert (writer.state.cycle.complete, writer.state.cycle.recovery_point) == (False, 3)
    writer.commit(BeginCycle(3), EndCycle(3))
    assert (writer.state.cycle.number, writer.state.cycle.recovery_point) == (3, writer.state.sequence - 1)
    assert writer.state.flushed == len(writer.frames) - 1


def test_what_long_term_storage_knows_of_a_segment_is_noted() -> None:
    writer = with_segments("a")
    writer.commit(append("a", b"1234"), TruncateSegment("a", 2), SealSegment("a"), BeginCycle(1))
    writer.flush_step(1, writer.state.segment("a"), FlushStep(2, 4))
    before = writer.state.segment("a")
    writer.commit(RecordStoredBounds(1, "a", "a.1.2", 2, True))
    segment = writer.state.segment("a")
    assert segment == before._replace(stored_start=2, stored_sealed=True)
    writer.commit(SaveSegments(1, writer.state.sequence, writer.records(writer.state, {})))
    writer.commit(EvictSegments(("a",)))
    writer.commit(TruncateSegment("a", 3))
    assert (writer.state.segment("a").stored_start, writer.state.segment("a").stored_sealed) == (2, True)


# --- what is truncated or deleted goes from LTS too ------------------------------------------------------------------


def test_what_is_deleted_in_long_term_storage_is_dropped_until_it_is_forgotten() -> None:
    writer = with_segments("a", "b", "never flushed", "kept")
    writer.commit(append("a", b"1234"), append("b", b"1234"), append("kept", b"1234"))
    writer.flush()
    writer.commit(append("a", b"56"), append("b", b"56"), append("kept", b"56"), append("never flushed", b"12"))
    writer.commit(DeleteSegment("a"), TruncateSegment("b", 5), TruncateSegment("kept", 4))
    writer.commit(DeleteSegment("never flushed"))
    assert dict(writer.state.dropped) == {"a.1": True, "b.2": True}
    segment = writer.state.segment("b")
    assert (segment.storage, segment.storage_length, segment.stored_start, segment.start_offset) == ("", 5, 0, 5)
    assert writer.state.segment("kept").storage == "kept.4"
    assert (writer.read("b"), writer.read("kept")) == (b"6", b"56")
    audit(writer.state)
    assert_equal(through_checkpoint(writer.state, 0), writer.state)
    writer.commit(BeginCycle(2), RecordDeletion(2, ("a.1", "unknown")))
    assert dict(writer.state.dropped) == {"b.2": True}
    del writer.stored["a.1"]
    writer.flush()
    assert not writer.state.dropped
    assert writer.stored == {"b.2.5": (5, b"6"), "kept.4": (4, b"56")}


def test_a_name_in_long_term_storage_is_never_used_twice() -> None:
    writer = Writer()
    names = []
    for _ in range(3):
        writer.commit(CreateSegment("a"), append("a", b"1234"))
        writer.flush()
        names.append(writer.state.segment("a").storage)
        for offset in (6, 9):
            writer.commit(append("a", b"567"), TruncateSegment("a", offset))
            writer.flush()
            names.append(writer.state.segment("a").storage)
        writer.commit(DeleteSegment("a"))
    assert len(set(names)) == len(names) == 9


@pytest.mark.parametrize("start", [1, 2, 5, 6])
def test_truncation_of_all_that_is_in_long_term_storage_makes_a_new_segment_there(start: int) -> None:
    """One byte less, and what is there goes on."""
    writer = with_segments("a")
    writer.commit(append("a", b"12"))
    writer.flush()
    writer.commit(append("a", b"3456"), TruncateSegment("a", start))
    assert dict(writer.state.dropped) == ({} if start <= 2 else {"a.1": True})
    assert writer.read("a") == b"123456"[start:]
    assert writer.commit(append("a", b"7")) == [6]
    writer.flush()
    assert writer.state.segment("a").storage == ("a.1" if start <= 2 else f"a.1.{start}")
    assert writer.read("a") == b"1234567"[start:]
    audit(writer.state)


# --- what is done to a segment between its flush and the end of the cycle --------------------------------------------

MEANWHILE: dict[str, tuple[Operation, ...]] = {
    "deleted": (DeleteSegment("a"),),
    "merged": (SealSegment("a"), MergeSegment("b", "a", Payload(b"header"))),
    "truncated": (TruncateSegment("a", 2),),
    "truncated beyond LTS": (append("a", b"more"), TruncateSegment("a", 10)),
    "created anew": (DeleteSegment("a"), CreateSegment("a"), append("a", b"new")),
    "created anew and deleted": (DeleteSegment("a"), CreateSegment("a"), append("a", b"new"), DeleteSegment("a")),
}
STEPS = ("flushed", "marked", "forgotten", "tables", "saved", "metadata")


def changed_segments(saved: bool) -> Writer:
    """Segments of 8 bytes, of which LTS has 4 or, unless `saved`, nothing."""
    writer = with_segments("a", "b", "marked")
    for data in (b"1234", b"5678"):
        writer.commit(*(append(name, data, None, set_w(data[0]), events(1)) for name in ("a", "b", "marked")))
        if saved and data == b"1234":
            writer.flush(evict=True)
    writer.commit(TruncateSegment("marked", 1))
    return writer


def part_of_a_cycle(writer: Writer, step: str) -> Iterator[str]:
    """A cycle that is beyond this step, and has flushed all segments."""
    cycle = writer.cycle()
    while next(cycle) != step or list(writer.state.logged()):
        pass
    return cycle


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("saved", [True, False], ids=["saved", "new"])
@pytest.mark.parametrize("what", MEANWHILE)
def test_the_cycle_ends_as_it_began(what: str, saved: bool, step: str, tables_of_size: str) -> None:
    """And the next one takes what was done meanwhile."""
    writer = changed_segments(saved)
    before = writer.contents(writer.state)
    cycle = part_of_a_cycle(writer, step)
    writer.commit(*MEANWHILE[what])
    after = writer.contents(writer.state)
    assert list(cycle)[-1] == "ended"
    assert_complete(writer, before, after)


@pytest.mark.parametrize("step", ["flushed", "saved", "metadata"])
@pytest.mark.parametrize("saved", [True, False], ids=["saved", "new"])
@pytest.mark.parametrize("what", MEANWHILE)
def test_cycles_that_were_given_up_change_nothing_of_that(
    what: str, saved: bool, step: str, tables_of_size: str
) -> None:
    """Neither one that was given up before it was done, nor one that it was done in."""
    for given_up in ("before", "after"):
        writer = changed_segments(saved)
        before = writer.contents(writer.state)
        cycle = part_of_a_cycle(writer, step)
        if given_up == "before":
            cycle = writer.cycle()
            assert next(cycle) == "begun"
        writer.commit(*MEANWHILE[what])
        after = writer.contents(writer.state)
        if given_up == "after":
            cycle, before = writer.cycle(), after
        assert list(cycle)[-1] == "ended"
        assert_complete(writer, before, after)


def assert_complete(writer: Writer, before: Contents, after: Contents) -> None:
    """The cycle brought `before` to LTS, and the container holds `after`, which the next cycle brings there."""
    assert writer.contents(writer.state) == after
    audit(writer.state)
    assert_recovered(writer, before)
    writer.collect_attributes()
    writer.flush(evict=True)
    assert writer.contents(writer.state) == after
    audit(writer.state)
    assert_recovered(writer, after)
    for each in (writer, writer.recovered()):
        assert (each.entry(METADATA, "a") is not None) == ("a" in after[0])
        with pytest.raises(SegmentExists) if "a" in after[0] else nullcontext():
            each.commit(CreateSegment("a"))


@pytest.mark.parametrize("saved", [True, False], ids=["saved", "new"])
@pytest.mark.parametrize("what", MEANWHILE)
def test_a_segment_that_is_gone_before_it_is_flushed_stops_the_cycle(what: str, saved: bool) -> None:
    """Or truncated beyond what LTS has of it; not if less is truncated."""
    writer = changed_segments(saved)
    cycle = writer.cycle()
    assert next(cycle) == "begun"
    writer.commit(*MEANWHILE[what])
    after = writer.contents(writer.state)
    if what == "truncated" and saved:
        assert list(cycle)[-1] == "ended"
    else:
        with pytest.raises((FlushOvertaken, SegmentNotFound)):
            list(cycle)
        assert (writer.recovery_point is not None) == saved and not writer.state.cycle.complete
        writer.flush()
    assert writer.contents(writer.state) == after


def test_a_recovery_point_does_not_know_of_what_was_copied_but_that_it_is_to_go() -> None:
    """Else it would stay in LTS for ever."""
    writer = merged()
    writer.commit(TruncateSegment("a", 8))
    cycle = part_of_a_cycle(writer, "flushed")
    writer.commit(DeleteSegment("a"))
    list(cycle)
    assert set(writer.state.dropped) == {"a.1.8", "b.2"}
    recovered = writer.recovered()
    assert set(recovered.state.dropped) == {"b.2"}
    recovered.flush()
    assert set(recovered.stored) == {"a.1.8"}
    assert recovered.contents(recovered.state)[0]["a"].data == b"89ABCD"


# --- garbage ---------------------------------------------------------------------------------------------------------


def test_flush_cycles_need_not_say_when_their_objects_were_begun() -> None:
    writer = with_segments("a")
    writer.commit(PutEntry("t", "k", b"v"), DiscardChunks((), 1 << 60))
    writer.flush()
    assert writer.state.tables["t"].layout.entries == 1 and writer.entry("t", "k") is not None
