"""What servers for tests have in common: a process of their own that ends with its parent, and where they are found.

`python -m <the server's module>` is what a `Server` starts. It carries out `run_server`, prints one line that says
where it is, and stops when its standard input ends, as it does when the parent has closed it or has gone.

Servers that are no Python packages are looked for in the folder that `make servers` fills, and then in the system.
"""

from __future__ import annotations

import abc
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, ClassVar, TypeVar

_FOLDER = "PRAVEGA_SERVERS"


AnyServer = TypeVar("AnyServer", bound="Server")


class ServerMissing(Exception):
    """The server is not installed here."""


class Server(abc.ABC):
    """A running server; `endpoint` is its URL. Close it, or use it in a with statement.

    Raises ServerMissing if it is not installed, RuntimeError if it does not start.
    """

    module: ClassVar[str]

    def __init__(self, *arguments: str) -> None:
        self.check_installed()
        self._process = subprocess.Popen(
            [sys.executable, "-m", self.module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)},
            start_new_session=True,  # Ctrl-C is for the tests; their servers end in order, after them
        )
        assert self._process.stdout is not None
        self.endpoint = self._process.stdout.readline().decode().strip()
        if not self.endpoint:
            self.close()
            raise RuntimeError(f"{self.module} did not start: exit code {self._process.returncode}")

    def check_installed(self) -> None:  # noqa: B027 - most need nothing but Python packages
        """Raise ServerMissing, with what to do, unless the server can be started."""

    @abc.abstractmethod
    def make_bucket(self) -> str:
        """The URL of a new bucket (container, folder), which is empty."""

    @abc.abstractmethod
    def storage_options(self) -> dict[str, Any]:
        """Options for `open_store`, which also fit fsspec."""

    def close(self) -> None:
        """End the server's process."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def __enter__(self: AnyServer) -> AnyServer:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def run_server(start: Callable[[ExitStack], str]) -> None:
    """Be a server's process: `start` starts it and returns its URL; what it leaves on the stack ends with it."""
    with ExitStack() as stack:
        print(start(stack), flush=True)
        sys.stdin.buffer.read()  # the parent holds the other end and writes nothing


def new_name() -> str:
    """A name for a bucket that no other test has."""
    return f"test-{uuid.uuid4().hex[:12]}"


def free_ports(number: int) -> list[int]:
    """TCP ports of this machine on which nobody listens."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def wait_for_port(port: int, process: subprocess.Popen[bytes], log: Path, seconds: float = 30.0) -> None:
    """Return when `process` listens; RuntimeError with the end of its log if it ends before, or takes too long."""
    deadline = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise RuntimeError(f"{process.args!r} does not listen on port {port}: {log.read_text(errors='replace')[-2000:]}")


@contextmanager
def running(
    command: Sequence[object], log: Path, environment: Mapping[str, str], user: int | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is ended at the end of the with statement, its output in `log`. `user`: whose rights it gets."""
    with open(log, "ab") as output:
        process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            user=user,
        )
    try:
        yield process
    finally:
        process.kill()  # nothing that it holds will be missed
        process.wait()


def new_folder(stack: ExitStack) -> Path:
    """A folder for a server's files, in memory where there is such a filesystem; removed with the stack."""
    memory = "/dev/shm"
    where = memory if os.access(memory, os.W_OK) else None
    return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="server-", dir=where)))


def installed(name: str, *places: str) -> Path:
    """The file of a server: below the folder that `make servers` fills at one of `places`, or on the PATH.

    Raises ServerMissing.
    """
    for place in places:
        if (file := servers_folder() / place).exists():
            return file
    search = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
    if found := shutil.which(name, path=search):
        return Path(found)
    raise ServerMissing(f"{name} is not installed: run 'make servers', which needs apt-get (Debian, Ubuntu) and npm")


def servers_folder() -> Path:
    """The folder that `make servers` fills: $PRAVEGA_SERVERS, or .servers in the current folder."""
    return Path(os.environ.get(_FOLDER, ".servers")).absolute()


def library_path() -> dict[str, str]:
    """The environment in which programs from unpacked Debian packages find their libraries."""
    root = servers_folder() / "debian"
    folders = [str(folder) for place in ("usr/lib", "lib") for folder in (root / place).glob("*-linux-gnu*")]
    nested = [f"{folder}/ceph" for folder in folders]  # programs of the system find theirs by a path built in
    before = os.environ.get("LD_LIBRARY_PATH")
    return {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join([*folders, *nested, *([before] if before else [])])}
