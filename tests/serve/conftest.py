"""A root with streams, and a server that allows changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pravega_spark import StreamManager
from pravega_spark.streams.model.key_value_table import KeyValueTableConfiguration
from tests.support.served import Served, served


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[StreamManager]:
    """Stream sc/one of 100 events, and a reader group that has read none of them; key-value table sc/prices of one."""
    with StreamManager(str(tmp_path / "root"), create=True) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "one", 2)
        with manager.create_writer("sc", "one") as writer:
            writer.write_events([f"{number}" for number in range(100)], [f"{number}" for number in range(100)])
        manager.create_reader_group("rg", "sc", "one")
        manager.create_key_value_table("sc", "prices", KeyValueTableConfiguration(1, 2))
        manager.key_value_table("sc", "prices").put(b"ab", b"value")
        yield manager


@pytest.fixture
def server(manager: StreamManager) -> Iterator[Served]:
    """A server of it, with the token of tests."""
    with served(manager) as found:
        yield found
