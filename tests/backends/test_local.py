"""The suites on a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from chunkstore import Store, open_store
from tests.backends import suites
from tests.backends.suites import Place

BACKEND = "folder"
SERVER = "none"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return str(tmp_path / "made" / "by the store"), {}


@pytest.fixture
def store(place: Place) -> Store:
    return open_store(*place)


class TestPort(suites.Port):
    pass


class TestChunks(suites.Chunks):
    pass


class TestSelfTest(suites.SelfTest):
    pass


class TestRace(suites.Race):
    names, writers, readers = 200, 8, 2


class TestWal(suites.Wal):
    pass


class TestSpark(suites.Spark):
    pass
