"""The format of a stream's values, with their schema."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from pravega_spark.errors import InvalidValueSchema, ValueFormatFixed
from pravega_spark.streams.model.stream_record import StoredValueFormat, StreamRecord
from pravega_spark.streams.values.codec import Decoder, Encoder, OnMalformed

if TYPE_CHECKING:
    import pyarrow as pa

FormatName = Literal["json", "avro"]
FORMATS: tuple[FormatName, ...] = get_args(FormatName)


EVENT_COLUMNS = (
    "event",
    "scope",
    "stream",
    "segment_id",
    "offset",
    "timestamp",
    "event_pointer",
    "event_number",
    "routing_key",
)
"""Names of columns that a field of a value cannot have in a read or write, as they mean something else there."""

READ_COLUMNS = frozenset({"scope", "stream", "segment_id", "offset"})
"""The columns that each read with a value format returns. Where rows have all of them, they are not copied."""


@dataclass(frozen=True)
class ValueFormat:
    """How events hold values, and the schema with which they were written.

    schema: of json, Spark's DDL text of the fields, such as `id bigint, name string`; of avro, an Avro schema as JSON,
    a record. Raises InvalidValueSchema, ValueError for an unknown format, and ImportError if avro is not installed.
    """

    format: FormatName
    schema: str

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise ValueError(f"a value format must be one of {', '.join(FORMATS)}, not {self.format!r}")
        self.fields()

    def fields(self) -> pa.Schema:
        """The fields of a value, and their Arrow types."""
        if self.format == "avro":
            from pravega_spark.streams.values.avro import AvroSchema

            return AvroSchema(self.schema).fields
        from pravega_spark.streams.values.ddl import parse_schema

        return parse_schema(self.schema)


def value_format_of(record: StreamRecord) -> ValueFormat | None:
    """The format that a stream keeps, if any."""
    return None if record.values is None else ValueFormat(*record.values)


def stored_values(values: ValueFormat, record: StreamRecord, stream: str) -> StoredValueFormat:
    """What the record of a stream keeps of a format instead of what it has. stream: its name, for errors.

    Raises ValueFormatFixed for another Avro schema than the stream has, as it would misread the stream's events, and
    InvalidValueSchema for a field with the name of a column of a read.
    """
    refuse_event_columns(values.fields().names)
    stored, known = StoredValueFormat(values.format, values.schema), record.values
    if known is not None and known.format == "avro" and stored != known:
        raise ValueFormatFixed(stream)
    return stored


def value_decoder(values: ValueFormat, wanted: pa.Schema | None = None, on_malformed: OnMalformed = "fail") -> Decoder:
    """Decodes events into some fields, by default all. A wanted field that values do not have is null.

    Raises InvalidValueSchema if the type of a wanted field does not fit that of the values.
    """
    wanted = values.fields() if wanted is None else wanted
    if values.format == "avro":
        from pravega_spark.streams.values.avro import AvroDecoder

        return AvroDecoder(values.schema, wanted, on_malformed)
    from pravega_spark.streams.values.json_decoding import JsonDecoder

    return JsonDecoder(wanted, on_malformed)


def value_encoder(values: ValueFormat) -> Encoder:
    """Encodes columns that fit (`check_fit`)."""
    if values.format == "avro":
        from pravega_spark.streams.values.avro import AvroEncoder

        return AvroEncoder(values.schema)
    from pravega_spark.streams.values.json_encoding import JsonEncoder

    return JsonEncoder()


def accepts(kept: ValueFormat, written: ValueFormat) -> bool:
    """Whether values of another format may be written to a stream that keeps `kept`."""
    return kept == written or (kept.format == written.format == "json" and not _misfits(kept, written.fields()))


def check_fit(values: ValueFormat, columns: pa.Schema, whose: str) -> None:
    """Raise ValueError if columns cannot be written as values of this schema. whose: where the schema is from."""
    misfits = _misfits(values, columns)
    if misfits:
        from pravega_spark.streams.values.ddl import schema_text

        raise ValueError(
            f"The columns do not fit the schema of {whose}, {schema_text(values.fields())}: {', and '.join(misfits)}."
            " Cast, add or drop columns."
        )


def _misfits(values: ValueFormat, written: pa.Schema) -> list[str]:
    """What is wrong with columns that are to be written as values of this schema, a clause for each problem."""
    from pravega_spark.streams.values.ddl import type_text

    fields = values.fields()
    found = []
    for column in written:
        if column.name not in fields.names:
            found.append(f"column {column.name!r} ({type_text(column.type)}) is not in it")
        elif not _fits(column.type, fields.field(column.name).type):
            wanted = type_text(fields.field(column.name).type)
            found.append(f"column {column.name!r} is {type_text(column.type)} instead of {wanted}")
    found += [
        f"column {field.name!r} ({type_text(field.type)}, not null) is missing"
        for field in fields
        if not field.nullable and field.name not in written.names
    ]
    return found


def refuse_event_columns(names: list[str]) -> None:
    """Raise InvalidValueSchema for a field with the name of a column of events."""
    for name in names:
        if name in EVENT_COLUMNS:
            raise InvalidValueSchema(
                f"Field {name!r} of the value schema has the name of a column that each read of a stream has: rename "
                "it, or read the events as bytes and decode them in the query."
            )


def _fits(written: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether each value of a type is one of the other type, and is encoded as one."""
    import pyarrow as pa

    if written.equals(wanted):
        return True
    if pa.types.is_integer(written) and pa.types.is_integer(wanted):
        return bool(written.bit_width <= wanted.bit_width)
    if pa.types.is_list(written) and pa.types.is_list(wanted):
        return _fits(written.value_type, wanted.value_type)
    if pa.types.is_map(written) and pa.types.is_map(wanted):
        return _fits(written.item_type, wanted.item_type)
    if pa.types.is_struct(written) and pa.types.is_struct(wanted):
        fields = {field.name: field.type for field in wanted}
        return all(field.name in fields and _fits(field.type, fields[field.name]) for field in written)
    return bool(written == pa.float32() and wanted == pa.float64())
