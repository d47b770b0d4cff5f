"""A log's only writer, without a log: what the tests of the state commit their transactions with."""

import uuid
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

import immutables
from hypothesis import strategies as st

from chunkstore.testing import SimulatedStore
from engine.errors import FlushOvertaken, SegmentNotFound, Unresolved
from engine.logs import checkpoints
from engine.logs.frames import Position
from engine.logs.payload import Layout
from engine.logs.validation import load_of
from engine.state import tables as limits
from engine.state.changes.apply import apply_operation
from engine.state.changes.draft import StateDraft
from engine.state.operations import (
    Append,
    AttributeUpdate,
    BeginCycle,
    CreateSegment,
    DequeueGarbage,
    EndCycle,
    EvictSegments,
    LoggedTransaction,
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
    SpillAttributes,
    TableFlush,
    UpdateAttributes,
    UpdateKind,
    encode_transactions,
)
from engine.state.segment_record import decode_segment, encode_segment
from engine.state.segments import (
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
from engine.state.state import ATTRIBUTES_GARBAGE, EMPTY, Cycle, State
from engine.state.tables import ATTRIBUTES, METADATA, METADATA_TABLES, STORAGE, Entry, LookupResult, attribute_key
from engine.storage import recovery_points
from engine.storage.cache import Cache
from engine.storage.chunk_writer import write_chunk
from engine.storage.lookups import Lookups
from engine.storage.object_reads import Stores
from engine.tables.content import TableEntry
from engine.writer.flush_steps import FlushStep, steps_of
from engine.writer.table_writer import Dirty
from tests.support.container_model import Content, Contents
from tests.support.simulation import audit

HEADER = 100  # where a frame's payload begins, in these tests
W = bytes(15) + b"w"
X = bytes(15) + b"x"
KnownEntries = Mapping[tuple[str, str], LookupResult]


class RecoveryPoint(NamedTuple):
    """What is left of a container if its log is gone: a state, what is in it, and what LTS holds of segments."""

    state: State
    contents: Contents
    stored: dict[str, tuple[int, bytes]]


class Writer:
    """Applies transactions to a state as the processor does, one frame each, and keeps the frames.

    `store` has the chunks. `stored`: what LTS holds of segments, by their names there, and where that begins.
    `recovery_point`: that of the last complete cycle.
    """

    def __init__(self, store: SimulatedStore | None = None) -> None:
        self.state = EMPTY
        self.states = [EMPTY]
        self.frames: list[bytes] = []
        self.payloads: list[bytes] = []
        self.store = store or SimulatedStore()
        self.stored: dict[str, tuple[int, bytes]] = {}
        self.recovery_point: RecoveryPoint | None = None
        self.lookups = Lookups(Stores(self.store, self.store), 0, Cache(0))

    def commit(self, *transaction: Operation) -> list[object]:
        """Apply operations; what they depend on in LTS is looked up, and brought into memory, first."""
        known: dict[tuple[str, str], LookupResult] = {}
        loads: dict[tuple[str, str], Operation] = {}
        while True:
            try:
                return self.judge(*loads.values(), *transaction, known=known)[len(loads) :]
            except Unresolved as error:
                table = self.state.tables[error.table]
                for key, entry in self.lookups.entries(self.state, error.table, error.keys).items():
                    assert (error.table, key) not in known, "what was looked up is not believed"
                    known[error.table, key] = LookupResult(table.layout.root, entry)
                    load = load_of(error.table, key, entry, error.segment)
                    if load is not None:
                        loads[error.table, key] = load

    def judge(self, *transaction: Operation, known: KnownEntries | None = None) -> list[object]:
        """Apply operations by what is in memory and what is `known` of LTS, or raise Unresolved."""
        address, time = len(self.frames), 1000 + len(self.frames)
        layout, draft = Layout(address), StateDraft(self.state, time, address, known or {})
        bound, results = [], []
        for operation in transaction:
            bound.append(layout.bind(operation, draft.segment, draft.sequence))
            results.append(apply_operation(draft, bound[-1]))
        layout.frame.start = HEADER
        self.frames.append(encode_transactions([LoggedTransaction(time, tuple(bound))], layout.frame))
        self.payloads.append(b"".join(layout.buffers))
        self.state = draft.finish()
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
        return self.lookups.entries(self.state, table, [key])[key]

    def contents(self, state: State) -> Contents:
        """All segments, active or not, and tables."""
        segments = dict(state.segments)
        for name, entry in self.lookups.scan(state, METADATA):
            assert entry.value is not None
            segments.setdefault(name, decode_segment(entry.value, entry.version, name))
        tables = {
            table: {key: entry.value for key, entry in self.lookups.scan(state, table) if entry.value is not None}
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
        spilled = self.lookups.scan(state, ATTRIBUTES, prefix) if segment.spilled else ()
        return {
            bytes.fromhex(key[len(prefix) :]): int.from_bytes(entry.value or b"", "big", signed=True)
            for key, entry in spilled
        } | dict(segment.attributes)

    # --- flush cycles, step by step; what is done between two steps is for the caller to choose

    def flush(self, evict: bool = False) -> None:
        """FlushStep a whole flush cycle; with `evict`, no segment is active after it."""
        for _ in self.cycle():
            pass
        if evict:
            self.commit(EvictSegments(tuple(sorted(self.state.segments))))

    def cycle(self, merged: int = 0) -> Iterator[str]:
        """FlushStep a flush cycle. Raises FlushOvertaken or SegmentNotFound if something in the way was done meanwhile.

        merged: how many of each table's extents are merged into one.
        """
        number = self.state.cycle.number + 1
        self.commit(*map(SpillAttributes, filter(self._may_spill, self.state.unsaved)), BeginCycle(number))
        begun, contents = self.state, self.contents(self.state)
        yield "begun"
        storages: dict[str, str] = {}
        for segment in list(begun.logged()):
            for step in steps_of(segment, begun):
                storages[segment.name] = self.flush_step(number, segment, step)
                yield "flushed"
            for step in steps_of(segment, begun):
                self.stored.pop(step.joined, None)
        marked: set[str] = set()
        for name in begun.unsaved:
            storage = storages.get(name, begun.segments[name].storage)
            if storage and self.mark(number, begun.segments[name], storage):
                marked.add(name)
                yield "marked"
        self.commit(RecordDeletion(number, tuple(begun.dropped)))
        for storage in begun.dropped:
            del self.stored[storage]
        yield "forgotten"
        early = {table: Dirty.of(begun, table) for table in begun.tables if table not in (STORAGE, METADATA)}
        self.commit(RecordTableFlush(number, self.flushed_tables(early, merged)))
        yield "tables"
        records = self.records(begun, storages, marked)
        self.commit(SaveSegments(number, begun.sequence, records))
        yield "saved"
        late = {METADATA: Dirty.of(begun, METADATA).plus({name: record for name, _, record in records})}
        self.commit(RecordTableFlush(number, self.flushed_tables(late, merged)))
        recovery_point = RecoveryPoint(recovery_points.pruned(self.state, begun), contents, dict(self.stored))
        yield "metadata"
        self.commit(EndCycle(number))
        self.recovery_point = recovery_point
        assert self.contents(recovery_point.state) == contents, "LTS alone is not what the container was (F3)"
        yield "ended"

    def _may_spill(self, name: str) -> bool:
        return any(not is_core(attribute) for attribute in self.state.segments[name].attributes)

    def flush_step(self, cycle: int, segment: Segment, step: FlushStep) -> str:
        """Bring a step of a segment to LTS. Returns what it is called there."""
        storage = segment.storage or storage_name(segment.name, segment.id, segment.storage_length)
        moved = tuple(chunk.name for chunk in step.attached) or ((step.joined,) if step.joined else ())
        # First, because a cycle that is over finds no more what another one has taken since.
        self.commit(RecordFlush(cycle, segment.name, storage, step.offset, step.end, moved))
        data = self.read_segment(segment)[step.offset - segment.start_offset : step.end - segment.start_offset]
        first, before = self.stored.get(storage, (step.offset, b""))
        assert first + len(before) == step.offset
        self.stored[storage] = (first, before + data)
        return storage

    def mark(self, cycle: int, segment: Segment, storage: str) -> bool:
        """Let LTS know of truncation and sealing, unless there is nothing new or the segment is another now."""
        start, sealed = segment.start_offset, segment.sealed
        if start <= segment.stored_start and sealed <= segment.stored_sealed:
            return False
        try:
            self.commit(RecordStoredBounds(cycle, segment.name, storage, start, sealed))
        except (FlushOvertaken, SegmentNotFound):
            if self.state.cycle.number != cycle:
                raise
            return False
        first, data = self.stored[storage]
        self.stored[storage] = (max(first, start), data[max(start - first, 0) :])
        return True

    def flushed_tables(self, tables: Mapping[str, Dirty], merged: int = 0) -> tuple[TableFlush, ...]:
        """Bring entries of tables to LTS, and merge so many of the extents that these lie in already."""
        flushed = []
        for name, (entries, upto) in tables.items():
            if not entries:
                continue
            table = self.state.tables[name]
            flush = self.lookups.content(name, table).flush(
                [TableEntry(key.encode(), entry.value, entry.version) for key, entry in entries.items()]
            )
            spaces = [self._merged(table.entries, merged), self._merged(table.pages, merged)]
            parts = [flush.entries, flush.pages, *(data for _, data in spaces)]
            chunk = f"_system/tables/{uuid.uuid4()}"
            extents = iter(write_chunk(self.store, chunk, [[part] for part in parts]))
            placed = [(next(extents),) if part else () for part in parts]
            (at, _), (pages_at, _) = spaces
            merges = (at, placed[2]), (pages_at, placed[3])
            keep = table.size <= limits.RESIDENT_BYTES
            flushed.append(
                TableFlush(name, upto, tuple(flush.layout), placed[0], placed[1], merges[0], merges[1], keep)
            )
        return tuple(flushed)

    def _merged(self, extents: Extents, count: int) -> tuple[int, bytes]:
        last = list(extents)[-count:] if count else []
        return (last[0][0], b"".join(self.read_extent(extent) for _, extent in last)) if last else (0, b"")

    def records(
        self, begun: State, storages: Mapping[str, str], marked: Collection[str] = ()
    ) -> tuple[tuple[str, int, bytes], ...]:
        """Unsaved segments for the metadata table, as they were, with what LTS knows of them by this cycle."""
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
        """The container that begins anew with the last recovery point. It shares nothing that changes."""
        assert self.recovery_point is not None
        other = Writer(self.store)
        other.state, other.stored = self.recovery_point.state, dict(self.recovery_point.stored)
        other.states = [other.state]
        return other

    def collect_attributes(self) -> None:
        """Remove what is garbage in the table of attributes."""
        for prefix, garbage in self.state.garbage.items():
            if garbage.kind == ATTRIBUTES_GARBAGE:
                keys = [key for key, _ in self.lookups.scan(self.state, ATTRIBUTES, prefix)]
                self.commit(*(PutEntry(ATTRIBUTES, key, None) for key in keys), DequeueGarbage((prefix,)))


def assert_equal(left: State, right: State) -> None:
    for field in State._fields:
        assert getattr(left, field) == getattr(right, field), field


def through_checkpoint(state: State, address: int) -> State:
    head = Position(address, uuid.uuid4().bytes, 3)
    opening = checkpoints.decode(checkpoints.encode(7, head, state), "path", 7, address)
    assert opening.head == head
    return opening.state


def assert_recovered(writer: Writer, contents: Contents) -> None:
    """If the log is gone, these are the contents, and they stay when life goes on (F3)."""
    other = writer.recovered()
    audit(other.state)
    assert other.contents(other.state) == contents
    other.collect_attributes()
    other.flush(evict=True)
    assert other.contents(other.state) == contents


def placed(offset: int, extents: list[Extent]) -> list[tuple[int, Extent]]:
    pairs = []
    for extent in extents:
        if extent.length:
            pairs.append((offset, extent))
            offset += extent.length
    return pairs


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


def merged() -> Writer:
    """A segment with 4 bytes in LTS, 2 in the log, 6 in LTS by the name of another segment, and 2 in the log."""
    writer = with_segments("a", "b")
    writer.commit(append("a", b"0123"), append("b", b"6789AB"))
    writer.flush()
    writer.commit(append("a", b"45"), append("b", b"CD"), SealSegment("b"), MergeSegment("a", "b"))
    return writer


def spilled() -> Writer:
    """A segment with two attributes in the table only, W = 4 and X = 5."""
    writer = with_segments("a")
    writer.commit(UpdateAttributes("a", (set_w(4), AttributeUpdate(X, UpdateKind.REPLACE, 5), events(1))))
    writer.flush()
    return writer


names = st.text(max_size=5)
numbers = st.integers(0, MAX_VALUE)
values = st.integers(NULL_VALUE, MAX_VALUE)
ids = st.binary(min_size=16, max_size=16)
others = numbers.map(lambda address: FrameRef(address, address % 1000))
stored = st.builds(Extent, st.builds(StoredRef, names), numbers, numbers, st.just(b""))
in_chunks = st.builds(Extent, names, numbers, numbers, st.binary(max_size=8))


def tuples(items: st.SearchStrategy) -> st.SearchStrategy:
    return st.lists(items, max_size=3).map(tuple)


updates = tuples(st.builds(AttributeUpdate, ids, st.sampled_from(UpdateKind), values, values))
merges = st.tuples(numbers, tuples(in_chunks))


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
        draw(numbers),
        draw(numbers),
        draw(numbers),
        draw(st.booleans()),
        draw(numbers),
        draw(st.integers(0, 1 << 40)),
        immutables.Map(draw(st.dictionaries(ids, values, max_size=3))),
        draw(extents_from(storage_length, sources)),
        storage_length,
        draw(names),
        draw(numbers),
        draw(st.booleans()),
        draw(numbers),
        draw(st.integers(-1, 9)),
        draw(st.booleans()),
        draw(names),
    )


cycles = st.builds(
    Cycle, numbers, numbers, numbers, st.booleans(), st.integers(-1, 9), numbers, st.booleans(), st.text(max_size=9)
)
