"""Streaming queries: offsets, limits, where they begin and end, and what they do when nothing happens."""

from __future__ import annotations

import base64
import gzip
import json
import pickle
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from pravega_spark.source.micro_batch import MicroBatchReader
from pravega_spark.source.offset import cut_of, id_of
from pravega_spark.source.spark_api.read_limits import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from pravega_spark.source.spark_api.stream_reader import tells_position
from pravega_spark.streams.maintenance.retention import retain
from pravega_spark.streams.maintenance.subscribers import subscribers
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.model.policies import RetentionPolicy
from pravega_spark.streams.stream import Stream
from tests.spark.folder import Folder, read_all


def numbers(first: int, end: int) -> list[str]:
    return [f"{number:04d}" for number in range(first, end)]


@contextmanager
def running(frame: DataFrame, folder: Folder) -> Iterator[StreamingQuery]:
    """A query that goes on and on, with its rows in the table of memory `seen`."""
    writer = frame.selectExpr("cast(event AS string) AS event").writeStream.format("memory").queryName("seen")
    query = writer.option("checkpointLocation", folder.checkpoint()).trigger(processingTime="0 seconds").start()
    try:
        query.processAllAvailable()
        yield query
    finally:
        query.stop()


def seen(folder: Folder) -> list[str]:
    return sorted(row.event for row in folder.spark.table("seen").collect())


def progress_of(query: StreamingQuery) -> StreamingQueryProgress:
    progress = query.lastProgress
    assert progress is not None
    return progress


def offsets(folder: Folder) -> list[Any]:
    """What the query's checkpoint keeps as the end of each batch."""
    log = Path(folder.checkpoint()) / "offsets"
    files = sorted((file for file in log.iterdir() if file.name.isdigit()), key=lambda file: int(file.name))
    return [json.loads(file.read_text().splitlines()[-1]) for file in files]


def objects(folder: Folder) -> set[str]:
    return {str(path) for path in Path(folder.url).rglob("*") if path.is_file()}


# --- the reader by itself ----------------------------------------------------------------------------------------


def read(reader: MicroBatchReader, start: Any, end: Any) -> list[str]:
    """The events between two offsets, read as by tasks."""
    found: list[str] = []
    for partition in reader.partitions(start, end):
        task = pickle.loads(pickle.dumps(reader))
        for batch in task.read(pickle.loads(pickle.dumps(partition))):
            found.extend(event.decode() for event in batch.column("event").to_pylist())
    return found


def batches(reader: MicroBatchReader, start: Any) -> list[list[str]]:
    """The events of each trigger, until there is nothing more."""
    found = []
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
        found.append(read(reader, start, end))
        start = end
    return found


@pytest.mark.parametrize("segments", [1, 4])
@pytest.mark.parametrize("limit", [1, 7, 50, 1000])
def test_limit_by_events_is_exact(folder: Folder, segments: int, limit: int) -> None:
    for first in range(0, 60, 20):
        folder.put(*numbers(first, first + 20), default_num_segments=segments)
    reader = MicroBatchReader(folder.parsed(start_stream_cut="earliest", max_events_per_trigger=limit))
    assert reader.getDefaultReadLimit() == ReadMaxRows(limit)
    found = batches(reader, reader.initialOffset())
    assert [len(batch) for batch in found[:-1]] == [limit] * (len(found) - 1)
    assert 0 < len(found[-1]) <= limit
    assert sorted(event for batch in found for event in batch) == numbers(0, 60)


@pytest.mark.parametrize("name", ["approx_bytes_per_trigger", "maxBytesPerTrigger"])
def test_limit_by_bytes_goes_to_the_next_index_record(folder: Folder, name: str) -> None:
    for first in range(0, 100, 5):  # each append ends with an index record, and has 5 * 12 bytes
        folder.put(*numbers(first, first + 5))
    reader = MicroBatchReader(folder.parsed("t", start_stream_cut="earliest", **dict[str, Any]({name: 200})))
    assert reader.getDefaultReadLimit() == ReadMaxBytes(200)
    found = batches(reader, reader.initialOffset())
    assert [len(batch) for batch in found] == [20] * 5
    assert [event for batch in found for event in batch] == numbers(0, 100)


