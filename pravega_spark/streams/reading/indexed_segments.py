"""The segments of a stream at one moment, and offsets in them, found by the sparse indexes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from engine.errors import SegmentNotFound
from engine.state.index_records import RECORD_SIZE
from engine.state.segments import EVENT_COUNT, Segment
from engine.storage.object_reads import ObjectRange
from pravega_spark.errors import InvalidStreamCut
from pravega_spark.segment_ids import segment_label
from pravega_spark.streams.model.events import (
    HEADER_SIZE,
    MAX_INT32,
    MAX_LARGE_EVENT_SIZE,
    InvalidEvent,
    decode,
    event_header,
)
from pravega_spark.streams.model.index import SPACING, WIDEST_GAP, IndexReader, IndexRecord, InvalidIndex
from pravega_spark.streams.model.names import index_segment_name, segment_name
from pravega_spark.streams.reading.rebuilt_index import RebuiltIndex

if TYPE_CHECKING:
    from engine.state.state import State
    from pravega_spark.streams.model.stream_record import StreamRecord
    from pravega_spark.streams.reading.location import StreamLocation

_CACHED_POSITIONS = 256


class PositionCache:
    """Number of index records at or before `offset`, from the segment's beginning."""

    def __init__(self) -> None:
        self._positions: OrderedDict[tuple[str, int, int], int] = OrderedDict()

    def put(self, index: Segment, offset: int, records: int) -> None:
        """Cache the number of an index's records up to an offset."""
        self._positions[index.name, index.id, offset] = records
        while len(self._positions) > _CACHED_POSITIONS:
            self._positions.popitem(last=False)

    def get(self, index: Segment, offset: int) -> int | None:
        """The cached number."""
        return self._positions.get((index.name, index.id, offset))


