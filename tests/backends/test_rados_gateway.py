"""The suites on S3, on Ceph's RADOS gateway."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chunkstore import Store
from chunkstore.testing.contracts import WaysToCut
from chunkstore.testing.rados_gateway import RadosGateway
from tests.backends import suites
from tests.backends.suites import Place

BACKEND = "S3 (s3fs)"
SERVER = "Ceph's RADOS gateway"


@pytest.fixture(scope="module")
def place(rados_gateway: RadosGateway) -> Place:
    return suites.new_place(rados_gateway)


@pytest.fixture(scope="module")
def module_store(place: Place) -> Iterator[Store]:
    """One for all tests: a new one takes a moment for its first request."""
    yield from suites.opened(place)


@pytest.fixture
def store(module_store: Store) -> Iterator[Store]:
    yield module_store
    suites.empty(module_store)


@pytest.fixture
def ways_to_cut(rados_gateway: RadosGateway, place: Place) -> Iterator[WaysToCut]:
    yield from suites.cut_connections(rados_gateway, place)


class TestPort(suites.Port):
    pass


class TestChunks(suites.Chunks):
    pass


class TestSegments(suites.Segments):
    pass


class TestSelfTest(suites.SelfTest):
    pass


class TestRace(suites.Race):
    pass


class TestWal(suites.Wal):
    pass


class TestSpark(suites.Spark):
    pass