def test_both_limits(folder: Folder) -> None:
    for first in range(0, 100, 5):
        folder.put(*numbers(first, first + 5))
    reader = MicroBatchReader(folder.parsed(start_stream_cut="earliest", maxBytesPerTrigger=200, maxEventsPerTrigger=8))
    assert [len(batch) for batch in batches(reader, reader.initialOffset())] == [8] * 12 + [4]
    tiny = MicroBatchReader(folder.parsed(start_stream_cut="earliest", maxBytesPerTrigger=1, maxEventsPerTrigger=8))
    assert [len(batch) for batch in batches(tiny, tiny.initialOffset())] == [5] * 20


def test_no_limit(folder: Folder) -> None:
    folder.put(*numbers(0, 30), default_num_segments=3)
    reader = MicroBatchReader(folder.parsed(start_stream_cut="earliest"))
    assert reader.getDefaultReadLimit() == ReadAllAvailable()
    assert [sorted(batch) for batch in batches(reader, reader.initialOffset())] == [numbers(0, 30)]


def test_where_latest_is_does_not_change_while_a_query_starts(folder: Folder) -> None:
    """Spark asks for the first offset twice; were the second answer another one, events would fall between."""
    folder.put("old")
    reader = MicroBatchReader(folder.parsed())
    first = reader.initialOffset()
    folder.put("new")
    assert reader.initialOffset() == first
    assert batches(reader, first) == [["new"]]


def test_offsets_of_another_spelling_are_read_on(folder: Folder) -> None:
    """A checkpoint may have been written by the original, whose texts of one cut differ from run to run."""
    folder.put("a")
    reader = MicroBatchReader(folder.parsed(start_stream_cut="earliest"))
    text = StreamCut("s", "t", {0: 9}).as_text()
    other = base64.b64encode(gzip.compress(b"0:s/t:0:0:9", mtime=12345)).decode()
    assert other != text and StreamCut.from_text(other) == StreamCut.from_text(text)
    assert reader.latestOffset(other, ReadAllAvailable()) == other, "nothing new is nothing new in any spelling"
    folder.put("b")
    assert batches(reader, other) == [["b"]]


def test_the_end_cut_bounds_a_reader(folder: Folder) -> None:
    """However much comes behind it. A reader without an end reads on from there."""
    folder.put(*numbers(0, 10), default_num_segments=3)
    begin = folder.stream().snapshot().tail_cut().as_text()
    folder.put(*numbers(10, 30))
    end = folder.stream().snapshot().tail_cut().as_text()
    folder.put(*numbers(30, 40))
    bounded = MicroBatchReader(folder.parsed(start_stream_cut=begin, end_stream_cut=end, max_events_per_trigger=15))
    found = batches(bounded, bounded.initialOffset())
    assert [len(batch) for batch in found] == [15, 5] and sorted(found[0] + found[1]) == numbers(10, 30)
    folder.put(*numbers(40, 50))
    assert batches(bounded, end) == []
    unbounded = MicroBatchReader(folder.parsed(start_stream_cut=begin))
    assert [sorted(batch) for batch in batches(unbounded, end)] == [numbers(30, 50)]


def test_times_bound_a_reader(folder: Folder) -> None:
    for first in range(0, 30, 10):
        folder.put(*numbers(first, first + 10))
    times = folder.stream().snapshot().segments.index(0).records(0, 3)[:, 2].tolist()
    assert times == sorted(set(times))
    reader = MicroBatchReader(folder.parsed(starting_timestamp=times[1], ending_timestamp=times[2]))
    assert batches(reader, reader.initialOffset()) == [numbers(10, 20)]
    folder.put(*numbers(30, 40))
    assert batches(reader, folder.stream().snapshot().cut_at(times[2]).as_text()) == []


# --- queries -----------------------------------------------------------------------------------------------------


def test_source_to_sink_and_the_offset_log(folder: Folder) -> None:
    """Every event once; offsets are stream cuts, as text; limits hold from the first trigger on."""
    for first in range(0, 50, 10):
        folder.put(*numbers(first, first + 10), default_num_segments=3)
    source = folder.follow(start_stream_cut="earliest", max_events_per_trigger=20)
    assert folder.drain(source, default_num_segments=2) == [20, 20, 10]
    assert sorted(folder.events("sink")) == numbers(0, 50)
    kept = offsets(folder)
    cuts = [cut_of(offset) for offset in kept]
    assert cuts[0].precedes(cuts[1]) and cuts[1].precedes(cuts[2])
    assert cuts[2] == folder.stream().snapshot().tail_cut()
    assert len(kept) == 3 and {id_of(offset) for offset in kept} == {folder.stream().snapshot().record.id}

    assert folder.drain(source) == [], "a restart with nothing new is nothing"
    folder.put("0050")
    assert folder.drain(source) == [1], "a restart goes on where the query was"
    assert sorted(folder.events("sink")) == numbers(0, 51)


