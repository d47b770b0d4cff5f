"""Runs the measurements and prints a table for each."""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession

from chunkstore import open_store
from engine.root import Root
from tests.bench import chunks, client, engine, imports, jobs, large, large_reads, many_streams
from tests.bench.noop import FilesSink, NoopSource

SIZES = {100: 1_200_000, 1_000: 240_000, 10_000: 30_000}
"""Event size in bytes, and how many events are read and written."""

PARTITIONS = 4
ROUNDS = 5


def best(measured: dict[str, Callable[[], None]]) -> dict[str, float]:
    """The shortest time of each, run in turns so that whatever else the machine does hits all alike."""
    times: dict[str, list[float]] = {name: [] for name in measured}
    for _ in range(ROUNDS):
        for name, run in measured.items():
            begun = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - begun)
    return {name: min(found) for name, found in times.items()}


def table(title: str, times: dict[str, float], ceiling: str, amount: float, unit: str) -> None:
    """Print each one's share of the ceiling's speed."""
    print(f"\n{title}")
    for name, seconds in times.items():
        print(f"  {name:24s} {amount / seconds:12,.1f} {unit:10s} {times[ceiling] / seconds:6.2f} of the ceiling")


def consume(frame: DataFrame) -> None:
    """Have every column of every row brought to the JVM."""
    frame.write.format("noop").mode("overwrite").save()


