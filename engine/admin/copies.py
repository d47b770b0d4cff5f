"""Backups of a root: a copy of what long-term storage holds, elsewhere, and a new root made of it (F3).

A flush cycle leaves in long-term storage all that a container is: the recovery point of that cycle, the tables that it
names, and the chunks that those name. These objects are copied under their names, checked against their checksums, the
recovery point last. A restored container begins a new log, as a recovered one does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

from chunkstore import ObjectNotFound, StorageRefused, Store, open_store
from chunkstore.checksums import first_bad_block
from chunkstore.metadata.records import ChunkRecord, decode
from chunkstore.numbered import list_numbered
from chunkstore.paths import BACKUP, RESTORING, ROOT
from chunkstore.selftest import self_test
from engine.admin.progress import Progress, no_progress
from engine.errors import DataCorruption
from engine.places import refuse_inside
from engine.root import Root, RootConfig
from engine.settings import Settings
from engine.state.tables import STORAGE
from engine.storage import recovery_points
from engine.storage.cache import Cache
from engine.storage.lookups import Lookups
from engine.storage.reads import ObjectRange, Stores
from engine.storage.recovery import NothingToRecover

TRIES = 5
"""Flush cycles that are tried, if each is replaced before its objects are copied."""

PARALLEL = 4
"""Objects that are copied at a time."""

_CACHE = 16 << 20


class ContainerCopy(NamedTuple):
    """A container in a backup.

    number: of the container. cycle: the flush cycle whose state was copied; time: when that began (ms since the epoch).
    objects: objects that the copy has. copied, bytes: objects and bytes that this run copied; the rest was there.
    """

    number: int
    cycle: int
    time: int
    objects: int
    copied: int
    bytes: int


class RootCopy(NamedTuple):
    """A whole copy: its root, and its containers."""

    place: str
    containers: tuple[ContainerCopy, ...]


def back_up(
    root: Root, target: str, storage_options: Mapping[str, Any] | None = None, *, progress: Progress = no_progress
) -> RootCopy:
    """Copy a root to `target`, an empty folder or bucket, or an earlier backup of this root, which is updated.

    Other processes may use the root meanwhile; each container is copied as one of its flush cycles found it.
    storage_options: for the target's fsspec filesystem. Raises StorageRefused for a target that holds something else,
    DataCorruption for what fails its checksums, StorageError.
    """
    store = open_store(target, storage_options)
    refuse_inside(store, target, storage_options, "a backup")
    _begin(store, root.config)
    done = []
    for number in range(root.config.containers):
        root.container(number).flush()
        done.append(copy_container(root.stores.chunks, store, number, progress))
    return RootCopy(store.root, tuple(done))


def restore(
    source: str,
    target: str,
    *,
    source_options: Mapping[str, Any] | None = None,
    target_options: Mapping[str, Any] | None = None,
    progress: Progress = no_progress,
) -> RootCopy:
    """Create the root `target` from the backup `source`. Repeat it if it was interrupted.

    The log of the new root lies in the root itself. Raises StorageRefused if `target` is a root or holds something
    else, or `source` is no backup; DataCorruption for what fails its checksums; StorageError.
    """
    store, origin = open_store(target, target_options), open_store(source, source_options)
    refuse_inside(store, target, target_options, "a root")
    config = _begin_restore(store, origin)
    done = [copy_container(origin, store, number, progress) for number in range(config.containers)]
    with Root(Stores(store, store), config, Settings()) as root:
        for number in range(config.containers):
            with suppress(NothingToRecover):  # an earlier try did it
                root.recover(number)
    store.put_if_absent(ROOT, config.to_bytes())
    store.delete([RESTORING])
    return RootCopy(store.root, tuple(done))


def _begin(store: Store, config: RootConfig) -> None:
    """Mark a place as the backup of a root. Raises StorageRefused if something else is there."""
    found = _described(store, BACKUP)
    if found is None:
        if store.list("", limit=1):
            raise StorageRefused(f"{store.root} is neither empty nor a backup: give an empty folder or bucket")
        store.put(BACKUP, config.to_bytes())
    elif found.id != config.id:
        raise StorageRefused(f"{store.root} holds the backup of another root: give an empty folder or bucket")


def _described(store: Store, name: str) -> RootConfig | None:
    """The root that an object describes, None if there is no such object. Raises StorageRefused."""
    try:
        return RootConfig.from_bytes(store.read(name), store.root)
    except ObjectNotFound:
        return None
    except StorageRefused as error:
        raise StorageRefused(
            f"{store.root}: {name} is damaged or of a newer version, so it describes no root"
        ) from error


def _begin_restore(store: Store, origin: Store) -> RootConfig:
    """Mark a place as a root being restored; its config. Raises StorageRefused if it holds a root or something else."""
    if _described(store, ROOT) is not None:
        raise StorageRefused(f"{store.root} is a root already: restore into an empty folder or bucket")
    config = _described(origin, BACKUP)
    if config is None:
        raise StorageRefused(f"{origin.root} is not a backup: it has no {BACKUP}")
    begun = _described(store, RESTORING)
    if (begun is None or begun.id != config.id) and store.list("", limit=1):
        raise StorageRefused(f"{store.root} is not empty: restore into an empty folder or bucket")
    config = replace(config, wal=None)
    if begun is None:
        self_test(store)
        store.put(RESTORING, config.to_bytes())
    return config


# --- copying ------------------------------------------------------------------------------------------------------


def copy_container(source: Store, target: Store, number: int, progress: Progress = no_progress) -> ContainerCopy:
    """Copy what the newest recovery point of a container names, then the recovery point; what is there is kept.

    Raises DataCorruption for what fails its checksums, or is missing though the newest recovery point names it;
    StorageError.
    """
    for left in reversed(range(TRIES)):
        found = recovery_points.newest(source, number)
        if found is None:
            missing = DataCorruption(f"{source.root}: container {number} has no recovery point")
            missing.remedy = "Run `pravega-spark container flush`, which makes one."
            raise missing
        try:
            return _copy(source, target, number, found, progress)
        except ObjectNotFound as error:
            newest = recovery_points.newest(source, number)
            if newest is not None and newest.number == found.number:
                raise DataCorruption(f"{error}, though the newest recovery point names it; restore it") from error
            if not left:
                raise
    raise AssertionError("unreachable")


def _copy(
    source: Store, target: Store, number: int, found: recovery_points.RecoveryPoint, progress: Progress
) -> ContainerCopy:
    objects = copied = size = 0
    ranges = _named(source, number, found)
    with ThreadPoolExecutor(PARALLEL, "copy") as pool:
        while batch := list(islice(ranges, 10 * PARALLEL)):
            for length in pool.map(lambda named: _copy_object(source, target, named), batch):
                objects, copied, size = objects + 1, copied + (length is not None), size + (length or 0)
            progress(f"container {number}: objects", objects, 0)
    folder = recovery_points.folder(number)
    path = f"{folder}{found.number:020d}"
    target.put(path, source.read(path))
    target.delete([info.path for info in list_numbered(target, folder) if info.path < path])
    return ContainerCopy(number, found.number, found.state.cycle.time, objects, copied, size)


def _named(source: Store, number: int, found: recovery_points.RecoveryPoint) -> Iterator[list[ObjectRange]]:
    """What a recovery point names: for each object the ranges that are needed, from its beginning on."""
    tables: dict[str, list[ObjectRange]] = {}
    for table in found.state.tables.values():
        for extents in (table.entries, table.pages):
            for _, (path, position, length, checksums) in extents:
                assert isinstance(path, str)  # a recovery point names nothing in the log
                tables.setdefault(path, []).append(ObjectRange(False, path, position, length, checksums, 0, length))
    yield from tables.values()
    lookups = Lookups(Stores(source, source), number, Cache(_CACHE))
    for _, entry in lookups.scan(found.state, STORAGE):
        record = decode(entry.value or b"")
        if isinstance(record, ChunkRecord) and record.length:
            yield [ObjectRange(False, record.name, 0, record.length, record.checksums, 0, record.length)]


def _copy_object(source: Store, target: Store, ranges: list[ObjectRange]) -> int | None:
    """Copy an object up to where it is needed, after its checks; how many bytes, None if it was there."""
    path, length = ranges[0].path, max(each.position + each.length for each in ranges)
    with suppress(ObjectNotFound):
        if target.stat(path).size >= length:
            return None
    data = source.read(path, 0, length)
    for each in ranges:
        part = memoryview(data)[each.position : each.position + each.length]
        if len(part) < each.length or first_bad_block(part, each.checksums) is not None:
            raise DataCorruption(f"{source.root}: {path} does not match its checksums; restore it from a copy")
    target.put(path, data)
    return length
