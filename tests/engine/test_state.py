"""The state of a container is a pure function of its log (W5), and a checkpoint of it is all of it (W6)."""

import random
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chunkstore.testing import SimulatedStore
from engine import checkpoints
from engine.errors import (
    BadAttributeUpdate,
    BadKeyVersion,
    BadOffset,
    DataCorruption,
    ExtentsChanged,
    Rejected,
    SegmentExists,
    SegmentNotFound,
    SegmentNotSealed,
    SegmentSealed,
)
from engine.flush import logged_runs
from engine.frames import NOBODY, Position
from engine.layout import Layout
from engine.operations import (
    Append,
    AttributeUpdate,
    Checkpoint,
    Collected,
    CreateSegment,
    DeleteSegment,
    Derived,
    Flushed,
    MergeSegment,
    Operation,
    Payload,
    PutEntry,
    SealSegment,
    Transaction,
    TruncateSegment,
    UpdateAttributes,
    UpdateKind,
    decode_transactions,
    encode_transactions,
)
from engine.segments import CREATION_TIME, EVENT_COUNT, NULL_VALUE, Extent, Extents, FrameRef
from engine.state import EMPTY, Change, State
from engine.testing.model import Model
from engine.testing.simulation import audit
from engine.testing.transactions import chunk_writer, transactions

HEADER = 100  # where a frame's payload begins, in these tests
W = bytes(15) + b"w"


class Writer:
    """Applies transactions to a state as the processor does, one frame each, and keeps the frames."""

    def __init__(self) -> None:
        self.state = EMPTY
        self.frames: list[bytes] = []
        self.payloads: list[bytes] = []

    def commit(self, *operations: Operation) -> list[object]:
        address, time = len(self.frames), 1000 + len(self.frames)
        layout, change = Layout(address), Change(self.state, time, address)
        bound, results = [], []
        for operation in operations:
            bound.append(layout.bind(operation, change.segment))
            results.append(change.apply(bound[-1]))
        layout.frame.start = HEADER
        self.frames.append(encode_transactions([Transaction(time, tuple(bound))], layout.frame))
        self.payloads.append(b"".join(layout.buffers))
        self.state = change.state()
        return results

    def read(self, name: str, chunks: dict[str, bytes]) -> bytes:
        segment = self.state.segment(name)
        data = bytearray()
        begin = segment.start_offset
        for offset, extent in segment.extents:
            begin = min(begin, offset)
            if isinstance(extent.source, FrameRef):
                assert extent.source.start == HEADER
                whole = self.payloads[extent.source.address]
            else:
                whole = chunks[extent.source]
            data += whole[extent.position : extent.position + extent.length]
        return bytes(data[segment.start_offset - begin :])


def replayed(state: State, frames: list[bytes], start: int) -> State:
    """The state after the frames from address `start` on."""
    for address in range(start, len(frames)):
        own = FrameRef(address, HEADER)
        for transaction in decode_transactions(frames[address], own):
            state, _ = state.apply(transaction, address)
    return state


def assert_equal(left: State, right: State) -> None:
    for field in State._fields:
        assert getattr(left, field) == getattr(right, field), field


def through_checkpoint(state: State, address: int) -> State:
    head = Position(address, uuid.uuid4().bytes, 3)
    opening = checkpoints.decode(checkpoints.encode(7, head, state), "path", 7, address)
    assert opening.head == head
    return opening.state


# --- random histories -----------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_any_history_fits_the_model_and_replays_to_the_same_state_from_any_checkpoint(data: st.DataObject) -> None:
    model, writer = Model(), Writer()
    write = chunk_writer(model, SimulatedStore())
    states = [EMPTY]
    for _ in range(data.draw(st.integers(1, 12))):
        if data.draw(st.integers(0, 3)) == 0:
            writer.commit(*upkeep(data, writer, model))
        else:
            operations, before = data.draw(transactions(model, write, 40)), writer.state
            try:
                expected = model.commit(operations)
            except Rejected as error:
                with pytest.raises(type(error)):
                    writer.commit(*operations)
                assert writer.state is before
                continue
            for result, wanted in zip(writer.commit(*operations), expected, strict=True):
                assert wanted is None or result == wanted
            model.adopt(writer.state)
        states.append(writer.state)
    assert_shows(writer, model)
    for state in states:
        audit(state)
    for address, state in enumerate(states):
        assert_equal(through_checkpoint(state, address), state)
        assert_equal(replayed(through_checkpoint(state, address), writer.frames, address), writer.state)
    assert_equal(replayed(EMPTY, writer.frames, 0), writer.state)


