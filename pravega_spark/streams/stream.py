"""A stream of an open root: its life, its cuts, and the one way in which events get into it.

Keeps X1 (all of a stream lies in one container, so that every change of it is one atomic append) and X3 (a named
writer's last number is remembered in the same append as its data; a replay changes nothing).
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import NamedTuple, TypeVar

import numpy as np

from engine.container import Container
from engine.errors import (
    BadAttributeUpdate,
    BadKeyVersion,
    OutcomeUnknown,
    Rejected,
    SegmentNotFound,
    SegmentTruncated,
)
from engine.operations import (
    Append,
    AttributeUpdate,
    CreateSegment,
    DeleteSegment,
    Derived,
    Discard,
    Operation,
    Payload,
    PutEntry,
    SealSegment,
    TruncateSegment,
    UpdateAttributes,
    UpdateKind,
)
from engine.pending import Receipt
from engine.root import Root
from engine.segments import EVENT_COUNT, Extent, Segment
from engine.state import NOT_EXISTS, State
from pravega_spark.errors import InvalidStreamCut, StreamNotFound, StreamNotSealed, StreamSealed
from pravega_spark.streams.cuts import StreamCut
from pravega_spark.streams.events import decode
from pravega_spark.streams.index import RECORD_SIZE, IndexReader, Record, encode_records, rebase
from pravega_spark.streams.names import container_of, index_segment_name, segment_name
from pravega_spark.streams.records import (
    RetentionPolicy,
    ScalingPolicy,
    StreamRecord,
    first_epoch,
    next_number,
)

T = TypeVar("T")

STREAMS = "_system/streams"
NUMBERS = "_system/numbers"
"""Tables: the records of streams, and the segment numbers at which deleted streams go on when they are made again."""

_REMEMBERED = 256


class Part(NamedTuple):
    """What a write appends to one segment.

    content: framed events, or extents of chunks that hold them. records: sparse index records relative to the content's
    start (see index.sparse_records). events: how many there are.
    """

    segment_id: int
    content: Payload | tuple[Extent, ...]
    records: np.ndarray
    events: int


class Stream:
    """A stream by name, whether it exists or not. Cheap to make; knows nothing that could get stale but positions."""

    def __init__(self, root: Root, scope: str, name: str) -> None:
        self.root = root
        self.scope = scope
        self.name = name
        self.key = f"{scope}/{name}"
        self.number = container_of(self.key, root.config.containers)
        self._positions: OrderedDict[tuple[str, int], int] = OrderedDict()

    @property
    def container(self) -> Container:
        """The container that holds all of the stream (X1)."""
        return self.root.container(self.number)

    @property
    def writers(self) -> str:
        """The segment without content whose attributes remember the named writers."""
        return f"{self.key}#writers"

    # --- its life ----------------------------------------------------------------------------------------------

    def snapshot(self, refresh: bool = True) -> Snapshot:
        """The stream as it is now; `refresh=False`: as it was when this process last looked. Raises StreamNotFound."""
        container = self.container
        state = container.refresh() if refresh else container.state
        record = self._record(state)
        if record is None:
            raise StreamNotFound(self.key)
        return Snapshot(self, record, state)

    def look(self, question: Callable[[Snapshot], T]) -> T:
        """What `question` finds in the stream as it is now. Asked again when what it reads was deleted meanwhile."""
        while True:
            snapshot = self.snapshot()
            try:
                return question(snapshot)
            except (SegmentTruncated, SegmentNotFound):
                if self.snapshot().record == snapshot.record:
                    raise

    def exists(self) -> bool:
        """Whether the stream exists now, or did when this process last looked: then nothing is requested."""
        container = self.container
        return self._record(container.state) is not None or self._record(container.refresh()) is not None

    def _record(self, state: State) -> StreamRecord | None:
        entry = self.container.entries(STREAMS, [self.key], state)[self.key]
        return StreamRecord.decode(entry.value, entry.version) if entry is not None and entry.value else None

    def create(
        self,
        scaling: ScalingPolicy | None = None,
        retention: RetentionPolicy | None = None,
        tags: Sequence[str] = (),
    ) -> bool:
        """Make the stream, in one append. False when it exists already, whatever its policies are."""
        scaling, now = scaling or ScalingPolicy(), int(time.time() * 1000)
        while True:
            state = self.container.refresh()
            if self._record(state) is not None:
                return False
            entry = self.container.entries(NUMBERS, [self.key], state)[self.key]
            numbers, version = (entry.value, entry.version) if entry is not None else (None, NOT_EXISTS)
            epoch = first_epoch(scaling, now, int.from_bytes(numbers or b"", "big"))
            record = StreamRecord(now, (epoch,), scaling, retention, tuple(tags))
            operations: list[Operation] = [
                PutEntry(STREAMS, self.key, record.encode(), NOT_EXISTS),
                PutEntry(NUMBERS, self.key, numbers, version),  # unchanged: no number is used twice
                CreateSegment(self.writers),
            ]
            for segment in epoch.segments:
                name = segment_name(self.scope, self.name, segment.id)
                operations += [CreateSegment(name), CreateSegment(index_segment_name(name))]
            with suppress(BadKeyVersion):  # made, or made and deleted, by somebody else meanwhile
                self.container.commit(operations)
                return True

    def change(self, record: StreamRecord, operations: Sequence[Operation] = (), **changes: object) -> None:
        """Change the record, and do `operations`, in one append. Raises BadKeyVersion if it was changed meanwhile."""
        value = record.with_changes(**changes).encode()
        self.container.commit([PutEntry(STREAMS, self.key, value, record.version), *operations])

    def seal(self) -> None:
        """Let the stream take no more events. Sealing it again changes nothing."""
        self._insist(self._seal)

    def _seal(self, snapshot: Snapshot) -> None:
        if not snapshot.record.sealed:
            seals = [SealSegment(snapshot.name_of(segment.id)) for segment in snapshot.record.current.segments]
            self.change(snapshot.record, seals, sealed=True)

    def delete(self) -> None:
        """Delete the stream and its data. Raises StreamNotSealed."""
        self._insist(self._delete)

    def _delete(self, snapshot: Snapshot) -> None:
        if not snapshot.record.sealed:
            raise StreamNotSealed(self.key)
        number = next_number(snapshot.record).to_bytes(8, "big")
        operations: list[Operation] = [
            PutEntry(STREAMS, self.key, None, snapshot.record.version),
            PutEntry(NUMBERS, self.key, number),
        ]
        names = [snapshot.name_of(number) for number in snapshot.record.segment_ids()]
        found = self.container.activated([self.writers, *names, *map(index_segment_name, names)], snapshot.state)
        deletions = [DeleteSegment(name) for name, segment in found.items() if segment is not None]
        self.container.commit([*operations, *deletions])

    def truncate(self, cut: StreamCut) -> None:
        """Make `cut` the head of the stream; what lies before it can be read no more. Idempotent.

        Raises InvalidStreamCut, StreamSealed.
        """
        self._insist(lambda snapshot: self._truncate(snapshot, cut))

    def _truncate(self, snapshot: Snapshot, cut: StreamCut) -> None:
        if snapshot.record.sealed:
            raise StreamSealed(self.key)
        snapshot.check(cut)
        head = snapshot.record.head_positions()
        behind = [segment for segment, offset in cut.positions.items() if offset < head.get(segment, 0)]
        if behind:
            raise InvalidStreamCut(
                f"Supplied streamcut is behind previous truncation point: {cut} of {self.key}, head {head}"
            )
        operations: list[Operation] = []
        for segment, offset in cut.positions.items():
            if not snapshot.is_boundary(segment, offset):
                raise InvalidStreamCut(f"stream cut {cut}: no event of segment {segment} begins at offset {offset}")
            name = snapshot.name_of(segment)
            records = snapshot.index_position(segment, offset)
            operations.append(TruncateSegment(name, offset))
            operations.append(TruncateSegment(index_segment_name(name), records * RECORD_SIZE))
        self.change(snapshot.record, operations, head=dict(cut.positions))

    def _insist(self, change: Callable[[Snapshot], None]) -> None:
        """Carry out a change of the record; when somebody else changed it meanwhile, again on what it is then."""
        while True:
            with suppress(BadKeyVersion):
                return self.look(change)

    # --- writing -----------------------------------------------------------------------------------------------

    def write(self, parts: Sequence[Part], writer: tuple[str, int] | None = None) -> bool:
        """Append to all segments, all or nothing, durable on return. See `submit`.

        Returns False when the named writer's number was there already: nothing was done then. Raises SegmentSealed,
        SegmentNotFound, OutcomeUnknown (only without a writer's name), StorageError.
        """
        operations = self.operations(parts, writer)
        while True:
            try:
                self.container.commit(operations)
                return True
            except BadAttributeUpdate as error:
                if writer is None or error.attribute != writer_attribute(writer[0]):
                    raise
                return False
            except OutcomeUnknown:
                if writer is None:
                    raise  # with a name it can be tried again: what is there is not written twice

    def discard(self, chunks: Sequence[str]) -> None:
        """Give up chunks that were written for an append that did not come about, or may not have (G1)."""
        self.container.commit([Discard(tuple(chunks))])

    def submit(self, parts: Sequence[Part]) -> Future[Receipt]:
        """Append to all segments, all or nothing; the future is done when it is durable."""
        return self.container.submit(self.operations(parts))

    def operations(self, parts: Sequence[Part], writer: tuple[str, int] | None = None) -> list[Operation]:
        """The operations of one write: the writer's number, then each segment's index records and events.

        writer: the name of a writer and a number that grows with each of its writes (X3).
        """
        operations: list[Operation] = []
        if writer is not None:
            update = AttributeUpdate(writer_attribute(writer[0]), UpdateKind.REPLACE_IF_GREATER, writer[1])
            operations.append(UpdateAttributes(self.writers, (update,)))
        for part in parts:
            name = segment_name(self.scope, self.name, part.segment_id)
            operations.append(Append(index_segment_name(name), _index_content(name, part.records)))
            count = AttributeUpdate(EVENT_COUNT, UpdateKind.ACCUMULATE, part.events)
            operations.append(Append(name, part.content, None, (count,)))
        return operations

    def remember(self, segment: str, offset: int, records: int) -> None:
        """Keep the number of index records up to an offset, so that a reader that starts there need not search it."""
        self._positions[segment, offset] = records
        while len(self._positions) > _REMEMBERED:
            self._positions.popitem(last=False)

    def remembered(self, segment: str, offset: int) -> int | None:
        """What `remember` was told."""
        return self._positions.get((segment, offset))


class Snapshot:
    """A stream at one moment: its record and its segments' states."""

    def __init__(self, stream: Stream, record: StreamRecord, state: State) -> None:
        self.stream = stream
        self.record = record
        self.state = state
        self._segments: dict[str, Segment] = {}

    def name_of(self, segment_id: int) -> str:
        """The full name of a segment."""
        return segment_name(self.stream.scope, self.stream.name, segment_id)

    def segment(self, segment_id: int) -> Segment:
        """A segment's properties."""
        return self._named(self.name_of(segment_id))

    def index_segment(self, segment_id: int) -> Segment:
        """The properties of the segment with a segment's sparse index."""
        return self._named(index_segment_name(self.name_of(segment_id)))

    def _named(self, name: str) -> Segment:
        """A segment of the stream. The first time, all that may be asked for are looked up together."""
        if name not in self._segments:
            names = [self.name_of(number) for number in self.record.segment_ids()]
            wanted = dict.fromkeys([name, *names, *map(index_segment_name, names)])
            found = self.stream.container.activated(list(wanted), self.state)
            self._segments |= {key: segment for key, segment in found.items() if segment is not None}
        if name not in self._segments:
            raise SegmentNotFound(name)
        return self._segments[name]

    def head_cut(self) -> StreamCut:
        """The cut before the first event that can be read."""
        return self._cut(self.record.head_positions())

    def tail_cut(self) -> StreamCut:
        """The cut behind the last event."""
        positions = {}
        for segment in self.record.current.segments:
            known = self.segment(segment.id)
            positions[segment.id] = known.length
            index = self.index_segment(segment.id)
            self.stream.remember(known.name, known.length, index.length // RECORD_SIZE)
        return self._cut(positions)

    def _cut(self, positions: dict[int, int]) -> StreamCut:
        return StreamCut(self.stream.scope, self.stream.name, positions)

    def size(self) -> int:
        """Bytes that can be read, event headers included."""
        segments = [self.segment(number) for number in self.record.segment_ids()]
        return sum(segment.length - segment.start_offset for segment in segments)

    def events(self) -> int:
        """Number of events that can be read, exactly. May read the index where the head is not at its beginning."""
        total = 0
        for number in self.record.segment_ids():
            segment = self.segment(number)
            total += segment.attributes.get(EVENT_COUNT, 0) - self.count_before(number, segment.start_offset)
        return total

    def count_before(self, segment_id: int, offset: int) -> int:
        """Number of events before an event boundary. Read off the index, or counted from the next index record back."""
        if offset == 0:
            return 0
        record = self.index(segment_id).locate_offset(offset)
        if record is None:
            return self.segment(segment_id).attributes.get(EVENT_COUNT, 0)
        if record.offset == offset:
            return record.count
        low, starts = self._events_of(segment_id, record)
        return record.count - int(np.count_nonzero(starts + low >= offset))

    def is_boundary(self, segment_id: int, offset: int) -> bool:
        """Whether an event begins or ends at an offset, as far as the index can tell."""
        segment = self.segment(segment_id)
        if offset in (segment.start_offset, segment.length):
            return True
        record = self.index(segment_id).locate_offset(offset)
        if record is None or record.offset == offset:
            return True
        low, starts = self._events_of(segment_id, record)
        return offset - low in starts

    def _events_of(self, segment_id: int, record: Record) -> tuple[int, np.ndarray]:
        """Where the events that an index record is about begin, and each one's place from there."""
        low = self._record_start(segment_id, record)
        data = self.stream.container.read(self.name_of(segment_id), low, record.offset)
        return low, decode(data, np.zeros(1, np.int64), len(data), low)[0]

    def next_cut(
        self, start: StreamCut, end: StreamCut, *, max_bytes: int | None = None, max_events: int | None = None
    ) -> StreamCut:
        """A cut between two cuts, about `max_bytes` or exactly `max_events` behind the first, or the second cut.

        Every segment gets its share of the limit by what it has left. By bytes, the cut is at an index record, so it
        may lie some 16 KiB further in each segment.
        """
        spans = {number: (offset, end.positions[number]) for number, offset in start.positions.items()}
        if max_bytes is not None:
            left = {number: high - low for number, (low, high) in spans.items()}
            shares = _shares(left, max_bytes)
            locate: Callable[[int, int, int], int] = self._offset_after
        else:
            assert max_events is not None
            left = {n: self.count_before(n, high) - self.count_before(n, low) for n, (low, high) in spans.items()}
            shares = _shares(left, max_events)
            locate = self._offset_of_event
        positions = {
            number: high if shares[number] >= left[number] else min(high, locate(number, low, shares[number]))
            for number, (low, high) in spans.items()
        }
        return StreamCut(start.scope, start.stream, positions)

    def cut_at(self, timestamp: int) -> StreamCut:
        """The cut before the first events that were written at `timestamp` (ms since the epoch) or later.

        Times are kept with index records, so some events written shortly before may lie behind the cut too.
        """
        positions = {}
        for segment in self.record.current.segments:
            known = self.segment(segment.id)
            record = self.index(segment.id).locate_time(timestamp)
            positions[segment.id] = known.length if record is None else self._record_start(segment.id, record)
        return StreamCut(self.stream.scope, self.stream.name, positions)

    def _record_start(self, segment_id: int, record: Record) -> int:
        """Where the events that an index record is about begin: at the record before it, or the segment's start."""
        segment, index = self.segment(segment_id), self.index(segment_id)
        number = index.position_of(record.offset)
        first = self.index_segment(segment_id).start_offset // RECORD_SIZE
        if number <= first:
            return segment.start_offset
        return max(int(index.records(number - 1, number)[0, 0]), segment.start_offset)

    def _offset_after(self, segment_id: int, offset: int, size: int) -> int:
        """The first indexed offset at least `size` bytes behind `offset`."""
        record = self.index(segment_id).locate_offset(offset + max(size, 1))
        return record.offset if record is not None else self.segment(segment_id).length

    def _offset_of_event(self, segment_id: int, offset: int, events: int) -> int:
        """The offset exactly `events` events behind `offset`: found by the index, then by counting in one block."""
        count = self.count_before(segment_id, offset) + events
        record = self.index(segment_id).locate_count(count)
        if record is None:
            return self.segment(segment_id).length
        surplus = record.count - count
        if not surplus:
            return record.offset
        low, starts = self._events_of(segment_id, record)
        return low + int(starts[len(starts) - surplus])

    def check(self, cut: StreamCut) -> None:
        """Raise InvalidStreamCut unless `cut` is a cut of this stream."""
        if (cut.scope, cut.stream) != (self.stream.scope, self.stream.name):
            raise InvalidStreamCut(f"stream cut {cut} is of another stream than {self.stream.key}")
        if sorted(cut.positions) != sorted(segment.id for segment in self.record.current.segments):
            raise InvalidStreamCut(f"stream cut {cut} does not name the segments of {self.stream.key}")
        for number, offset in cut.positions.items():
            length = self.segment(number).length
            if not 0 <= offset <= length:
                raise InvalidStreamCut(
                    f"stream cut {cut}: segment {number} of {self.stream.key} has offsets 0 to {length}, not {offset}"
                )

    # --- the index ---------------------------------------------------------------------------------------------

    def index(self, segment_id: int) -> IndexReader:
        """The sparse index of a segment."""
        segment, container = self.index_segment(segment_id), self.stream.container
        return IndexReader(
            lambda start, end: container.read(segment.name, start, end), segment.start_offset, segment.length
        )

    def index_position(self, segment_id: int, offset: int) -> int:
        """How many index records lie at or before `offset`, counted from the segment's beginning."""
        segment = self.segment(segment_id)
        index = self.index_segment(segment_id)
        if offset >= segment.length:
            return index.length // RECORD_SIZE
        if offset <= segment.start_offset:
            return index.start_offset // RECORD_SIZE
        known = self.stream.remembered(segment.name, offset)
        if known is None:
            known = self.index(segment_id).position_of(offset + 1)
            self.stream.remember(segment.name, offset, known)
        return known


def _shares(left: dict[int, int], limit: int) -> dict[int, int]:
    """Divide a limit by what each has left; what rounding leaves over goes to the first ones that can use it."""
    total = sum(left.values())
    if total <= limit:
        return dict(left)
    shares = {number: amount * limit // total for number, amount in left.items()}
    spare = limit - sum(shares.values())
    for number, amount in left.items():
        extra = min(spare, amount - shares[number], 1)
        shares[number] += extra
        spare -= extra
    return shares


def writer_attribute(name: str) -> bytes:
    """The attribute that remembers a named writer's last number. Unlike core attributes it begins with a zero bit."""
    digest = bytearray(hashlib.sha256(name.encode()).digest()[:16])
    digest[0] &= 0x7F
    return bytes(digest)


def _index_content(segment: str, records: np.ndarray) -> Derived:
    """Index records count from the segment's beginning, so they are made when it is known where the append goes."""

    def make(lookup: object) -> bytes:
        known: Segment = lookup(segment)  # type: ignore[operator]
        return encode_records(rebase(records, known.length, known.attributes.get(EVENT_COUNT, 0)))

    return Derived(len(records) * RECORD_SIZE, make)


__all__ = ["NUMBERS", "STREAMS", "Part", "Rejected", "Snapshot", "Stream"]
