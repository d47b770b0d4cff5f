"""Readers that do not wait, a clock that only tests move, and two processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.root import Root
from pravega_spark import StreamManager
from pravega_spark.client.groups import reader as group_reader
from tests.client.groups.reading import Clock
from tests.support import limits


@pytest.fixture
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty slice comes at once."""
    limits.slice_patience(monkeypatch, 0.0)
    monkeypatch.setattr(group_reader, "POLL", 0.005)


@pytest.fixture
def clock() -> Iterator[Clock]:
    clock = Clock()
    yield clock
    for group in clock.groups:
        group.end_threads()


@pytest.fixture
def roots(url: str, manager: StreamManager) -> Iterator[tuple[Root, Root]]:
    """Two processes, so to speak."""
    with Root.open(url) as one, Root.open(url) as other:
        yield one, other
