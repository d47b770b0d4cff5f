"""A program for a cluster, which has the package from the wheel that is submitted with it: `batch` or `stream`.

Environment: CLUSTER_ROOT, CLUSTER_STORAGE (options as JSON), CLUSTER_CHECKPOINT. It prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql import SparkSession

EVENTS = 2_000
KEYS = 10


def options(stream: str, **more: object) -> dict[str, Any]:
    storage = {
        f"storage.{name}": json.dumps(value) for name, value in json.loads(os.environ["CLUSTER_STORAGE"]).items()
    }
    return {"controller": os.environ["CLUSTER_ROOT"], "scope": "s", "stream": stream, **storage, **more}


def place(_: Iterable[Any]) -> Iterator[str]:
    """From where an executor has the package."""
    import pravega_spark

    yield str(pravega_spark.__file__)


def batch(spark: SparkSession) -> dict[str, Any]:
    """Write keyed events by four tasks, and read them."""
    rows = spark.range(0, EVENTS, 1, 4).selectExpr(
        f"concat(id % {KEYS}, '/', id) AS event", f"cast(id % {KEYS} AS string) AS routing_key"
    )
    rows.write.format("pravega").options(**options("in", default_num_segments=3)).mode("append").save()
    frame = spark.read.format("pravega").options(**options("in")).load()
    places = spark.sparkContext.parallelize(range(4), 4).mapPartitions(place).collect()
    return {"count": frame.count(), "places": sorted({*places, *place(())})}


def stream(spark: SparkSession) -> dict[str, Any]:
    """Copy all there is in many micro-batches."""
    source = spark.readStream.format("pravega").options(
        **options("in", start_stream_cut="earliest", max_events_per_trigger=100, limit_first_batch=True)
    )
    rows = source.load().selectExpr("event", "split(cast(event AS string), '/')[0] AS routing_key").repartition(4)
    writer = rows.writeStream.format("pravega").options(**options("out", default_num_segments=3))
    query = writer.option("checkpointLocation", os.environ["CLUSTER_CHECKPOINT"]).start()
    query.processAllAvailable()
    query.stop()
    return {"done": True}


if __name__ == "__main__":
    session = SparkSession.builder.appName("cluster").getOrCreate()
    print(json.dumps({"batch": batch, "stream": stream}[sys.argv[1]](session)))
    session.stop()
