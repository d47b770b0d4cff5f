"""Events in Avro, by Spark's own functions, written with one schema and read with a later one.

The jar of spark-avro has to be on the class path (docs/payloads.md).
"""

import json
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.avro.functions import from_avro, to_avro
from pyspark.sql.functions import struct

from pravega_spark import StreamManager

WRITTEN = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "order", "type": "long"}, {"name": "customer", "type": "string"}],
    }
)
WANTED = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "order", "type": "long"},
            {"name": "customer", "type": "string"},
            {"name": "country", "type": "string", "default": "unknown"},  # events of before have no such field
        ],
    }
)


def run(spark: SparkSession, folder: Path) -> tuple[list[tuple[int, str, str]], int]:
    """Write orders and read them with a field more; return them, and how many events are no such orders."""
    root = str(folder / "streams")
    where = {"controller": root, "scope": "shop", "stream": "orders"}
    orders = spark.createDataFrame([(1, "ann"), (2, "ben")], "order BIGINT, customer STRING")
    record = to_avro(struct("order", "customer"), WRITTEN)
    (
        orders.select(record.alias("event"), orders["customer"].alias("routing_key"))
        .write.format("pravega")
        .options(**where)
        .mode("append")
        .save()
    )
    with StreamManager(root) as manager, manager.create_writer("shop", "orders") as writer:
        writer.write_event_bytes(b"\xff", routing_key="ann")

    events = spark.read.format("pravega").options(**where).load()
    # The first schema is that of the writer. PERMISSIVE: an event that does not fit it becomes null.
    row = from_avro("event", WRITTEN, {"avroSchema": WANTED, "mode": "PERMISSIVE"})
    rows = events.select("event", row.alias("row"))
    found = rows.where("row.order IS NOT NULL").select("row.*").orderBy("order")
    return [tuple(one) for one in found.collect()], rows.where("row.order IS NULL").count()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        print(run(SparkSession.builder.getOrCreate(), Path(temporary)))
