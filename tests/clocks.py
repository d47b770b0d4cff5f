"""Clocks that tests set."""

from __future__ import annotations

import time

import pytest

from chunkstore.backends.local import LocalStore
from engine.containers.container import Container


def set_ahead(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let the clock of folders be ahead, and the host's with it: objects that are there look so much older."""
    clock = LocalStore.clock
    monkeypatch.setattr(LocalStore, "clock", lambda store: clock(store) + seconds)
    defaults = Container.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "now", lambda: time.time() + seconds)
