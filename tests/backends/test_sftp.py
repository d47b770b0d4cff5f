"""The suites on a filesystem that is no object store: SFTP, on OpenSSH."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chunkstore import Store
from tests.backends import suites
from tests.backends.suites import Place
from tests.support.sftp_server import SftpServer

BACKEND = "SFTP (paramiko)"
SERVER = "OpenSSH"


@pytest.fixture(scope="module")
def server(sftp_server: SftpServer) -> SftpServer:
    return sftp_server


@pytest.fixture
def place(server: SftpServer) -> Place:
    """A new one for each test: where there was an object in a folder, there cannot be one in the folder's place."""
    return suites.new_place(server)


@pytest.fixture
def store(place: Place) -> Iterator[Store]:
    yield from suites.opened(place)


TestPort = suites.Port
TestSegments = suites.Segments
TestSelfTest = suites.SelfTest
TestRace = suites.Race
TestWal = suites.Wal
TestSpark = suites.SparkBatch