def test_progress_shows_positions_and_lag(folder: Folder) -> None:
    for first in range(0, 30, 10):
        folder.put(*numbers(first, first + 10))
    source = folder.follow(start_stream_cut="earliest", max_events_per_trigger=20)
    query = source.writeStream.format("noop").option("checkpointLocation", folder.checkpoint())
    started = read_all(query)
    told = [json.loads(one.json)["sources"][0] for one in started.recentProgress]
    latest = [one["latestOffset"] for one in told if one["numInputRows"]]
    if not tells_position():
        assert [type(one) for one in latest] == [str, str], "offsets, as this Spark does not ask for more"
        return
    assert [one["reached"] for one in latest] == [{"0.0": 240}, {"0.0": 360}]
    assert [one["tail"] for one in latest] == [{"0.0": 360}] * 2
    assert [one["lag"]["events"] for one in latest] == [10, 0]


def test_available_now_ends_at_the_tail_of_its_start(folder: Folder) -> None:
    """What is appended while the query runs is left to the next one."""
    for first in range(0, 30, 10):
        folder.put(*numbers(first, first + 10))
    got: list[str] = []

    def save(batch: DataFrame, number: int) -> None:
        got.extend(folder.texts(batch))
        folder.put(*numbers(1000 + 10 * number, 1010 + 10 * number))

    def run() -> None:
        source = folder.follow(start_stream_cut="earliest", max_events_per_trigger=10, limit_first_batch=False)
        query = source.writeStream.foreachBatch(save).option("checkpointLocation", folder.checkpoint())
        assert query.trigger(availableNow=True).start().awaitTermination(100)

    run()
    assert got == numbers(0, 30)
    run()
    batches = 3 if tells_position() else 1
    assert got == numbers(0, 30) + numbers(1000, 1000 + 10 * batches)


def test_a_running_query(folder: Folder) -> None:
    """It starts at the latest event, sees what comes, and an idle one writes nothing anywhere."""
    folder.put(*numbers(0, 10))
    with running(folder.follow(), folder) as query:
        assert seen(folder) == []
        folder.put(*numbers(10, 20))
        query.processAllAvailable()
        assert seen(folder) == numbers(10, 20)
        before, progress = objects(folder), progress_of(query)
        batch, polled = progress["batchId"], progress["timestamp"]
        kept = offsets(folder)
        query.processAllAvailable()
        query.awaitTermination(2)
        assert objects(folder) == before and offsets(folder) == kept
        assert progress_of(query)["batchId"] - batch in (0, 1)
        assert query.isActive and polled
        folder.put("0020")
        query.processAllAvailable()
        assert seen(folder) == numbers(10, 21)


def test_a_sealed_sink(folder: Folder) -> None:
    """A batch that was committed before is a replay; another is refused before a task writes any of its rows."""
    folder.put(*numbers(0, 10))
    source = folder.follow(start_stream_cut="earliest")
    assert folder.drain(source) == [10]
    folder.stream("sink").seal()
    for file in (Path(folder.checkpoint()) / "commits").iterdir():
        file.unlink()
    folder.drain(source)
    folder.put(*(f"{number:0200d}" for number in range(4000)))  # too much for a commit message
    there = objects(folder)
    with pytest.raises(StreamingQueryException, match="Stream is sealed: s/sink"):
        folder.drain(source)
    assert {path for path in objects(folder) - there if "/s/sink/" in path} == set()
    assert sorted(folder.events("sink")) == numbers(0, 10)


@pytest.mark.long
def test_start_at_a_cut_and_end_at_a_cut(folder: Folder) -> None:
    """The end cut bounds the query: it sees nothing behind it, however much comes. (The original ignores it.)"""
    folder.put(*numbers(0, 10), default_num_segments=3)
    begin = folder.stream().snapshot().tail_cut().as_text()
    folder.put(*numbers(10, 30))
    end = folder.stream().snapshot().tail_cut().as_text()
    folder.put(*numbers(30, 40))
    source = folder.follow(start_stream_cut=begin, end_stream_cut=end, max_events_per_trigger=15)
    assert folder.drain(source) == [15, 5]
    assert sorted(folder.events("sink")) == numbers(10, 30)
    folder.put(*numbers(40, 50))
    assert folder.drain(source) == []
    assert sorted(folder.events("sink")) == numbers(10, 30)
    assert folder.drain(folder.follow(start_stream_cut=begin)) == [20], "the same query without an end goes on"
    assert sorted(folder.events("sink")) == numbers(10, 50)


