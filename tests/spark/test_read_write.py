"""Batch reads and writes through Spark: what comes out is what went in, and what is refused is refused clearly."""

from __future__ import annotations

import contextlib
import io
import json
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

from engine.root import Root
from pravega_spark.source.sink import BatchWriter
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.maintenance import retention
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.model.key_columns import hash_keys
from pravega_spark.streams.model.policies import ScalingPolicy
from pravega_spark.streams.model.routing import segment_for
from pravega_spark.streams.writing import transactions
from tests.spark.folder import EVENTS_WITH_KEYS, Folder, read_all
from tests.support import limits
from tests.support.s3_server import S3Server


def refusal(work: Callable[[], Any]) -> str:
    """The text of the error that a user sees."""
    with pytest.raises(PySparkException) as caught:
        work()
    return str(caught.value)


IS_4_0 = metadata.version("pyspark").startswith("4.0.")

fills_columns_in = pytest.mark.xfail(IS_4_0, reason="an INSERT has to give all columns: docs/spark-versions.md")


# --- what goes in comes out --------------------------------------------------------------------------------------


def test_strings_and_binary(folder: Folder) -> None:
    texts = ["plain", "", "ünïcödé ✓", "x" * 10_000, '{"a": 1}']
    folder.append(folder.rows(*texts))
    assert folder.events() == texts
    octets = [b"\x00\xff", b"", b"\x80" * 100]
    folder.append(folder.rows(*octets), "binary")
    frame = folder.frame("binary")
    assert [bytes(row.event) for row in frame.orderBy("offset").collect()] == octets
    columns = "event:binary,scope:string,stream:string,segment_id:bigint,offset:bigint"
    assert frame.schema.simpleString() == f"struct<{columns}>"
    places = [(row.scope, row.stream, row.segment_id, row.offset) for row in frame.orderBy("offset").collect()]
    assert places == [("s", "binary", 0, 0), ("s", "binary", 0, 10), ("s", "binary", 0, 18)]


def test_a_given_schema_chooses_columns(folder: Folder) -> None:
    folder.append(folder.rows("a", "b"))
    reader = folder.spark.read.format("pravega").options(**folder.options())
    assert sorted(reader.schema("offset bigint, event binary").load().collect()) == [(0, b"a"), (9, b"b")]
    assert reader.schema("event_number bigint").load().collect() == [(0,), (1,)]
    assert "'evnt' of the given schema" in refusal(reader.schema("evnt binary").load().collect)


def test_keys_decide_segment_and_order(folder: Folder) -> None:
    """Events of one key lie in the segment that the original would choose, in the order of the rows."""
    keys = [f"key-{number % 37}" for number in range(2_000)] + ["ключ", "🔑", ""] * 10
    events = [f"{key}/{number}" for number, key in enumerate(keys)]
    folder.append(folder.rows(*events, keys=keys), default_num_segments=5)
    rows = folder.frame().collect()
    segments = folder.stream().snapshot().record.current.segments
    names = sorted(set(keys))
    places = segment_for(hash_keys(pa.array(names)), [segment.high for segment in segments])
    expected = {key: segments[int(place)].id for key, place in zip(names, places, strict=True)}
    found: dict[str, list[tuple[int, int]]] = {key: [] for key in names}
    for row in sorted(rows, key=lambda row: (row.segment_id, row.offset)):
        key, number = bytes(row.event).decode().rsplit("/", 1)
        assert row.segment_id == expected[key], key
        found[key].append((row.offset, int(number)))
    assert len(rows) == len(events)
    for key, places_of_key in found.items():
        numbers = [number for _, number in places_of_key]
        assert numbers == [number for number, other in enumerate(keys) if other == key], key
    assert len(set(expected.values())) == 5


def test_rows_without_a_key_are_spread(folder: Folder) -> None:
    keys = [None if number % 2 else "one" for number in range(1_000)]
    folder.append(folder.rows(*(str(number) for number in range(1_000)), keys=keys), default_num_segments=4)
    rows = folder.frame().collect()
    assert sorted(int(bytes(row.event)) for row in rows) == list(range(1_000))
    odd = [row.segment_id for row in rows if int(bytes(row.event)) % 2]
    assert {odd.count(segment) > 50 for segment in range(4)} == {True}
    assert len({row.segment_id for row in rows if int(bytes(row.event)) % 2 == 0}) == 1


def test_other_columns_are_ignored_if_told_to(folder: Folder) -> None:
    frame = folder.rows("a", "b", keys=["1", "2"]).selectExpr("1 AS x", "routing_key", "array(2) AS offset", "event")
    assert "Columns 'x', 'offset' would be dropped" in refusal(lambda: folder.append(frame))
    folder.append(frame, ignore_extra_columns=True)
    assert folder.events() == ["a", "b"]