def upkeep(data: st.DataObject, writer: Writer, model: Model) -> list[Operation]:
    """What flushing, collecting garbage, and making a checkpoint put into the log."""
    operations: list[Operation] = [Checkpoint()] if data.draw(st.booleans()) else []
    for segment in writer.state.logged():
        if data.draw(st.booleans()):
            for offset, run in logged_runs(segment):
                name = f"flushed/{uuid.uuid4()}"
                parts = [
                    writer.payloads[e.source.address][e.position : e.position + e.length]
                    for e in run
                    if isinstance(e.source, FrameRef)
                ]
                model.chunks[name] = b"".join(parts)
                checksums = Payload(model.chunks[name]).checksums
                extent = Extent(name, 0, len(model.chunks[name]), checksums)
                operations.append(Flushed(segment.name, offset, (extent,)))
    if data.draw(st.booleans()):
        operations.append(Collected(tuple(sorted(writer.state.garbage))))
    return operations


def assert_shows(writer: Writer, model: Model) -> None:
    segments, tables = model.contents()
    assert set(writer.state.segments) == set(segments)
    for name, content in segments.items():
        segment = writer.state.segment(name)
        assert (segment.start_offset, segment.length, segment.sealed) == content[:3]
        assert dict(segment.attributes.delete(CREATION_TIME)) == content.attributes
        assert writer.read(name, model.chunks) == content.data
    assert {
        table: {key: entry.value for key, entry in entries.items()}
        for table, entries in writer.state.tables.items()
        if entries
    } == tables


@settings(deadline=None, max_examples=100)
@given(data=st.data())
def test_versions_of_a_state_do_not_disturb_each_other(data: st.DataObject) -> None:
    """Versions of a list of extents share memory. Whatever is made of one, the others keep what they had."""
    versions: list[tuple[Extents, list[tuple[int, Extent]]]] = [(Extents(), [])]
    for number in range(data.draw(st.integers(1, 25))):
        extents, pairs = versions[data.draw(st.integers(0, len(versions) - 1))]
        end = pairs[-1][0] + pairs[-1][1].length if pairs else 0
        what = data.draw(st.sampled_from(("append", "append", "truncate", "replace")))
        if what == "append":
            added = [Extent(FrameRef(number), i, length, b"") for i, length in enumerate(data.draw(st.lists(lengths)))]
            versions.append((extents.appended(end, added), pairs + placed(end, added)))
        elif what == "truncate":
            offset = data.draw(st.integers(0, end))
            left, dropped = extents.truncated(offset)
            kept = [pair for pair in pairs if pair[0] + pair[1].length > offset]
            assert dropped == [extent for _, extent in pairs[: len(pairs) - len(kept)]]
            versions.append((left, kept))
        elif pairs:
            first = data.draw(st.integers(0, len(pairs) - 1))
            last = data.draw(st.integers(first + 1, len(pairs)))
            length = sum(extent.length for _, extent in pairs[first:last])
            new = [Extent(f"chunk{number}", 0, length, b"")]
            result = extents.replaced(pairs[first][0], new)
            assert result is not None
            assert result[1] == [extent for _, extent in pairs[first:last]]
            versions.append((result[0], pairs[:first] + placed(pairs[first][0], new) + pairs[last:]))
        for kept_extents, kept_pairs in versions:
            assert list(kept_extents) == kept_pairs
            assert len(kept_extents) == len(kept_pairs)


lengths = st.integers(0, 3)


def placed(offset: int, extents: list[Extent]) -> list[tuple[int, Extent]]:
    pairs = []
    for extent in extents:
        if extent.length:
            pairs.append((offset, extent))
            offset += extent.length
    return pairs


