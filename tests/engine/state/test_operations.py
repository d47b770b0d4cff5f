"""What each operation does to the state, and what it is refused for."""

import itertools
import struct

import pytest
from hypothesis import given, settings, strategies as st

from engine.errors import (
    BadAttributeUpdate,
    BadKeyVersion,
    BadOffset,
    ChunksExpired,
    FlushOvertaken,
    Rejected,
    SegmentExists,
    SegmentNotFound,
    SegmentNotSealed,
    SegmentSealed,
    SegmentTransient,
)
from engine.state.index_records import RECORD_SIZE, IndexRecords
from engine.state.operations import (
    Append,
    AttributeUpdate,
    BeginCycle,
    CheckEntry,
    CreateSegment,
    DeleteSegment,
    DiscardChunks,
    EndCycle,
    ExpireSegments,
    LoadAttributes,
    MergeSegment,
    Operation,
    PutEntry,
    RecordFlush,
    RecordStoredBounds,
    RecordTableFlush,
    SealSegment,
    SpillAttributes,
    StartSegment,
    TableFlush,
    TruncateSegment,
    UpdateAttributes,
    UpdateKind,
)
from engine.state.segments import CREATION_TIME, EVENT_COUNT, MAX_LENGTH, MAX_VALUE, Extent, Extents, FrameRef
from engine.tables.content import empty
from tests.engine.state.writer import W, append, assert_equal, events, set_w, through_checkpoint, with_segments
from tests.support.simulation import audit

# --- random histories ------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=40)
@given(sizes=st.lists(st.integers(1, 4), max_size=6))
def test_between_finds_what_overlaps(sizes: list[int]) -> None:
    extents = Extents().appended(0, [Extent(FrameRef(i), 0, size, b"") for i, size in enumerate(sizes)])
    for start, end in itertools.combinations(range(sum(sizes) + 3), 2):
        expected = [(o, e) for o, e in extents if o < end and o + e.length > start]
        assert extents.between(start, end) == expected


# --- rules one by one ------------------------------------------------------------------------------------------------

CHUNK = (Extent("chunk", 0, 2, b""),)


def test_results_are_offsets_and_versions() -> None:
    writer = with_segments("a", "b")
    assert writer.commit(append("a", b"12"), append("a", b"345"), append("b", b"")) == [0, 2, 0]
    assert writer.commit(SealSegment("a"), MergeSegment("b", "a")) == [None, 0]
    (first, second) = writer.commit(PutEntry("t", "k", b"1"), PutEntry("t", "l", b"2"))
    assert isinstance(first, int) and isinstance(second, int) and first < second
    assert writer.state.entry("t", "l") == (b"2", second)
    assert writer.state.entry("t", "other") is None and writer.state.entry("other", "k") is None


def test_times_and_ids_are_of_the_operation_that_set_them() -> None:
    writer = with_segments("a", "b")
    first, second = writer.state.segment("a"), writer.state.segment("b")
    assert first.attributes[CREATION_TIME] == second.attributes[CREATION_TIME] == 1000
    assert first.id < second.id
    writer.commit(append("a", b"x"))
    assert writer.state.segment("a").modified == 1001
    assert writer.state.segment("b").modified == 1000
    assert writer.state.segment("a").attributes[CREATION_TIME] == 1000


