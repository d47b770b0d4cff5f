"""Somebody deleted objects by hand: whoever reads what was in them is told which, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.root import Root
from pravega_spark import ByteStreamError, ObjectLost, StreamManager
from pravega_spark.streams.catalog import Catalog

REMEDY = "though the container's state names it. Restore the object from a copy; `pravega-spark verify` tells what else"


@pytest.fixture
def damaged(tmp_path: Path) -> Iterator[StreamManager]:
    """A manager of a root with two streams, whose data were in chunks that are gone."""
    url = str(tmp_path)
    with StreamManager(url) as manager:
        manager.create_scope("s")
        manager.create_stream("s", "t")
        with manager.create_writer("s", "t") as writer:
            writer.write_events([b"event" * 100] * 100, ["key"] * 100)
        manager.create_stream("s", "bytes")
        with manager.create_byte_stream("s", "bytes") as stream:
            stream.write(b"byte" * 100)
    with Root.open(url) as root:
        for name in ("t", "bytes"):
            Catalog(root).stream("s", name).container.flush()
    for path in (tmp_path / "s").rglob("*"):
        if path.is_file() and "#index" not in path.name:
            path.unlink()
    with StreamManager(url) as manager:
        yield manager


def events(manager: StreamManager) -> object:
    return list(manager.read_events("s", "t"))


def columns(manager: StreamManager) -> object:
    return manager.to_arrow("s", "t")


def raw(manager: StreamManager) -> object:
    return manager.create_byte_stream("s", "bytes").read(10)


def last(manager: StreamManager) -> object:
    return list(manager.last_events("s", "t"))


@pytest.mark.parametrize("read", [events, columns, raw, last])
def test_each_way_of_reading_says_what_is_gone(damaged: StreamManager, read: Callable[[StreamManager], object]) -> None:
    with pytest.raises((ObjectLost, ByteStreamError), match=REMEDY) as caught:
        read(damaged)
    assert "/0.#epoch.0." in str(caught.value)
