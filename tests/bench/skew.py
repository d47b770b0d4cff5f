"""Tasks of a read of a stream of 100 segments, one of which holds 90 % of the events: how long each takes."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession

SEGMENTS = 100
SIZE, EVENTS = 1_000, 512_000
ROUNDS = 5


def measure(spark: SparkSession, folder: str) -> None:
    """Print the tasks' times, of batches and of a micro-batch, each task's median of some rounds."""
    stream = {"controller": f"{folder}/root", "scope": "bench", "stream": "skew"}
    rows = spark.range(0, EVENTS, 1, 4).selectExpr(
        f"cast(repeat('x', {SIZE}) as binary) as event",
        "if(id % 10 = 0, concat('cold-', id), 'hot') as routing_key",
    )
    writer = rows.write.format("pravega").options(**stream, default_num_segments=str(SEGMENTS))
    writer.mode("append").save()
    print(f"\nread of {SEGMENTS} segments, one of which holds 90 %, {EVENTS:,} events of {SIZE} B: time of each task")
    for more in ({}, {"min_partitions": "9"}, {"max_bytes_per_partition": "20MiB"}):
        reader = spark.read.format("pravega").options(**stream, **more)
        name = ", ".join(f"{key}={value}" for key, value in more.items()) or "as by default"
        _tell(name, _task_times(spark, lambda reader=reader: _consume(reader.load())))
    follow = spark.readStream.format("pravega").options(**stream, start_stream_cut="earliest", min_partitions="9")
    numbers = iter(range(ROUNDS + 1))

    def micro_batch() -> None:
        writer = follow.load().writeStream.format("noop").trigger(availableNow=True)
        writer.option("checkpointLocation", f"{folder}/skew-{next(numbers)}").start().awaitTermination()

    _tell("micro-batch, min_partitions=9", _task_times(spark, micro_batch))


def _consume(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _task_times(spark: SparkSession, job: Callable[[], None]) -> list[int]:
    """Milliseconds of each task of a job of one stage, after one round that does not count."""
    jobs = spark._jsc.sc().statusStore()
    rounds = []
    for number in range(ROUNDS + 1):
        before = jobs.jobsList(None).size()
        job()
        spark._jsc.sc().listenerBus().waitUntilEmpty()
        stages = {
            stages.apply(place)
            for index in range(jobs.jobsList(None).size() - before)
            for stages in [jobs.jobsList(None).apply(index).stageIds()]
            for place in range(stages.size())
        }
        (stage,) = stages
        tasks = jobs.taskList(stage, 0, 10_000)
        times = [tasks.apply(place) for place in range(tasks.size())]
        if number:
            rounds.append([task.duration().get() for task in sorted(times, key=lambda task: task.index())])
    return [round(statistics.median(found)) for found in zip(*rounds, strict=True)]


def _tell(name: str, times: list[int]) -> None:
    told = " ".join(map(str, times))
    print(f"  {name:32s} {len(times):3d} tasks, the longest {max(times) / min(times):4.2f} of the shortest: {told} ms")
