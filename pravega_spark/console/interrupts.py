"""Ctrl-C as the normal end of a command that runs forever.

Keeps that it ends such a command between two events. An exception that a signal handler raises may be lost where
Python only reports exceptions (in a finalizer), and the command would continue.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue


@contextmanager
def until_interrupted() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C sets. The second Ctrl-C raises KeyboardInterrupt, for storage that does not
    respond. In other threads than the main one, which gets no signals, nothing sets it."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    struck: SimpleQueue[bool] = SimpleQueue()  # safe in a signal handler, unlike an Event
    usual = signal.getsignal(signal.SIGINT)

    def watch() -> None:
        if struck.get():
            stop.set()

    def handle(*_: object) -> None:
        signal.signal(signal.SIGINT, usual)
        struck.put(True)

    watcher = threading.Thread(target=watch, name="interrupts", daemon=True)
    watcher.start()
    signal.signal(signal.SIGINT, handle)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, usual)
        struck.put(False)
        watcher.join()
