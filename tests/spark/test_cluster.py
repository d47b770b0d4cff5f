"""A standalone cluster of one master and two workers, each a process of its own, which have the package from a wheel.

Batch, streaming, a worker that is killed and a driver that is killed; on a folder and on a bucket.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest

from chunkstore.testing.s3_server import S3Server
from tests.spark.cluster_program import EVENTS, KEYS

pytestmark = [pytest.mark.spark, pytest.mark.processes, pytest.mark.long, pytest.mark.timeout(900)]

TREE = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).with_name("cluster_program.py")
SPARK = Path(pyspark.__path__[0])
PACKAGES = ("chunkstore", "engine", "pravega_spark", "pyspark_pravega")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a user submits. Executors take what is called .zip only, and a wheel is one."""
    tree, out = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("wheel")
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(TREE / name, tree)
    for package in PACKAGES:
        shutil.copytree(TREE / package, tree / package, ignore=shutil.ignore_patterns("__pycache__"))
    build = f"import setuptools.build_meta as b; b.build_wheel({str(out)!r})"
    subprocess.run([sys.executable, "-c", build], cwd=tree, check=True, capture_output=True, timeout=100)
    (built,) = out.iterdir()
    return built.rename(out / "pravega_spark.zip")


class Cluster:
    """A master and two workers of one core."""

    def __init__(self, path: Path, wheel: Path) -> None:
        self._path, self._wheel = path, wheel
        self._environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        self._environment |= {
            "SPARK_HOME": str(SPARK),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_WORKER_DIR": str(path / "work"),
            "SPARK_DAEMON_MEMORY": "256m",
        }
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.url = f"spark://127.0.0.1:{free.getsockname()[1]}"
        port = self.url.rpartition(":")[2]
        self._processes: list[subprocess.Popen[bytes]] = []
        self.start("master", "Master", "--host", "127.0.0.1", "--port", port, "--webui-port", "0")
        waited(lambda: "New state: ALIVE" in self.log("master"))
        self.workers = [self.start(f"worker{number}", "Worker", *self.of_worker()) for number in (0, 1)]
        waited(lambda: self.log("master").count("Registering worker") == 2)

    def of_worker(self) -> list[str]:
        return ["--host", "127.0.0.1", "--cores", "1", "--memory", "700m", "--webui-port", "0", self.url]

    def start(self, name: str, what: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a daemon of Spark; its executors end with its group of processes."""
        kind = f"org.apache.spark.deploy.{what.lower()}.{what}"
        return self._run(name, [str(SPARK / "bin" / "spark-class"), kind, *arguments], {})

    def submit(self, name: str, what: str, environment: dict[str, str]) -> subprocess.Popen[bytes]:
        """Start a driver."""
        settings = ["spark.executor.memory=512m", "spark.ui.enabled=false", "spark.driver.host=127.0.0.1"]
        settings += ["spark.sql.shuffle.partitions=4"]
        confs = [word for setting in settings for word in ("--conf", setting)]
        command = [str(SPARK / "bin" / "spark-submit"), "--master", self.url, "--driver-memory", "600m", *confs]
        return self._run(name, [*command, "--py-files", str(self._wheel), str(PROGRAM), what], environment)

    def _run(self, name: str, command: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
        with (self._path / name).open("ab") as log:
            process = subprocess.Popen(
                command,
                env={**self._environment, **environment},
                cwd=self._path,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    def log(self, name: str) -> str:
        return (self._path / name).read_text(errors="replace")

    def close(self) -> None:
        for process in self._processes:
            kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL to a process and to those that it has started."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def waited(condition: Callable[[], Any]) -> None:
    """Wait until something is so."""
    end = time.monotonic() + 180
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("cluster"), wheel)
    yield cluster
    cluster.close()


@pytest.fixture(params=["folder", "bucket"])
def environment(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """Where the streams are, and the checkpoint."""
    url, storage = str(tmp_path / "streams"), {}
    if request.param == "bucket":
        server: S3Server = request.getfixturevalue("s3_server")
        url, storage = server.make_bucket(), server.storage_options()
    checkpoint = str(tmp_path / "checkpoint")
    return {"CLUSTER_ROOT": url, "CLUSTER_STORAGE": json.dumps(storage), "CLUSTER_CHECKPOINT": checkpoint}


def numbers(environment: dict[str, str], stream: str) -> dict[str, list[int]]:
    """The numbers of each key's events, as they lie in the stream."""
    from pravega_spark import StreamManager

    found: dict[str, list[int]] = {}
    with StreamManager(environment["CLUSTER_ROOT"], **json.loads(environment["CLUSTER_STORAGE"])) as manager:
        for event in manager.read_events("s", stream):
            key, number = bytes(event.data).decode().split("/")
            found.setdefault(key, []).append(int(number))
    return found


def test_batch_stream_a_killed_worker_and_a_killed_driver(cluster: Cluster, environment: dict[str, str]) -> None:
    name = f"driver{len(environment['CLUSTER_STORAGE'])}"
    assert cluster.submit(name, "batch", environment).wait() == 0, cluster.log(name)[-5000:]
    (told,) = [json.loads(line) for line in cluster.log(name).splitlines() if line.startswith('{"count"')]
    assert told["count"] == EVENTS
    assert told["places"] and all(".zip" in place for place in told["places"]), "driver and executors have the wheel's"

    commits = Path(environment["CLUSTER_CHECKPOINT"]) / "commits"

    def batches() -> int:
        return sum(file.name.isdigit() for file in commits.iterdir()) if commits.exists() else 0

    driver = cluster.submit(name, "stream", environment)
    waited(lambda: batches() >= 2 or driver.poll() is not None)
    kill(cluster.workers.pop())  # with its executor, in the middle of a batch
    before = batches()
    waited(lambda: batches() >= before + 3 or driver.poll() is not None)
    assert driver.poll() is None, cluster.log(name)[-5000:]
    kill(driver)
    cluster.workers.append(cluster.start(f"again{name}", "Worker", *cluster.of_worker()))
    assert before < batches() < EVENTS // 100, "it was killed on its way"
    assert cluster.submit(name, "stream", environment).wait() == 0, cluster.log(name)[-5000:]
    copied = {key: sorted(some) for key, some in numbers(environment, "out").items()}
    assert copied == {str(key): list(range(key, EVENTS, KEYS)) for key in range(KEYS)}, "each event once"
