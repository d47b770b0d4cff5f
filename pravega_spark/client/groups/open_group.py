"""A reader group as it is open in one process: what its readers there share.

It belongs to the process that made it: in a fork of that, both would read the same, so it refuses to work there.
Threads are made when there is something for them to do.
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
"""Of a group in one process, at most."""


class OpenGroup:
    """A group that is open: its entry, its subscriptions, its streams, its clock (seconds) and its threads."""

    def __init__(self, root: Root, scope: str, name: str, clock: Callable[[], float]) -> None:
        self.root = root
        self.scope = scope
        self.name = name
        self.clock = clock
        self.entry = GroupEntry(root, f"{scope}/{name}")
        self.subscriptions = Subscriptions(root, scope, name, clock)
        # Both processes would read the same.
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
        """Have it done by a thread in so many seconds, unless the group is closed before."""

        def submit() -> None:
            self._timers.discard(timer)
            with suppress(Closed, RuntimeError):  # it is closed, or just being closed
                self.pool().submit(work)

        timer = threading.Timer(seconds, submit)
        timer.daemon = True
        self._timers.add(timer)
        timer.start()

    def end_threads(self) -> None:
        """Wait for what they do, and end them: the group is closed."""
        self._closed = True
        for timer in tuple(self._timers):
            timer.cancel()
        if self._pool is not None:
            self._pool.shutdown()

    def forked(self) -> bool:
        """Whether this process is another one than made it."""
        return not self._owner.here

    def check_process(self) -> None:
        """Raise MadeBeforeFork in a process that was forked from the one that made this, as both would read the same;
        Closed after `close`."""
        self._owner.check()
        if self._closed:
            raise Closed(f"this object of reader group {self.entry.key}", "open the group again by create_reader_group")
