"""A read whose schema the user gives: any of a stream's columns in any order, and only those are made."""

from __future__ import annotations

import pickle
import re
import uuid
from collections.abc import Iterator
from typing import Any, get_args

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType, TimestampType

from pravega_spark import PravegaDataSource
from pravega_spark.roots import open_root
from pravega_spark.source.batch import BatchReader
from pravega_spark.source.micro_batch import MicroBatchReader
from pravega_spark.source.option_table import OPTIONS, Use
from pravega_spark.source.spark_api.stream_reader import tells_position
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.model.policies import ScalingPolicy
from pravega_spark.streams.reading import event_columns
from pravega_spark.streams.stream import Stream
from tests.large_events import MiB, content, put_large, put_small

TYPES = {
    "event": BinaryType(),
    "scope": StringType(),
    "stream": StringType(),
    "segment_id": LongType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "event_pointer": StringType(),
    "event_number": LongType(),
}


@pytest.fixture
def stream() -> Iterator[Stream]:
    root = open_root(f"memory://{uuid.uuid4()}", create=True)
    catalog = Catalog(root)
    catalog.create_scope("s")
    catalog.create_stream("s", "t", ScalingPolicy(min_segments=1), None, ())
    yield catalog.stream("s", "t")
    root.close()


def source(stream: Stream, **more: Any) -> PravegaDataSource:
    url = stream.root.stores.chunks.root
    return PravegaDataSource({"controller": url, "scope": "s", "stream": "t", **{k: str(v) for k, v in more.items()}})


def table(stream: Stream, *columns: str, **more: Any) -> pa.Table:
    """What a batch read with a given schema gives; without columns, with the source's own."""
    whole = source(stream, **more)
    names = columns or [column.split()[0] for column in str(whole.schema()).split(",")]
    reader = whole.reader(StructType([StructField(name, TYPES[name]) for name in names]))
    assert isinstance(reader, BatchReader)
    there = pickle.loads(pickle.dumps(reader))
    batches = [batch for partition in reader.partitions() for batch in there.read(partition)]
    return pa.Table.from_batches(batches)


@pytest.mark.parametrize(
    "columns",
    [
        ("event",),
        ("offset", "event"),
        ("segment_id",),
        ("event_number", "scope", "timestamp"),
        ("event_pointer", "event"),
        ("stream", "event_pointer", "event_number", "offset", "timestamp", "event", "segment_id", "scope"),
    ],
    ids="-".join,
)
def test_any_columns_in_any_order(stream: Stream, columns: tuple[str, ...]) -> None:
    put_small(stream, *(b"event %d" % number for number in range(3_000)))
    found = table(stream, *columns)
    assert found.column_names == list(columns)
    assert found.equals(table(stream, include_metadata=True).select(columns))