@settings(deadline=None, max_examples=100)
@given(sizes=st.lists(st.integers(1, 4), max_size=12), span=st.tuples(st.integers(0, 50), st.integers(0, 50)))
def test_between_finds_what_overlaps(sizes: list[int], span: tuple[int, int]) -> None:
    extents = Extents().appended(0, [Extent(FrameRef(i), 0, size, b"") for i, size in enumerate(sizes)])
    start, end = sorted(span)
    expected = [(o, e) for o, e in extents if o < end and o + e.length > start]
    assert extents.between(start, end) == expected


# --- rules one by one -----------------------------------------------------------------------------------------


def with_segments(*names: str) -> Writer:
    writer = Writer()
    writer.commit(*(CreateSegment(name) for name in names))
    return writer


def append(name: str, data: bytes, offset: int | None = None, *updates: AttributeUpdate) -> Append:
    return Append(name, Payload(data), offset, updates)


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
        (DeleteSegment("none"), SegmentNotFound),
        (UpdateAttributes("none", ()), SegmentNotFound),
        (Flushed("none", 0, ()), SegmentNotFound),
        (Flushed("a", 0, (Extent("chunk", 0, 2, b""),)), ExtentsChanged),
        (Flushed("a", 1, (Extent("chunk", 0, 2, b""),)), ExtentsChanged),
        (PutEntry("t", "k", b"", -1), BadKeyVersion),
        (PutEntry("t", "k", None, 1), BadKeyVersion),
        (PutEntry("t", "none", b"", 1), BadKeyVersion),
        (Append("a", (Extent("garbage", 0, 1, b""),)), Rejected),
    ],
)
def test_refusals_change_nothing_and_undo_the_whole_transaction(operation: Operation, error: type[Rejected]) -> None:
    writer = with_segments("a", "b", "sealed", "cut", "gone")
    writer.commit(append("a", b"123"), append("b", b"x"), append("cut", b"12"), PutEntry("t", "k", b"v"))
    writer.commit(SealSegment("sealed"), SealSegment("cut"), TruncateSegment("cut", 1))
    writer.commit(Append("gone", (Extent("garbage", 0, 1, b""),)), DeleteSegment("gone"))
    before = writer.state
    again = through_checkpoint(before, 0)
    with pytest.raises(error):
        writer.commit(append("a", b"more"), PutEntry("t", "new", b""), TruncateSegment("b", 1), operation)
    assert writer.state is before
    assert_equal(before, again)


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


def set_w(value: int, kind: UpdateKind = UpdateKind.REPLACE, comparison: int = 0) -> AttributeUpdate:
    return AttributeUpdate(W, kind, value, comparison)


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
    writer = with_segments("a")
    if present is not None:
        writer.commit(UpdateAttributes("a", (set_w(present),)))
    operations: list[Operation] = [UpdateAttributes("a", (update,)), append("a", b"x", None, update)]
    for operation in operations:
        trial = Writer()
        trial.state = writer.state
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


def test_merging_adds_event_counts_and_moves_the_extents() -> None:
    writer = with_segments("a", "b", "c")
    count = AttributeUpdate(EVENT_COUNT, UpdateKind.ACCUMULATE, 2)
    writer.commit(append("a", b"12", None, count), append("b", b"3456", None, count, set_w(1)), append("c", b"78"))
    writer.commit(SealSegment("b"), SealSegment("c"), MergeSegment("a", "b"), MergeSegment("a", "c"))
    segment = writer.state.segment("a")
    assert segment.attributes[EVENT_COUNT] == 4
    assert W not in segment.attributes
    assert writer.read("a", {}) == b"12345678"
    assert set(writer.state.segments) == {"a"}
    audit(writer.state)


