"""A store whose requests wait at a gate: a test that needs one under way has it there for as long as it likes.

A pause instead (`LatencyStore`) ends by itself, maybe before a busy machine has come to what should happen meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from chunkstore.port import Store
from chunkstore.wrapping import Request, Result, WrappingStore

_PATIENCE = 60.0
"""Seconds after which a request at a closed gate fails: the test hangs."""


class GatedStore(WrappingStore):
    """Holds the requests that `holds` names, by default those of the log's frames, while it is closed.

    open: an Event, set at first; `open.clear()` closes the gate. reached: set once a request is held. held: how many
    are or were at the closed gate. passed: how many requests that `holds` names were carried out.
    """

    def __init__(
        self, inner: Store, holds: Callable[[Request], bool] = lambda request: request.verb == "put_if_absent"
    ) -> None:
        super().__init__(inner)
        self.open, self.reached = threading.Event(), threading.Event()
        self.open.set()
        self.held = self.passed = 0
        self._holds = holds
        self._lock = threading.Lock()

    def _carry_out(self, request: Request, call: Callable[[], Result]) -> Result:
        if not self._holds(request):
            return call()
        if not self.open.is_set():
            with self._lock:
                self.held += 1
            self.reached.set()
            assert self.open.wait(_PATIENCE), f"{request} was held at the gate for {_PATIENCE:g} s"
        with self._lock:
            self.passed += 1
        return call()
