"""Backfill: process exactly the events between two stream cuts again, and write the result once."""

import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from pravega_spark import StreamManager


def run(spark: SparkSession, folder: Path) -> list[str]:
    """Write three days, process the second one again, twice; return the results in the target."""
    root = str(folder / "streams")
    with StreamManager(root) as manager:
        manager.create_scope("examples")
        manager.create_stream("examples", "raw", 2)
        cuts = []
        for day in ("monday", "tuesday", "wednesday"):
            with manager.create_writer("examples", "raw") as writer:
                for hour in range(24):
                    writer.write_event(f"{day} {hour}", routing_key=str(hour))
            cuts.append(manager.stream_info("examples", "raw").tail)  # `stream_cut_at` would find the same cut by time

    where = {"controller": root, "scope": "examples"}
    tuesday = (
        spark.read.format("pravega")
        .options(**where, stream="raw", start_stream_cut=cuts[0].as_text(), end_stream_cut=cuts[1].as_text())
        .load()
    )
    result = tuesday.selectExpr(
        "concat(split(cast(event as string), ' ')[0], ': ', count(*) over ()) as event"
    ).distinct()
    for _ in range(2):  # a repeated job: the second write has the same number, and is skipped
        rows = result.write.format("pravega").options(**where, stream="days").mode("append")
        rows.options(txn_app_id="backfill-2026-11-03", txn_version="1").save()

    with StreamManager(root) as manager:
        return [event.data.decode() for event in manager.read_events("examples", "days")]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        print(run(SparkSession.builder.getOrCreate(), Path(temporary)))
