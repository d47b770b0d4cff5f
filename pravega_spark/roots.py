"""The roots that this process has open, one for each URL and set of storage options.

Spark's Python workers serve one task after the other: what is open stays open, so that a task costs no opening.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from typing import Any

from engine.root import Root

_lock = threading.Lock()
_open: dict[tuple[int, str], Root] = {}


def open_root(
    url: str, storage_options: Mapping[str, Any] | None = None, wal: str | None = None, *, create: bool = False
) -> Root:
    """The root at `url`. Do not close it: others in this process use it too.

    create: make it if there is none, and the place is empty. Raises RootNotFound, StorageRefused.
    """
    key = os.getpid(), json.dumps([url, wal, dict(storage_options or {})], sort_keys=True, default=repr)
    with _lock:
        root = _open.get(key)
        if root is None:
            root = _open[key] = Root.open(url, storage_options, wal=wal, create=create, empty=True)
        return root


def _after_fork() -> None:
    """A forked process opens its own; the lock may have been held by a thread that is not there any more."""
    global _lock
    _lock = threading.Lock()
    _open.clear()


os.register_at_fork(after_in_child=_after_fork)
