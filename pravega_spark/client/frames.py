"""Frames: tables of events of any library, written to a stream in one atomic append.

A frame is read batch by batch, and much of it goes to chunks while it is read, so its length does not matter to memory.
Keeps that readers see all of a frame or nothing: everything is checked and uploaded before the one append, and a frame
that fails before leaves no chunks.
"""

from __future__ import annotations

import reprlib
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from chunkstore import StorageError
from chunkstore.decoding import encoded
from engine.errors import EngineError
from pravega_spark.client.event_validation import row_ranges
from pravega_spark.client.reader import COLUMNS, EventRange
from pravega_spark.client.value_frames import encoded as encoded_frame
from pravega_spark.errors import StreamSealed
from pravega_spark.streams.maintenance.scheduler import after_commit
from pravega_spark.streams.model.arrays import TEXTS, plain_type, plain_values
from pravega_spark.streams.model.policies import OnChangedReplay
from pravega_spark.streams.reading.event_columns import ALL_COLUMNS
from pravega_spark.streams.stream import Stream
from pravega_spark.streams.values.value_format import ValueFormat
from pravega_spark.streams.writing.collector import Collector
from pravega_spark.streams.writing.event_numbers import MAX_NUMBER
from pravega_spark.streams.writing.producer_state import ProducerWrite
from pravega_spark.streams.writing.route_targets import RouteTargets
from pravega_spark.streams.writing.segment_outputs import appends_of

ROWS = 64 << 10
BYTES = 16 << 20
"""The most rows and bytes of a frame that are framed at a time, however large its batches are."""

_WRITTEN = ("event", "routing_key")
_EVENTS = (*TEXTS, pa.binary(), pa.large_binary(), pa.binary_view(), pa.null())
_KEYS = (*TEXTS, pa.null())


def producer_of(
    app_id: str | None, version: int | None, on_changed_replay: OnChangedReplay, accept_lost: bool
) -> ProducerWrite | None:
    """The idempotent write with these parameters of `StreamManager.write_events`; None without a name.

    Its producer is that of the options of the same names in Spark. Raises ValueError.
    """
    if (app_id is None) != (version is None):
        raise ValueError("txn_app_id and txn_version form one key: give both or neither")
    if app_id is None or version is None:
        return None
    if not app_id:
        raise ValueError("txn_app_id is empty: give a name that identifies the caller")
    if not 0 <= version <= MAX_NUMBER:
        raise ValueError(f"txn_version must be from 0 to {MAX_NUMBER}, not {version}")
    encoded(app_id, "txn_app_id")
    return ProducerWrite(f"txn:{app_id}", version, None, on_changed_replay, accept_lost)


def write_frame(
    stream: Stream, frame: Any, producer: ProducerWrite | None = None, values: ValueFormat | None = None
) -> bool:
    """Append all events of a frame, durable on return. False if the producer's write was committed before.

    values: how the columns of a row become its event; None: the event is a column.

    Raises TypeError, ValueError for what is no frame of events; StreamSealed; the errors of `Stream.write`.
    """
    batches = _reader(frame)
    rows = _rows(batches if values is None else encoded_frame(batches, values, stream))
    record = stream.snapshot().record
    if record.sealed and (producer is None or not stream.is_committed(producer)):
        raise StreamSealed(stream.key)
    routes = RouteTargets()
    routes.add(stream.name, record.routing, stream.number)
    collector = Collector(stream.container.stores.chunks, stream.scope, routes, producer is not None)
    try:
        for events, keys in rows:
            collector.add(events, routes.find_in_one(keys, len(events)))
        outputs = collector.finish(stream.container.settings.attach_bytes)
        parts = appends_of(outputs, collector.created_at() or 0)
    except BaseException:
        with suppress(StorageError):  # garbage collection will find them
            collector.drop()
        raise
    if producer is not None and collector.digests is not None:
        producer = producer._replace(digest=collector.digests[stream.name])
    if not parts:
        if producer is not None:
            stream.report_replay(producer)
        return True
    written = False
    try:
        written = stream.write(parts, producer, record.routing)
    finally:
        if not written and collector.chunks:
            with suppress(StorageError, EngineError):  # garbage collection will find them
                stream.discard(collector.chunks)
    after_commit(stream)
    return written


def _rows(batches: pa.RecordBatchReader) -> Iterator[tuple[pa.Array, pa.Array | None]]:
    """The events of batches, a part at a time, with the key of each, or None if no row has one. Raises TypeError,
    ValueError at once for columns that cannot be written, and ValueError on the way for a null event."""
    _check_columns(batches.schema)
    return _parts(batches)


def _reader(frame: Any) -> pa.RecordBatchReader:
    if isinstance(frame, EventRange):
        return frame.to_batches()  # its errors stay what they are
    if isinstance(frame, pa.RecordBatchReader):
        return frame
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(frame, pandas.DataFrame):  # its own stream has the index as a column
        frame = pa.Table.from_pandas(frame, preserve_index=False)
    with suppress(pa.ArrowInvalid):  # one column, not a table
        if hasattr(frame, "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(frame)
        if hasattr(frame, "__arrow_c_array__"):
            batch = pa.record_batch(frame)
            return pa.RecordBatchReader.from_batches(batch.schema, [batch])
    given = (
        f"{reprlib.repr(frame)} ({type(frame).__name__}){': give data.collect()' if hasattr(frame, 'collect') else ''}"
    )
    raise TypeError(
        "data must be a table with Arrow's C stream interface, such as pyarrow.Table, pyarrow.RecordBatchReader, a "
        f"result of DuckDB, or a DataFrame of polars or pandas, not {given}"
    )


def _check_columns(schema: pa.Schema) -> None:
    """Raise TypeError, ValueError for columns that cannot be written, or would be dropped."""
    types = {field.name: plain_type(field.type) for field in schema}
    if "event" not in types:
        raise ValueError(f"data has no column 'event': its columns are {', '.join(types) or 'none'}; rename one")
    if types["event"] not in _EVENTS:
        raise TypeError(f"column 'event' of data must hold strings or binary, not {types['event']}: cast it, to JSON")
    if types.get("routing_key", pa.null()) not in _KEYS:
        raise TypeError(f"column 'routing_key' of data must hold strings, not {types['routing_key']}: cast it")
    of_a_read = ALL_COLUMNS if types.keys() >= set(COLUMNS) else ()  # they do not apply to the copy
    extra = [name for name in types if name not in (*_WRITTEN, *of_a_read)]
    if extra or len(types) < len(schema):
        raise ValueError(
            f"columns {', '.join(extra or schema.names)} of data would be dropped, as only event and routing_key are "
            "written: give a value_format, which makes events of them, or select these two"
        )


def _parts(batches: pa.RecordBatchReader) -> Iterator[tuple[pa.Array, pa.Array | None]]:
    row = 0
    for batch in batches:
        for first in range(0, batch.num_rows, ROWS):
            part = batch.slice(first, ROWS)
            events = plain_values(part.column("event"))
            if events.null_count:
                null = row + first + pc.index(pc.is_null(events), True).as_py()
                raise ValueError(
                    f"column 'event' of data is null in row {null}: filter out such rows, or give them an empty event"
                )
            events = events.cast(pa.large_binary())
            keys = plain_values(part.column("routing_key")) if "routing_key" in batch.schema.names else None
            for start, end in row_ranges(events, BYTES):
                count = end - start
                yield events.slice(start, count), keys.slice(start, count) if keys is not None else None
        row += batch.num_rows
