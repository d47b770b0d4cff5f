"""Locks on keys. A thread takes all that it needs at once, so that threads never wait for each other in a circle."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection, Iterator


class KeyLocks:
    """Which thread holds which keys. What is not held takes no memory."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._owners: dict[str, int] = {}

    @contextlib.contextmanager
    def held(self, keys: Collection[str]) -> Iterator[None]:
        """Hold keys that other threads hold no more. Raises RuntimeError if this thread holds one of them."""
        me = threading.get_ident()
        with self._changed:
            again = [key for key in keys if self._owners.get(key) == me]
            if again:
                raise RuntimeError(f"this thread holds {again[0]!r}: the external step of a commit must not use it")
            self._changed.wait_for(lambda: not any(key in self._owners for key in keys))
            self._owners.update(dict.fromkeys(keys, me))
        try:
            yield
        finally:
            with self._changed:
                for key in keys:
                    del self._owners[key]
                self._changed.notify_all()
