"""Write each change of a Delta table (insert, update, delete) into a stream, exactly once, by Delta's change feed.

`foreachBatch` sorts the changes of each row by version, and the batch's number makes a repeated batch harmless. Delta's
jar has to be on the class path (docs/lakehouse.md).
"""

import json
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from pravega_spark import StreamManager


def settings(folder: Path) -> dict[str, str]:
    """What the Spark session has to be configured with."""
    return {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }


def feed(spark: SparkSession, folder: Path) -> None:
    """Append to the stream what changed in the table since the last run, and end."""

    def write(batch: DataFrame, batch_id: int) -> None:
        changes = batch.where("_change_type <> 'update_preimage'").selectExpr(
            "account", "balance", "replace(_change_type, '_postimage') AS change", "_commit_version AS version"
        )
        (
            # One task gets all changes of an account, and writes them in the order of the table's versions.
            changes.repartition("account")
            .sortWithinPartitions("version", "account")
            .selectExpr("to_json(struct(*)) AS event", "account AS routing_key")
            .write.format("pravega")
            .options(controller=str(folder / "streams"), scope="bank", stream="changes")
            # The name belongs to the checkpoint: another checkpoint counts from 0 again and needs another name.
            .options(txn_app_id="accounts-to-changes", txn_version=batch_id)
            .mode("append")
            .save()
        )

    query = (
        spark.readStream.format("delta")
        .options(readChangeFeed="true", startingVersion="0")
        .load(str(folder / "accounts"))
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def changes(folder: Path) -> list[tuple[str, str, int]]:
    """The changes in the stream: account, change and balance, those of an account in their order."""
    with StreamManager(str(folder / "streams")) as manager:
        found = [json.loads(bytes(event.data)) for event in manager.read_events("bank", "changes")]
    return [(row["account"], row["change"], row["balance"]) for row in found]


def run(spark: SparkSession, folder: Path) -> list[tuple[str, str, int]]:
    """Change a table of accounts, and feed the changes into a stream in two runs; return what is in the stream."""
    accounts = f"delta.`{folder / 'accounts'}`"
    spark.sql(
        f"CREATE TABLE {accounts} (account STRING, balance BIGINT) USING delta"
        " TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    )
    spark.sql(f"INSERT INTO {accounts} VALUES ('alice', 10), ('bob', 20)")
    spark.sql(f"UPDATE {accounts} SET balance = 15 WHERE account = 'alice'")
    feed(spark, folder)
    spark.sql(f"UPDATE {accounts} SET balance = balance - 5 WHERE account = 'alice'")
    spark.sql(f"DELETE FROM {accounts} WHERE account = 'bob'")
    feed(spark, folder)
    return changes(folder)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        builder = SparkSession.builder.config(map=settings(Path(temporary)))
        print(run(builder.getOrCreate(), Path(temporary)))
