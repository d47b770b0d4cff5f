"""The columns of values in reads and writes with option `value_format`, and their types in Spark and in Arrow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
from pyspark.sql import types as spark

from pravega_spark.errors import InvalidValueSchema
from pravega_spark.streams.values.columns import ValueColumns
from pravega_spark.streams.values.ddl import TYPE_NAMES, checked_schema, schema_text
from pravega_spark.streams.values.value_format import (
    EVENT_COLUMNS,
    READ_COLUMNS,
    ValueFormat,
    accepts,
    check_fit,
    value_decoder,
    value_encoder,
    value_format_of,
)

if TYPE_CHECKING:
    from pravega_spark.source.options import SourceOptions
    from pravega_spark.streams.model.stream_record import StreamRecord

_TYPES: Sequence[tuple[type[spark.DataType], pa.DataType]] = (
    (spark.BooleanType, pa.bool_()),
    (spark.ByteType, pa.int8()),
    (spark.ShortType, pa.int16()),
    (spark.IntegerType, pa.int32()),
    (spark.LongType, pa.int64()),
    (spark.FloatType, pa.float32()),
    (spark.DoubleType, pa.float64()),
    (spark.StringType, pa.string()),
    (spark.BinaryType, pa.binary()),
    (spark.DateType, pa.date32()),
    (spark.TimestampType, pa.timestamp("us", tz="UTC")),
    (spark.TimestampNTZType, pa.timestamp("us")),
)


def arrow_field(field: spark.StructField, path: str = "") -> pa.Field:
    """A column as Spark exchanges it with Python. Raises InvalidValueSchema for a type that values cannot have."""
    return pa.field(field.name, _arrow_type(field.dataType, path + field.name), field.nullable)


def _arrow_type(kind: spark.DataType, path: str) -> pa.DataType:
    if isinstance(kind, spark.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, spark.ArrayType):
        return pa.list_(pa.field("element", _arrow_type(kind.elementType, f"{path}[]"), kind.containsNull))
    if isinstance(kind, spark.MapType):
        item = pa.field("value", _arrow_type(kind.valueType, f"{path}[]"), kind.valueContainsNull)
        return pa.map_(pa.field("key", _arrow_type(kind.keyType, path), nullable=False), item)
    if isinstance(kind, spark.StructType):
        return pa.struct([arrow_field(field, f"{path}.") for field in kind.fields])
    for one, arrow in _TYPES:
        if isinstance(kind, one):
            return arrow
    raise InvalidValueSchema(
        f"Column {path!r} has type {kind.simpleString()}, which option 'value_format' cannot hold: cast it to one of "
        f"{', '.join(TYPE_NAMES)}."
    )


def spark_type(kind: pa.DataType) -> spark.DataType:
    """The inverse of `_arrow_type`, for types of values."""
    if pa.types.is_decimal(kind):
        return spark.DecimalType(kind.precision, kind.scale)
    if pa.types.is_list(kind):
        return spark.ArrayType(spark_type(kind.value_type))
    if pa.types.is_map(kind):
        return spark.MapType(spark.StringType(), spark_type(kind.item_type))
    if pa.types.is_struct(kind):
        return spark.StructType([spark.StructField(field.name, spark_type(field.type)) for field in kind])
    return next(one() for one, arrow in _TYPES if arrow.equals(kind))


_EVENT_TYPES: Mapping[str, spark.DataType] = {
    "binary": spark.BinaryType(),
    "string": spark.StringType(),
    "bigint": spark.LongType(),
    "timestamp": spark.TimestampType(),
}


def schema_with_values(options: SourceOptions, columns: Mapping[str, str]) -> spark.StructType:
    """The schema of a read without a schema of the user: the fields of the values, and the columns of the stream."""
    format = value_format(options)
    if format is None:
        raise ValueError(
            f"Option 'value_format' is {options.value_format}, but the schema of the values is not known: give one of "
            "their columns, as in spark.read.schema('id bigint, name string'), set option 'value_schema', or keep the "
            f"schema with the stream (pravega-spark stream update SCOPE/STREAM --value-format {options.value_format} "
            "--value-schema SCHEMA)."
        )
    fields = ValueColumns.of(format).schema
    values = [spark.StructField(field.name, spark_type(field.type)) for field in fields]
    return spark.StructType(values + [spark.StructField(name, _EVENT_TYPES[kind]) for name, kind in columns.items()])


def value_format(options: SourceOptions) -> ValueFormat | None:
    """The format that the options describe; None if they do not have the schema of the values."""
    if options.value_format == "raw" or options.value_schema is None:
        return None
    return ValueFormat(options.value_format, options.value_schema)


def stored_format(record: StreamRecord) -> ValueFormat | None:
    """The format that a stream keeps, if any."""
    return value_format_of(record)


def with_stored_format(options: SourceOptions) -> SourceOptions:
    """The options of a read with the schema of values that its stream keeps, if it keeps one.

    Raises ValueError if it keeps another format; ScopeNotFound, StreamNotFound.
    """
    from pravega_spark.source.opening import current_snapshot

    stored = stored_format(current_snapshot(options, "read").record)
    if stored is None:
        return options
    _check_format(stored, options)
    return replace(options, value_schema=stored.schema)


def _check_format(stored: ValueFormat, options: SourceOptions) -> None:
    if stored.format != options.value_format:
        raise ValueError(
            f"Option 'value_format' is {options.value_format}, but stream {options.scope}/{options.stream} keeps its "
            f"values as {stored.format}: set the option to that."
        )


def chosen_values(schema: spark.StructType, options: SourceOptions) -> ValueColumns | None:
    """The columns of a read's schema that are decoded from events; None if there are none. Raises ValueError."""
    fields = [arrow_field(field) for field in schema.fields if field.name not in EVENT_COLUMNS]
    if options.value_format == "raw" or not fields:
        return None
    wanted = checked_schema(fields)
    format = value_format(options)
    if format is None and options.value_format == "avro":
        raise ValueError(
            "Option 'value_format' is avro, and events can be decoded only with the Avro schema with which they were "
            "written: set option 'value_schema' to it, or keep it with the stream (pravega-spark stream update "
            "--value-format avro)."
        )
    format = format or ValueFormat("json", schema_text(wanted))
    value_decoder(format, wanted)  # refuses columns that do not fit
    return ValueColumns(format, pa.schema(fields), options.on_malformed)


