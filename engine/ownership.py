"""A handle that writes belongs to the process that created it; a forked child must not use it (W10).

A fork copies a handle with its memory: a writer's id and position in the log, queued writes, and locks held by threads
that the child does not have. If both processes used it, two frames could be acknowledged at one address, or events be
written twice. So a handle that writes or has threads checks its `Owner` before anything else, even before it takes a
lock. In another process it raises, releases nothing and waits for nothing.

Other handles, such as managers and roots, go on in a child. What they have to lock, they lock with a `ProcessLock`.
"""

from __future__ import annotations

import os
import threading
from contextlib import AbstractContextManager


class MadeBeforeFork(RuntimeError):
    """A handle was used in another process than the one that created it."""


class _Process:
    """A process, compared by identity, as process ids are reused."""


_this = _Process()


def _after_fork() -> None:
    global _this
    _this = _Process()


os.register_at_fork(after_in_child=_after_fork)


def this_process() -> object:
    """A token of this process, which never equals that of another process, ancestors included."""
    return _this


class ProcessLock:
    """A lock that is free in a forked child, whatever threads of its parent hold it: `with lock.mine: …`. For handles
    that go on in a child."""

    __slots__ = ("_locks", "_recursive")

    def __init__(self, recursive: bool = False) -> None:
        self._recursive = recursive
        self._locks = {_this: self._new()}

    def _new(self) -> AbstractContextManager[bool]:
        return threading.RLock() if self._recursive else threading.Lock()

    @property
    def mine(self) -> AbstractContextManager[bool]:
        """The lock of this process."""
        return self._locks.get(_this) or self._locks.setdefault(_this, self._new())


class Owner:
    """The process that creates a handle. what: describes the handle, for the error; instead: what to do in another
    process."""

    __slots__ = ("_instead", "_process", "_what")

    def __init__(self, what: str, instead: str) -> None:
        self._process = _this
        self._what = what
        self._instead = instead

    @property
    def here(self) -> bool:
        """Whether this is the process that created the handle."""
        return self._process is _this

    def check(self) -> None:
        """Raise MadeBeforeFork in another process."""
        if self._process is not _this:
            raise MadeBeforeFork(f"{self._what} was made before the process forked: {self._instead}")
