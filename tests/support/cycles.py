"""What a call leaves to Python's collector: frames in cycles with their exceptions, which hold what was sent or got."""

from __future__ import annotations

import contextlib
import gc
import types
from collections.abc import Callable

from chunkstore import Range, Store
from chunkstore.testing.contracts import body


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
    found = {verb: max(frames_left(request) for _ in range(2)) for verb, request in requests.items()}
    return {verb: left for verb, left in found.items() if left}


def frames_left(call: Callable[[], object]) -> int:
    """The number of frames in cycles after a call, which may raise.

    Other cycles are not counted: the libraries of Azure, for example, make some at each request.
    """
    gc.collect()
    gc.disable()
    try:
        with contextlib.suppress(Exception):
            call()
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        return sum(type(each) is types.FrameType for each in gc.garbage)  # `isinstance` asks weak proxies
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
