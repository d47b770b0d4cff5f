"""The columns of a read: those that a stream has, those that a user chooses, and those into which SQL inserts.

Spark does not tell a Python data source which columns a query needs, so users who need few of them give a schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pravega_spark.source.options import SourceOptions
    from pravega_spark.streams.model.watermarks import TimeWindow

READ_COLUMNS = {"event": "binary", "scope": "string", "stream": "string", "segment_id": "bigint", "offset": "bigint"}
METADATA_COLUMNS = {"timestamp": "timestamp", "event_pointer": "string", "event_number": "bigint"}
"""The columns of a read, and those that option `include_metadata` adds: names and Spark's types."""

TIME_COLUMNS = {"lower_time_bound": "bigint", "upper_time_bound": "bigint"}
"""Those that option `time_window` adds."""

ALL_COLUMNS = {**READ_COLUMNS, **METADATA_COLUMNS, **TIME_COLUMNS}

INSERT_COLUMNS = {"event": "string", "routing_key": "string"}
"""The columns that differ with option `insertable`. Spark casts a binary event to a string without changing its bytes,
but refuses to cast a string to binary in an INSERT, so a string takes both."""


def read_columns(options: SourceOptions) -> dict[str, str]:
    """The columns of a read with these options, except fields of values. `event_columns` has the Arrow types of those
    that a stream has."""
    columns = READ_COLUMNS
    if options.include_metadata:
        columns = READ_COLUMNS | METADATA_COLUMNS
    elif options.large_events == "reference":
        columns = {**READ_COLUMNS, "event_pointer": "string"}
    if options.time_window:
        columns = {**columns, **TIME_COLUMNS}
    if options.value_format != "raw":  # fields stand for the event
        columns = {name: kind for name, kind in columns.items() if name != "event"}
        return {"routing_key": "string", **columns} if options.insertable else columns
    return {**INSERT_COLUMNS, **columns, **INSERT_COLUMNS} if options.insertable else columns


def chosen_columns(schema: StructType, options: SourceOptions) -> dict[str, bool]:
    """The columns of a schema, which a user may have given, and whether each may be null.

    They are columns of a read with these options, in any order; with option `value_format` other columns are fields of
    values. Raises ValueError for an unknown column, or one of another type.
    """
    known = {**ALL_COLUMNS, **(INSERT_COLUMNS if options.insertable else {})}
    if options.value_format != "raw":
        _check_collisions(schema, options)
    for field in schema.fields:
        if options.value_format != "raw" and field.name not in known:
            continue
        if field.name not in known:
            raise ValueError(
                f"Column {field.name!r} of the given schema is not a column of a stream: choose among "
                f"{', '.join(known)}."
            )
        if field.dataType.simpleString() != known[field.name]:
            raise ValueError(
                f"Column {field.name!r} of the given schema has type {field.dataType.simpleString()} instead of "
                f"{known[field.name]}: give it this type, and cast the column after the read."
            )
    if {*schema.names} <= {"routing_key"}:
        raise ValueError(f"The given schema has no columns of a stream: choose among {', '.join(known)}.")
    return {field.name: field.nullable for field in schema.fields}


def _check_collisions(schema: StructType, options: SourceOptions) -> None:
    """Raise ValueError if a column of a stream is probably meant as a field of values, which has the same name."""
    for field in schema.fields:
        kind = field.dataType.simpleString()
        if schema.names.count(field.name) > 1:
            raise ValueError(f"Column {field.name!r} is in the schema twice: keep one.")
        needed = _option_for(field.name, options)
        hidden = needed != "" or (field.name == "routing_key" and not options.insertable)
        if (hidden and not (options.large_events == "reference" and field.name == "event_pointer")) or (
            field.name in ALL_COLUMNS and kind != _type_of(field.name, options)
        ):
            told = f" Set option {needed or 'include_metadata'!r} to true to read that column." if hidden else ""
            raise ValueError(
                f"Column {field.name!r} of the given schema has the name of a column of the stream, so it cannot be a "
                f"field of the event.{told} To read a field of this name, read the events as bytes and decode them in "
                "the query."
            )


def _option_for(name: str, options: SourceOptions) -> str:
    """The option that adds a column, if it is not given."""
    if name in METADATA_COLUMNS and not options.include_metadata:
        return "include_metadata"
    return "time_window" if name in TIME_COLUMNS and not options.time_window else ""


def _type_of(name: str, options: SourceOptions) -> str:
    inserted = INSERT_COLUMNS if options.insertable else {}
    return {**ALL_COLUMNS, **inserted}[name]


def read_schema(options: SourceOptions) -> str:
    """The same columns as a schema in Spark's text form."""
    return ", ".join(f"{name} {kind}" for name, kind in read_columns(options).items())


def as_insertable(batch: pa.RecordBatch, columns: Mapping[str, bool]) -> pa.RecordBatch:
    """A batch of a stream's columns as one of an insertable read: events are strings of the same bytes, valid UTF-8 or
    not, as Spark's CAST makes them, and routing keys are null.

    columns: those of the read, in order, and whether each may be null.
    """
    import pyarrow as pa

    made: dict[str, pa.Array] = {}
    for name in columns:
        if name == "routing_key":
            made[name] = pa.nulls(batch.num_rows, pa.string())
        else:
            made[name] = batch.column(name).view(pa.string()) if name == "event" else batch.column(name)
    fields = [pa.field(name, column.type, columns[name]) for name, column in made.items()]
    return pa.RecordBatch.from_arrays(list(made.values()), schema=pa.schema(fields))


def with_window(batch: pa.RecordBatch, columns: Mapping[str, bool], window: TimeWindow) -> pa.RecordBatch:
    """A batch with the bounds of its time among its columns, which are `columns`, each with whether it may be null."""
    import pyarrow as pa

    bounds = {name: pa.scalar(bound, pa.int64()) for name, bound in zip(TIME_COLUMNS, window, strict=True)}
    made = [pa.repeat(bounds[name], batch.num_rows) if name in bounds else batch.column(name) for name in columns]
    fields = [
        pa.field(name, array.type, nullable if name in bounds else batch.schema.field(name).nullable)
        for (name, nullable), array in zip(columns.items(), made, strict=True)
    ]
    return pa.RecordBatch.from_arrays(made, schema=pa.schema(fields))
