"""What the tests of the client share: a root in memory, with a scope and streams in it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from pravega_spark import StreamManager


@pytest.fixture
def url() -> str:
    """The URL of a new root."""
    return f"memory://{uuid.uuid4()}"


@pytest.fixture
def manager(url: str) -> Iterator[StreamManager]:
    """A manager of a root with the streams `one` (1 segment) and `four` (4 segments) in scope `sc`."""
    with StreamManager(url) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "one", 1)
        manager.create_stream("sc", "four", 4)
        yield manager
