"""A reader group as it is open in one process: the state that its readers there share.

It must be used in the process that opened it, because a forked process would read the same events. Threads are started
on demand.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from engine.ownership import Owner
from engine.root import Root
from pravega_spark.client.groups.entry import GroupEntry
from pravega_spark.client.groups.event_read import Position
from pravega_spark.client.groups.state import GroupSegment
from pravega_spark.client.groups.subscriptions import Subscriptions
from pravega_spark.errors import Closed, InvalidStreamCut
from pravega_spark.segment_ids import segment_label
from pravega_spark.streams.reading.snapshot import Snapshot
from pravega_spark.streams.stream import Stream

THREADS = 8
"""Threads of a group in one process, at most."""


class OpenGroup:
    """An open group: its entry, its subscriptions, its streams, its clock (seconds) and its threads."""

    scope: str
    name: str

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
        self.face: object = None
        """What the program closes. It lives as long as a reader or a thread of the group, so that the manager, which
        knows it weakly, closes what the program has dropped."""

    def positions_at(self, position: Position) -> dict[GroupSegment, int]:
        """A reader's position, by the group's segments; those that the group has completed are left out. Raises
        InvalidStreamCut if no event begins there."""
        found = {}
        for segment in self.entry.state().positions():
            offset = position.offsets.get((segment.stream, segment.id))
            if offset is not None:
                self.stream(segment.stream).query(partial(_check_boundary, segment, offset))
                found[segment] = offset
        return found

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
        with self._pool_lock:
            if not self._closed:
                self._timers.add(timer)
                timer.start()

    def end_threads(self) -> None:
        """Wait for the threads, and end them."""
        with self._pool_lock:
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


def _check_boundary(segment: GroupSegment, offset: int, snapshot: Snapshot) -> None:
    """Raise InvalidStreamCut unless an event begins, or the segment ends, at an offset that still exists."""
    if segment.id not in snapshot.record.history.segments:
        return  # truncated: its readers continue at the head
    known = snapshot.segments.segment(segment.id)
    if offset > known.length or (offset > known.start_offset and not snapshot.segments.is_boundary(segment.id, offset)):
        raise InvalidStreamCut(
            f"position: no event of segment {segment_label(segment.id)} of {segment.stream} begins at offset {offset}"
        )
