"""An actor that is a Spark session: a streaming query from one stream to another, and batch reads now and then."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tests.soak import KEYS, SCOPE
from tests.soak.actor import Actor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def run(actor: Actor) -> None:
    """Keep the query running until the end; then let it copy all that is left."""
    spark = _session(actor)
    options = {"controller": actor.root, "scope": SCOPE}
    options |= {f"storage.{name}": _text(value) for name, value in actor.storage.items()}
    query = _start(actor, spark, options)
    read = time.monotonic()
    while not actor.ended.wait(1):
        if not query.isActive:
            failure = query.exception()
            actor.log("error", call="query", error=["StreamingQueryException"], reason=str(failure)[-1500:])
            query = _start(actor, spark, options)
        if time.monotonic() - read > 30:
            read = time.monotonic()
            with actor.surviving("batch"):
                _read(actor, spark, options)
            progress = query.lastProgress
            actor.log("progress", batch=progress and progress.batchId)
    if not query.isActive:
        query = _start(actor, spark, options)
    query.processAllAvailable()
    query.stop()
    spark.stop()


def _session(actor: Actor) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName(actor.name)
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "600m",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.minBatchesToRetain": "10",
        "spark.sql.warehouse.dir": str(actor.folder / "warehouse"),
        "spark.local.dir": str(actor.folder / "spark"),
    }.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _start(actor: Actor, spark: SparkSession, options: dict[str, str]) -> StreamingQuery:
    source = spark.readStream.format("pravega").options(**options, stream=actor.more["source"])
    source = source.options(start_stream_cut="earliest", subscriber=actor.name, release_interval="5s")
    key = f"concat(split_part(text, ' ', 1), '-', cast(split_part(text, ' ', 3) as bigint) % {KEYS})"
    rows = source.load().selectExpr("event", "cast(event as string) as text")
    rows = rows.selectExpr("event", f"{key} as routing_key")
    writer = rows.writeStream.format("pravega").options(**options, stream=actor.more["target"])
    writer = writer.option("checkpointLocation", str(actor.folder / "checkpoint"))
    actor.log("query")
    return writer.trigger(processingTime="3 seconds").start()


def _read(actor: Actor, spark: SparkSession, options: dict[str, str]) -> None:
    """Read the target as a batch: no event is there twice."""
    rows = spark.read.format("pravega").options(**options, stream=actor.more["target"]).load()
    events, different = rows.selectExpr("count(*)", "count(distinct event)").first() or (0, 0)
    actor.log("batch", events=events)
    if events != different:
        actor.problem(f"{events} events in {actor.more['target']}, but only {different} different ones")


def _text(value: object) -> str:
    import json

    return value if isinstance(value, str) else json.dumps(value)
