"""The suites on the memory of this process, but for those that take several processes."""

from __future__ import annotations

import sys
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from chunkstore import Store, open_store
from chunkstore.testing.contracts import WaysToCut
from tests.backends import suites
from tests.backends.racing import check, look_on, names_of, write
from tests.backends.suites import Place

BACKEND = "memory"
SERVER = "none"
WRITERS, READERS = 8, 2


@pytest.fixture
def place() -> Place:
    return f"memory://{uuid.uuid4().hex}/root", {}


@pytest.fixture
def store(place: Place) -> Iterator[Store]:
    store = open_store(*place)
    yield store
    suites.empty(store)


@pytest.fixture
def ways_to_cut() -> WaysToCut:
    """None: nothing lies between this process and its memory."""
    return []


TestPort = suites.Port
TestSelfTest = suites.SelfTest
TestWal = suites.Wal


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Threads take turns after every few steps."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hasty_threads")
def test_a_race_of_threads(place: Place) -> None:
    names, together = names_of(200), threading.Barrier(WRITERS)
    with ThreadPoolExecutor(WRITERS + READERS) as threads:
        readers = [threads.submit(look_on, *place, names) for _ in range(READERS)]
        writers = [threads.submit(write, *place, names, together) for _ in range(WRITERS)]
        check(*place, names, [told.result() for told in writers], [told.result() for told in readers])
