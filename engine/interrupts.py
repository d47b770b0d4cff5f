"""Deferring signals (Ctrl-C, a notebook's Stop, time limits) while the main thread does work that must not stop
half-way.

Keeps that a program works as before after an interrupt (W16); an exception in the middle of an append would leave the
container's log inconsistent. It is only for work that takes milliseconds. If the storage does not respond, the work is
interrupted all the same: at once by a second signal of the same kind, or PATIENCE after the first.
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
"""The most seconds for which a signal is deferred."""

_DEFERRED = tuple(
    int(getattr(signal, name))
    for name in ("SIGINT", "SIGALRM", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGVTALRM", "SIGPROF", "SIGQUIT")
    if hasattr(signal, name)
)
"""Signals whose handlers may be a program's own, and may raise."""

_Handler = Callable[[int, "FrameType | None"], object]


class _Later:
    """The handler while signals are deferred, which records the first one of each kind. usual: the program's
    handlers."""

    def __init__(self, usual: dict[int, _Handler]) -> None:
        self._usual = usual
        self._struck: dict[int, FrameType | None] = {}

    def begin(self) -> None:
        """Replace the program's handlers."""
        for number in list(self._usual):
            _signal.signal(number, self)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if number in self._struck:
            self.end()
            return
        self._struck[number] = frame
        _thread.start_new_thread(self._remind, (number,))

    def _remind(self, number: int) -> None:
        """Send the signal again if the work does not end. Not a `threading.Thread`: the main thread may hold its
        locks."""
        time.sleep(PATIENCE)
        if number in self._struck:
            signal.pthread_kill(threading.main_thread().ident or 0, number)

    def end(self) -> None:
        """Restore the program's handlers, and call them for the recorded signals, even if one of them raises."""
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
    """The deferred work belongs to a thread that the forked child does not have."""
    handlers = [_signal.getsignal(number) for number in _DEFERRED]
    for later in {handler for handler in handlers if isinstance(handler, _Later)}:
        later.end()


os.register_at_fork(after_in_child=_after_fork)


def uninterrupted(work: Callable[[], T]) -> T:
    """Do `work`, and call signal handlers afterwards. In other threads than the main one there are no signals."""
    if threading.current_thread() is not threading.main_thread():
        return work()
    usual: dict[int, _Handler] = {}
    for number in _DEFERRED:
        handler = _signal.getsignal(number)
        if isinstance(handler, _Later):  # signals are deferred already
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
