"""The port's contract, run against every store and the wrappers."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from chunkstore import Store, open_store
from chunkstore.testing import CountingStore, FaultStore, LatencyStore, SimulatedStore
from chunkstore.testing.contracts import StoreContract
from chunkstore.testing.s3_server import S3Server


def empty(store: Store) -> None:
    store.delete([info.path for info in store.list("")])


class TestLocal(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return open_store(str(tmp_path / "made" / "by the store"))


class TestMemory(StoreContract):
    @pytest.fixture
    def store(self) -> Iterator[Store]:
        store = open_store(f"memory://{uuid.uuid4().hex}/root")
        yield store
        empty(store)


@pytest.fixture(scope="module")
def s3_store(s3_server: S3Server) -> Iterator[Store]:
    """One for all tests: a new one takes a moment for its first request."""
    store = open_store(s3_server.make_bucket() + "/some/folder", s3_server.storage_options())
    yield store
    store.close()


class TestS3(StoreContract):
    @pytest.fixture
    def store(self, s3_store: Store) -> Iterator[Store]:
        yield s3_store
        empty(s3_store)


class TestSimulated(StoreContract):
    @pytest.fixture(params=["appends", "does not append"])
    def store(self, request: pytest.FixtureRequest) -> Store:
        return SimulatedStore(can_append=request.param == "appends")


class TestWrapped(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return CountingStore(FaultStore(LatencyStore(open_store(str(tmp_path)), seconds=0)))
