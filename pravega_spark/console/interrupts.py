"""Ctrl-C as the way in which a command that has no end of its own is meant to end.

Keeps that it ends such a command between two events, wherever it strikes: an exception that is raised anywhere may
strike where Python only reports it (a finalizer), and the command would go on.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue


@contextmanager
def until_interrupted() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C sets. The second one is raised as usual, for who waits for a storage that does
    not answer. Nothing sets it in a thread that is not the main one, as signals go to that."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    struck: SimpleQueue[bool] = SimpleQueue()  # a handler may put into it; an event has a lock that it may find held
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
