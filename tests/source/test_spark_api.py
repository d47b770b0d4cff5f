"""Older versions of Spark, without a JVM: the calls that 4.0 and 4.1 make of a streaming query, in their order, and
what those without sources in Python are told."""

from __future__ import annotations

import json
import logging
import pickle
import random
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, StringType, StructType

from pravega_spark import StreamManager
from pravega_spark.source.micro_batch import MicroBatchReader
from pravega_spark.source.options import SourceOptions
from pravega_spark.source.spark_api.stream_reader import PositionKeeper
from pravega_spark.source.spark_api.stream_writer import ROWS, RowGatherer

KEYS = [f"key {number}" for number in range(12)]


class Producer:
    """Writes numbered events of some keys to streams of scope sc."""

    def __init__(self, manager: StreamManager) -> None:
        self.manager = manager
        self.written: dict[str, list[str]] = {}

    def write(self, stream: str, count: int) -> None:
        self.manager.create_stream("sc", stream)
        events = self.written.setdefault(stream, [])
        with self.manager.create_writer("sc", stream) as writer:
            for number in range(len(events), len(events) + count):
                key = KEYS[number % len(KEYS)]
                events.append(f"{key}:{number}")
                writer.write_event(events[-1], routing_key=key)

    def scale(self, stream: str, segments: int) -> None:
        """Exchange all segments for even ones."""
        sealed = [segment.id for segment in self.manager.stream_info("sc", stream).segments]
        bounds = [place / segments for place in range(segments)] + [1.0]
        self.manager.scale_stream("sc", stream, sealed, list(pairwise(bounds)))


class Query:
    """A query as Spark 4.0 runs it, with the logs of its checkpoint. batches: the events of each, by stream."""

    def __init__(self, url: str, **options: str) -> None:
        self._given = {"controller": url, "scope": "sc", "start_stream_cut": "earliest", **options}
        self._offsets: list[str] = []
        self._committed = 0
        self.batches: list[dict[str, list[str]]] = []
        self.start()

    def start(self) -> None:
        """A run of the query in a new process of the driver."""
        options = SourceOptions.parse(self._given, {})
        self._reader = PositionKeeper(MicroBatchReader(options), options.limit_first_batch)
        if self._offsets:
            self._plan(self._offsets[-1], self._offsets[-1])
        self._constructed = len(self._offsets) > self._committed

    def trigger(self, *, fail: bool = False, planned: bool = True) -> bool:
        """Run a batch if there is one; False if there is none. fail: the query ends before it is committed. planned:
        whether the query needs its rows."""
        if not self._constructed:
            end = json.dumps(self._reader.latestOffset())
            if self._offsets and end == self._offsets[-1]:
                return False
            self._offsets.append(end)
            if len(self._offsets) > 1:
                self._reader.commit(json.loads(self._offsets[-2]))
        before = self._offsets[-2] if len(self._offsets) > 1 else json.dumps(self._reader.initialOffset())
        found = self._plan(before, self._offsets[-1]) if planned else {}
        if fail:
            return True
        self.batches.append(found)
        self._committed, self._constructed = len(self._offsets), False
        return True

    def run(self) -> list[int]:
        """The events of each batch until there is none."""
        before = len(self.batches)
        while self.trigger():
            pass
        return [sum(map(len, batch.values())) for batch in self.batches[before:]]

    def available_now(self) -> list[int]:
        """The events of the batches of a run with the trigger availableNow or once: one, the last one again if it was
        not committed."""
        self.start()
        before = len(self.batches)
        self.trigger()
        return [sum(map(len, batch.values())) for batch in self.batches[before:]]

    def _plan(self, start: str, end: str) -> dict[str, list[str]]:
        """The events of a batch, in the order of its partitions."""
        found: dict[str, list[str]] = {}
        partitions = self._reader.partitions(json.loads(start), json.loads(end)) if start != end else []
        if start == end:
            assert not self._reader.partitions(json.loads(start), json.loads(end))
        for partition in pickle.loads(pickle.dumps(partitions)):
            for batch in self._reader.read(partition):
                for row in batch.to_pylist():
                    found.setdefault(row["stream"], []).append(row["event"].decode())
        return found

    def read(self) -> dict[str, list[str]]:
        """All events of all batches."""
        found: dict[str, list[str]] = {}
        for batch in self.batches:
            for stream, events in batch.items():
                found.setdefault(stream, []).extend(events)
        return found


