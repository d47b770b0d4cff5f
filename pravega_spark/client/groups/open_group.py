"""A reader group as it is open in one process: the state that its readers there share.

It must be used in the process that opened it, because a forked process would read the same events. Threads are started
on demand.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from engine.ownership import Owner
from engine.root import Root
from pravega_spark.client.groups.entry import GroupEntry
from pravega_spark.client.groups.subscriptions import Subscriptions
from pravega_spark.errors import Closed
from pravega_spark.streams.stream import Stream

THREADS = 8
"""Threads of a group in one process, at most."""


class OpenGroup:
    """An open group: its entry, its subscriptions, its streams, its clock (seconds) and its threads."""

    def __init__(self, root: Root, scope: str, name: str, clock: Callable[[], float]) -> None:
        self.root = root
        self.scope = scope
        self.name = name
        self.clock = clock
        self.entry = GroupEntry(root, f"{scope}/{name}")
        self.subscriptions = Subscriptions(root, scope, name, clock)
        # Both processes would read the same events.
        self._owner = Owner(f"reader group {scope}/{name}", "open it again, with other readers")
        self._pool_lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._closed = False
        self._timers: set[threading.Timer] = set()

    def stream(self, key: str) -> Stream:
        """A stream by its "scope/stream"."""
        scope, _, name = key.partition("/")
        return Stream(self.root, scope, name, suggesting=True)

    def pool(self) -> ThreadPoolExecutor:
        """The threads that do the storage work of asynchronous methods."""
        self.check_process()
        with self._pool_lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(THREADS, f"reader-group {self.entry.key}")
            return self._pool

    def later(self, seconds: float, work: Callable[[], object]) -> None:
        """Schedule work on a thread in so many seconds, unless the group is closed before."""

        def submit() -> None:
            self._timers.discard(timer)
            with suppress(Closed, RuntimeError):  # the group is closed or closing
                self.pool().submit(work)

        timer = threading.Timer(seconds, submit)
        timer.daemon = True
        self._timers.add(timer)
        timer.start()

    def end_threads(self) -> None:
        """Wait for the threads, and end them."""
        self._closed = True
        for timer in tuple(self._timers):
            timer.cancel()
        if self._pool is not None:
            self._pool.shutdown()

    def forked(self) -> bool:
        """Whether this is a forked process."""
        return not self._owner.here

    def check_process(self) -> None:
        """Raise MadeBeforeFork in a forked process, as both would read the same events; Closed after `close`."""
        self._owner.check()
        if self._closed:
            raise Closed(f"this object of reader group {self.entry.key}", "open the group again by create_reader_group")
