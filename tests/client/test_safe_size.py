"""A root on a filesystem with little room: users' data is refused, and what frees space goes on (Pravega:
ChunkedSegmentStorageConfig.maxSafeStorageSize, ChunkedSegmentStorageTests.testFullStorage)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chunkstore import StorageFull, StorageRefused, open_store
from chunkstore.backends.local import LocalStore
from pravega_spark import (
    KeyValueTableConfiguration,
    StreamManager,
    StreamRetentionPolicy,
    TableKey,
    WriteFailed,
)
from pravega_spark.jobs import maintain
from pravega_spark.jobs.outcome import failures
from pravega_spark.jobs.spread import Target
from pravega_spark.streams.writing.chunk_uploads import ChunkUploads

TOO_MUCH = 1 << 60
"""More than any filesystem has."""


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A root with a stream of 10 events, a stream for bytes and a key-value table."""
    with StreamManager(str(tmp_path)) as manager:
        manager.create_scope("sc")
        manager.create_stream_with_policy("sc", "one", retention_policy=StreamRetentionPolicy.by_size(1000))
        manager.create_stream("sc", "bytes")
        manager.create_key_value_table("sc", "table", KeyValueTableConfiguration(1, 1))
        with manager.create_writer("sc", "one") as writer:
            writer.write_events([f"event {number}" for number in range(10)])
        manager.key_value_table("sc", "table").put(TableKey(b"k"), b"value")
    return str(tmp_path)


def large_event(manager: StreamManager, size: int) -> None:
    with manager.begin_event("sc", "one") as event:
        event.write(bytes(size))
        event.commit()


def event_of_a_writer(manager: StreamManager, size: int) -> None:
    with manager.create_writer("sc", "one") as writer:
        writer.write_events([bytes(1000)] * (size // 1000 + 1))


WRITES: dict[str, Callable[[StreamManager], Any]] = {
    "write_events": lambda manager: manager.write_events("sc", "one", _table(10)),
    "write_events, large": lambda manager: manager.write_events("sc", "one", _table(10_000_000)),
    "new transaction": lambda manager: manager.create_transaction_writer("sc", "one").begin_txn(),
    "byte stream": lambda manager: manager.create_byte_stream("sc", "bytes").write(b"a"),
    "key-value table": lambda manager: manager.key_value_table("sc", "table").put(TableKey(b"k"), b"other"),
    "large event": lambda manager: large_event(manager, 10_000_000),
    "small event as a file": lambda manager: large_event(manager, 10),
}


def _table(size: int) -> Any:
    import pyarrow as pa

    return pa.table({"event": pa.array([bytes(1000)] * (size // 1000 + 1), pa.binary())})


@pytest.mark.parametrize("what", WRITES)
def test_each_write_is_refused(folder: str, what: str) -> None:
    with StreamManager(folder, min_free=TOO_MUCH) as manager:
        with pytest.raises(StorageFull, match=rf"{TOO_MUCH} are kept for deletions and maintenance.*'min_free'"):
            WRITES[what](manager)
        assert manager.stream_info("sc", "one").events == 10


def test_an_open_transaction_takes_no_more_events_and_is_committed(folder: str) -> None:
    with StreamManager(folder, min_free=0) as manager:
        open_one = manager.create_transaction_writer("sc", "one").begin_txn()
        open_one.write_event("one")
        open_one.flush()
        number = open_one.get_txn_id()
    with StreamManager(folder, min_free=TOO_MUCH) as manager:
        again = manager.create_transaction_writer("sc", "one").get_txn(number)
        with pytest.raises(StorageFull):
            again.write_event("two")
            again.flush()
        manager.create_transaction_writer("sc", "one").get_txn(number).commit()
        assert manager.stream_info("sc", "one").events == 11


def test_no_chunk_is_written_for_a_write_that_would_be_refused(tmp_path: Path) -> None:
    uploads = ChunkUploads[None](LocalStore(str(tmp_path), min_free=TOO_MUCH), 1, "chunks")
    with pytest.raises(StorageFull):
        uploads.send(None, "sc/one/0.#epoch.0", [[b"data"]])
    uploads.close()
    assert not uploads.names and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("size", [10, 10_000_000])
def test_an_event_writer_fails(folder: str, size: int) -> None:
    with StreamManager(folder, min_free=TOO_MUCH) as manager:
        with pytest.raises(WriteFailed, match="are kept for deletions and maintenance") as caught:
            event_of_a_writer(manager, size)
        assert isinstance(caught.value.__cause__, StorageFull)
        assert manager.stream_info("sc", "one").events == 10


def test_what_frees_space_goes_on(folder: str) -> None:
    with StreamManager(folder, min_free=TOO_MUCH) as manager:
        assert len(list(manager.read_events("sc", "one"))) == 10
        assert manager.retain("sc", "one", period=0).recorded is not None
        manager.truncate_stream("sc", "one", "latest")
        manager.key_value_table("sc", "table").remove(TableKey(b"k"))
        group = manager.create_reader_group("readers", "sc", "one")
        group.reset("earliest")
        manager.seal_stream("sc", "one")
        manager.delete_stream("sc", "one")
        for number in range(manager.root.config.containers):
            manager.root.container(number).flush()
        assert manager.create_stream("sc", "one")
    outcomes = maintain.run(Target(folder, storage={"min_free": TOO_MUCH}))
    assert not failures(outcomes)
    with StreamManager(folder, min_free=0) as manager:
        event_of_a_writer(manager, 10)
        assert manager.delete_scope("sc", force=True)


def test_how_much_is_kept(tmp_path: Path) -> None:
    open_store(str(tmp_path)).check_room()
    open_store(str(tmp_path / "not there"), {"min_free": TOO_MUCH}).check_room()
    open_store("memory://a").check_room()
    for given in (str(TOO_MUCH), TOO_MUCH):
        with pytest.raises(StorageFull):
            open_store(str(tmp_path), {"min_free": given}).check_room()
    for wrong in ("1 GiB", -1, 1.5, True):
        with pytest.raises(StorageRefused, match="'min_free' must be a number of bytes"):
            open_store(str(tmp_path), {"min_free": wrong})


def test_a_filesystem_that_had_room_is_not_asked_again_at_once(tmp_path: Path) -> None:
    now = [0.0]
    store = LocalStore(str(tmp_path / "later"), min_free=TOO_MUCH, clock=lambda: now[0])
    store.check_room()  # there is nothing yet
    (tmp_path / "later").mkdir()
    with pytest.raises(StorageFull):
        store.check_room()
    roomy = LocalStore(str(tmp_path), min_free=0, clock=lambda: now[0])
    for _ in range(3):
        roomy.check_room()
        now[0] += 0.05
