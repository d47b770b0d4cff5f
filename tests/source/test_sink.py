"""The sinks without a JVM: what a stream is told of a batch that comes again, and of one whose outcome is unknown."""

from __future__ import annotations

import logging
import pickle
import random
import re
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, BinaryType, StringType, StructType

from chunkstore.testing import FaultStore
from chunkstore.testing.faults import Fault, When
from engine.errors import OutcomeUnknown
from engine.storage.object_reads import Stores
from pravega_spark import PravegaDataSource
from pravega_spark.errors import ReplayChanged
from pravega_spark.roots import open_root
from pravega_spark.source.options import SourceOptions
from pravega_spark.source.sink import BatchWriter, StreamWriter
from pravega_spark.source.task_outputs import TaskMessage
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.model import framing
from pravega_spark.streams.model.policies import ScalingPolicy
from pravega_spark.streams.reading.scan import SliceReader
from pravega_spark.streams.reading.slices import plan_slices
from pravega_spark.streams.stream import Stream
from tests.support import limits

ROWS = StructType().add("event", BinaryType()).add("routing_key", StringType())


@pytest.fixture
def url() -> str:
    return f"memory://{uuid.uuid4()}"


@pytest.fixture
def stream(url: str) -> Iterator[Stream]:
    root = open_root(url, create=True)
    catalog = Catalog(root)
    catalog.create_scope("s")
    catalog.create_stream("s", "t", ScalingPolicy(min_segments=3))
    yield catalog.stream("s", "t")
    root.close()


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "pravega_spark.streams.writing.producer_state")
    return caplog


def options(url: str, **more: object) -> SourceOptions:
    return SourceOptions.parse({"controller": url, "scope": "s", "stream": "t", **{k: str(v) for k, v in more.items()}})


def tasks(writer: BatchWriter | StreamWriter, *rows: Sequence[bytes]) -> list[TaskMessage]:
    """What the tasks of a query that write these rows, without keys, hand to the driver."""
    messages = []
    for some in rows:
        message = writer.write(iter([pa.RecordBatch.from_pydict({"event": pa.array(some, pa.binary())})]))
        message.query_id = "a query"  # which a task learns from Spark
        messages.append(pickle.loads(pickle.dumps(message)))
    return messages


def committed(url: str, batch: int, *rows: Sequence[bytes], **more: object) -> None:
    """A micro-batch, as a driver commits it that has just been started."""
    writer = StreamWriter(options(url, **more), ROWS)
    messages = tasks(writer, *rows)
    try:
        writer.commit(messages, batch)
    except BaseException:
        writer.abort(messages, batch)
        raise


def read(stream: Stream) -> list[bytes]:
    snapshot = stream.snapshot()
    slices = plan_slices(snapshot, snapshot.ranges(snapshot.head_cut(), snapshot.tail_cut()), 1 << 30)
    return sorted(
        bytes(events.data[start + 8 : start + 8 + length])
        for events in SliceReader(stream.root, stream.scope, stream.name).read(slices)
        for start, length in zip(events.starts.tolist(), events.lengths.tolist(), strict=True)
    )


def levels(told: pytest.LogCaptureFixture) -> list[str]:
    found = [record.levelname for record in told.records]
    told.clear()
    return found


@pytest.mark.parametrize("inline", [True, False])
def test_the_same_rows_in_other_tasks_and_another_order_are_a_replay(
    stream: Stream, url: str, told: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, inline: bool
) -> None:
    """Rows without keys go to segments by chance, and the stream was scaled meanwhile."""
    if not inline:
        limits.inline_bytes(monkeypatch, 0)
        monkeypatch.setattr(framing, "MAX_EVENT_SIZE", 999)  # so that one event is a large one
    rows = [b"%d" % number * (number % 7) for number in range(100)] + [b"x" * 1000] * (not inline)
    committed(url, 0, rows[:50], rows[50:])
    segments = stream.snapshot().record.current.segments
    stream.scale([segments[0].id], [(0.0, 0.1), (0.1, segments[0].high)])
    again = rows.copy()
    random.Random(0).shuffle(again)
    committed(url, 0, again[:10], [], again[10:30], again[30:])
    assert levels(told) == ["INFO"]
    assert read(stream) == sorted(rows)
    committed(url, 0, [*again[:-1], b"changed"])
    assert levels(told) == ["WARNING"]
    committed(url, 1, rows)
    assert levels(told) == []
    assert read(stream) == sorted(rows * 2)


def test_what_is_done_with_other_rows_is_an_option(stream: Stream, url: str, told: pytest.LogCaptureFixture) -> None:
    committed(url, 0, [b"a"])
    with pytest.raises(ReplayChanged, match=r"write 0 of 'query:a query'"):
        committed(url, 0, [b"b"], on_changed_replay="fail")
    assert read(stream) == [b"a"]
    with pytest.raises(ReplayChanged, match="repeated with 0 events"):
        committed(url, 0, [], on_changed_replay="fail")
    committed(url, 0, [b"c"], on_changed_replay="write")
    assert read(stream) == [b"a", b"c"]
    writer = BatchWriter(options(url, txn_app_id="job", txn_version=1), ROWS)
    writer.commit(tasks(writer, [b"d"]))
    assert levels(told) == ["WARNING"]
    writer.commit(tasks(writer, [b"d"]))
    writer.commit(tasks(writer, [b"e"]))
    assert levels(told) == ["INFO", "WARNING"]
    assert read(stream) == [b"a", b"c", b"d"]


