"""Chunk storage: the contract on several stores, what each operation costs, full disks, what is measured and logged."""

from __future__ import annotations

import errno
import logging
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest

from chunkstore import StorageFull, StorageUnavailable, Store, open_store
from chunkstore.chunk_storage import ChunkHandle, ChunkStorage
from chunkstore.errors import ChunkNotFound, ChunkStorageFull, InvalidOffset
from chunkstore.metrics import Metrics, default_metrics
from chunkstore.testing import CountingStore, FaultStore, SimulatedStore, fail_at
from chunkstore.testing.contracts import refused
from tests.support.chunk_contracts import CONTENT, ChunkStorageContract, new_name


class TestLocal(ChunkStorageContract):
    @pytest.fixture(params=[True, False], ids=["appends", "does not append"])
    def storage(self, tmp_path: Path, request: pytest.FixtureRequest) -> ChunkStorage:
        return ChunkStorage(open_store(str(tmp_path / "made" / "by the store")), appends=request.param)


class TestMemory(ChunkStorageContract):
    @pytest.fixture
    def storage(self) -> Iterator[ChunkStorage]:
        store = open_store(f"memory://{uuid.uuid4().hex}/root")
        yield ChunkStorage(store)
        store.delete([info.path for info in store.list("")])


class TestSimulated(ChunkStorageContract):
    @pytest.fixture(params=[True, False], ids=["appends", "does not append"])
    def storage(self, request: pytest.FixtureRequest) -> ChunkStorage:
        return ChunkStorage(SimulatedStore(can_append=request.param))


class TestWrapped(ChunkStorageContract):
    @pytest.fixture
    def storage(self, tmp_path: Path) -> ChunkStorage:
        return ChunkStorage(CountingStore(FaultStore(open_store(str(tmp_path)))))


def test_capabilities_are_those_of_the_store(tmp_path: Path) -> None:
    folder = ChunkStorage(open_store(str(tmp_path)))
    assert folder.supports_append
    assert not ChunkStorage(folder.store, appends=False).supports_append
    assert not ChunkStorage(SimulatedStore(can_append=False)).supports_append


# -- what it costs

Operation = Callable[[ChunkStorage, ChunkHandle], object]
COSTS: list[tuple[str, Operation, list[str]]] = [
    ("create with content", lambda storage, handle: storage.create_with_content(new_name(), CONTENT), ["stat", "put"]),
    ("info", lambda storage, handle: storage.info(handle.name), ["stat"]),
    ("read", lambda storage, handle: storage.read(handle, 3, 5), ["read"]),
    ("read into", lambda storage, handle: storage.read_into(handle, 3, memoryview(bytearray(5))), ["read_into"]),
    ("write", lambda storage, handle: storage.write(handle, len(CONTENT), CONTENT), ["append"]),
    ("delete", lambda storage, handle: storage.delete(handle), ["delete"]),
    ("delete_all", lambda storage, handle: storage.delete_all([handle.name, new_name()]), ["delete"]),
    ("set read-only", lambda storage, handle: storage.set_read_only(handle, True), ["set_read_only"]),
    ("list", lambda storage, handle: storage.list("scope/"), ["list"]),
]


@pytest.mark.parametrize(("operation", "requests"), [cost[1:] for cost in COSTS], ids=[cost[0] for cost in COSTS])
def test_requests_of_an_operation(operation: Operation, requests: list[str]) -> None:
    store = CountingStore(SimulatedStore())
    storage = ChunkStorage(store)
    handle = storage.create_with_content(new_name(), CONTENT)
    store.reset()
    operation(storage, handle)
    assert [request.verb for request in store.requests] == requests


# -- what goes wrong


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    storage = ChunkStorage(open_store(str(tmp_path)))
    handle = storage.create_with_content(new_name(), b"")

    def full(*arguments: Any) -> Any:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", full)
        for operation in (
            lambda: storage.write(handle, 0, CONTENT),
            lambda: storage.create_with_content(new_name(), CONTENT),
        ):
            with pytest.raises(ChunkStorageFull, match="free some space") as raised:
                operation()
            assert isinstance(raised.value, StorageFull)
    assert storage.info(handle.name).length == 0
    assert storage.write(handle, 0, CONTENT) == len(CONTENT)
    assert len(storage.list("")) == 1


