"""Which process a handle belongs to: the one that made it, fork included (W10).

A fork copies a handle with what it has in memory: a writer's id and its place in the log, what waits to be written,
locks that threads hold which are not there any more. Used on both sides, two frames would be acknowledged at one
address, or events be written twice. So a handle that can write, or that has threads, asks its `Owner` before it does
anything, before it takes a lock even: in another process it refuses, lets go of nothing and waits for nothing.
"""

from __future__ import annotations

import os


class MadeBeforeFork(RuntimeError):
    """A handle was used in another process than the one that made it."""


class _Process:
    """A process, compared by identity: numbers of processes are used again."""


_this = _Process()


def _after_fork() -> None:
    global _this
    _this = _Process()


os.register_at_fork(after_in_child=_after_fork)


def this_process() -> object:
    """What stands for this process; never equal to that of another one, an ancestor included."""
    return _this


class Owner:
    """The process that makes a handle. what: the handle, for people; instead: what to do in another process."""

    __slots__ = ("_instead", "_process", "_what")

    def __init__(self, what: str, instead: str) -> None:
        self._process = _this
        self._what = what
        self._instead = instead

    @property
    def here(self) -> bool:
        """Whether this is the process that made the handle."""
        return self._process is _this

    def check(self) -> None:
        """Raise MadeBeforeFork in another process."""
        if self._process is not _this:
            raise MadeBeforeFork(f"{self._what} was made before the process forked: {self._instead}")
