"""What tests of several packages share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chunkstore.testing.s3_server import S3Server

pytest.register_assert_rewrite("chunkstore.testing.contracts", "engine.testing.contracts")


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """An S3 server in another process, one for every process of pytest-xdist."""
    with S3Server() as server:
        yield server
