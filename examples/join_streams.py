"""Join two streams: each order with its payment, by a stream-stream join with a time limit."""

import json
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr

from pravega_spark import StreamManager


def run(spark: SparkSession, folder: Path) -> dict[str, int]:
    """Join three orders with two payments; return the paid amounts by order."""
    root = str(folder / "streams")
    with StreamManager(root) as manager:
        manager.create_scope("shop")
        written: dict[str, list[dict[str, object]]] = {
            "orders": [{"order": "a"}, {"order": "b"}, {"order": "c"}],
            "payments": [{"order": "c", "amount": 30}, {"order": "a", "amount": 10}],
        }
        for stream, events in written.items():
            manager.create_stream("shop", stream)
            with manager.create_writer("shop", stream) as writer:
                for event in events:
                    writer.write_event(json.dumps(event), routing_key=str(event["order"]))

    def follow(stream: str, schema: str) -> DataFrame:
        options = {"controller": root, "scope": "shop", "stream": stream, "start_stream_cut": "earliest"}
        events = spark.readStream.format("pravega").options(**options, include_metadata="true").load()
        fields = events.selectExpr(f"from_json(cast(event as string), '{schema}') as row", "timestamp")
        return fields.selectExpr("row.*", f"timestamp as {stream}_time").withWatermark(f"{stream}_time", "10 minutes")

    orders = follow("orders", "order string")
    payments = follow("payments", "order string, amount long").withColumnRenamed("order", "paid")
    # Both bounds let Spark drop rows that can no longer match.
    limit = "payments_time between orders_time - interval 1 hour and orders_time + interval 1 hour"
    joined = orders.join(payments, expr(f"order = paid and {limit}"))
    query = (
        joined.selectExpr("order", "amount")
        .writeStream.format("memory")
        .queryName("paid_orders")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return {row["order"]: row["amount"] for row in spark.table("paid_orders").collect()}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        print(run(SparkSession.builder.getOrCreate(), Path(temporary)))
