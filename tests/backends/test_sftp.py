"""The suites on a filesystem without an adapter of its own: SFTP, on OpenSSH."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chunkstore import Store
from chunkstore.testing.contracts import WaysToCut
from chunkstore.testing.sftp_server import SftpServer
from tests.backends import suites
from tests.backends.suites import Place

BACKEND = "any other fsspec filesystem: SFTP (paramiko)"
SERVER = "OpenSSH"


@pytest.fixture
def place(sftp_server: SftpServer) -> Place:
    """A new one for each test: where there was an object in a folder, there cannot be one in the folder's place."""
    return suites.new_place(sftp_server)


@pytest.fixture
def store(place: Place) -> Iterator[Store]:
    yield from suites.opened(place)


@pytest.fixture
def ways_to_cut(sftp_server: SftpServer, place: Place) -> Iterator[WaysToCut]:
    yield from suites.cut_connections(sftp_server, place)


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
