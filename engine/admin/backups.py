"""Backups of a root: a copy of its long-term storage, and a new root restored from such a copy (F3).

A flush cycle brings a container completely to long-term storage: a recovery point, the tables that it names, and the
chunks that those name. A backup copies these objects under the same names, reads them back and compares them with their
checksums; the recovery point is copied last. A backup holds everything that was acknowledged before it began, or fails
(W17). It records which generation of which root it holds, and never mixes two. A restored root is a new generation, and
its containers begin new logs, as recovered ones do (P4). The backup of a signed root is signed with its key; a restored
root may have another key, or none (W20).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from chunkstore import ObjectNotFound, StorageRefused, Store, open_store
from chunkstore.checksums import first_bad_block
from chunkstore.metadata.metadata_records import ChunkRecord, decode
from chunkstore.numbered import list_numbered
from chunkstore.paths import BACKUP, RESTORING, ROOT
from chunkstore.selftest import self_test
from engine.admin.batching import batches
from engine.admin.progress import Progress, no_progress
from engine.errors import DataCorruption
from engine.logs.log import checkpoints_folder
from engine.root import Root, RootConfig, signed_stores
from engine.root_placement import refuse_inside
from engine.signatures import SigningKey
from engine.state.state import State
from engine.state.tables import STORAGE
from engine.storage import recovery_points
from engine.storage.cache import Cache
from engine.storage.lookups import Lookups
from engine.storage.object_reads import ObjectRange, Stores
from engine.storage.recovery import recover
from engine.writer.table_writer import Dirty

TRIES = 5
"""The most recovery points that are tried, if each is replaced before its objects are copied."""

PARALLEL = 4
"""Objects that are copied concurrently."""

_CACHE = 16 << 20


class ContainerBackup(NamedTuple):
    """A container in a backup.

    cycle: the flush cycle whose state the backup holds. time: when that cycle began (ms since the epoch). sequence: the
    number of operations in that state. objects: all objects of the container in the backup, each checked. copied,
    bytes: the objects that this run copied, and their size.
    """

    number: int
    cycle: int
    time: int
    sequence: int
    objects: int
    copied: int
    bytes: int


class RootBackup(NamedTuple):
    """A complete backup. place: its URL, without credentials."""

    place: str
    containers: tuple[ContainerBackup, ...]


def back_up(
    root: Root, target: str, storage_options: Mapping[str, Any] | None = None, *, progress: Progress = no_progress
) -> RootBackup:
    """Back a root up to `target`: an empty folder or bucket, or an earlier backup of this root, which is updated.

    Other processes may use, flush and back up the root meanwhile. Each container is copied as of a flush cycle that
    began after this call, so the backup has everything that was acknowledged before. storage_options: for the target's
    fsspec filesystem. A root that this process may only read is backed up if it has not changed since its last flush.
    Raises StorageRefused if it has, or if the target holds anything else, DataCorruption if an object fails its
    checksums in the root or in the backup, FlushIncomplete, StorageError.
    """
    store = open_store(target, storage_options)
    refuse_inside(store, target, storage_options, "a backup")
    _begin(store, root.config, root.key)
    store = signed_stores(Stores(store, store), root.key).chunks
    done = []
    for number in range(root.config.containers):
        container = root.container(number)
        acknowledged = _flushed(root, number)
        done.append(copy_container(root.stores.chunks, store, container.number, progress, acknowledged))
        root.verify()
    return RootBackup(store.root, tuple(done))


def restore(
    source: str,
    target: str,
    *,
    source_options: Mapping[str, Any] | None = None,
    target_options: Mapping[str, Any] | None = None,
    progress: Progress = no_progress,
    source_key: SigningKey | None = None,
    target_key: SigningKey | None = None,
) -> RootBackup:
    """Create the root `target` from the backup `source`. Call it again if it was interrupted.

    The log of the new root lies in the root itself. source_key: that of the backup, if it is signed, which is checked.
    target_key: the root is signed with it, which may be another key. Raises StorageRefused if `target` is not empty or
    `source` is not a backup with that key, DataCorruption if an object fails its checksums or its signature,
    StorageError.
    """
    store, origin = open_store(target, target_options), open_store(source, source_options)
    refuse_inside(store, target, target_options, "a root")
    saved, config = _begin_restore(store, origin, source_key, target_key)
    origin = signed_stores(Stores(origin, origin), source_key).chunks
    stores = signed_stores(Stores(store, store), target_key)
    store = stores.chunks
    done = [copy_container(origin, store, saved.container(number), progress) for number in range(config.containers)]
    for number in range(config.containers):
        before, restored = saved.container(number), config.container(number)
        if not list_numbered(store, checkpoints_folder(restored), limit=1):  # otherwise an earlier call did it
            recover(stores, before, restored)
    store.put_if_absent(ROOT, config.to_bytes(target_key))
    for number in range(config.containers):
        recovery_points.delete(store, saved.container(number))
    store.delete([RESTORING])
    return RootBackup(store.root, tuple(done))


def _flushed(root: Root, number: int) -> int:
    """Flush a container. Returns how many operations its newest recovery point covers at least.

    Where this process may not write, the last flush cycle counts if the container has not changed since. Raises
    StorageRefused if it has.
    """
    container = root.container(number)
    state = container.refresh()
    try:
        container.flush()
    except StorageRefused as error:
        if not state.cycle.complete or state.cycle.recovery_point < 0 or _changed_since_flush(state):
            raise StorageRefused(
                f"{root.stores.chunks.root}: container {number} has data that no recovery point covers, and this "
                f"process cannot flush it ({error}). Run `pravega-spark container flush` where the root can be "
                "written, then back up again"
            ) from error
        return state.cycle.recovery_point
    return state.sequence


def _changed_since_flush(state: State) -> bool:
    """Whether a state has anything that its last complete flush cycle did not bring to LTS. What the cycle records of
    itself, and where chunks were merged since, does not count."""
    tables = (name for name in state.tables if name != STORAGE)
    return bool(state.unsaved or state.dropped) or any(Dirty.of(state, name).entries for name in tables)


def _begin(store: Store, config: RootConfig, key: SigningKey | None) -> None:
    """Mark an empty target as the backup of a root. Raises StorageRefused if it holds anything else."""
    found = _described(store, BACKUP, key)
    if found is None:
        if store.list("", limit=1):
            raise StorageRefused(f"{store.root} is neither empty nor a backup: give an empty folder or bucket")
        store.put_if_absent(BACKUP, config.to_bytes(key, BACKUP))
        found = _described(store, BACKUP, key)
    if found is None or found.id != config.id:
        kinship = ", the one that this root was restored from" if found and found.id == config.origin else ""
        raise StorageRefused(f"{store.root} holds the backup of another root{kinship}: give an empty folder or bucket")
    if found.generation != config.generation:
        raise StorageRefused(
            f"{store.root} holds a backup of this root from before a container was recovered: keep it, and give an "
            "empty folder or bucket"
        )


def _described(store: Store, name: str, key: SigningKey | None) -> RootConfig | None:
    """The root that an object describes, or None if the object does not exist. Raises StorageRefused."""
    try:
        return RootConfig.from_bytes(store.read(name), store.root, key, name)
    except ObjectNotFound:
        return None


def _begin_restore(
    store: Store, origin: Store, source_key: SigningKey | None, target_key: SigningKey | None
) -> tuple[RootConfig, RootConfig]:
    """Mark an empty target as a root being restored. Returns the config of the root in the backup, and that of the
    restored root. Raises StorageRefused if the target holds anything else."""
    if _described(store, ROOT, target_key) is not None:
        raise StorageRefused(f"{store.root} is a root already: restore into an empty folder or bucket")
    saved = _described(origin, BACKUP, source_key)
    if saved is None:
        raise StorageRefused(f"{origin.root} is not a backup: it has no {BACKUP}")
    begun = _described(store, RESTORING, target_key)
    if (begun is None or begun.origin != saved.id) and store.list("", limit=1):
        raise StorageRefused(f"{store.root} is not empty: restore into an empty folder or bucket")
    if begun is None:
        self_test(store)
        signed = target_key.id if target_key is not None else None
        begun = replace(saved, id=uuid.uuid4().hex, origin=saved.id, recovered=(), wal=None, signed=signed)
        store.put(RESTORING, begun.to_bytes(target_key, RESTORING))
    return saved, begun


# --- copying ------------------------------------------------------------------------------------------------------


def copy_container(
    source: Store, target: Store, number: int, progress: Progress = no_progress, acknowledged: int = 0
) -> ContainerBackup:
    """Copy the objects that the newest recovery point of a container names, then the recovery point. Objects that the
    target already has are checked and kept.

    acknowledged: how many operations the recovery point must cover. Raises DataCorruption if an object fails its
    checksums, if one is missing that the newest recovery point names, or if that recovery point covers fewer
    operations; StorageError.
    """
    for left in reversed(range(TRIES)):
        found = recovery_points.newest(source, number)
        if found is None:
            missing = DataCorruption(f"{source.root}: container {number} has no recovery point")
            missing.remedy = "Run `pravega-spark container flush`, which makes one."
            raise missing
        if found.state.cycle.sequence < acknowledged:
            older = DataCorruption(
                f"{source.root}: the newest recovery point of container {number} is that of flush cycle {found.number} "
                f"and covers {found.state.cycle.sequence} operations; a flush cycle that covered {acknowledged} was "
                "complete, and its recovery point is gone"
            )
            older.remedy = "Run `pravega-spark container flush`, which makes a new one, then back up again."
            raise older
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
) -> ContainerBackup:
    """Copy the objects that a recovery point names, then the recovery point.

    If another run has meanwhile put a newer recovery point there, that one is completed and kept: it may need more
    bytes of an object than this run copied.
    """
    objects, copied, size = _copy_objects(source, target, number, found, progress)
    folder = recovery_points.folder(number)
    path = f"{folder}{found.number:020d}"
    target.put(path, source.read(path))
    while True:
        newest = recovery_points.newest(target, number)
        assert newest is not None  # a recovery point is deleted only when a newer one exists
        if newest.number <= found.number:
            break
        found = newest
        objects, more, added = _copy_objects(source, target, number, found, progress)
        copied, size = copied + more, size + added
    path = f"{folder}{found.number:020d}"
    target.delete([info.path for info in list_numbered(target, folder) if info.path < path])
    cycle = found.state.cycle
    return ContainerBackup(number, found.number, cycle.time, cycle.sequence, objects, copied, size)


def _copy_objects(
    source: Store, target: Store, number: int, found: recovery_points.RecoveryPoint, progress: Progress
) -> tuple[int, int, int]:
    """Copy the objects that a recovery point names. Returns how many there are, how many were copied, and their
    bytes."""
    objects = copied = size = 0
    ranges = _named_ranges(source, number, found)
    with ThreadPoolExecutor(PARALLEL, "copy") as pool:
        for batch in batches(ranges, 10 * PARALLEL):
            for length in pool.map(lambda named: copy_object(source, target, named), batch):
                objects, copied, size = objects + 1, copied + (length is not None), size + (length or 0)
            progress(f"container {number}: objects", objects, 0)
    return objects, copied, size


def _named_ranges(source: Store, number: int, found: recovery_points.RecoveryPoint) -> Iterator[list[ObjectRange]]:
    """For each object that a recovery point names, the ranges that are needed, in order."""
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


def copy_object(source: Store, target: Store, ranges: list[ObjectRange]) -> int | None:
    """Copy an object as far as it is needed, unless the target has a valid copy, and check the copy.

    Returns how many bytes were copied, or None if the target had a valid copy.
    """
    path = ranges[0].path
    with suppress(ObjectNotFound):
        if _read_valid(target, ranges) is not None:
            return None
    data = _read_valid(source, ranges)
    if data is None:
        raise DataCorruption(f"{source.root}: {path} does not match its checksums; restore it from a copy")
    target.check_room(len(data))
    target.put(path, data)
    if _read_valid(target, ranges) is None:
        raise DataCorruption(
            f"{target.root}: {path} does not match its checksums although it was just copied there; check this storage"
        )
    return len(data)


def _read_valid(store: Store, ranges: list[ObjectRange]) -> bytes | None:
    """The bytes of an object as far as it is needed; None if a range is too short or fails its checksums. Raises
    ObjectNotFound."""
    data = store.read(ranges[0].path, 0, max(each.position + each.length for each in ranges))
    for each in ranges:
        part = memoryview(data)[each.position : each.position + each.length]
        if len(part) < each.length or first_bad_block(part, each.checksums) is not None:
            return None
    return data
