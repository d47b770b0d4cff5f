"""A folder that is a small filesystem: it has so many bytes, in blocks, and refuses what does not fit.

Patches what `LocalStore` asks of the system. What is freed counts at once, as on a real filesystem.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

BLOCK = 4096


class SmallDisk:
    """The filesystem in `folder`, with `capacity` bytes. others: bytes that other programs use."""

    def __init__(self, folder: Path, capacity: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.capacity, self.others = folder, capacity, 0
        self._counted, self._statvfs, self._pwritev = capacity, os.statvfs, os.pwritev
        monkeypatch.setattr(os, "statvfs", self._room)
        monkeypatch.setattr(os, "pwritev", self._put)

    @property
    def used(self) -> int:
        """Bytes of all files, in blocks."""
        self._counted = sum(map(_blocks, _sizes(self.folder)))
        return self._counted

    @property
    def free(self) -> int:
        return max(self.capacity - self.others - self.used, 0)

    def leave(self, free: int) -> None:
        """Let another program take all but so many bytes."""
        self.others += self.free - free

    def _room(self, folder: str) -> Any:
        if not Path(folder).is_relative_to(self.folder):
            return self._statvfs(folder)
        return SimpleNamespace(f_bavail=self.free // BLOCK, f_frsize=BLOCK, f_blocks=self.capacity // BLOCK)

    def _put(self, fd: int, buffers: Sequence[Any], offset: int) -> int:
        if Path(os.readlink(f"/proc/self/fd/{fd}")).is_relative_to(self.folder):
            more = _blocks(offset + sum(memoryview(each).nbytes for each in buffers)) - _blocks(offset)
            if self._counted + more > self.capacity - self.others and more > self.free:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._counted += more
        return self._pwritev(fd, buffers, offset)


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
