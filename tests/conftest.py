"""What tests of several packages share: servers, each started when the first test asks for it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TypeVar

import pytest

from chunkstore.testing.azurite import Azurite
from chunkstore.testing.gcs_server import GcsServer
from chunkstore.testing.rados_gateway import RadosGateway
from chunkstore.testing.s3_server import S3Server
from chunkstore.testing.servers import Server, ServerMissing
from chunkstore.testing.sftp_server import SftpServer

pytest_plugins = ["tests.backend_table"]
pytest.register_assert_rewrite(
    "chunkstore.testing.contracts",
    "chunkstore.testing.chunk_contracts",
    "chunkstore.testing.metadata_contracts",
    "chunkstore.testing.segment_contracts",
    "engine.testing.contracts",
    "tests.backends.suites",
)

REQUIRED = "PRAVEGA_SERVERS_REQUIRED"
"""The environment variable that turns a skip for a server that is not installed into a failure."""

AnyServer = TypeVar("AnyServer", bound=Server)


LONGEST = (
    "tests/spark/test_kill_matrix.py",
    "tests/spark/",
    "tests/notebooks/",
    "tests/client/test_processes.py",
    "tests/backends/",
    "tests/engine/test_crash.py",
    "tests/engine/test_log_simulated.py",
)
"""The files that take longest come first, so that no process is left with one of them in the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def place(item: pytest.Item) -> int:
        return next((place for place, name in enumerate(LONGEST) if item.nodeid.startswith(name)), len(LONGEST))

    items.sort(key=place)


def running(kind: type[AnyServer]) -> Iterator[AnyServer]:
    """A server in a process of its own, one for every process of pytest-xdist."""
    try:
        server = kind()
    except ServerMissing as missing:
        if os.environ.get(REQUIRED):
            pytest.fail(str(missing))
        pytest.skip(str(missing))
    with server:
        yield server


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """moto, which is quick to start and meets requests with faults."""
    yield from running(S3Server)


@pytest.fixture(scope="session")
def rados_gateway() -> Iterator[RadosGateway]:
    """Ceph's S3."""
    yield from running(RadosGateway)


@pytest.fixture(scope="session")
def gcs_server() -> Iterator[GcsServer]:
    """Google Cloud Storage as we understand it."""
    yield from running(GcsServer)


@pytest.fixture(scope="session")
def azurite() -> Iterator[Azurite]:
    """Azure's own emulator."""
    yield from running(Azurite)


@pytest.fixture(scope="session")
def sftp_server() -> Iterator[SftpServer]:
    """OpenSSH."""
    yield from running(SftpServer)