def test_only_the_columns_that_are_wanted_are_made(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    put_small(stream, b"a", b"b")
    monkeypatch.setattr(event_columns, "event_column", None)  # would fail if it were called
    monkeypatch.setattr(event_columns, "repeated", lambda text, count: pa.nulls(0, pa.string()))
    assert table(stream, "offset").column("offset").to_pylist() == [0, 9]


def test_an_event_that_nobody_asks_for_is_not_too_large(stream: Stream) -> None:
    put_small(stream, b"small")
    put_large(stream, content(9 * MiB, 1))
    with pytest.raises(ValueError, match="max_event_bytes"):
        table(stream, "event", max_event_bytes=MiB)
    assert table(stream, "segment_id", "offset", max_event_bytes=MiB).column("offset").to_pylist() == [0, 13]


def test_pointers_of_large_events_only_where_those_are_references(stream: Stream) -> None:
    put_small(stream, b"small")
    put_large(stream, content(9 * MiB, 1))
    options = {"max_event_bytes": MiB, "large_events": "reference"}
    first, second = table(stream, "event_pointer", **options).column(0).to_pylist()
    assert first is None
    assert second.startswith("s/t/0.#epoch.0:13-")
    assert None not in table(stream, "event_pointer").column(0).to_pylist()


def test_a_streaming_read_too(stream: Stream) -> None:
    put_small(stream, b"a", b"b")
    made: Any = source(stream, start_stream_cut="earliest")
    reader = made.streamReader(StructType([StructField("event", BinaryType())]))
    reader = reader if tells_position() else reader.reader
    assert isinstance(reader, MicroBatchReader)
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    (partition,) = reader.partitions(start, end)
    (batch,) = pickle.loads(pickle.dumps(reader)).read(partition)
    assert batch.to_pydict() == {"event": [b"a", b"b"]}


@pytest.mark.parametrize(
    ("field", "told"),
    [
        (
            StructField("evnt", BinaryType()),
            "Column 'evnt' of the given schema is not a column of a stream: choose",
        ),
        (StructField("event", StringType()), "has type string instead of binary: give it this type, and cast"),
        (StructField("Offset", LongType()), "Column 'Offset' of the given schema is not a column"),
        (None, "The given schema has no columns"),
    ],
)
def test_columns_that_a_stream_has_not(stream: Stream, field: StructField | None, told: str) -> None:
    schema = StructType([field] if field is not None else [])
    with pytest.raises(ValueError, match=re.escape(told)):
        source(stream).reader(schema)
    with pytest.raises(ValueError, match=re.escape(told)):
        source(stream).streamReader(schema)


def test_a_table_tells_that_it_keeps_no_credentials(stream: Stream, caplog: pytest.LogCaptureFixture) -> None:
    secret = "sesame"
    made = source(stream, **{"option.scope": "s", "storage.secret": secret, "option.storage.secret": secret}).schema()
    assert secret not in str(made) + caplog.text
    assert caplog.messages[0].startswith("Storage options are not kept with a table") and len(caplog.messages) == 1
    assert caplog.messages[0].endswith("Not kept are storage.secret.")


def test_an_option_without_effect_where_it_is_given_is_told_once(
    stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    event = StructType([StructField("event", BinaryType())])
    for use in get_args(Use):
        elsewhere = [
            option
            for option in OPTIONS
            if use not in option.uses and option.name not in ("metadata", "txn_version", "value_schema")
        ]
        for option in elsewhere:
            refused = {"batch write": ("stream_pattern",), "stream write": ("stream_pattern", "txn_")}
            if option.name.startswith(refused.get(use, ("-",))):
                continue  # which are errors there
            value = {"integer": "3", "size": "2000", "duration": "20000", "boolean": "true"}.get(option.type, "x")
            value = {"time": "5m", "stream cut": "earliest"}.get(option.type, value)
            given = {option.name: option.choices[0] if option.choices else value}
            if option.name.startswith("txn_"):
                given = {"txn_app_id": "a", "txn_version": "3"}
            caplog.clear()
            made = source(stream, **given, **({"metadata": "StreamInfo"} if use == "metadata" else {}))
            for _ in range(2):
                if use == "stream read":
                    made.streamReader(event)
                elif use == "batch write":
                    made.writer(event, overwrite=False)
                elif use == "stream write":
                    made.streamWriter(event, overwrite=False)
                else:
                    made.reader(event)
            told = [text for text in caplog.messages if "has no effect in" in text]
            assert len(told) == len(given) and f"Option {option.name!r} has no effect in" in " ".join(told), (use, told)
    assert caplog.messages == [
        "Option 'transaction_status_poll_interval_ms' has no effect in a metadata table: it is for df.write and "
        "df.writeStream. Remove it here."
    ]


def test_what_a_read_ignores_is_told_once(stream: Stream, caplog: pytest.LogCaptureFixture) -> None:
    """Spark asks for the schema, and then makes a reader, two of a streaming read. Of a schema that the user gives, or
    of a table, it makes the readers only."""
    given = StructType([StructField("event", BinaryType())])
    for schema, streaming in ((None, False), (None, True), (given, False), (given, True)):
        read = source(stream, foo=f"{schema}{streaming}")
        columns = schema or StructType([StructField(name, TYPES[name]) for name in list(TYPES)[:5]])
        if schema is None:
            read.schema()
        for _ in range(2):
            read.streamReader(columns) if streaming else read.reader(columns)
        assert [text.partition(" is ")[0] for text in caplog.messages] == ["Unknown option 'foo'"]
        caplog.clear()


INSERTABLE = {"event": StringType(), "routing_key": StringType()}


def test_an_insertable_read_has_events_as_strings_of_the_same_bytes_and_no_keys(stream: Stream) -> None:
    """Arrow would refuse the bytes if it cast them, and Spark's CAST does not."""
    put_small(stream, "é".encode(), b"\xff\x00", b"")
    chosen = source(stream, insertable=True)
    whole = str(chosen.schema())
    assert whole.startswith("event string, routing_key string, scope string, stream string, ")
    assert whole.count("event") == whole.count("routing_key") == 1
    names = [column.split()[0] for column in whole.split(",")]
    for wanted in (names, ["offset", "routing_key"], ["event"]):
        schema = StructType([StructField(name, {**TYPES, **INSERTABLE}[name]) for name in wanted])
        reader = chosen.reader(schema)
        assert isinstance(reader, BatchReader)
        (partition,) = reader.partitions()
        (batch,) = pickle.loads(pickle.dumps(reader)).read(partition)
        assert batch.schema.names == wanted and batch.num_rows == 3
        if "event" in wanted:
            events = batch.column("event")
            assert events.type == pa.string()
            assert events.view(pa.binary()).to_pylist() == ["é".encode(), b"\xff\x00", b""]
        if "routing_key" in wanted:
            assert batch.column("routing_key").null_count == 3


@pytest.mark.parametrize(
    ("name", "insertable", "error"),
    [
        ("routing_key", False, "Column 'routing_key' of the given schema is not a column of a stream"),
        ("routing_key", True, "The given schema has no columns of a stream"),
        ("event", False, "Column 'event' of the given schema has type string instead of binary"),
    ],
)
def test_columns_of_an_insertable_read_are_refused_elsewhere(
    stream: Stream, name: str, insertable: bool, error: str
) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(error)}"):
        source(stream, insertable=insertable).reader(StructType([StructField(name, StringType())]))
