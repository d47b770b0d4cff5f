"""Fixtures of the suites on a server: a module's fixture `server` names it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chunkstore import Store
from chunkstore.testing.contracts import WaysToCut
from tests.backends import suites
from tests.backends.suites import Place
from tests.support.servers import Server


@pytest.fixture(scope="module")
def place(server: Server) -> Place:
    return suites.new_place(server)


@pytest.fixture(scope="module")
def module_store(place: Place) -> Iterator[Store]:
    """One for all tests: a new one takes a moment for its first request."""
    yield from suites.opened(place)


@pytest.fixture
def store(module_store: Store) -> Iterator[Store]:
    yield module_store
    suites.empty(module_store)


@pytest.fixture
def ways_to_cut(server: Server, place: Place) -> Iterator[WaysToCut]:
    yield from suites.cut_connections(server, place)
