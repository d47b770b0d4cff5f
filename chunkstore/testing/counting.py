"""A store that counts the requests that pass it, for tests that state what an operation may cost."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

from chunkstore.port import Store
from chunkstore.wrapping import Request, Result, WrappingStore, bytes_in


class CountingStore(WrappingStore):
    """Counts calls and bytes, also of calls that fail.

    `counts` is a Counter by verb, `requests` the log in the order in which they were sent, `bytes_read` and
    `bytes_written` the sums over all. A `read_ranges` or `delete` counts as one and names all its paths in the log.
    """

    counts: Counter[str]
    requests: list[Request]
    bytes_read: int
    bytes_written: int

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._lock = threading.Lock()
        self.reset()

    def reset(self) -> None:
        """Forget everything counted so far."""
        with self._lock:
            self.counts = Counter()
            self.requests = []
            self.bytes_read = self.bytes_written = 0

    def count(self, verb: str | None = None, prefix: str = "") -> int:
        """Requests with this verb (any if None) that name at least one path beginning with `prefix`."""
        with self._lock:
            return sum(
                (verb is None or request.verb == verb)
                and (not prefix or any(path.startswith(prefix) for path in request.paths))
                for request in self.requests
            )

    def _carry_out(self, request: Request, call: Callable[[], Result]) -> Result:
        with self._lock:
            self.counts[request.verb] += 1
            self.requests.append(request)
            self.bytes_written += request.sent
        result = call()
        with self._lock:
            self.bytes_read += bytes_in(result)
        return result
