"""Columns as Avro events and back: single datums, as Spark's to_avro writes them."""

from __future__ import annotations

import datetime as dt
import io
import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings

from pravega_spark.errors import InvalidValueSchema
from pravega_spark.streams.values.avro import AvroDecoder, AvroEncoder, AvroSchema, avro_schema
from pravega_spark.streams.values.codec import MalformedValue, UnencodableValue
from pravega_spark.streams.values.ddl import parse_schema, schema_text
from tests.streams.test_json_values import ALL, batch_of, rows_of, same

SIMPLE = json.dumps(
    {
        "type": "record",
        "name": "r",
        "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"], "default": None}],
    }
)


def datum(schema: str, value: dict[str, Any]) -> bytes:
    """An event of another program."""
    target = io.BytesIO()
    fastavro.schemaless_writer(target, fastavro.parse_schema(json.loads(schema)), value)
    return target.getvalue()


def decode(schema: str, events: Sequence[bytes | None], wanted: str | None = None, **more: Any) -> list[dict[str, Any]]:
    columns = AvroSchema(schema).fields if wanted is None else parse_schema(wanted)
    rows: list[dict[str, Any]] = AvroDecoder(schema, columns, **more).decode(pa.array(events, pa.binary())).to_pylist()
    return rows


def field(kind: Any) -> str:
    return json.dumps({"type": "record", "name": "r", "fields": [{"name": "a", "type": kind}]})


@given(rows_of(parse_schema(ALL)))
@settings(deadline=None, max_examples=25)
def test_what_is_encoded_is_decoded(values: list[dict[str, Any]]) -> None:
    columns = parse_schema(ALL)
    schema = avro_schema(columns)
    stored = batch_of(values, columns)
    events = AvroEncoder(schema).encode(stored).cast(pa.binary())
    assert same(AvroDecoder(schema, AvroSchema(schema).fields).decode(events).to_pylist(), stored.to_pylist())


def test_an_event_is_the_datum_that_other_programs_write() -> None:
    columns = parse_schema("id bigint, name string")
    values: list[dict[str, Any]] = [{"id": 5, "name": "é"}, {"id": -1, "name": None}]
    events = AvroEncoder(SIMPLE).encode(batch_of(values, columns)).to_pylist()
    assert events == [datum(SIMPLE, value) for value in values] and events[1] == b"\x01\x00"
    assert decode(SIMPLE, [*events, None]) == [*values, {"id": None, "name": None}]


@pytest.mark.parametrize(
    ("kind", "written", "column", "value"),
    [
        ("int", 7, "int", 7),
        ({"type": "int", "logicalType": "date"}, dt.date(2026, 1, 2), "date", dt.date(2026, 1, 2)),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            dt.datetime(2026, 1, 2, tzinfo=dt.timezone.utc),
            "timestamp",
            dt.datetime(2026, 1, 2, tzinfo=dt.timezone.utc),
        ),
        ({"type": "long", "logicalType": "time-micros"}, 5, "bigint", 5),
        ({"type": "string", "logicalType": "uuid"}, "0-1", "string", "0-1"),
        ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, "B", "string", "B"),
        ({"type": "fixed", "name": "f", "size": 3}, b"abc", "binary", b"abc"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}, Decimal("1.25"), "decimal(5,2)",
         Decimal("1.25")),
        ({"type": "map", "values": ["null", "long"]}, {"k": None, "l": 1}, "map<string,bigint>",
         [("k", None), ("l", 1)]),
        ({"type": "array", "items": {"type": "record", "name": "x",
          "fields": [{"name": "b", "type": ["int", "null"]}]}},
         [{"b": 1}, {"b": None}], "array<struct<b:int>>", [{"b": 1}, {"b": None}]),
        (["null", {"type": "string", "avro.java.string": "String"}], None, "string", None),
    ],
)  # fmt: skip
def test_types(kind: Any, written: Any, column: str, value: Any) -> None:
    schema = field(kind)
    assert schema_text(AvroSchema(schema).fields).removesuffix(" NOT NULL") == f"a {column}"
    assert decode(schema, [datum(schema, {"a": written})]) == [{"a": value}]


def test_a_named_type_is_used_again() -> None:
    point = {"type": "record", "name": "n.p", "fields": [{"name": "x", "type": "int"}]}
    schema = json.dumps(
        {
            "type": "record",
            "name": "r",
            "fields": [{"name": "a", "type": point}, {"name": "b", "type": ["null", "n.p"]}],
        }
    )
    value = {"a": {"x": 1}, "b": {"x": 2}}
    assert decode(schema, [datum(schema, value)]) == [value]


@pytest.mark.parametrize(
    "event", [b"", b"\x02", b"\x02\x02", b"\x02\x02\x08a", b"\x02\x00\x00", b"\x02\x04", b"\x02\x02\x02\xff"]
)
def test_an_event_that_is_not_one_datum_is_an_error_with_its_row(event: bytes) -> None:
    good = datum(SIMPLE, {"id": 1, "name": "a"})
    with pytest.raises(MalformedValue) as caught:
        decode(SIMPLE, [good, event, good])
    assert caught.value.row == 1
    rows = decode(SIMPLE, [good, event, good], on_malformed="null")
    assert [row["id"] for row in rows] == [1, None, 1]


def test_a_number_beyond_its_type_is_an_error_with_its_row() -> None:
    events = [datum(field("long"), {"a": value}) for value in (1, 2**40, 3)]
    with pytest.raises(MalformedValue) as caught:
        decode(field("int"), events)
    assert caught.value.row == 1
    assert decode(field("int"), events, on_malformed="null") == [{"a": 1}, {"a": None}, {"a": 3}]


def test_wanted_fields_are_found_by_name_and_widened() -> None:
    inner = {"type": "record", "name": "i", "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "int"}]}
    schema = json.dumps(
        {"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}, {"name": "l",
         "type": {"type": "array", "items": inner}}]}
    )  # fmt: skip
    event = datum(schema, {"a": 1, "l": [{"x": 2, "y": 3}]})
    wanted = "new date, l array<struct<y:bigint,z:string>>, a bigint"
    assert decode(schema, [event], wanted) == [{"new": None, "l": [{"y": 3, "z": None}], "a": 1}]
    with pytest.raises(InvalidValueSchema, match=r"field 'l\[\]\.y' is int in the Avro schema, which smallint cannot"):
        decode(schema, [event], "l array<struct<y:smallint>>")


def test_a_null_that_the_schema_forbids_is_refused_by_its_column() -> None:
    columns = parse_schema("id bigint, name string")
    with pytest.raises(UnencodableValue, match="column 'id' is null in a row"):
        AvroEncoder(SIMPLE).encode(batch_of([{"id": None, "name": "a"}], columns))
    assert AvroEncoder(SIMPLE).encode(batch_of([{"id": 1}], parse_schema("id bigint"))).to_pylist() == [b"\x02\x00"]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("{", "is no JSON"),
        ('"long"', "must be a record"),
        ('{"type":"record","name":"r","fields":[]}', "has no fields"),
        ('{"type":"record","name":"r","fields":[{"name":"a","type":"money"}]}', "the Avro schema is wrong: "),
        (field(["int", "string"]), "field 'a' is a union of several types"),
        (field("null"), "field 'a' has type 'null'"),
        (field(["null", "r"]), "nor a type that contains itself"),
        (field({"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 2}), "decimal of more than 38"),
    ],
)
def test_a_schema_that_no_columns_have_is_refused(schema: str, message: str) -> None:
    with pytest.raises(InvalidValueSchema, match=message):
        AvroSchema(schema)
