"""Processes that open a root, commit once and end, one after the other: what they leave behind, and what opening costs.

Each is a container with threads of its own on a storage that dies with its process. Simulated time passes between two
of them; the processes' own clocks also run, since waiting for what was submitted to another process (W18) ends by them.
"""

from __future__ import annotations

import enum
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from chunkstore import Store
from chunkstore.paths import SystemPlace, is_log, place_of
from chunkstore.testing import CountingStore, Crashed, Request, SimulatedStore, WrappingStore
from chunkstore.wrapping import Result
from engine.containers.container import Container
from engine.settings import Settings
from engine.storage.object_reads import Stores
from engine.storage.recovery import recover

SEGMENT = "s/a"
EVENT = b"%08d;"


class End(enum.Enum):
    """How a process ends after its commit."""

    CLOSE = "closes the container"
    KILL = "is killed at once"
    MIXED = "one or the other"


class Mortal(WrappingStore):
    """A process's way to the storage. After `kill` nothing gets through any more."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._dead = False

    def kill(self) -> None:
        """The process dies."""
        self._dead = True

    def _carry_out(self, request: Request, call: Callable[[], Result]) -> Result:
        if self._dead:
            raise Crashed(request)
        return call()


class Traces(NamedTuple):
    """What lies in a root, and what it costs to open it."""

    frames: int
    checkpoints: int
    checkpoint_bytes: int
    tables: int
    recovery_points: int
    requests: int


def without_log(store: SimulatedStore) -> SimulatedStore:
    """A copy of a root from which everything is gone but LTS."""
    copy = SimulatedStore(now=store.now)
    for info in store.list(""):
        if not is_log(info.path):
            copy.put(info.path, store.read(info.path))
    return copy


class ShortLived:
    """A simulated root and the processes that use it. `count` is how many events were acknowledged."""

    def __init__(self, **settings: Any) -> None:
        self.store = SimulatedStore()
        self.settings = Settings(**{"linger": 0.0, **settings})
        self.count = 0
        self._elapsed = 0.0

    def open(self, through: Store | None = None, *, ahead: float = 0.0, **settings: Any) -> Container:
        """The container, as a process opens it now. `through`: a store that wraps the root's; ahead: seconds by which
        the clock of its host is."""
        store = through or self.store
        return Container(
            Stores(store, store),
            0,
            replace(self.settings, **settings),
            clock=lambda: self._elapsed + time.monotonic(),
            now=lambda: self.store.now + ahead,
        )

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.store.now += seconds
        self._elapsed += seconds

    def process(self, end: End) -> None:
        """One process: open, commit, end."""
        mortal = Mortal(self.store)
        container = self.open(mortal)
        if not self.count:
            container.create_segment(SEGMENT)
        container.append(SEGMENT, EVENT % self.count)
        self.count += 1
        if end is End.KILL or (end is End.MIXED and self.count % 3):
            mortal.kill()
        container.close()

    def run(self, processes: int, end: End, apart: float) -> list[Traces]:
        """Processes, each so many seconds after the one before; what there was after each."""
        traces = []
        for _ in range(processes):
            self.process(end)
            self.advance(apart)
            traces.append(self.traces())
        return traces

    def recovered(self) -> int:
        """How many events a recovery from LTS alone finds; they must be the first ones."""
        lookups = without_log(self.store)
        stores = Stores(lookups, lookups)
        recover(stores, 0)
        with Container(stores, 0, replace(self.settings, maintenance=False)) as container:
            data = container.read(SEGMENT, 0, container.info(SEGMENT).length)
        assert data == b"".join(EVENT % number for number in range(len(data) // len(EVENT % 0)))
        return len(data) // len(EVENT % 0)

    def traces(self) -> Traces:
        """What there is now."""
        listed = self.store.list("")
        kinds = Counter(_kind(info.path) for info in listed)
        largest = max((info.size for info in listed if _kind(info.path) == "checkpoints"), default=0)
        counting = CountingStore(self.store)
        self.open(counting, maintenance=False).close()
        requests = sum(len(request.paths) for request in counting.requests)
        return Traces(kinds["wal"], kinds["checkpoints"], largest, kinds["tables"], kinds["recovery_point"], requests)


def _kind(path: str) -> str:
    found = place_of(path)
    if found is None:
        return "chunks"
    return found[0].value if found[0] is not SystemPlace.LOG else path.split("/")[-2]
