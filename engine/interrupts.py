"""Ctrl-C while the main thread does work of ours that must not stop half-way.

Keeps that a program goes on after a Ctrl-C as before: the log of a container, say, is no place to be torn out of. Only
for work that takes milliseconds; a second Ctrl-C is raised at once, for who waits for a storage that does not answer.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

T = TypeVar("T")


class _Later:
    """The handler of Ctrl-C meanwhile: it notes the first one. `usual` is the program's own."""

    def __init__(self, usual: Callable[[int, FrameType | None], object]) -> None:
        self._usual = usual
        self._struck: list[FrameType | None] = []

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self._struck.append(frame)
        if len(self._struck) > 1:
            self.end()

    def end(self) -> None:
        """The program's own handler again, which hears of what was noted."""
        signal.signal(signal.SIGINT, self._usual)
        if self._struck:
            frame = self._struck.pop()
            self._struck.clear()
            self._usual(signal.SIGINT, frame)


def _after_fork() -> None:
    """In a fork nobody is at work: it was another thread's."""
    handler = signal.getsignal(signal.SIGINT)
    if isinstance(handler, _Later):
        handler.end()


os.register_at_fork(after_in_child=_after_fork)


def uninterrupted(work: Callable[[], T]) -> T:
    """Do `work`; a Ctrl-C meanwhile is raised when it is done. In other threads none is raised anyway."""
    if threading.current_thread() is not threading.main_thread():
        return work()
    usual = signal.getsignal(signal.SIGINT)
    if not callable(usual) or isinstance(usual, _Later):  # nobody hears of it, or it is deferred already
        return work()
    later = _Later(usual)
    signal.signal(signal.SIGINT, later)
    try:
        return work()
    finally:
        later.end()
