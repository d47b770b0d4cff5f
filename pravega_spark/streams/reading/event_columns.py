"""Arrow batches of events, as Spark and Python read them, from the events of a slice. No Python object per event."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pravega_spark.errors import MalformedEvent
from pravega_spark.segment_ids import segment_label
from pravega_spark.streams.model.arrays import arrow_array, null_scalar, repeated, text_scalar
from pravega_spark.streams.model.events import HEADER_SIZE
from pravega_spark.streams.model.framing import event_column
from pravega_spark.streams.model.index import UNKNOWN_TIME
from pravega_spark.streams.model.names import segment_name
from pravega_spark.streams.model.pointers import EventPointer
from pravega_spark.streams.reading.slices import Events
from pravega_spark.streams.values.codec import MalformedValue
from pravega_spark.streams.values.columns import ValueColumns

BATCH_BYTES = 4 << 20
BATCH_ROWS = 10_000
"""Bytes of a batch: enough to be efficient, few enough to keep reader and consumer busy."""

_TYPES = {
    "event": pa.binary(),
    "scope": pa.string(),
    "stream": pa.string(),
    "segment_id": pa.int64(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "event_pointer": pa.string(),
    "event_number": pa.int64(),
}
ALL_COLUMNS = tuple(_TYPES)

NUMBERED = frozenset({"timestamp", "event_number"})
"""The columns that need numbered slices."""


class Reading(Protocol):
    """Options of a read. Events of more than `max_event_bytes` are an error, a reference, or inline."""

    @property
    def scope(self) -> str: ...
    @property
    def stream(self) -> str: ...
    @property
    def large_events(self) -> str: ...
    @property
    def max_event_bytes(self) -> int: ...
    @property
    def include_metadata(self) -> bool: ...


def schema_of(columns: Mapping[str, bool], values: ValueColumns | None = None) -> pa.Schema:
    """The schema of these columns, which may be nullable. ValueError for an unknown column.

    values: the columns that are decoded from events; `columns` has them too.
    """
    fields = {} if values is None else {field.name: field for field in values.schema}
    for name in columns:
        if name not in _TYPES and name not in fields:
            raise ValueError(f"{name!r} is no column of a stream: choose among {', '.join((*fields, *_TYPES))}")
    return pa.schema(
        [
            fields[name] if name in fields else pa.field(name, _TYPES[name], nullable)
            for name, nullable in columns.items()
        ]
    )


class EventColumns:
    """Builds record batches for one stream: the columns of `schema_of`, and none for other names.

    Columns of one repeated value are built once. most_bytes: the maximum payload of a large event that is read
    (bytes; None: any). values: the columns that are decoded from events. Events are read only for these and for the
    column `event`.
    """

    def __init__(self, options: Reading, columns: Mapping[str, bool], values: ValueColumns | None = None) -> None:
        self._options = options
        self._schema = schema_of(columns, values)
        self._values = [] if values is None else values.schema.names
        self._decode = None if values is None else values.decoder()
        self._repeated = {name: repeated(getattr(options, name), 0) for name in ("scope", "stream")}
        self._makers = {name: getattr(self, f"_{name}") for name in self._schema.names if name not in self._values}
        self.most_bytes = None if options.large_events == "inline" else options.max_event_bytes
        if "event" not in self._schema.names and not self._values:
            self.most_bytes = 0

    def batches(self, events: Events) -> Iterator[pa.RecordBatch]:
        """The events in batches. Raises ValueError for an event that is too large."""
        first = 0
        while first < len(events.starts):
            last = int(np.searchsorted(events.starts, events.starts[first] + BATCH_BYTES))
            last = max(min(last, first + BATCH_ROWS), first + 1)
            yield self._batch(events, first, last)
            first = last

    def _batch(self, events: Events, first: int, last: int) -> pa.RecordBatch:
        columns = {name: make(events, first, last) for name, make in self._makers.items()}
        if self._decode is not None:
            payloads = columns["event"] if "event" in columns else self._event(events, first, last)
            try:
                columns |= zip(self._values, self._decode(payloads), strict=True)
            except MalformedValue as malformed:
                raise self._malformed(events, first + malformed.row, malformed) from None
        return pa.RecordBatch.from_arrays([columns[name] for name in self._schema.names], schema=self._schema)

    def _scope(self, events: Events, first: int, last: int) -> pa.Array:
        return self._same("scope", last - first)

    def _stream(self, events: Events, first: int, last: int) -> pa.Array:
        return self._same("stream", last - first)

    def _same(self, name: str, rows: int) -> pa.Array:
        if len(self._repeated[name]) < rows:
            self._repeated[name] = repeated(getattr(self._options, name), rows)
        return self._repeated[name].slice(0, rows)

    def _segment_id(self, events: Events, first: int, last: int) -> pa.Array:
        return arrow_array(np.full(last - first, events.segment_id, np.int64))

    def _offset(self, events: Events, first: int, last: int) -> pa.Array:
        return arrow_array(events.starts[first:last] + events.offset)

    def _timestamp(self, events: Events, first: int, last: int) -> pa.Array:
        assert events.times is not None
        times = events.times[first:last]
        known = arrow_array(times * 1000).cast(_TYPES["timestamp"])
        if not len(times) or times.min() != UNKNOWN_TIME:
            return known
        return pc.if_else(arrow_array(times != UNKNOWN_TIME), known, pa.nulls(len(times), known.type))

    def _event_number(self, events: Events, first: int, last: int) -> pa.Array:
        return arrow_array(np.arange(events.first + first, events.first + last, dtype=np.int64))

    def _event_pointer(self, events: Events, first: int, last: int) -> pa.Array:
        """Pointers of all events; or, if large events are read by reference and there is no other metadata, of these
        only."""
        if self._options.large_events != "reference" or self._options.include_metadata:
            return self._pointers(events, first, last)
        left_out = events.lengths[first:last] > self._options.max_event_bytes
        if not left_out.any():
            return pa.nulls(last - first, pa.string())
        return pc.if_else(arrow_array(left_out), self._pointers(events, first, last), null_scalar(pa.string()))

    def _event(self, events: Events, first: int, last: int) -> pa.Array:
        lengths, limit = events.lengths[first:last], self._options.max_event_bytes
        if int(lengths.max()) > limit and self._options.large_events != "inline":
            row = first + int(np.argmax(lengths > limit))
            if self._options.large_events == "error":
                raise self._too_large(events, row)
            if not len(events.data):
                return pa.nulls(last - first, pa.binary())
            there = lengths <= limit
            payloads = event_column(events.data, events.starts[first:last], lengths)
            return pc.if_else(arrow_array(there), payloads, null_scalar(pa.binary()))
        if events.large:  # its memory is not reused, so it need not be copied
            bounds = pa.py_buffer(np.array([0, lengths[0]], np.int32))
            data = pa.py_buffer(events.data).slice(HEADER_SIZE)
            return pa.Array.from_buffers(pa.binary(), 1, [None, bounds, data])
        return event_column(events.data, events.starts[first:last], lengths)

    def _pointers(self, events: Events, first: int, last: int) -> pa.Array:
        """The pointers of events as texts."""
        segment = segment_name(self._options.scope, self._options.stream, events.segment_id)
        offsets = arrow_array(events.starts[first:last] + events.offset).cast(pa.string())
        lengths = arrow_array(events.lengths[first:last] + HEADER_SIZE).cast(pa.string())
        return pc.binary_join_element_wise(
            text_scalar(f"{segment}:"), offsets, text_scalar("-"), lengths, text_scalar("")
        )

    def _malformed(self, events: Events, row: int, malformed: MalformedValue) -> MalformedEvent:
        options = self._options
        stream, segment = f"{options.scope}/{options.stream}", segment_label(events.segment_id)
        offset = events.offset + int(events.starts[row])
        return MalformedEvent(stream, segment, offset, malformed.reason, malformed.forbidden_null)

    def _too_large(self, events: Events, row: int) -> ValueError:
        options, size = self._options, int(events.lengths[row])
        offset = events.offset + int(events.starts[row])
        pointer = EventPointer(options.scope, options.stream, events.segment_id, offset, HEADER_SIZE + size)
        return ValueError(
            f"Stream {options.scope}/{options.stream}, segment {segment_label(events.segment_id)}, offset {offset}: "
            f"an event of {size} bytes exceeds option 'max_event_bytes' ({options.max_event_bytes}). Raise it, or set "
            "option 'large_events' to 'reference' (return a pointer instead of the event) or 'inline' (return its "
            f"bytes anyway). Its pointer: {pointer}"
        )
