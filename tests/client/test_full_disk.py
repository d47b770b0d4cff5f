"""A root that fills its filesystem: what is kept free is never used up by what frees nothing, so that the root can be
freed again by its own commands (P6)."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from chunkstore import StorageError, StorageFull
from engine.admin.verify import verify
from engine.state.operations import Append, Payload
from pravega_spark import KeyValueTableConfiguration, StreamManager, StreamRetentionPolicy
from pravega_spark.jobs import maintain
from pravega_spark.jobs.outcome import failures
from pravega_spark.jobs.spread import Target
from tests.support.small_disk import SmallDisk, until_refused

CAPACITY, KEPT = 12 << 20, 1 << 20


def created(disk: SmallDisk, grace: float) -> StreamManager:
    settings = {"containers": 1, "grace_seconds": grace, "garbage_delay_seconds": grace}
    manager = StreamManager(str(disk.folder), settings=settings, create=True, min_free=KEPT)
    manager.create_scope("sc")
    for name in ("kept", "doomed"):
        manager.create_stream("sc", name)
    write(manager, "kept", [b"event %d" % number for number in range(100)])
    manager.root.container(0).create_segment("sc/position")
    return manager


def write(manager: StreamManager, stream: str, events: list[bytes]) -> None:
    manager.write_events("sc", stream, pa.table({"event": pa.array(events, pa.binary())}))


def fill(manager: StreamManager, size: int) -> None:
    for _ in range(20):
        until_refused(lambda: write(manager, "doomed", [bytes(size)] * 8), StorageFull, 10_000)
        manager.root.container(0).wait_for_upkeep()


def use_up_what_is_kept(manager: StreamManager) -> None:
    """All that programs and jobs do while they do not know that a disk is full."""
    container = manager.root.container(0)
    position = [Append("sc/position", Payload(b"position"))]
    steps: list[Callable[[], object]] = [
        manager.create_transaction_writer("sc", "doomed").begin_txn,
        lambda: container.commit(position),
        container.checkpoint,
        container.flush,
        container.truncate_log,
        container.collect_garbage,
    ]
    for number in range(600):
        with contextlib.suppress(StorageError):
            steps[number % len(steps) if number % 10 == 0 else number % 2]()


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SmallDisk:
    return SmallDisk(tmp_path, CAPACITY, monkeypatch)


@pytest.mark.parametrize("size", [2000, 100_000])
def test_a_disk_that_the_root_has_filled_can_be_freed(disk: SmallDisk, size: int) -> None:
    with created(disk, grace=0.5) as manager:
        fill(manager, size)
        use_up_what_is_kept(manager)
        manager.truncate_stream("sc", "doomed", "latest")
        target = Target(str(disk.folder), storage={"min_free": KEPT})
        deadline = time.monotonic() + 60
        while disk.free < CAPACITY // 2 and time.monotonic() < deadline:
            time.sleep(0.6)
            maintain.run(target)
        assert disk.free >= CAPACITY // 2
        assert not failures(maintain.run(target))
        write(manager, "doomed", [b"again"])
        assert next(event.data for event in manager.read_events("sc", "kept")) == b"event 0"
        assert not verify(manager.root, deep=True).errors


def test_the_last_of_a_disk_is_for_what_frees_space(disk: SmallDisk) -> None:
    """Here nothing can be freed, as all is younger than the grace period."""
    with created(disk, grace=3600.0) as manager:
        fill(manager, 20_000)
        assert KEPT // 2 < disk.free < 2 * KEPT
        use_up_what_is_kept(manager)
        assert KEPT // 8 < disk.free < KEPT // 2
        for _ in range(10):
            manager.truncate_stream("sc", "doomed", "latest")
        manager.seal_stream("sc", "doomed")
        manager.delete_stream("sc", "doomed")


def test_retention_and_deletion_go_on_to_the_last(disk: SmallDisk) -> None:
    """They are what a user does then, and each is several commits."""
    with created(disk, grace=3600.0) as manager:
        policy = StreamRetentionPolicy.by_size(1000)
        manager.create_stream_with_policy("sc", "old", retention_policy=policy)
        manager.create_key_value_table("sc", "table", KeyValueTableConfiguration(1, 1))
        transaction = manager.create_transaction_writer("sc", "kept").begin_txn()
        for _ in range(3):
            manager.retain("sc", "old", period=0)
            write(manager, "old", [bytes(2000)] * 10)
        manager.root.container(0).flush()
        disk.leave(KEPT // 8)
        retained = manager.retain("sc", "old", period=0)
        assert retained.recorded is not None and retained.truncated is not None
        transaction.abort()
        for stream in ("doomed", "old"):
            manager.seal_stream("sc", stream)
            manager.delete_stream("sc", stream)
        manager.delete_key_value_table("sc", "table")
        assert manager.delete_scope("sc", force=True)
