"""Schemas of values as DDL texts."""

import pyarrow as pa
import pytest

from pravega_spark.errors import InvalidValueSchema
from pravega_spark.streams.values.ddl import checked_schema, parse_schema, schema_text


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("a BOOLEAN", pa.bool_()),
        ("a byte", pa.int8()),
        ("a short", pa.int16()),
        ("a integer", pa.int32()),
        ("a: long", pa.int64()),
        ("a real", pa.float32()),
        ("a double COMMENT 'it''s, \"so\"'", pa.float64()),
        ("a decimal", pa.decimal128(10, 0)),
        ("a numeric(5)", pa.decimal128(5, 0)),
        ("a dec( 38 , 18 )", pa.decimal128(38, 18)),
        ("a varchar(10)", pa.string()),
        ("a binary", pa.binary()),
        ("a date", pa.date32()),
        ("a timestamp_ltz", pa.timestamp("us", tz="UTC")),
        ("a timestamp_ntz", pa.timestamp("us")),
        ("a array<map<string, int>>", pa.list_(pa.map_(pa.string(), pa.int32()))),
        ("a struct<`b c`: int, d string>", pa.struct([("b c", pa.int32()), ("d", pa.string())])),
        ("a struct<>", pa.struct([])),
    ],
)
def test_types(text: str, kind: pa.DataType) -> None:
    [field] = parse_schema(text)
    assert field.name == "a" and field.type == kind


def test_the_text_of_a_schema_is_read_as_the_same_schema() -> None:
    text = (
        "id bigint NOT NULL, `a b` decimal(5,2), `c``d` array<struct<e:map<string,timestamp>,`f g`:timestamp_ntz>>, "
        "`1` struct<>"
    )
    assert schema_text(parse_schema(text)) == text
    assert parse_schema(text).field("id").nullable is False


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the schema is wrong at its end"),
        ("a", "the schema is wrong at its end"),
        ("a int,", "the schema is wrong at its end"),
        ("a int b int", r"at 'b int' \(character 6\)"),
        ("a money", r"at 'money' \(character 2\)"),
        ("a array<int", "at its end"),
        ("a int, ; b int", "at '; b int'"),
        ("a decimal(39,2)", "is no type"),
        ("a decimal(5,6)", "is no type"),
        ("a map<int,int>", r"field 'a' has type map<int,int>, which a value cannot have"),
        ("a int, a string", "field 'a' is there twice"),
        ("a struct<b:int,b:int>", "field 'a.b' is there twice"),
        ("a " + "array<" * 100 + "int" + ">" * 100, "more than 64 deep"),
    ],
)
def test_a_wrong_schema_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(InvalidValueSchema, match=message):
        parse_schema(text)


def test_types_of_arrow_that_mean_the_same_are_taken() -> None:
    fields = [
        pa.field("s", pa.large_string()),
        pa.field("b", pa.large_binary()),
        pa.field("t", pa.timestamp("ms", tz="Asia/Tokyo")),
        pa.field("l", pa.large_list(pa.field("x", pa.string_view(), nullable=False))),
    ]
    assert schema_text(checked_schema(fields)) == "s string, b binary, t timestamp, l array<string>"


def test_a_type_that_a_value_cannot_have_is_refused() -> None:
    with pytest.raises(InvalidValueSchema, match="field 'took' has type duration"):
        checked_schema([pa.field("took", pa.duration("us"))])