def read_and_write(spark: SparkSession, folder: str) -> None:
    """Batch read and batch write against a no-op source and sink, and against parquet."""
    for size, rows in SIZES.items():
        where = {"controller": f"{folder}/root", "scope": "bench", "stream": f"of-{size}", "default_num_segments": "4"}
        rows_of = spark.range(0, rows, 1, PARTITIONS)
        frame = rows_of.selectExpr(
            f"cast(repeat('x', {size}) as binary) as event", "concat('key-', id % 1000) as routing_key"
        ).cache()
        consume(frame)
        written = best(
            {
                "no-op Python sink": lambda frame=frame: frame.write.format("noop_python").mode("append").save(),
                "pravega": lambda frame=frame, where=where: (
                    frame.write.format("pravega").options(**where).mode("append").save()
                ),
                "parquet": lambda frame=frame: frame.write.mode("overwrite").parquet(f"{folder}/written"),
            }
        )
        table(f"batch write, {size} B events", written, "no-op Python sink", rows / 1000, "k events/s")
        frame.unpersist()

        events = rows * ROUNDS
        source = spark.read.format("pravega").options(**where).load()
        partitions = source.rdd.getNumPartitions()
        noop = {"rows": str(events // partitions), "size": str(size), "partitions": str(partitions)}
        source.write.mode("overwrite").parquet(f"{folder}/read")
        read = best(
            {
                "no-op Python source": lambda noop=noop: consume(
                    spark.read.format("noop_python").options(**noop).load()
                ),
                "pravega": lambda where=where: consume(spark.read.format("pravega").options(**where).load()),
                "parquet": lambda: consume(spark.read.parquet(f"{folder}/read")),
            }
        )
        table(f"batch read, {size} B events", read, "no-op Python source", events / 1000, "k events/s")


def micro_batch(spark: SparkSession, folder: str) -> None:
    """The time of a small micro-batch from source to sink against a no-op source and sink."""
    batches, rows = 40, 100
    stream = {"controller": f"{folder}/root", "scope": "bench", "default_num_segments": "4"}
    small = spark.range(batches * rows).selectExpr("repeat('x', 100) as event", "cast(id as string) as routing_key")
    small.write.format("pravega").options(**stream, stream="small").mode("append").save()
    noop = spark.readStream.format("noop_python").options(rows=str(rows), size="100").load()
    ours = (
        spark.readStream.format("pravega")
        .options(**stream, stream="small", start_stream_cut="earliest", max_events_per_trigger=str(rows))
        .load()
    )
    floor = _batch_time(noop, "noop_python", {}, f"{folder}/c1", batches)
    taken = _batch_time(ours, "pravega", {**stream, "stream": "copied"}, f"{folder}/c2", batches)
    print("\nmicro-batch of 100 events, source to sink, median")
    print(f"  no-op source and sink    {floor:8.0f} ms")
    print(f"  pravega to pravega       {taken:8.0f} ms   {taken - floor:+.0f} ms above its floor")


def _batch_time(source: DataFrame, sink: str, options: dict[str, str], checkpoint: str, batches: int) -> float:
    columns = source.selectExpr("event", "cast(offset as string) as routing_key")
    writer = columns.writeStream.format(sink).options(**options).option("checkpointLocation", checkpoint)
    query = writer.trigger(processingTime="0 seconds").start()
    while len(query.recentProgress) < batches - 5 and query.isActive:
        time.sleep(0.1)
    query.stop()
    if query.exception() is not None:
        raise RuntimeError(str(query.exception()))
    spent = [p["durationMs"]["triggerExecution"] for p in query.recentProgress if p["numInputRows"]]
    return statistics.median(spent[5:])


def append(folder: str) -> None:
    """A durable append against a bare create of the same size."""
    store = open_store(f"{folder}/bare")
    with Root.open(f"{folder}/root") as root:
        container = root.container(0)
        for size in (100, 10_000, 1_000_000):
            segment, data = f"bench/append-{uuid.uuid4()}", b"x" * size
            container.create_segment(segment)
            times: dict[str, list[float]] = {"put_if_absent": [], "append": []}
            for number in range(300 if size < 1_000_000 else 60):
                begun = time.perf_counter()
                store.put_if_absent(f"{size}/{number}", uuid.uuid4().bytes + bytes(8) + data)
                middle = time.perf_counter()
                container.append(segment, data)
                times["put_if_absent"].append(middle - begun)
                times["append"].append(time.perf_counter() - middle)
            medians = {name: statistics.median(found) for name, found in times.items()}
            table(f"durable append of {size} B, median", medians, "put_if_absent", 1, "per second")


def chunk_layer(folder: str) -> None:
    """Sequential reading against the bare files, and a concat of much against one of little."""
    layer = chunks.Layer(f"{folder}/chunks")
    read = best(chunks.sequential_read(layer))
    table("sequential read of 1 GiB in 64 chunks", read, "the files themselves", 1024, "MiB/s")
    print("\nconcat of a sealed segment")
    for size, chunk in ((1 << 10, 1 << 10), (1 << 30, 128 << 20), (1 << 30, 16 << 20)):
        seconds, requests = chunks.concat(layer, size, chunk)
        name = f"{size >> 10:,} KiB in {size // chunk} chunks"
        print(f"  {name:24s} {seconds * 1000:12,.2f} ms {requests:10d} requests")


def _session(fresh: bool = False) -> SparkSession:
    """A session that knows the no-op source; fresh: each task gets a new worker process."""
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.python.worker.reuse", str(not fresh).lower()).config("spark.driver.memory", "4g")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.sparkContext.setLogLevel("FATAL")  # stopping a query in the middle of a batch is logged as an error
    spark.dataSource.register(NoopSource)
    spark.dataSource.register(FilesSink)
    return spark


def main(parts: list[str]) -> None:
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH", "")]))
    folder = tempfile.mkdtemp(prefix="pravega-bench-")
    try:
        if not parts or "append" in parts:
            append(folder)
        if not parts or "engine" in parts:
            engine.measure(folder)
        of_client = [part.partition(":")[2] for part in parts if part.partition(":")[0] == "client"]
        if not parts or of_client:
            client.measure(folder, [part for part in of_client if part])
        if not parts or "large" in parts:
            large.measure(folder)
        if not parts or "chunks" in parts:
            chunk_layer(folder)
        if not parts or "import" in parts:
            imports.measure(folder)
        if not parts or "streams" in parts:
            many_streams.measure(folder)
        if not parts or "jobs" in parts:
            found = jobs.measure(_session(fresh=True), folder, fresh=True)
            SparkSession.builder.getOrCreate().stop()
            jobs.save(found + jobs.measure(_session(), folder), os.environ.get("RESULTS", "bench-jobs.json"))
        if not parts or {"micro", "batch", "references"} & set(parts):
            spark = _session()
            if not parts or "micro" in parts:
                micro_batch(spark, folder)
            if not parts or "batch" in parts:
                read_and_write(spark, folder)
            if not parts or "references" in parts:
                large_reads.measure(spark, folder)
            spark.stop()
    finally:
        shutil.rmtree(folder)


main(sys.argv[1:])
