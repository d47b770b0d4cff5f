"""The form of operations and states in storage."""

import contextlib
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any, get_args

import immutables
import msgpack
import pytest
from hypothesis import given, settings, strategies as st

from chunkstore.metadata.serialization import FieldReader, read_revisions, with_version
from engine.errors import DataCorruption
from engine.logs import checkpoints
from engine.logs.frames import NOBODY, Position
from engine.state import operations
from engine.state.operations import (
    AbortCycle,
    ActivateSegment,
    Answer,
    AnswerSubmissions,
    Append,
    BeginCycle,
    CheckEntry,
    Checkpoint,
    CreateSegment,
    CreateTable,
    DeleteSegment,
    DeleteTable,
    DequeueGarbage,
    DiscardChunks,
    EndCycle,
    EvictSegments,
    ExpireSegments,
    LoadAttributes,
    LoggedTransaction,
    MergeSegment,
    OperationResult,
    PutEntry,
    QueueGarbage,
    RecordDeletion,
    RecordFlush,
    RecordStoredBounds,
    RecordTableFlush,
    SaveSegments,
    SealSegment,
    SpillAttributes,
    StartSegment,
    TableFlush,
    TruncateSegment,
    UpdateAttributes,
    decode_transactions,
    encode_transactions,
)
from engine.state.segment_map import SegmentMap
from engine.state.segment_record import decode_segment, encode_segment
from engine.state.segments import CREATION_TIME, EVENT_COUNT, MAX_VALUE, Extent, FrameRef
from engine.state.state import GarbageEntry, State
from engine.state.tables import Entry, Table, is_created
from engine.tables.btree import TreeRoot
from engine.tables.content import TableLayout
from tests.engine.state.writer import (
    HEADER,
    W,
    append,
    assert_equal,
    cycles,
    events,
    extents_from,
    ids,
    in_chunks,
    merges,
    names,
    numbers,
    others,
    segments,
    set_w,
    stored,
    through_checkpoint,
    tuples,
    updates,
    values,
    with_segments,
)

# --- garbage ---------------------------------------------------------------------------------------------------------


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


# --- the form of operations and states in storage --------------------------------------------------------------------

OWN = FrameRef(77, HEADER)
anywhere = stored | in_chunks | st.builds(Extent, st.just(OWN) | others, numbers, numbers, st.binary(max_size=8))
roots = st.none() | st.builds(TreeRoot, numbers, numbers)
layouts = st.tuples(numbers, numbers, numbers, numbers, roots, numbers, numbers, numbers)
placements = (tuples(in_chunks), tuples(in_chunks), merges, merges, st.booleans())
flushed_tables = st.builds(TableFlush, names, numbers, layouts, *placements)
results = st.builds(OperationResult, st.none() | numbers, st.none() | tuples(names))
nonces = st.binary(min_size=8, max_size=8)
answers = st.builds(Answer, ids, numbers, nonces, numbers, st.none() | tuples(results))
OPERATIONS: dict[type, st.SearchStrategy] = {
    Append: st.builds(Append, names, tuples(anywhere), st.none() | numbers, updates, numbers),
    SealSegment: st.builds(SealSegment, names),
    MergeSegment: st.builds(MergeSegment, names, names, tuples(anywhere)),
    CreateSegment: st.builds(CreateSegment, names, updates, names),
    PutEntry: st.builds(PutEntry, names, names, st.none() | st.binary(max_size=5), st.none() | st.integers(-1, 9)),
    CheckEntry: st.builds(CheckEntry, names, names, st.integers(-1, MAX_VALUE)),
    UpdateAttributes: st.builds(UpdateAttributes, names, updates),
    TruncateSegment: st.builds(TruncateSegment, names, numbers),
    StartSegment: st.builds(StartSegment, names, numbers),
    Checkpoint: st.builds(Checkpoint),
    RecordFlush: st.builds(RecordFlush, numbers, names, names, numbers, numbers, tuples(names)),
    DeleteSegment: st.builds(DeleteSegment, names),
    DequeueGarbage: st.builds(DequeueGarbage, tuples(names)),
    AnswerSubmissions: st.builds(AnswerSubmissions, tuples(answers)),
    DiscardChunks: st.builds(DiscardChunks, tuples(names), numbers),
    ActivateSegment: st.builds(ActivateSegment, names, st.binary(max_size=5), numbers),
    EvictSegments: st.builds(EvictSegments, tuples(names)),
    SaveSegments: st.builds(SaveSegments, numbers, numbers, tuples(st.tuples(names, numbers, st.binary(max_size=5)))),
    SpillAttributes: st.builds(SpillAttributes, names),
    LoadAttributes: st.builds(LoadAttributes, names, tuples(st.tuples(ids, values))),
    BeginCycle: st.builds(BeginCycle, numbers),
    EndCycle: st.builds(EndCycle, numbers),
    AbortCycle: st.builds(AbortCycle, numbers, st.text(max_size=20)),
    RecordStoredBounds: st.builds(RecordStoredBounds, numbers, names, names, numbers, st.booleans()),
    RecordDeletion: st.builds(RecordDeletion, numbers, tuples(names)),
    RecordTableFlush: st.builds(RecordTableFlush, numbers, tuples(flushed_tables)),
    ExpireSegments: st.builds(ExpireSegments, tuples(names), numbers),
    CreateTable: st.builds(CreateTable, names, numbers),
    DeleteTable: st.builds(DeleteTable, names),
    QueueGarbage: st.builds(QueueGarbage, tuples(st.tuples(names, st.sampled_from([1, 2, 3, 4, 16]), names))),
}