# --- writes --------------------------------------------------------------------------------------------------------


class WrittenValues(NamedTuple):
    """The columns of a write that are encoded into events, and their format. A plain value, which travels to tasks."""

    format: ValueFormat
    names: tuple[str, ...]

    def encoded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with the encoded columns as column `event`, and the columns that route them."""
        events = value_encoder(self.format).encode(batch.select(list(self.names)))
        kept = [name for name in ("routing_key", "stream") if name in batch.schema.names and name not in self.names]
        return pa.RecordBatch.from_arrays([events, *map(batch.column, kept)], names=["event", *kept])


def fields_to_write(schema: spark.StructType, options: SourceOptions, all_columns: bool = False) -> list[pa.Field]:
    """The columns of a write that are fields of values. Raises ValueError for columns that cannot be written.

    all_columns: columns with the names of a stream's columns may be there, and are not written.
    """
    routing = {"routing_key", "stream"} if options.by_row else {"routing_key"}
    all_columns = all_columns or options.ignore_extra_columns or {*schema.names} >= READ_COLUMNS
    fields = []
    for field in schema.fields:
        if field.name not in EVENT_COLUMNS:
            fields.append(arrow_field(field))
        elif field.name not in routing and not all_columns:
            raise ValueError(_refusal(field.name, schema.names))
    if not fields:
        raise ValueError(
            f"Option 'value_format' is {options.value_format}, but the rows have no columns to put into an event: the "
            f"columns are {', '.join(schema.names) or 'none'}."
        )
    checked_schema(fields)
    return fields


def written_values(
    fields: Sequence[pa.Field], options: SourceOptions, stored: ValueFormat | None = None
) -> WrittenValues:
    """How fields of a write are encoded. stored: the format that the stream keeps. Raises ValueError if they do not
    fit it."""
    format = value_format(options)
    whose = "option 'value_schema'"
    if stored is not None:
        _check_format(stored, options)
        if format is not None and not accepts(stored, format):
            raise ValueError(
                f"Option 'value_schema' is not the schema that stream {options.scope}/{options.stream} keeps, "
                f"{stored.schema}: remove the option, or change what the stream keeps."
            )
        format, whose = stored, f"stream {options.scope}/{options.stream}"
    if options.ignore_extra_columns and format is not None:
        fields = [field for field in fields if field.name in format.fields().names]
    columns = checked_schema(fields)
    if format is None and options.value_format == "avro":
        from pravega_spark.streams.values.avro import avro_schema

        raise ValueError(
            "Option 'value_format' is avro, and events can be decoded only with the Avro schema with which they are "
            f"written: set option 'value_schema' to it. These columns have the schema {avro_schema(columns)}"
        )
    if format is None:
        format = ValueFormat("json", schema_text(columns))
    else:
        check_fit(format, columns, whose)
    return WrittenValues(format, tuple(columns.names))


def _refusal(name: str, columns: Sequence[str]) -> str:
    if name == "event":
        return (
            "Column 'event' is the encoded row in a write with option 'value_format': rename it, or remove the option "
            "to write it as it is."
        )
    if name == "stream":
        return (
            "Column 'stream' would be ignored, as option 'stream' writes all rows to one stream: remove the option to "
            "write each row to the stream that it names, or rename the column to put it into the event."
        )
    return (
        f"Column {name!r} has the name of a column that each read of a stream has, so it cannot be put into the event: "
        f"rename it, as in withColumnRenamed({name!r}, {f'{name}_'!r})."
    )
