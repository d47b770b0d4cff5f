"""The state of a container is a pure function of its log (W5), and a checkpoint of it is all of it (W6)."""

import pickle
import random
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import nullcontext
from typing import NamedTuple, get_args

import immutables
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chunkstore.garbage import GarbageKind
from chunkstore.testing import SimulatedStore
from engine import backups, checkpoints, operations
from engine import tables as limits
from engine.btree import Root
from engine.cache import Cache
from engine.chunks import write_chunk
from engine.errors import (
    BadAttributeUpdate,
    BadKeyVersion,
    BadOffset,
    ChunksGivenUp,
    DataCorruption,
    FlushOvertaken,
    Rejected,
    SegmentExists,
    SegmentNotFound,
    SegmentNotSealed,
    SegmentSealed,
    Unresolved,
)
from engine.frames import NOBODY, Position
from engine.layout import Layout
from engine.operations import (
    Append,
    AttributeUpdate,
    BeginCycle,
    CheckEntry,
    Checkpoint,
    Collected,
    CreateSegment,
    DeleteSegment,
    Derived,
    Discard,
    EndCycle,
    EvictSegments,
    ExpireSegments,
    Flushed,
    FlushedTable,
    Forgotten,
    LoadAttributes,
    MapSegment,
    MergeSegment,
    Operation,
    Payload,
    PutEntry,
    QueueGarbage,
    SaveSegments,
    SealSegment,
    SpillAttributes,
    Stored,
    TablesFlushed,
    Transaction,
    TruncateSegment,
    UpdateAttributes,
    UpdateKind,
    decode_transactions,
    encode_transactions,
)
from engine.pending import load_of
from engine.reads import Stores
from engine.segment_map import SegmentMap
from engine.segment_records import decode_segment, encode_segment
from engine.segments import (
    CREATION_TIME,
    EVENT_COUNT,
    MAX_VALUE,
    NULL_VALUE,
    Extent,
    Extents,
    FrameRef,
    Segment,
    StoredRef,
    is_core,
    storage_name,
)
from engine.state import ATTRIBUTES_GARBAGE, EMPTY, Change, Cycle, Garbage, State, layout_of
from engine.storage_writer import Run, runs
from engine.table_content import TableEntry, empty
from engine.table_writer import Dirty
from engine.tables import ATTRIBUTES, METADATA, METADATA_TABLES, STORAGE, Entry, Known, Table, attribute_key
from engine.testing.model import Content, Contents, Model
from engine.testing.simulation import audit, small_sizes
from engine.testing.transactions import chunk_writer, transactions
from engine.tier_two import TierTwo

HEADER = 100  # where a frame's payload begins, in these tests
W = bytes(15) + b"w"
X = bytes(15) + b"x"

KnownEntries = Mapping[tuple[str, str], Known]


class Backup(NamedTuple):
    """What is left of a container if its log is gone: a state, what is in it, and what tier 2 holds of segments."""

    state: State
    contents: Contents
    stored: dict[str, tuple[int, bytes]]


