"""A folder whose power can fail: it knows which names and which data were synced, and loses all others (G3).

`Disk` stands between the adapter for folders and the system: it carries out each call on a real folder, and keeps
beside it what a power failure would leave. That is, for each file its bytes at its last sync, for each folder its names
at its own last sync, and nothing else: neither order nor time saves what was not synced. `after_power_failure` makes a
disk of that.

    disk = Disk(folder)
    with disk.mounted():
        operation(open_store(disk.folder))       # the real LocalStore
    left = disk.after_power_failure(elsewhere)   # another disk

Every call that changes something has a number. At the call `stop_at` the process dies (`Killed`) before it takes
effect, and whatever it calls until `revive` fails too: the folder lives on, as when a process is killed, and others may
look at it until the power fails.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from chunkstore.backends import local


class Killed(BaseException):
    """The process was killed here. Not an Exception, as nothing in a process that is dead handles errors."""


class _Folder:
    """What of a folder is durable: its names, with the file or folder that each was of when it was synced."""

    def __init__(self) -> None:
        self.names: dict[str, _File | _Folder] = {}


class _File:
    """What of a file is durable: its bytes when it was last synced, none before."""

    def __init__(self) -> None:
        self.content = b""


class Disk:
    """A folder, and what a power failure would leave of it. Not for several threads.

    What is in `folder` at first is durable, and so is its own name. `calls` counts the calls that changed something, or
    made it durable.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.calls = 0
        self.stop_at: int | None = None
        self._dead = False
        self._nodes: dict[int, _File | _Folder] = {}
        os.makedirs(folder, exist_ok=True)
        self._root = self._found(folder)

    @contextmanager
    def mounted(self) -> Iterator[None]:
        """Let the adapter for folders work on this disk."""
        with (
            mock.patch.object(local, "os", self),
            mock.patch.object(local, "_sync", self.fsync),
            mock.patch.object(local, "sync_file_range", return_value=None),
        ):
            yield

    def revive(self) -> None:
        """From now on the calls are those of another process, which is not killed."""
        self._dead, self.stop_at = False, None

    def after_power_failure(self, folder: Path) -> Disk:
        """A new disk, in a new folder, with what is durable now."""
        self._restore(self._root, folder)
        return Disk(str(folder))

    def _restore(self, node: _File | _Folder, path: Path) -> None:
        if isinstance(node, _File):
            path.write_bytes(node.content)
            return
        path.mkdir()
        for name, child in node.names.items():
            self._restore(child, path / name)

    # --- the calls of the system ---------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)  # those that change nothing

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_CREAT:
            self._called()
        return os.open(path, flags, mode)

    def pwritev(self, fd: int, buffers: Any, offset: int) -> int:
        self._called()
        return os.pwritev(fd, buffers, offset)

    def ftruncate(self, fd: int, length: int) -> None:
        self._called()
        os.ftruncate(fd, length)

    def mkdir(self, path: str) -> None:
        self._called()
        os.mkdir(path)

    def link(self, source: str, target: str, *, follow_symlinks: bool = True) -> None:
        self._called()
        os.link(source, target, follow_symlinks=follow_symlinks)

    def replace(self, source: str, target: str) -> None:
        self._called()
        self._forget(target)
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        self._called()
        self._forget(path)
        os.unlink(path)

    def fsync(self, fd: int) -> None:
        self._called()
        found = os.fstat(fd)
        node = self._node(found)
        if isinstance(node, _Folder):
            with os.scandir(fd) as entries:
                node.names = {entry.name: self._node(entry.stat(follow_symlinks=False)) for entry in entries}
        else:
            with open(f"/proc/self/fd/{fd}", "rb") as file:  # however `fd` was opened
                node.content = file.read()

    # -------------------------------------------------------------------------------------------------------------

    def _called(self) -> None:
        if not self._dead:
            self.calls += 1
            self._dead = self.calls == self.stop_at
        if self._dead:
            raise Killed

    def _found(self, path: str) -> _File | _Folder:
        """What lies there already."""
        node = self._node(os.stat(path))
        if isinstance(node, _Folder):
            node.names = {name: self._found(f"{path}/{name}") for name in os.listdir(path)}
        else:
            node.content = Path(path).read_bytes()
        return node

    def _node(self, found: os.stat_result) -> _File | _Folder:
        made: _File | _Folder = _Folder() if stat.S_ISDIR(found.st_mode) else _File()
        return self._nodes.setdefault(found.st_ino, made)

    def _forget(self, path: str) -> None:
        """The last name of a file goes, and its inode may become another's."""
        if os.path.lexists(path) and (found := os.stat(path)).st_nlink == 1:
            self._nodes.pop(found.st_ino, None)
