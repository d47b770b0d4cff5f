"""Clocks that tests set."""

from __future__ import annotations

import time

import pytest

from chunkstore import Store
from chunkstore.backends.local import LocalStore
from engine.containers.container import Container


def set_ahead(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let the clock of folders be ahead, and the host's with it: objects that are there look so much older."""
    clock = LocalStore.clock
    monkeypatch.setattr(LocalStore, "clock", lambda store: clock(store) + seconds)
    defaults = Container.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "now", lambda: time.time() + seconds)


def moved_on(store: Store) -> None:
    """Wait until the storage's clock is past all that was stamped so far: a folder's is behind the host's by up to a
    tick of the kernel, a bucket's is of whole seconds."""
    stamped = max(time.time(), store.clock())
    while store.clock() <= stamped + 0.001:
        time.sleep(0.001 if not store.remote else 0.1)
