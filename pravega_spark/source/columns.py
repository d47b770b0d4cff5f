"""Arrow batches in the read schema, from the events of a slice. No Python object per event."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from pravega_spark.source.options import SourceOptions
from pravega_spark.streams.events import event_column
from pravega_spark.streams.scan import Events

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


class Columns:
    """Makes record batches for one stream; the columns that repeat one value are made once."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._scope = pa.repeat(pa.scalar(options.scope), 0)
        self._stream = pa.repeat(pa.scalar(options.stream), 0)

    def batches(self, events: Events) -> Iterator[pa.RecordBatch]:
        """The events, cut into batches."""
        first = 0
        while first < len(events.starts):
            last = int(np.searchsorted(events.starts, events.starts[first] + BATCH_BYTES))
            last = max(min(last, first + BATCH_ROWS), first + 1)
            yield self._batch(events, first, last)
            first = last

    def _batch(self, events: Events, first: int, last: int) -> pa.RecordBatch:
        starts, rows = events.starts[first:last], last - first
        self._check_size(events, first, last)
        if len(self._scope) < rows:
            self._scope = pa.repeat(pa.scalar(self._options.scope), rows)
            self._stream = pa.repeat(pa.scalar(self._options.stream), rows)
        columns = [
            event_column(events.data, starts, events.lengths[first:last]),
            self._scope.slice(0, rows),
            self._stream.slice(0, rows),
            pa.array(np.full(rows, events.segment_id, np.int64)),
            pa.array(starts + events.offset),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)

    def _check_size(self, events: Events, first: int, last: int) -> None:
        largest = int(events.lengths[first:last].max())
        if largest > self._options.max_event_bytes:
            row = first + int(np.argmax(events.lengths[first:last]))
            raise ValueError(
                f"Stream {self._options.scope}/{self._options.stream}, segment {events.segment_id}, offset "
                f"{events.offset + int(events.starts[row])}: an event of {largest} bytes exceeds option "
                f"'max_event_bytes' ({self._options.max_event_bytes}); raise the option to read it"
            )
