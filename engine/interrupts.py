"""Signals while the main thread does work of ours that must not stop half-way: Ctrl-C, a notebook's Stop, time limits.

Keeps that a program goes on after one as before (W16): the log of a container, say, is no place to be torn out of. Only
for work that takes milliseconds. Who waits for a storage that does not answer is torn out all the same: by a second
signal of a kind at once, by the first after PATIENCE.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # what `signal` wraps, in a twentieth of the time
import _thread
import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

T = TypeVar("T")

PATIENCE = 5.0
"""Seconds for which a signal is put off at most."""

_DEFERRED = tuple(
    int(getattr(signal, name))
    for name in ("SIGINT", "SIGALRM", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGVTALRM", "SIGPROF", "SIGQUIT")
    if hasattr(signal, name)
)
"""The signals whose handlers programs write, which may raise."""

_Handler = Callable[[int, "FrameType | None"], object]


class _Later:
    """The handler of signals meanwhile: it notes the first one of each kind. `usual` are the program's own."""

    def __init__(self, usual: dict[int, _Handler]) -> None:
        self._usual = usual
        self._struck: dict[int, FrameType | None] = {}

    def begin(self) -> None:
        """Take the places of the program's own handlers."""
        for number in list(self._usual):
            _signal.signal(number, self)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if number in self._struck:
            self.end()
            return
        self._struck[number] = frame
        _thread.start_new_thread(self._remind, (number,))

    def _remind(self, number: int) -> None:
        """Strike again, for work that does not end. No `threading.Thread`: who was struck may hold its locks."""
        time.sleep(PATIENCE)
        if number in self._struck:
            signal.pthread_kill(threading.main_thread().ident or 0, number)

    def end(self) -> None:
        """The program's own handlers again, which hear of what was noted. Each hears of it whatever another raises."""
        try:
            for number, usual in list(self._usual.items()):
                if _signal.getsignal(number) is self:
                    _signal.signal(number, usual)
            while self._struck:
                number, frame = self._struck.popitem()
                self._usual[number](number, frame)
        finally:
            if self._struck or self._in_place():
                self.end()

    def _in_place(self) -> bool:
        return any(_signal.getsignal(number) is self for number in self._usual)


def _after_fork() -> None:
    """In a fork nobody is at work: it was another thread's."""
    handlers = [_signal.getsignal(number) for number in _DEFERRED]
    for later in {handler for handler in handlers if isinstance(handler, _Later)}:
        later.end()


os.register_at_fork(after_in_child=_after_fork)


def uninterrupted(work: Callable[[], T]) -> T:
    """Do `work`; what a signal's handler raises meanwhile is raised when it is done. Other threads hear of none."""
    if threading.current_thread() is not threading.main_thread():
        return work()
    usual: dict[int, _Handler] = {}
    for number in _DEFERRED:
        handler = _signal.getsignal(number)
        if isinstance(handler, _Later):  # they are put off already
            return work()
        if callable(handler):
            usual[number] = handler
    if not usual:
        return work()
    later = _Later(usual)
    try:
        later.begin()
        return work()
    finally:
        later.end()
