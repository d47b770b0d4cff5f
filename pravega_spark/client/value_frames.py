"""Frames of structured rows: the columns of each row become an event, by a format of values (X7).

Encodes a part of a batch at a time, so that a frame of any length takes bounded memory.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from pravega_spark.streams.model.arrays import plain_type, plain_values
from pravega_spark.streams.model.stream_record import StreamRecord
from pravega_spark.streams.stream import Stream
from pravega_spark.streams.values.codec import UnencodableValue
from pravega_spark.streams.values.ddl import checked_schema
from pravega_spark.streams.values.value_format import (
    EVENT_COLUMNS,
    READ_COLUMNS,
    ValueFormat,
    accepts,
    check_fit,
    value_encoder,
    value_format_of,
)

ROWS = 64 << 10
BYTES = 16 << 20
"""The most rows and bytes of a frame that are encoded and framed at a time, however large its batches are."""

_KEY = "routing_key"


def encoded(
    batches: pa.RecordBatchReader, format: ValueFormat, stream: Stream, record: StreamRecord
) -> pa.RecordBatchReader:
    """Batches with the columns `event` and, if the frame has it, `routing_key`. record: that of the stream.

    Raises ValueError at once for columns that do not fit the format, or a format that is not the one that the stream
    keeps, and UnencodableValue on the way for a value that has no form in it.
    """
    _check_kept(format, stream, record)
    fields = _fields(batches.schema)
    columns = checked_schema(fields)
    check_fit(format, columns, "value_format")
    made = [pa.field("event", pa.large_binary())]
    if _KEY in batches.schema.names:
        made.append(batches.schema.field(_KEY))
    schema = pa.schema(made)
    return pa.RecordBatchReader.from_batches(schema, _encoded(batches, format, columns, schema))


def _check_kept(format: ValueFormat, stream: Stream, record: StreamRecord) -> None:
    kept = value_format_of(record)
    if kept is not None and not accepts(kept, format):
        raise ValueError(
            f"value_format is {format.format} of {format.schema}, but stream {stream.key} keeps its values as "
            f"{kept.format} of {kept.schema}: give manager.value_format({stream.scope!r}, {stream.name!r}), or change "
            "what the stream keeps (set_value_format)"
        )


def _fields(schema: pa.Schema) -> list[pa.Field]:
    """The fields of values among the columns of a frame. Raises ValueError."""
    if not {*schema.names} >= READ_COLUMNS:
        for name in schema.names:
            if name in EVENT_COLUMNS and name != _KEY:
                raise ValueError(
                    f"column {name!r} of data has the name of a column of a stream, so it cannot be a field of the "
                    "event: rename it, or drop it"
                )
    fields = [field.with_type(plain_type(field.type)) for field in schema if field.name not in EVENT_COLUMNS]
    if not fields:
        raise ValueError(
            f"data has no columns to put into an event with value_format: its columns are {', '.join(schema.names)}"
        )
    return fields


def _encoded(
    batches: pa.RecordBatchReader, format: ValueFormat, columns: pa.Schema, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    encoder = value_encoder(format)
    for batch in batches:
        for part in _parts(batch):
            values = [_cast(part.column(field.name), field) for field in columns]
            events = encoder.encode(pa.RecordBatch.from_arrays(values, schema=columns)).cast(pa.large_binary())
            yield pa.RecordBatch.from_arrays([events, *(part.column(name) for name in schema.names[1:])], schema=schema)


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    rows = min(ROWS, max(1, BYTES * batch.num_rows // max(1, batch.nbytes)))
    for first in range(0, batch.num_rows, rows):
        yield batch.slice(first, rows)


def _cast(column: pa.Array, field: pa.Field) -> pa.Array:
    """A column in the type that codecs know. Raises UnencodableValue for a value that it cannot hold."""
    try:
        return plain_values(column).cast(field.type)
    except pa.ArrowInvalid as error:
        raise UnencodableValue(
            f"column {field.name!r} of data has a value that {field.type} cannot hold: {error}"
        ) from None