@pytest.fixture
def producer(manager: StreamManager) -> Producer:
    return Producer(manager)


def by_key(events: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for event in events:
        found.setdefault(event.split(":")[0], []).append(event)
    return found


def test_the_first_batch_reads_the_backlog_and_later_ones_keep_the_limit(
    producer: Producer, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    producer.write("t", 25)
    query = Query(url, stream="t", max_events_per_trigger="10")
    assert query.trigger()
    producer.write("t", 25)
    assert query.run() == [10, 10, 5]
    assert [len(batch["t"]) for batch in query.batches] == [25, 10, 10, 5]
    (told,) = [record for record in caplog.records if "limit_first_batch" in record.message]
    assert told.levelno == logging.WARNING
    assert "the whole backlog, 25 events, in spite of option 'max_events_per_trigger' (10)" in told.message


def test_limits_hold_in_the_first_batch_if_that_is_asked_for(producer: Producer, url: str) -> None:
    producer.write("t", 25)
    query = Query(url, stream="t", max_events_per_trigger="10", limit_first_batch="true")
    assert query.run() == [10, 10, 5]
    producer.write("t", 25)
    query.start()
    assert query.run() == [10, 10, 5]


def test_a_restarted_query_knows_where_it_is(producer: Producer, url: str) -> None:
    producer.write("t", 5)
    query = Query(url, stream="t")
    assert query.run() == [5]
    query.start()
    assert query.run() == []
    producer.write("t", 3)
    query.start()
    assert query.run() == [3]


def test_limits_hold_after_a_batch_that_is_run_again(producer: Producer, url: str) -> None:
    """Then the trigger is neither availableNow nor once, which would end after it."""
    producer.write("t", 5)
    query = Query(url, stream="t", max_events_per_trigger="2")
    query.trigger(fail=True)
    producer.write("t", 5)
    query.start()
    assert query.run() == [5, 2, 2, 1]


def test_available_now_reads_all_across_scalings(producer: Producer, url: str) -> None:
    producer.write("t", 24)
    for segments in (4, 2, 3):
        producer.scale("t", segments)
        producer.write("t", 24)
    query = Query(url, stream="t", max_events_per_trigger="10")
    assert query.available_now() == [24 * 4]
    assert by_key(query.batches[-1]["t"]) == by_key(producer.written["t"]), "partitions are in the order of epochs"
    producer.write("t", 7)
    assert query.available_now() == [7]
    assert query.available_now() == []


def test_a_batch_waits_for_its_minimum_but_not_the_first(producer: Producer, url: str) -> None:
    producer.write("t", 1)
    query = Query(url, stream="t", min_events_per_trigger="3")
    assert query.run() == [1]
    producer.write("t", 2)
    assert query.run() == []
    producer.write("t", 1)
    assert query.run() == [3]


def test_a_batch_of_which_spark_plans_no_read(producer: Producer, url: str) -> None:
    """Spark leaves it out if the query needs no row of it. The next batch goes on all the same."""
    producer.write("t", 5)
    query = Query(url, stream="t", max_events_per_trigger="5")
    query.trigger(planned=False)
    producer.write("t", 7)
    assert query.run() == [5, 2]
    assert query.read()["t"] == producer.written["t"][5:]


@pytest.mark.parametrize("seed", range(12))
def test_nothing_is_lost_doubled_or_out_of_order(producer: Producer, url: str, seed: int) -> None:
    """Streams that are written, scaled and created, and a query that fails, is restarted and has limits."""
    chance = random.Random(seed)
    limit = chance.choice([{}, {"max_events_per_trigger": "7"}, {"max_bytes_per_trigger": "100"}])
    first = {"limit_first_batch": "true"} if chance.random() < 0.3 else {}
    producer.write("a0", 10)
    query = Query(url, stream_pattern="a.*", **limit, **first)
    for step in range(40):
        done = chance.choice(["write", "write", "scale", "batch", "batch", "fail", "restart", "now", "create"])
        stream = chance.choice(sorted(producer.written))
        if done == "write":
            producer.write(stream, chance.randrange(1, 20))
        elif done == "scale":
            producer.scale(stream, chance.randrange(1, 5))
        elif done == "create" and len(producer.written) < 4:
            producer.write(f"a{step}", 3)
        elif done == "batch":
            query.trigger()
        elif done == "fail":
            query.trigger(fail=True)
            query.start()
        elif done == "restart":
            query.start()
        elif done == "now":
            query.available_now()
    query.start()
    query.run()
    read = query.read()
    assert {name: by_key(events) for name, events in read.items()} == {
        name: by_key(events) for name, events in producer.written.items()
    }


class Kept:
    """A writer that keeps the batches of its task."""

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []
        self.told: list[tuple[str, Any, int]] = []

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        self.batches = list(iterator)
        return WriterCommitMessage()

    def commit(self, messages: Any, batchId: int) -> None:
        self.told.append(("commit", messages, batchId))

    def abort(self, messages: Any, batchId: int) -> None:
        self.told.append(("abort", messages, batchId))


def test_rows_are_gathered_into_batches() -> None:
    schema = StructType().add("n", IntegerType()).add("event", BinaryType()).add("routing_key", StringType())
    writer = Kept()
    gatherer = RowGatherer(writer, schema, ("event", "routing_key", "stream"))
    row = Row("n", "event", "routing_key")
    count = 2 * ROWS + 1
    gatherer.write(row(n, b"%d\xff" % n, None if n == 2 else f"é{n}") for n in range(count))
    assert [batch.num_rows for batch in writer.batches] == [ROWS, ROWS, 1]
    assert writer.batches[0].schema == pa.schema([("event", pa.binary()), ("routing_key", pa.string())])
    rows = [row for batch in writer.batches for row in batch.to_pylist()]
    assert [row["event"] for row in rows] == [b"%d\xff" % n for n in range(count)]
    assert [row["routing_key"] for row in rows] == [None if n == 2 else f"é{n}" for n in range(count)]
    gatherer.write(iter([]))
    assert writer.batches == []
    gatherer.commit([None], 4)
    gatherer.abort([], 5)
    assert writer.told == [("commit", [None], 4), ("abort", [], 5)]


def test_rows_of_any_type_are_gathered() -> None:
    schema = StructType().add("n", IntegerType()).add("a", ArrayType(StructType().add("x", BinaryType())))
    writer = Kept()
    row, inner = Row("n", "a"), Row("x")
    RowGatherer(writer, schema, None).write(row(n, [inner(b"x"), None] if n else None) for n in range(ROWS + 1))
    assert [batch.num_rows for batch in writer.batches] == [ROWS, 1]
    rows = [row for batch in writer.batches for row in batch.to_pylist()]
    assert rows[:2] == [{"n": 0, "a": None}, {"n": 1, "a": [{"x": b"x"}, None]}]
    assert [row["n"] for row in rows] == list(range(ROWS + 1))


TOO_OLD = """
import sys, pyspark
pyspark.__version__ = "3.5.4"
sys.modules["pyspark.sql.datasource"] = None
import pyspark_pravega
"""


def test_a_spark_without_sources_in_python_is_told_at_the_import() -> None:
    done = subprocess.run([sys.executable, "-c", TOO_OLD], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "ImportError: format('pravega') needs Spark 4.0 or later, but this is PySpark 3.5.4: " in done.stderr


OLDER = """
import sys
import pyspark.sql.datasource as api
sys.modules["pyspark.sql.streaming.datasource"] = None
reader = api.DataSourceStreamReader
for kind, name in ((api, "DataSourceStreamArrowWriter"), (api, "Filter"), (reader, "getDefaultReadLimit")):
    if hasattr(kind, name):
        delattr(kind, name)
from pyspark.sql.types import ArrayType, BinaryType, StructType
import pyspark_pravega
given = {"controller": sys.argv[1], "scope": "s", "stream": "t", "push_filters": "true"}
source, schema = pyspark_pravega.DefaultSource(given), StructType().add("event", BinaryType())
for made in (source.streamWriter(schema, False), source.reader(schema), source.streamReader(schema)):
    print(type(made).__name__)
"""


def test_what_is_made_where_the_api_is_that_of_4_0(tmp_path: Path) -> None:
    program = [sys.executable, "-c", OLDER, str(tmp_path / "root")]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["RowGatherer", "BatchReader", "PositionKeeper"]
