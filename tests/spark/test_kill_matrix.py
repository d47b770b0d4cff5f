"""Exactly once from source to sink, wherever the driver is killed and whichever attempt of a task counts."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from engine.root import Root
from pravega_spark.source import sink
from pravega_spark.source.batch import BatchReader
from pravega_spark.source.options import SourceOptions
from pravega_spark.source.sink import BatchWriter, StreamWriter, TaskMessage
from pravega_spark.streams.catalog import Catalog
from tests.spark.folder import EVENTS_WITH_KEYS

PROGRAM = Path(__file__).with_name("pump.py")


def options(url: str, stream: str, **more: object) -> SourceOptions:
    texts = {name: str(value) for name, value in more.items()}
    return SourceOptions.parse({"controller": url, "scope": "s", "stream": stream, **texts})


def rows(first: int, end: int, keys: int = 10) -> pa.RecordBatch:
    """Events `key/number`."""
    names = [str(number % keys) for number in range(first, end)]
    events = [f"{key}/{number}" for key, number in zip(names, range(first, end), strict=True)]
    return pa.RecordBatch.from_pydict({"event": events, "routing_key": names})


def events(url: str, stream: str, **more: object) -> list[str]:
    """What a batch read of the stream finds, the events of a segment in order."""
    reader = BatchReader(options(url, stream, **more))
    found = []
    for partition in reader.partitions():
        for batch in reader.read(partition):
            found.extend(event.decode() for event in batch.column("event").to_pylist())
    return found


def by_key(found: list[str]) -> dict[str, list[int]]:
    """The numbers of each key's events, in order."""
    numbers: dict[str, list[int]] = {}
    for event in found:
        key, number = event.split("/")
        numbers.setdefault(key, []).append(int(number))
    return numbers


class Pump:
    """The query of pump.py, run in a session of processes of its own."""

    def __init__(self, path: Path) -> None:
        self.url = str(path / "streams")
        self.checkpoint = path / "checkpoint"
        self._mark = path / "stopped"
        self._log = path / "log"
        self._process: subprocess.Popen[bytes] | None = None

    def _start(self, **more: str) -> subprocess.Popen[bytes]:
        spark = "--conf spark.ui.enabled=false --conf spark.driver.host=127.0.0.1 "
        spark += "--driver-java-options -XX:TieredStopAtLevel=1 pyspark-shell"
        environment = {
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": spark,
            "PYTHONPATH": str(PROGRAM.parent),
            "PUMP_ROOT": self.url,
            "PUMP_CHECKPOINT": str(self.checkpoint),
            "PUMP_MARK": str(self._mark),
            **more,
        }
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(PROGRAM)], env=environment, stdout=log, stderr=log, start_new_session=True
            )
        return self._process

    def killed_at(self, place: str, batch: int) -> None:
        """Run until the query is at the place; then kill driver and JVM."""
        process = self._start(PUMP_STOP=f"{place} {batch}")
        while not self._mark.exists():
            assert process.poll() is None, self.log()
            time.sleep(0.05)
        self.kill()
        self._mark.unlink()

    def finished(self, **more: str) -> None:
        """Run to the end."""
        process = self._start(**more)
        assert process.wait() == 0, self.log()

    def kill(self) -> None:
        """SIGKILL to all processes of the driver; Spark's workers end with the JVM."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def log(self) -> str:
        return self._log.read_text(errors="replace")[-5000:]

    def batches(self, kind: str) -> list[int]:
        """The batches that Spark's offset log or commit log knows."""
        folder = self.checkpoint / kind
        return sorted(int(file.name) for file in folder.iterdir() if file.name.isdigit()) if folder.exists() else []

    def source_up_to(self, batch: int) -> list[str]:
        """The events of all batches up to this one, by Spark's offset log."""
        end = json.loads((self.checkpoint / "offsets" / str(batch)).read_text().splitlines()[-1])
        return events(self.url, "in", end_stream_cut=end)


