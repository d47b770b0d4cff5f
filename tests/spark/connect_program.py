"""A client of a Spark Connect server, which needs nothing of the package but where it says so.

`batch`, `stream` (until it is killed), `finish` (what `stream` began) or `own`, the first argument. Environment:
CONNECT_SERVER, CONNECT_ROOT, CONNECT_CHECKPOINT. It prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

EVENTS, KEYS = 1_000, 10
ROOT = os.environ.get("CONNECT_ROOT", "")


def options(stream: str, **more: object) -> dict[str, Any]:
    return {"controller": ROOT, "scope": "s", "stream": stream, **more}


def count(spark: SparkSession, stream: str) -> int:
    return spark.read.format("pravega").options(**options(stream)).load().count()


def batch(spark: SparkSession) -> dict[str, Any]:
    """Write and read, by DataFrames and in SQL."""
    rows = spark.range(0, EVENTS, 1, 4).selectExpr(
        f"concat(id % {KEYS}, '/', id) AS event", f"cast(id % {KEYS} AS string) AS routing_key"
    )
    rows.write.format("pravega").options(**options("in", default_num_segments=3)).mode("append").save()
    given = f"USING pravega OPTIONS (controller '{ROOT}', scope 's', stream 'sql')"
    rows.limit(5).write.format("pravega").options(**options("sql")).mode("append").save()
    spark.sql(f"CREATE TABLE events {given}")
    spark.sql("INSERT INTO events (event) SELECT cast('an event' AS binary)")
    spark.sql(f"CREATE TEMPORARY VIEW same {given}")
    told = ""
    try:
        count(spark, "inn")
    except PySparkException as error:
        told = str(error)
    return {
        "count": count(spark, "in"),
        "table": spark.table("events").count(),
        "view": spark.sql("SELECT count(*) FROM same").collect()[0][0],
        "told": told,
    }


def copying(spark: SparkSession) -> DataStreamWriter:
    source = spark.readStream.format("pravega").options(
        **options("in", start_stream_cut="earliest", max_events_per_trigger=20, limit_first_batch=True)
    )
    rows = source.load().selectExpr("event", "split(cast(event AS string), '/')[0] AS routing_key")
    writer = rows.writeStream.format("pravega").options(**options("out", default_num_segments=2))
    return writer.option("checkpointLocation", os.environ["CONNECT_CHECKPOINT"])


def stream(spark: SparkSession) -> dict[str, Any]:
    copying(spark).trigger(processingTime="0 seconds").start().awaitTermination()
    return {}


def finish(spark: SparkSession) -> dict[str, Any]:
    query = copying(spark).start()
    query.processAllAvailable()
    query.stop()
    return {"count": count(spark, "out"), "progress": len(query.recentProgress)}


def own(spark: SparkSession) -> dict[str, Any]:
    """What sends code to the server: a source that the client registers, which takes the package here too, and a
    function for each batch."""
    from pravega_spark import PravegaDataSource

    class Own(PravegaDataSource):
        @classmethod
        def name(cls) -> str:
            return "own"

    spark.dataSource.register(Own)

    def write(rows: DataFrame, number: int) -> None:
        named = options("each", txn_app_id="job", txn_version=number)
        rows.select("event").write.format("pravega").options(**named).mode("append").save()

    source = spark.readStream.format("own").options(
        **options("in", start_stream_cut="earliest", max_events_per_trigger=EVENTS // 2, limit_first_batch=True)
    )
    query = source.load().writeStream.foreachBatch(write)
    started = query.option("checkpointLocation", f"{os.environ['CONNECT_CHECKPOINT']}-own").start()
    started.processAllAvailable()
    started.stop()
    return {"count": count(spark, "each")}


if __name__ == "__main__":
    session = SparkSession.builder.remote(os.environ["CONNECT_SERVER"]).getOrCreate()
    found = {"batch": batch, "stream": stream, "finish": finish, "own": own}[sys.argv[1]](session)
    print(json.dumps({**found, "imported": "pravega_spark" in sys.modules}))
