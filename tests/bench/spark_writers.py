"""Streaming queries that write into one stream at once: batches a second, and how long one takes.

In a folder, and on an S3 server of the tests that is 20 ms away; eight queries of one driver beside one. Each makes its
events from its own source, so that a batch is a task and a commit. Then the stream is read back.

QUERIES: how many ("1 8"). QUERIES_SECONDS: of a window (20).
"""

from __future__ import annotations

import json
import os
import time
import uuid
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from engine.root import Root
from pravega_spark import StreamManager
from tests.bench.figures import Figures
from tests.bench.writers import Place, places, quantile
from tests.bench.writing import HEAD, SIZE, InOrder

COUNTS = [int(number) for number in os.environ.get("QUERIES", "1 8").split()]
SECONDS = float(os.environ.get("QUERIES_SECONDS", "20"))
WARM, ROWS = 5, 100
"""Batches of each query before the window, and what a batch is."""

SLOWEST = 200.0
"""Seconds that queries may take to warm up."""

SCOPE, STREAM = "bench", "queries"
_KEPT = "spark.sql.streaming.numRecentProgressUpdates"


def measure(spark: SparkSession, folder: str, figures: Figures) -> None:
    """Tell the figures of each place and number of queries, and of the same queries with a sink that does nothing."""
    spark.conf.set(_KEPT, "100000")
    with places(folder) as found:
        for place in found:
            for count in COUNTS:
                for sink in ("noop", "pravega"):
                    told = _run(spark, folder, place, count, sink)
                    figures.tell("writers, spark", f"{place.name}, {count} queries, {sink}", **told)


def _run(spark: SparkSession, folder: str, place: Place, count: int, sink: str) -> dict[str, float]:
    url = f"{place.url}/{uuid.uuid4()}"
    with StreamManager.over(Root.open(url, place.near, containers=1)) as manager:
        manager.create_scope(SCOPE)
        manager.create_stream(SCOPE, STREAM, 1)
    options = {"controller": url, "scope": SCOPE, "stream": STREAM, **_storage(place.options)} if sink != "noop" else {}
    queries = [_started(spark, folder, number, sink, options) for number in range(count)]
    try:
        deadline = time.monotonic() + SLOWEST
        while any(len(query.recentProgress) < WARM for query in queries):
            for query in queries:
                if query.exception() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"a query does not go on: {query.exception()}")
            time.sleep(0.1)
        before = [len(query.recentProgress) for query in queries]
        time.sleep(SECONDS)
        done = [query.recentProgress for query in queries]
    finally:
        for query in queries:
            query.stop()
    if sink != "noop":
        with StreamManager.over(Root.open(url, place.near, create=False)) as manager:
            _check(manager, [sum(batch["numInputRows"] for batch in each) for each in done])
    return _figures([each[first:] for each, first in zip(done, before, strict=True)])


def _figures(batches: list[Any]) -> dict[str, float]:
    spent = [batch["durationMs"] for each in batches for batch in each if batch["numInputRows"]]
    numbers = list(map(len, batches))
    return {
        "batches_s": len(spent) / SECONDS,
        "p50_ms": quantile([times["triggerExecution"] for times in spent], 0.5),
        "p99_ms": quantile([times["triggerExecution"] for times in spent], 0.99),
        "commit_p50_ms": quantile([times["addBatch"] for times in spent], 0.5),
        "commit_p99_ms": quantile([times["addBatch"] for times in spent], 0.99),
        "least_share": min(numbers) * len(numbers) / max(sum(numbers), 1),
    }


def _storage(options: dict[str, Any]) -> dict[str, str]:
    """As options of Spark."""
    return {f"storage.{key}": each if isinstance(each, str) else json.dumps(each) for key, each in options.items()}


def _started(spark: SparkSession, folder: str, number: int, sink: str, options: dict[str, str]) -> StreamingQuery:
    """A query whose events tell whose they are, in order."""
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).option("numPartitions", 1).load()
    event = f"rpad(concat(lpad({number}, 10, '0'), ' ', lpad(value, 12, '0'), ';'), {SIZE}, 'x')"
    rows = source.selectExpr(f"cast({event} as binary) as event", "'key' as routing_key")
    writer = rows.writeStream.format(sink).options(**options).trigger(processingTime="0 seconds")
    return writer.option("checkpointLocation", f"{folder}/checkpoint-{uuid.uuid4()}").start()


def _check(manager: StreamManager, least: list[int]) -> None:
    """Each query's events are there once and in order, as many as it told at least."""
    order = InOrder(len(least))
    for event in manager.read_events(SCOPE, STREAM):
        order.note(bytes(event.data[:HEAD]))
    if any(there < told for there, told in zip(order.seen, least, strict=True)):
        raise RuntimeError(f"events that are there, by query: {order.seen}; {least} were told at least")