def test_every_operation_is_tried_below() -> None:
    assert set(OPERATIONS) == set(get_args(operations.Operation))


@pytest.mark.parametrize("kind", OPERATIONS, ids=lambda kind: kind.__name__)
@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_operations_are_read_as_they_were_written(kind: type, data: st.DataObject) -> None:
    written = [LoggedTransaction(5, (data.draw(OPERATIONS[kind]), SealSegment("last"))), LoggedTransaction(6, ())]
    own = FrameRef(OWN.address, OWN.start)
    read = decode_transactions(encode_transactions(written, OWN), own)
    assert read == written
    for extent in found_extents(read[0].operations[0]):
        assert extent.source != own or extent.source is own, "one reference is shared by all extents of a frame"


def found_extents(value: object) -> Iterator[Extent]:
    """All extents in a value."""
    if isinstance(value, Extent):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from found_extents(item)


@st.composite
def tables_in_memory(draw: st.DrawFn) -> Table:
    entries = st.builds(Entry, st.none() | st.binary(max_size=5), numbers)
    return Table(
        immutables.Map(draw(st.dictionaries(names, entries, max_size=3))),
        *draw(st.tuples(numbers, st.integers(-1, 9), st.booleans())),
        TableLayout(*draw(layouts)),
        draw(extents_from(0, names)),
        draw(extents_from(0, names)),
    )


@st.composite
def any_states(draw: st.DrawFn) -> State:
    present = {name: draw(segments(name)) for name in draw(st.sets(names, max_size=3))}
    tables = draw(st.dictionaries(names, tables_in_memory(), max_size=3))
    spaces = [segment.extents for segment in present.values()]
    spaces += [space for table in tables.values() for space in (table.entries, table.pages)]
    garbage = st.builds(GarbageEntry, numbers, numbers, st.sampled_from([1, 2, 3, 4, 16]), names)
    return State(
        *draw(st.tuples(numbers, st.integers(-1, 9), st.integers(-1, 9))),
        sum(segment.logged for segment in present.values()),
        immutables.Map(dict.fromkeys(draw(st.sets(st.sampled_from(sorted(present)))) if present else (), True)),
        SegmentMap(dict(present)),
        immutables.Map(tables),
        immutables.Map(Counter(e.source for space in spaces for _, e in space if isinstance(e.source, str))),
        immutables.Map(draw(st.dictionaries(names, garbage, max_size=3))),
        immutables.Map(dict.fromkeys(draw(st.sets(names, max_size=3)), True)),
        draw(cycles),
        immutables.Map(draw(st.dictionaries(names, names, max_size=3))),
        *draw(st.tuples(numbers, numbers)),
        sum(table.unflushed() for name, table in tables.items() if is_created(name, table)),
    )


@settings(deadline=None, max_examples=60)
@given(state=any_states(), address=numbers)
def test_a_state_comes_out_of_a_checkpoint_as_it_went_in(state: State, address: int) -> None:
    again = through_checkpoint(state, address)
    assert_equal(again, state)
    assert_equal(through_checkpoint(again, address), state)


# --- what is written can be read back (W14) --------------------------------------------------------------------------

ODD = (None, True, 0.0, 3.5, -7, 1 << 63, 1 << 64, "text", "\ud800", b"bytes", (), {"x": 1}, ..., {1: 1}, ["a"])


