"""Small parts of large events, a simulated root, and no threads that are left."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest

from pravega_spark import StreamManager
from pravega_spark.client.large_events import large_event as large
from tests.client.large_events.simulated import PART, SimulatedRoot
from tests.support.simulation import Simulation


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of 64 bytes, of which 16 go into the log."""
    monkeypatch.setattr(large, "PART_BYTES", PART)
    monkeypatch.setattr(large, "INLINE_BYTES", 16)


@pytest.fixture
def no_threads_are_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Uploads end with their event, also when it is only forgotten."""
    yield
    gc.collect()
    for thread in threading.enumerate():
        if thread.name.startswith("large-event"):
            thread.join(10)
            assert not thread.is_alive()


@pytest.fixture
def simulation() -> Simulation:
    """With the streams `one` (1 segment) and `four` (4 segments) in scope `sc`."""
    simulation = Simulation()
    with StreamManager.over(SimulatedRoot(simulation)) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "one", 1)
        manager.create_stream("sc", "four", 4)
    return simulation
