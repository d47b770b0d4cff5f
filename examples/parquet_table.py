"""Keep a stream as a Parquet table with a folder for each day, and write that table into a stream, each exactly once.

Spark's file sink lists the files of each finished batch in the table's folder `_spark_metadata`. A batch that runs
again after a crash is found in this list and skipped.
"""

import json
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from pravega_spark import StreamManager

SCOPE = "shop"


def settings(folder: Path) -> dict[str, str]:
    """What the Spark session has to be configured with: nothing for Parquet."""
    return {}


def store(spark: SparkSession, folder: Path, **options: str) -> None:
    """Append to the table what is new in the stream, and end. options: more options of the read."""
    orders = (
        spark.readStream.format("pravega")
        .options(controller=str(folder / "streams"), scope=SCOPE, stream="orders", start_stream_cut="earliest")
        .options(include_metadata="true", **options)
        .load()
    )
    query = (
        # The position of an event (scope, stream, segment_id, offset) is unique: a key of the table.
        orders.selectExpr(
            "timestamp", "scope", "stream", "segment_id", "offset", "event_number", "cast(event AS string) AS event"
        )
        .selectExpr("*", "to_date(timestamp) AS day")  # in the time zone of the session
        .writeStream.format("parquet")
        .partitionBy("day")
        .option("checkpointLocation", str(folder / "checkpoints" / "table"))
        .trigger(availableNow=True)
        .start(str(folder / "table"))
    )
    query.awaitTermination()


def table(spark: SparkSession, folder: Path) -> DataFrame:
    """The table: the files of finished batches, as a read by Spark finds them."""
    return spark.read.parquet(str(folder / "table"))


def publish(spark: SparkSession, folder: Path) -> None:
    """Append to another stream what is new in the table, and end."""
    rows = spark.readStream.schema(table(spark, folder).schema).parquet(str(folder / "table"))
    query = (
        rows.selectExpr("event", "get_json_object(event, '$.customer') AS routing_key")
        .writeStream.format("pravega")
        .options(controller=str(folder / "streams"), scope=SCOPE, stream="published")
        .option("checkpointLocation", str(folder / "checkpoints" / "published"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def write_orders(folder: Path, first: int, count: int) -> None:
    """Append orders to the stream, as an application would."""
    with StreamManager(str(folder / "streams")) as manager:
        manager.create_scope(SCOPE)
        manager.create_stream(SCOPE, "orders", 2)
        with manager.create_writer(SCOPE, "orders") as writer:
            for number in range(first, first + count):
                customer = f"customer-{number % 7}"
                writer.write_event(json.dumps({"order": number, "customer": customer}), routing_key=customer)


def run(spark: SparkSession, folder: Path) -> tuple[int, int]:
    """Write orders twice, keep them as a table, publish the table; return the counts of the table and its stream."""
    for first, count in ((0, 300), (300, 100)):
        write_orders(folder, first, count)
        store(spark, folder)
        publish(spark, folder)
    published = {"controller": str(folder / "streams"), "scope": SCOPE, "stream": "published"}
    return table(spark, folder).count(), spark.read.format("pravega").options(**published).load().count()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        print(run(SparkSession.builder.getOrCreate(), Path(temporary)))
