"""Columns as JSON events and back: as Spark's to_json and from_json, and each event its own row."""

import base64
import datetime as dt
import json
import math
import re
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from pravega_spark.streams.values.codec import MalformedValue, UnencodableValue
from pravega_spark.streams.values.ddl import parse_schema
from pravega_spark.streams.values.json_decoding import JsonDecoder
from pravega_spark.streams.values.json_encoding import JsonEncoder

ALL = (
    "bo boolean, ti tinyint, sm smallint, i int, bi bigint, f float, d double, dec decimal(20,4), s string, b binary, "
    "da date, ts timestamp, tn timestamp_ntz, l array<string>, ll array<array<int>>, ls array<struct<x:int,y:string>>, "
    "m map<string,bigint>, mm map<string,array<double>>, st struct<a:int,b:struct<c:string,d:date>,e:array<timestamp>>"
)


def encode(values: list[dict[str, Any]], schema: pa.Schema) -> list[str]:
    texts: list[str] = JsonEncoder().encode(batch_of(values, schema)).to_pylist()
    return texts


def batch_of(values: list[dict[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    columns = [pa.array([value.get(field.name) for value in values], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def decode(events: list[Any], schema: str, on_malformed: Any = "fail") -> list[dict[str, Any]]:
    column = pa.array([event.encode() if isinstance(event, str) else event for event in events], pa.binary())
    rows: list[dict[str, Any]] = JsonDecoder(parse_schema(schema), on_malformed).decode(column).to_pylist()
    return rows


# --- drawing values ------------------------------------------------------------------------------------------------

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_DAYS = st.dates(dt.date(1, 1, 1), dt.date(9999, 12, 31))
_TIMES = st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30))


def drawn(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Values of a type, or None."""
    return st.none() | _drawn(kind)


def _drawn(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_boolean(kind):
        return st.booleans()
    if pa.types.is_integer(kind):
        most = 1 << (kind.bit_width - 1)
        return st.integers(-most, most - 1)
    if pa.types.is_floating(kind):
        return st.floats(width=kind.bit_width)
    if pa.types.is_decimal(kind):
        most = 10**kind.precision - 1
        return st.integers(-most, most).map(lambda digits: Decimal(f"{digits}E-{kind.scale}"))
    if pa.types.is_date(kind):
        return _DAYS
    if pa.types.is_timestamp(kind):
        return _TIMES.map(lambda time: time.replace(tzinfo=dt.timezone.utc)) if kind.tz else _TIMES
    if pa.types.is_binary(kind):
        return st.binary(max_size=6)
    if pa.types.is_list(kind):
        return st.lists(drawn(kind.value_type), max_size=3)
    if pa.types.is_map(kind):
        return st.dictionaries(_TEXT, drawn(kind.item_type), max_size=3).map(lambda entries: list(entries.items()))
    if pa.types.is_struct(kind):
        return st.fixed_dictionaries({field.name: drawn(field.type) for field in kind})
    return _TEXT


def rows_of(schema: pa.Schema) -> st.SearchStrategy[list[dict[str, Any]]]:
    return st.lists(st.fixed_dictionaries({field.name: drawn(field.type) for field in schema}), max_size=4)


def same(one: Any, other: Any) -> bool:
    """Equality in which NaN equals itself."""
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def plain(value: Any) -> Any:
    """A value as json.loads returns it, as far as that is exact: nulls of structs are left out."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items() if each is not None}
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dt.datetime):
        zone = "Z" if value.tzinfo else ""
        return value.replace(tzinfo=None).isoformat(timespec="microseconds").rjust(26, "0") + zone
    if isinstance(value, dt.date):
        return value.isoformat()
    return value


def maps_as_objects(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_map(kind):
        return Entries((key, maps_as_objects(each, kind.item_type)) for key, each in value)
    if pa.types.is_list(kind):
        return [maps_as_objects(each, kind.value_type) for each in value]
    if pa.types.is_struct(kind):
        return {field.name: maps_as_objects(value[field.name], field.type) for field in kind}
    return value


class Entries(list[Any]):
    """The entries of a map, whose nulls are kept."""


def expected(value: Any) -> Any:
    """What json.loads returns for the event of a value."""
    if isinstance(value, Entries):
        return {key: expected(each) for key, each in value}
    if isinstance(value, dict):
        return {name: expected(each) for name, each in value.items() if each is not None}
    if isinstance(value, list):
        return [expected(each) for each in value]
    return plain(value)


def parsed(text: str) -> Any:
    return json.loads(text, parse_float=Decimal, parse_int=Decimal)


def number_equal(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(number_equal(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(number_equal, one, other))
    if isinstance(one, float):
        return float(other) == one or float(pa.scalar(float(other), pa.float32()).as_py()) == one
    return bool(one == other)


# --- properties ----------------------------------------------------------------------------------------------------


@given(rows_of(parse_schema(ALL)))
@settings(deadline=None, max_examples=15)
def test_what_is_encoded_is_decoded(values: list[dict[str, Any]]) -> None:
    schema = parse_schema(ALL)
    stored = batch_of(values, schema)
    texts = JsonEncoder().encode(stored)
    found = JsonDecoder(schema).decode(texts.view(pa.large_binary()).cast(pa.binary()))
    assert same(found.to_pylist(), stored.to_pylist())


_MAPLESS = parse_schema(ALL.replace("m map<string,bigint>, mm map<string,array<double>>, ", ""))


@given(rows_of(_MAPLESS))
@settings(deadline=None, max_examples=15)
def test_both_readers_decode_what_is_encoded(values: list[dict[str, Any]]) -> None:
    """Without a map in the schema, Arrow's reader reads what has no NaN."""
    stored = batch_of(values, _MAPLESS)
    events = JsonEncoder().encode(stored).view(pa.large_binary()).cast(pa.binary())
    assert same(JsonDecoder(_MAPLESS).decode(events).to_pylist(), stored.to_pylist())


@given(rows_of(parse_schema(ALL)))
@settings(deadline=None, max_examples=15)
def test_the_events_are_what_python_reads_from_them(values: list[dict[str, Any]]) -> None:
    schema = parse_schema(ALL)
    stored = batch_of(values, schema).to_pylist()
    for text, value in zip(encode(values, schema), stored, strict=True):
        wanted = {field.name: maps_as_objects(value[field.name], field.type) for field in schema}
        assert number_equal(expected(wanted), parsed(text))


@given(rows_of(parse_schema("s string, st struct<a:int,b:string>, l array<string>, m map<string,string>")), st.data())
@settings(deadline=None, max_examples=15)
def test_a_part_of_a_batch_is_encoded_alone(values: list[dict[str, Any]], data: st.DataObject) -> None:
    schema = parse_schema("s string, st struct<a:int,b:string>, l array<string>, m map<string,string>")
    first = data.draw(st.integers(0, len(values)))
    size = data.draw(st.integers(0, len(values) - first))
    whole = batch_of(values, schema)
    part = JsonEncoder().encode(whole.slice(first, size)).to_pylist()
    assert part == JsonEncoder().encode(whole).to_pylist()[first : first + size]


_WORDS = rb"""{ } [ ] , : " \ null true 1 - e5 1.0 01 NaN "a": "b": "a":1 "b":"x" {"a":1} {"a":2,"a":3} "\ud83d {}
    {"a":1}{"a":2} {"c":{"d":[null]}} {"a":99999999999} {"b":7}"""
_FRAGMENTS = st.sampled_from([*_WORDS.split(), b" ", b"\n", b"\t", b"\0", b"\xff", b'{"b":"x\n"}', b"\xef\xbb\xbf{}"])
_EVENTS = st.lists(_FRAGMENTS, max_size=5).map(b"".join) | st.builds(
    lambda parts: b'{"a":' + b"".join(parts) + b"}", st.lists(_FRAGMENTS, max_size=3)
)


@given(st.lists(_EVENTS, min_size=1, max_size=8))
@settings(deadline=None, max_examples=60)
def test_each_event_is_decoded_as_if_it_were_alone(events: list[bytes]) -> None:
    """No event can begin, end or swallow another one."""
    schema = "a int, b string"
    alone = [decode([event], schema, "null")[0] for event in events]
    assert decode(events, schema, "null") == alone
    for event, row in zip(events, alone, strict=True):
        try:
            value = json.loads(event.decode())
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            assert row == {"a": None, "b": None}
        elif row != {"a": None, "b": None}:
            assert row["a"] == value.get("a")
            assert row["b"] == value.get("b") or not isinstance(value.get("b"), str)


# --- examples ------------------------------------------------------------------------------------------------------


def test_a_null_field_is_left_out_and_a_null_in_an_array_or_map_is_kept() -> None:
    schema = parse_schema("a int, b string, l array<int>, m map<string,int>, st struct<x:int>")
    full = {"a": 1, "b": "x", "l": [1, None], "m": [("k", None)], "st": {"x": None}}
    assert encode([full, {}, {"b": "y"}], schema) == [
        '{"a":1,"b":"x","l":[1,null],"m":{"k":null},"st":{}}',
        "{}",
        '{"b":"y"}',
    ]


def test_the_first_columns_may_be_null() -> None:
    schema = parse_schema("a int, b int, c int, d int")
    values = [{"c": 1}, {"a": 2, "c": 3, "d": 4}, {"b": 5, "c": 6}]
    assert encode(values, schema) == ['{"c":1}', '{"a":2,"c":3,"d":4}', '{"b":5,"c":6}']


def test_names_and_texts_are_escaped() -> None:
    schema = pa.schema([pa.field('a"b\\', pa.string())])
    [text] = encode([{'a"b\\': 'q"\\\n\x01é😀\x7f'}], schema)
    assert json.loads(text) == {'a"b\\': 'q"\\\n\x01é😀\x7f'}


def test_times_and_numbers_are_as_to_json_writes_them() -> None:
    schema = parse_schema("ts timestamp, tn timestamp_ntz, da date, b binary, d double, dec decimal(10,2)")
    at = dt.datetime(2026, 1, 2, 3, 4, 5, 678900)
    value = {"ts": at, "tn": at, "da": at.date(), "b": b"\x00\xff", "d": 1.5, "dec": Decimal("2.50")}
    assert encode([value], schema) == [
        '{"ts":"2026-01-02T03:04:05.678900Z","tn":"2026-01-02T03:04:05.678900","da":"2026-01-02","b":"AP8=","d":1.5,'
        '"dec":2.50}'
    ]


def test_a_time_of_another_zone_is_written_in_utc() -> None:
    schema = pa.schema([pa.field("ts", pa.timestamp("us", tz="America/New_York"))])
    at = dt.datetime(2026, 1, 2, tzinfo=dt.timezone.utc)
    assert encode([{"ts": at}], schema) == ['{"ts":"2026-01-02T00:00:00.000000Z"}']


def test_a_string_that_is_not_utf8_is_refused_by_its_column() -> None:
    column = pa.array([b"\xff"]).view(pa.string())
    with pytest.raises(UnencodableValue, match="column 'name' has a string that is not valid UTF-8"):
        JsonEncoder().encode(pa.RecordBatch.from_arrays([column], names=["name"]))


def test_a_type_without_a_form_in_json_is_refused() -> None:
    column = pa.array([1], pa.duration("us"))
    with pytest.raises(UnencodableValue, match="column 'took' has type duration"):
        JsonEncoder().encode(pa.RecordBatch.from_arrays([column], names=["took"]))


def test_an_event_may_contain_line_feeds_and_spaces_around_it() -> None:
    pretty = json.dumps({"a": 1, "b": {"c": [1]}}, indent=2)
    assert decode([pretty, ' {"a":2}\r\n', '{"a":3}'], "a int") == [{"a": 1}, {"a": 2}, {"a": 3}]


@pytest.mark.parametrize(
    "event", ["", " ", "{", "null", "5", '"x"', "[1]", '{"a":1}{"a":2}', '{"a":1}]', "{}null", '{"a":1},"c":{}']
)
def test_an_event_that_is_no_object_is_an_error_with_its_row(event: str) -> None:
    good = ['{"a":7}'] * 40
    with pytest.raises(MalformedValue) as caught:
        decode([*good, event, *good], "a int")
    assert caught.value.row == 40
    rows = decode([*good, event, *good], "a int", "null")
    assert rows[40] == {"a": None} and [row["a"] for row in rows[:40] + rows[41:]] == [7] * 80


def test_an_event_never_ends_within_the_value_of_the_next_one() -> None:
    """Together these two are two objects, which hold no field that is wanted or could be of a wrong type."""
    split = ['{"b":', '{"b":1}}{"b":5}']
    with pytest.raises(MalformedValue) as caught:
        decode(split, "a int")
    assert caught.value.row == 0
    assert decode(split, "a int", "null") == [{"a": None}, {"a": None}]


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        ("int", '"1"', "field 'a' is '1', which is no int"),
        ("int", "1.0", "field 'a' is 1.0, which is no int"),
        ("tinyint", "128", "field 'a' is 128, which is no tinyint"),
        ("boolean", "1", "field 'a' is 1, which is no boolean"),
        ("double", '"x"', "field 'a' is 'x', which is no double"),
        ("decimal(4,2)", "100", "field 'a' is 100, which is no decimal"),
        ("date", '"2026-13-01"', "field 'a' is '2026-13-01', which is no date"),
        ("timestamp", '"yesterday"', "field 'a' is 'yesterday', which is no timestamp"),
        ("timestamp_ntz", '"2026-01-01T00:00:00Z"', "field 'a' is '2026-01-01T00:00:00Z', which is no timestamp_ntz"),
        ("binary", '"?"', "field 'a' is '?', which is no binary"),
        ("array<int>", "1", "field 'a' is 1, which is no array"),
        ("struct<b:int>", "[]", "field 'a' is [], which is no object"),
        ("map<string,int>", '{"k":"x"}', "field 'a[]' is 'x', which is no int"),
        ("array<struct<b:int>>", '[{"b":true}]', "field 'a[].b' is True, which is no int"),
    ],
)
def test_a_field_that_does_not_fit_is_an_error_with_its_path(kind: str, text: str, reason: str) -> None:
    with pytest.raises(MalformedValue, match=re.escape(reason)):
        decode([f'{{"a":{text}}}'], f"a {kind}")
    assert decode([f'{{"a":{text}}}'], f"a {kind}", "null") == [{"a": None}]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("string", "1.50", "1.50"),
        ("string", '{"x":[1,null,"y"]}', '{"x":[1,null,"y"]}'),
        ("string", "true", "true"),
        ("double", '"NaN"', math.nan),
        ("double", '"-Infinity"', -math.inf),
        ("double", "1e400", math.inf),
        ("double", "3", 3.0),
        ("bigint", "9223372036854775807", 2**63 - 1),
        (
            "decimal(38,18)",
            "12345678901234567890.123456789012345678",
            Decimal("12345678901234567890.123456789012345678"),
        ),
        ("decimal(4,1)", "1.25", Decimal("1.3")),
        ("timestamp", '"2026-01-01T01:00:00+01:00"', dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)),
        ("timestamp", '"2026-01-01 00:00:00"', dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)),
        ("timestamp", '"2026-01-01"', dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)),
        ("timestamp", "60", dt.datetime(1970, 1, 1, 0, 1, tzinfo=dt.timezone.utc)),
        ("timestamp", '"2026-01-01T00:00:00.1234567Z"', dt.datetime(2026, 1, 1, 0, 0, 0, 123456, dt.timezone.utc)),
        ("timestamp_ntz", '"2026-01-01T00:00:00.5"', dt.datetime(2026, 1, 1, 0, 0, 0, 500000)),
        ("int", "null", None),
    ],
)
def test_what_from_json_reads_beyond_the_plain_form(kind: str, text: str, value: object) -> None:
    plain_event = '{"b":1}'
    [row, other] = decode([f'{{"a":{text}}}', plain_event], f"a {kind}")
    assert same(row["a"], value) and other == {"a": None}


