"""Copy a stream exactly once: a query that is stopped and started again loses nothing and repeats nothing."""

import tempfile
from pathlib import Path

from pyspark.sql import SparkSession


def run(spark: SparkSession, folder: Path) -> tuple[int, int]:
    """Copy in two runs of the same query, with new events in between; return the counts of source and copy."""
    where = {"controller": str(folder / "streams"), "scope": "examples", "default_num_segments": "2"}

    def write(first: int, count: int) -> None:
        rows = spark.range(first, first + count).selectExpr(
            "cast(id as string) event", "cast(id % 7 as string) routing_key"
        )
        rows.write.format("pravega").options(**where, stream="source").mode("append").save()

    def copy() -> None:
        source = (
            spark.readStream.format("pravega").options(**where, stream="source", start_stream_cut="earliest").load()
        )
        query = (
            source.selectExpr("event", "cast(segment_id as string) as routing_key")
            .writeStream.format("pravega")
            .options(**where, stream="copy")
            # The checkpoint has the source's position. The target has the batch's number, in the append of its data.
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    write(0, 500)
    copy()
    write(500, 100)
    copy()
    counts = [
        spark.read.format("pravega")
        .options(**where, stream=stream)
        .load()
        .selectExpr("cast(event as string)")
        .distinct()
        for stream in ("source", "copy")
    ]
    return counts[0].count(), counts[1].count()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        print(run(SparkSession.builder.getOrCreate(), Path(temporary)))