def test_digests_are_made_only_where_they_are_asked_for(stream: Stream, url: str) -> None:
    for writer, wanted in (
        (BatchWriter(options(url), ROWS), False),
        (BatchWriter(options(url, txn_app_id="job", txn_version=1), ROWS), True),
        (StreamWriter(options(url), ROWS), True),
        (StreamWriter(options(url, exactly_once=False), ROWS), False),
    ):
        (message,) = tasks(writer, [b"a"])
        assert (message.digests is not None) == wanted


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("chunks", [False, True])
def test_a_batch_whose_outcome_is_unknown_is_there_once(
    stream: Stream, url: str, monkeypatch: pytest.MonkeyPatch, when: When, chunks: bool
) -> None:
    if chunks:
        limits.inline_bytes(monkeypatch, 0)
    fates = [Fault(when)]
    unsure(stream, fates)
    committed(url, 0, [b"a", b"b"])
    assert not fates
    assert read(stream) == [b"a", b"b"]
    committed(url, 0, [b"a", b"b"])
    assert read(stream) == [b"a", b"b"]
    committed(url, 1, [b"c"])
    assert read(stream) == [b"a", b"b", b"c"]


def test_a_batch_is_not_tried_for_ever_and_may_come_again(stream: Stream, url: str) -> None:
    """Its chunks are given up; the restarted query writes it again."""
    fates = [Fault("before")] * 100
    unsure(stream, fates)
    with pytest.raises(OutcomeUnknown, match="it is unknown whether write 0 of 'query:a query' was committed"):
        writer = StreamWriter(options(url), ROWS)
        writer.commit(tasks(writer, [b"a"]), 0)
    fates.clear()
    committed(url, 0, [b"a"])
    assert read(stream) == [b"a"]


def unsure(stream: Stream, fates: list[Fault]) -> None:
    """Open the stream's container on a log whose next frames meet these fates."""
    stores, root = stream.root.stores, stream.root

    def fate(number: int, request: object) -> Fault | None:
        return fates.pop(0) if fates and "/wal/" in request.paths[0] else None  # type: ignore[attr-defined]

    root.stores = Stores(FaultStore(stores.log, fate, verbs={"put_if_absent"}), stores.chunks)
    root.settings = replace(root.settings, timeout=0.0, maintenance=False)
    root.containers.stop(stream.number)


def test_one_batch_cannot_be_named_for_a_whole_query(stream: Stream, url: str) -> None:
    """All batches but the first would be taken for replays of it."""
    given = {"controller": url, "scope": "s", "stream": "t", "txn_app_id": "job", "txn_version": "1"}
    source = PravegaDataSource(given)
    with pytest.raises(ValueError, match=r"'txn_app_id' and 'txn_version' identify one batch.*foreachBatch"):
        source.streamWriter(ROWS, False)
    assert isinstance(source.writer(ROWS, False), BatchWriter)


def test_without_the_id_of_the_query(stream: Stream, url: str) -> None:
    writer = StreamWriter(options(url), ROWS)
    messages = tasks(writer, [b"a"])
    messages[0].query_id = None
    with pytest.raises(RuntimeError, match=r"did not provide the id .* foreachBatch with df.write and the options"):
        writer.commit(messages, 0)
    assert read(stream) == []


# --- columns -----------------------------------------------------------------------------------------------------


def columns(text: str) -> StructType:
    """Columns as "name type, name type"."""
    schema = StructType()
    for each in text.split(", "):
        name, kind = each.split()
        schema.add(name, kind)
    return schema


def refusal(url: str, text: str, **more: object) -> str:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - its message is looked at
        BatchWriter(options(url, **more), columns(text))
    return str(caught.value)


def test_columns_that_would_not_be_written(stream: Stream, url: str) -> None:
    assert refusal(url, "event string, id long, routing_key string, ts timestamp") == (
        "Columns 'id', 'ts' would be dropped, as only event and routing_key are written: put them into the event, for "
        "example with selectExpr(\"to_json(struct(*)) as event\") or option 'value_format', select event and "
        "routing_key only, or set option 'ignore_extra_columns' to true."
    )
    assert refusal(url, "event binary, key binary").startswith("Column 'key' would be dropped")
    assert refusal(url, "event binary, Routing_Key string").endswith("Rename it to 'routing_key'.")
    BatchWriter(options(url, ignore_extra_columns=True), columns("event string, id long"))


