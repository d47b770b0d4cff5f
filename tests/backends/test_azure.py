"""The suites on Azure's blobs, on Azurite."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chunkstore import Store
from chunkstore.testing.azurite import Azurite
from chunkstore.testing.contracts import WaysToCut
from tests.backends import suites
from tests.backends.suites import Place

BACKEND = "Azure Blob Storage, ADLS (adlfs)"
SERVER = "Azurite"


@pytest.fixture(scope="module")
def place(azurite: Azurite) -> Place:
    return suites.new_place(azurite)


@pytest.fixture(scope="module")
def module_store(place: Place) -> Iterator[Store]:
    """One for all tests: a new one takes a moment for its first request."""
    yield from suites.opened(place)


@pytest.fixture
def store(module_store: Store) -> Iterator[Store]:
    yield module_store
    suites.empty(module_store)


@pytest.fixture
def ways_to_cut(azurite: Azurite, place: Place) -> Iterator[WaysToCut]:
    yield from suites.cut_connections(azurite, place)


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