@pytest.mark.long
def test_start_and_end_at_a_time(folder: Folder) -> None:
    for first in range(0, 30, 10):
        folder.put(*numbers(first, first + 10))
    times = folder.stream().snapshot().segments.index(0).records(0, 3)[:, 2].tolist()
    assert times == sorted(set(times))
    source = folder.follow(starting_timestamp=times[1], ending_timestamp=times[2])
    assert folder.drain(source) == [10]
    assert folder.events("sink") == numbers(10, 20)
    folder.put(*numbers(30, 40))
    assert folder.drain(source) == []


def test_sealed_stream(folder: Folder) -> None:
    """A query reads a sealed stream to its end."""
    folder.put(*numbers(0, 20), default_num_segments=2)
    folder.stream().seal()
    source = folder.follow(start_stream_cut="earliest", max_events_per_trigger=12)
    assert folder.drain(source) == [12, 8]
    assert folder.drain(source) == []
    assert sorted(folder.events("sink")) == numbers(0, 20)


@pytest.mark.long
def test_offsets_that_were_deleted_while_the_id_of_the_query_was_kept(folder: Folder) -> None:
    """Its batches have numbers by which others are remembered. What is done with them is the user's decision."""
    folder.put(*numbers(0, 20))
    source = folder.follow(start_stream_cut="earliest", max_events_per_trigger=12)
    assert folder.drain(source) == [12, 8]

    def drain_again(**more: Any) -> list[int]:
        for name in ("offsets", "commits"):
            shutil.rmtree(Path(folder.checkpoint()) / name)
        return folder.drain(folder.follow(start_stream_cut="earliest"), **more)

    with pytest.raises(StreamingQueryException, match=r"write 0 of 'query:.*and its last one, write 1, had 8 events"):
        drain_again(on_changed_replay="fail")
    assert drain_again() == [20]
    assert folder.events("sink") == numbers(0, 20)
    assert drain_again(on_changed_replay="write") == [20]
    assert folder.events("sink") == numbers(0, 20) * 2
    with pytest.raises(StreamingQueryException, match="'txn_app_id' and 'txn_version' identify one batch"):
        folder.put("x")
        folder.drain(source, txn_app_id="job", txn_version=1)


def test_one_query_with_two_streams(folder: Folder) -> None:
    folder.put(*numbers(0, 10))
    folder.put(*numbers(10, 20), stream="other")
    both = folder.follow(start_stream_cut="earliest").union(folder.follow("other", start_stream_cut="earliest"))
    assert folder.drain(both) == [20]
    assert sorted(folder.events("sink")) == numbers(0, 20)


def test_several_streams_of_one_source(folder: Folder) -> None:
    """By a pattern: a stream that comes between two runs of the query is read, and nothing is read twice."""
    pattern = {"controller": folder.url, "scope": "s", "stream_pattern": "in.*"}

    def drain() -> list[int]:
        follow = folder.spark.readStream.format("pravega").options(**pattern, start_stream_cut="earliest")
        return folder.drain(follow.load())

    folder.put(*numbers(0, 10), stream="in1")
    folder.put(*numbers(10, 20), stream="in2")
    assert drain() == [20]
    assert sorted(offsets(folder)[-1]) == ["in1", "in2"]
    folder.put(*numbers(20, 30), stream="in3")
    folder.put(*numbers(30, 33), stream="in1")
    assert sum(drain()) == 13
    assert sorted(folder.events("sink")) == numbers(0, 33)
    assert drain() == []
    rows = folder.spark.read.format("pravega").options(**pattern).load().groupBy("stream").count().collect()
    assert {row.stream: row["count"] for row in rows} == {"in1": 13, "in2": 10, "in3": 10}
    assert len(folder.events("in1,in3")) == 23


