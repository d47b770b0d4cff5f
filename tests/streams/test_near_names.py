"""Streams whose names a storage takes for one and the same: each has its events, whatever becomes of the other (P5)."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest

from chunkstore import StorageError
from chunkstore.backends.memory import MemoryStore
from chunkstore.testing import FoldingStore
from engine.admin.root_gc import collect_garbage, find_garbage
from engine.root import Root, RootConfig
from engine.settings import Settings
from engine.storage.object_reads import Stores
from pravega_spark import StreamManager
from pravega_spark.checks import verify_root
from pravega_spark.streams.maintenance.chunk_ownership import ChunkOwnership
from pravega_spark.streams.pravega_lts.unfinished_imports import begin, finish

NEARLY = ["orders", "Orders", "orders.", "con", "Con", "a" * 250, "A" * 250]


@pytest.fixture
def store() -> FoldingStore:
    return FoldingStore(MemoryStore(uuid.uuid4().hex))


@pytest.fixture
def root(store: FoldingStore) -> Root:
    config = RootConfig(uuid.uuid4().hex, containers=2, grace_seconds=0.001, garbage_delay_seconds=0.001)
    return Root(Stores(store, store), config, Settings(maintenance=False))


def events(manager: StreamManager, scope: str, stream: str) -> list[str]:
    return [event.data.decode() for event in manager.read_events(scope, stream)]


def write(manager: StreamManager, scope: str, stream: str, numbers: range) -> None:
    with manager.create_writer(scope, stream) as writer:
        writer.write_events(pa.array([f"{scope}/{stream} {number}" for number in numbers]), ["k"] * len(numbers))


def flush(root: Root) -> None:
    for number in range(2):
        root.container(number).flush()


def collect(root: Root) -> int:
    """Orphans are looked for among all objects, however young."""
    found = find_garbage(root, ChunkOwnership(root), age=0.0)
    collect_garbage(root, found, share=1.0)
    return len(found.sweep.orphans)


def test_streams_with_names_that_nearly_meet_keep_their_events(root: Root) -> None:
    manager = StreamManager.over(root)
    left = {(scope, stream) for scope in ("sc", "Sc") for stream in NEARLY}
    for scope in ("sc", "Sc"):
        manager.create_scope(scope)
    for scope, stream in sorted(left):
        manager.create_stream(scope, stream)
    for numbers in (range(7), range(7, 20)):  # a second chunk, behind what was flushed
        for scope, stream in sorted(left):
            write(manager, scope, stream, numbers)
        flush(root)
        assert collect(root) == 0
    for scope, stream in sorted(left)[::2]:
        manager.seal_stream(scope, stream)
        manager.delete_stream(scope, stream)
        left.remove((scope, stream))
        flush(root)
    for _ in range(2):
        flush(root)
        assert collect(root) == 0
    assert not verify_root(root, deep=True).errors
    for scope, stream in left:
        assert events(manager, scope, stream) == [f"{scope}/{stream} {number}" for number in range(20)]


def test_the_storage_of_these_tests_would_lose_a_stream(store: FoldingStore) -> None:
    """With names as users gave them: an object of one is that of the other, and is listed below the first one's."""
    store.put("sc/Orders/1", b"one")
    store.put("sc/orders/1", b"other")
    assert store.read("sc/Orders/1") == b"other" and [info.path for info in store.list("")] == ["sc/Orders/1"]
    with pytest.raises(StorageError, match="does not take such a name"):
        store.put("sc/con/1", b"")


def test_imports_of_streams_with_names_that_nearly_meet_do_not(store: FoldingStore) -> None:
    begun = {name: begin(store, f"sc/{name}", b"source") for name in NEARLY}
    assert len({each.id for each in begun.values()}) == len(NEARLY)
    finish(store, "sc/orders")
    assert begin(store, "sc/Orders", b"source") == begun["Orders"]
    assert begin(store, "sc/orders", b"source").id != begun["orders"].id
