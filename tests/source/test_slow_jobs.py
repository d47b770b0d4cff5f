"""Jobs that take longer than clean-ups leave chunks alone: refused as a whole, never half lost."""

from __future__ import annotations

import pickle
import time
import uuid
from collections.abc import Iterator
from functools import partial

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StringType, StructType

from engine.admin.orphans import Sweep, expire_orphans, find_orphans
from engine.admin.verify import verify
from engine.errors import ChunksExpired
from engine.root import Root
from engine.state.segments import Extent
from engine.storage.chunk_writer import write_chunk
from pravega_spark.roots import open_root
from pravega_spark.source.options import SourceOptions
from pravega_spark.source.partitions import StreamRange, plan_streams, read_partition
from pravega_spark.source.sink import BatchWriter, StreamWriter
from pravega_spark.source.task_outputs import TaskMessage
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.maintenance.verification import check_events
from pravega_spark.streams.model.names import owner_of
from pravega_spark.streams.model.policies import ScalingPolicy
from pravega_spark.streams.stream import Stream
from tests.clocks import moved_on
from tests.source.keyed import parts as merged_parts
from tests.support import limits

ROWS = StructType().add("event", BinaryType()).add("routing_key", StringType())
CONTAINERS = 2


@pytest.fixture(autouse=True)
def chunks_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    limits.inline_bytes(monkeypatch, 50)
    limits.own_chunk_bytes(monkeypatch, 200)


@pytest.fixture
def stream() -> Iterator[Stream]:
    url = f"memory://{uuid.uuid4()}"
    Root.open(url, containers=CONTAINERS, garbage_delay_seconds=0).close()
    root = open_root(url)
    catalog = Catalog(root)
    catalog.create_scope("s")
    catalog.create_stream("s", "t", ScalingPolicy(min_segments=2), None, ())
    yield catalog.stream("s", "t")
    root.close()


def options(stream: Stream, **more: str) -> SourceOptions:
    url = stream.root.stores.chunks.root
    return SourceOptions.parse({"controller": url, "scope": "s", "stream": "t", "start_stream_cut": "earliest", **more})


def task(writer: BatchWriter | StreamWriter, *events: bytes) -> TaskMessage:
    """What a task hands to the driver, of the query `q`."""
    keys = [event[:1].decode() for event in events]
    rows = pa.RecordBatch.from_pydict({"event": pa.array(events, pa.binary()), "routing_key": keys})
    message = writer.write(iter([rows]))
    sent: TaskMessage = pickle.loads(
        pickle.dumps(TaskMessage(message.outputs, "q", message.planned, message.created_at))
    )
    return sent


def texts(name: str) -> list[bytes]:
    """Events for both segments."""
    return [f"{number} {name}".encode() * 20 for number in range(8)]


def content(stream: Stream) -> list[bytes]:
    found, snapshot = options(stream), stream.snapshot()
    return sorted(
        event
        for partition in plan_streams([StreamRange(found, snapshot, snapshot.head_cut(), snapshot.tail_cut())])
        for batch in read_partition(found, partition)
        for event in batch.column("event").to_pylist()
    )


def swept(stream: Stream, age: float = 0) -> Sweep:
    """A clean-up that leaves nothing alone that is older than `age`, and all that comes of it."""
    root = stream.root
    moved_on(root.stores.chunks)
    sweep = find_orphans(root, partial(owner_of, count=CONTAINERS), age)
    expire_orphans(root, sweep, 1)
    for number in range(CONTAINERS):
        root.container(number).flush()
    moved_on(root.stores.chunks)
    for number in range(CONTAINERS):
        root.container(number).collect_garbage()
    left = {info.path for info in root.stores.chunks.list("s/")}
    assert not left & {orphan.path for orphan in sweep.orphans}
    assert not any(root.container(number).state.garbage for number in range(CONTAINERS))
    moved_on(stream.root.stores.chunks)
    return sweep


def assert_healthy(stream: Stream) -> None:
    report = verify(stream.root, deep=True, content_checks=[check_events])
    assert list(report.findings) == [] and report.orphans is not None and report.orphans.number == 0


def test_what_a_task_that_died_left_is_an_orphan(stream: Stream) -> None:
    message = task(BatchWriter(options(stream), ROWS), *texts("a"))
    young = find_orphans(stream.root, partial(owner_of, count=CONTAINERS))
    assert (young.orphans, young.recent, young.unknown) == ((), len(message.chunks()), 0)
    sweep = swept(stream)
    assert sorted(orphan.path for orphan in sweep.orphans) == message.chunks()
    assert {orphan.container for orphan in sweep.orphans} == {stream.number}


def test_a_job_whose_chunks_were_collected_is_refused_and_another_attempt_works(stream: Stream) -> None:
    writer = BatchWriter(options(stream), ROWS)
    before = texts("before")
    writer.commit([task(writer, *before)])
    messages = [task(writer, *texts("early"))]
    sweep = swept(stream)
    assert sorted(orphan.path for orphan in sweep.orphans) == messages[0].chunks()
    messages += [task(writer, *texts("late")), task(writer, b"0 inline")]
    assert messages[2].created_at is None and not messages[2].chunks()
    with pytest.raises(ChunksExpired, match=r"were created at .* Nothing was written: write it again.*--orphan-age"):
        writer.commit(messages)
    writer.abort(messages)
    assert content(stream) == sorted(before)
    again = [task(writer, *texts("early")), task(writer, *texts("late"))]
    writer.commit(again)
    assert content(stream) == sorted(before + texts("early") + texts("late"))
    swept(stream)
    assert content(stream) == sorted(before + texts("early") + texts("late"))
    assert_healthy(stream)


