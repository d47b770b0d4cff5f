"""A store as slow as a bucket, for measurements: it really sleeps."""

from __future__ import annotations

import time
from collections.abc import Callable

from chunkstore.port import Store
from chunkstore.wrapping import Request, Result, WrappingStore


class LatencyStore(WrappingStore):
    """Sleeps `seconds` before each request; a `read_ranges` or `delete` of many objects sleeps once. It is `remote`."""

    def __init__(self, inner: Store, seconds: float) -> None:
        super().__init__(inner)
        self.remote = True
        self.seconds = seconds

    def _carry_out(self, request: Request, call: Callable[[], Result]) -> Result:
        time.sleep(self.seconds)
        return call()
