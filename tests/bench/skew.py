"""Tasks of a read of a stream of 100 segments, one of which holds 90 % of the events: how long each takes."""

from __future__ import annotations

import json
import os
import statistics
from collections import defaultdict
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

SEGMENTS = 100
SIZE, EVENTS = 1_000, 512_000
ROUNDS = 5
CASES: list[dict[str, str]] = [{}, {"min_partitions": "9"}, {"max_bytes_per_partition": "20MiB"}]


def measure(folder: str) -> None:
    """Print the tasks' times, of batches and of a micro-batch, each task's median of some rounds."""
    events = Path(folder, "skew-events")
    events.mkdir()
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.eventLog.enabled", "true").config("spark.eventLog.dir", events.as_uri())
    builder = builder.config("spark.eventLog.compress", "false").config("spark.eventLog.rolling.enabled", "false")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.sparkContext.setLogLevel("FATAL")
    try:
        _run(spark, folder)
    finally:
        spark.stop()
    stages = iter(_task_times(events))
    next(stages)  # the write
    print(f"\nread of {SEGMENTS} segments, one of which holds 90 %, {EVENTS:,} events of {SIZE} B: time of each task")
    names = [", ".join(f"{key}={value}" for key, value in case.items()) or "as by default" for case in CASES]
    for name in [*names, "micro-batch, min_partitions=9"]:
        rounds = [next(stages) for _ in range(ROUNDS + 1)][1:]
        times = [round(statistics.median(found)) for found in zip(*rounds, strict=True)]
        told = f"{len(times):3d} tasks, the longest {max(times) / min(times):4.2f} of the shortest"
        print(f"  {name:32s} {told}: {' '.join(map(str, times))} ms")


def _run(spark: SparkSession, folder: str) -> None:
    """Jobs of one stage each."""
    stream = {"controller": f"{folder}/root", "scope": "bench", "stream": "skew"}
    rows = spark.range(0, EVENTS, 1, 4).selectExpr(
        f"cast(repeat('x', {SIZE}) as binary) as event",
        "if(id % 10 = 0, concat('cold-', id), 'hot') as routing_key",
    )
    writer = rows.write.format("pravega").options(**stream, default_num_segments=str(SEGMENTS))
    writer.mode("append").save()
    for case in CASES:
        for _ in range(ROUNDS + 1):
            _consume(spark.read.format("pravega").options(**stream, **case).load())
    follow = spark.readStream.format("pravega").options(**stream, start_stream_cut="earliest", min_partitions="9")
    for number in range(ROUNDS + 1):
        query = follow.load().writeStream.format("noop").trigger(availableNow=True)
        query.option("checkpointLocation", f"{folder}/skew-{number}").start().awaitTermination()


def _consume(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _task_times(events: Path) -> list[list[int]]:
    """Milliseconds of each task of each stage, in order."""
    found: dict[int, dict[int, int]] = defaultdict(dict)
    for name in os.listdir(events):
        for line in (events / name).read_text("utf-8").splitlines():
            event = json.loads(line)
            if event["Event"] == "SparkListenerTaskEnd":
                task = event["Task Info"]
                found[event["Stage ID"]][task["Index"]] = task["Finish Time"] - task["Launch Time"]
    return [[times[index] for index in sorted(times)] for _, times in sorted(found.items())]
