"""A folder that is a small filesystem: it has so many bytes, in blocks, and refuses what does not fit.

Patches what `LocalStore` asks of the system. What is freed counts at once, as on a real filesystem.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chunkstore.backends import local
from chunkstore.port import Parts, length_of

BLOCK = 4096


class SmallDisk:
    """The filesystem in `folder`, with `capacity` bytes. others: bytes that other programs use."""

    def __init__(self, folder: Path, capacity: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.capacity, self.others = folder, capacity, 0
        self._counted, self._statvfs, self._write = capacity, os.statvfs, local._write
        monkeypatch.setattr(os, "statvfs", self._room)
        monkeypatch.setattr(local, "_write", self._put)

    @property
    def used(self) -> int:
        """Bytes of all files, in blocks."""
        self._counted = sum(map(_blocks, _sizes(self.folder)))
        return self._counted

    @property
    def free(self) -> int:
        return max(self.capacity - self.others - self.used, 0)

    def _room(self, folder: str) -> Any:
        if not Path(folder).is_relative_to(self.folder):
            return self._statvfs(folder)
        return SimpleNamespace(f_bavail=self.free // BLOCK, f_frsize=BLOCK, f_blocks=self.capacity // BLOCK)

    def _put(self, fd: int, data: Parts, offset: int) -> None:
        if Path(os.readlink(f"/proc/self/fd/{fd}")).is_relative_to(self.folder):
            more = _blocks(offset + length_of(data)) - _blocks(offset)
            if self._counted + more > self.capacity - self.others and more > self.free:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._counted += more
        self._write(fd, data, offset)


def _blocks(size: int) -> int:
    return -(-size // BLOCK) * BLOCK


def _sizes(folder: Path) -> Iterable[int]:
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                yield os.stat(f"{place}/{name}").st_size
            except FileNotFoundError:
                continue


def until_refused(call: Callable[[], object], kind: type[Exception], most: int) -> int:
    """Repeat a call until it is refused; how often it was not. Fails if it never is."""
    for done in range(most):
        try:
            call()
        except kind:
            return done
    pytest.fail(f"it was not refused {most} times")
