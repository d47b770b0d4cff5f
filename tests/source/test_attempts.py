"""Exactly once whichever attempt of a task counts, and however often a batch is committed."""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from engine.root import Root
from pravega_spark import StreamSealed
from pravega_spark.source.options import SourceOptions
from pravega_spark.source.sink import BatchWriter, StreamWriter
from pravega_spark.source.task_outputs import TaskMessage
from pravega_spark.streams.catalog import Catalog
from tests.source.keyed import by_key, events, options, rows
from tests.spark.folder import EVENTS_WITH_KEYS
from tests.support import limits

STREAM = StructField("stream", StringType())


def attempt(writer: StreamWriter | BatchWriter, number: int, query: str = "q") -> TaskMessage:
    """What an attempt of a task hands to the driver."""
    message = writer.write(iter([rows(number, number + 50), rows(number + 50, number + 100)]))
    sent: TaskMessage = pickle.loads(
        pickle.dumps(TaskMessage(message.outputs, query, message.planned, message.created_at))
    )
    return sent


@pytest.mark.parametrize("inline", [1 << 20, 0], ids=["inline", "chunks"])
def test_of_two_attempts_of_a_task_one_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inline: int) -> None:
    """With speculation both attempts end well; Spark hands on the message of one, and asks for no abort."""
    limits.inline_bytes(monkeypatch, inline)
    url = str(tmp_path)
    writer = StreamWriter(options(url, "out", default_num_segments=3), EVENTS_WITH_KEYS)
    for batch in range(3):
        first, second = attempt(writer, 200 * batch), attempt(writer, 200 * batch)
        other = attempt(writer, 200 * batch + 100)
        writer.commit([second, other] if batch % 2 else [first, other], batch)
    assert by_key(events(url, "out")) == {str(key): list(range(key, 600, 10)) for key in range(10)}


def test_a_commit_that_is_repeated_with_other_attempts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replayed batch brings new chunks: they are garbage, and those that the first commit attached stay."""
    limits.inline_bytes(monkeypatch, 0)
    url = str(tmp_path)
    writer = StreamWriter(options(url, "out"), EVENTS_WITH_KEYS)
    first, again = attempt(writer, 0), attempt(writer, 0)
    writer.commit([first], 0)
    writer.commit([again], 0)
    writer.commit([first], 0)
    writer.abort([first], 0)
    with Root.open(url) as root:
        garbage = set(Catalog(root).stream("s", "out").container.refresh().garbage)
    assert garbage == set(again.chunks())
    assert len(events(url, "out")) == 100


def test_an_aborted_write_leaves_garbage_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One task failed, so Spark gives up the others' messages; a task that fails deletes its chunks itself."""
    limits.inline_bytes(monkeypatch, 0)
    limits.chunk_bytes(monkeypatch, 100)
    url = str(tmp_path)
    writer = StreamWriter(options(url, "out", default_num_segments=3), EVENTS_WITH_KEYS)
    good = attempt(writer, 0)
    made = set(good.chunks())
    assert made and {path.name for path in (tmp_path / "s" / "out").iterdir()} == {name.split("/")[-1] for name in made}

    def failing() -> Iterator[pa.RecordBatch]:
        yield rows(100, 150)
        yield rows(150, 200)  # by now the first rows are in a chunk
        raise RuntimeError("the task fails")

    with pytest.raises(RuntimeError, match="the task fails"):
        writer.write(failing())
    assert {path.name for path in (tmp_path / "s" / "out").iterdir()} == {name.split("/")[-1] for name in made}
    writer.abort([good, None], 0)
    with Root.open(url) as root:
        assert set(Catalog(root).stream("s", "out").container.refresh().garbage) == made
    assert events(url, "out") == []


def commit_all(url: str, ready: object, go: object, batches: int) -> None:
    """Commit all batches of the query, in a process that shares nothing with its rival."""
    writer = StreamWriter(options(url, "out"), EVENTS_WITH_KEYS)
    messages = [attempt(writer, 100 * batch) for batch in range(batches)]
    ready.release()  # type: ignore[attr-defined]
    go.wait()  # type: ignore[attr-defined]
    for batch, message in enumerate(messages):
        writer.commit([message], batch)


