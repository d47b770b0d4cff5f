"""Work on the storage, which blocks: in a bounded number of threads, never in the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from pravega_spark.serve.failures import busy
from pravega_spark.serve.settings import ServeSettings

T = TypeVar("T")


class Work:
    """Threads for handlers. At most `max_requests` of their calls run or wait at once."""

    def __init__(self, settings: ServeSettings) -> None:
        self._settings = settings
        self._threads = ThreadPoolExecutor(settings.threads, thread_name_prefix="serve")
        self._lock = threading.Lock()
        self._waiting = 0

    async def run(self, function: Callable[..., T], *arguments: object) -> T:
        """The result of a call in a thread. Raises what it raises, and Refusal if there is too much to do, or if it
        takes too long: it then runs on to its end, as nothing can stop it."""
        with self._lock:
            if self._waiting >= self._settings.max_requests:
                raise busy(f"{self._waiting} requests are waiting: try again")
            self._waiting += 1
        future = self._threads.submit(function, *arguments)
        future.add_done_callback(self._done)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), self._settings.request_seconds)
        except asyncio.TimeoutError:
            raise busy(
                f"This took longer than {self._settings.request_seconds:g} seconds. A change may still be made: look "
                "before you repeat it"
            ) from None

    def _done(self, _: Future[Any]) -> None:
        with self._lock:
            self._waiting -= 1

    def close(self) -> None:
        """End the threads, once their calls have ended; calls that have not begun never will."""
        self._threads.shutdown(wait=True, cancel_futures=True)