def test_a_batch_waits_for_enough_events(folder: Folder) -> None:
    """On a real query with a trigger: one event waits, until there are five, or the delay is over."""
    folder.put("0")
    source = folder.follow(start_stream_cut="earliest", min_events_per_trigger=5, max_trigger_delay="1d")
    writer = source.selectExpr("event", "cast(event AS string) AS routing_key").writeStream.format("pravega")
    writer = writer.options(**folder.options("sink")).option("checkpointLocation", folder.checkpoint())
    query = writer.trigger(processingTime="200 milliseconds").start()
    try:
        waited(lambda: query.status["message"] == "Waiting for data to arrive")
        assert all(not progress["numInputRows"] for progress in query.recentProgress)
        folder.put(*"1234")
        waited(lambda: sum(progress["numInputRows"] for progress in query.recentProgress) == 5)
        assert sorted(folder.events("sink")) == list("01234")
        assert [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]] == [5]
    finally:
        query.stop()
    folder.put("5")
    writer = folder.follow(min_events_per_trigger=5, max_trigger_delay="1s").selectExpr("event").writeStream
    writer = writer.format("pravega").options(**folder.options("sink"))
    query = writer.option("checkpointLocation", folder.checkpoint()).trigger(processingTime="200 milliseconds").start()
    try:
        waited(lambda: any(progress["numInputRows"] for progress in query.recentProgress))
    finally:
        query.stop()
    assert sorted(folder.events("sink")) == list("012345")


def waited(condition: Callable[[], Any]) -> None:
    """Wait until something is so."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.1)


@pytest.mark.parametrize("trigger", [{"continuous": "1 second"}, {"realTime": "5 minutes"}])
def test_triggers_that_spark_has_not_for_sources_in_python(folder: Folder, trigger: dict[str, str]) -> None:
    """When one of them runs, docs/spark.md is to say so."""
    writer = folder.follow().selectExpr("event").writeStream.format("pravega").options(**folder.options("sink"))
    writer = writer.option("checkpointLocation", folder.checkpoint()).outputMode("append")
    with pytest.raises(Exception) as caught:  # noqa: PT011 - which one depends on the trigger
        writer.trigger(**trigger).start().awaitTermination(60)
    assert any(
        word in str(caught.value)
        for word in ("does not support continuous", "REAL_TIME", "RealTime", "real-time", "'realTime'")
    )


def test_retention_waits_for_a_query(folder: Folder) -> None:
    """It is stopped and started again as the same subscriber; what it has not read is not truncated."""
    folder.put(*map(str, range(10)))
    stream = folder.stream()
    stream.update(retention=RetentionPolicy("size", 0))

    def copied(**more: Any) -> list[str]:
        if not tells_position():
            more["release_interval"] = "0"  # else a query that is not ended by availableNow releases in the next run
        source = folder.follow(start_stream_cut="earliest", subscriber="job", **more)
        folder.drain(source)
        return sorted(folder.events("sink"), key=int)

    assert copied(end_stream_cut=cut_behind(stream, 4)) == list("0123")
    truncated(stream)
    assert sorted(folder.events()) == list("456789"), "what was read is gone"
    folder.put(*map(str, range(10, 15)))
    truncated(stream)
    assert copied() == list(map(str, range(15)))
    truncated(stream)
    assert folder.events() == []
    assert list(subscribers(stream)) == ["query:job"]


def cut_behind(stream: Stream, events: int) -> str:
    snapshot = stream.snapshot()
    return snapshot.next_cut(snapshot.head_cut(), snapshot.tail_cut(), max_events=events).as_text()


def truncated(stream: Stream) -> None:
    """Let retention do its work some hours later."""
    first = int(time.time() * 1000) + 3_600_000 * len(stream.snapshot().record.head or [0])
    for hour in range(3):
        retain(stream, first + 3_600_000 * hour, 0.0)


def test_complete_mode_appends_as_the_original_does_if_told_to(folder: Folder) -> None:
    folder.put("a", "a", "b")
    counts = folder.follow(start_stream_cut="earliest").groupBy("event").count()
    text = counts.selectExpr("concat(cast(event AS string), '=', cast(count AS string)) AS event")

    def run(**more: Any) -> None:
        query = text.writeStream.outputMode("complete").format("pravega").options(**folder.options("sink", **more))
        read_all(query.option("checkpointLocation", folder.checkpoint()))

    with pytest.raises(StreamingQueryException, match="Output mode 'complete' would append the whole result again"):
        run()
    run(append_complete_results=True)
    assert sorted(folder.events("sink")) == ["a=2", "b=1"]


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"end_stream_cut": "earliest"}, "Option 'end_stream_cut' cannot be 'earliest'"),
        ({"metadata": "Streams"}, "Option 'metadata' is for batch reads"),
    ],
)
def test_what_a_query_cannot_do(folder: Folder, more: dict[str, str], told: str) -> None:
    with pytest.raises(StreamingQueryException) as caught:
        query = folder.follow(**more).writeStream.format("noop").option("checkpointLocation", folder.checkpoint())
        read_all(query)
    assert told in str(caught.value)
