"""Reading a stream without Spark: a range of it once, or following its tail.

A segment is read after all segments that it succeeds, so the events of each key come in the order of writing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import pyarrow as pa

from engine.state.state import State
from engine.storage.cache import Cache
from pravega_spark.client.event import Event, LazyEvent, Payload
from pravega_spark.client.lazy_payload import LazyPayload
from pravega_spark.parameters import checks_parameters
from pravega_spark.quantities import counted
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.model.events import HEADER_SIZE, MAX_EVENT_SIZE
from pravega_spark.streams.reading.event_columns import NUMBERED, EventColumns, schema_of
from pravega_spark.streams.reading.scan import SliceReader
from pravega_spark.streams.reading.slices import Events, ScanSlice, plan_slices
from pravega_spark.streams.reading.snapshot import Snapshot
from pravega_spark.streams.reading.stream_position import StreamPosition, cut_at
from pravega_spark.streams.stream import Stream
from pravega_spark.streams.values.columns import ValueColumns

if TYPE_CHECKING:
    import pandas as pd

SLICE_BYTES = 64 << 20
"""Bytes of a segment in one slice."""


class _Whole(NamedTuple):
    """Columns with every event in full, however large (see `event_columns.Reading`)."""

    scope: str
    stream: str
    large_events: str = "inline"
    max_event_bytes: int = MAX_EVENT_SIZE
    include_metadata: bool = True


Ranges: TypeAlias = "dict[int, tuple[int, int]]"
"""The range of each segment, in the order of reading."""

COLUMNS = ("event", "scope", "stream", "segment_id", "offset")
"""The default columns, those of a read by Spark."""


@checks_parameters(but=("__init__",))
class EventRange(Iterator[Event]):
    """The events between two positions: an iterator, or columns of Arrow or pandas, which create no object per
    event.

    columns: of "event", "scope", "stream", "segment_id", "offset", "timestamp" (when it was written),
    "event_pointer" and "event_number"; by default the first five, as in Spark. Each method reads the whole range,
    regardless of earlier iteration. With a value format, the fields of values are columns too, by default in the place
    of "event". Raises TruncatedData if a part of it was truncated meanwhile; Closed.
    """

    def __init__(
        self,
        stream: Stream,
        resolve: Callable[[Snapshot], Ranges],
        check_open: Callable[[], None],
        values: ValueColumns | None = None,
    ) -> None:
        """resolve: the range of each segment, in the order of reading; called once. values: fields that are columns."""
        self._values = values
        self._stream, self._check_open = stream, check_open

        def resolved(snapshot: Snapshot) -> tuple[bytes, Ranges, list[ScanSlice]]:
            ranges = resolve(snapshot)
            return snapshot.record.id, ranges, _planned(snapshot, ranges)

        self._stream_id, self._ranges, slices = stream.query(resolved)
        self._events = _events(stream, slices, check_open)

    def __iter__(self) -> Iterator[Event]:
        return self._events

    def __next__(self) -> Event:
        return next(self._events)

    def __repr__(self) -> str:
        size = sum(end - start for start, end in self._ranges.values())
        return f"EventRange({self._stream.key!r}, {counted(size, 'byte')} in {counted(len(self._ranges), 'segment')})"

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The batches of `to_batches`, for any library with Arrow's C stream interface, such as polars and DuckDB."""
        return self.to_batches().__arrow_c_stream__(requested_schema)

    def to_batches(self, columns: Sequence[str] | None = None) -> pa.RecordBatchReader:
        """The events in record batches of some MiB each, read on demand: memory stays bounded."""
        chosen = dict.fromkeys(self._columns() if columns is None else columns, True)
        values = None if self._values is None else self._values.chosen(chosen)
        return pa.RecordBatchReader.from_batches(schema_of(chosen, self._values), self._batches(chosen, values))

    def _columns(self) -> Sequence[str]:
        """The default columns: fields of values stand for the event."""
        return COLUMNS if self._values is None else (*self._values.schema.names, *COLUMNS[1:])

    def to_arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        """All events as a table, in memory."""
        return self.to_batches(columns).read_all()

    def to_pandas(self, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """All events as a data frame, in memory. ImportError without pandas."""
        return self.to_arrow(columns).to_pandas()

    def _batches(self, columns: dict[str, bool], values: ValueColumns | None) -> Iterator[pa.RecordBatch]:
        stream, numbered = self._stream, not NUMBERED.isdisjoint(columns)
        slices = stream.query(partial(self._planned_again, numbered=numbered))
        made = EventColumns(_Whole(stream.scope, stream.name), columns, values)
        self._check_open()
        for events in SliceReader(stream.root, stream.scope, stream.name, wanted=made.most_bytes).read(slices):
            self._check_open()
            yield from made.batches(events)

    def _planned_again(self, snapshot: Snapshot, numbered: bool) -> list[ScanSlice]:
        snapshot.require(self._stream_id)
        return _planned(snapshot, self._ranges, numbered)


def read_events(
    stream: Stream,
    start: StreamPosition = "head",
    end: StreamPosition = "tail",
    check_open: Callable[[], None] = lambda: None,
    values: ValueColumns | None = None,
) -> EventRange:
    """The events between two positions, by default all that exist now: segment by segment, in order within each.

    The range is resolved at once. check_open: raises Closed once nothing more may be read. Raises StreamNotFound,
    InvalidStreamCut, TruncatedData (while reading too).
    """

    def resolved(snapshot: Snapshot) -> Ranges:
        return snapshot.ranges(cut_at(start, snapshot, "head"), cut_at(end, snapshot, "tail"))

    return EventRange(stream, resolved, check_open, values)


def _begin(start: StreamPosition, snapshot: Snapshot) -> StreamCut:
    """The cut to follow from. Raises InvalidStreamCut."""
    cut = cut_at(start, snapshot, "tail")
    snapshot.check(cut)
    return cut


def follow(follower: Follower, stop: threading.Event | Callable[[], bool] | None = None) -> Iterator[Event]:
    """The events that a follower finds, as they come.

    stop: ends the iteration at the next poll, when it is set or returns true. Without it, the iteration ends when the
    stream is sealed and everything was read. Raises as `read_events`.
    """
    stopped = stop.is_set if isinstance(stop, threading.Event) else stop
    pause = stop.wait if isinstance(stop, threading.Event) else time.sleep
    while stopped is None or not stopped():
        end, events = follower.poll()
        if events is not None:
            yield from events
            follower.position = end
        elif follower.at_end:
            return
        else:
            pause(follower.due_in())


class Follower:
    """Polls a stream for events behind a position, which its owner moves once it has them.

    poll_interval: maximum seconds between two polls of an idle stream. A poll reads one object, and followers of one
    open root share polls. at_end: whether the last poll found the stream sealed and nothing left to read. It blocks, so
    event loops poll in other threads.
    """

    def __init__(
        self, stream: Stream, position: StreamCut, poll_interval: float, check_open: Callable[[], None]
    ) -> None:
        self.position = position
        self.at_end = False
        self._seen: State | None = None  # in which there was nothing behind the position
        self._stream = stream
        self._poll_interval = poll_interval
        self._check_open = check_open

    def poll(self, max_bytes: int | None = None) -> tuple[StreamCut, Iterator[Event] | None]:
        """The cut up to which there are events, and these, which are read on demand; None if there are none.

        max_bytes: about how many at most; by default all. Raises as `read_events`, also while the events are read.
        """
        self._check_open()
        container = self._stream.container
        state = container.look(self._poll_interval)
        if state is self._seen:
            return self.position, None
        end, sealed, slices = self._stream.query(partial(_new_ranges, self.position, max_bytes), refresh=False)
        if slices:
            return end, _events(self._stream, slices, self._check_open, container.cache)
        self.at_end, self._seen = sealed, state  # the query may have used a newer state, never an older one
        return self.position, None

    def due_in(self) -> float:
        """Seconds until the next poll makes a request."""
        return self._stream.container.due_in(self._poll_interval)


def begin_following(
    stream: Stream, start: StreamPosition, poll_interval: float, check_open: Callable[[], None]
) -> Follower:
    """A follower from a position, which is resolved at once. Raises InvalidStreamCut."""
    return Follower(stream, stream.query(partial(_begin, start)), poll_interval, check_open)


def _new_ranges(
    position: StreamCut, max_bytes: int | None, snapshot: Snapshot
) -> tuple[StreamCut, bool, list[ScanSlice]]:
    """The tail or a cut before it, whether the stream is sealed, and the slices up to the cut."""
    end = snapshot.tail_cut()
    if max_bytes is not None:
        ranges, _ = snapshot.available(snapshot.ranges(position, end))
        if sum(high - low for low, high in ranges.values()) > max_bytes:
            end = snapshot.next_cut(position, end, max_bytes=max_bytes)
    return end, snapshot.record.sealed, _planned(snapshot, snapshot.ranges(position, end))


def _planned(snapshot: Snapshot, wanted: Ranges, numbered: bool = False) -> list[ScanSlice]:
    """The slices of these ranges. Raises TruncatedData."""
    ranges, _ = snapshot.available(wanted)
    return plan_slices(snapshot, ranges, SLICE_BYTES, numbered=numbered)


def _events(
    stream: Stream, slices: Sequence[ScanSlice], check_open: Callable[[], None], cache: Cache | None = None
) -> Iterator[Event]:
    check_open()
    for events in SliceReader(stream.root, stream.scope, stream.name, wanted=MAX_EVENT_SIZE, cache=cache).read(slices):
        check_open()
        yield from events_of(stream, events)


def events_of(stream: Stream, events: Events) -> Iterator[Event]:
    """The events of a scan, one by one."""
    data = events.data
    if events.large:
        yield LazyEvent(LazyPayload.found(stream, events), events.segment_id, events.offset, stream.scope, stream.name)
        return
    for start, length in zip(events.starts.tolist(), events.lengths.tolist(), strict=True):
        begin = start + HEADER_SIZE
        payload = Payload(data[begin : begin + length])
        yield Event(payload, events.segment_id, events.offset + start, stream.scope, stream.name)