@pytest.mark.parametrize(
    ("operation", "error"),
    [
        (CreateSegment("a"), SegmentExists),
        (CreateSegment("new", (AttributeUpdate(W, UpdateKind.REPLACE_IF_EQUALS, 1, 1),)), BadAttributeUpdate),
        (append("none", b"x"), SegmentNotFound),
        (append("sealed", b"x"), SegmentSealed),
        (append("a", b"x", 2), BadOffset),
        (append("a", b"x", 0), BadOffset),
        (SealSegment("none"), SegmentNotFound),
        (MergeSegment("none", "sealed"), SegmentNotFound),
        (MergeSegment("a", "none"), SegmentNotFound),
        (MergeSegment("a", "b"), SegmentNotSealed),
        (MergeSegment("sealed", "cut"), SegmentSealed),
        (MergeSegment("sealed", "sealed"), Rejected),
        (MergeSegment("a", "cut"), BadOffset),
        (TruncateSegment("none", 0), SegmentNotFound),
        (TruncateSegment("a", 99), BadOffset),
        (TruncateSegment("a", -1), BadOffset),
        (StartSegment("none", 0), SegmentNotFound),
        (StartSegment("sealed", 9), SegmentSealed),
        (StartSegment("a", 9), BadOffset),
        (StartSegment("counted", -1), SegmentSealed),
        (StartSegment("full", -1), BadOffset),
        (DeleteSegment("none"), SegmentNotFound),
        (UpdateAttributes("none", ()), SegmentNotFound),
        (UpdateAttributes("sealed", (AttributeUpdate(W, UpdateKind.REPLACE, 1),)), SegmentSealed),
        (MergeSegment("a", "sealed", (Extent("garbage", 0, 1, b""),)), Rejected),
        (MergeSegment("full", "counted"), BadAttributeUpdate),
        (PutEntry("t", "k", b"", -1), BadKeyVersion),
        (PutEntry("t", "k", None, 1), BadKeyVersion),
        (PutEntry("t", "none", b"", 1), BadKeyVersion),
        (PutEntry("none", "k", None, 1), BadKeyVersion),
        (CheckEntry("t", "k", -1), BadKeyVersion),
        (CheckEntry("t", "k", 1), BadKeyVersion),
        (CheckEntry("t", "none", 1), BadKeyVersion),
        (CheckEntry("none", "k", 0), BadKeyVersion),
        (Append("a", (Extent("garbage", 0, 1, b""),)), Rejected),
        (SpillAttributes("none"), SegmentNotFound),
        (LoadAttributes("none", ((W, 1),)), SegmentNotFound),
        (BeginCycle(2), FlushOvertaken),
        (BeginCycle(4), FlushOvertaken),
        (EndCycle(1), FlushOvertaken),
        (RecordFlush(2, "none", "none.0", 0, 1), SegmentNotFound),
        (RecordFlush(2, "a", "a.0", 1, 3), FlushOvertaken),
        (RecordFlush(2, "a", "a.0", 0, 8), FlushOvertaken),
        (RecordFlush(2, "stored", "other", 2, 3), FlushOvertaken),
        (RecordFlush(2, "stored", "stored.6", 0, 2), FlushOvertaken),
        (RecordStoredBounds(2, "none", "none.0", 0, False), SegmentNotFound),
        (RecordStoredBounds(2, "a", "a.0", 0, True), FlushOvertaken),
        (RecordStoredBounds(2, "stored", "other", 0, True), FlushOvertaken),
        (RecordTableFlush(2, (TableFlush("t", 0, tuple(empty()), (), (), (0, CHUNK)),)), FlushOvertaken),
        (RecordTableFlush(2, (TableFlush("t", 0, tuple(empty()), (), (), (0, ()), (0, CHUNK)),)), FlushOvertaken),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else type(value).__name__,
)
def test_refusals_change_nothing_and_undo_the_whole_transaction(operation: Operation, error: type[Rejected]) -> None:
    writer = with_segments("a", "b", "sealed", "cut", "gone", "stored", "counted", "full")
    writer.commit(append("a", b"123"), append("b", b"x"), append("cut", b"12"), PutEntry("t", "k", b"v"))
    writer.commit(SealSegment("sealed"), SealSegment("cut"), TruncateSegment("cut", 1))
    writer.commit(Append("gone", (Extent("garbage", 0, 1, b""),)), DeleteSegment("gone"))
    writer.commit(append("stored", b"123"), UpdateAttributes("counted", (events(1),)), SealSegment("counted"))
    writer.commit(UpdateAttributes("full", (events(MAX_VALUE),)), BeginCycle(1))
    writer.commit(RecordFlush(1, "stored", "stored.6", 0, 2), EndCycle(1), BeginCycle(2))
    before = writer.state
    again = through_checkpoint(before, 0)
    with pytest.raises(error):
        writer.commit(append("a", b"more"), PutEntry("t", "new", b""), TruncateSegment("b", 1), operation)
    assert writer.state is before
    assert_equal(before, again)


def test_what_is_refused_of_transient_segments_and_of_a_start() -> None:
    writer = with_segments("a", "b", "low", "high")
    writer.commit(CreateSegment("part", (), "a"), StartSegment("low", 0), StartSegment("high", MAX_LENGTH))
    before = writer.state
    with pytest.raises(SegmentTransient, match="begin elsewhere"):
        writer.commit(StartSegment("part", 9))
    for offset in (-1, MAX_LENGTH + 1):
        with pytest.raises(BadOffset):
            writer.commit(StartSegment("b", offset))
    assert writer.state is before
    assert (writer.state.segments["high"].length, writer.state.segments["low"].length) == (MAX_LENGTH, 0)
    assert writer.state.segments["low"].modified == 1001


def test_a_transient_segment_expires_when_its_last_append_is_older_than_the_time_given() -> None:
    writer = with_segments("a")
    writer.commit(CreateSegment("part", (), "a"))
    last = writer.state.segments["part"].modified
    assert writer.commit(ExpireSegments(("a", "none", "part"), last)) == [()]
    assert writer.commit(ExpireSegments(("a", "none", "part"), last + 1)) == [("part",)]
    assert set(writer.state.segments) == {"a"} and not writer.state.transients
    audit(writer.state)


def test_errors_tell_what_was_found() -> None:
    writer = with_segments("a")
    writer.commit(append("a", b"123"), PutEntry("t", "k", b""), UpdateAttributes("a", (set_w(5),)))
    with pytest.raises(BadOffset, match="'a': offset 2 was given where 3 is expected") as offset:
        writer.commit(append("a", b"", 2))
    assert (offset.value.expected, offset.value.given) == (3, 2)
    with pytest.raises(BadAttributeUpdate, match="not by 5, but its value is 5") as attribute:
        writer.commit(append("a", b"", 2, AttributeUpdate(W, UpdateKind.REPLACE_IF_GREATER, 5)))
    assert (attribute.value.attribute, attribute.value.previous) == (W, 5)
    with pytest.raises(BadKeyVersion, match="version -1 was expected") as version:
        writer.commit(PutEntry("t", "k", b"", -1))
    entry = writer.state.entry("t", "k")
    assert entry is not None and version.value.actual == entry.version


def test_a_segment_that_begins_elsewhere_has_nothing_before() -> None:
    writer = with_segments("a")
    writer.commit(StartSegment("a", 9))
    segment = writer.state.segments["a"]
    assert (segment.start_offset, segment.length) == (9, 9)
    writer.commit(append("a", b"123", 9))
    assert writer.read("a") == b"123" and writer.state.segments["a"].length == 12
    assert_equal(writer.state, through_checkpoint(writer.state, 0))


def test_truncation_within_an_extent_keeps_the_extent() -> None:
    writer = with_segments("a")
    writer.commit(append("a", b"1234"), append("a", b"5678"))
    writer.commit(TruncateSegment("a", 2))
    assert writer.read("a") == b"345678"
    writer.commit(TruncateSegment("a", 1))
    assert writer.state.segment("a").start_offset == 2
    writer.commit(TruncateSegment("a", 4))
    assert len(writer.state.segment("a").extents) == 1
    assert_equal(through_checkpoint(writer.state, 0), writer.state)
    writer.commit(TruncateSegment("a", 8))
    segment = writer.state.segment("a")
    assert (segment.start_offset, segment.length, len(segment.extents), segment.logged) == (8, 8, 0, 0)
    assert writer.commit(append("a", b"9")) == [8]
    assert writer.read("a") == b"9"


def test_an_operation_that_changes_nothing_leaves_the_segment_as_it_is() -> None:
    writer = with_segments("a")
    writer.commit(append("a", b"1234"), TruncateSegment("a", 2), SealSegment("a"), BeginCycle(1))
    before = writer.state.segments["a"]
    writer.commit(SealSegment("a"), TruncateSegment("a", 2), TruncateSegment("a", 0))
    assert writer.state.segments["a"] == before


def test_every_change_of_a_segment_is_dated_and_saved_by_the_next_cycle() -> None:
    writer = with_segments("a", "b", "c")
    changes: list[Operation] = [
        append("a", b"12"),
        TruncateSegment("a", 1),
        UpdateAttributes("a", (set_w(1),)),
        SealSegment("a"),
    ]
    for number, change in enumerate((*changes, MergeSegment("b", "c"))):
        if isinstance(change, MergeSegment):
            writer.commit(SealSegment("c"))
        writer.commit(change)
        name = "b" if isinstance(change, MergeSegment) else "a"
        segment = writer.state.segments[name]
        assert segment.modified == 1000 + len(writer.frames) - 1, number
        assert segment.touched == writer.state.sequence and name in writer.state.unsaved
    assert EVENT_COUNT not in writer.state.segments["b"].attributes, "neither of the two counts events"


def test_a_truncation_beyond_what_is_stored_begins_another_stored_segment() -> None:
    writer = with_segments("a")
    writer.commit(append("a", b"123456"), BeginCycle(1), RecordFlush(1, "a", "a.1", 0, 2), TruncateSegment("a", 1))
    writer.commit(RecordStoredBounds(1, "a", "a.1", 1, True))
    writer.commit(TruncateSegment("a", 2))
    segment = writer.state.segments["a"]
    assert (segment.storage, segment.storage_length, segment.stored_start, segment.stored_sealed) == ("a.1", 2, 1, True)
    assert not writer.state.dropped
    writer.commit(TruncateSegment("a", 4))
    segment = writer.state.segments["a"]
    assert (segment.storage, segment.storage_length, segment.stored_start, segment.stored_sealed) == ("", 4, 0, False)
    assert set(writer.state.dropped) == {"a.1"}
    audit(writer.state)


def test_a_merged_segment_that_is_empty_in_long_term_storage_is_deleted_there() -> None:
    writer = with_segments("a", "b", "c")
    writer.commit(append("c", b"1"), SealSegment("b"), SealSegment("c"), BeginCycle(1))
    writer.commit(RecordFlush(1, "b", "b.2", 0, 0), RecordFlush(1, "c", "c.3", 0, 1))
    writer.commit(MergeSegment("a", "b"), MergeSegment("a", "c"))
    assert set(writer.state.dropped) == {"b.2"}, "the content of the other one is that of its target now"
    audit(writer.state)


def test_a_sealed_segment_can_be_truncated_deleted_and_sealed_again() -> None:
    writer = with_segments("a")
    writer.commit(append("a", b"12"), SealSegment("a"))
    writer.commit(SealSegment("a"))
    writer.commit(TruncateSegment("a", 1))
    writer.commit(DeleteSegment("a"))
    assert writer.state.segments.get("a") is None
    writer.commit(CreateSegment("a"))
    assert writer.state.segment("a").length == 0


def test_index_records_see_the_operations_before_it() -> None:
    writer = with_segments("a", "b")
    records, seven = IndexRecords("a", bytes(RECORD_SIZE)), events(7)
    writer.commit(append("a", b"123"), Append("b", records), append("a", b"45", None, seven), Append("b", records))
    assert writer.read("b") == struct.pack(">8q", 3, 0, 0, 0, 5, 7, 0, 0)


def test_index_records_of_a_missing_segment_is_refused() -> None:
    writer = with_segments("a")
    with pytest.raises(SegmentNotFound):
        writer.commit(Append("a", IndexRecords("none", bytes(RECORD_SIZE))))


@pytest.mark.parametrize("operation", [Append, MergeSegment])
def test_no_segment_is_longer_than_a_stream_cut_can_say(operation: type[Append | MergeSegment]) -> None:
    """Not even by a frame that says so: the numbers of a state fit into its checkpoint."""
    writer = with_segments("a", "b")
    writer.commit(append("a", b"123456"), append("b", b"1"), SealSegment("b"))
    huge = (Extent("chunk", 0, MAX_LENGTH - 6, b""),)
    more: Append | MergeSegment = Append("a", (*huge, Extent("chunk", 0, 1, b"")))
    if operation is MergeSegment:
        more = MergeSegment("a", "b", huge)
    with pytest.raises(Rejected, match=f"{MAX_LENGTH} is the most"):
        writer.commit(more)
    assert writer.state.segments["a"].length == 6


def test_a_log_holds_no_more_bytes_than_its_checkpoint_can_say() -> None:
    names = [f"s{number}" for number in range(5)]
    writer = with_segments(*names)
    huge = FrameRef(1, 0)
    with pytest.raises(Rejected, match="the log cannot hold"):
        writer.commit(*(Append(name, (Extent(huge, 0, MAX_LENGTH, b""),)) for name in names))


# --- garbage ---------------------------------------------------------------------------------------------------------


def test_what_is_refused_first_is_told_first() -> None:
    """A replay is known as one, and an upload that was taken over as such, however old the chunks are."""
    writer = with_segments("a", "done")
    once = AttributeUpdate(W, UpdateKind.REPLACE_IF_GREATER, 1)
    writer.commit(UpdateAttributes("done", (once,)), DiscardChunks((), 5000))
    old = (Extent("old", 0, 2, b""),)
    with pytest.raises(BadAttributeUpdate):
        writer.commit(UpdateAttributes("done", (once,)), Append("a", old, created_at=1))
    with pytest.raises(BadAttributeUpdate):
        writer.commit(Append("done", old, None, (once,), 1))
    with pytest.raises(BadOffset):
        writer.commit(Append("a", old, 7, (), 1))
    with pytest.raises(ChunksExpired):
        writer.commit(UpdateAttributes("done", (once._replace(value=2),)), Append("a", old, created_at=1))
    assert writer.state.segment("done").attributes[W] == 1


def test_two_versions_that_go_on_from_one_do_not_meet() -> None:
    first, one, more, other = (Extent(name, 0, 10, b"") for name in ("first", "one", "more", "other"))
    base = Extents().appended(0, [first])
    assert list(base.appended(10, [one, more])) == [(0, first), (10, one), (20, more)]
    assert list(base.appended(10, [other])) == [(0, first), (10, other)]
    assert list(base) == [(0, first)]
    assert base.truncated(99) == (Extents(), [first])
    assert base.between(0, 99) == [(0, first)] and not base.between(10, 99)
