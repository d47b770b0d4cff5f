"""Garbage in the state, and chunks that can no longer be attached."""

import pickle

import pytest

from chunkstore.metadata.garbage_queue import GarbageKind
from engine.errors import ChunksExpired, Rejected
from engine.state.attach_fence import CLOCKS, attach_fence, creation_time
from engine.state.operations import (
    Append,
    BeginCycle,
    DeleteSegment,
    DequeueGarbage,
    DiscardChunks,
    EndCycle,
    MergeSegment,
    QueueGarbage,
    SealSegment,
    TruncateSegment,
)
from engine.state.segments import Extent
from engine.state.state import GarbageEntry
from engine.storage import recovery_points
from tests.engine.state.writer import append, through_checkpoint, with_segments

# --- rules one by one ------------------------------------------------------------------------------------------------


def test_a_shared_chunk_is_garbage_when_the_last_segment_lets_go() -> None:
    writer = with_segments("a", "b", "c")
    ranges = [Extent("shared", position, 2, b"") for position in (0, 2, 4, 6)]
    writer.commit(Append("a", (ranges[0], ranges[3])), Append("b", (ranges[1],)), Append("c", (ranges[2],)))
    assert dict(writer.state.chunks) == {"shared": 4}
    writer.commit(TruncateSegment("a", 2))
    writer.commit(DeleteSegment("b"))
    writer.commit(DeleteSegment("a"))
    assert dict(writer.state.chunks) == {"shared": 1} and not writer.state.garbage
    writer.commit(TruncateSegment("c", 2))
    assert not writer.state.chunks
    assert dict(writer.state.garbage) == {
        "shared": GarbageEntry(1000 + len(writer.frames) - 1, writer.state.sequence, GarbageKind.CHUNK, "")
    }
    writer.commit(DequeueGarbage(("shared", "unknown")))
    assert not writer.state.garbage


def test_each_chunk_of_a_deleted_segment_is_counted_by_itself() -> None:
    writer = with_segments("a", "b")
    shared, own, twice = (Extent(name, 0, 2, b"") for name in ("shared", "own", "twice"))
    writer.commit(Append("a", (shared, twice, own, twice)), Append("b", (shared,)))
    writer.commit(DeleteSegment("a"))
    assert dict(writer.state.chunks) == {"shared": 1} and set(writer.state.garbage) == {"own", "twice"}


# --- garbage ---------------------------------------------------------------------------------------------------------


def test_chunks_that_were_given_up_cannot_be_attached_and_those_that_were_attached_stay() -> None:
    writer = with_segments("a")
    writer.commit(Append("a", (Extent("attached", 0, 2, b""),)))
    writer.commit(DiscardChunks(("attached", "given up")))
    assert dict(writer.state.garbage) == {"given up": GarbageEntry(1002, writer.state.sequence, GarbageKind.CHUNK, "")}
    for operation in (Append("a", (Extent("given up", 0, 2, b""),)), Append("a", (Extent("given up", 4, 1, b""),))):
        with pytest.raises(Rejected, match="'given up' is garbage"):
            writer.commit(operation)
    writer.commit(Append("a", (Extent("given up", 0, 0, b""),)))  # nothing of it
    assert dict(writer.state.chunks) == {"attached": 1}


def test_chunks_from_before_a_sweep_cannot_be_attached_even_when_their_names_are_forgotten() -> None:
    writer = with_segments("a", "b")
    named, given, late = (Extent(name, 0, 2, b"") for name in ("named", "given up", "late"))
    writer.commit(Append("a", (named,)))
    writer.commit(DiscardChunks(("given up",), 5000))
    writer.commit(DequeueGarbage(("given up",)))
    assert not writer.state.garbage and writer.state.min_attach_time == 5000
    before = writer.state
    for made, told in ((4999, "were created at 1970-01-01 00:00:04 UTC"), (0, "have no known creation time")):
        with pytest.raises(ChunksExpired, match=rf"its chunks {told}, but .* before 1970-01-01 00:00:05 UTC") as error:
            writer.commit(Append("b", (named, given), created_at=made))
        assert (error.value.segment, error.value.created_at, error.value.min_attach_time) == ("b", made, 5000)
        assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)
    assert writer.state is before
    writer.commit(
        Append("b", (named,)), Append("b", (late,), created_at=5000), Append("b", (Extent("none", 0, 0, b""),))
    )
    writer.commit(Append("b", (late, late)), append("b", b"bytes"))  # whatever is named may be attached again
    assert dict(writer.state.chunks) == {"named": 2, "late": 3}
    with pytest.raises(ChunksExpired) as merging:
        writer.commit(SealSegment("b"), MergeSegment("a", "b", (given,)))
    assert merging.value.created_at == 0


def test_creation_times_and_fences_are_milliseconds() -> None:
    assert creation_time(1.2349) == 1234
    assert attach_fence(1.2341, 5000.0) == int((1.234 + CLOCKS) * 1000) + 1, "not below what it is to refuse"
    assert attach_fence(5000.0, 5000.5) == 5000500, "never in the future"


def test_the_attach_fence_never_moves_back() -> None:
    writer = with_segments("a")
    writer.commit(DiscardChunks((), 5000))
    writer.commit(DiscardChunks(("another",), 4000), DiscardChunks(("aborted",)))
    assert writer.state.min_attach_time == 5000 and set(writer.state.garbage) == {"another", "aborted"}
    assert through_checkpoint(writer.state, 7).min_attach_time == 5000
    assert recovery_points.pruned(writer.state, writer.states[1]).min_attach_time == 5000


@pytest.mark.parametrize("kind", list(GarbageKind))
def test_garbage_of_the_chunk_layer_is_queued_and_collected(kind: GarbageKind) -> None:
    writer = with_segments("a")
    writer.commit(QueueGarbage((("chunk", kind, "a.1"), ("other", kind, ""))))
    sequence = writer.state.sequence
    assert dict(writer.state.garbage) == {
        "chunk": GarbageEntry(1001, sequence, kind, "a.1"),
        "other": GarbageEntry(1001, sequence, kind, ""),
    }
    writer.commit(QueueGarbage((("chunk", GarbageKind.CHUNK, "b.0"),)))
    assert writer.state.garbage["chunk"] == GarbageEntry(1002, sequence + 1, GarbageKind.CHUNK, "b.0")
    writer.commit(DequeueGarbage(("chunk", "unknown")))
    assert set(writer.state.garbage) == {"other"}


def test_what_a_recovery_point_may_need_is_told_from_older_garbage() -> None:
    """The recovery point is of the moment when its cycle began: what became garbage after that is in it (F2)."""
    writer = with_segments("a")
    writer.commit(QueueGarbage((("early", 1, ""),)))
    early = writer.state.garbage["early"]
    assert not writer.state.is_kept_for_recovery(early), "there is no recovery point"
    writer.commit(BeginCycle(1))
    writer.commit(QueueGarbage((("late", 1, ""),)))
    late = writer.state.garbage["late"]
    assert not writer.state.is_kept_for_recovery(late)
    writer.commit(EndCycle(1))
    assert writer.state.is_kept_for_recovery(late) and not writer.state.is_kept_for_recovery(early)
    writer.commit(BeginCycle(2))
    assert writer.state.is_kept_for_recovery(late), "the new cycle is not complete"
    writer.commit(EndCycle(2))
    assert not writer.state.is_kept_for_recovery(late)