@pytest.mark.parametrize(
    ("schema", "event"),
    [
        ("a string", '{"a":' + "[" * 900 + "]" * 900 + "}"),
        ("a string", '{"a":' + "[" * 100_000 + "]" * 100_000 + "}"),
        ("a map<string,int>", '{"a":{"\\ud800":1}}'),
        ("a string", '{"a":"\\udc00"}'),
        ("a timestamp", '{"a":' + "9" * 18 + "}"),
        ("a decimal(38,0)", '{"a":1e999999999}'),
        ("a bigint", '{"a":' + "9" * 10_000 + "}"),
    ],
)
def test_an_extreme_value_is_malformed_or_read_but_does_no_harm(schema: str, event: str) -> None:
    assert decode(["{}", event, "{}"], schema, "null")[0] == {"a": None}
    try:
        decode(["{}", event, "{}"], schema)
    except MalformedValue as malformed:
        assert malformed.row == 1


def test_a_number_beyond_a_float_is_infinite_by_both_readers() -> None:
    assert decode(['{"a":1e39}', '{"a":"NaN"}'], "a float")[0] == {"a": math.inf}
    assert decode(['{"a":1e39}'], "a float") == [{"a": math.inf}]


def test_the_last_of_repeated_fields_counts_and_unknown_ones_are_ignored() -> None:
    assert decode(['{"a":1,"c":{"a":5},"a":2,"c":1}'], "a int") == [{"a": 2}]


@pytest.mark.parametrize("event", [b'{"a":"\xff"}', b'{"a":"x","c":"\xff"}', b'{"a":"x"}\0}', b'{"a":"x\0"}'])
def test_bytes_that_are_no_text_are_malformed(event: bytes) -> None:
    good = b'{"a":"y"}'
    assert decode([good, event, good], "a string", "null") == [{"a": "y"}, {"a": None}, {"a": "y"}]
    with pytest.raises(MalformedValue, match="in row 1 is malformed"):
        decode([good, event, good], "a string")


def test_a_null_event_has_null_columns() -> None:
    assert decode(['{"a":1}', None], "a int") == [{"a": 1}, {"a": None}]


def test_no_events_and_no_fields() -> None:
    assert decode([], "a int") == []
    batch = JsonDecoder(pa.schema([])).decode(pa.array([b"{}", b"{}"], pa.binary()))
    assert batch.num_rows == 2


def test_many_events_are_decoded_in_order() -> None:
    events = [json.dumps({"a": n, "b": "x" * (n % 50)}) for n in range(5000)]
    events[3000] = '{"a":3000,"b":3000}'  # one that Arrow's reader refuses
    assert [row["a"] for row in decode(events, "a int, b string")] == list(range(5000))