def test_truncation_within_an_extent_keeps_the_extent() -> None:
    writer = with_segments("a")
    writer.commit(append("a", b"1234"), append("a", b"5678"))
    writer.commit(TruncateSegment("a", 2))
    assert writer.read("a", {}) == b"345678"
    writer.commit(TruncateSegment("a", 1))
    assert writer.state.segment("a").start_offset == 2
    writer.commit(TruncateSegment("a", 4))
    assert len(writer.state.segment("a").extents) == 1
    assert_equal(through_checkpoint(writer.state, 0), writer.state)
    writer.commit(TruncateSegment("a", 8))
    segment = writer.state.segment("a")
    assert (segment.start_offset, segment.length, len(segment.extents), segment.logged) == (8, 8, 0, 0)
    assert writer.commit(append("a", b"9")) == [8]
    assert writer.read("a", {}) == b"9"


def test_a_sealed_segment_can_be_truncated_deleted_and_sealed_again() -> None:
    writer = with_segments("a")
    writer.commit(append("a", b"12"), SealSegment("a"))
    writer.commit(SealSegment("a"))
    writer.commit(TruncateSegment("a", 1))
    writer.commit(DeleteSegment("a"))
    assert writer.state.segments.get("a") is None
    writer.commit(CreateSegment("a"))
    assert writer.state.segment("a").length == 0


def test_derived_content_sees_the_operations_before_it() -> None:
    writer = with_segments("a", "b")
    derived = Derived(20, lambda lookup: b"%d,%d" % (lookup("a").length, lookup("b").length))
    writer.commit(append("a", b"123"), Append("b", derived), append("a", b"45"), Append("b", derived))
    assert writer.read("b", {}) == b"3,05,3"


def test_derived_content_of_a_missing_segment_is_refused() -> None:
    writer = with_segments("a")
    with pytest.raises(SegmentNotFound):
        writer.commit(Append("a", Derived(1, lambda lookup: bytes([lookup("none").length]))))


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
    assert dict(writer.state.garbage) == {"shared": 1000 + len(writer.frames) - 1}
    writer.commit(Collected(("shared", "unknown")))
    assert not writer.state.garbage


def test_flushed_extents_replace_exactly_what_was_read() -> None:
    writer = with_segments("a")
    for data in (b"12", b"345", b"6"):
        writer.commit(append("a", data))
    chunk = Extent("chunk", 0, 5, b"")
    writer.commit(Flushed("a", 0, (chunk,)))
    segment = writer.state.segment("a")
    assert (segment.logged, segment.storage_length, writer.state.logged_bytes) == (1, 5, 1)
    assert writer.state.flushed == 4
    assert writer.read("a", {"chunk": b"12345"}) == b"123456"
    with pytest.raises(ExtentsChanged):  # somebody else flushed the same range a moment later
        writer.commit(Flushed("a", 0, (Extent("other", 0, 5, b""),)))
    assert "other" not in writer.state.chunks
    writer.commit(TruncateSegment("a", 2))
    with pytest.raises(ExtentsChanged):
        writer.commit(Flushed("a", 2, (Extent("other", 0, 4, b""),)))
    audit(writer.state)


def test_a_damaged_or_misplaced_checkpoint_is_told_from_a_good_one() -> None:
    writer = with_segments("a")
    writer.commit(append("a", b"data"), PutEntry("t", "k", b"v"))
    data = checkpoints.encode(7, Position(5, NOBODY, 1), writer.state)
    checkpoints.decode(data, "the/path", 7, 5)
    for container, address in ((6, 5), (7, 4)):
        with pytest.raises(DataCorruption, match="the/path"):
            checkpoints.decode(data, "the/path", container, address)
    for length in range(len(data)):
        with pytest.raises(DataCorruption, match="the/path"):
            checkpoints.decode(data[:length], "the/path", 7, 5)
    dice = random.Random(1)
    for bit in range(24 * 8, len(data) * 8):  # the token in front serves the storage port only, but is covered too
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DataCorruption, match="the/path"):
            checkpoints.decode(bytes(damaged), "the/path", 7, 5)
    for _ in range(200):
        token = bytearray(data)
        token[dice.randrange(24)] ^= 1 << dice.randrange(8)
        with pytest.raises(DataCorruption, match="the/path"):
            checkpoints.decode(bytes(token), "the/path", 7, 5)