@pytest.fixture
def pump(tmp_path: Path) -> Iterator[Pump]:
    pump = Pump(tmp_path)
    yield pump
    pump.kill()


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "places",
    [
        pytest.param(["commit"], id="after our commit"),
        pytest.param(["task", "middle", "commit"], id="everywhere", marks=pytest.mark.long),
    ],
)
def test_every_event_once_wherever_the_driver_is_killed(pump: Pump, places: list[str]) -> None:
    """After the offset log; in the middle of a task; after our commit and before Spark's commit log."""
    for first in range(0, 1_000, 20):  # in many appends, so that there are many places where a batch may end
        writer = BatchWriter(options(pump.url, "in", default_num_segments=4), EVENTS_WITH_KEYS)
        writer.commit([writer.write(iter([rows(first, first + 20)]))])

    def check(offsets: int, commits: int, written: int) -> None:
        """The batches up to these are in Spark's logs and in the sink."""
        assert pump.batches("offsets")[-1] == offsets
        assert (pump.batches("commits") or [-1])[-1] == commits
        assert by_key(events(pump.url, "out")) == by_key(pump.source_up_to(written))

    for batch, place in enumerate(places, 1):
        pump.killed_at(place, batch)
        check(offsets=batch, commits=batch - 1, written=batch if place == "commit" else batch - 1)
    pump.finished(PUMP_FAIL=str(len(places) + 1))  # the first attempt of each of a batch's tasks fails
    assert pump.log().count("this attempt fails") >= 1
    last = pump.batches("commits")[-1]
    assert last >= 5
    check(offsets=last, commits=last, written=last)
    assert by_key(events(pump.url, "out")) == by_key(events(pump.url, "in"))
    assert len(events(pump.url, "in")) == 1_000


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_batch_that_spark_does_again(pump: Pump) -> None:
    writer = BatchWriter(options(pump.url, "in", default_num_segments=4), EVENTS_WITH_KEYS)
    writer.commit([writer.write(iter([rows(0, 100)]))])
    pump.finished()
    last = pump.batches("commits")[-1]
    for name in (str(last), f".{last}.crc"):
        (pump.checkpoint / "commits" / name).unlink()
    pump.finished()
    assert pump.batches("commits")[-1] == last, "Spark has done the batch again"
    assert by_key(events(pump.url, "out")) == by_key(events(pump.url, "in")) == by_key(pump.source_up_to(last))
    assert len(events(pump.url, "in")) == 100


# --- attempts that do not count ----------------------------------------------------------------------------------


def attempt(writer: StreamWriter, number: int, query: str = "q") -> TaskMessage:
    """What an attempt of a task hands to the driver."""
    message = writer.write(iter([rows(number, number + 50), rows(number + 50, number + 100)]))
    return pickle.loads(pickle.dumps(TaskMessage(message.shares, query, message.planned, message.made)))


@pytest.mark.parametrize("inline", [1 << 20, 0], ids=["inline", "chunks"])
def test_of_two_attempts_of_a_task_one_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inline: int) -> None:
    """With speculation both attempts end well; Spark hands on the message of one, and asks for no abort."""
    monkeypatch.setattr(sink, "INLINE_BYTES", inline)
    url = str(tmp_path)
    writer = StreamWriter(options(url, "out", default_num_segments=3), EVENTS_WITH_KEYS)
    for batch in range(3):
        first, second = attempt(writer, 200 * batch), attempt(writer, 200 * batch)
        other = attempt(writer, 200 * batch + 100)
        writer.commit([second, other] if batch % 2 else [first, other], batch)
    assert by_key(events(url, "out")) == {str(key): list(range(key, 600, 10)) for key in range(10)}


def test_a_commit_that_is_repeated_with_other_attempts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replayed batch brings new chunks: they are garbage, and those that the first commit attached stay."""
    monkeypatch.setattr(sink, "INLINE_BYTES", 0)
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
    monkeypatch.setattr(sink, "INLINE_BYTES", 0)
    monkeypatch.setattr(sink, "CHUNK_BYTES", 100)
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