@pytest.mark.processes
def test_two_drivers_commit_the_same_batches_at_once(tmp_path: Path) -> None:
    """A driver that was taken for dead goes on beside its successor."""
    url, batches = str(tmp_path), 40
    StreamWriter(options(url, "out", default_num_segments=3), EVENTS_WITH_KEYS)
    context = multiprocessing.get_context("spawn")
    ready, go = context.Semaphore(0), context.Event()
    rivals = [context.Process(target=commit_all, args=(url, ready, go, batches)) for _ in range(2)]
    for rival in rivals:
        rival.start()
    try:
        for _ in rivals:
            assert ready.acquire(timeout=60)
        go.set()
        for rival in rivals:
            rival.join(60)
            assert rival.exitcode == 0
    finally:
        for rival in rivals:
            rival.kill()
            rival.join()
    assert by_key(events(url, "out")) == {str(key): list(range(key, 100 * batches, 10)) for key in range(10)}


def test_a_sealed_stream_is_refused_before_any_task_runs(tmp_path: Path) -> None:
    """But for a batch that is remembered: it may have been written before that, and then it is done."""
    url = str(tmp_path)
    for writer in (
        StreamWriter(options(url, "out"), EVENTS_WITH_KEYS),
        BatchWriter(options(url, "out", txn_app_id="job", txn_version=0), EVENTS_WITH_KEYS),
    ):
        commit(writer, attempt(writer, 0), 0)
    with Root.open(url) as root:
        Catalog(root).stream("s", "out").seal()
    with pytest.raises(StreamSealed, match="Stream is sealed: s/out"):
        BatchWriter(options(url, "out"), EVENTS_WITH_KEYS)
    with pytest.raises(StreamSealed, match="Stream is sealed: s/out"):
        StreamWriter(options(url, "out", exactly_once="false"), EVENTS_WITH_KEYS)
    with pytest.raises(StreamSealed, match="Stream is sealed: s/out"):
        BatchWriter(options(url, "out", txn_app_id="job", txn_version=1), EVENTS_WITH_KEYS)
    for writer in (
        StreamWriter(options(url, "out"), EVENTS_WITH_KEYS),  # which batch it is, only tasks are told
        BatchWriter(options(url, "out", txn_app_id="job", txn_version=0), EVENTS_WITH_KEYS),
    ):
        commit(writer, attempt(writer, 0), 0)
    with pytest.raises(StreamSealed, match="Stream is sealed: s/out"):
        writer = StreamWriter(options(url, "out"), EVENTS_WITH_KEYS)
        commit(writer, attempt(writer, 0), 1)
    assert len(events(url, "out")) == 200


def test_a_sealed_stream_that_remembers_nothing_is_refused_to_queries_too(tmp_path: Path) -> None:
    url = str(tmp_path)
    BatchWriter(options(url, "out"), EVENTS_WITH_KEYS)  # makes the stream
    with Root.open(url) as root:
        Catalog(root).stream("s", "out").seal()
    with pytest.raises(StreamSealed, match="Stream is sealed: s/out"):
        StreamWriter(options(url, "out"), EVENTS_WITH_KEYS)


def test_a_sealed_stream_that_a_row_names_is_refused_by_the_task(tmp_path: Path) -> None:
    """But for a batch that is remembered; and before anything is written."""
    url = str(tmp_path)
    with Root.open(url) as root:
        catalog = Catalog(root)
        catalog.create_scope("s")
        catalog.create_stream("s", "open")
        catalog.create_stream("s", "out")

        def writer(**more: str) -> BatchWriter:
            given = {"controller": url, "scope": "s", **more}
            return BatchWriter(
                SourceOptions.parse(given, {}, rows_name_streams=True), StructType([*EVENTS_WITH_KEYS, STREAM])
            )

        def named() -> Iterator[pa.RecordBatch]:
            for stream in ("open", "out"):
                batch = rows(0, 10)
                yield batch.append_column("stream", pa.array([stream] * len(batch)))

        done = writer(txn_app_id="job", txn_version="0")
        done.commit([done.write(named())])
        catalog.stream("s", "out").seal()
        again = writer(txn_app_id="job", txn_version="0")
        again.commit([again.write(named())])
        for refused in (writer(), writer(txn_app_id="job", txn_version="1")):
            with pytest.raises(StreamSealed, match="Stream is sealed: s/out"):
                refused.write(named())
    assert len(events(url, "out")) == len(events(url, "open")) == 10


def commit(writer: StreamWriter | BatchWriter, message: TaskMessage, batch: int) -> None:
    """Commit a batch that one task wrote."""
    if isinstance(writer, StreamWriter):
        writer.commit([message], batch)
    else:
        writer.commit([message])