def test_a_response_that_is_lost() -> None:
    """The segment layer goes on under a new name, or learns from the offset that its write took place."""
    store = FaultStore(SimulatedStore())
    storage = ChunkStorage(store)
    handle = storage.create_with_content(new_name(), b"")
    store.plan = fail_at(store.passed + 1, "after")
    with pytest.raises(StorageUnavailable):
        storage.write(handle, 0, CONTENT)
    error = refused(InvalidOffset, storage.write, handle, 0, CONTENT)
    assert (error.expected, error.given) == (len(CONTENT), 0)


# -- what is measured and logged


def values_of(metrics: Metrics) -> dict[str, float]:
    lines = generate_latest(metrics.registry).decode().splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


def measured(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"pravega_chunks_{name}", labels)


def test_every_operation_is_measured() -> None:
    metrics = Metrics()
    storage = ChunkStorage(SimulatedStore(), metrics=metrics)
    for _, operation, _ in COSTS:
        operation(storage, storage.create_with_content(new_name(), CONTENT))
    public = {name for name in vars(ChunkStorage) if not name.startswith(("_", "supports"))}
    assert public == {sample.labels["operation"] for family in metrics.registry.collect() for sample in family.samples}


def test_counts_bytes_times_and_failures() -> None:
    metrics = Metrics()
    store = SimulatedStore()
    storage = ChunkStorage(store, metrics=metrics)
    handle = storage.create_with_content(new_name(), b"")
    storage.write(handle, 0, CONTENT)
    storage.write(handle, len(CONTENT), [b"12", b"345"])
    assert storage.read(handle, 0, 10) == storage.read(handle, 0, 10)
    for _ in range(2):
        with pytest.raises(InvalidOffset):
            storage.write(handle, 3, CONTENT)
    with pytest.raises(ChunkNotFound):
        storage.info(new_name())
    store.fail_before = 1.0
    with pytest.raises(StorageUnavailable):
        storage.read(handle, 0, 10)
    assert measured(metrics, "seconds_count", operation="write") == 4
    assert measured(metrics, "seconds_count", operation="read") == 3
    assert measured(metrics, "bytes_total", operation="write") == len(CONTENT) + 5
    assert measured(metrics, "bytes_total", operation="read") == 20
    assert measured(metrics, "failures_total", operation="write", error="InvalidOffset") == 2
    assert measured(metrics, "failures_total", operation="info", error="ChunkNotFound") == 1
    assert measured(metrics, "failures_total", operation="read", error="StorageUnavailable") == 1
    sums = [value for name, value in values_of(metrics).items() if name.startswith("pravega_chunks_seconds_sum")]
    assert len(sums) == 4 and all(value > 0 for value in sums)


def test_storages_of_one_process_share_their_metrics() -> None:
    before = (
        default_metrics().registry.get_sample_value(
            "pravega_chunks_seconds_count", {"operation": "create_with_content"}
        )
        or 0
    )
    for _ in range(2):
        ChunkStorage(SimulatedStore()).create_with_content(new_name(), b"")
    after = default_metrics().registry.get_sample_value(
        "pravega_chunks_seconds_count", {"operation": "create_with_content"}
    )
    assert after == before + 2


def test_every_operation_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "chunkstore.chunk_storage")
    storage = ChunkStorage(SimulatedStore())
    handle = storage.create_with_content("a\nb", CONTENT)
    with pytest.raises(InvalidOffset):
        storage.write(handle, 3, b"x")
    texts = [record.getMessage() for record in caplog.records if record.name == "chunkstore.chunk_storage"]
    assert len(texts) == 2
    assert texts[0].startswith("create_with_content 'a\\nb' at 0: done, 1000 bytes, ")
    assert texts[1].startswith("write 'a\\nb' at 3: InvalidOffset, 0 bytes, ")


def test_a_storage_shows_no_more_than_its_root() -> None:
    store: Store = SimulatedStore(seed=5)
    assert repr(ChunkStorage(store)) == "ChunkStorage(SimulatedStore('simulated://5'))"
