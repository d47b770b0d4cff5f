"""Exactly once from source to sink, wherever the driver is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pravega_spark.source.sink import BatchWriter
from tests.source.keyed import by_key, events, options, rows
from tests.spark.folder import EVENTS_WITH_KEYS

pytestmark = [pytest.mark.spark, pytest.mark.processes]

PROGRAM = Path(__file__).with_name("pump.py")


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
        spark += "--driver-java-options '-XX:TieredStopAtLevel=1 -XX:+UseSerialGC' pyspark-shell"
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
    ("places", "count"),
    [
        pytest.param(["commit"], 700, id="after our commit"),
        pytest.param(["task", "middle", "commit"], 1_000, id="everywhere", marks=pytest.mark.long),
    ],
)
def test_every_event_once_wherever_the_driver_is_killed(pump: Pump, places: list[str], count: int) -> None:
    """After the offset log; in the middle of a task; after our commit and before Spark's commit log."""
    for first in range(0, count, 20):  # in many appends, so that there are many places where a batch may end
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
    assert last >= len(places) + 2
    check(offsets=last, commits=last, written=last)
    assert by_key(events(pump.url, "out")) == by_key(events(pump.url, "in"))
    assert len(events(pump.url, "in")) == count


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