class Writer:
    """Applies transactions to a state as the processor does, one frame each, and keeps the frames.

    `store` has the chunks. `stored`: what tier 2 holds of segments, by their names there, and where that begins.
    `backup`: that of the last complete cycle.
    """

    def __init__(self, store: SimulatedStore | None = None) -> None:
        self.state = EMPTY
        self.states = [EMPTY]
        self.frames: list[bytes] = []
        self.payloads: list[bytes] = []
        self.store = store or SimulatedStore()
        self.stored: dict[str, tuple[int, bytes]] = {}
        self.backup: Backup | None = None
        self.tier_two = TierTwo(Stores(self.store, self.store), 0, Cache(0))

    def commit(self, *transaction: Operation) -> list[object]:
        """Apply operations; what they depend on in tier 2 is looked up, and brought into memory, first."""
        known: dict[tuple[str, str], Known] = {}
        loads: dict[tuple[str, str], Operation] = {}
        while True:
            try:
                return self.judge(*loads.values(), *transaction, known=known)[len(loads) :]
            except Unresolved as error:
                table = self.state.tables[error.table]
                for key, entry in self.tier_two.entries(self.state, error.table, error.keys).items():
                    assert (error.table, key) not in known, "what was looked up is not believed"
                    known[error.table, key] = Known(table.layout.root, entry)
                    load = load_of(error.table, key, entry, error.segment)
                    if load is not None:
                        loads[error.table, key] = load

    def judge(self, *transaction: Operation, known: KnownEntries | None = None) -> list[object]:
        """Apply operations by what is in memory and what is `known` of tier 2, or raise Unresolved."""
        address, time = len(self.frames), 1000 + len(self.frames)
        layout, change = Layout(address), Change(self.state, time, address, known or {})
        bound, results = [], []
        for operation in transaction:
            bound.append(layout.bind(operation, change.segment))
            results.append(change.apply(bound[-1]))
        layout.frame.start = HEADER
        self.frames.append(encode_transactions([Transaction(time, tuple(bound))], layout.frame))
        self.payloads.append(b"".join(layout.buffers))
        self.state = change.state()
        self.states.append(self.state)
        return results

    # --- what can be seen

    def read(self, name: str) -> bytes:
        return self.read_segment(self.state.segment(name))

    def read_segment(self, segment: Segment) -> bytes:
        """All that can be read of a segment."""
        data, begin = b"", segment.storage_length
        for offset, extent in segment.extents:
            begin = min(begin, offset)
            data += self.read_extent(extent)
        data = data[segment.storage_length - begin :]
        if segment.storage and segment.start_offset < segment.storage_length:
            first, stored = self.stored[segment.storage]
            assert first <= segment.start_offset and segment.storage_length <= first + len(stored)
            data = stored[segment.start_offset - first : segment.storage_length - first] + data
        return data

    def read_extent(self, extent: Extent) -> bytes:
        if isinstance(extent.source, StoredRef):
            first, whole = self.stored[extent.source.storage]
            assert first == 0 and extent.length == len(whole)
        elif isinstance(extent.source, FrameRef):
            assert extent.source.start == HEADER
            whole = self.payloads[extent.source.address]
        else:
            whole = self.store.read(extent.source)
        return whole[extent.position : extent.position + extent.length]

    def entry(self, table: str, key: str) -> Entry | None:
        return self.tier_two.entries(self.state, table, [key])[key]

    def contents(self, state: State) -> Contents:
        """All segments, active or not, and tables."""
        segments = dict(state.segments)
        for name, entry in self.tier_two.scan(state, METADATA):
            assert entry.value is not None
            segments.setdefault(name, decode_segment(entry.value, entry.version))
        tables = {
            table: {key: entry.value for key, entry in self.tier_two.scan(state, table) if entry.value is not None}
            for table in state.tables
            if table not in METADATA_TABLES
        }
        return (
            {name: self._content(state, segment) for name, segment in segments.items()},
            {table: entries for table, entries in tables.items() if entries},
        )

    def _content(self, state: State, segment: Segment) -> Content:
        start, length, sealed = segment.start_offset, segment.length, segment.sealed
        attributes = self.attributes(state, segment)
        del attributes[CREATION_TIME]
        return Content(start, length, sealed, attributes, self.read_segment(segment))

    def attributes(self, state: State, segment: Segment) -> dict[bytes, int]:
        prefix = attribute_key(segment.id, b"")
        spilled = self.tier_two.scan(state, ATTRIBUTES, prefix) if segment.spilled else ()
        return {
            bytes.fromhex(key[len(prefix) :]): int.from_bytes(entry.value or b"", "big", signed=True)
            for key, entry in spilled
        } | dict(segment.attributes)

    # --- flush cycles, step by step; what is done between two steps is for the caller to choose

    def flush(self, evict: bool = False) -> None:
        """Run a whole flush cycle; with `evict`, no segment is active after it."""
        for _ in self.cycle():
            pass
        if evict:
            self.commit(EvictSegments(tuple(sorted(self.state.segments))))

    def cycle(self, merged: int = 0) -> Iterator[str]:
        """Run a flush cycle. Raises FlushOvertaken or SegmentNotFound if something in the way was done meanwhile.

        merged: how many of each table's extents are merged into one.
        """
        number = self.state.cycle.number + 1
        self.commit(*map(SpillAttributes, filter(self._may_spill, self.state.unsaved)), BeginCycle(number))
        begun, contents = self.state, self.contents(self.state)
        yield "begun"
        storages: dict[str, str] = {}
        for segment in list(begun.logged()):
            for run in runs(segment, begun):
                storages[segment.name] = self.flush_run(number, segment, run)
                yield "flushed"
            for run in runs(segment, begun):
                self.stored.pop(run.joined, None)
        marked: set[str] = set()
        for name in begun.unsaved:
            storage = storages.get(name, begun.segments[name].storage)
            if storage and self.mark(number, begun.segments[name], storage):
                marked.add(name)
                yield "marked"
        self.commit(Forgotten(number, tuple(begun.dropped)))
        for storage in begun.dropped:
            del self.stored[storage]
        yield "forgotten"
        early = {table: Dirty.of(begun, table) for table in begun.tables if table not in (STORAGE, METADATA)}
        self.commit(TablesFlushed(number, self.flushed_tables(early, merged)))
        yield "tables"
        records = self.records(begun, storages, marked)
        self.commit(SaveSegments(number, begun.sequence, records))
        yield "saved"
        late = {METADATA: Dirty.of(begun, METADATA).plus({name: record for name, _, record in records})}
        self.commit(TablesFlushed(number, self.flushed_tables(late, merged)))
        backup = Backup(backups.pruned(self.state, begun), contents, dict(self.stored))
        yield "metadata"
        self.commit(EndCycle(number))
        self.backup = backup
        assert self.contents(backup.state) == contents, "tier 2 alone is not what the container was (F3)"
        yield "ended"

    def _may_spill(self, name: str) -> bool:
        return any(not is_core(attribute) for attribute in self.state.segments[name].attributes)

    def flush_run(self, cycle: int, segment: Segment, run: Run) -> str:
        """Bring a run of a segment to tier 2. Returns what it is called there."""
        storage = segment.storage or storage_name(segment.name, segment.id, segment.storage_length)
        moved = tuple(chunk.name for chunk in run.attached) or ((run.joined,) if run.joined else ())
        # First, because a cycle that is over finds no more what another one has taken since.
        self.commit(Flushed(cycle, segment.name, storage, run.offset, run.end, moved))
        data = self.read_segment(segment)[run.offset - segment.start_offset : run.end - segment.start_offset]
        first, before = self.stored.get(storage, (run.offset, b""))
        assert first + len(before) == run.offset
        self.stored[storage] = (first, before + data)
        return storage

    def mark(self, cycle: int, segment: Segment, storage: str) -> bool:
        """Let tier 2 know of truncation and sealing, unless there is nothing new or the segment is another now."""
        start, sealed = segment.start_offset, segment.sealed
        if start <= segment.stored_start and sealed <= segment.stored_sealed:
            return False
        try:
            self.commit(Stored(cycle, segment.name, storage, start, sealed))
        except (FlushOvertaken, SegmentNotFound):
            if self.state.cycle.number != cycle:
                raise
            return False
        first, data = self.stored[storage]
        self.stored[storage] = (max(first, start), data[max(start - first, 0) :])
        return True

    def flushed_tables(self, tables: Mapping[str, Dirty], merged: int = 0) -> tuple[FlushedTable, ...]:
        """Bring entries of tables to tier 2, and merge so many of the extents that these lie in already."""
        flushed = []
        for name, (entries, upto) in tables.items():
            if not entries:
                continue
            table = self.state.tables[name]
            flush = self.tier_two.content(name, table).flush(
                [TableEntry(key.encode(), entry.value, entry.version) for key, entry in entries.items()]
            )
            spaces = [self._merged(table.entries, merged), self._merged(table.pages, merged)]
            parts = [flush.entries, flush.pages, *(data for _, data in spaces)]
            chunk = f"_system/tables/{uuid.uuid4()}"
            extents = iter(write_chunk(self.store, chunk, [[part] for part in parts]))
            placed = [(next(extents),) if part else () for part in parts]
            merges = [(at, extent) for (at, _), extent in zip(spaces, placed[2:], strict=True)]
            keep = table.size <= limits.RESIDENT_BYTES
            flushed.append(FlushedTable(name, upto, tuple(flush.layout), placed[0], placed[1], *merges, keep))
        return tuple(flushed)

    def _merged(self, extents: Extents, count: int) -> tuple[int, bytes]:
        last = list(extents)[-count:] if count else []
        return (last[0][0], b"".join(self.read_extent(extent) for _, extent in last)) if last else (0, b"")

    def records(
        self, begun: State, storages: Mapping[str, str], marked: Collection[str] = ()
    ) -> tuple[tuple[str, int, bytes], ...]:
        """Unsaved segments for the metadata table, as they were, with what tier 2 knows of them by this cycle."""
        records = []
        for name in begun.unsaved:
            then = begun.segments[name]
            record = then._replace(storage=storages.get(name, then.storage), storage_length=then.length)
            if name in marked:
                record = record._replace(stored_start=then.start_offset, stored_sealed=then.sealed)
            records.append((name, then.id, encode_segment(record)))
        return tuple(records)

    # --- when the log is gone

    def recovered(self) -> "Writer":
        """The container that begins anew with the backup of the last complete cycle. It shares nothing that changes."""
        assert self.backup is not None
        other = Writer(self.store)
        other.state, other.stored = self.backup.state, dict(self.backup.stored)
        other.states = [other.state]
        return other

    def collect_attributes(self) -> None:
        """Remove what is garbage in the table of attributes."""
        for prefix, garbage in self.state.garbage.items():
            if garbage.kind == ATTRIBUTES_GARBAGE:
                keys = [key for key, _ in self.tier_two.scan(self.state, ATTRIBUTES, prefix)]
                self.commit(*(PutEntry(ATTRIBUTES, key, None) for key in keys), Collected((prefix,)))


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


