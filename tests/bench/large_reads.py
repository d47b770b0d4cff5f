"""What large events cost those who read the others: a stream with some, read by reference, and one without."""

from __future__ import annotations

import time

from pyspark.sql import SparkSession

from engine.root import Root
from pravega_spark.streams.catalog import Catalog
from tests.large_events import MiB, put_many

SMALL, LARGE, SIZE = 1_000_000, 20, 256 * MiB
ROUNDS = 4


def measure(spark: SparkSession, folder: str) -> None:
    """Print the times of a batch read and of a query, the best of some, and their ratios (the bar is 1.5)."""
    url = f"{folder}/large"
    with Root.open(url) as root:
        catalog = Catalog(root)
        catalog.create_scope("s")
        for name, large in (("without", 0), ("with", LARGE)):
            catalog.create_stream("s", name, None, None, ())
            put_many(catalog.stream("s", name), url, SMALL, large, SIZE)
    times: dict[str, list[float]] = {}
    for turn in range(ROUNDS):
        for kind, run in (("batch", _batch), ("micro-batch", _query)):
            for name in ("without", "with"):
                begun = time.perf_counter()
                run(spark, folder, url, name, turn)
                times.setdefault(f"{kind} {name}", []).append(time.perf_counter() - begun)
    print(f"\n{SMALL:,} events of 100 B, with {LARGE} of {SIZE >> 20} MiB read by reference and without them")
    for kind in ("batch", "micro-batch"):
        without, beside = min(times[f"{kind} without"]), min(times[f"{kind} with"])
        ratio = beside / without
        print(f"  {kind:12s} {without:8.2f} s without {beside:8.2f} s with them   ratio {ratio:5.2f} (bar 1.5)")


def _options(url: str, stream: str) -> dict[str, str]:
    return {"controller": url, "scope": "s", "stream": stream, "large_events": "reference"}


def _batch(spark: SparkSession, folder: str, url: str, stream: str, turn: int) -> None:
    frame = spark.read.format("pravega").options(**_options(url, stream)).load()
    frame.write.format("noop").mode("overwrite").save()


def _query(spark: SparkSession, folder: str, url: str, stream: str, turn: int) -> None:
    options = {**_options(url, stream), "start_stream_cut": "earliest"}
    frame = spark.readStream.format("pravega").options(**options).load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", f"{folder}/{stream}-{turn}")
    writer.trigger(availableNow=True).start().awaitTermination()
