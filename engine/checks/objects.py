"""Whether the objects that containers name are there, and which there are that none names (G1)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from chunkstore import ObjectInfo, ObjectNotFound, Store
from chunkstore.records import ChunkRecord, decode
from engine.checks.content import missing
from engine.checks.findings import Problem
from engine.checks.inventory import Inventory, Kind, Missing
from engine.checks.survey import newest_backup
from engine.errors import DataCorruption
from engine.log import frame_path
from engine.root import CONFIG
from engine.segments import FrameRef
from engine.state import State
from engine.tables import STORAGE, Entry

if TYPE_CHECKING:
    from engine.container import Container

PAGE = 10_000
"""Objects that are listed together."""

_LOG = re.compile(r"containers/(\d+)/(?:wal|checkpoints)/\d{20}")
_BACKUP = re.compile(r"_system/containers/(\d+)/backups/\d{20}")


def list_objects(
    stores: Sequence[Store], containers: int, inventory: Inventory, told: Callable[[int], None]
) -> None:
    """Take all objects of a root into the inventory; `stores`: the root of the chunks, and that of the log if it is
    another. `told` hears how many there are so far."""
    count = 0
    for number, store in enumerate(stores):
        last = ""
        while page := store.list("", last, PAGE):
            last = page[-1].path
            count += len(page)
            _take(page, containers, inventory, is_log=number > 0)
            told(count)


def _take(page: Sequence[ObjectInfo], containers: int, inventory: Inventory, is_log: bool) -> None:
    frames, chunks = [], []
    for info in page:
        log, backup = _LOG.fullmatch(info.path), _BACKUP.fullmatch(info.path)
        if log is not None and int(log[1]) < containers:
            inventory.count(int(log[1]), "log", info.size)
            frames.append(info)
        elif backup is not None and int(backup[1]) < containers and not is_log:
            inventory.count(int(backup[1]), "backups", info.size)
        elif info.path != CONFIG and not info.path.startswith(".") and not is_log:
            chunks.append(info)  # those beginning with a dot are made and deleted by the storage port itself
    inventory.met(True, frames)
    inventory.met(False, chunks)


def missing_problems(container: Container, inventory: Inventory, cycle: int) -> Iterator[Problem]:
    """The objects that a container names still, after they were not found. cycle: that of the backup looked at."""
    for batch in inventory.missing(container.number):
        state = container.refresh()
        lengths = _needed(container, state, batch, cycle)
        for found in batch:
            path = found.expected.path
            if path not in lengths:
                continue  # it was let go meanwhile
            length = min(lengths[path], found.expected.length)
            store = container.stores.log if found.expected.logged else container.stores.chunks
            try:
                size = store.stat(path).size
            except ObjectNotFound:
                yield Problem(path, missing(found.expected.owner), "restore the object from a copy")
                continue
            if size < length:
                problem = f"the object has {size} bytes; {found.expected.owner!r} needs {length}"
                yield Problem(path, problem, "restore the object from a copy")


def _needed(container: Container, state: State, batch: Sequence[Missing], cycle: int) -> Mapping[str, int]:
    """Those of the objects that the state names, and the bytes that it needs of them."""
    lengths = {}
    frames = _frames_of(container, state) if any(found.expected.logged for found in batch) else {}
    paths = [found.expected.path for found in batch if not found.expected.logged]
    entries = _records_of(container, state, paths)
    backup = _backup_of(container) if paths else 0
    for found in batch:
        path, length = found.expected.path, found.expected.length
        if found.expected.logged:
            if path in frames:
                lengths[path] = frames[path]
        elif found.expected.kind in (Kind.GARBAGE, Kind.DELETED, Kind.BACKED_UP):
            if backup == cycle:
                lengths[path] = length
        elif path in state.chunks or entries is None:
            lengths[path] = length
        elif (entry := entries[path]) is not None and entry.value is not None:
            record = decode(entry.value)
            lengths[path] = record.length if isinstance(record, ChunkRecord) else length
    return lengths


def _backup_of(container: Container) -> int:
    """The number of the newest backup, 0 if there is none that can be read."""
    try:
        backup = newest_backup(container)
    except DataCorruption:
        return 0
    return backup.number if backup is not None else 0


def _records_of(container: Container, state: State, paths: Sequence[str]) -> Mapping[str, Entry | None] | None:
    """The entries of chunks in the table of records; None if that is damaged, so that what was read before counts."""
    try:
        return container.entries(STORAGE, paths, state) if paths else {}
    except DataCorruption:
        return None


def _frames_of(container: Container, state: State) -> dict[str, int]:
    """The frames that segments need, and how many bytes of each object."""
    needed: dict[str, int] = {}
    for segment in state.logged():
        for _, extent in segment.extents:
            if isinstance(extent.source, FrameRef):
                path = frame_path(container.number, extent.source.address)
                end = extent.source.start + extent.position + extent.length
                needed[path] = max(needed.get(path, 0), end)
    return needed


def settle_others(containers: Sequence[Container], inventory: Inventory) -> None:
    """Of the objects that nothing named, take those for known that were made, or became garbage, meanwhile."""
    for paths in inventory.others():
        left = set(paths)
        for container in containers:
            state = container.refresh()
            entries = container.entries(STORAGE, list(left), state) if left else {}
            for path in list(left):
                if path in state.chunks:
                    kind = Kind.TABLE if path.startswith("_system/") else Kind.ATTACHED
                elif path in state.garbage:
                    kind = Kind.GARBAGE
                elif entries[path] is not None:
                    kind = Kind.CHUNK
                else:
                    continue
                inventory.known(path, container.number, kind)
                left.discard(path)
        for path in left:
            try:
                containers[0].stores.chunks.stat(path)
            except ObjectNotFound:
                inventory.not_there(path)
