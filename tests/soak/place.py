"""Where the root is, and which faults the storage can have: a folder on a small disk of its own, or S3.

A folder is on a filesystem in memory if the program may mount one (as root on Linux), so that it can be full. S3 is
Ceph, whose gateway can be restarted, or moto, which forgets all if it is; every actor reaches it through a line of its
own.
"""

from __future__ import annotations

import abc
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.support.rados_gateway import RadosGateway
from tests.support.s3_server import S3Server
from tests.support.servers import ServerMissing

ALL = "storage"
"""The target of a fault that all actors notice."""

DISK = 768 << 20
"""Bytes of the disk of a folder."""

PAGE = 4096


class Place(abc.ABC):
    """The root's URL, and faults of its storage. Close it, or use it in a with statement."""

    kinds: tuple[str, ...] = ()
    """The faults that the storage of all actors can have here."""

    line_kinds: tuple[str, ...] = ()
    """The faults that the network of one actor can have here."""

    root = ""
    notes: str

    def __init__(self) -> None:
        self.stack = ExitStack()

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    @abc.abstractmethod
    def options(self, actor: str) -> dict[str, Any]:
        """Storage options of an actor."""

    @abc.abstractmethod
    def begin(self, kind: str, target: str, value: float) -> None:
        """Let the storage fail."""

    @abc.abstractmethod
    def end(self, kind: str, target: str) -> None:
        """Heal it."""


class FolderPlace(Place):
    """A folder, if possible on a disk that can be full."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        disk = folder / "disk"
        disk.mkdir()
        self._filler = disk / "filler"
        command = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "soak", str(disk)]
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
        if mounted.returncode == 0:
            self.stack.callback(subprocess.run, ["umount", "--lazy", str(disk)], check=False)
            self.kinds = ("full",)
            self.notes = f"a folder on a filesystem in memory of {DISK >> 20} MiB, which can be full"
        else:
            self.notes = f"a folder; no disk is ever full, as none could be mounted: {mounted.stderr.strip()}"
        self.root = str(disk / "root")

    def options(self, actor: str) -> dict[str, Any]:
        return {}

    def begin(self, kind: str, target: str, value: float) -> None:
        """Fill the disk up to `value` bytes. Others write meanwhile, so it is filled in pieces, as far as that goes."""
        piece, length = DISK // 2, 0
        with self._filler.open("ab") as file:
            while piece >= PAGE:
                status = os.statvfs(self._filler.parent)
                if status.f_bavail * status.f_frsize - value >= piece:
                    try:
                        os.posix_fallocate(file.fileno(), length, piece)
                        length += piece
                        continue
                    except OSError:
                        pass
                piece //= 2

    def end(self, kind: str, target: str) -> None:
        self._filler.unlink(missing_ok=True)


class S3Place(Place):
    """A bucket of an S3 server, with a line for each actor."""

    line_kinds = ("reset", "silence")

    def __init__(self, actors: Sequence[str]) -> None:
        super().__init__()
        self._server: RadosGateway | S3Server
        try:
            self._server = self.stack.enter_context(RadosGateway())
            self.kinds = ("restart", "reset-all")
            self.notes = "Ceph's RADOS gateway, which is restarted; every process has a network of its own"
        except ServerMissing as missing:
            self._server = self.stack.enter_context(S3Server())
            self.kinds = ("reset-all",)
            self.notes = f"moto, which cannot be restarted as it keeps nothing ({missing}); all connections are cut"
        self.root = f"{self._server.make_bucket()}/root"
        self._actors = tuple(actors)
        origin = urlsplit(self._server.endpoint)
        command = [sys.executable, "-m", "tests.soak.relay", str(origin.hostname), str(origin.port), *actors]
        self._relay = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        self.stack.callback(self._end_relay)
        assert self._relay.stdout is not None
        self._ports = json.loads(self._relay.stdout.readline())

    def options(self, actor: str) -> dict[str, Any]:
        options = self._server.storage_options()
        client = options["client_kwargs"] | {"endpoint_url": f"http://127.0.0.1:{self._ports[actor]}"}
        return options | {"client_kwargs": client}

    def begin(self, kind: str, target: str, value: float) -> None:
        if kind == "restart":
            assert isinstance(self._server, RadosGateway)
            self._server.restart()
        else:
            self._control(kind, target)

    def end(self, kind: str, target: str) -> None:
        if kind != "restart":
            self._control("heal", target)

    def _control(self, word: str, target: str) -> None:
        assert self._relay.stdin is not None
        for name in self._actors if target == ALL else (target,):
            self._relay.stdin.write(f"{word.removesuffix('-all')} {name}\n")
        self._relay.stdin.flush()

    def _end_relay(self) -> None:
        assert self._relay.stdin is not None and self._relay.stdout is not None
        self._relay.stdin.close()
        self._relay.kill()
        self._relay.wait()
        self._relay.stdout.close()
