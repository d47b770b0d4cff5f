"""A container on a filesystem that is nearly full (P6): what is refused, and what goes on."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from chunkstore import ObjectInfo, StorageFull
from chunkstore.backends.local import LocalStore
from engine.containers.container import Container
from engine.logs.log import checkpoints_folder
from engine.settings import Settings
from engine.state.operations import Append, MergeSegment, Payload, TruncateSegment
from engine.storage.object_reads import Stores
from tests.support.small_disk import SmallDisk

CAPACITY, KEPT = 16 << 20, 1 << 20
QUIET = Settings(maintenance=False, threaded=False, cache_bytes=0)


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SmallDisk:
    return SmallDisk(tmp_path, CAPACITY, monkeypatch)


def opened(disk: SmallDisk, settings: Settings = QUIET) -> Container:
    store = LocalStore(str(disk.folder), min_free=KEPT)
    return Container(Stores(store, store), 0, settings)


SMALL: dict[str, Callable[[Container], object]] = {
    "append": lambda container: container.append("s/a", b"x"),
    "new segment": lambda container: container.create_segment("s/new"),
    "submitted append": lambda container: container.submit_append("s/a", b"x").result(),
}
FREEING: dict[str, Callable[[Container], object]] = {
    "truncate": lambda container: container.truncate("s/a", 50),
    "seal": lambda container: container.seal("s/a"),
    "delete": lambda container: container.delete("s/a"),
    "merge": lambda container: container.merge("s/a", "s/b"),
    "merge with an index": lambda container: container.commit(
        [Append("s/a", Payload(b"record")), MergeSegment("s/a", "s/b")]
    ),
    "compaction of a state": lambda container: container.commit(
        [Append("s/a", Payload(b"state")), TruncateSegment("s/a", 50)]
    ),
    "refresh": lambda container: container.refresh(),
    "truncate the log": lambda container: container.truncate_log(),
    "collect garbage": lambda container: container.collect_garbage(),
}


@pytest.mark.parametrize("what", SMALL)
def test_small_additions_leave_half_of_what_is_kept(disk: SmallDisk, what: str) -> None:
    with opened(disk) as container:
        container.create_segment("s/a")
        disk.leave(KEPT // 2 + (64 << 10))
        with pytest.raises(StorageFull):
            container.check_room()
        SMALL[what](container)
        if what == "new segment":
            container.delete("s/new")
        disk.leave(KEPT // 2 - 4096)
        with pytest.raises(StorageFull, match="kept for deletions and maintenance"):
            SMALL[what](container)


@pytest.mark.parametrize("what", FREEING)
def test_what_frees_space_goes_on_to_the_last(disk: SmallDisk, what: str) -> None:
    with opened(disk) as container:
        for name in ("s/a", "s/b"):
            container.create_segment(name)
            container.append(name, b"x" * 100)
        container.seal("s/b")
        container.flush()
        disk.leave(KEPT // 16)
        FREEING[what](container)


def test_what_waits_in_the_log_can_always_be_copied(disk: SmallDisk) -> None:
    """It is counted as needed, so that a flush finds room for it."""
    with opened(disk) as container:
        container.create_segment("s/a")
        container.append("s/a", bytes(3 << 20))
        disk.leave(KEPT + (3 << 20))
        with pytest.raises(StorageFull, match=r"\d+ of which are needed for what is under way"):
            container.check_room()
        container.flush()
        assert disk.free >= KEPT - (128 << 10)


def test_a_flush_takes_no_more_than_there_is_room_for(disk: SmallDisk) -> None:
    with opened(disk) as container:
        container.create_segment("s/a")
        data = bytes(range(256)) * (4 << 12)  # 4 MiB
        container.append("s/a", data)
        disk.leave(KEPT + (1 << 20))
        with pytest.raises(StorageFull):
            container.flush()
        moved = container.info("s/a").storage_length
        assert 1 << 20 < moved < len(data)
        assert KEPT // 8 < disk.free < KEPT // 2
        with pytest.raises(StorageFull):
            container.flush()
        assert disk.free > KEPT // 8, "a flush that cannot copy anything writes nothing"
        disk.others = 0
        container.flush()
        assert container.info("s/a").storage_length == len(data)
        assert container.read("s/a", 0, len(data)) == data


def test_the_last_is_not_for_checkpoints(disk: SmallDisk) -> None:
    with opened(disk) as container:
        container.create_segment("s/a")
        disk.leave(KEPT // 8 + (32 << 10))
        container.checkpoint()
        disk.leave(KEPT // 8 - 4096)
        free = disk.free
        with pytest.raises(StorageFull):
            container.checkpoint()
        assert disk.free == free


def test_a_large_object_leaves_most_of_the_last_room(disk: SmallDisk) -> None:
    store = LocalStore(str(disk.folder), min_free=KEPT)
    store.put("first", b"")
    disk.leave(KEPT // 2)
    with pytest.raises(StorageFull, match=r"'large' has 262144 bytes, and is not written"):
        store.put("large", bytes(KEPT // 4))
    with pytest.raises(StorageFull):
        store.put_if_absent("large", bytes(KEPT // 4))
    store.put("large", bytes(KEPT // 16))
    with pytest.raises(StorageFull):
        store.append("large", KEPT // 16, bytes(KEPT // 4))
    for number in range(disk.free // 4096 - 1):
        store.put(f"small/{number}", bytes(4096))


def test_a_filesystem_that_does_not_tell_its_size_is_not_taken_for_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=0, f_frsize=4096, f_blocks=0))
    store = LocalStore(str(tmp_path))
    store.check_room(1 << 30)
    store.put("large", bytes(1 << 20))


def test_where_nothing_is_kept_all_of_it_is_used(disk: SmallDisk) -> None:
    store = LocalStore(str(disk.folder), min_free=0)
    store.put("first", b"")
    disk.leave(1 << 20)
    store.check_room(1 << 30)
    store.put("large", bytes(1 << 20))
    with pytest.raises(StorageFull, match="the filesystem is full"):
        store.put("other", b"x")


class Older(LocalStore):
    """All objects were made a hundred seconds earlier."""

    def list(self, prefix: str, after: str = "", limit: int | None = None) -> list[ObjectInfo]:
        return [dataclasses.replace(info, modified=info.modified - 100) for info in super().list(prefix, after, limit)]


def test_checkpoints_that_come_fast_are_deleted_when_they_are_many_bytes(tmp_path: Path) -> None:
    """Not only after half of the grace period: until then they would take gigabytes."""
    store, steps = Older(str(tmp_path)), itertools.count()
    settings = Settings(threaded=False, checkpoint_frames=1)
    with Container(Stores(store, store), 0, settings, clock=lambda: next(steps) / 1000) as container:
        container.create_segment("s/a")
        container.put_entries("t", {f"key {number}": bytes(100_000) for number in range(20)})
        for _ in range(60):
            container.append("s/a", b"x" * 100)
        listed = store.list(checkpoints_folder(0))
        assert int(listed[-1].path[-20:]) > 50 and len(listed) < 20


def test_writes_that_are_refused_start_what_frees_space(disk: SmallDisk) -> None:
    """Otherwise a process that only writes would wait for others: what it wrote is in the log and not in LTS."""
    with opened(disk, Settings(threaded=False, flush_bytes=1 << 30)) as container:
        container.create_segment("s/a")
        container.append("s/a", bytes(2 << 20))
        disk.leave(KEPT + (2 << 20))
        with pytest.raises(StorageFull):
            container.check_room()
        assert container.info("s/a").storage_length == 2 << 20
