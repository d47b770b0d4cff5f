"""Spark Connect: a server that has the package, and clients that only name the format; each a process of its own.

Batch, SQL, a streaming query whose client is killed, which goes on, and whose server is killed, and what a client sends
to the server as code.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest

from pravega_spark import StreamManager
from tests.spark.cluster import kill, waited
from tests.spark.connect_program import EVENTS, KEYS

pytestmark = [pytest.mark.spark, pytest.mark.processes, pytest.mark.long, pytest.mark.timeout(900)]

TREE = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).with_name("connect_program.py")
SUBMIT = Path(pyspark.__path__[0]) / "bin" / "spark-submit"


class Connect:
    """A server, and clients of it one after the other."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.root = str(path / "streams")
        self.commits = path / "checkpoint" / "commits"
        self._processes: list[subprocess.Popen[bytes]] = []
        self.start()

    def start(self) -> None:
        """Start the server, once more if it was killed."""
        settings = [
            f"spark.connect.grpc.binding.port={self._port}",
            "spark.connect.grpc.binding.address=127.0.0.1",
            "spark.ui.enabled=false",
            "spark.driver.host=127.0.0.1",
            f"spark.sql.warehouse.dir={self._path / 'warehouse'}",
        ]
        confs = [word for setting in settings for word in ("--conf", setting)]
        kind = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
        environment = {**os.environ, "PYTHONPATH": str(TREE), "PYSPARK_PYTHON": sys.executable}
        self.server = self._run("server", [str(SUBMIT), "--master", "local[2]", *confs, *kind], environment)
        waited(self._listens)

    def _listens(self) -> bool:
        assert self.server.poll() is None, self.log("server")[-5000:]
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self._port)) == 0

    def client(self, what: str, **environment: str) -> subprocess.Popen[bytes]:
        """A client that has the package only if it is given a PYTHONPATH with it."""
        own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        own |= {
            "CONNECT_SERVER": f"sc://127.0.0.1:{self._port}",
            "CONNECT_ROOT": self.root,
            "CONNECT_CHECKPOINT": str(self._path / "checkpoint"),
        }
        return self._run(what, [sys.executable, str(PROGRAM), what], {**own, **environment})

    def told(self, what: str, **environment: str) -> dict[str, Any]:
        """What a client prints that comes to its end."""
        assert self.client(what, **environment).wait() == 0, self.log(what)[-5000:]
        found: dict[str, Any] = json.loads(self.log(what).splitlines()[-1])
        return found

    def _run(self, name: str, command: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
        with (self._path / name).open("ab") as log:
            process = subprocess.Popen(
                command, env=environment, cwd=self._path, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        self._processes.append(process)
        return process

    def log(self, name: str) -> str:
        return (self._path / name).read_text(errors="replace")

    def batches(self) -> int:
        """How many batches of the query are done."""
        return sum(file.name.isdigit() for file in self.commits.iterdir()) if self.commits.exists() else 0

    def close(self) -> None:
        for process in self._processes:
            kill(process)


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[Connect]:
    pytest.importorskip("zstandard", reason="Spark's client needs it")
    connect = Connect(tmp_path)
    yield connect
    connect.close()


def test_clients_of_a_server(connect: Connect) -> None:
    told = connect.told("batch")
    assert (told["count"], told["table"], told["view"]) == (EVENTS, 6, 6)
    assert "Stream does not exist: s/inn. Did you mean 's/in'?" in told["told"]
    assert not told["imported"], "the client has nothing of the package"

    client = connect.client("stream")
    waited(lambda: connect.batches() >= 2 or client.poll() is not None)
    assert client.poll() is None, connect.log("stream")[-5000:]
    kill(client)
    before = connect.batches()
    waited(lambda: connect.batches() >= before + 3)  # a query is the server's
    kill(connect.server)
    assert connect.batches() < EVENTS // 20, "it was killed on its way"
    connect.start()
    told = connect.told("finish")
    assert told["count"] == EVENTS and told["progress"] and not told["imported"]
    found: dict[str, list[int]] = {}
    with StreamManager(connect.root) as manager:
        for event in manager.read_events("s", "out"):
            key, number = bytes(event.data).decode().split("/")
            found.setdefault(key, []).append(int(number))
    copied = {key: sorted(numbers) for key, numbers in found.items()}
    assert copied == {str(key): list(range(key, EVENTS, KEYS)) for key in range(KEYS)}, "each event once"

    assert connect.told("own", PYTHONPATH=str(TREE))["count"] == EVENTS
