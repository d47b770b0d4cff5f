"""A standalone cluster of Spark on this machine, whose executors get the package as a wheel."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark

TREE = Path(__file__).resolve().parents[2]
SPARK = Path(pyspark.__path__[0])
PACKAGES = ("chunkstore", "engine", "pravega_spark", "pyspark_pravega")


def build_wheel(folder: Path) -> Path:
    """What a user submits. Executors take what is called .zip only, and a wheel is one."""
    tree, out = folder / "tree", folder / "wheel"
    tree.mkdir()
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

    def replace_worker(self, number: int) -> None:
        """Kill a worker with its executor, and start another one."""
        kill(self.workers[number])
        self.workers[number] = self.start(f"worker{len(self._processes)}", "Worker", *self.of_worker())

    def submit(self, name: str, environment: dict[str, str], program: Path, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a driver."""
        settings = ["spark.executor.memory=512m", "spark.ui.enabled=false", "spark.driver.host=127.0.0.1"]
        settings += ["spark.sql.shuffle.partitions=4"]
        confs = [word for setting in settings for word in ("--conf", setting)]
        command = [str(SPARK / "bin" / "spark-submit"), "--master", self.url, "--driver-memory", "600m", *confs]
        return self._run(name, [*command, "--py-files", str(self._wheel), str(program), *arguments], environment)

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
