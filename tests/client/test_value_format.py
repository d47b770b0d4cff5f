"""Structured values in Python: a format kept with a stream, and its fields as columns."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from pravega_spark import MalformedEvent, StreamManager, ValueFormat
from pravega_spark.roots import open_root
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.model.stream_record import StreamRecord

JSON = ValueFormat("json", "id bigint, tags array<string>")
AVRO = ValueFormat("avro", '{"type":"record","name":"r","fields":[{"name":"id","type":"long"}]}')


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[StreamManager]:
    with StreamManager(str(tmp_path / "root")) as manager:
        manager.create_scope("s")
        manager.create_stream("s", "t", 1)
        yield manager


def put(manager: StreamManager, *events: str) -> None:
    with manager.create_writer("s", "t") as writer:
        for event in events:
            writer.write_event(event)


def test_fields_are_columns_in_the_place_of_the_event(manager: StreamManager) -> None:
    put(manager, '{"id":1,"tags":["a"]}', '{"id":2}')
    table = manager.to_arrow("s", "t", value_format=JSON)
    assert table.schema.names == ["id", "tags", "scope", "stream", "segment_id", "offset"]
    assert table.select(["id", "tags"]).to_pylist() == [{"id": 1, "tags": ["a"]}, {"id": 2, "tags": None}]
    events = manager.read_events("s", "t", value_format=JSON)
    assert events.to_arrow(["offset", "id", "event"]).to_pylist()[1] == {"offset": 29, "id": 2, "event": b'{"id":2}'}
    assert events.to_pandas(["id"])["id"].tolist() == [1, 2]
    assert [event.data() for event in events] == [b'{"id":1,"tags":["a"]}', b'{"id":2}']


def test_an_event_is_not_decoded_if_no_field_is_chosen(manager: StreamManager) -> None:
    put(manager, "no json")
    assert manager.to_arrow("s", "t", columns=["offset"], value_format=JSON)["offset"].to_pylist() == [0]
    with pytest.raises(MalformedEvent, match=r"Stream s/t, segment 0\.0, offset 0: the event is malformed"):
        manager.to_arrow("s", "t", value_format=JSON)
    assert manager.to_arrow("s", "t", None, None, ["id"], JSON, "null")["id"].to_pylist() == [None]
    with pytest.raises(ValueError, match="'more' is no column of a stream: choose among id, tags, event"):
        manager.to_arrow("s", "t", columns=["more"], value_format=JSON)


def test_a_stream_keeps_a_format_until_it_is_removed(manager: StreamManager) -> None:
    assert manager.value_format("s", "t") is None
    manager.set_tags("s", "t", ["tag"])
    for kept in (JSON, ValueFormat("json", "other date"), AVRO, None, JSON):
        manager.set_value_format("s", "t", kept)
        assert manager.value_format("s", "t") == kept
    assert list(manager.get_stream_tags("s", "t")) == ["tag"]


def test_another_avro_schema_is_refused(manager: StreamManager) -> None:
    manager.set_value_format("s", "t", AVRO)
    manager.set_value_format("s", "t", AVRO)
    other = ValueFormat("avro", AVRO.schema.replace("long", "int"))
    for format in (other, JSON):
        with pytest.raises(ValueError, match="Stream s/t keeps another Avro schema, without which its events cannot"):
            manager.set_value_format("s", "t", format)
    assert manager.value_format("s", "t") == AVRO


def test_a_field_with_the_name_of_a_column_is_refused(manager: StreamManager) -> None:
    with pytest.raises(ValueError, match="Field 'offset' of the value schema has the name of a column"):
        manager.set_value_format("s", "t", ValueFormat("json", "offset bigint"))


@pytest.mark.parametrize(
    ("format", "schema", "message"),
    [("xml", "a int", "must be one of json, avro"), ("json", "a money", "at 'money'"), ("avro", "a int", "is no JSON")],
)
def test_a_wrong_format_is_refused_when_it_is_made(format: str, schema: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ValueFormat(format, schema)  # type: ignore[arg-type]


def test_the_record_of_a_stream_without_a_format_is_stored_as_before(manager: StreamManager, tmp_path: Path) -> None:
    manager.set_value_format("s", "t", JSON)
    with open_root(str(tmp_path / "root")) as root:
        record = Catalog(root).stream("s", "t").snapshot().record
        without = record.with_changes(values=None)
        assert b"values" in record.encode() and b"values" not in without.encode()
        assert StreamRecord.decode(record.encode(), record.version, "s/t") == record
        assert StreamRecord.decode(without.encode(), record.version, "s/t") == without


def test_a_range_is_read_in_batches(manager: StreamManager) -> None:
    put(manager, *(json.dumps({"id": number}) for number in range(3000)))
    reader = manager.read_events("s", "t", value_format=JSON).to_batches(["id"])
    assert reader.schema == pa.schema([("id", pa.int64())])
    assert pa.Table.from_batches(reader)["id"].to_pylist() == list(range(3000))