def test_rows_of_a_stream_are_copied_without_where_they_lay(stream: Stream, url: str) -> None:
    read = "event binary, scope string, stream string, segment_id long, offset long"
    for more in ("", ", routing_key string", ", timestamp timestamp, event_pointer string, event_number long"):
        BatchWriter(options(url), columns(read + more))
    assert "'offset', 'timestamp'" in refusal(url, "event binary, offset long, timestamp timestamp")
    assert refusal(url, f"{read}, id long").startswith("Column 'id' would")


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        ("value binary, key binary", 'selectExpr("value as event", "cast(key as string) as routing_key")'),
        ("key string, value string, offset long", 'selectExpr("value as event", "key as routing_key")'),
        ("id long, ts timestamp", 'selectExpr("to_json(struct(*)) as event")'),
        ("value long, routing_key string", 'selectExpr("to_json(struct(*)) as event", "routing_key")'),
        ("EVENT string, Routing_Key string", 'selectExpr("EVENT as event", "Routing_Key as routing_key")'),
        ("Value string, KEY integer", 'selectExpr("Value as event", "cast(KEY as string) as routing_key")'),
    ],
)
def test_without_a_column_event_the_columns_are_told_and_what_to_select(
    stream: Stream, url: str, given: str, advice: str
) -> None:
    names = ", ".join(each.split()[0] for each in given.split(", "))
    assert refusal(url, given) == (
        f"Required attribute 'event' not found: the columns are {names}; select one as event, with {advice}."
    )


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            "event integer",
            "received unsupported type int: column 'event' can be written with "
            "selectExpr('cast(event as string) as event')",
        ),
        (
            "event array<string>",
            "unsupported type array<string>: column 'event' can be written with selectExpr('to_json(event) as event')",
        ),
        (
            "event long, routing_key string",
            "bigint: column 'event' can be written with selectExpr('cast(event as string) as event', 'routing_key')",
        ),
        (
            "event string, routing_key integer",
            "routing_key attribute type must be a string; received unsupported type int: "
            "column 'routing_key' can be written with selectExpr('event', 'cast(routing_key as string)",
        ),
    ],
)
def test_a_column_of_the_wrong_type_is_told_with_how_to_write_it(
    stream: Stream, url: str, given: str, told: str
) -> None:
    schema = StructType()
    for each in given.split(", "):
        name, kind = each.split()
        schema.add(name, ArrayType(StringType()) if kind.startswith("array") else kind)
    with pytest.raises(ValueError, match=re.escape(told)):
        BatchWriter(options(url), schema)


def test_null_events_are_counted(stream: Stream, url: str) -> None:
    """The number of a row would say nothing: it is one of a batch that Spark makes."""
    for events in (["a", None, None], [None, b"a" * (9 << 20)]):
        writer = BatchWriter(options(url), columns("event binary"))
        rows = pa.RecordBatch.from_pydict({"event": pa.array(events, pa.binary())})
        told = f"^Column 'event' is null in {events.count(None)} of the {len(events)} rows .* where\\("
        with pytest.raises(ValueError, match=told):
            writer.write(iter([rows]))


def test_a_table_without_its_options_is_told_how_to_make_it() -> None:
    """Of saveAsTable Spark tells a source nothing, so it is told where such a table is used."""
    told = r"^Missing required option 'scope'.* catalog, .*saveAsTable.* CREATE TABLE t USING pravega OPTIONS"
    for given in ({}, {"checkpointlocation": "/c"}, {"end_stream_cut": "latest"}):
        source = PravegaDataSource(given)
        writers = (partial(each, overwrite=False) for each in (source.writer, source.streamWriter))
        for use in (source.reader, source.streamReader, *writers):
            with pytest.raises(ValueError, match=told):
                use(columns("event binary"))
    with pytest.raises(ValueError, match=r"^Save mode 'overwrite' is not supported.*In SQL, use INSERT INTO instead"):
        PravegaDataSource({}).writer(columns("event binary"), True)


def test_rows_with_the_options_of_a_table_are_written_only_if_no_read_made_them(stream: Stream, url: str) -> None:
    """Their options are those of the table that was read, where Spark had not to adapt them to the table written."""
    schema = columns("event string, routing_key string, scope string, stream string")
    writer = BatchWriter(options(url), schema, of_table=True)
    rows: dict[str, list[str | None]] = {"event": ["a"], "routing_key": ["k"], "scope": [None], "stream": [None]}
    types = pa.schema([(name, pa.string()) for name in rows])
    of_a_read = pa.RecordBatch.from_pydict({**rows, "scope": ["s"]}, schema=types)
    told = r"^INSERT INTO: column 'scope' has values.* INSERT INTO a_table \(event, routing_key\) SELECT"
    with pytest.raises(ValueError, match=told):
        writer.write(iter([of_a_read]))
    writer.commit([writer.write(iter([pa.RecordBatch.from_pydict(rows, schema=types)]))])
    assert read(stream) == [b"a"]


def test_complete_results_are_appended_on_request_only(stream: Stream, url: str) -> None:
    given = {"controller": url, "scope": "s", "stream": "t"}
    with pytest.raises(
        ValueError, match=r"^Output mode 'complete' would append .*foreachBatch.*'append_complete_results'"
    ):
        PravegaDataSource(given).streamWriter(ROWS, overwrite=True)
    PravegaDataSource({**given, "append_complete_results": "true"}).streamWriter(ROWS, overwrite=True)
    PravegaDataSource(given).streamWriter(ROWS, overwrite=False)
