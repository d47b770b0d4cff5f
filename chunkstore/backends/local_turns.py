"""Turns of a local folder: a lock on it, which the kernel gives to those who wait in their order.

Owns the lock and the thread that waits for it, since such a lock cannot be waited for with a timeout: whoever holds it
may be stopped. The thread is there only while turns are taken.
"""

from __future__ import annotations

import fcntl
import os
import threading

LINGER = 1.0
"""Seconds after which the thread ends when nobody wants a turn."""


class FolderTurn:
    """The turn of one folder, as one process sees it. Thread-safe; one thread at a time has it."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._changed = threading.Condition()
        self._waiting = False  # whether the thread is to wait for the lock, or does
        self._wanted = False  # whether somebody waits for the thread
        self._held: int | None = None  # the descriptor that has the lock
        self._thread: threading.Thread | None = None

    def take(self, timeout: float) -> bool:
        """Wait for the turn, at most `timeout` seconds. False: it is another's still, or there are no such locks."""
        with self._changed:
            if self._held is not None or self._wanted:
                return False  # it is another thread's
            if not self._waiting:
                try:
                    self._held = self._lock(fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    self._begin_to_wait()
                except OSError:
                    return False
            self._wanted = True
            try:
                return self._changed.wait_for(lambda: self._held is not None or not self._waiting, timeout) and (
                    self._held is not None
                )
            finally:
                self._wanted = False

    def end(self) -> None:
        """Give the turn back, if we have it."""
        with self._changed:
            if self._held is not None:
                self._unlock(self._held)
                self._held = None

    def _begin_to_wait(self) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="turn", daemon=True)
            thread.start()  # it may fail, so nothing is begun yet
            self._thread = thread
        self._waiting = True
        self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._changed.wait_for(lambda: self._waiting, LINGER):
                    self._thread = None
                    return
            try:
                held: int | None = self._lock(fcntl.LOCK_EX)
            except OSError:  # the folder is gone
                held = None
            with self._changed:
                self._waiting = False
                if held is not None and not self._wanted:  # nobody waited for so long
                    self._unlock(held)
                    held = None
                self._held = held
                self._changed.notify_all()

    def _lock(self, how: int) -> int:
        descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, how)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    @staticmethod
    def _unlock(descriptor: int) -> None:
        """In words: a fork meanwhile has the folder open too, and closing it would leave the turn there."""
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)