@pytest.mark.parametrize("event", ["", "x" * 40], ids=["empty events", "short events"])
def test_many_arrow_batches_in_one_task(folder: Folder, event: str) -> None:
    """More rows than fit into one batch on the way in (10,000) or on the way out (65,536)."""
    rows = 70_001
    frame = folder.spark.range(0, rows, 1, 1).selectExpr(f"concat('{event}', '') AS event")
    folder.append(frame)
    counts = folder.frame().groupBy("event").count().collect()
    assert [(bytes(row.event).decode(), row["count"]) for row in counts] == [(event, rows)]
    offsets = folder.frame().selectExpr("count(DISTINCT offset)", "max(offset)").collect()[0]
    assert tuple(offsets) == (rows, (rows - 1) * (8 + len(event)))


def test_much_data_goes_to_one_object_for_each_task(folder: Folder) -> None:
    """A task's shares of all segments lie in one chunk, and nothing of it in the log."""
    frame = folder.spark.range(0, 20_000, 1, 2).selectExpr(
        "concat(cast(id AS string), repeat('.', 200)) AS event", "cast(id % 100 AS string) AS routing_key"
    )
    folder.append(frame, default_num_segments=8)
    chunks = [path for path in (Path(folder.url) / "s" / "t").rglob("*") if path.is_file()]
    assert len(chunks) == 2
    sources: dict[str, set[int]] = {}
    snapshot = folder.stream().snapshot()
    for segment in snapshot.record.current.segments:
        for _, extent in snapshot.segments.segment(segment.id).extents:
            assert isinstance(extent.source, str), "it lies in the log"
            sources.setdefault(str(extent.source), set()).add(segment.id)
    assert len(sources) == 2 and all(len(segments) == 8 for segments in sources.values())
    numbers = [int(event.rstrip(".")) for event in folder.events()]
    assert sorted(numbers) == list(range(20_000))
    for key in range(100):
        of_key = [number for number in numbers if number % 100 == key]
        assert of_key == sorted(of_key)


def test_a_segment_with_much_data_gets_a_chunk_of_its_own(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """LTS takes it over as it is, while what shares a chunk is copied."""
    limits.inline_bytes(monkeypatch, 0)
    limits.own_chunk_bytes(monkeypatch, 10_000)
    writer = BatchWriter(folder.parsed(default_num_segments=3), EVENTS_WITH_KEYS)
    keys = ["a"] * 3_000 + list("bcdefghijk")  # some of them of the other segments
    batch = pa.RecordBatch.from_pydict({"event": [f"{number:05d}" for number in range(3_010)], "routing_key": keys})
    message = writer.write(iter([batch]))
    writer.commit([message])
    assert len(message.chunks()) == 2
    container = folder.stream().container
    assert container.flush() > 0
    kept = {chunk for chunk in message.chunks() if (Path(folder.url) / chunk).stat().st_size > 10_000}
    assert set(container.state.garbage) == set(message.chunks()) - kept and len(kept) == 1
    assert sorted(folder.events()) == [f"{number:05d}" for number in range(3_010)]


def test_a_task_with_more_than_a_chunk(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """AnswerSubmissions out by this process, with chunks of some 5 kB instead of 32 MiB."""
    limits.chunk_bytes(monkeypatch, 2_500)  # two of them are collected at a time
    writer = BatchWriter(folder.parsed(default_num_segments=3), EVENTS_WITH_KEYS)
    names = [str(number) for number in range(2_000)]
    batches = [
        pa.RecordBatch.from_pydict({"event": names[first : first + 100], "routing_key": names[first : first + 100]})
        for first in range(0, 2_000, 100)
    ]
    message = writer.write(iter(batches))
    assert 4 <= len(message.chunks()) <= 6
    writer.commit([message])
    events = folder.events()
    assert sorted(events, key=int) == names
    for segment in range(3):
        of_segment = folder.texts(folder.frame().where(f"segment_id = {segment}"))
        assert of_segment == sorted(of_segment, key=int)


def test_nothing_written_and_nothing_read(folder: Folder) -> None:
    folder.append(folder.rows())
    assert folder.stream().exists()
    assert folder.stream().snapshot().size() == 0
    assert folder.events() == []
    assert folder.events("never-written", default_num_segments=3, allow_create_stream=True) == []
    assert len(folder.stream("never-written").snapshot().tail_cut().positions) == 3


# --- between cuts ------------------------------------------------------------------------------------------------


def three_appends(folder: Folder) -> list[str]:
    """Appends events a*, b* and c*, and returns the stream cuts before, between and after."""
    cuts = []
    catalog = Catalog(folder.root)
    catalog.create_scope("s")
    catalog.create_stream("s", "t", ScalingPolicy(min_segments=3))
    for letter in "abc":
        cuts.append(folder.stream().snapshot().tail_cut().as_text())
        folder.put(*[f"{letter}{number}" for number in range(20)])
    return [*cuts, folder.stream().snapshot().tail_cut().as_text()]


def test_between_stream_cuts(folder: Folder) -> None:
    cuts = three_appends(folder)

    def letters(**more: Any) -> str:
        return "".join(sorted({event[0] for event in folder.events(**more)}))

    assert letters() == "abc"
    assert letters(start_stream_cut="earliest", end_stream_cut="latest") == "abc"
    assert letters(start_stream_cut="unbounded", end_stream_cut="unbounded") == "abc"
    assert letters(start_stream_cut="UNBOUNDED", end_stream_cut=" Latest ") == "abc"
    for first in range(4):
        assert letters(start_stream_cut=cuts[first]) == "abc"[first:]
        assert letters(end_stream_cut=cuts[first]) == "abc"[:first]
        for last in range(first, 4):
            assert letters(startStreamCut=cuts[first], ENDSTREAMCUT=cuts[last]) == "abc"[first:last]
    assert len(folder.events(start_stream_cut=cuts[1], end_stream_cut=cuts[2])) == 20


def test_a_frame_is_one_moment_of_the_stream(folder: Folder) -> None:
    """What `latest` means is decided once for a DataFrame, so that all that is computed from it agrees."""
    folder.append(folder.rows("one"))
    frame = folder.frame()
    assert folder.texts(frame) == ["one"]
    folder.append(folder.rows("two"))
    assert folder.texts(frame) == (["one", "two"] if IS_4_0 else ["one"]), "Spark 4.0 plans each action by itself"
    assert folder.events() == ["one", "two"]


def test_between_timestamps(folder: Folder) -> None:
    three_appends(folder)
    stream = folder.stream()
    times = {
        record[2] for segment in range(3) for record in stream.snapshot().segments.index(segment).records(0, 3).tolist()
    }
    first, second, third = sorted(times)
    assert first < second < third
    got = {event[0] for event in folder.events(starting_timestamp=second, ending_timestamp=third)}
    assert got == {"b"}
    assert folder.events(starting_timestamp="2100-01-01T00:00:00Z") == []
    assert len(folder.events(ending_timestamp="2100-01-01")) == 60


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"start_stream_cut": "latest"}, "Option 'start_stream_cut' cannot be 'latest' in a batch read"),
        ({"end_stream_cut": "earliest"}, "Option 'end_stream_cut' cannot be 'earliest'"),
        ({"start_stream_cut": "nonsense"}, "Invalid base64 input"),
    ],
)
def test_impossible_ends(folder: Folder, more: dict[str, str], told: str) -> None:
    folder.append(folder.rows("a"))
    assert told in refusal(lambda: folder.frame(**more).collect())


