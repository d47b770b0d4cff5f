"""Option value_format without a JVM: rows become events, and events become rows."""

from __future__ import annotations

import json
import pickle
import uuid
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as t

from pravega_spark import PravegaDataSource
from pravega_spark.errors import MalformedEvent
from pravega_spark.roots import open_root
from pravega_spark.source.batch import BatchReader
from pravega_spark.source.sink import BatchWriter
from pravega_spark.source.value_columns import arrow_field, spark_type
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.model.policies import ScalingPolicy
from pravega_spark.streams.stream import Stream
from pravega_spark.streams.values.value_format import ValueFormat
from tests.large_events import put_small

ROWS = t.StructType().add("id", "long").add("name", "string")
DDL = "id bigint, name string"
POSITION = ["scope", "stream", "segment_id", "offset"]


@pytest.fixture
def stream() -> Iterator[Stream]:
    root = open_root(f"memory://{uuid.uuid4()}", create=True)
    catalog = Catalog(root)
    catalog.create_scope("s")
    catalog.create_stream("s", "t", ScalingPolicy(min_segments=1), None, ())
    yield catalog.stream("s", "t")
    root.close()


def source(stream: Stream, /, **more: Any) -> PravegaDataSource:
    given = {"controller": stream.root.stores.chunks.root, "scope": "s", "stream": "t", "value_format": "json", **more}
    return PravegaDataSource({name: str(value) for name, value in given.items() if value is not None})


def write(stream: Stream, schema: t.StructType, rows: list[Any], /, **more: Any) -> None:
    writer = source(stream, **more).writer(schema, False)
    assert isinstance(writer, BatchWriter)
    kinds = [pa.field(field.name, arrow_field(field).type) for field in schema.fields]
    columns = [pa.array([row[place] for row in rows], kind.type) for place, kind in enumerate(kinds)]
    batch = pa.RecordBatch.from_arrays(columns, schema=pa.schema(kinds))
    writer.commit([pickle.loads(pickle.dumps(writer)).write(iter([batch]))])


def read(stream: Stream, schema: t.StructType | None = None, /, **more: Any) -> pa.Table:
    """What a batch read returns, with the schema of the source or one that a user gives."""
    asked = source(stream, **more)
    if schema is None:
        found = asked.schema()
        assert isinstance(found, t.StructType)
        schema = found
    reader = asked.reader(schema)
    assert isinstance(reader, BatchReader)
    there = pickle.loads(pickle.dumps(reader))
    batches = [batch for partition in reader.partitions() for batch in there.read(partition)]
    for batch in batches:
        assert batch.schema.names == schema.names
    return pa.Table.from_batches(batches) if batches else pa.table({name: [] for name in schema.names})


def events_of(stream: Stream) -> list[Any]:
    columns = t.StructType().add("event", "binary")
    return [json.loads(event) for event in read(stream, columns, value_format="raw")["event"].to_pylist()]


# --- writes --------------------------------------------------------------------------------------------------------


def test_columns_are_the_fields_of_an_event_and_the_key_is_not(stream: Stream) -> None:
    rows = [(1, "a", "k"), (2, None, None)]
    write(stream, t.StructType([*ROWS.fields, t.StructField("routing_key", t.StringType())]), rows)
    assert events_of(stream) == [{"id": 1, "name": "a"}, {"id": 2}]


def test_rows_of_a_typed_read_are_copied_without_its_position(stream: Stream) -> None:
    schema = t.StructType(
        [
            t.StructField("id", t.LongType()),
            *(t.StructField(name, t.StringType()) for name in ("scope", "stream")),
            *(t.StructField(name, t.LongType()) for name in ("segment_id", "offset")),
        ]
    )
    write(stream, schema, [(1, "x", "y", 0, 0)])
    assert events_of(stream) == [{"id": 1}]


@pytest.mark.parametrize("name", ["scope", "segment_id", "offset", "timestamp", "event_pointer", "event_number"])
def test_a_column_with_a_name_of_a_read_is_refused(stream: Stream, name: str) -> None:
    with pytest.raises(ValueError, match=f"Column '{name}' has the name of a column that each read .*: rename it"):
        source(stream).writer(t.StructType().add("id", "long").add(name, "long"), False)
    write(stream, t.StructType().add("id", "long").add(name, "long"), [(1, 2)], ignore_extra_columns="true")
    assert events_of(stream) == [{"id": 1}]


def test_a_column_event_or_stream_is_refused(stream: Stream) -> None:
    with pytest.raises(ValueError, match="Column 'event' is the encoded row"):
        source(stream).writer(t.StructType().add("id", "long").add("event", "string"), False)
    with pytest.raises(ValueError, match="Column 'stream' would be ignored, as option 'stream' writes all rows"):
        source(stream).writer(t.StructType().add("id", "long").add("stream", "string"), False)


