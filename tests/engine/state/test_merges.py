"""Merged segments, and what LTS has of them."""

import pytest

from engine.state.operations import (
    BeginCycle,
    CreateSegment,
    DeleteSegment,
    MergeSegment,
    Payload,
    SealSegment,
    TruncateSegment,
)
from engine.state.segments import EVENT_COUNT, StoredRef
from engine.writer.flush_steps import steps_of
from tests.engine.state.writer import W, append, assert_equal, events, merged, set_w, through_checkpoint, with_segments
from tests.support.simulation import audit

# --- rules one by one ------------------------------------------------------------------------------------------------


def test_merging_adds_event_counts_and_moves_the_extents() -> None:
    writer = with_segments("a", "b", "c")
    count = events(2)
    writer.commit(append("a", b"12", None, count), append("b", b"3456", None, count, set_w(1)), append("c", b"78"))
    writer.commit(SealSegment("b"), SealSegment("c"), MergeSegment("a", "b"), MergeSegment("a", "c"))
    segment = writer.state.segment("a")
    assert segment.attributes[EVENT_COUNT] == 4
    assert W not in segment.attributes
    assert writer.read("a") == b"12345678"
    assert set(writer.state.segments) == {"a"}
    audit(writer.state)


# --- merges ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flushed", ["nothing", "source", "target", "both"])
@pytest.mark.parametrize("header", [b"", b"<header>"], ids=["plain", "header"])
def test_a_merge_moves_what_is_in_long_term_storage_as_a_whole(flushed: str, header: bytes) -> None:
    writer = with_segments("target", "source")
    if flushed in ("source", "both"):
        writer.commit(append("source", b"stored,", None, events(2)))
    if flushed in ("target", "both"):
        writer.commit(append("target", b"target,"))
    writer.flush()
    writer.commit(append("target", b"logged,"), append("source", b"late", None, events(1)), SealSegment("source"))
    length = writer.state.segment("target").length
    expected = writer.read("target") + header + writer.read("source")
    assert writer.commit(MergeSegment("target", "source", Payload(header))) == [length]
    segment = writer.state.segment("target")
    stored = [extent.source for _, extent in segment.extents if isinstance(extent.source, StoredRef)]
    assert stored == ([StoredRef("source.2")] if flushed in ("source", "both") else [])
    assert segment.attributes[EVENT_COUNT] == (3 if stored else 1)
    assert writer.state.logged_bytes == 7 + len(header) + 4
    assert writer.read("target") == expected
    assert set(writer.state.segments) == {"target"} and not writer.state.dropped
    audit(writer.state)
    writer.flush()
    assert writer.stored == {"target.1": (0, expected)}
    assert writer.read("target") == expected and not writer.state.dropped


@pytest.mark.parametrize("start", range(1, 15))
def test_truncation_into_the_stored_part_of_a_merged_segment(start: int) -> None:
    writer = merged()
    writer.commit(TruncateSegment("a", start))
    data = b"0123456789ABCD"[start:]
    assert writer.read("a") == data
    dropped = ({"a.1"} if start > 4 else set()) | ({"b.2"} if start >= 12 else set())
    assert set(writer.state.dropped) == dropped
    audit(writer.state)
    assert_equal(through_checkpoint(writer.state, 0), writer.state)
    writer.commit(BeginCycle(2))
    state = writer.state
    joined = [step.joined for step in steps_of(state.segment("a"), state) if step.joined]
    assert joined == (["b.2"] if start <= 6 else []), "a part of it has to be copied"
    writer.flush()
    assert writer.read("a") == data
    assert not writer.state.logged_bytes and not writer.state.segment("a").extents
    writer.flush()
    assert set(writer.stored) == {f"a.1.{start}" if start > 4 else "a.1"} - ({f"a.1.{start}"} if not data else set())
    assert not writer.state.dropped


def test_the_deletion_of_a_merged_segment_drops_all_that_long_term_storage_has_of_it() -> None:
    writer = merged()
    writer.commit(DeleteSegment("a"))
    assert set(writer.state.dropped) == {"a.1", "b.2"}
    writer.flush()
    assert not writer.stored and not writer.state.dropped


def test_a_merged_segment_may_be_merged_again() -> None:
    writer = merged()
    writer.commit(SealSegment("a"), CreateSegment("c"), append("c", b"c,"), MergeSegment("c", "a", Payload(b"<a>")))
    assert writer.read("c") == b"c,<a>0123456789ABCD"
    writer.flush()
    assert writer.read("c") == b"c,<a>0123456789ABCD"
    assert len(writer.stored) == 1
