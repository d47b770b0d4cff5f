"""A change feed: the newest state of each row, kept by foreachBatch in a table that readers query."""

import json
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from pravega_spark import StreamManager


def run(spark: SparkSession, folder: Path) -> dict[str, int]:
    """Feed some changes of accounts through a stream into a table; return the table."""
    root, accounts = str(folder / "streams"), str(folder / "accounts")
    with StreamManager(root) as manager:
        manager.create_scope("bank")
        manager.create_stream("bank", "changes", 2)
        with manager.create_writer("bank", "changes") as writer:
            for account, balance in [("alice", 10), ("bob", 20), ("alice", 15), ("carol", 5), ("alice", 12)]:
                # The routing key keeps the changes of each account in order.
                writer.write_event(json.dumps({"account": account, "balance": balance}), routing_key=account)

    def merge(batch: DataFrame, batch_id: int) -> None:
        """Keep the last change of each account. Writing a version for each batch makes a replay harmless."""
        fields = "from_json(cast(event as string), 'account string, balance long') as row"
        newest = batch.selectExpr(fields, "segment_id", "offset").selectExpr(
            "row.account", "max_by(row.balance, struct(segment_id, offset)) over (partition by row.account) as balance"
        )
        newest.distinct().write.mode("overwrite").parquet(f"{accounts}/batch={batch_id}")

    query = (
        spark.readStream.format("pravega")
        .options(controller=root, scope="bank", stream="changes", start_stream_cut="earliest")
        .load()
        .writeStream.foreachBatch(merge)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    rows = spark.read.parquet(accounts).orderBy("batch").collect()  # later batches overwrite earlier ones
    return {row["account"]: row["balance"] for row in rows}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        print(run(SparkSession.builder.getOrCreate(), Path(temporary)))