@settings(deadline=None, max_examples=50)
@given(data=st.data())
def test_any_history_fits_the_model_and_replays_to_the_same_state_from_any_checkpoint(data: st.DataObject) -> None:
    """Flush cycles go on, or are given up, between any two transactions."""
    with small_sizes():
        model, writer = Model(), Writer()
        write, cycle = chunk_writer(model, writer.store), Cycling(writer)
        for _ in range(data.draw(st.integers(1, 20))):
            match data.draw(st.sampled_from(("commit", "commit", "step", "begin", "flush", "other"))):
                case "commit":
                    for _ in range(data.draw(st.integers(1, 3))):
                        commit(writer, model, data.draw(transactions(model, write, 40)))
                case "step":
                    cycle.step(data.draw(st.integers(1, 12)))
                case "begin":
                    cycle.begin(data.draw(st.integers(0, 3)))
                case "flush":
                    writer.flush(data.draw(st.booleans()))
                case "other":
                    writer.commit(*upkeep(data, writer))
            audit(writer.state)
            assert writer.contents(writer.state) == model.contents()
        if writer.backup is not None:
            assert_recovered(writer, writer.backup.contents)
        for address, state in enumerate(writer.states):
            again = through_checkpoint(state, address)
            assert_equal(again, state)
            after = writer.states[min(address + 1, len(writer.frames))]
            assert_equal(replayed(again, writer.frames[: address + 1], address), after)
        for start in (0, data.draw(st.integers(0, len(writer.frames)))):
            assert_equal(replayed(through_checkpoint(writer.states[start], start), writer.frames, start), writer.state)


def assert_recovered(writer: Writer, contents: Contents) -> None:
    """If the log is gone, these are the contents, and they stay when life goes on (F3)."""
    other = writer.recovered()
    audit(other.state)
    assert other.contents(other.state) == contents
    other.collect_attributes()
    other.flush(evict=True)
    assert other.contents(other.state) == contents


