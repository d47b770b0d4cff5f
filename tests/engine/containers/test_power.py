"""Power failures of a folder, at every call of the system: what was not synced is lost, names and data (G3).

A writer commits numbered batches. It is killed at a call, or the power fails there. In between others may look at the
folder: a reader that delivers, a driver that is started again and asks whether its batch is there already.
"""

import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest

from chunkstore import StorageRefused, open_store
from chunkstore.chunk_names import new_chunk_name
from chunkstore.paths import ROOT, container_folder
from engine.containers.container import Container
from engine.errors import BadAttributeUpdate, FrameDamaged, LogLost, SegmentNotFound
from engine.logs.log import frame_path
from engine.root import Root, RootConfig, marker
from engine.settings import Settings
from engine.state.operations import (
    Append,
    AttributeUpdate,
    CreateSegment,
    Operation,
    Payload,
    UpdateAttributes,
    UpdateKind,
)
from engine.storage.chunk_writer import write_chunk
from engine.storage.object_reads import Stores
from engine.storage.recovery import recover
from tests.support.power import Disk, Killed

QUERY = bytes(15) + b"q"
BATCHES = 5
SETTINGS = Settings(threaded=False, grace=1e-6, garbage_delay=0.0, checkpoint_frames=3, timeout=0.01)


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory if there is such a thing: the disks here are none."""
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tmp_path
    with tempfile.TemporaryDirectory(dir=where) as folder:
        yield Path(folder)


def opened(folder: str, settings: Settings = SETTINGS) -> Container:
    """A process of its own: its store knows nothing of what others did."""
    store = open_store(folder)
    return Container(Stores(store, store), 0, settings)


def text(number: int) -> bytes:
    return b"<%d>" % number


class Writer:
    """Commits batches; `acknowledged` is how many were."""

    def __init__(self) -> None:
        self.acknowledged = 0

    def run(self, folder: str) -> None:
        with suppress(Killed):
            container = opened(folder)
            container.commit([CreateSegment("s"), UpdateAttributes("s", (number_of(0),))])
            for number in range(1, BATCHES + 1):
                container.commit(batch(container, number))
                self.acknowledged = number
            container.flush()
            container.checkpoint()
            container.truncate_log()
            container.collect_garbage()


def number_of(number: int) -> AttributeUpdate:
    kind = UpdateKind.REPLACE_IF_GREATER if number else UpdateKind.NONE
    return AttributeUpdate(QUERY, kind, number)


def batch(container: Container, number: int) -> list[Operation]:
    """What the sink commits; every other time its data lies in a chunk of its own, which a task wrote."""
    guard = UpdateAttributes("s", (number_of(number),))
    if number % 2:
        return [guard, Append("s", Payload(text(number)))]
    chunks = container.stores.chunks
    extents = write_chunk(chunks, new_chunk_name("s", 0, 0), [[text(number)]])
    return [guard, Append("s", tuple(extents))]


def content(container: Container) -> bytes:
    try:
        return container.read("s", 0, container.info("s").length)
    except SegmentNotFound:
        return b""


class Seen(NamedTuple):
    """What somebody was told before the power failed: bytes that a reader got, batches that a driver may forget."""

    delivered: bytes = b""
    done: int = 0


def reader(folder: str, _: int) -> Seen:
    return Seen(delivered=content(opened(folder)))


def driver(folder: str, acknowledged: int) -> Seen:
    """Commits again the batch that it does not know to be there."""
    number = acknowledged + 1
    if number > BATCHES:
        return Seen()
    container = opened(folder)
    try:
        with suppress(SegmentNotFound):
            container.commit(batch(container, number))
            return Seen(done=number)
    except BadAttributeUpdate:
        return Seen(done=number)
    return Seen()


def nobody(folder: str, acknowledged: int) -> Seen:
    return Seen()


def fails_at(point: int, place: Path, other: Callable[[str, int], Seen]) -> bool:
    """Kill the writer at a call, let the other look, and let the power fail. False if the writer came to its end."""
    writer, disk = Writer(), Disk(str(place / "before"))
    with disk.mounted():
        disk.stop_at = point
        writer.run(disk.folder)
        reached = disk.calls >= point
        disk.revive()
        seen = other(disk.folder, writer.acknowledged)
    left = disk.after_power_failure(place / "after")
    with left.mounted():
        found = content(opened(left.folder))
    whole = b"".join(map(text, range(1, BATCHES + 1)))
    assert whole.startswith(found), "a batch is there in part, or twice, or before another"
    least = max(writer.acknowledged, seen.done)
    assert found.startswith(b"".join(map(text, range(1, least + 1)))), f"batch {least} was acknowledged, and is lost"
    assert found.startswith(seen.delivered), f"{seen.delivered!r} was delivered, and {found!r} is left"
    return reached


@pytest.mark.parametrize(
    ("first", "every"),
    [(1, 21), (8, 21), (15, 21), pytest.param(1, 1, marks=[pytest.mark.long, pytest.mark.timeout(600)])],
)
@pytest.mark.parametrize("other", [nobody, reader, driver])
def test_what_was_told_survives_a_power_failure(
    memory: Path, other: Callable[[str, int], Seen], first: int, every: int
) -> None:
    for point in count(first, every):
        place = memory / str(point)
        place.mkdir()
        if not fails_at(point, place, other):
            break
    assert point > 100


def test_frames_are_deleted_behind_durable_truncation_points_only(memory: Path) -> None:
    """Who made the truncation point was killed at each call; who truncates had opened the container before."""
    deleted, settings = 0, replace(SETTINGS, checkpoint_frames=1000)  # a second checkpoint would hide it
    for point in count(1):
        disk = Disk(str(memory / str(point)))
        with disk.mounted():
            maker, tidier = opened(disk.folder, settings), opened(disk.folder, settings)
            maker.create_segment("s")
            maker.append("s", b"content")
            maker.flush()
            tidier.refresh()
            disk.stop_at = disk.calls + point
            with suppress(Killed):
                maker.checkpoint()
            reached = disk.calls >= disk.stop_at
            disk.revive()
            tidier.truncate_log()
            deleted += tidier.truncate_log()  # what was seen the first time
        left = disk.after_power_failure(memory / f"{point} after")
        with left.mounted():
            assert content(opened(left.folder)) == b"content"
        if not reached:
            break
    assert deleted > 0


def test_what_hangs_on_a_recovered_log_survives(memory: Path) -> None:
    """Who recovered it was killed at each call, and another one appended to what he saw."""
    made = Disk(str(memory / "made"))
    with made.mounted():
        container = opened(made.folder)
        container.create_segment("s")
        container.append("s", b"content ")
        container.flush()
        container.close()
    appended = 0
    for point in count(1):
        shutil.copytree(made.folder, memory / str(point))
        for part in ("wal", "checkpoints"):
            shutil.rmtree(memory / str(point) / container_folder(0) / part)
        disk = Disk(str(memory / str(point)))
        with disk.mounted():
            store = open_store(disk.folder)
            disk.stop_at = disk.calls + point
            with suppress(Killed):
                recover(Stores(store, store), 0)
            reached = disk.calls >= disk.stop_at
            disk.revive()
            with suppress(LogLost):
                opened(disk.folder).append("s", b"acknowledged")
                appended += 1
        left = disk.after_power_failure(memory / f"{point} after")
        with left.mounted():
            if appended:
                assert content(opened(left.folder)) == b"content acknowledged"
        if not reached:
            break
    assert appended > 1


def test_what_hangs_on_a_repair_survives(memory: Path) -> None:
    """Who repaired the log was killed at each call; another one goes past the damage by that, and appends."""
    settings = replace(SETTINGS, checkpoint_frames=1000)  # a checkpoint would cover the damage
    made = Disk(str(memory / "made"))
    with made.mounted():
        container = opened(made.folder, settings)
        container.create_segment("s")
        container.append("s", b"content ")
        damaged = container.append("s", b"damaged") and container.head.address
        container.close()
    frame = Path(made.folder) / frame_path(0, damaged)
    whole = frame.read_bytes()
    frame.write_bytes(whole[:60] + b"?" + whole[61:])
    appended = 0
    for point in count(1):
        shutil.copytree(made.folder, memory / str(point))
        disk = Disk(str(memory / str(point)))
        with disk.mounted():
            store = open_store(disk.folder)
            disk.stop_at = disk.calls + point
            with suppress(Killed, FrameDamaged):
                Container(Stores(store, store), 0, settings, unread=True).repair(damaged)
            reached = disk.calls >= disk.stop_at
            disk.revive()
            told = False
            with suppress(FrameDamaged):
                told = opened(disk.folder, settings).append("s", b"acknowledged") == 8
            appended += told
        left = disk.after_power_failure(memory / f"{point} after")
        with left.mounted():
            if told:
                assert content(opened(left.folder, settings)) == b"content acknowledged"
        if not reached:
            break
    assert appended > 1


def test_a_root_that_somebody_used_survives_its_maker(memory: Path) -> None:
    """Its description was made by a process that was killed at each call; another one appended to its log elsewhere."""
    used = 0
    for point in count(1):
        disk = Disk(str(memory / str(point)))
        url, log = f"{disk.folder}/root", f"{disk.folder}/log"
        with disk.mounted():
            config = RootConfig(uuid.uuid4().hex, containers=1, wal=f"file://{log}")
            open_store(log).put_if_absent(ROOT, marker(config.id, f"file://{url}"))
            disk.stop_at = disk.calls + point
            with suppress(Killed):
                open_store(url).put_if_absent(ROOT, config.to_bytes())
            reached = disk.calls >= disk.stop_at
            disk.revive()
            with suppress(StorageRefused), Root.open(url, create=False, settings=SETTINGS) as root:
                root.container(0).create_segment("s")
                used += 1
                left = disk.after_power_failure(memory / f"{point} after")
        if used:
            moved = {"wal": f"{left.folder}/log", "create": False, "settings": SETTINGS}
            open_store(f"{left.folder}/log").put(ROOT, marker(config.id, f"file://{left.folder}/root"))
            with Root.open(f"{left.folder}/root", **moved) as again:  # type: ignore[arg-type]
                assert again.container(0).info("s").length == 0
        if not reached:
            break
    assert used > 1
