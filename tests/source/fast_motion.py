"""A streaming query from stream to stream in fast motion: what Spark calls, in processes that come and go as there.

A process is a way of its own to one simulated bucket (requests are paid for there), which ends with it, and a root that
it opens. What is pickled for another process names that one's root. The clocks of all of them and of the storage go on
by some seconds from batch to batch. Nothing else is made up: log, flushes, upkeep, retention and garbage are as they
are.

    query       plans the reads of all batches; is started again from its checkpoint now and then, and repeats a batch
    planner     plans the write of a batch, and is kept for some batches, as the pool of Spark keeps it
    workers     read and write, and are kept for some batches
    committer   commits, and is kept for some batches
    producer    appends to the source stream
    upkeep      `maintain`, as somebody schedules it
"""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import json
import os
import pickle
import random
import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StringType, StructType

import engine.root
from chunkstore import StorageError, Store
from chunkstore.boot_clock import boot_time
from chunkstore.paths import SystemPlace, place_of
from chunkstore.testing import CountingStore, Crashed, SimulatedStore
from engine.containers.container import Container
from engine.errors import EngineError
from pravega_spark.client.manager import StreamManager
from pravega_spark.client.writer import EventWriter, WriteFailed
from pravega_spark.jobs.maintain import maintain
from pravega_spark.roots import close_root, open_root
from pravega_spark.source.micro_batch import MicroBatchReader
from pravega_spark.source.options import SourceOptions
from pravega_spark.source.sink import StreamWriter
from pravega_spark.source.task_outputs import TaskMessage
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.model.policies import RetentionPolicy, ScalingPolicy
from tests.support.short_lived import Mortal

Value = TypeVar("Value")

ROWS = StructType().add("event", BinaryType()).add("routing_key", StringType())
EVENTS, EVENT_BYTES = 20, 100
"""What a batch finds, as a rule."""

LARGE_EVERY, LARGE_EVENTS = 25, 6000
"""Each of so many batches finds so many events, and attaches chunks."""

APART = 10.0
"""Seconds between two batches, which is when a flush is due after 30, frames go after 60, retention after 180."""

KEPT = 5
"""For how many batches a pooled process is kept, on average."""

RESTART_EVERY, MAINTAIN_EVERY = 900, 1080
"""Batches after which the query and the producer are started again, and after which upkeep runs."""

RETAINED = 2 << 20
"""Bytes that both streams keep."""


class Process:
    """A process of Python, by its way to the storage. Ended, it reaches nothing any more."""

    _numbers = itertools.count()

    def __init__(self, storage: Store, ways: dict[str, Store]) -> None:
        self.url = f"memory://p{next(self._numbers):012d}"  # as long as that of any other
        self._way = ways[self.url] = Mortal(storage)
        self._ways = ways

    def given(self, value: Value) -> Value:
        """What another process has pickled, as this one gets it."""
        made: Value = pickle.loads(re.sub(rb"memory://p\d{12}", self.url.encode(), pickle.dumps(value)))
        return made

    def options(self, stream: str, **more: object) -> SourceOptions:
        given = {"controller": self.url, "scope": "s", "stream": stream, **{k: str(v) for k, v in more.items()}}
        return SourceOptions.parse(given)

    def wait_for_upkeep(self) -> None:
        """Until nothing runs in the containers that it has open."""
        root = open_root(self.url)
        for number in root.containers.online:
            root.container(number).wait_for_upkeep()

    def end(self, *, killed: bool = True) -> None:
        if killed:
            self._way.kill()
        with contextlib.suppress(Crashed, EngineError, StorageError, WriteFailed):
            close_root(self.url)
        del self._ways[self.url]


