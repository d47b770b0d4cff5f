"""What failed requests leave to Python's collector: frames in cycles with their exceptions, which hold what was sent.

Other cycles are the libraries' own: Azure's makes some at each request, also of those that succeed.
"""

from __future__ import annotations

import contextlib
import gc
import types
from collections.abc import Callable

from chunkstore import Range, StorageError, Store
from chunkstore.testing.contracts import body
from engine.errors import EngineError


def left_by_failures(store: Store) -> dict[str, int]:
    """The number of frames in cycles after one request of each verb, of a store that does not answer."""
    requests: dict[str, Callable[[], object]] = {
        "read_ranges": lambda: store.read_ranges([Range("a"), Range("b", 1, 2)]),
        "put": lambda: store.put("a", b"data"),
        "put_if_absent": lambda: store.put_if_absent("a", body()),
        "list": lambda: store.list(""),
        "stat": lambda: store.stat("a"),
        "delete": lambda: store.delete(["a"]),
    }
    found = {}
    for verb, request in requests.items():
        found[verb] = max(frames_left(request) for _ in range(2))
    return {verb: left for verb, left in found.items() if left}


def frames_left(request: Callable[[], object]) -> int:
    """The number of frames in cycles after a call that may raise StorageError or EngineError."""
    gc.collect()
    gc.disable()
    try:
        with contextlib.suppress(StorageError, EngineError):
            request()
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        return sum(isinstance(each, types.FrameType) for each in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
