"""Events in JSON, by Spark's own functions: rows to events, events to columns, others set apart."""

import tempfile
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, from_json, lit, schema_of_json

from pravega_spark import StreamManager

SCHEMA = "order BIGINT, customer STRING, items ARRAY<STRUCT<name: STRING, price: DOUBLE>>, _corrupt_record STRING"


def run(spark: SparkSession, folder: Path) -> tuple[list[tuple[int, float]], list[str], str]:
    """Write and read orders; return the orders with their sums, what is no JSON, and a schema found in an event."""
    root = str(folder / "streams")
    orders = spark.createDataFrame(
        [(1, "ann", [("tea", 2.5), ("milk", 1.0)]), (2, "ben", [("rice", 3.0)])],
        "order BIGINT, customer STRING, items ARRAY<STRUCT<name: STRING, price: DOUBLE>>",
    )
    where = {"controller": root, "scope": "shop", "stream": "orders"}
    (
        orders.selectExpr("to_json(struct(*)) AS event", "customer AS routing_key")
        .write.format("pravega")
        .options(**where)
        .mode("append")
        .save()
    )
    with StreamManager(root) as manager, manager.create_writer("shop", "orders") as writer:
        writer.write_event("not JSON", routing_key="ann")

    events = spark.read.format("pravega").options(**where).load().selectExpr("cast(event AS string) AS event")
    # An event that does not fit the schema has all columns null but `_corrupt_record`, which has its text.
    rows = events.select(from_json("event", SCHEMA).alias("row")).select("row.*")
    good = rows.where(col("_corrupt_record").isNull())
    sums = good.selectExpr("order", "aggregate(items, 0D, (sum, item) -> sum + item.price) AS sum").orderBy("order")
    bad = rows.where(col("_corrupt_record").isNotNull()).select("_corrupt_record")

    # A schema to begin with, from one event. A query should state its schema, as SCHEMA does: events change.
    [sample] = events.where("event LIKE '{%' AND get_json_object(event, '$.order') = 1").collect()
    [found] = spark.range(1).select(schema_of_json(lit(sample["event"])).alias("schema")).collect()
    return [tuple(row) for row in sums.collect()], [row[0] for row in bad.collect()], found["schema"]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        print(run(SparkSession.builder.getOrCreate(), Path(temporary)))
