"""Threads that wait for something to change, and hold no lock meanwhile.

Keeps, of W16, that an exception of a signal leaves no lock held and nobody waiting for ever. A `threading.Condition`
does not promise that: its lock is taken and let go by Python code, between two lines of which a signal may strike.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

LOOK_AGAIN = 1.0
"""Seconds after which who waits looks again by itself: whoever was to wake it may have been interrupted."""


class Waiters:
    """Who waits for a change. `waiting` is empty while nobody does."""

    def __init__(self) -> None:
        self.waiting: deque[threading.Lock] = deque()

    def wait(self, until: Callable[[], object], timeout: float | None = None) -> None:
        """Wait until `until` is true, or `timeout` seconds are over. It is asked first, and whenever somebody wakes."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            mine = threading.Lock()
            mine.acquire()
            self.waiting.append(mine)  # before it is asked: a change that it misses wakes us
            try:
                left = LOOK_AGAIN if end is None else min(end - time.monotonic(), LOOK_AGAIN)
                if until() or left <= 0:
                    return
                mine.acquire(timeout=left)
            finally:
                with suppress(ValueError):
                    self.waiting.remove(mine)

    def wake(self) -> None:
        """Let all who wait look again. One who stays in `waiting`, as it was interrupted, is let go by the next one."""
        for one in list(self.waiting):
            with suppress(RuntimeError):  # it was let go already
                one.release()
