"""Keep a stream as an Iceberg table, partitioned by day, and write that table into a stream, each exactly once.

The snapshot that adds the rows of a batch also has the query's id and the batch's number. A batch that runs again after
a crash is found in the table's snapshots and skipped. Iceberg's jar has to be on the class path (docs/lakehouse.md).
"""

import json
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from pravega_spark import StreamManager

SCOPE = "shop"
TABLE = "lake.shop.orders"


def settings(folder: Path) -> dict[str, str]:
    """What the Spark session has to be configured with: a catalog `lake`, here one that is just a folder."""
    return {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": str(folder / "warehouse"),
    }


def store(spark: SparkSession, folder: Path, **options: str) -> None:
    """Append to the table what is new in the stream, and end. options: more options of the read."""
    spark.sql(
        f"CREATE TABLE IF NOT EXISTS {TABLE} (timestamp TIMESTAMP, scope STRING, stream STRING, segment_id BIGINT,"
        " offset BIGINT, event_number BIGINT, event STRING) USING iceberg PARTITIONED BY (days(timestamp))"
    )
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
        .writeStream.format("iceberg")
        .option("fanout-enabled", "true")  # rows of a task need not be sorted by day
        .option("checkpointLocation", str(folder / "checkpoints" / "table"))
        .trigger(availableNow=True)
        .toTable(TABLE)
    )
    query.awaitTermination()


def table(spark: SparkSession, folder: Path) -> DataFrame:
    """The table."""
    return spark.table(TABLE)


def publish(spark: SparkSession, folder: Path) -> None:
    """Append to another stream what is new in the table, and end. Fails if rows were overwritten or deleted."""
    rows = spark.readStream.format("iceberg").load(TABLE)  # snapshot after snapshot
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
        builder = SparkSession.builder.config(map=settings(Path(temporary)))
        print(run(builder.getOrCreate(), Path(temporary)))
