"""What handlers work on: the streams of one root, and its status, which all requests share.

Keeps that the status is collected once for all that want it at the same time, and never while nobody does.
"""

from __future__ import annotations

import threading
import time

from pravega_spark.client.manager import StreamManager
from pravega_spark.serve.settings import ServeSettings
from pravega_spark.status import RootStatus, root_status
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.stream import Stream


class Service:
    """The streams of a root, for handlers in threads. manager: of the open root, which is not closed here."""

    def __init__(self, manager: StreamManager, settings: ServeSettings) -> None:
        self.manager = manager
        self.settings = settings
        self.catalog = Catalog(manager.root, suggesting=True)
        self._lock = threading.Lock()
        self._status: tuple[float, RootStatus] | None = None  # when it was collected, and what was found

    def stream(self, scope: str, name: str) -> Stream:
        """A stream by its name. Raises ValueError for a name that no stream has."""
        return self.catalog.stream(scope, name)

    def status(self, max_age: float | None = None) -> RootStatus:
        """The status of the root, at most `max_age` seconds old (by default as the settings have it). While another
        thread collects a newer one, the last one: however long that takes, it keeps one thread. Raises StorageError."""
        oldest = time.monotonic() - (self.settings.max_age_seconds if max_age is None else max_age)
        known = self._status
        if known is not None and known[0] >= oldest:
            return known[1]
        if not self._lock.acquire(blocking=known is None) and known is not None:
            return known[1]
        try:
            if self._status is None or self._status[0] < oldest:
                began = time.monotonic()
                self._status = began, root_status(self.manager.root)
            return self._status[1]
        finally:
            self._lock.release()
