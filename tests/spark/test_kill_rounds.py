"""Exactly once, with everything at once: several streams in, streams that rows name out, by `writeStream` and by
`foreachBatch`, while the streams are written, scaled and truncated, and processes of the query are killed at any time:
on this machine alone, and on a standalone cluster.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.root import Root
from pravega_spark import StreamManager
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.maintenance.retention import retain
from pravega_spark.streams.maintenance.subscribers import subscribers
from pravega_spark.streams.model.policies import RetentionPolicy, ScalingPolicy
from pravega_spark.streams.stream import Stream
from tests.spark.cluster import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.processes, pytest.mark.long]

PROGRAM = Path(__file__).with_name("rounds_program.py")
ROUNDS = int(os.environ.get("KILL_ROUNDS", "25"))
KEYS = 12
SOURCES = ("in-a", "in-b")
TARGETS = ("out-0", "out-1", "out-2")


class Rounds:
    """The root, what was written to it, and the query, which is killed again and again."""

    def __init__(self, path: Path, how: str, cluster: Cluster | None) -> None:
        self.url = str(path / "streams")
        self.commits = path / "checkpoint" / "commits"
        self._log = path / f"{how}.log"
        self._how = how
        self._cluster = cluster
        self._chance = random.Random(how)
        self._process: subprocess.Popen[bytes] | None = None
        self.root = Root.open(self.url)
        self.manager = StreamManager.over(self.root)
        self.manager.create_scope("s")
        self.written = [0] * KEYS
        for name in SOURCES:
            self.stream(name).create(ScalingPolicy(min_segments=2))
        self.done = dict.fromkeys(("batches", "drivers", "workers", "scaled", "truncated"), 0)

    def stream(self, name: str) -> Stream:
        return Catalog(self.root).stream("s", name)

    def start(self, **more: str) -> subprocess.Popen[bytes]:
        environment = {"ROUNDS_ROOT": self.url, "ROUNDS_HOW": self._how, **more}
        environment |= {"ROUNDS_CHECKPOINT": str(self.commits.parent)}
        self._process = (self._start_here if self._cluster is None else self._submit)(environment)
        return self._process

    def _start_here(self, environment: dict[str, str]) -> subprocess.Popen[bytes]:
        spark = "--master local[2,4] --conf spark.ui.enabled=false --conf spark.driver.host=127.0.0.1 "
        spark += "--driver-java-options -XX:TieredStopAtLevel=1 pyspark-shell"
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYSPARK_SUBMIT_ARGS": spark, **environment}
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, str(PROGRAM)], env=environment, stdout=log, stderr=log, start_new_session=True
            )

    def _submit(self, environment: dict[str, str]) -> subprocess.Popen[bytes]:
        assert self._cluster is not None
        return self._cluster.submit(self._log.name, environment, PROGRAM)

    def kill(self) -> None:
        """Kill the driver, its JVM and all of its workers, which are in groups of their own."""
        if self._process is not None and self._process.poll() is None:
            for pid, _ in self._processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._process.wait()

    def _processes(self) -> list[tuple[int, str]]:
        """Those of the query, and what runs in each."""
        assert self._process is not None
        listed = subprocess.run(["ps", "-eo", "sess=,pid=,args="], capture_output=True, text=True, check=True).stdout
        lines = [line.split(None, 2) for line in listed.splitlines()]
        return [(int(pid), args) for session, pid, args in lines if int(session) == self._process.pid]

    def log(self) -> str:
        log = self._log.read_text(errors="replace") if self._cluster is None else self._cluster.log(self._log.name)
        return log[-5000:]

    def batches(self) -> int:
        return sum(file.name.isdigit() for file in self.commits.iterdir()) if self.commits.exists() else 0

    def write(self) -> None:
        """Some events of each key."""
        for place, name in enumerate(SOURCES):
            with self.manager.create_writer("s", name) as writer:
                for key in range(place, KEYS, len(SOURCES)):
                    for _ in range(5):
                        writer.write_event(f"{key}/{self.written[key]}", str(key))
                        self.written[key] += 1

    def change(self) -> None:
        """Scale one of the streams, or truncate what the query has read of one."""
        if self._chance.random() < 0.5:
            name = self._chance.choice((*SOURCES, *TARGETS))
            if not self.stream(name).exists():
                return
            current = self.stream(name).snapshot().record.current.segments
            place = self._chance.uniform(0.1, 0.9)
            self.stream(name).scale([segment.id for segment in current], [(0.0, place), (place, 1.0)])
            self.done["scaled"] += 1
        else:
            stream = self.stream(self._chance.choice(SOURCES))
            if not subscribers(stream):
                return
            stream.update(retention=RetentionPolicy("size", 0))  # all goes but for what the query has not committed
            moment = int(time.time() * 1000) + 3_600_000
            for later in (0, 1):
                gone = retain(stream, moment + later, 0.0).bytes
                self.done["truncated"] += gone > 0

    def kill_worker(self) -> bool:
        """Kill a worker of the cluster, or one of the processes in which Spark runs Python, if there is one."""
        if self._cluster is not None:
            self._cluster.replace_worker(self._chance.randrange(2))
            return True
        found = [pid for pid, args in self._processes() if "pyspark.daemon" in args]
        if found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._chance.choice(found), signal.SIGKILL)
        return bool(found)

    def round(self) -> None:
        """Run the query for some batches, perhaps kill a worker on the way, and then the driver, wherever it is.

        Spark does a task again whose worker was killed; if it was a process that plans or commits, the query fails.
        Those are the driver's: a cluster's worker may die at any time, and the query goes on.
        """
        process, before = self.start(), self.batches()
        wanted, seen, killed = before + self._chance.randrange(1, 4), -1, False
        kill_at, end = before + self._chance.randrange(4), time.monotonic() + 300
        while seen < wanted and process.poll() is None and time.monotonic() < end:
            if (batches := self.batches()) > seen:
                self.write()
                self.change()
                seen = batches
            elif seen >= kill_at and not killed and self._chance.random() < 0.1:
                killed = self.kill_worker()
            time.sleep(self._chance.uniform(0.02, 0.1))
        assert process.poll() is None or (killed and self._cluster is None), self.log()
        self.write()
        time.sleep(self._chance.uniform(0.0, 0.8))
        self.kill()
        self.done["batches"] += self.batches() - before
        self.done["drivers"] += 1
        self.done["workers"] += killed

    def check(self) -> None:
        """All that was written is there, once, and of each key in its order."""
        found: dict[int, list[int]] = {}
        for name in TARGETS:
            for event in self.manager.read_events("s", name):
                key, number = map(int, bytes(event.data).split(b"/"))
                assert name == f"out-{key % 3}"
                found.setdefault(key, []).append(number)
        assert found == {key: list(range(self.written[key])) for key in range(KEYS)}


@pytest.fixture(params=["here", "cluster"])
def rounds(request: pytest.FixtureRequest, tmp_path: Path, how: str) -> Iterator[Rounds]:
    rounds = Rounds(tmp_path, how, request.getfixturevalue("cluster") if request.param == "cluster" else None)
    yield rounds
    rounds.kill()
    rounds.manager.close()
    rounds.root.close()


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("how", ["writeStream", "foreachBatch"])
def test_every_event_once_whatever_is_killed(rounds: Rounds) -> None:
    for number in range(ROUNDS):
        rounds.write()
        rounds.round()
        print(number, rounds.done, sum(rounds.written), flush=True)
    rounds.write()
    assert rounds.start(ROUNDS_END="1").wait() == 0, rounds.log()
    rounds.check()
    assert all(rounds.done.values()), rounds.done
