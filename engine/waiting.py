"""Threads that wait for a change without holding a lock.

Keeps, of W16, that an exception from a signal handler leaves no lock held and no thread waiting for ever. A
`threading.Condition` does not: its lock is acquired and released by Python code, which a signal may interrupt.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

CHECK_AGAIN = 1.0
"""Seconds after which a waiting thread checks again by itself, as the thread that wakes it may have been
interrupted."""


class Waiters:
    """Threads that wait for a change. `waiting` is empty if there are none."""

    def __init__(self) -> None:
        self.waiting: deque[threading.Lock] = deque()

    def wait(self, until: Callable[[], object], timeout: float | None = None) -> None:
        """Wait until `until` is true, or `timeout` seconds are over. It is checked first, and after each `wake`."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            mine = threading.Lock()
            mine.acquire()
            self.waiting.append(mine)  # before the check, so that a change after the check wakes this thread
            try:
                left = CHECK_AGAIN if end is None else min(end - time.monotonic(), CHECK_AGAIN)
                if until() or left <= 0:
                    return
                mine.acquire(timeout=left)
            finally:
                with suppress(ValueError):
                    self.waiting.remove(mine)

    def wake(self) -> None:
        """Let all waiting threads check again. An interrupted thread may stay in `waiting`; the next `wake` ignores
        it."""
        for one in list(self.waiting):
            with suppress(RuntimeError):  # it was released already
                one.release()
