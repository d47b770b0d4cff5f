"""The six data flows of the Segment Store design, step by step as written there.

What the design leaves to a controller and to hosts is the root's business here: the container of a segment is found by
a hash of its name in the layer above.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from chunkstore import open_store
from chunkstore.testing import CountingStore
from engine.containers.container import Container
from engine.errors import SegmentNotFound, SegmentSealed, SegmentTruncated
from engine.logs import checkpoints
from engine.root import Root
from engine.settings import Settings
from engine.storage.object_reads import Stores

S, T = "scope/stream/0.#epoch.0", "scope/stream/0.#epoch.0#transaction.1"


@pytest.fixture
def store(tmp_path: Path) -> CountingStore:
    return CountingStore(open_store(str(tmp_path)))


def opened(store: CountingStore, **settings: object) -> Container:
    return Container(Stores(store, store), 0, Settings(maintenance=False, **settings))  # type: ignore[arg-type]


def test_append(store: CountingStore) -> None:
    with opened(store) as container:
        # the container verifies that the segment exists
        with pytest.raises(SegmentNotFound):
            container.append(S, b"nothing")
        container.create_segment(S)
        # the operation is queued, put into a frame, and the frame written to the log; then the metadata is updated
        store.reset()
        sequence = container.state.sequence
        future = container.submit_append(S, b"hello")
        receipt = future.result(30)
        assert store.count("put_if_absent") == 1
        assert container.state.sequence == sequence + 1
        assert receipt.results == [0]
        assert (container.info(S).length, container.info(S).storage_length) == (5, 0)
        # and a read is answered
        assert container.read(S, 0, 5) == b"hello"


def test_read(store: CountingStore) -> None:
    with opened(store) as container:
        container.create_segment(S)
        container.append(S, b"in LTS, ")
        container.flush()
        container.append(S, b"in the log")
    with opened(store) as container:
        # a read gives data from wherever it lies, and brings it into the cache
        assert container.read(S, 0, 18) == b"in LTS, in the log"
        before = store.bytes_read
        assert container.read(S, 0, 18) == b"in LTS, in the log"
        assert store.bytes_read == before
        # what is truncated says so
        container.truncate(S, 4)
        with pytest.raises(SegmentTruncated):
            container.read(S, 0, 5)
        with pytest.raises(SegmentNotFound):
            container.read("none", 0, 5)


def test_seal(store: CountingStore) -> None:
    with opened(store) as container:
        container.create_segment(S)
        container.append(S, b"data")
        container.seal(S)
        # after this no more appends are accepted, and the length is known
        with pytest.raises(SegmentSealed):
            container.append(S, b"more")
        info = container.info(S)
        assert (info.length, info.sealed, info.stored_sealed) == (4, True, False)
        # the storage writer seals it in LTS
        container.flush()
        info = container.info(S)
        assert (info.sealed, info.stored_sealed, info.storage_length) == (True, True, 4)


@pytest.mark.parametrize("flushed", [False, True], ids=["in the log", "in LTS"])
def test_merge(store: CountingStore, flushed: bool) -> None:
    with opened(store) as container:
        container.create_segment(S)
        container.append(S, b"parent, ")
        container.create_segment(T)
        container.append(T, b"transaction")
        if flushed:
            container.flush()
        container.seal(T)
        # the transaction is part of its parent at once, and by itself nothing any more
        assert container.merge(S, T) == 8
        with pytest.raises(SegmentNotFound):
            container.read(T, 0, 1)
        assert container.info(S).length == 19
        assert container.read(S, 0, 19) == b"parent, transaction"
        # the storage writer joins them in LTS, without copying
        store.reset()
        container.flush()
        assert flushed == (not sum(store.count(verb, "scope/") for verb in ("put", "append", "concat")))
        assert (container.info(S).storage_length, container.info(S).logged) == (19, 0)
        assert container.read(S, 0, 19) == b"parent, transaction"


def test_storage_writer(store: CountingStore) -> None:
    with opened(store) as container:
        container.create_segment(S)
        for number in range(100):
            container.append(S, b"%03d" % number)
        container.checkpoint()
        store.reset()
        # operations are aggregated: one write of 300 bytes
        assert container.flush() == 300
        chunks = list(store.list("scope/"))
        assert [info.size for info in chunks] == [300]
        # after every modification of LTS the metadata says so
        assert container.info(S).storage_length == 300
        assert container.state.cycle.complete
        assert store.count("put") + store.count("append") <= 4
        # and the log can be truncated
        assert container.state.logged_bytes == 0
        assert not list(container.state.logged())


def test_container_start(tmp_path: Path, store: CountingStore) -> None:
    with Root.open(str(tmp_path), containers=2) as root:
        container = root.container(1)
        container.create_segment(S)
        container.append(S, b"flushed")
        container.flush()
        container.checkpoint()
        container.append(S, b", logged")
        state = container.state
    with Root.open(str(tmp_path)) as root:
        # the manager creates, registers and starts the container
        assert root.containers.online == []
        container = root.container(1)
        assert root.containers.online == [1]
        # recovery: the checkpoint, and all operations behind it, give the metadata as it was
        (head, found), _ = checkpoints.read_newest(store, container.number)
        assert head.address < container.head.address
        assert found.sequence < state.sequence
        assert container.state == state
        # the container accepts requests
        assert container.read(S, 0, 15) == b"flushed, logged"
        container.append(S, b"!")
        root.containers.stop(1)
        assert root.containers.online == []