class Cycling:
    """A flush cycle that goes on between other operations, until something is in its way."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._steps: Iterator[str] = iter(())

    def begin(self, merged: int) -> None:
        """Begin another one; the one before is given up where it is."""
        self._steps = self._writer.cycle(merged)
        self.step(1)

    def step(self, count: int) -> None:
        """Go on by some steps."""
        try:
            for _ in range(count):
                next(self._steps, None)
        except (FlushOvertaken, SegmentNotFound):
            self._steps = iter(())


def commit(writer: Writer, model: Model, drawn: list[Operation]) -> None:
    """Give both the same transaction: the same becomes of it."""
    before = writer.state
    try:
        expected = model.commit(drawn)
    except Rejected as error:
        with pytest.raises(type(error)):
            writer.commit(*drawn)
        assert writer.state is before
        return
    for result, wanted in zip(writer.commit(*drawn), expected, strict=True):
        assert wanted is None or result == wanted
    model.adopt(writer)  # type: ignore[arg-type]


def upkeep(data: st.DataObject, writer: Writer) -> list[Operation]:
    """What else a container puts into the log by itself."""
    names = sorted(writer.state.segments)
    chosen: list[Operation] = [Checkpoint()] if data.draw(st.booleans()) else []
    if data.draw(st.booleans()):
        chosen.append(Collected(tuple(sorted(writer.state.garbage))))
    if data.draw(st.booleans()):
        chosen.append(EvictSegments(tuple(names)))
    elif names and data.draw(st.booleans()):
        chosen.append(SpillAttributes(data.draw(st.sampled_from(names))))
    return chosen


@settings(deadline=None, max_examples=60)
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


@settings(deadline=None, max_examples=60)
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


def set_w(value: int, kind: UpdateKind = UpdateKind.REPLACE, comparison: int = 0) -> AttributeUpdate:
    return AttributeUpdate(W, kind, value, comparison)


def events(count: int) -> AttributeUpdate:
    return AttributeUpdate(EVENT_COUNT, UpdateKind.ACCUMULATE, count)


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
        (DeleteSegment("none"), SegmentNotFound),
        (UpdateAttributes("none", ()), SegmentNotFound),
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
        (Flushed(2, "none", "none.0", 0, 1), SegmentNotFound),
        (Flushed(2, "a", "a.0", 1, 3), FlushOvertaken),
        (Flushed(2, "a", "a.0", 0, 8), FlushOvertaken),
        (Flushed(2, "stored", "other", 2, 3), FlushOvertaken),
        (Flushed(2, "stored", "stored.6", 0, 2), FlushOvertaken),
        (Stored(2, "none", "none.0", 0, False), SegmentNotFound),
        (Stored(2, "a", "a.0", 0, True), FlushOvertaken),
        (Stored(2, "stored", "other", 0, True), FlushOvertaken),
        (TablesFlushed(2, (FlushedTable("t", 0, tuple(empty()), (), (), (0, CHUNK)),)), FlushOvertaken),
        (TablesFlushed(2, (FlushedTable("t", 0, tuple(empty()), (), (), (0, ()), (0, CHUNK)),)), FlushOvertaken),
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
    writer.commit(Flushed(1, "stored", "stored.6", 0, 2), EndCycle(1), BeginCycle(2))
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
    assert writer.read("b") == b"3,05,3"


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
    assert dict(writer.state.garbage) == {
        "shared": Garbage(1000 + len(writer.frames) - 1, writer.state.sequence, GarbageKind.CHUNK, "")
    }
    writer.commit(Collected(("shared", "unknown")))
    assert not writer.state.garbage


def test_what_was_flushed_is_not_the_logs_any_more() -> None:
    writer = with_segments("a")
    for data in (b"12", b"345", b"6"):
        writer.commit(append("a", data))
    writer.commit(BeginCycle(1))
    assert writer.state.flushed == 4
    before = writer.state.segment("a")
    writer.flush_run(1, before, Run(0, 5))
    segment = writer.state.segment("a")
    assert (segment.logged, segment.storage_length, segment.storage) == (1, 5, "a.1")
    assert (writer.state.logged_bytes, list(writer.state.logged())) == (1, [segment])
    assert (segment.touched, segment.modified) == (before.touched, before.modified), "flushing is no change of it"
    assert writer.stored == {"a.1": (0, b"12345")}
    assert writer.read("a") == b"123456"
    with pytest.raises(FlushOvertaken):  # somebody else flushed the same range a moment later
        writer.commit(Flushed(1, "a", "a.1", 0, 5))
    writer.commit(TruncateSegment("a", 2))
    with pytest.raises(FlushOvertaken):
        writer.commit(Flushed(1, "a", "a.1", 2, 6))
    writer.commit(Flushed(1, "a", "a.1", 5, 6))
    assert (writer.state.logged_bytes, list(writer.state.logged())) == (0, [])
    audit(writer.state)


def test_a_flush_may_end_within_an_extent() -> None:
    writer = with_segments("a")
    writer.commit(append("a", b"1234"), append("a", b"5678"), BeginCycle(1))
    writer.flush_run(1, writer.state.segment("a"), Run(0, 6))
    assert writer.state.segment("a").logged == 4, "the frame is needed still"
    assert writer.read("a") == b"12345678"
    audit(writer.state)
    writer.flush_run(1, writer.state.segment("a"), Run(6, 8))
    assert (writer.state.logged_bytes, writer.stored["a.1"]) == (0, (0, b"12345678"))


def test_an_attached_chunk_that_tier_two_took_over_is_no_garbage() -> None:
    writer = with_segments("a", "b")
    for chunk, names in (("whole", "a"), ("shared", "ab")):
        extents = write_chunk(writer.store, chunk, [[b"12"] for _ in names])
        writer.commit(*(Append(name, (extent,)) for name, extent in zip(names, extents, strict=True)))
    writer.flush()
    assert set(writer.state.garbage) == {"shared"}, "which was copied"
    assert not {"whole", "shared"} & set(writer.state.chunks)
    assert writer.stored == {"a.1": (0, b"1212"), "b.2": (0, b"12")}


@pytest.mark.parametrize("over", [(EndCycle(1),), (BeginCycle(2),), (EndCycle(1), BeginCycle(2))], ids=str)
@pytest.mark.parametrize(
    "operation",
    [
        EndCycle(1),
        BeginCycle(1),
        Flushed(1, "a", "a.1", 0, 2),
        Stored(1, "b", "b.2", 0, True),
        Forgotten(1, ("c.3",)),
        SaveSegments(1, 3, ()),
        TablesFlushed(1, ()),
    ],
    ids=str,
)
def test_a_cycle_that_is_over_does_nothing_more(over: tuple[Operation, ...], operation: Operation) -> None:
    writer = with_segments("a", "b", "c")
    writer.commit(append("a", b"12"), append("b", b"12"), append("c", b"12"), BeginCycle(1))
    writer.commit(Flushed(1, "b", "b.2", 0, 2), Flushed(1, "c", "c.3", 0, 2), DeleteSegment("c"))
    if operation != BeginCycle(1):
        Change(writer.state, 0, 0, {}).apply(operation)  # as long as it is not over
    writer.commit(*over)
    before = writer.state
    with pytest.raises(FlushOvertaken):
        writer.commit(operation)
    assert writer.state is before


def test_cycles_are_counted_and_the_last_complete_one_is_remembered() -> None:
    writer = with_segments("a")
    writer.commit(append("a", b"1"), BeginCycle(1))
    first = writer.state.cycle
    assert (first.number, first.sequence, first.time, first.complete, first.backup) == (1, 3, 1001, False, -1)
    writer.commit(EndCycle(1))
    assert writer.state.cycle == first._replace(complete=True, backup=3)
    writer.commit(append("a", b"2"), BeginCycle(2))
    assert (writer.state.cycle.complete, writer.state.cycle.backup) == (False, 3)
    writer.commit(BeginCycle(3), EndCycle(3))
    assert (writer.state.cycle.number, writer.state.cycle.backup) == (3, writer.state.sequence - 1)
    assert writer.state.flushed == len(writer.frames) - 1


def test_what_tier_two_knows_of_a_segment_is_noted() -> None:
    writer = with_segments("a")
    writer.commit(append("a", b"1234"), TruncateSegment("a", 2), SealSegment("a"), BeginCycle(1))
    writer.flush_run(1, writer.state.segment("a"), Run(2, 4))
    before = writer.state.segment("a")
    writer.commit(Stored(1, "a", "a.1.2", 2, True))
    segment = writer.state.segment("a")
    assert segment == before._replace(stored_start=2, stored_sealed=True)
    writer.commit(SaveSegments(1, writer.state.sequence, writer.records(writer.state, {})))
    writer.commit(EvictSegments(("a",)))
    writer.commit(TruncateSegment("a", 3))
    assert (writer.state.segment("a").stored_start, writer.state.segment("a").stored_sealed) == (2, True)


# --- what is truncated or deleted goes from tier 2 too ---------------------------------------------------------


def test_what_is_deleted_in_tier_two_is_dropped_until_it_is_forgotten() -> None:
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
    writer.commit(BeginCycle(2), Forgotten(2, ("a.1", "unknown")))
    assert dict(writer.state.dropped) == {"b.2": True}
    del writer.stored["a.1"]
    writer.flush()
    assert not writer.state.dropped
    assert writer.stored == {"b.2.5": (5, b"6"), "kept.4": (4, b"56")}


def test_a_name_in_tier_two_is_never_used_twice() -> None:
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
def test_truncation_of_all_that_is_in_tier_two_makes_a_new_segment_there(start: int) -> None:
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


# --- merges ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flushed", ["nothing", "source", "target", "both"])
@pytest.mark.parametrize("header", [b"", b"<header>"], ids=["plain", "header"])
def test_a_merge_moves_what_is_in_tier_two_as_a_whole(flushed: str, header: bytes) -> None:
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


def merged() -> Writer:
    """A segment with 4 bytes in tier 2, 2 in the log, 6 in tier 2 by the name of another segment, and 2 in the log."""
    writer = with_segments("a", "b")
    writer.commit(append("a", b"0123"), append("b", b"6789AB"))
    writer.flush()
    writer.commit(append("a", b"45"), append("b", b"CD"), SealSegment("b"), MergeSegment("a", "b"))
    return writer


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
    joined = [run.joined for run in runs(state.segment("a"), state) if run.joined]
    assert joined == (["b.2"] if start <= 6 else []), "a part of it has to be copied"
    writer.flush()
    assert writer.read("a") == data
    assert not writer.state.logged_bytes and not writer.state.segment("a").extents
    writer.flush()
    assert set(writer.stored) == {f"a.1.{start}" if start > 4 else "a.1"} - ({f"a.1.{start}"} if not data else set())
    assert not writer.state.dropped


def test_the_deletion_of_a_merged_segment_drops_all_that_tier_two_has_of_it() -> None:
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


# --- segments that are not active ------------------------------------------------------------------------------


@pytest.fixture(params=["resident", "large"])
def tables_of_size(request: pytest.FixtureRequest) -> Iterator[str]:
    """Whether tables are kept in memory whole."""
    if request.param == "resident":
        yield request.param
    else:
        with small_sizes():
            yield request.param


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
    Append("b", Derived(9, lambda lookup: b"%d" % lookup("a").length)),
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


def test_names_are_judged_by_what_tier_two_has(tables_of_size: str) -> None:
    """Without asking, if the table is in memory whole."""
    large, writer = tables_of_size == "large", idle()
    for name, error in (("a", SegmentExists), ("gone", None), ("new", None)):
        trial = Change(writer.state, 0, 0, {})
        with pytest.raises(Unresolved) if large else pytest.raises(error) if error else nullcontext():
            trial.apply(CreateSegment(name))
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
        known = writer.tier_two.look_up(writer.state, METADATA, ["new"])
        assert known == {(METADATA, "new"): Known(writer.state.tables[METADATA].layout.root, None)}
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
    known = writer.tier_two.look_up(writer.state, METADATA, ["a"]) if tables_of_size == "large" else {}
    writer.judge(MapSegment("a", entry.value, entry.version), known=known)
    now = writer.state.sequence
    spilled = {"spilled": True, "attributes": before.attributes}
    assert writer.state.segment("a") == before._replace(touched=now, saved=now, **spilled)
    assert "a" not in writer.state.unsaved
    again = writer.state.segment("a")
    writer.judge(MapSegment("a", b"whatever", 0), known=known)
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
    known = writer.tier_two.look_up(writer.state, METADATA, ["a", "b"]) if tables_of_size == "large" else {}
    for name in ("a", "b"):
        with pytest.raises(Unresolved) as error:
            writer.judge(MapSegment(name, stale.value, stale.version), known=known)
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
    storages = {name: writer.flush_run(1, begun.segments[name], Run(0, 2)) for name in begun.segments}
    records = writer.records(begun, storages)
    writer.commit(append("changed", b"34"), DeleteSegment("deleted"), DeleteSegment("other"), CreateSegment("other"))
    writer.commit(SealSegment("merged"), MergeSegment("changed", "merged"))
    writer.commit(SaveSegments(1, begun.sequence, records))
    saved = {name: entry.value for name, entry in writer.tier_two.scan(writer.state, METADATA)}
    assert saved == {name: record for name, _, record in records if name in ("same", "changed")}
    assert set(writer.state.unsaved) == {"changed", "other"}
    assert writer.state.segment("same").saved == writer.state.segment("changed").saved == begun.sequence
    assert writer.state.segment("other").saved == -1
    assert decode_segment(saved["changed"] or b"", 0).length == 2
    assert writer.read("changed") == b"123412"
    audit(writer.state)


def test_a_deleted_segment_leaves_the_metadata_table() -> None:
    writer = with_segments("saved", "merged", "never saved", "target")
    writer.commit(SealSegment("merged"))
    writer.flush()
    writer.commit(DeleteSegment("saved"), MergeSegment("target", "merged"))
    writer.commit(CreateSegment("late"), DeleteSegment("late"))
    assert {key for key, _ in writer.tier_two.scan(writer.state, METADATA)} == {"never saved", "target"}
    assert "late" not in writer.state.tables[METADATA].recent, "it never was there"


# --- what is done to a segment between its flush and the end of the cycle --------------------------------------


MEANWHILE: dict[str, tuple[Operation, ...]] = {
    "deleted": (DeleteSegment("a"),),
    "merged": (SealSegment("a"), MergeSegment("b", "a", Payload(b"header"))),
    "truncated": (TruncateSegment("a", 2),),
    "truncated beyond tier 2": (append("a", b"more"), TruncateSegment("a", 10)),
    "created anew": (DeleteSegment("a"), CreateSegment("a"), append("a", b"new")),
    "created anew and deleted": (DeleteSegment("a"), CreateSegment("a"), append("a", b"new"), DeleteSegment("a")),
}
STEPS = ("flushed", "marked", "forgotten", "tables", "saved", "metadata")


def changed_segments(saved: bool) -> Writer:
    """Segments of 8 bytes, of which tier 2 has 4 or, unless `saved`, nothing."""
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
    """The cycle brought `before` to tier 2, and the container holds `after`, which the next cycle brings there."""
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
    """Or truncated beyond what tier 2 has of it; not if less is truncated."""
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
        assert (writer.backup is not None) == saved and not writer.state.cycle.complete
        writer.flush()
    assert writer.contents(writer.state) == after


def test_a_backup_does_not_know_of_what_was_copied_but_that_it_is_to_go() -> None:
    """Else it would stay in tier 2 for ever."""
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


# --- attributes that do not fit into memory --------------------------------------------------------------------


def spilled() -> Writer:
    """A segment with two attributes in the table only, W = 4 and X = 5."""
    writer = with_segments("a")
    writer.commit(UpdateAttributes("a", (set_w(4), AttributeUpdate(X, UpdateKind.REPLACE, 5), events(1))))
    writer.flush()
    return writer


def in_table(writer: Writer) -> dict[bytes, int | None]:
    """What the table of attributes has of segment "a"."""
    prefix = attribute_key(writer.state.segment("a").id, b"")
    return {
        bytes.fromhex(key[len(prefix) :]): int.from_bytes(entry.value or b"", "big", signed=True)
        for key, entry in writer.tier_two.scan(writer.state, ATTRIBUTES, prefix)
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
        Change(writer.state, 0, 0, {}).apply(update)
    writer.commit(update)
    assert writer.attributes(writer.state, writer.state.segment("a")).items() >= {W: 4, X: 5, other: 1}.items()


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


def test_what_a_deleted_segment_left_in_the_table_of_attributes_is_garbage() -> None:
    writer = spilled()
    prefix = attribute_key(writer.state.segment("a").id, b"")
    writer.commit(CreateSegment("b"), UpdateAttributes("b", (set_w(1),)))
    writer.commit(SealSegment("a"), MergeSegment("b", "a"), DeleteSegment("b"))
    assert dict(writer.state.garbage) == {
        prefix: Garbage(1000 + len(writer.frames) - 1, writer.state.sequence - 1, ATTRIBUTES_GARBAGE, "a")
    }
    writer.commit(Collected((prefix,)))
    assert not writer.state.garbage


# --- tables ----------------------------------------------------------------------------------------------------


def test_versions_of_entries_are_judged_by_what_tier_two_has() -> None:
    with small_sizes():
        writer = Writer()
        (version,) = writer.commit(PutEntry("t", "k", b"v" * 50))
        writer.commit(PutEntry("t", "gone", b"v" * 50))
        writer.flush()
        writer.commit(PutEntry("t", "gone", None))
        writer.flush()
        assert writer.state.tables["t"].dropped and not writer.state.tables["t"].recent
        assert isinstance(version, int)
        checks: list[tuple[Callable[[int], Operation], str, int]] = [
            (lambda expected: PutEntry("t", "k", b"new", expected), "k", version),
            (lambda expected: PutEntry("t", "k", None, expected), "k", version),
            (lambda expected: CheckEntry("t", "k", expected), "k", version),
            (lambda expected: PutEntry("t", "gone", b"new", expected), "gone", -1),
            (lambda expected: CheckEntry("t", "none", expected), "none", -1),
        ]
        for make, key, right in checks:
            known = writer.tier_two.look_up(writer.state, "t", [key])
            for wrong in {-1, 0, version, version + 1} - {right}:
                with pytest.raises(BadKeyVersion) as error:
                    writer.commit(make(wrong))
                assert (error.value.expected, error.value.actual) == (wrong, right)
            with pytest.raises(Unresolved) as unresolved:
                writer.judge(make(right))
            assert (unresolved.value.table, unresolved.value.keys) == ("t", (key,))
            Change(writer.state, 0, 0, known).apply(make(right))
        writer.judge(PutEntry("t", "k", b"newer"))  # who has no condition need not ask
        with pytest.raises(BadKeyVersion):
            writer.judge(CheckEntry("t", "k", version))
        writer.judge(PutEntry("t", "k", None))
        writer.judge(CheckEntry("t", "k", -1))
        assert writer.entry("t", "k") is None


def test_a_transaction_sees_its_own_entries() -> None:
    writer = Writer()
    (first, _) = writer.commit(PutEntry("t", "k", b"1", -1), PutEntry("t", "k", None, 1))
    assert first == 1 and writer.entry("t", "k") is None
    with pytest.raises(BadKeyVersion):
        writer.commit(PutEntry("t", "k", b"1", -1), PutEntry("t", "k", b"2", -1))
    assert writer.entry("t", "k") is None


def test_what_is_put_or_removed_while_a_table_is_flushed_stays_so(tables_of_size: str) -> None:
    writer = Writer()
    writer.commit(*(PutEntry("t", key, b"old" * 20) for key in "abc"))
    cycle = writer.cycle()
    assert next(cycle) == "begun"
    writer.commit(PutEntry("t", "a", b"new"), PutEntry("t", "b", None), PutEntry("t", "d", b"new"))
    expected = {"a": b"new", "c": b"old" * 20, "d": b"new"}
    assert writer.contents(writer.state)[1] == {"t": expected}
    assert list(cycle)[-1] == "ended"
    assert writer.contents(writer.state)[1] == {"t": expected}
    assert {key for key, _ in writer.state.tables["t"].dirty(writer.state.sequence)} == {"a", "b", "d"}
    writer.flush()
    assert writer.contents(writer.state)[1] == {"t": expected}
    assert not writer.state.tables["t"].dirty(writer.state.sequence)
    audit(writer.state)


@pytest.mark.parametrize("merges", [0, 1, 2, 3])
def test_a_tables_extents_are_merged(merges: int, tables_of_size: str) -> None:
    writer = Writer()
    for number in range(3):
        writer.commit(PutEntry("t", f"k{number}", b"%d" % number * 30), PutEntry("t", "again", b"%d" % number))
        for _ in writer.cycle():
            pass
    before = writer.state.tables["t"]
    assert len(before.entries) == 3
    writer.commit(PutEntry("t", "k3", b"3"), BeginCycle(4))
    writer.commit(TablesFlushed(4, writer.flushed_tables({"t": Dirty.of(writer.state, "t")}, merges)))
    after = writer.state.tables["t"]
    assert len(after.entries) == 3 - max(merges - 1, 0) + 1
    replaced = {extent.source for _, extent in list(before.entries)[3 - merges :]}
    kept = {extent.source for _, extent in (*after.entries, *after.pages)}
    assert {name for name in writer.state.garbage if name in replaced} == replaced - kept
    assert len(replaced - kept) == merges
    expected = {f"k{number}": b"%d" % number * (30 if number < 3 else 1) for number in range(4)} | {"again": b"2"}
    assert writer.contents(writer.state)[1] == {"t": expected}
    audit(writer.state)
    assert_equal(through_checkpoint(writer.state, 0), writer.state)


def test_extents_that_are_not_those_that_were_merged_stay() -> None:
    writer = Writer()
    for number in range(2):
        writer.commit(PutEntry("t", f"k{number}", b"v"))
        writer.flush()
    writer.commit(PutEntry("t", "k2", b"v"), BeginCycle(3))
    (flushed,) = writer.flushed_tables({"t": Dirty.of(writer.state, "t")}, 2)
    at, (extent,) = flushed.merged_entries
    before = writer.state
    for merges in (
        {"merged_entries": (at + 1, (extent,))},
        {"merged_entries": (at, (extent._replace(length=extent.length - 1),))},
        {"merged_pages": (at, (extent._replace(length=extent.length + 1),))},
    ):
        with pytest.raises(FlushOvertaken, match="not those that were merged"):
            writer.commit(TablesFlushed(3, (flushed._replace(**merges),)))
        assert writer.state is before
    writer.commit(TablesFlushed(3, (flushed,)))


# --- garbage ---------------------------------------------------------------------------------------------------


def test_chunks_that_were_given_up_cannot_be_attached_and_those_that_were_attached_stay() -> None:
    writer = with_segments("a")
    writer.commit(Append("a", (Extent("attached", 0, 2, b""),)))
    writer.commit(Discard(("attached", "given up")))
    assert dict(writer.state.garbage) == {"given up": Garbage(1002, writer.state.sequence, GarbageKind.CHUNK, "")}
    for operation in (Append("a", (Extent("given up", 0, 2, b""),)), Append("a", (Extent("given up", 4, 1, b""),))):
        with pytest.raises(Rejected, match="'given up' was given up already"):
            writer.commit(operation)
    writer.commit(Append("a", (Extent("given up", 0, 0, b""),)))  # nothing of it
    assert dict(writer.state.chunks) == {"attached": 1}


def test_chunks_from_before_a_sweep_cannot_be_attached_even_when_their_names_are_forgotten() -> None:
    writer = with_segments("a", "b")
    named, given, late = (Extent(name, 0, 2, b"") for name in ("named", "given up", "late"))
    writer.commit(Append("a", (named,)))
    writer.commit(Discard(("given up",), 5000))
    writer.commit(Collected(("given up",)))
    assert not writer.state.garbage and writer.state.swept == 5000
    before = writer.state
    for made, told in ((4999, "were begun at 1970-01-01 00:00:04 UTC"), (0, "do not say when they were begun")):
        with pytest.raises(ChunksGivenUp, match=rf"its chunks {told}, and .* before 1970-01-01 00:00:05 UTC") as error:
            writer.commit(Append("b", (named, given), made=made))
        assert (error.value.segment, error.value.made, error.value.swept) == ("b", made, 5000)
        assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)
    assert writer.state is before
    writer.commit(Append("b", (named,)), Append("b", (late,), made=5000), Append("b", (Extent("none", 0, 0, b""),)))
    writer.commit(Append("b", (late, late)), append("b", b"bytes"))  # whatever is named may be attached again
    assert dict(writer.state.chunks) == {"named": 2, "late": 3}
    with pytest.raises(ChunksGivenUp):
        writer.commit(SealSegment("b"), MergeSegment("a", "b", (given,)))


def test_the_horizon_never_moves_back() -> None:
    writer = with_segments("a")
    writer.commit(Discard((), 5000))
    writer.commit(Discard(("another",), 4000), Discard(("aborted",)))
    assert writer.state.swept == 5000 and set(writer.state.garbage) == {"another", "aborted"}
    assert through_checkpoint(writer.state, 7).swept == 5000
    assert backups.pruned(writer.state, writer.states[1]).swept == 5000


def test_what_is_refused_first_is_told_first() -> None:
    """A replay is known as one, and an upload that was taken over as such, however old the chunks are."""
    writer = with_segments("a", "done")
    once = AttributeUpdate(W, UpdateKind.REPLACE_IF_GREATER, 1)
    writer.commit(UpdateAttributes("done", (once,)), Discard((), 5000))
    old = (Extent("old", 0, 2, b""),)
    with pytest.raises(BadAttributeUpdate):
        writer.commit(UpdateAttributes("done", (once,)), Append("a", old, made=1))
    with pytest.raises(BadAttributeUpdate):
        writer.commit(Append("done", old, None, (once,), 1))
    with pytest.raises(BadOffset):
        writer.commit(Append("a", old, 7, (), 1))
    with pytest.raises(ChunksGivenUp):
        writer.commit(UpdateAttributes("done", (once._replace(value=2),)), Append("a", old, made=1))
    assert writer.state.segment("done").attributes[W] == 1


def test_flush_cycles_need_not_say_when_their_objects_were_begun() -> None:
    writer = with_segments("a")
    writer.commit(PutEntry("t", "k", b"v"), Discard((), 1 << 60))
    writer.flush()
    assert writer.state.tables["t"].layout.entries == 1 and writer.entry("t", "k") is not None


@pytest.mark.parametrize("kind", list(GarbageKind))
def test_garbage_of_the_chunk_layer_is_queued_and_collected(kind: GarbageKind) -> None:
    writer = with_segments("a")
    writer.commit(QueueGarbage((("chunk", kind, "a.1"), ("other", kind, ""))))
    sequence = writer.state.sequence
    assert dict(writer.state.garbage) == {
        "chunk": Garbage(1001, sequence, kind, "a.1"),
        "other": Garbage(1001, sequence, kind, ""),
    }
    writer.commit(QueueGarbage((("chunk", GarbageKind.CHUNK, "b.0"),)))
    assert writer.state.garbage["chunk"] == Garbage(1002, sequence + 1, GarbageKind.CHUNK, "b.0")
    writer.commit(Collected(("chunk", "unknown")))
    assert set(writer.state.garbage) == {"other"}


def test_what_a_backup_may_need_is_told_from_older_garbage() -> None:
    """The backup is of the moment when its cycle began: what became garbage after that is in it (F2)."""
    writer = with_segments("a")
    writer.commit(QueueGarbage((("early", 1, ""),)))
    early = writer.state.garbage["early"]
    assert not writer.state.is_backed_up(early), "there is no backup"
    writer.commit(BeginCycle(1))
    writer.commit(QueueGarbage((("late", 1, ""),)))
    late = writer.state.garbage["late"]
    assert not writer.state.is_backed_up(late)
    writer.commit(EndCycle(1))
    assert writer.state.is_backed_up(late) and not writer.state.is_backed_up(early)
    writer.commit(BeginCycle(2))
    assert writer.state.is_backed_up(late), "the new cycle is not complete"
    writer.commit(EndCycle(2))
    assert not writer.state.is_backed_up(late)


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


# --- the form of operations and states in storage --------------------------------------------------------------


OWN = FrameRef(77, HEADER)
names = st.text(max_size=5)
numbers = st.integers(0, MAX_VALUE)
values = st.integers(NULL_VALUE, MAX_VALUE)
ids = st.binary(min_size=16, max_size=16)
others = numbers.map(lambda address: FrameRef(address, address % 1000))
stored = st.builds(Extent, st.builds(StoredRef, names), numbers, numbers, st.just(b""))
in_chunks = st.builds(Extent, names, numbers, numbers, st.binary(max_size=8))
anywhere = stored | in_chunks | st.builds(Extent, st.just(OWN) | others, numbers, numbers, st.binary(max_size=8))


def tuples(items: st.SearchStrategy) -> st.SearchStrategy:
    return st.lists(items, max_size=3).map(tuple)


updates = tuples(st.builds(AttributeUpdate, ids, st.sampled_from(UpdateKind), values, values))
roots = st.none() | st.builds(Root, numbers, numbers)
layouts = st.tuples(numbers, numbers, numbers, numbers, roots, numbers, numbers, numbers)
merges = st.tuples(numbers, tuples(in_chunks))
placements = (tuples(in_chunks), tuples(in_chunks), merges, merges, st.booleans())
flushed_tables = st.builds(FlushedTable, names, numbers, layouts, *placements)

OPERATIONS: dict[type, st.SearchStrategy] = {
    Append: st.builds(Append, names, tuples(anywhere), st.none() | numbers, updates, numbers),
    SealSegment: st.builds(SealSegment, names),
    MergeSegment: st.builds(MergeSegment, names, names, tuples(anywhere)),
    CreateSegment: st.builds(CreateSegment, names, updates, names),
    PutEntry: st.builds(PutEntry, names, names, st.none() | st.binary(max_size=5), st.none() | st.integers(-1, 9)),
    CheckEntry: st.builds(CheckEntry, names, names, st.integers(-1, MAX_VALUE)),
    UpdateAttributes: st.builds(UpdateAttributes, names, updates),
    TruncateSegment: st.builds(TruncateSegment, names, numbers),
    Checkpoint: st.builds(Checkpoint),
    Flushed: st.builds(Flushed, numbers, names, names, numbers, numbers, tuples(names)),
    DeleteSegment: st.builds(DeleteSegment, names),
    Collected: st.builds(Collected, tuples(names)),
    Discard: st.builds(Discard, tuples(names), numbers),
    MapSegment: st.builds(MapSegment, names, st.binary(max_size=5), numbers),
    EvictSegments: st.builds(EvictSegments, tuples(names)),
    SaveSegments: st.builds(SaveSegments, numbers, numbers, tuples(st.tuples(names, numbers, st.binary(max_size=5)))),
    SpillAttributes: st.builds(SpillAttributes, names),
    LoadAttributes: st.builds(LoadAttributes, names, tuples(st.tuples(ids, values))),
    BeginCycle: st.builds(BeginCycle, numbers),
    EndCycle: st.builds(EndCycle, numbers),
    Stored: st.builds(Stored, numbers, names, names, numbers, st.booleans()),
    Forgotten: st.builds(Forgotten, numbers, tuples(names)),
    TablesFlushed: st.builds(TablesFlushed, numbers, tuples(flushed_tables)),
    ExpireSegments: st.builds(ExpireSegments, tuples(names), numbers),
    QueueGarbage: st.builds(QueueGarbage, tuples(st.tuples(names, st.sampled_from([1, 2, 3, 4, 16]), names))),
}


def test_every_operation_is_tried_below() -> None:
    assert set(OPERATIONS) == set(get_args(operations.Operation))


@pytest.mark.parametrize("kind", OPERATIONS, ids=lambda kind: kind.__name__)
@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_operations_are_read_as_they_were_written(kind: type, data: st.DataObject) -> None:
    written = [Transaction(5, (data.draw(OPERATIONS[kind]), SealSegment("last"))), Transaction(6, ())]
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
def extents_from(draw: st.DrawFn, start: int, sources: st.SearchStrategy) -> Extents:
    extents = st.builds(Extent, sources, numbers, st.integers(1, 1 << 40), st.binary(max_size=8))
    return Extents().appended(start, draw(st.lists(extents, max_size=3)))


@st.composite
def segments(draw: st.DrawFn, name: str) -> Segment:
    storage_length = draw(st.integers(0, 1 << 50))
    sources = names | others | st.builds(StoredRef, names)
    return Segment(
        name,
        *draw(st.tuples(numbers, numbers, numbers, st.booleans(), numbers, st.integers(0, 1 << 40))),
        immutables.Map(draw(st.dictionaries(ids, values, max_size=3))),
        draw(extents_from(storage_length, sources)),
        storage_length,
        *draw(st.tuples(names, numbers, st.booleans(), numbers, st.integers(-1, 9), st.booleans(), names)),
    )


@st.composite
def tables_in_memory(draw: st.DrawFn) -> Table:
    entries = st.builds(Entry, st.none() | st.binary(max_size=5), numbers)
    return Table(
        immutables.Map(draw(st.dictionaries(names, entries, max_size=3))),
        *draw(st.tuples(numbers, st.integers(-1, 9), st.booleans())),
        layout_of(draw(layouts)),
        draw(extents_from(0, names)),
        draw(extents_from(0, names)),
    )


@st.composite
def any_states(draw: st.DrawFn) -> State:
    present = {name: draw(segments(name)) for name in draw(st.sets(names, max_size=3))}
    tables = draw(st.dictionaries(names, tables_in_memory(), max_size=3))
    spaces = [segment.extents for segment in present.values()]
    spaces += [space for table in tables.values() for space in (table.entries, table.pages)]
    garbage = st.builds(Garbage, numbers, numbers, st.sampled_from([1, 2, 3, 4, 16]), names)
    return State(
        *draw(st.tuples(numbers, st.integers(-1, 9), st.integers(-1, 9))),
        sum(segment.logged for segment in present.values()),
        immutables.Map(dict.fromkeys(draw(st.sets(st.sampled_from(sorted(present)))) if present else (), True)),
        SegmentMap(dict(present)),
        immutables.Map(tables),
        immutables.Map(Counter(e.source for space in spaces for _, e in space if isinstance(e.source, str))),
        immutables.Map(draw(st.dictionaries(names, garbage, max_size=3))),
        immutables.Map(dict.fromkeys(draw(st.sets(names, max_size=3)), True)),
        draw(st.builds(Cycle, numbers, numbers, numbers, st.booleans(), st.integers(-1, 9))),
        immutables.Map(draw(st.dictionaries(names, names, max_size=3))),
        draw(numbers),
    )


@settings(deadline=None, max_examples=60)
@given(state=any_states(), address=numbers)
def test_a_state_comes_out_of_a_checkpoint_as_it_went_in(state: State, address: int) -> None:
    again = through_checkpoint(state, address)
    assert_equal(again, state)
    assert_equal(through_checkpoint(again, address), state)
