"""The port's contract, run against the stores for tests; on every backend it is run in tests/backends."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from chunkstore import Store, open_store
from chunkstore.testing import CountingStore, FaultStore, LatencyStore, SimulatedStore
from chunkstore.testing.contracts import StoreContract, WaysToCut
from chunkstore.testing.faults import fail_at


@pytest.fixture
def ways_to_cut(store: Store) -> WaysToCut:
    return [lambda: nullcontext(FaultStore(store, fail_at(1)))]


class TestSimulated(StoreContract):
    @pytest.fixture(params=["can do all", "can do little"])
    def store(self, request: pytest.FixtureRequest) -> Store:
        able = request.param == "can do all"
        return SimulatedStore(can_append=able)


class TestWrapped(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return CountingStore(FaultStore(LatencyStore(open_store(str(tmp_path)), seconds=0)))