class Row(NamedTuple):
    """What some batches cost, by batch, and what there is after them. milliseconds: of CPU, of all processes together.

    objects: those of the root other than chunks; bytes: of the largest checkpoint, the offset, a pickled plan;
    resident: MiB of memory, with the simulated storage's.
    """

    batches: int
    milliseconds: float
    requests: float
    objects: int
    frames: int
    chunks: int
    checkpoint_bytes: int
    offset_bytes: int
    plan_bytes: int
    resident: float


class FastMotion:
    """The query, its processes and the storage. `patch` gives them their clocks and their storage."""

    def __init__(
        self, patch: pytest.MonkeyPatch, *, restart_every: int = RESTART_EVERY, maintain_every: int = MAINTAIN_EVERY
    ) -> None:
        self._restart_every, self._maintain_every = restart_every, maintain_every
        self._random = random.Random(0)
        self._begun, self._ahead = time.time(), 0.0
        self.storage = SimulatedStore(now=self._begun, remote=True)
        self.requests = CountingStore(self.storage)
        self._ways: dict[str, Store] = {}
        self._patch(patch)
        self._batch = 0
        self._written = 0
        self._producer = self._process()
        self._make_streams()
        self._writer = self._producing()
        self._pooled = {name: self._process() for name in ("planner", "committer", "worker 0", "worker 1")}
        self._query = self._process()
        self._reader = self._reading()
        self._offset: Any = self._reader.initialOffset()
        self._last: tuple[Any, Any] | None = None
        self._plan_bytes = 0

    def _patch(self, patch: pytest.MonkeyPatch) -> None:
        steady, boot = time.monotonic, boot_time
        patch.setattr(time, "monotonic", lambda: steady() + self._ahead)
        patch.setattr(time, "time", lambda: self.storage.now)
        patch.setattr(engine.root, "open_store", lambda url, options=None: self._ways[url])
        made = functools.partial(Container, clock=lambda: boot() + self._ahead, now=lambda: self.storage.now)
        patch.setattr(engine.containers.container, "Container", made)

    def _process(self) -> Process:
        return Process(self.requests, self._ways)

    def _make_streams(self) -> None:
        root = open_root(self._producer.url, create=True)
        catalog = Catalog(root)
        catalog.create_scope("s")
        for name, segments in (("in", 2), ("out", 3)):
            catalog.create_stream("s", name, ScalingPolicy(min_segments=segments), RetentionPolicy.by_size(RETAINED))

    def _producing(self) -> EventWriter:
        return StreamManager.over(open_root(self._producer.url)).create_writer("s", "in")

    def _reading(self) -> MicroBatchReader:
        return MicroBatchReader(self._query.options("in", start_stream_cut="earliest", subscriber="q"))

    # --- what happens -------------------------------------------------------------------------------------------

    def run(self, batches: int, rows: int, tell: Callable[[Row], object] = lambda row: None) -> list[Row]:
        """So many batches, and what they cost, in so many rows."""
        found = []
        for _ in range(rows):
            self.requests.reset()
            begun = time.process_time()
            for _ in range(batches // rows):
                self.batch()
            found.append(self._row(batches // rows, time.process_time() - begun))
            tell(found[-1])
        return found

    def batch(self) -> None:
        """Events come, a batch of the query copies them, and some time goes by."""
        self._produce()
        if self._batch and self._batch % self._restart_every == 0:
            self._restart()
        for name, process in self._pooled.items():
            if self._random.random() < 1 / KEPT:
                process.end()
                self._pooled[name] = self._process()
        start = self._offset
        end = self._reader.latestOffset(start, self._reader.getDefaultReadLimit())
        assert end != start
        self._reader.reportLatestOffset()
        self._copy(start, end)
        self._reader.commit(end)
        self._offset, self._last = json.loads(json.dumps(end)), (start, end)
        self._batch += 1
        if self._batch % self._maintain_every == 0:
            self._maintain()
        for process in [self._producer, self._query, *self._pooled.values()]:
            process.wait_for_upkeep()
        self._ahead += APART
        self.storage.now = self._begun + self._ahead

    def _produce(self) -> None:
        events = LARGE_EVENTS if self._batch % LARGE_EVERY == LARGE_EVERY - 1 else EVENTS
        numbers = range(self._written, self._written + events)
        column = pa.array([b"%0*d" % (EVENT_BYTES, number) for number in numbers], pa.binary())
        self._writer.write_events(column, routing_keys=pa.array([str(number % 10) for number in numbers]))
        self._writer.flush()
        self._written += events

    def _copy(self, start: Any, end: Any) -> None:
        """A batch between two offsets, by the processes that there are now."""
        partitions = self._reader.partitions(start, end)
        self._plan_bytes = len(pickle.dumps((self._reader, partitions)))
        planner, committer = self._pooled["planner"], self._pooled["committer"]
        writer = StreamWriter(planner.options("out"), ROWS)
        messages: list[TaskMessage] = []
        for number, partition in enumerate(partitions):
            worker = self._pooled[f"worker {number % 2}"]
            rows = map(_keyed, worker.given(self._reader).read(worker.given(partition)))
            message = worker.given(writer).write(rows)
            message.query_id = "q"  # which a task learns from Spark
            messages.append(committer.given(message))
        committer.given(writer).commit(list(messages), self._batch)

    def _restart(self) -> None:
        """The query dies when a batch is in the stream and Spark has not noted it: the next process does it again."""
        self._query.end()
        self._query = self._process()
        self._reader = self._reading()
        if self._last is not None:
            self._batch -= 1
            self._copy(*self._last)
            self._batch += 1
        self._writer.close()
        self._producer.end(killed=False)
        self._producer = self._process()
        self._writer = self._producing()

    def _maintain(self) -> None:
        process = self._process()
        for outcome in maintain(open_root(process.url)):
            assert outcome.error is None, outcome
        process.end(killed=False)

    # --- what there is ------------------------------------------------------------------------------------------

    def _row(self, batches: int, seconds: float) -> Row:
        requests = sum(len(request.paths) for request in self.requests.requests)
        listed = self.storage.list("")
        kinds = Counter(kind_of(info.path) for info in listed)
        gc.collect()
        return Row(
            self._batch,
            round(seconds * 1000 / batches, 2),
            round(requests / batches, 2),
            len(listed) - kinds["chunks"],
            kinds["wal"],
            kinds["chunks"],
            max((info.size for info in listed if kind_of(info.path) == "checkpoints"), default=0),
            len(json.dumps(self._offset)),
            self._plan_bytes,
            round(resident() / (1 << 20), 1),
        )

    def check_copied(self) -> None:
        """Each event was copied once: the streams have had as many, and what is left of the copy is their last ones."""
        root = open_root(self._producer.url)
        for name in ("in", "out"):
            snapshot = Catalog(root).stream("s", name).snapshot()
            numbers = snapshot.record.segment_ids()
            assert sum(snapshot.segments.count_before(n, snapshot.segments.length(n)) for n in numbers) == self._written
        with StreamManager.over(root) as manager:
            left = sorted(int(bytes(event.data)) for event in manager.read_events("s", "out"))
        assert left[-1] == self._written - 1
        assert len(set(left)) == len(left)
        assert len(left) * EVENT_BYTES > RETAINED / 4 or left[0] == 0

    def close(self) -> None:
        for process in [self._query, self._producer, *self._pooled.values()]:
            process.end(killed=False)


def _keyed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Events with keys, as the query makes them."""
    events = batch.column("event")
    keys = [str(int(event) % 10) for event in events.to_pylist()]
    return pa.RecordBatch.from_arrays([events, pa.array(keys)], ["event", "routing_key"])


def kind_of(path: str) -> str:
    """What an object is."""
    found = place_of(path)
    if found is None:
        return "chunks"
    return found[0].value if found[0] is not SystemPlace.LOG else path.split("/")[3]


def resident() -> int:
    """Bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
