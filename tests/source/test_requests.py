"""What the source and the sink cost in requests, counted at the storage port by the classes that Spark calls."""

from __future__ import annotations

import functools
import pickle
import uuid
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructType

import engine.root
from chunkstore import open_store
from chunkstore.boot_clock import boot_time
from chunkstore.testing import CountingStore
from engine.containers.container import Container
from engine.root import Root
from pravega_spark.roots import open_root
from pravega_spark.source.micro_batch import MicroBatchReader
from pravega_spark.source.options import SourceOptions
from pravega_spark.source.sink import StreamWriter
from pravega_spark.source.task_outputs import TaskMessage
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.writing.producer_state import ProducerWrite
from tests.source.keyed import parts as merged_parts

MICRO_BATCHES_APART = 1.0
"""Seconds of the containers' clock between two micro-batches."""


class Storage:
    """A root in memory. `store` counts the requests of whoever opens it, `later` lets time pass."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = f"memory://{uuid.uuid4()}"
        self.store = CountingStore(open_store(self.root))
        self._ahead = 0.0
        monkeypatch.setattr(engine.root, "open_store", lambda url, options=None: self.store)
        monkeypatch.setattr(engine.containers.container, "Container", functools.partial(Container, clock=self._clock))

    def _clock(self) -> float:
        return boot_time() + self._ahead

    def later(self) -> None:
        self.wait_for_upkeep()
        self._ahead += MICRO_BATCHES_APART

    def options(self, **more: str) -> SourceOptions:
        return SourceOptions.parse({"controller": self.root, "scope": "s", "stream": "t", **more})

    def wait_for_upkeep(self) -> None:
        root = open_root(self.root)
        for number in range(root.config.containers):
            root.container(number).wait_for_upkeep()

    def of(self, work: Callable[[], object]) -> tuple[int, list[str]]:
        """How many objects and listings are read while `work` is done, and which objects are written."""
        self.wait_for_upkeep()
        self.store.reset()
        work()
        self.wait_for_upkeep()
        read, written = 0, list[str]()
        for verb, paths, _ in self.store.requests:
            if verb in ("read", "read_ranges", "list", "stat"):
                read += len(paths)
            elif verb != "clock":  # of a store in memory it is no request
                written.extend(paths)
        return read, written


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Storage]:
    storage = Storage(monkeypatch)
    yield storage
    open_root(storage.root).close()


SCHEMA = StructType().add("event", StringType()).add("routing_key", StringType())
ARROW_SCHEMA = pa.schema([("event", pa.string()), ("routing_key", pa.string())])


def task(writer: StreamWriter, events: list[str]) -> TaskMessage:
    """What a task of query `q` hands to the driver."""
    keys = [str(number) for number in range(len(events))]
    rows = pa.RecordBatch.from_pydict({"event": events, "routing_key": keys}, ARROW_SCHEMA)
    message = writer.write(iter([rows]))
    sent: TaskMessage = pickle.loads(
        pickle.dumps(TaskMessage(message.outputs, "q", message.planned, message.created_at))
    )
    return sent


def commit(storage: Storage, batch: int, **more: str) -> None:
    """A micro-batch of two small tasks, as Spark commits it."""
    writer = StreamWriter(storage.options(**more), SCHEMA)
    messages = [task(writer, [f"{batch}-{part}-{row}" for row in range(4)]) for part in range(2)]
    writer.commit(messages, batch)
    storage.later()


@pytest.mark.parametrize("segments", ["1", "5"])
def test_a_small_commit_writes_one_object(storage: Storage, segments: str) -> None:
    commit(storage, 0, default_num_segments=segments)
    writer = StreamWriter(storage.options(), SCHEMA)
    costs = []
    for batch in range(1, 31):
        messages = [task(writer, ["a" * 100] * 4) for _ in range(3)]
        read, written = storage.of(lambda messages=messages, batch=batch: writer.commit(messages, batch))  # type: ignore[misc]
        storage.later()
        checkpoints = [path for path in written if "/checkpoints/" in path]
        costs.append((read, len(written) - len(checkpoints), len(checkpoints)))
    assert {writes for _, writes, _ in costs} == {1}
    assert {reads for reads, _, _ in costs} == {0}
    assert sum(checkpoints for _, _, checkpoints in costs) <= 4


def test_a_replayed_commit_writes_nothing(storage: Storage) -> None:
    commit(storage, 0)
    commit(storage, 1)
    writer = StreamWriter(storage.options(), SCHEMA)
    message = task(writer, ["again"])
    _, written = storage.of(lambda: writer.commit([message], 1))
    assert written == []


def test_an_empty_commit_writes_nothing(storage: Storage) -> None:
    commit(storage, 0)
    writer = StreamWriter(storage.options(), SCHEMA)
    messages = [task(writer, []), task(writer, [])]
    assert storage.of(lambda: writer.commit(messages, 1)) == (0, [])


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"start_stream_cut": "earliest"},
        {"approx_bytes_per_trigger": "1"},
        {"max_events_per_trigger": "1"},
        {"ending_timestamp": "2100-01-01"},
    ],
    ids=str,
)
def test_an_idle_poll_reads_one_object(storage: Storage, more: dict[str, str]) -> None:
    for batch in range(5):
        commit(storage, batch, default_num_segments="3")
    reader = MicroBatchReader(storage.options(**more))
    tail = open_root(storage.root).container(Catalog(open_root(storage.root)).stream("s", "t").number)
    start = Catalog(open_root(storage.root)).stream("s", "t").snapshot().tail_cut().as_text()
    limit = reader.getDefaultReadLimit()
    reader.latestOffset(start, limit)

    def poll() -> None:
        assert reader.latestOffset(start, limit) == start
        reader.reportLatestOffset()

    assert storage.of(poll) == (1, [])
    assert tail.state is tail.refresh()


def test_a_poll_that_finds_a_batch_reads_its_frame(storage: Storage) -> None:
    commit(storage, 0, default_num_segments="3")
    reader = MicroBatchReader(storage.options())
    start = reader.initialOffset()
    writer_side = Root.open(storage.root)
    try:
        stream = Catalog(writer_side).stream("s", "t")
        writer = StreamWriter(storage.options(), SCHEMA)
        message = task(writer, ["new"])
        assert stream.write(merged_parts([message]))

        def poll() -> None:
            end = reader.latestOffset(start, reader.getDefaultReadLimit())
            assert end != start
            (partition,) = reader.partitions(start, end)
            (batch,) = reader.read(partition)
            assert batch.column("event").to_pylist() == [b"new"]

        read, written = storage.of(poll)
        assert written == []
        assert read <= 4, "the frame, the address behind it while both are still unknown, and the frame's payload"
    finally:
        writer_side.close()


def opening(storage: Storage) -> int:
    """What another process reads until it knows the stream's tail."""

    def look() -> None:
        with Root.open(storage.root) as root:
            Catalog(root).stream("s", "t").snapshot().tail_cut()

    read, written = storage.of(look)
    assert written == []
    return read


@pytest.mark.parametrize(
    ("batches", "segments"),
    [
        (600, 1),
        (200, 5),
        pytest.param(400, 5, marks=pytest.mark.long),
        pytest.param(10_000, 1, marks=[pytest.mark.long, pytest.mark.timeout(600)]),
    ],
)
def test_old_micro_batches_do_not_make_opening_dearer(storage: Storage, batches: int, segments: int) -> None:
    """Ten batches or ten thousand: the requests are the same, wherever between two checkpoints the log ends."""
    commit(storage, 0, default_num_segments=str(segments))
    young, old = {}, {}
    for batch in range(1, 26):
        commit(storage, batch)
        if batch >= 10:
            young[batch] = opening(storage)
    stream = Catalog(open_root(storage.root)).stream("s", "t")
    writer = StreamWriter(storage.options(), SCHEMA)
    parts = merged_parts([task(writer, [str(number) for number in range(segments * 3)])])
    for batch in range(26, batches):
        assert stream.write(parts, ProducerWrite("query:q", batch))
        storage.later()
    for batch in range(batches, batches + 16):
        commit(storage, batch)
        old[batch] = opening(storage)
    assert max(old.values()) <= max(young.values()), (young, old)
