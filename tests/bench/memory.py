"""4 GB written and read by a driver of 2 GB: the most memory that each kind of process has, and 1 GB for Python's.

MEMORY_MB: another amount. LIMIT_MB: also have the kernel refuse each worker more address space than this.
"""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

SIZE, PARTITIONS = 1_000, 8
DRIVER = "2g"
MOST = 1 << 30
"""Bytes that a Python process may have resident."""

EVERY = 0.05


def measure(folder: str) -> None:
    """Write, read, and copy by one micro-batch; print how much memory the processes had at most."""
    rows = int(os.environ.get("MEMORY_MB", "4000")) * 1_000_000 // SIZE
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.memory", DRIVER).config("spark.ui.showConsoleProgress", "false")
    if "LIMIT_MB" in os.environ:  # as spark.executor.pyspark.memory does on a cluster, and not here
        os.environ["PYSPARK_EXECUTOR_MEMORY_MB"] = os.environ["LIMIT_MB"]
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    stream = {"controller": f"{folder}/root", "scope": "bench", "default_num_segments": "4"}
    events = spark.range(0, rows, 1, PARTITIONS).selectExpr(
        f"cast(rpad(cast(id as string), {SIZE}, 'x') as binary) as event", "concat('key-', id % 10000) as routing_key"
    )
    print(f"\n{rows:,} events of {SIZE} B, a driver of {DRIVER}: MiB resident at most")
    try:
        with _Watch() as watch:
            _write(events, stream, "in")
        _tell("write", watch)
        reader = spark.read.format("pravega").options(**stream, stream="in")
        with _Watch() as watch:
            found = reader.load().selectExpr("count(*)", "count(distinct substr(event, 1, 10))", "sum(length(event))")
            counted = tuple(found.collect()[0])
        assert counted == (rows, rows, rows * SIZE), counted
        _tell("read, aggregated", watch)
        with _Watch() as watch:
            reader.load().write.format("noop").mode("overwrite").save()
        _tell("read", watch)
        with _Watch() as watch:
            _copy(spark, folder, stream)
        _tell("one micro-batch", watch)
        with _Watch() as watch:
            copied = spark.read.format("pravega").options(**stream, stream="out", metadata="Counts").load().collect()
        assert sum(row.events for row in copied) == rows, copied
    finally:
        spark.stop()


def _write(events: DataFrame, stream: dict[str, str], name: str) -> None:
    events.write.format("pravega").options(**stream, stream=name).mode("append").save()


def _copy(spark: SparkSession, folder: str, stream: dict[str, str]) -> None:
    """From stream to stream, all in one batch."""
    source = spark.readStream.format("pravega").options(**stream, stream="in", start_stream_cut="earliest").load()
    writer = source.select("event").writeStream.format("pravega").options(**stream, stream="out")
    writer.option("checkpointLocation", f"{folder}/memory").trigger(once=True).start().awaitTermination()


class _Watch:
    """Looks at all processes below this one, again and again. most: bytes resident, by kind of process."""

    def __init__(self) -> None:
        self.most: dict[str, int] = defaultdict(int)
        self.seconds = 0.0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> _Watch:
        self._begun = time.perf_counter()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        self.seconds = time.perf_counter() - self._begun

    def _look(self) -> None:
        while not self._done.wait(EVERY):
            for kind, size in _resident(os.getpid()):
                self.most[kind] = max(self.most[kind], size)


def _resident(top: int) -> Iterator[tuple[str, int]]:
    """Kind and bytes of the process and of those that it has started, and they."""
    children: dict[int, list[int]] = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
            except OSError:
                continue  # it has just ended
            children[int(stat[1])].append(int(entry.name))
    waiting = [top]
    while waiting:
        number = waiting.pop()
        waiting += children[number]
        try:
            words = Path(f"/proc/{number}/cmdline").read_bytes().split(b"\0")
            pages = int(Path(f"/proc/{number}/statm").read_text("ascii").split()[1])
        except (OSError, IndexError):
            continue
        yield _kind(number == top, words), pages * os.sysconf("SC_PAGE_SIZE")


def _kind(own: bool, words: list[bytes]) -> str:
    if own:
        return "this program"
    if b"java" in words[0]:
        return "JVM"
    modules = [word.decode() for word in words if word.startswith(b"pyspark.")]
    return f"Python {modules[-1].rpartition('.')[2]}" if modules else "other"


def _tell(what: str, watch: _Watch) -> None:
    told = ", ".join(f"{kind} {size >> 20:,}" for kind, size in sorted(watch.most.items()))
    print(f"  {what:18s} {watch.seconds:6.1f} s  {told}", flush=True)
    for kind, size in watch.most.items():
        assert size <= MOST or not kind.startswith("Python"), f"{kind} had {size:,} bytes"
