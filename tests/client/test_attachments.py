"""Much data of an event writer: it goes to chunks, once, and the append of these keeps what all appends keep."""

from __future__ import annotations

import itertools
import threading
import uuid
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from chunkstore.paths import SYSTEM
from chunkstore.testing import FaultStore, fail_at
from chunkstore.testing.faults import When
from engine.logs.log import frames_folder
from engine.root import Root
from engine.settings import Settings
from engine.storage.object_reads import Stores
from pravega_spark import StreamManager, StreamSealed, WriteFailed
from pravega_spark.client.writer import EventWriter
from pravega_spark.streams.stream import Stream


@pytest.fixture
def root() -> Root:
    settings = Settings(attach_bytes=1000, maintenance=False)
    return Root.open(f"memory://{uuid.uuid4()}", containers=1, create=True, settings=settings)


@pytest.fixture
def manager(root: Root) -> Iterator[StreamManager]:
    with StreamManager.over(root) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "one", 1)
        manager.create_stream("sc", "two", 2)
        yield manager


def column(first: int, count: int = 60) -> tuple[list[str], list[str]]:
    """Events `key:number` of 20 KB, by default so many that they are not copied to others, and their keys."""
    keys = [f"key-{number % 7}" for number in range(first, first + count)]
    return [f"{key}:{number:06}:{'x' * 20_000}" for number, key in enumerate(keys, first)], keys


def events_of(manager: StreamManager, stream: str) -> list[str]:
    return [event.data.decode() for event in manager.read_events("sc", stream)]


def chunks_of(root: Root) -> dict[str, int]:
    return {info.path: info.size for info in root.stores.chunks.list("") if not info.path.startswith(SYSTEM)}


def check_order(found: list[str], written: list[str]) -> None:
    """All are there, once, and those of a key as they were written."""
    assert sorted(found) == sorted(written)
    by_key: dict[str, list[str]] = defaultdict(list)
    for event in found:
        by_key[event.split(":")[0]].append(event)
    assert all(events == sorted(events) for events in by_key.values())


def test_bytes_are_written_once(manager: StreamManager, root: Root) -> None:
    written: list[str] = []
    with manager.create_writer("sc", "one") as writer:
        for number in range(5):
            events, keys = column(60 * number)
            writer.write_events(events, keys)
            written += events
    assert events_of(manager, "one") == written
    container = root.container(0)
    chunks = chunks_of(root)
    size = sum(len(event) + 8 for event in written)
    assert sum(chunks.values()) == size
    frames = root.stores.log.list(frames_folder(container.number))
    assert sum(info.size for info in frames) < size
    container.flush()
    assert chunks.items() <= chunks_of(root).items(), "they are taken over as they are"
    data = {name: length for name, length in chunks_of(root).items() if "index" not in name}
    assert sum(data.values()) == size, "and nothing is copied"
    assert events_of(manager, "one") == written


def test_little_and_much_keep_their_order(manager: StreamManager) -> None:
    written: list[str] = []
    with manager.create_writer("sc", "one") as writer:
        for number in range(12):
            events, keys = column(100 * number, (3, 60, 40)[number % 3])
            writer.write_events(events, keys)
            written += events
            if number % 4 == 3:
                event = f"key-1:{100 * number + 99:06}:"
                writer.write_event(event, "key-1")
                written.append(event)
            if number == 5:
                writer.flush()
                assert writer.durable_events == len(written)
    assert events_of(manager, "one") == written


def test_what_is_in_chunks_is_routed_again(manager: StreamManager, monkeypatch: pytest.MonkeyPatch) -> None:
    let, write, written = threading.Event(), Stream.write, list[str]()

    def waiting(*arguments: Any, **named: Any) -> bool:
        assert let.wait(60)
        return write(*arguments, **named)

    monkeypatch.setattr(Stream, "write", waiting)
    with manager.create_writer("sc", "two") as writer:
        for number in range(8):
            events, keys = column(60 * number)
            writer.write_events(events, keys)
            written += events
        sealed = [segment.id for segment in manager.stream_info("sc", "two").segments]
        manager.scale_stream("sc", "two", sealed, [(0.0, 0.3), (0.3, 0.6), (0.6, 1.0)])
        let.set()
        writer.flush()
    check_order(events_of(manager, "two"), written)


def test_a_sealed_stream_takes_nothing(manager: StreamManager, root: Root) -> None:
    writer = manager.create_writer("sc", "one")
    manager.seal_stream("sc", "one")
    before = chunks_of(root)
    writer.write_events(*column(0))
    with pytest.raises(StreamSealed):
        writer.close()
    assert events_of(manager, "one") == [] and chunks_of(root) == before


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("forever", [False, True], ids=["once", "forever"])
def test_a_storage_that_fails_at_every_request(when: When, forever: bool) -> None:
    """What is there is the beginning of what was written, what was confirmed is there, and every failure is told."""
    for number in itertools.count(1, 2):
        url = f"memory://{uuid.uuid4()}"
        with StreamManager(url, create=True) as manager:
            manager.create_scope("sc")
            manager.create_stream("sc", "one", 1)
            root = Root.open(url, settings=Settings(attach_bytes=1000, maintenance=False, timeout=0.05))
            store = FaultStore(root.stores.log)
            root.stores = Stores(store, store)
            stream = Stream(root, "sc", "one")
            stream.snapshot()
            writer = EventWriter(stream)
            last = store.passed + number
            store.plan = fail_at(last, when, forever=forever)
            written: list[str] = []
            failed = False
            try:
                for turn in range(3):
                    events, keys = column(60 * turn)
                    written += events
                    writer.write_events(events, keys)
                writer.close()
            except WriteFailed:
                failed = True
            over = store.passed < last
            with StreamManager(url) as fresh:
                found = events_of(fresh, "one")
            assert found == written[: len(found)] and len(found) >= writer.durable_events
            assert failed or len(found) == len(written)
        if over:
            return
