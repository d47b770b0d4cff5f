"""Streaming queries: what a small micro-batch costs, how soon an event arrives, how fast a backlog is worked off."""

from __future__ import annotations

import statistics
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pravega_spark import StreamManager
from tests.bench.figures import Figures

BATCHES, WARM, ROWS = 40, 5, 100
EVENT, EVERY, SENT = 1_000, 0.5, 60
"""Bytes of an event, seconds between two writes of ROWS events, and how many of these."""

BACKLOG, PARTITIONS, ROUNDS = 128_000_000, 4, 5
SIZES = (100, 1_000, 10_000)
"""Bytes of the events that are only written."""


class Streaming:
    """Queries of one session from stream to stream in one folder, and from a no-op source to a no-op sink."""

    def __init__(self, spark: SparkSession, folder: str, figures: Figures) -> None:
        self._spark = spark
        self._folder = folder
        self._figures = figures
        self._stream = {"controller": f"{folder}/root", "scope": "bench", "default_num_segments": "4"}

    def measure(self) -> None:
        """All three."""
        self.small_batches()
        self.end_to_end()
        self.backlog()

    def small_batches(self) -> None:
        """The time of a batch of ROWS events of 100 B, with no pause between batches."""
        self._fill("small", BATCHES * ROWS, 100)
        ours = self._read("small", max_events_per_trigger=ROWS)
        times = {
            "no-op": self._batches(self._noop(ROWS, 100, BATCHES), "noop_python"),
            "pravega": self._batches(ours, "pravega", "small-copied"),
        }
        self._figures.compare("micro-batch", f"{ROWS} events of 100 B", times, "no-op")

    def _batches(self, frame: DataFrame, sink: str, target: str = "") -> list[float]:
        with self._copying(frame, sink, target) as query:
            while len(query.recentProgress) < BATCHES - WARM and query.isActive:
                time.sleep(0.1)
        if query.exception() is not None:
            raise RuntimeError(str(query.exception()))
        spent = [p["durationMs"]["triggerExecution"] / 1000 for p in query.recentProgress if p["numInputRows"]]
        return spent[WARM:]

    def end_to_end(self) -> None:
        """From an event's write to its arrival in the target of a query; and the time of such a batch."""
        with StreamManager(self._stream["controller"]) as manager:
            for name in ("sent", "arrived"):
                manager.create_stream("bench", name, 4)
            with self._copying(self._read("sent"), "pravega", "arrived") as query:
                arrivals = _Arrivals(manager, "arrived")
                with manager.create_writer("bench", "sent") as writer:
                    for _ in range(WARM + SENT):
                        now = time.time()
                        for key in range(ROWS):
                            writer.write_event_bytes(f"{now:.6f}".encode().ljust(EVENT), str(key))
                        writer.flush()
                        time.sleep(max(0.0, now + EVERY - time.time()))
                delays = arrivals.delays((WARM + SENT) * ROWS)[WARM * ROWS :]
                spent = [p["durationMs"]["triggerExecution"] for p in query.recentProgress if p["numInputRows"]]
        self._figures.tell(
            "end to end",
            f"{ROWS} events of {EVENT} B each {EVERY} s",
            p50_ms=statistics.median(delays) * 1000,
            p95_ms=sorted(delays)[int(len(delays) * 0.95)] * 1000,
            batch_ms=statistics.median(spent[WARM:]),
        )

    def backlog(self) -> None:
        """What lies in a stream copied by a query with the trigger availableNow."""
        rows = BACKLOG // EVENT
        self._fill("backlog", rows, EVENT)
        ours = self._read("backlog")
        noop = self._noop(rows // PARTITIONS, EVENT, 1, PARTITIONS)
        self._compare(noop, ours, "backlog", f"{BACKLOG // 1_000_000} MB of events of {EVENT} B")

    def written(self) -> None:
        """The same amount in events of several sizes, from the no-op source: what the sink costs with this Spark."""
        for size in SIZES:
            noop = self._noop(BACKLOG // size // PARTITIONS, size, 1, PARTITIONS)
            self._compare(noop, noop, f"written-{size}", f"{BACKLOG // 1_000_000} MB of events of {size} B")

    def _compare(self, noop: DataFrame, ours: DataFrame, part: str, what: str) -> None:
        """Copy all of a DataFrame to the no-op sink, and all of another one to a stream, in turns."""
        times: dict[str, list[float]] = {"no-op": [], "pravega": []}
        for number in range(ROUNDS + 1):
            runs: dict[str, Callable[[], object]] = {
                "no-op": lambda: self._copy_all(noop, "noop_python"),
                "pravega": partial(self._copy_all, ours, "pravega", f"{part}-{number}"),
            }
            for name, run in runs.items():
                begun = time.perf_counter()
                run()
                if number:
                    times[name].append(time.perf_counter() - begun)
        self._figures.compare(part.partition("-")[0], what, times, "no-op")

    def _copy_all(self, frame: DataFrame, sink: str, target: str = "") -> None:
        with self._copying(frame, sink, target, availableNow=True) as query:
            query.awaitTermination()

    @contextmanager
    def _copying(self, frame: DataFrame, sink: str, target: str, **trigger: bool) -> Iterator[StreamingQuery]:
        writer = frame.selectExpr("event", "cast(offset as string) as routing_key").writeStream.format(sink)
        writer = writer.options(**self._stream, stream=target) if target else writer
        writer = writer.option("checkpointLocation", f"{self._folder}/checkpoint-{uuid.uuid4()}")
        query = (writer.trigger(**trigger) if trigger else writer.trigger(processingTime="0 seconds")).start()
        try:
            yield query
        finally:
            query.stop()

    def _fill(self, stream: str, rows: int, size: int) -> None:
        frame = self._spark.range(0, rows, 1, PARTITIONS)
        frame = frame.selectExpr(f"cast(repeat('x', {size}) as binary) AS event", "cast(id AS string) AS routing_key")
        frame.write.format("pravega").options(**self._stream, stream=stream).mode("append").save()

    def _read(self, stream: str, **more: int) -> DataFrame:
        reader = self._spark.readStream.format("pravega").options(**self._stream, stream=stream, **more)
        return reader.option("start_stream_cut", "earliest").load()

    def _noop(self, rows: int, size: int, batches: int, partitions: int = 1) -> DataFrame:
        options = {"rows": rows, "size": size, "batches": batches, "partitions": partitions}
        return self._spark.readStream.format("noop_python").options(**options).load()


class _Arrivals:
    """Follows a stream whose events begin with the time of their writing."""

    def __init__(self, manager: StreamManager, stream: str) -> None:
        self._delays: list[float] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(manager, stream), daemon=True)
        self._thread.start()

    def _run(self, manager: StreamManager, stream: str) -> None:
        for event in manager.tail("bench", stream, start="earliest", poll_interval=0.01, stop=self._stopped):
            self._delays.append(time.time() - float(bytes(event.data).split()[0]))

    def delays(self, count: int) -> list[float]:
        """Seconds of the first `count` events, in the order of their arrival."""
        end = time.monotonic() + 60
        while len(self._delays) < count and time.monotonic() < end:
            time.sleep(0.05)
        self._stopped.set()
        self._thread.join()
        return self._delays[:count]
