"""Appends are held back, then refused, while LTS takes nothing; all goes on when it does again."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from chunkstore import StorageUnavailable, open_store
from chunkstore.testing import FaultStore, Request
from engine.containers.container import Container
from engine.errors import Throttled
from engine.logs import throttle as throttles
from engine.logs.throttle import Throttle
from engine.settings import Settings
from engine.storage.object_reads import Stores

KIB = 1 << 10


class LongTermStorage:
    """Refuses writes below `scope/` while `down`."""

    def __init__(self) -> None:
        self.down = False

    def __call__(self, number: int, request: Request) -> None:
        if self.down and request.verb in ("put", "append") and request.paths[0].startswith(("scope/", "_system")):
            raise StorageUnavailable("LTS is down")


@pytest.fixture
def short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    """How long an append is held back is another test's matter."""
    monkeypatch.setattr(throttles, "LONGEST_DELAY", 0.01)


def append_when_there_is_room(container: Container, data: bytes) -> None:
    """LTS takes its time, and for how long an append waits is set."""
    while True:
        with suppress(Throttled):
            container.append("scope/a", data)
            return


@pytest.mark.usefixtures("short_delays")
def test_slower_then_refused_then_on_again(tmp_path: Path) -> None:
    lookups, store = LongTermStorage(), open_store(str(tmp_path))
    settings = Settings(backlog_bytes=512 * KIB, flush_bytes=64 * KIB, timeout=0.3, linger=0.001)
    with Container(Stores(store, FaultStore(store, lookups)), 0, settings) as container:
        container.create_segment("scope/a")
        for _ in range(20):
            container.append("scope/a", bytes(16 * KIB))
        lookups.down = True
        taken, most = 20, 0
        with pytest.raises(Throttled, match=r"wait for LTS.*flushing fails: .*LTS is down.*Nothing was appended"):
            while True:
                container.append("scope/a", bytes(16 * KIB))
                taken += 1
                most = max(most, container.state.logged_bytes)
        assert most <= 512 * KIB
        assert container.info("scope/a").length == taken * 16 * KIB
        # what the container needs for itself, and what makes room, is never held back
        container.put_entries("table", {"key": b"value"})
        container.checkpoint()
        lookups.down = False
        for _ in range(50):
            append_when_there_is_room(container, bytes(16 * KIB))
        assert container.info("scope/a").length == (taken + 50) * 16 * KIB
        container.wait_for_upkeep()
        container.flush()
        assert container.state.logged_bytes == 0


@pytest.mark.usefixtures("short_delays")
def test_what_is_on_its_way_is_bounded(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    settings = Settings(outstanding_bytes=256 * KIB, timeout=30.0, maintenance=False)
    with Container(Stores(store, store), 0, settings) as container:
        container.create_segment("scope/a")
        most = 0

        def append(number: int) -> None:
            nonlocal most
            future = container.submit_append("scope/a", bytes(32 * KIB))
            most = max(most, container.log.outstanding)
            future.result()

        with ThreadPoolExecutor(16) as pool:
            list(pool.map(append, range(80)))
        assert 32 * KIB <= most <= 256 * KIB
        assert container.log.outstanding == 0
        assert container.info("scope/a").length == 80 * 32 * KIB


@pytest.mark.parametrize(
    ("outstanding", "backlog", "size", "delay"),
    [
        (0, 0, 10, 0.0),
        (0, 40, 10, 0.0),  # half full
        (0, 65, 10, 0.5),
        (0, 90, 10, 1.0),
        (60, 0, 15, 0.5),
        (0, 0, 1000, 0.0),  # one alone may be larger than the bound
    ],
)
def test_the_fuller_the_longer(outstanding: int, backlog: int, size: int, delay: float) -> None:
    slept: list[float] = []
    throttle = Throttle(100, 100, 5.0, relieve=lambda: "", clock=lambda: sum(slept), sleep=slept.append)
    throttle.outstanding = outstanding
    load = SimpleNamespace(size=size, admitted=0)
    throttle.admit(load, lambda: backlog)
    assert sum(slept) == pytest.approx(delay)
    throttle.release(load)
    assert throttle.outstanding == outstanding


def test_who_waits_goes_on_when_there_is_room() -> None:
    slept: list[float] = []
    throttle = Throttle(100, 100, 5.0, relieve=lambda: "", clock=lambda: sum(slept), sleep=slept.append)
    throttle.admit(SimpleNamespace(size=10, admitted=0), lambda: 200 if sum(slept) < 3 else 0)
    assert 3 <= sum(slept) < 3.2
    with pytest.raises(Throttled):
        throttle.admit(SimpleNamespace(size=10, admitted=0), lambda: 200)
    assert throttle.outstanding == 10
