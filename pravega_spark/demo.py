"""`make demo`: a job on real input that copies Spark's event log through two streams, and kills a query on the way.

All files are in one folder, which each run creates again: the event log, the streams, the checkpoints. The exit code is
0 only if all counts agree.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pravega_spark.roots import open_root
from pravega_spark.streams.catalog import Catalog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FOLDER = Path("demo-data").absolute()
SCOPE, LOG, COPY = "demo", "eventlog", "copy"
BYTES_PER_TRIGGER = 300_000


def say(text: str) -> None:
    """Print what happens."""
    print(text, flush=True)


@contextmanager
def session(name: str, **conf: str) -> Iterator[SparkSession]:
    """A small local Spark."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName(name)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "8",
        "spark.log.level": "ERROR",
        **conf,
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def where(stream: str) -> dict[str, str]:
    """The options for a stream."""
    return {"controller": str(FOLDER / "streams"), "scope": SCOPE, "stream": stream, "default_num_segments": "4"}


def run_queries() -> None:
    """Run a few queries with Spark's event log switched on."""
    folder = FOLDER / "eventlog"
    folder.mkdir(parents=True)
    log = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": folder.as_uri(),
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false",
        "spark.sql.adaptive.enabled": "false",
    }
    with session("queries", **log) as spark:
        numbers = spark.range(0, 2_000_000, 1, 32).selectExpr("id", "id % 1000 as k", "rand(1) as v")
        numbers.groupBy("k").sum("v").count()
        numbers.join(spark.range(1000).withColumnRenamed("id", "k"), "k").count()
        numbers.selectExpr("v").orderBy("v").limit(10).collect()
        numbers.repartition(64).selectExpr("max(v)", "approx_count_distinct(id)").collect()


def ingest(spark: SparkSession, folder: Path) -> None:
    """Stream the log's JSON lines into a stream, keyed by the stage that they are about."""
    lines = spark.readStream.text(str(folder))
    stage = "coalesce(get_json_object(value, '$.Stage ID'), get_json_object(value, '$.Stage Info.Stage ID'), 'none')"
    query = (
        lines.selectExpr("value as event", f"{stage} as routing_key")
        .writeStream.format("pravega")
        .options(**where(LOG))
        .option("checkpointLocation", str(FOLDER / "checkpoints" / "ingest"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def read(spark: SparkSession, stream: str, **options: str) -> DataFrame:
    """A batch read of a stream."""
    return spark.read.format("pravega").options(**where(stream), **options).load()


def slowest_stages(events: DataFrame) -> DataFrame:
    """Task time by stage, from the task ends among the events."""
    lines = events.selectExpr("cast(event as string) as e")
    ends = lines.where("get_json_object(e, '$.Event') = 'SparkListenerTaskEnd'")
    fields = {"stage": "Stage ID", "begun": "Task Info.Launch Time", "ended": "Task Info.Finish Time"}
    numbers = [f"cast(get_json_object(e, '$.{path}') as long) as {name}" for name, path in fields.items()]
    return (
        ends.selectExpr(*numbers)
        .selectExpr("stage", "ended - begun as ms")
        .groupBy("stage")
        .agg({"ms": "sum", "*": "count"})
        .withColumnsRenamed({"sum(ms)": "task_ms", "count(1)": "tasks"})
        .orderBy("task_ms", ascending=False)
        .limit(5)
    )


def copy(until_done: bool) -> None:
    """The micro-batch query from the first stream into the second; runs in a process of its own, to be killed."""
    with session("copy") as spark:
        source = (
            spark.readStream.format("pravega")
            .options(**where(LOG), start_stream_cut="earliest", approx_bytes_per_trigger=str(BYTES_PER_TRIGGER))
            .load()
        )
        writer = (
            source.selectExpr("event", "cast(segment_id as string) as routing_key")
            .writeStream.format("pravega")
            .options(**where(COPY))
            .option("checkpointLocation", str(FOLDER / "checkpoints" / "copy"))
        )
        writer = writer.trigger(availableNow=True) if until_done else writer.trigger(processingTime="1 second")
        writer.start().awaitTermination()


def start(step: str) -> subprocess.Popen[bytes]:
    """Start a step in a process group of its own, so that all of its Spark can be killed at once."""
    quiet = subprocess.DEVNULL if step == "copy" else None
    return subprocess.Popen([sys.executable, "-m", "pravega_spark.demo", step], start_new_session=True, stderr=quiet)


def finish(step: str) -> None:
    """Run a step to its end."""
    if start(step).wait() != 0:
        raise SystemExit(f"the step {step!r} failed")


def count_events(stream: str) -> int:
    """Number of events by the stream's index, without Spark; 0 while the stream does not exist."""
    found = Catalog(open_root(where(stream)["controller"])).stream(SCOPE, stream)
    return found.snapshot().events() if found.exists() else 0


def copy_with_a_kill() -> None:
    """Start the copying query, kill it after its first batches, and run it to its end."""
    running = start("copy")
    while count_events(COPY) == 0:
        if running.poll() is not None:
            raise SystemExit("the copying query ended before it wrote anything")
        time.sleep(0.1)
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    say(f"   killed it with SIGKILL with {count_events(COPY)} events in the second stream; restarting it ...")
    finish("copy-rest")


def main() -> None:
    begun = time.monotonic()
    shutil.rmtree(FOLDER, ignore_errors=True)
    say(f"The demo keeps all its data in {FOLDER} and starts from scratch in each run.\n")
    say("1. Spark runs a few queries with its event log switched on ...")
    finish("queries")
    folder = FOLDER / "eventlog"
    lines = sum(len(file.read_bytes().splitlines()) for file in folder.iterdir())
    say(f"   {lines} lines of JSON are in {folder}\n")
    with session("demo") as spark:
        say(f"2. A streaming query writes these lines into the stream {SCOPE}/{LOG}, keyed by stage ...")
        ingest(spark, folder)
        info = read(spark, LOG, metadata="StreamInfo").collect()[0]
        say(f"   the stream lies in {FOLDER / 'streams'} and has {count_events(LOG)} events")
        say(f"   head cut {info.head_stream_cut}\n   tail cut {info.tail_stream_cut}\n")
        say("3. A batch job reads between these two stream cuts: the slowest stages ...")
        events = read(spark, LOG, start_stream_cut=info.head_stream_cut, end_stream_cut=info.tail_stream_cut)
        found = events.count()
        slowest_stages(events).show()
    say(f"4. A micro-batch query copies it into {SCOPE}/{COPY}, in triggers of some {BYTES_PER_TRIGGER} bytes ...")
    copy_with_a_kill()
    with session("compare") as spark:
        first, second = (read(spark, stream).select("event") for stream in (LOG, COPY))
        copied, differing = second.count(), first.exceptAll(second).count() + second.exceptAll(first).count()
    say(f"   lines in the log: {lines}, events in the first stream: {found}, in the second: {copied}")
    say(f"   events in one stream only: {differing}\n")
    if not lines == found == copied or differing:
        raise SystemExit("The counts do not agree.")
    say(f"Every line was copied exactly once. It took {time.monotonic() - begun:.0f} s.")


if __name__ == "__main__":
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    steps: dict[str, Callable[[], object]] = {
        "queries": run_queries,
        "copy": lambda: copy(until_done=False),
        "copy-rest": lambda: copy(until_done=True),
    }
    steps.get("".join(sys.argv[1:]), main)()
