"""A query from all streams `in-…` to streams that rows name, by `writeStream` or `foreachBatch`, until it is killed.

Environment: ROUNDS_ROOT, ROUNDS_CHECKPOINT, ROUNDS_HOW; ROUNDS_END if it is to end when it has copied all there is.
"""

from __future__ import annotations

import os

from pyspark.sql import DataFrame, SparkSession

OPTIONS = {"controller": os.environ.get("ROUNDS_ROOT", ""), "scope": "s"}


def save(frame: DataFrame, batch: int) -> None:
    rows = frame.write.format("pravega").options(**OPTIONS, txn_app_id="rounds", txn_version=batch)
    rows.mode("append").save()


def main() -> None:
    spark = SparkSession.builder.appName("rounds").getOrCreate()
    source = spark.readStream.format("pravega").options(**OPTIONS, stream_pattern="in-.*", start_stream_cut="earliest")
    source = source.options(min_partitions=4, subscriber="rounds", release_interval=0)
    key = "split_part(cast(event AS string), '/', 1)"
    rows = source.load().selectExpr("event", f"{key} AS routing_key", f"concat('out-', {key} % 3) AS stream")
    if os.environ["ROUNDS_HOW"] == "foreachBatch":
        query = rows.writeStream.foreachBatch(save)
    else:
        query = rows.writeStream.format("pravega").options(**OPTIONS, default_num_segments=2)
    query = query.option("checkpointLocation", os.environ["ROUNDS_CHECKPOINT"])
    started = query.start()
    if "ROUNDS_END" in os.environ:
        started.processAllAvailable()
        started.stop()
    started.awaitTermination()


if __name__ == "__main__":
    main()
