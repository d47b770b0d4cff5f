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

from pyspark.sql import SparkSession

from chunkstore import open_store
from engine.root import Root
from tests.bench import (
    bulk,
    capacity,
    chunks,
    client,
    dataframes,
    engine,
    followers,
    history,
    imports,
    jobs,
    large,
    large_reads,
    many_streams,
    memory,
    micro_batches,
    s3,
    serving,
    simulated_writers,
    skew,
    spark_writers,
    writers,
)
from tests.bench.figures import Figures
from tests.bench.noop import Files, NoopSource
from tests.bench.streaming import Streaming

ROUNDS = 5
DELTA = {
    "spark.jars.packages": "{DELTA}",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


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
    """A session that knows the no-op source; fresh: each task gets a new worker process.

    DELTA: in the environment, the Maven coordinates of Delta's jar for this Spark.
    """
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.python.worker.reuse", str(not fresh).lower()).config("spark.driver.memory", "4g")
    for name, value in DELTA.items() if "DELTA" in os.environ else ():
        builder = builder.config(name, value.format(**os.environ))
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.sparkContext.setLogLevel("FATAL")  # stopping a query in the middle of a batch is logged as an error
    spark.dataSource.register(NoopSource)
    spark.dataSource.register(Files)
    return spark


def main(parts: list[str]) -> None:
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH", "")]))
    folder, figures = tempfile.mkdtemp(prefix="pravega-bench-"), Figures()
    try:
        if not parts or "append" in parts:
            append(folder)
        if not parts or "engine" in parts:
            engine.measure(folder)
        of_client = [part.partition(":")[2] for part in parts if part.partition(":")[0] == "client"]
        if not parts or of_client:
            client.measure(folder, figures, [part for part in of_client if part])
        if not parts or "dataframes" in parts:
            dataframes.measure(folder, figures)
        if not parts or "s3" in parts:
            s3.measure(figures)
        of_serve = [part.partition(":")[2] for part in parts if part.partition(":")[0] == "serve"]
        if not parts or of_serve:
            serving.measure(folder, figures, [part for part in of_serve if part])
        if not parts or "writers" in parts:
            writers.measure(folder, figures)
        if not parts or "followers" in parts:
            followers.measure(folder, figures)
        if not parts or "large" in parts:
            large.measure(folder)
        if not parts or "chunks" in parts:
            chunk_layer(folder)
        if not parts or "bulk" in parts:
            bulk.measure(folder, figures)
        if not parts or "import" in parts:
            imports.measure(folder)
        if not parts or "streams" in parts:
            many_streams.measure(folder)
        if not parts or "jobs" in parts:
            jobs.measure(_session(fresh=True), folder, figures, fresh=True)
            SparkSession.builder.getOrCreate().stop()
        if not parts or {"jobs", "micro", "references", "written"} & set(parts):
            spark = _session()
            if not parts or "jobs" in parts:
                jobs.measure(spark, folder, figures)
            if not parts or "micro" in parts:
                Streaming(spark, folder, figures).measure()
            if "written" in parts:
                Streaming(spark, folder, figures).written()
            if not parts or "references" in parts:
                large_reads.measure(spark, folder)
            spark.stop()
        if not parts or "skew" in parts:
            skew.measure(folder)
        if "history" in parts:
            history.measure(folder, figures)
        if "capacity" in parts:
            capacity.measure(folder, figures)
        if "writers-simulated" in parts:
            simulated_writers.measure(figures)
        if "writers-spark" in parts:
            spark_writers.measure(_session(), folder, figures)
            SparkSession.builder.getOrCreate().stop()
        if "memory" in parts:
            memory.measure(folder)
        if "micro_batches" in parts:
            micro_batches.measure()
        figures.save(os.environ.get("RESULTS", "bench.json"))
    finally:
        shutil.rmtree(folder)


main(sys.argv[1:])