def test_cuts_that_are_not_this_streams(folder: Folder) -> None:
    cuts = three_appends(folder)
    folder.append(folder.rows("x"), "other")
    foreign = folder.stream("other").snapshot().tail_cut().as_text()
    assert "belongs to another stream than s/t" in refusal(folder.frame(start_stream_cut=foreign).collect)
    assert "belongs to another stream than s/t" in refusal(folder.frame(end_stream_cut=foreign).collect)
    told = refusal(folder.frame(start_stream_cut=cuts[2], end_stream_cut=cuts[1]).collect)
    assert "Segment offset in startStreamCut should be <= segment offset in endStreamCut" in told
    beyond = StreamCut("s", "t", {0: 10**9, 1: 0, 2: 0}).as_text()
    assert "segment 0.0 of s/t has offsets 0 to" in refusal(folder.frame(end_stream_cut=beyond).collect)


# --- partitions --------------------------------------------------------------------------------------------------


def test_how_many_partitions(folder: Folder) -> None:
    frame = folder.spark.range(0, 10_000, 1, 1).selectExpr(
        "concat(cast(id AS string), repeat('-', 100)) AS event", "cast(id AS string) AS routing_key"
    )
    folder.append(frame, default_num_segments=2)
    size = folder.stream().snapshot().size()

    def partitions(**more: Any) -> int:
        """Into how many partitions the stream is cut; all events are in one of them each."""
        read = folder.frame(**more)
        (row,) = read.selectExpr("count(*)", "count(DISTINCT segment_id, offset, event)").collect()
        assert tuple(row) == (10_000, 10_000)
        return int(read.rdd.getNumPartitions())

    assert partitions() == 1, "small data is not cut into tiny tasks"
    assert partitions(min_partitions=6) >= 6
    assert 4 <= partitions(max_bytes_per_partition=size // 6) <= 8
    assert partitions(max_bytes_per_partition=1) >= 2 * (size // 2 // (64 << 10)) - 2, "at every index record"


def test_small_segments_share_a_partition(folder: Folder) -> None:
    names = [str(number) for number in range(200)]
    folder.append(folder.rows(*names, keys=names), default_num_segments=50)
    assert folder.frame().rdd.getNumPartitions() == 1
    assert sorted(folder.events(), key=int) == names


# --- what is refused ---------------------------------------------------------------------------------------------


def test_columns_of_the_wrong_type(folder: Folder) -> None:
    spark = folder.spark
    told = refusal(lambda: folder.append(spark.range(1).selectExpr("id AS payload")))
    assert "Required attribute 'event' not found" in told
    told = refusal(lambda: folder.append(spark.range(1).selectExpr("id AS event")))
    assert "event attribute type must be a string or binary; received unsupported type bigint" in told
    told = refusal(lambda: folder.append(spark.range(1).selectExpr("array('a') AS event")))
    assert "received unsupported type array<string>" in told
    told = refusal(lambda: folder.append(spark.range(1).selectExpr("'a' AS event", "id AS routing_key")))
    assert "routing_key attribute type must be a string; received unsupported type bigint" in told


def test_a_null_event(folder: Folder) -> None:
    told = refusal(lambda: folder.append(folder.rows("a", "b", None, "d")))
    assert "Column 'event' is null in 1 of the 4 rows" in told
    assert folder.events() == []


def test_one_bad_task_writes_nothing(folder: Folder) -> None:
    """All tasks' rows or none, also where the others have written chunks already."""
    frame = folder.spark.range(0, 20_000, 1, 2).selectExpr(
        "CASE WHEN id = 19999 THEN NULL ELSE repeat('z', 100) END AS event"
    )
    assert "Column 'event' is null in 1 of the" in refusal(lambda: folder.append(frame))
    assert folder.events() == []


def test_save_modes(folder: Folder) -> None:
    writer = folder.rows("a").write.format("pravega").options(**folder.options())
    told = refusal(writer.mode("overwrite").save)
    assert "Save mode 'overwrite' is not supported: events can only be appended. Use mode('append')." in told
    for mode in ("ignore", "error", "errorifexists"):
        assert "UNSUPPORTED_DATA_SOURCE_SAVE_MODE" in refusal(writer.mode(mode).save)
    writer.mode("append").save()
    assert folder.events() == ["a"]


@fills_columns_in
def test_what_spark_refuses_is_in_the_guide_by_its_words(tables: Folder) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "spark.md").read_text("utf-8")
    rows = tables.rows("a", keys=["k"])

    def append() -> DataFrameWriter:
        return rows.write.format("pravega").options(**tables.options()).mode("append")

    def update() -> None:
        query = tables.follow().writeStream.format("pravega").options(**tables.options("other")).outputMode("update")
        query.option("checkpointLocation", tables.checkpoint()).start().awaitTermination()

    append().save()
    for call, told in (
        (append().mode("errorifexists").save, 'cannot be written in the "ErrorIfExists" mode'),
        (append().mode("ignore").save, 'cannot be written in the "Ignore" mode'),
        (append().partitionBy("routing_key").save, "columns do not match the existing table's."),
        (append().clusterBy("routing_key").save, "columns do not match the existing table's."),
        (append().bucketBy(2, "routing_key").save, "'save' does not support bucketBy right now."),
        (update, "pravega does not support Update mode."),
        (append().mode("overwrite").save, "Save mode 'overwrite' is not supported: events can only"),
        (
            lambda: tables.spark.sql("INSERT OVERWRITE one (event) VALUES (CAST('b' AS BINARY))"),
            "Save mode 'overwrite' is not supported: events can only",
        ),
    ):
        assert told in refusal(call) and told in guide, told
    assert tables.events() == ["a"]


def test_scope_and_stream_are_made_unless_that_is_switched_off(folder: Folder) -> None:
    write = folder.rows("a")
    told = refusal(lambda: folder.append(write, allow_create_scope=False))
    assert "Scope does not exist: s" in told
    assert "Scope does not exist: s" in refusal(folder.frame(allow_create_scope=False).collect)
    told = refusal(lambda: folder.append(write, allow_create_stream=False))
    assert "Scope does not exist: s, so there is no stream s/t" in told and "allow_create_stream" in told
    folder.append(write, allow_create_scope=True, allow_create_stream=True)
    folder.append(write, allow_create_scope=False, allow_create_stream=False)
    assert folder.events(allow_create_stream=False) == ["a", "a"]


def test_options_that_nobody_knows(folder: Folder) -> None:
    folder.append(folder.rows("a"), startingOffsets="earliest", x=True, n=5)
    assert folder.events(endingOffsets="latest", spark_only="1") == ["a"]


def test_a_broker_is_refused_with_advice(folder: Folder) -> None:
    reader = folder.spark.read.format("pravega").option("controller", "tcp://localhost:9090")
    told = refusal(lambda: reader.option("scope", "s").option("stream", "t").load().collect())
    assert "there is no broker" in told
    assert "Missing required option 'scope'" in refusal(folder.spark.read.format("pravega").load)


def test_sealed_stream(folder: Folder) -> None:
    folder.append(folder.rows("a"))
    folder.stream().seal()
    assert folder.events() == ["a"]
    assert "sealed" in refusal(lambda: folder.append(folder.rows("b")))
    assert folder.events() == ["a"]


def test_a_stream_that_was_deleted_and_made_again(folder: Folder) -> None:
    """Spark's processes live on, and what they knew of the old stream must not stick to them."""
    for round_trip, segments in enumerate((1, 3, 2)):
        names = [f"{round_trip}-{number}" for number in range(30)]
        folder.append(folder.rows(*names, keys=names), default_num_segments=segments)
        assert sorted(folder.events()) == sorted(names)
        assert len(folder.stream().snapshot().record.current.segments) == segments
        folder.stream().seal()
        folder.stream().delete()
    assert folder.events(default_num_segments=5, allow_create_stream=True) == []
    assert folder.frame(metadata="Segments").count() == 5


# --- secrets -----------------------------------------------------------------------------------------------------


def test_secrets_are_shown_nowhere(folder: Folder, s3_server: S3Server) -> None:
    secret = "sesame-open"
    storage = {**s3_server.storage_options(), "secret": secret, "token": secret}
    options: dict[str, Any] = {"controller": f"{s3_server.make_bucket()}/streams"}
    options |= {f"storage.{name}": json.dumps(each) for name, each in storage.items()}
    folder.append(folder.rows("a"), **options)
    frame = folder.frame(**options)
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        frame.explain(True)
        frame.explain("formatted")
    assert "segment_id" in shown.getvalue()
    errors = [
        refusal(lambda: folder.frame(start_stream_cut="nonsense", **options).collect()),
        refusal(lambda: folder.append(folder.rows(None), **options)),
        refusal(lambda: folder.append(folder.rows("a").selectExpr("1 AS event"), **options)),
        refusal(lambda: folder.append(folder.rows("b"), allow_create_scope="maybe", **options)),
        refusal(folder.frame("unknown", allow_create_stream=False, **options).collect),
        refusal(lambda: folder.frame(txn_app_id="x", **options)),
    ]
    errors.append(refusal(lambda: folder.append(folder.rows("b"), **{**options, "storage.aws_key": secret})))
    with Root.open(str(options["controller"]), storage) as root:
        Catalog(root).stream("s", "t").seal()
    errors.append(refusal(lambda: folder.append(folder.rows("b"), **options)))
    for text in [shown.getvalue(), *errors]:
        assert secret not in text


# --- SQL ---------------------------------------------------------------------------------------------------------


def test_temporary_view(folder: Folder) -> None:
    folder.append(folder.rows("a", "b"))
    options = f"controller '{folder.url}', scope 's', stream 't'"
    folder.spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW events USING pravega OPTIONS ({options})")
    rows = folder.spark.sql("SELECT cast(event AS string) AS event FROM events WHERE offset > 0").collect()
    assert [row.event for row in rows] == ["b"]


@fills_columns_in
def test_insert_into_a_view(folder: Folder) -> None:
    folder.append(folder.rows("a"))
    folder.frame().createOrReplaceTempView("events")
    folder.spark.sql("INSERT INTO events (event) VALUES (cast('b' AS binary))")
    assert folder.events() == ["a", "b"]


@pytest.fixture
def insertable(folder: Folder) -> Iterator[Folder]:
    """Tables `keyed` and `other`, and a view `viewed`, with option `insertable`: the streams of these names."""
    for name, kind in (("keyed", "TABLE"), ("other", "TABLE"), ("viewed", "TEMPORARY VIEW")):
        where = f"controller '{folder.url}', scope 's', stream '{name}', default_num_segments '4', insertable 'true'"
        folder.spark.sql(f"CREATE {kind} {name} USING pravega OPTIONS ({where})")
    yield folder
    for name in ("keyed", "other"):
        folder.spark.sql(f"DROP TABLE IF EXISTS {name}")
    folder.spark.catalog.dropTempView("viewed")


KEYS = ["a", "b", "c", "d", "e", "f"]


@fills_columns_in
@pytest.mark.parametrize("name", ["keyed", "viewed"])
def test_an_insert_of_texts_with_routing_keys(insertable: Folder, name: str) -> None:
    """The rows lie in the segments that `df.write` chooses, and a read has the same bytes, but no keys."""
    spark, rows = insertable.spark, insertable.rows(*KEYS, keys=KEYS)
    rows.createOrReplaceTempView("texts")
    spark.sql(f"INSERT INTO {name} (routing_key, event) SELECT routing_key, event FROM texts")
    insertable.append(rows, "written", default_num_segments=4)
    placed = {bytes(row.event): row.segment_id for row in insertable.frame("written").collect()}
    spark.sql(f"INSERT INTO {name} (event, routing_key) VALUES ('ü', 'a'), ('no key', NULL)")
    spark.sql(f"INSERT INTO {name} (event, routing_key) VALUES (x'ff00', 'b')")
    read = spark.sql(f"SELECT *, cast(event AS binary) AS octets FROM {name}").collect()
    found = {bytes(row.octets): row.segment_id for row in read if row.event != "no key"}
    assert found == {**placed, "ü".encode(): placed[b"a"], b"\xff\x00": placed[b"b"]} and len(read) == len(found) + 1
    assert {(row.routing_key, row.stream) for row in read} == {(None, name)}
    assert {*KEYS, "ü", "no key"} < {row.event for row in read}


def test_an_insert_that_gives_all_columns(insertable: Folder) -> None:
    """As Spark 4.0 needs it; the columns that a write does not take are null."""
    insertable.spark.sql("INSERT INTO keyed VALUES ('a', 'k', null, null, null, null)")
    insertable.spark.sql("INSERT INTO keyed VALUES ('b', 'k', default, default, default, default)")
    assert insertable.events("keyed") == ["a", "b"]


@fills_columns_in
def test_other_inserts_into_an_insertable_table(insertable: Folder) -> None:
    spark = insertable.spark
    spark.sql("INSERT INTO keyed BY NAME SELECT 'by name' AS event, 'a' AS routing_key")
    insertable.rows("to", keys=["a"]).writeTo("keyed").append()
    insertable.rows("saved", keys=["a"]).write.format("pravega").mode("append").saveAsTable("keyed")
    for _ in range(2):
        spark.sql("INSERT INTO keyed WITH (`txn_app_id` = 'j', `txn_version` = '1') (event) VALUES ('once')")
    rows = insertable.frame("keyed").collect()
    assert sorted(bytes(row.event) for row in rows) == [b"by name", b"once", b"saved", b"to"]
    assert len({row.segment_id for row in rows if bytes(row.event) != b"once"}) == 1


@fills_columns_in
def test_rows_of_an_insertable_table_never_go_into_the_wrong_one(insertable: Folder) -> None:
    spark, error = insertable.spark, "column 'scope' has values"
    spark.sql("INSERT INTO other (event, routing_key) VALUES ('x', 'k')")
    assert error in refusal(lambda: spark.sql("INSERT INTO keyed SELECT * FROM other"))
    assert error in refusal(lambda: spark.sql("INSERT INTO keyed (event, scope) VALUES ('text', 's')"))
    spark.sql("INSERT INTO keyed (event, routing_key) SELECT event, routing_key FROM other")
    assert insertable.events("keyed") == insertable.events("other") == ["x"]


@fills_columns_in
def test_what_spark_refuses_in_an_insert_is_in_the_guide_by_its_words(tables: Folder) -> None:
    guide, spark = Path("docs/sql.md").read_text("utf-8"), tables.spark
    where = f"controller '{tables.url}', scope 's', stream 'one', insertable 'true'"
    spark.sql(f"CREATE OR REPLACE TABLE one USING pravega OPTIONS ({where})")
    rows = tables.rows("a", keys=["k"])
    saved = rows.write.format("pravega").options(**tables.options("one"))
    few, cast = "INSERT_COLUMN_ARITY_MISMATCH.NOT_ENOUGH_DATA_COLUMNS", "INCOMPATIBLE_DATA_FOR_TABLE.CANNOT_SAFELY_CAST"
    refused: tuple[tuple[Callable[[], Any], str], ...] = (
        (lambda: spark.sql("INSERT INTO one VALUES ('a', 'k')"), few),
        (lambda: rows.write.insertInto("one"), few),
        (lambda: spark.sql("INSERT INTO one (event) SELECT struct(1)"), cast),
        (lambda: spark.sql("INSERT INTO two (event) VALUES ('a')"), cast),
        (
            lambda: spark.sql("INSERT INTO two (event, routing_key) VALUES (x'00', 'k')"),
            "UNRESOLVED_COLUMN.WITH_SUGGESTION",
        ),
        (lambda: rows.write.mode("append").saveAsTable("one"), "The format of the existing table"),
        (lambda: saved.saveAsTable("one"), "TABLE_OR_VIEW_ALREADY_EXISTS"),
    )
    for work, words in refused:
        assert words in refusal(work) and f"`{words}" in guide, words
    saved.mode("append").saveAsTable("one")
    assert tables.events("one") == ["a"], "only what was not refused is written"
    assert "Save mode 'overwrite' is not supported" in refusal(lambda: saved.mode("overwrite").saveAsTable("one"))
    assert not spark.catalog.tableExists("one") and "Spark has removed the table from the catalog" in guide
    assert tables.events("one") == ["a"] and not tables.stream("two").exists()


@pytest.fixture
def tables(folder: Folder) -> Iterator[Folder]:
    """Tables `one` and `two`, which are the streams of these names."""
    for name in ("one", "two"):
        folder.spark.sql(
            f"CREATE TABLE {name} USING pravega OPTIONS (Controller '{folder.url}', scope 's', stream '{name}', "
            "'storage.secret' 'sesame')"
        )
    yield folder
    for name in ("one", "two"):
        folder.spark.sql(f"DROP TABLE IF EXISTS {name}")


@fills_columns_in
def test_table(tables: Folder) -> None:
    spark = tables.spark
    spark.sql("INSERT INTO one (event) SELECT encode(cast(id AS string), 'utf-8') FROM range(0)")
    assert spark.table("one").count() == 0
    spark.sql("INSERT INTO one (event) VALUES (cast('a' AS binary)), (cast('b' AS binary))")
    spark.sql("INSERT INTO two SELECT event, NULL, NULL, NULL, NULL FROM one")
    spark.sql("INSERT INTO two (event) SELECT concat(event, event) FROM one")
    assert sorted(tables.events("one")) == ["a", "b"]
    assert sorted(tables.events("two")) == ["a", "aa", "b", "bb"]
    found = spark.sql("SELECT scope, stream, segment_id, offset FROM one ORDER BY offset").collect()
    assert [tuple(row) for row in found] == [("s", "one", 0, 0), ("s", "one", 0, 9)]
    assert spark.sql("SELECT * FROM one WITH (`starting_timestamp` = '2100-01-01')").count() == 0
    assert "sesame" not in spark.table("one").schema.json()
    spark.sql("DROP TABLE one")
    assert len(tables.events("one")) == 2, "a table is a name for a stream: dropping it deletes no events"


@fills_columns_in
def test_rows_of_one_table_never_go_into_the_wrong_one(tables: Folder) -> None:
    """Spark does not tell the sink which table it inserts into, so it is refused wherever that is in doubt."""
    spark = tables.spark
    spark.sql("INSERT INTO one (event) VALUES (cast('a' AS binary))")
    told = "INSERT INTO: column 'scope' has values"
    assert told in refusal(lambda: spark.sql("INSERT INTO two SELECT * FROM one"))
    assert told in refusal(lambda: spark.table("one").write.insertInto("two"))
    assert told in refusal(lambda: spark.sql("INSERT INTO two SELECT event, 's', 'two', 0L, 0L FROM one"))
    for columns in (
        "event, cast(NULL AS string) AS scope, stream, segment_id, offset",
        "concat(event, event) AS event, scope, stream, segment_id, offset",
    ):
        told = refusal(lambda columns=columns: spark.sql(f"INSERT INTO two SELECT {columns} FROM one"))  # type: ignore[misc]
        assert "Missing required option 'scope'" in told
    assert tables.events("one") == ["a"] and tables.events("two") == []
    spark.table("one").write.format("pravega").options(**tables.options("two")).mode("append").save()
    assert tables.events("one") == tables.events("two") == ["a"]


@fills_columns_in
def test_what_tables_cannot(tables: Folder) -> None:
    """The table of docs/sql.md: each is refused with a sentence, and none writes or shows what it should not."""
    spark = tables.spark
    tables.put("a", stream="one")
    shown = spark.sql("DESCRIBE EXTENDED one").collect() + spark.sql("SHOW TBLPROPERTIES one").collect()
    shown += spark.sql("SHOW CREATE TABLE one").collect()
    assert "binary" in str(shown) and "sesame" not in str(shown) and tables.url not in str(shown)
    no_options = "it was created without its options, by saveAsTable"
    tables.rows("b").write.format("pravega").options(**tables.options("one")).mode("append").saveAsTable("saved")
    spark.sql(f"CREATE TABLE listed (event BINARY) USING pravega OPTIONS (controller '{tables.url}')")
    try:
        for name in ("saved", "listed"):
            assert no_options in refusal(spark.table(name).count)
        assert no_options in refusal(lambda: spark.sql("INSERT INTO saved SELECT 'c'"))
    finally:
        spark.sql("DROP TABLE saved")
        spark.sql("DROP TABLE listed")
    made = f"CREATE TABLE made USING pravega OPTIONS (controller '{tables.url}', scope 's', stream 'one') AS SELECT 'c'"
    assert no_options in refusal(lambda: spark.sql(f"{made} AS event"))
    query = tables.follow("one", start_stream_cut="earliest").select("event").writeStream.trigger(availableNow=True)
    started = query.option("checkpointLocation", tables.checkpoint()).toTable("two")
    assert "a query writes with format('pravega')" in refusal(started.awaitTermination)
    told = refusal(lambda: spark.sql("INSERT OVERWRITE one (event) VALUES (cast('c' AS binary))"))
    assert "use INSERT INTO instead of INSERT OVERWRITE" in told
    assert "CANNOT_SAFELY_CAST" in refusal(lambda: spark.sql("INSERT INTO one (event) VALUES ('c')"))
    assert "TIME_TRAVEL" in refusal(lambda: spark.read.option("versionAsOf", "1").table("one"))
    assert "TIME_TRAVEL" in refusal(lambda: spark.sql("SELECT * FROM one TIMESTAMP AS OF '2026-01-01'"))
    assert tables.events("one") == ["a", "b"] and spark.read.option("starting_timestamp", "0").table("one").count() == 2


# --- metadata ----------------------------------------------------------------------------------------------------


def test_metadata_tables(folder: Folder) -> None:
    names = [str(number) for number in range(30)]
    folder.append(folder.rows(*names, keys=names), default_num_segments=2)
    folder.append(folder.rows("x"), "other")
    streams = folder.frame(metadata="Streams").collect()
    assert [(row.scope_name, row.stream_name) for row in streams] == [("s", "other"), ("s", "t")]
    (info,) = folder.frame(metadata="StreamInfo").collect()
    snapshot = folder.stream().snapshot()
    assert info.head_stream_cut == snapshot.head_cut().as_text()
    assert info.tail_stream_cut == snapshot.tail_cut().as_text()
    segments = folder.frame(metadata="Segments").collect()
    ranges = [(row.segment_id, row.epoch, row.key_start, row.key_end) for row in segments]
    assert ranges == [(0, 0, 0.0, 0.5), (1, 0, 0.5, 1.0)]
    assert [row.segment for row in segments] == ["0.0", "1.0"]
    assert sum(row.events for row in segments) == 30
    assert sum(row.length for row in segments) == snapshot.size()
    assert "Option 'metadata' must be one of" in refusal(lambda: folder.frame(metadata="streams"))


def test_metadata_tables_of_a_whole_root(folder: Folder) -> None:
    folder.append(folder.rows("a"), default_retention_size_bytes=1)
    folder.append(folder.rows("x"), "other")
    retention.retain(folder.stream())  # unless who wrote has recorded the cut already
    transaction, _ = transactions.begin(folder.stream("other"))

    def table(name: str, **options: str) -> DataFrame:
        whole = {"controller": folder.url, "metadata": name, **options}
        return folder.spark.read.format("pravega").options(**whole).load()

    (cut,) = table("StreamCuts").collect()
    assert (cut.stream_name, cut.stream_cut) == ("t", folder.stream().snapshot().tail_cut().as_text())
    assert abs(cut.recorded.timestamp() - time.time()) < 600
    (opened,) = table("Transactions", scope="s").collect()
    assert (opened.stream_name, opened.transaction_id) == ("other", str(transaction.id))
    chunks = table("Chunks").where("segment LIKE '%#epoch.0'")
    assert sorted((row.stream_name, row.length) for row in chunks.collect()) == [("other", 9), ("t", 9)]
    assert chunks.schema["place"].metadata["comment"].startswith("chunk: in LTS")
    containers = table("Containers")
    assert containers.where("online AND reason IS NULL").count() == folder.root.config.containers
    assert "Missing required option 'stream'" in refusal(lambda: table("Segments", scope="s"))


# --- idempotence -------------------------------------------------------------------------------------------------


def test_a_versioned_write_is_done_once(folder: Folder) -> None:
    def write(event: str, app: str, version: int) -> None:
        folder.append(folder.rows(event), txn_app_id=app, txn_version=version)

    write("a", "job", 0)
    write("a again", "job", 0)
    write("b", "job", 7)
    write("older", "job", 6)
    write("c", "another job", 0)
    folder.append(folder.rows("d"))
    assert folder.events() == ["a", "b", "c", "d"]


def test_a_versioned_write_of_chunks_is_done_once(folder: Folder) -> None:
    big = folder.spark.range(0, 10_000, 1, 1).selectExpr("concat(cast(id AS string), repeat('.', 100)) AS event")
    for _ in range(2):
        folder.append(big, txn_app_id="job", txn_version=1)
    assert folder.frame().count() == 10_000
    chunks = [path for path in (Path(folder.url) / "s" / "t").rglob("*") if path.is_file()]
    garbage = folder.stream().container.refresh().garbage
    assert len(chunks) == 2 and len(garbage) == 1, "the chunk that was not attached is garbage"
    assert folder.frame().selectExpr("count(DISTINCT event)").collect()[0][0] == 10_000


def test_foreach_batch_with_a_version(folder: Folder) -> None:
    """A batch whose function failed after it had written is written once all the same, to two streams."""
    folder.append(folder.rows(*(str(number) for number in range(20))))
    failures = iter([True, False, False])

    def save(batch: DataFrame, number: int) -> None:
        for name in ("one", "two"):
            text = batch.selectExpr("cast(event AS string) AS event")
            folder.append(text, name, txn_app_id=f"copy to {name}", txn_version=number)
        if next(failures):
            raise RuntimeError("the power failed")

    def run() -> None:
        source = folder.follow(start_stream_cut="earliest", max_events_per_trigger=10)
        query = source.writeStream.foreachBatch(save).option("checkpointLocation", folder.checkpoint())
        read_all(query)

    assert "the power failed" in refusal(run)
    run()
    assert folder.events("one") == folder.events("two") == [str(number) for number in range(20)]


def test_what_a_session_sees(spark: SparkSession) -> None:
    """The format is found without registration; the class has one more name for Python programs."""
    from pravega_spark import PravegaDataSource

    assert PravegaDataSource.name() == "pravega"
    assert "scope" in refusal(spark.read.format("pravega").load)
