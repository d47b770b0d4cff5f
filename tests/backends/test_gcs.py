"""The suites on Google Cloud Storage, on a small server of our own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chunkstore import Store
from chunkstore.testing.contracts import WaysToCut
from chunkstore.testing.gcs_server import GcsServer
from tests.backends import suites
from tests.backends.suites import Place

BACKEND = "Google Cloud Storage (gcsfs)"
SERVER = "a small one of this project"


@pytest.fixture(scope="module")
def place(gcs_server: GcsServer) -> Place:
    return suites.new_place(gcs_server)


@pytest.fixture(scope="module")
def module_store(place: Place) -> Iterator[Store]:
    """One for all tests: a new one takes a moment for its first request."""
    yield from suites.opened(place)


@pytest.fixture
def store(module_store: Store) -> Iterator[Store]:
    yield module_store
    suites.empty(module_store)


@pytest.fixture
def ways_to_cut(gcs_server: GcsServer, place: Place) -> Iterator[WaysToCut]:
    yield from suites.cut_connections(gcs_server, place)


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
