"""Jobs of Spark by size: what they cost before the first row and after the last one, and what they move in between.

One row with new worker processes and with idle ones, 10 MB and 256 MB; beside each the no-op source or sink, a sink
that only keeps the payloads in a synced file of each task, parquet, and Delta where Spark has it. Best and median of
the rounds, taken in turns. A read is of all that the rounds have written, and has a source beside it that only reads
plain files.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.bench.figures import Figures

ROUNDS = 5
KEYS = 10_000
EVENTS = (100, 1_000, 10_000)
MEGABYTES = (10, 256)
PARTITIONS = 4
TOUCHED = 4 << 30
"""How much memory is touched first. A virtual machine may get memory from its host only when it is first used: then a
new file in the page cache costs ten times as much, and who writes new ones pays for who overwrites its own."""


def measure(spark: SparkSession, folder: str, figures: Figures, fresh: bool = False) -> None:
    """Jobs of all sizes; fresh: in a session whose workers serve one task each, so only of one row."""
    jobs = _Jobs(spark, folder, figures)
    if fresh:
        jobs.of(100, 0, "new processes")
        return
    jobs.of(100, 0, "idle processes")
    for size in EVENTS:
        for megabytes in MEGABYTES:
            jobs.of(size, megabytes)


class _Jobs:
    """Writes and reads in one folder, with all peers that this Spark has."""

    def __init__(self, spark: SparkSession, folder: str, figures: Figures) -> None:
        self._spark = spark
        self._figures = figures
        self._folder = folder
        _touch_memory(folder)
        self._delta = _has_delta(spark)
        if not self._delta:
            print("\nDelta is left out: this Spark has no format 'delta' (delta-spark and its jar)")

    def of(self, size: int, megabytes: int, note: str = "") -> None:
        """Writes and reads of so many megabytes (0: one row) of events of `size` bytes."""
        rows = max(1, megabytes * 1_000_000 // size)
        stream, files = self._places(size, megabytes)
        self.write(rows, size, note, stream, files)
        self.read(rows * (ROUNDS + 1), size, note, stream, files)  # one write does not count

    def _places(self, size: int, megabytes: int) -> tuple[dict[str, str], dict[str, str]]:
        """The options of a stream, and the paths of its peers."""
        stream = {"controller": f"{self._folder}/root", "scope": "jobs", "stream": f"of-{size}-{megabytes}"}
        stream |= {"default_num_segments": "4"}
        files = {name: f"{self._folder}/{name}-{size}-{megabytes}" for name in ("parquet", "delta")[: 1 + self._delta]}
        return stream, files

    def write(self, rows: int, size: int, note: str, stream: dict[str, str], files: dict[str, str]) -> None:
        """Writes of so many events."""
        frame = _events(self._spark, rows, size).cache()
        frame.count()
        written = _in_turns(
            {
                "no-op": lambda: frame.write.format("noop_python").mode("append").save(),
                "pravega": lambda: frame.write.format("pravega").options(**stream).mode("append").save(),
                "synced files": lambda: (
                    frame.write.format("files_python").option("path", f"{self._folder}/bare").mode("append").save()
                ),
                **{name: partial(frame.write.format(name).mode("append").save, path) for name, path in files.items()},
                **{
                    f"{name}, synced": partial(_save_synced, frame, name, f"{path}-synced")
                    for name, path in files.items()
                },
            }
        )
        frame.unpersist()
        self._figures.compare("write", _what(rows, size, note), written, "no-op")

    def read(self, events: int, size: int, note: str, stream: dict[str, str], files: dict[str, str]) -> None:
        """Reads of all that was written, which is so many events."""
        reader = self._spark.read.format("pravega").options(**stream)
        partitions = reader.load().rdd.getNumPartitions()
        noop = {"rows": str(-(-events // partitions)), "size": str(size), "partitions": str(partitions)}
        plain = noop | {"path": _plain_file(f"{self._folder}/plain", int(noop["rows"]) * size)}
        everything = {name: f"{path}-read" for name, path in files.items()}
        for name, path in everything.items():
            reader.load().write.format(name).mode("overwrite").save(path)
        read = _in_turns(
            {
                "no-op": lambda: _consume(self._spark.read.format("noop_python").options(**noop).load()),
                "pravega": lambda: _consume(reader.load()),
                "plain files": lambda: _consume(self._spark.read.format("files_python").options(**plain).load()),
                **{name: partial(_consume_files, self._spark, name, path) for name, path in everything.items()},
                "pravega, event only": lambda: _consume(
                    self._spark.read.format("pravega").options(**stream).schema("event binary").load()
                ),
            }
        )
        self._figures.compare("read", _what(events, size, note), read, "no-op")


def _events(spark: SparkSession, rows: int, size: int) -> DataFrame:
    """Random bytes with one of many keys."""

    def make(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        random = np.random.default_rng(os.getpid())
        for batch in batches:
            for first in range(0, batch.num_rows, most := max(1, 4_000_000 // size)):
                count = min(most, batch.num_rows - first)
                bounds = pa.py_buffer((np.arange(count + 1) * size).astype(np.int32))
                data = pa.py_buffer(random.bytes(count * size))
                events = pa.Array.from_buffers(pa.binary(), count, [None, bounds, data])
                keys = pa.array([f"key-{number}" for number in random.integers(0, KEYS, count)])
                yield pa.RecordBatch.from_arrays([events, keys], names=["event", "routing_key"])

    return spark.range(0, rows, 1, min(PARTITIONS, rows)).mapInArrow(make, "event binary, routing_key string")


def _what(rows: int, size: int, note: str) -> str:
    megabytes = rows * size // 1_000_000
    much = f"{megabytes:,} MB" if megabytes else f"{rows} {'row' if rows == 1 else 'rows'}"
    return f"{much}, {size} B events{note and ', '}{note}"


def _plain_file(file: str, size: int) -> str:
    """A file of random bytes."""
    with open(file, "wb") as out:
        for first in range(0, size, 1 << 20):
            out.write(os.urandom(min(1 << 20, size - first)))
    return file


def _save_synced(frame: DataFrame, name: str, path: str) -> None:
    """Append to a table, and sync what that wrote, as a stream's writes are: its files, several at a time, and their
    folders."""
    before = {file for file in Path(path).rglob("*") if file.is_file()}
    frame.write.format(name).mode("append").save(path)
    new = [file for file in Path(path).rglob("*") if file.is_file() and file not in before]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(_sync, new))
        list(pool.map(_sync, {file.parent for file in new}))


def _sync(file: Path) -> None:
    fd = os.open(file, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _consume(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _consume_files(spark: SparkSession, name: str, path: str) -> None:
    _consume(spark.read.format(name).load(path))


def _touch_memory(folder: str) -> None:
    """Use so much of the page cache for a moment."""
    piece, file = bytes(512 << 10), f"{folder}/touched"
    with open(file, "wb", buffering=0) as out:
        for _ in range(0, TOUCHED, len(piece)):
            out.write(piece)
    os.remove(file)


def _has_delta(spark: SparkSession) -> bool:
    try:
        spark.read.format("delta").load("nowhere")
    except (PySparkException, Py4JJavaError) as error:
        return "DATA_SOURCE_NOT_FOUND" not in str(error)
    return True


def _in_turns(jobs: dict[str, Callable[[], None]]) -> dict[str, list[float]]:
    """Seconds of each round of each job, after one round that does not count."""
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for number in range(ROUNDS + 1):
        for name, job in jobs.items():
            begun = time.perf_counter()
            job()
            if number:
                times[name].append(time.perf_counter() - begun)
    return times