class IndexedSegments:
    """A stream's record, and the states of its segments. Methods may read a segment's index."""

    def __init__(self, stream: StreamLocation, record: StreamRecord, state: State, known: PositionCache) -> None:
        self.stream = stream
        self.record = record
        self.state = state
        self._known = known
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

    def load(self, numbers: Iterable[int]) -> None:
        """Look up segments and their index segments, in one request."""
        names = [name for number in numbers if (name := self.name_of(number)) not in self._segments]
        if names:
            found = self.stream.container.activated([*names, *map(index_segment_name, names)], self.state)
            self._segments |= {key: segment for key, segment in found.items() if segment is not None}

    def _named(self, name: str) -> Segment:
        """A segment of the stream. The first call also looks up the open segments."""
        if name not in self._segments:
            self.load(segment.id for segment in self.record.current.segments)
        if name not in self._segments:
            found = self.stream.container.activated([name], self.state)[name]
            if found is None:
                raise SegmentNotFound(name)
            self._segments[name] = found
        return self._segments[name]

    def length(self, segment_id: int) -> int:
        """The length of a segment."""
        return self.segment(segment_id).length

    def tail(self, segment_id: int) -> int:
        """The length of a segment, cached as a position where reading will continue."""
        segment = self.segment(segment_id)
        if self.is_indexed(segment_id):
            index = self.index_segment(segment_id)
            self._known.put(index, segment.length, index.length // RECORD_SIZE)
        return segment.length

    def is_indexed(self, segment_id: int) -> bool:
        """Whether the index of a segment exists. Otherwise using it builds it, which reads the segment."""
        index = self.index_segment(segment_id)
        return not isinstance(index, RebuiltIndex) or index.is_built

    def has_times(self, segment_id: int) -> bool:
        """Whether it is known when the events of a segment were written."""
        return not isinstance(self.index_segment(segment_id), RebuiltIndex)

    def index_key(self, segment_id: int) -> str:
        """The cache key for a rebuilt index of the whole segment; "" if the index is stored."""
        index = self.index_segment(segment_id)
        return index.key if isinstance(index, RebuiltIndex) else ""

    def index_bytes(self, segment_id: int, first: int, last: int) -> tuple[ObjectRange, ...] | bytes:
        """The location of the bytes [first, last) of the index, or the bytes if they are in no object of the root."""
        index = self.index_segment(segment_id)
        if isinstance(index, RebuiltIndex):
            return index.content(first, last)
        if last > index.length:
            raise InvalidIndex(f"{self._what(segment_id)}: its {index.length} bytes are not whole records")
        return tuple(self.stream.container.plan_of(index, first, last))

    def events_in(self, segment_id: int, low: int, high: int) -> int:
        """Number of events between two event boundaries."""
        return self.count_before(segment_id, high) - self.count_before(segment_id, low)

    def count_before(self, segment_id: int, offset: int) -> int:
        """Number of events before an event boundary, from the index, or counted back from the next index record."""
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
        """Whether an event begins or ends at an offset, as far as the index shows."""
        segment = self.segment(segment_id)
        if offset in (segment.start_offset, segment.length):
            return True
        record = self.index(segment_id).locate_offset(offset)
        if record is None or record.offset == offset:
            return True
        low, starts = self._events_of(segment_id, record)
        return offset - low in starts

    def offset_at(self, segment_id: int, low: int, timestamp: int) -> int:
        """The offset, at least `low`, of the first events written at `timestamp` or later."""
        if not self.has_times(segment_id):
            raise InvalidStreamCut(
                f"stream {self.stream.key}: when its events were written is not known, as the long-term storage of a "
                "Pravega does not contain it. Give a stream cut instead of a time"
            )
        record = self.index(segment_id).locate_time(timestamp)
        return self.length(segment_id) if record is None else max(low, self.record_start(segment_id, record))

    def offset_after(self, segment_id: int, offset: int, size: int) -> int:
        """The first indexed offset at least `size` bytes behind `offset`."""
        record = self.index(segment_id).locate_offset(offset + max(size, 1))
        return record.offset if record is not None else self.segment(segment_id).length

    def offset_within(self, segment_id: int, offset: int, size: int) -> int:
        """The same, but before a large event that exceeds `size` bytes: possibly where it begins."""
        reached = self.offset_after(segment_id, offset, size)
        if reached - offset <= size + SPACING:
            return reached
        record = self.index(segment_id).locate_offset(reached)
        start = reached if record is None else self.record_start(segment_id, record)
        return max(offset, start) if reached - start > WIDEST_GAP else reached

    def offset_of_event(self, segment_id: int, offset: int, events: int) -> int:
        """The offset exactly `events` events behind `offset`: found by the index, then by counting in one block."""
        count = self.count_before(segment_id, offset) + events
        record = self.index(segment_id).locate_count(count)
        if record is None:
            return self.segment(segment_id).length
        surplus = record.count - count
        if not surplus:
            return record.offset
        low, starts = self._events_of(segment_id, record)
        if surplus > len(starts):
            raise InvalidIndex(
                f"{self._what(segment_id)}: {len(starts)} events begin from offset {low} to {record.offset}, "
                f"but the index counts {surplus} or more there"
            )
        return low + int(starts[len(starts) - surplus])

    def growth_since(self, segment_id: int, timestamp: int) -> tuple[int, int]:
        """Bytes and events that a segment got at `timestamp` (ms since the epoch) or later, by its index."""
        segment = self.segment(segment_id)
        record = self.index(segment_id).locate_time(timestamp)
        if record is None:
            return 0, 0
        start = self.record_start(segment_id, record)
        events = segment.attributes.get(EVENT_COUNT, 0)
        return segment.length - start, events - self.count_before(segment_id, start)

    def _events_of(self, segment_id: int, record: IndexRecord) -> tuple[int, np.ndarray]:
        """The start offset of an index record's events, and each event's position from there."""
        low, name = self.record_start(segment_id, record), self.name_of(segment_id)
        gap = record.offset - low
        if not 0 < gap <= MAX_LARGE_EVENT_SIZE + HEADER_SIZE + WIDEST_GAP:
            raise InvalidIndex(
                f"{self._what(segment_id)}: a record is of offset {record.offset}, the one before of {low}"
            )
        if gap > WIDEST_GAP:
            header = self.stream.container.read(name, low, low + HEADER_SIZE)
            if header == event_header(min(gap - HEADER_SIZE, MAX_INT32)):
                return low, np.zeros(1, np.int64)  # a large event is not read
        data = self.stream.container.read(name, low, record.offset)
        try:
            return low, decode(data, np.zeros(1, np.int64), len(data), low)[0]
        except InvalidEvent as error:
            where = f"stream {self.stream.key}, segment {segment_label(segment_id)}"
            raise InvalidEvent(f"{where}: {error.problem}", error.offset) from error

    def _what(self, segment_id: int) -> str:
        """The index, for messages."""
        return f"stream {self.stream.key}, segment {segment_label(segment_id)}, its index"

    def record_start(self, segment_id: int, record: IndexRecord) -> int:
        """The start offset of an index record's events: the record before it, or the segment's start."""
        return self.boundary_before(segment_id, record.offset)

    def boundary_before(self, segment_id: int, offset: int) -> int:
        """The last indexed offset before `offset` at which an event begins, or the segment's start."""
        segment, index = self.segment(segment_id), self.index(segment_id)
        number = index.position_of(offset)
        first = self.index_segment(segment_id).start_offset // RECORD_SIZE
        if number <= first:
            return segment.start_offset
        return max(int(index.records(number - 1, number)[0, 0]), segment.start_offset)

    def index(self, segment_id: int) -> IndexReader:
        """The sparse index of a segment."""
        segment, container = self.index_segment(segment_id), self.stream.container
        if isinstance(segment, RebuiltIndex):
            return IndexReader(segment.content, 0, segment.length)
        indexed = self.segment(segment_id)
        return IndexReader(
            lambda start, end: container.read(segment.name, start, end),
            segment.start_offset,
            segment.length,
            self._what(segment_id),
            (indexed.length, indexed.attributes.get(EVENT_COUNT, 0)),
        )

    def index_position(self, segment_id: int, offset: int) -> int:
        """Number of index records at or before `offset`, from the segment's beginning."""
        segment = self.segment(segment_id)
        index = self.index_segment(segment_id)
        if offset >= segment.length:
            return index.length // RECORD_SIZE
        if offset <= segment.start_offset:
            return index.start_offset // RECORD_SIZE
        known = self._known.get(index, offset)
        if known is None:
            known = self.index(segment_id).position_of(offset + 1)
            self._known.put(index, offset, known)
        return known