@pytest.mark.parametrize("ahead", [30 * 86_400, -30 * 86_400])
def test_a_host_whose_clock_is_wrong_tells_the_age_of_its_chunks(
    stream: Stream, monkeypatch: pytest.MonkeyPatch, ahead: int
) -> None:
    """By the storage's clock, as the clean-up goes by that: else what it gave up would be attached."""
    writer, now = BatchWriter(options(stream), ROWS), time.time
    monkeypatch.setattr(time, "time", lambda: now() + ahead)
    early = task(writer, *texts("early"))
    monkeypatch.undo()
    swept(stream)
    with pytest.raises(ChunksExpired):
        writer.commit([early])
    monkeypatch.setattr(time, "time", lambda: now() + ahead)
    writer.commit([task(writer, *texts("late"))])
    assert content(stream) == sorted(texts("late"))


def test_younger_chunks_are_not_disturbed(stream: Stream) -> None:
    """Neither by a sweep that finds older ones, nor by one that finds none; and what is inline never is."""
    writer = BatchWriter(options(stream), ROWS)
    died, inline = task(writer, *texts("died")), task(writer, b"0 inline")
    moved_on(stream.root.stores.chunks)
    slow = task(writer, *texts("slow"))
    assert died.created_at is not None and slow.created_at is not None and died.created_at < slow.created_at
    container = stream.container
    assert not swept(stream, 3600).orphans and container.state.min_attach_time == 0
    moved_on(stream.root.stores.chunks)
    sweep = find_orphans(stream.root, partial(owner_of, count=CONTAINERS), 0)
    old = tuple(orphan for orphan in sweep.orphans if orphan.path in died.chunks())
    assert len(old) == len(died.chunks()) < len(sweep.orphans)
    expire_orphans(stream.root, sweep._replace(orphans=old, min_attach_time=slow.created_at), 1)  # as a day later
    container.flush()
    container.collect_garbage()
    assert container.state.min_attach_time == slow.created_at
    writer.commit([slow, inline])
    assert content(stream) == sorted([*texts("slow"), b"0 inline"])
    with pytest.raises(ChunksExpired):
        writer.commit([died])
    assert_healthy(stream)


def test_a_batch_that_is_there_is_not_refused(stream: Stream) -> None:
    """Its replay, by the same messages or by those of another attempt, is told by its number as ever."""
    writer = StreamWriter(options(stream), ROWS)
    first, other = [task(writer, *texts("a"))], [task(writer, *texts("a"))]
    writer.commit(first, 7)
    assert len(swept(stream).orphans) == len(other[0].chunks())
    for messages in (first, other):
        writer.commit(messages, 7)
        assert content(stream) == sorted(texts("a"))
    with pytest.raises(ChunksExpired):
        writer.commit(other, 8)
    writer.commit([task(writer, *texts("b"))], 8)
    assert content(stream) == sorted(texts("a") + texts("b"))
    swept(stream)
    assert_healthy(stream)


def test_a_stream_that_was_scaled_meanwhile_refuses_them_too(stream: Stream) -> None:
    writer = BatchWriter(options(stream), ROWS)
    messages = [task(writer, *texts("a"))]
    stream.scale([0], [(0.0, 0.25), (0.25, 0.5)])
    swept(stream)
    with pytest.raises(ChunksExpired):
        writer.commit(messages)
    writer = BatchWriter(options(stream), ROWS)
    messages = [task(writer, *texts("b"))]
    stream.scale([1], [(0.5, 0.75), (0.75, 1.0)])
    writer.commit(messages)
    assert content(stream) == sorted(texts("b"))


def test_the_first_chunk_of_all_tasks_counts(stream: Stream) -> None:
    """Also in the parts of a write that have none of it, as they come into the stream together."""
    writer = BatchWriter(options(stream), ROWS)
    early = task(writer, *texts("early"))
    moved_on(stream.root.stores.chunks)
    late = task(writer, *texts("late"))
    parts = merged_parts([late, early, task(writer, b"0 inline")])
    assert {part.created_at for part in parts} == {early.created_at} and early.created_at is not None
    assert early.created_at < (late.created_at or 0)
    assert {part.created_at for part in merged_parts([task(writer, b"0 inline")])} == {0}


def test_who_does_not_say_when_chunks_were_begun_is_refused_after_a_sweep(stream: Stream) -> None:
    """A program of its own that attaches chunks, and forgot it, loses nothing."""
    store = stream.root.stores.chunks

    def extents(name: str) -> tuple[Extent, ...]:
        return tuple(write_chunk(store, f"s/t/{name}", [[b"bytes"]]))

    part = merged_parts([task(BatchWriter(options(stream), ROWS), b"0 inline")])[0]
    assert stream.write([part._replace(content=extents("one"))])
    task(BatchWriter(options(stream), ROWS), *texts("died"))
    swept(stream)
    with pytest.raises(ChunksExpired, match="have no known creation time"):
        stream.write([part._replace(content=extents("two"))])
    assert stream.write([part])