def kept(value: Any, read: Any) -> bool:
    """Whether a value that was read is what was written, and not only equal to it."""
    return bool(read == value) and type(read) is type(value)


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_a_state_with_an_odd_value_is_refused_or_comes_out_of_a_checkpoint(odd: Any) -> None:
    writer = with_segments("a", "b")
    writer.commit(append("a", b"data"), PutEntry("t", "k", b"v"), DiscardChunks(("chunk",)))
    state, head = writer.state, Position(5, NOBODY, 1)
    cycles_ = [state._replace(cycle=state.cycle._replace(**{field: odd})) for field in state.cycle._fields]
    broken = [state._replace(**{field: odd}) for field in state._fields]
    table, garbage = state.tables["t"], state.garbage["chunk"]
    broken += cycles_
    broken += [state._replace(tables=state.tables.set("t", table._replace(**{f: odd}))) for f in table._fields]
    broken += [
        state._replace(garbage=state.garbage.set("chunk", garbage._replace(**{f: odd}))) for f in garbage._fields
    ]
    broken += [
        state._replace(chunks=state.chunks.set("chunk", odd)),
        state._replace(garbage=state.garbage.set("c", odd)),
    ]
    for segment in (state.segments["a"]._replace(**{field: odd}) for field in state.segments["a"]._fields):
        broken.append(state._replace(segments=SegmentMap({"a": segment})))
    for each in broken:
        try:
            data = checkpoints.encode(7, head, each)
        except (DataCorruption, AttributeError, UnicodeEncodeError):
            continue
        again = checkpoints.decode(data, "path", 7, 5).state
        list(again.segments.values())
        for field in ("sequence", "checkpoint", "flushed", "logged_bytes", "cycle", "min_attach_time", "extents"):
            assert kept(getattr(each, field), getattr(again, field)), field
    for position in (head._replace(epoch=odd), head._replace(writer=odd)):
        with contextlib.suppress(DataCorruption):
            assert checkpoints.decode(checkpoints.encode(7, position, state), "path", 7, 5).head == position


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_a_segment_with_an_odd_value_is_refused_or_read_back(odd: Any) -> None:
    writer = with_segments("a")
    writer.commit(append("a", b"data"))
    segment = writer.state.segments["a"]
    for field in segment._fields:
        if field in ("logged", "extents", "touched", "saved"):  # the state's own
            continue
        try:
            data = encode_segment(segment._replace(**{field: odd}))
        except (ValueError, TypeError, AttributeError):
            continue
        found = decode_segment(data, 7, "a")
        assert kept(odd, getattr(found, field)) or isinstance(odd, dict), (field, odd)


# --- the entry of a segment in the metadata table --------------------------------------------------------------------


def test_the_entry_of_a_segment_begins_with_what_pravega_has_of_it() -> None:
    writer = with_segments("other", "a")
    writer.commit(append("a", b"data", None, set_w(4), events(2)), TruncateSegment("a", 1), SealSegment("a"))
    segment = writer.state.segments["a"]
    data = encode_segment(segment)
    _, revisions = read_revisions(FieldReader(data))
    first, second = revisions[0], msgpack.unpackb(revisions[1].take(revisions[1].rest))
    properties = (first.long(), first.name(), first.long(), first.long(), first.boolean())
    assert properties == (segment.id, "a", 4, 1, True)
    core = [(first.take(16), first.long()) for _ in range(first.count(24))]
    assert core == [(CREATION_TIME, 1000), (EVENT_COUNT, 2)] and not first.rest
    assert {W: 4} in second, "the other attributes are in the second revision"
    assert decode_segment(data, 7, "a").attributes == segment.attributes


def test_a_damaged_entry_of_a_segment_is_reported() -> None:
    data = encode_segment(with_segments("a").state.segments["a"])
    for length in range(len(data)):
        with pytest.raises(DataCorruption, match=r"^segment 'a': its entry in the metadata table.*Restore it from a b"):
            decode_segment(data[:length], 7, "a")


def test_an_entry_of_a_segment_in_a_later_format_is_not_understood() -> None:
    data = encode_segment(with_segments("a").state.segments["a"])
    _, revisions = read_revisions(FieldReader(data))
    first, second = (revisions[number].take(revisions[number].rest) for number in (0, 1))
    assert decode_segment(with_version(0, first, second), 7, "a").name == "a"
    number, *rest = msgpack.unpackb(second)
    later = msgpack.packb([number + 1, *rest])
    for newer, found in ((with_version(1, first, second), "version 1"), (with_version(0, first, later), "format 2")):
        with pytest.raises(DataCorruption, match=f": it has {found}; .*It is undamaged: upgrade"):
            decode_segment(newer, 7, "a")