def test_rows_without_a_column_to_encode_are_refused(stream: Stream) -> None:
    with pytest.raises(ValueError, match=r"no columns to put into an event: the columns are routing_key\."):
        source(stream).writer(t.StructType().add("routing_key", "string"), False)


def test_a_key_that_is_no_string_is_refused(stream: Stream) -> None:
    with pytest.raises(ValueError, match="routing_key attribute type must be a string"):
        source(stream).writer(t.StructType().add("id", "long").add("routing_key", "long"), False)


def test_a_type_that_values_cannot_have_is_refused_by_name(stream: Stream) -> None:
    schema = t.StructType().add("a", t.StructType().add("took", t.DayTimeIntervalType()))
    with pytest.raises(ValueError, match=r"Column 'a\.took' has type interval .*, which option 'value_format' cannot"):
        source(stream).writer(schema, False)


def test_rows_may_name_their_streams(stream: Stream) -> None:
    schema = t.StructType().add("id", "long").add("stream", "string")
    write(stream, schema, [(1, "one"), (2, "two"), (3, "one")], stream=None)
    table = read(stream, stream="one,two", value_schema="id bigint")
    assert sorted(zip(table["id"].to_pylist(), table["stream"].to_pylist(), strict=True)) == [
        (1, "one"),
        (2, "two"),
        (3, "one"),
    ]


def test_columns_that_do_not_fit_the_schema_are_refused_by_name_and_type(stream: Stream) -> None:
    with pytest.raises(ValueError, match=r"column 'name' is string instead of bigint, and column 'id' .* is missing"):
        source(stream, value_schema="id bigint NOT NULL, name bigint").writer(
            t.StructType().add("name", "string"), False
        )
    with pytest.raises(ValueError, match=r"column 'name' \(string\) is not in it"):
        source(stream, value_schema="id bigint").writer(ROWS, False)
    assert events_of(stream) == []


# --- reads ---------------------------------------------------------------------------------------------------------


def test_fields_come_before_the_position_in_place_of_the_event(stream: Stream) -> None:
    write(stream, ROWS, [(1, "a"), (2, None)])
    table = read(stream, value_schema=DDL)
    assert table.schema.names == ["id", "name", *POSITION]
    assert table.select(["id", "name"]).to_pylist() == [{"id": 1, "name": "a"}, {"id": 2, "name": None}]
    assert read(stream, value_schema=DDL, include_metadata="true").schema.names[-3:] == [
        "timestamp",
        "event_pointer",
        "event_number",
    ]


def test_a_schema_chooses_fields_and_columns_of_the_stream_in_any_order(stream: Stream) -> None:
    write(stream, ROWS, [(1, "a"), (2, "b")])
    schema = t.StructType().add("offset", "long").add("name", "string").add("event", "binary").add("more", "date")
    assert read(stream, schema).to_pylist() == [
        {"offset": 0, "name": "a", "event": b'{"id":1,"name":"a"}', "more": None},
        {"offset": 27, "name": "b", "event": b'{"id":2,"name":"b"}', "more": None},
    ]


def test_without_a_field_no_event_is_decoded(stream: Stream) -> None:
    put_small(stream, b"no json")
    assert read(stream, t.StructType().add("offset", "long"))["offset"].to_pylist() == [0]


