"""Arrow batches in the read schema, from the events of a slice. No Python object per event."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pravega_spark.segment_ids import segment_label
from pravega_spark.streams.events import HEADER_SIZE, event_column
from pravega_spark.streams.names import segment_name
from pravega_spark.streams.pointers import EventPointer
from pravega_spark.streams.scan import Events

if TYPE_CHECKING:
    from pravega_spark.source.options import SourceOptions

BATCH_BYTES = 4 << 20
BATCH_ROWS = 10_000
"""How much of a slice is handed to Spark at once: enough to be efficient, little enough to keep both sides busy."""

SCHEMA = pa.schema(
    [
        ("event", pa.binary()),
        ("scope", pa.string()),
        ("stream", pa.string()),
        ("segment_id", pa.int64()),
        ("offset", pa.int64()),
    ]
)
_POINTER = pa.field("event_pointer", pa.string())
_TIME = pa.timestamp("us", tz="UTC")
WITH_METADATA = pa.schema([*SCHEMA, pa.field("timestamp", _TIME), _POINTER, pa.field("event_number", pa.int64())])


def schema_of(options: SourceOptions) -> pa.Schema:
    """The columns of a read with these options; `provider.read_schema` says the same to Spark."""
    if options.include_metadata:
        return WITH_METADATA
    return pa.schema([*SCHEMA, _POINTER]) if options.large_events == "reference" else SCHEMA


class EventColumns:
    """Makes record batches for one stream; the columns that repeat one value are made once."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._schema = schema_of(options)
        self._scope = pa.repeat(pa.scalar(options.scope), 0)
        self._stream = pa.repeat(pa.scalar(options.stream), 0)

    def batches(self, events: Events) -> Iterator[pa.RecordBatch]:
        """The events, cut into batches. Raises ValueError for one that is too large."""
        first = 0
        while first < len(events.starts):
            last = int(np.searchsorted(events.starts, events.starts[first] + BATCH_BYTES))
            last = max(min(last, first + BATCH_ROWS), first + 1)
            yield self._batch(events, first, last)
            first = last

    def _batch(self, events: Events, first: int, last: int) -> pa.RecordBatch:
        starts, rows = events.starts[first:last], last - first
        if len(self._scope) < rows:
            self._scope = pa.repeat(pa.scalar(self._options.scope), rows)
            self._stream = pa.repeat(pa.scalar(self._options.stream), rows)
        columns = [
            self._payloads(events, first, last),
            self._scope.slice(0, rows),
            self._stream.slice(0, rows),
            pa.array(np.full(rows, events.segment_id, np.int64)),
            pa.array(starts + events.offset),
        ]
        if self._options.include_metadata:
            columns += self._metadata(events, first, last)
        elif self._options.large_events == "reference":
            columns.append(self._references(events, first, last, columns[0]))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _payloads(self, events: Events, first: int, last: int) -> pa.Array:
        """The column `event`."""
        lengths, limit = events.lengths[first:last], self._options.max_event_bytes
        if int(lengths.max()) > limit and self._options.large_events != "inline":
            row = first + int(np.argmax(lengths > limit))
            if self._options.large_events == "error":
                raise self._too_large(events, row)
            if not len(events.data):
                return pa.nulls(last - first, pa.binary())
            there = lengths <= limit
            payloads = event_column(events.data, events.starts[first:last], lengths)
            return pc.if_else(pa.array(there), payloads, pa.scalar(None, pa.binary()))
        if events.large:  # its memory is not used again, so it need not be copied
            bounds = pa.py_buffer(np.array([0, lengths[0]], np.int32))
            data = pa.py_buffer(events.data).slice(HEADER_SIZE)
            return pa.Array.from_buffers(pa.binary(), 1, [None, bounds, data])
        return event_column(events.data, events.starts[first:last], lengths)

    def _references(self, events: Events, first: int, last: int, payloads: pa.Array) -> pa.Array:
        """The pointers of those events that are not there."""
        if not payloads.null_count:
            return pa.nulls(last - first, pa.string())
        return pc.if_else(payloads.is_null(), self._pointers(events, first, last), pa.scalar(None, pa.string()))

    def _pointers(self, events: Events, first: int, last: int) -> pa.Array:
        """The pointers of events as texts."""
        segment = segment_name(self._options.scope, self._options.stream, events.segment_id)
        offsets = pa.array(events.starts[first:last] + events.offset).cast(pa.string())
        lengths = pa.array(events.lengths[first:last] + HEADER_SIZE).cast(pa.string())
        return pc.binary_join_element_wise(pa.scalar(f"{segment}:"), offsets, pa.scalar("-"), lengths, "")

    def _metadata(self, events: Events, first: int, last: int) -> list[pa.Array]:
        assert events.times is not None
        times = pa.array(events.times[first:last] * 1000).cast(_TIME)
        numbers = pa.array(np.arange(events.first + first, events.first + last, dtype=np.int64))
        return [times, self._pointers(events, first, last), numbers]

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