def test_a_read_without_any_schema_is_refused(stream: Stream) -> None:
    command = "stream update SCOPE/STREAM --value-format json --value-schema SCHEMA"
    with pytest.raises(ValueError, match=f"schema of the values is not known: give one of their columns.*{command}"):
        source(stream).schema()


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (t.StructType().add("offset", "string"), "Column 'offset' .* cannot be a field of the event"),
        (t.StructType().add("timestamp", "timestamp"), "Column 'timestamp' .* Set option 'include_metadata' to true"),
        (t.StructType().add("routing_key", "string").add("id", "long"), "Column 'routing_key' .* cannot be a field"),
        (t.StructType().add("id", "long").add("id", "long"), "Column 'id' is in the schema twice"),
        (t.StructType().add("m", t.MapType(t.LongType(), t.LongType())), "has type map<bigint,bigint>"),
    ],
)
def test_a_column_that_may_mean_another_thing_is_refused(stream: Stream, schema: t.StructType, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        source(stream).reader(schema)


def test_a_field_of_the_schema_with_the_name_of_a_column_is_refused(stream: Stream) -> None:
    with pytest.raises(ValueError, match=r"Option 'value_schema': Field 'offset' .* has the name of a column"):
        source(stream, value_schema="offset bigint").schema()


def test_the_time_of_an_event_is_read_beside_its_fields(stream: Stream) -> None:
    write(stream, ROWS, [(1, "a")])
    schema = t.StructType().add("timestamp", "timestamp").add("id", "long")
    [row] = read(stream, schema, include_metadata="true").to_pylist()
    assert row["id"] == 1 and row["timestamp"] is not None


def test_a_malformed_event_is_an_error_with_its_position(stream: Stream) -> None:
    put_small(stream, b'{"id":1}', b"oops", b'{"id":3}')
    with pytest.raises(MalformedEvent, match=r"^Stream s/t, segment 0\.0, offset 16: the event is malformed: it is "):
        read(stream, value_schema="id bigint")
    assert read(stream, value_schema="id bigint", on_malformed="null")["id"].to_pylist() == [1, None, 3]


def test_a_large_event_by_reference_has_null_fields_and_a_pointer(stream: Stream) -> None:
    put_small(stream, b'{"id":1}', b'{"id":2,"pad":"' + b"x" * 100 + b'"}')
    table = read(stream, value_schema="id bigint", large_events="reference", max_event_bytes=50)
    assert table["id"].to_pylist() == [1, None]
    assert [pointer is None for pointer in table["event_pointer"].to_pylist()] == [True, False]
    assert read(stream, value_schema="id bigint", large_events="inline", max_event_bytes=50)["id"].to_pylist() == [1, 2]
    with pytest.raises(ValueError, match="exceeds option 'max_event_bytes'"):
        read(stream, value_schema="id bigint", max_event_bytes=50)


def test_a_null_where_the_schema_forbids_it_is_an_error(stream: Stream) -> None:
    put_small(stream, b'{"id":1}', b"{}")
    schema = t.StructType().add("id", "long", nullable=False)
    for on_malformed in ("fail", "null"):  # which does not allow a null either
        with pytest.raises(MalformedEvent, match=r"offset 16: .* field 'id' is null, which .*\. Leave NOT NULL out"):
            read(stream, schema, on_malformed=on_malformed)
    nested = t.StructType().add("a", t.ArrayType(t.LongType(), containsNull=False))
    put_small(stream, b'{"id":1,"a":[null]}')
    with pytest.raises(MalformedEvent, match=r"offset 26: .* field 'a\[\]' is null, which .*\. Leave NOT NULL out"):
        read(stream, nested)


def test_columns_have_the_very_types_that_spark_expects(stream: Stream) -> None:
    kind = t.StructType(
        [
            t.StructField("l", t.ArrayType(t.StructType([t.StructField("x", t.TimestampType(), False)]), False), False),
            t.StructField("m", t.MapType(t.StringType(), t.ArrayType(t.DecimalType(5, 2), False), False)),
        ]
    )
    put_small(stream, b'{"l":[{"x":"2026-01-01T00:00:00Z"}],"m":{"k":[1.25]}}', b'{"l":[]}')
    table = read(stream, kind)
    assert table.schema.equals(pa.schema([arrow_field(field) for field in kind.fields]))
    table.validate(full=True)
    assert [len(row["l"]) for row in table.to_pylist()] == [1, 0]


def test_a_table_into_which_sql_inserts_has_fields_and_a_key(stream: Stream) -> None:
    found = source(stream, value_schema=DDL, insertable="true").schema()
    assert isinstance(found, t.StructType) and found.names == ["id", "name", "routing_key", *POSITION]
    write(stream, ROWS, [(1, "a")])
    assert read(stream, value_schema=DDL, insertable="true").to_pylist()[0] == {
        "id": 1,
        "name": "a",
        "routing_key": None,
        "scope": "s",
        "stream": "t",
        "segment_id": 0,
        "offset": 0,
    }


def test_a_table_of_the_catalog_keeps_the_format(stream: Stream) -> None:
    options = source(stream, value_schema=DDL, insertable="true").options
    table = PravegaDataSource({**options, **{f"option.{name}": value for name, value in options.items()}}).schema()
    assert isinstance(table, t.StructType)
    writer = PravegaDataSource({}).writer(table, False)
    assert isinstance(writer, BatchWriter)
    values = {"id": [1], "name": ["a"], "routing_key": ["k"], **{name: [None] for name in POSITION}}
    columns = [pa.array(values[field.name], arrow_field(field).type) for field in table.fields]
    batch = pa.RecordBatch.from_arrays(columns, names=table.names)
    writer.commit([writer.write(iter([batch]))])
    reader = PravegaDataSource({}).reader(table)
    assert isinstance(reader, BatchReader)
    [found] = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    assert found.to_pylist()[0]["name"] == "a"
    wrong = batch.set_column(3, "scope", pa.array(["s"]))
    with pytest.raises(ValueError, match="INSERT INTO: column 'scope' has values"):
        writer.write(iter([wrong]))


def test_each_type_of_spark_has_one_of_arrow_and_back() -> None:
    for name in ("boolean", "byte", "short", "integer", "long", "float", "double", "string", "binary", "date"):
        kind = t.StructType().add("a", name).fields[0].dataType
        assert spark_type(arrow_field(t.StructField("a", kind)).type) == kind
    for kind in (t.TimestampType(), t.TimestampNTZType(), t.DecimalType(7, 2), t.ArrayType(t.LongType())):
        assert spark_type(arrow_field(t.StructField("a", kind)).type) == kind
    nested = t.MapType(t.StringType(), t.StructType().add("x", "long"))
    assert spark_type(arrow_field(t.StructField("a", nested)).type) == nested


# --- a format that the stream keeps --------------------------------------------------------------------------------

AVRO = json.dumps(
    {
        "type": "record",
        "name": "r",
        "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]}],
    }
)


@pytest.mark.parametrize("kept", [ValueFormat("json", DDL), ValueFormat("avro", AVRO)])
def test_a_kept_schema_is_that_of_reads_and_writes(stream: Stream, kept: ValueFormat) -> None:
    stream.set_value_format(kept)
    write(stream, ROWS, [(1, "a"), (2, None)], value_format=kept.format)
    table = read(stream, value_format=kept.format)
    assert table.schema.names == ["id", "name", *POSITION]
    assert list(zip(table["id"].to_pylist(), table["name"].to_pylist(), strict=True)) == [(1, "a"), (2, None)]
    chosen = t.StructType().add("name", "string")
    assert read(stream, chosen, value_format=kept.format)["name"].to_pylist() == ["a", None]


def test_a_read_without_the_option_is_as_before(stream: Stream) -> None:
    stream.set_value_format(ValueFormat("json", DDL))
    put_small(stream, b"bytes")
    assert source(stream, value_format="raw").schema() == (
        "event binary, scope string, stream string, segment_id bigint, offset bigint"
    )
    assert read(stream, t.StructType().add("event", "binary"), value_format="raw")["event"].to_pylist() == [b"bytes"]


def test_columns_that_do_not_fit_a_kept_schema_are_refused_before_anything_is_written(stream: Stream) -> None:
    stream.set_value_format(ValueFormat("json", "id int, more date"))
    message = (
        r"schema of stream s/t, id int, more date: column 'id' is bigint instead of int, and column 'name' \(string"
    )
    with pytest.raises(ValueError, match=message):
        source(stream).writer(ROWS, False)
    rows = t.StructType().add("id", "short").add("name", "string")
    with pytest.raises(ValueError, match=r"column 'name' \(string\) is not in it"):
        source(stream).writer(rows, False)
    write(stream, rows, [(1, "a")], ignore_extra_columns="true")
    assert events_of(stream) == [{"id": 1}]


def test_another_format_than_the_kept_one_is_refused(stream: Stream) -> None:
    stream.set_value_format(ValueFormat("avro", AVRO))
    with pytest.raises(ValueError, match="stream s/t keeps its values as avro: set the option to that"):
        source(stream).schema()
    with pytest.raises(ValueError, match="stream s/t keeps its values as avro"):
        source(stream).writer(ROWS, False)
    with pytest.raises(ValueError, match="is not the schema that stream s/t keeps"):
        other = AVRO.replace("long", "int")
        source(stream, value_format="avro", value_schema=other).writer(ROWS, False)


def test_avro_without_a_schema_is_refused_and_a_write_suggests_one(stream: Stream) -> None:
    with pytest.raises(ValueError, match="can be decoded only with the Avro schema with which they were written"):
        source(stream, value_format="avro").reader(ROWS)
    with pytest.raises(ValueError, match="These columns have the schema") as caught:
        source(stream, value_format="avro").writer(ROWS, False)
    suggested = str(caught.value).rpartition("the schema ")[2]
    write(stream, ROWS, [(1, "a")], value_format="avro", value_schema=suggested)
    assert read(stream, value_format="avro", value_schema=suggested)["name"].to_pylist() == ["a"]


def test_a_type_that_cannot_hold_the_avro_field_is_refused(stream: Stream) -> None:
    with pytest.raises(ValueError, match="field 'id' is bigint in the Avro schema, which int cannot hold"):
        source(stream, value_format="avro", value_schema=AVRO).reader(t.StructType().add("id", "integer"))


def test_several_streams_are_decoded_by_one_schema(stream: Stream) -> None:
    write(stream, ROWS, [(1, "a")], stream="u", value_format="avro", value_schema=AVRO)
    write(stream, ROWS, [(2, "b")], value_format="avro", value_schema=AVRO)
    table = read(stream, stream="t,u", value_format="avro", value_schema=AVRO)
    assert sorted(table["id"].to_pylist()) == [1, 2]
