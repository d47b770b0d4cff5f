"""`backup` and `restore`: a copy of what tier 2 holds, elsewhere, and a new root made of it (F3).

A flush cycle leaves in tier 2 all that a container is: the backup object of that cycle, the tables that it says where
to find, and the chunks that those name. These objects are copied under their names, checked against their checksums,
the backup object last. A restored container begins a new log, as one that is recovered does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

import click

from chunkstore import ObjectNotFound, StorageRefused, Store, open_store
from chunkstore.checksums import first_bad_block
from chunkstore.records import ChunkRecord, decode
from chunkstore.selftest import self_test
from engine import backups
from engine.cache import Cache
from engine.container import Settings
from engine.errors import DataCorruption
from engine.reads import Piece, Stores
from engine.recovery import NothingToRecover
from engine.root import CONFIG, Root, RootConfig
from engine.tables import STORAGE
from engine.tier_two import TierTwo
from pravega_spark.cli.output import moment
from pravega_spark.cli.session import Session, pass_session, storage_option

MANIFEST = "backup.json"
"""Says in a backup of which root it is. A backup has no `pravega.json`, so that nobody takes it for a root."""

RESTORING = ".restoring"
"""Says in a new root of which root it is being made; it is gone when that is done."""

TRIES = 5
"""Flush cycles that are tried, if each is replaced before its objects are copied."""

PARALLEL = 4
"""Objects that are copied at a time."""

_CACHE = 16 << 20
_target_option = storage_option("--elsewhere", "the backup's")


class Copied(NamedTuple):
    """A container's objects in a copy: of which flush cycle, and when that began (ms). copied, bytes: those that were
    not there yet."""

    number: int
    cycle: int
    time: int
    objects: int
    copied: int
    bytes: int


@click.command()
@click.argument("target")
@_target_option
@pass_session
def backup(session: Session, target: str, options: dict[str, object]) -> None:
    """Copy the root to TARGET, an empty folder or bucket, or an earlier backup of this root, which is updated.

    Others may use the root meanwhile; each container is copied as one of its flush cycles found it.
    """
    root = session.root
    store = open_store(target, options)
    _begin(store, root.config)
    with session.output.progress() as bar:
        task = bar.add_task("objects", total=None) if bar is not None else None

        def told(what: str) -> None:
            if bar is not None and task is not None:
                bar.update(task, description=what)

        done = []
        for number in range(root.config.containers):
            root.container(number).flush()
            done.append(copy_container(root.stores.chunks, store, number, told))
    _tell(session, "backup", done, store)


def _begin(store: Store, config: RootConfig) -> None:
    """Mark a place as the backup of a root. Raises StorageRefused if something else is there."""
    found = _described(store, MANIFEST)
    if found is None:
        if store.list("", limit=1):
            raise StorageRefused(f"{store.root} is not empty and no backup: give an empty folder or bucket")
        store.put(MANIFEST, config.to_bytes())
    elif found.id != config.id:
        raise StorageRefused(f"{store.root} holds the backup of another root: give an empty folder or bucket")


def _described(store: Store, name: str) -> RootConfig | None:
    """The root that an object describes, None if there is no such object. Raises StorageRefused."""
    try:
        return RootConfig.from_bytes(store.read(name), store.root)
    except ObjectNotFound:
        return None
    except StorageRefused as error:
        raise StorageRefused(f"{store.root}: {name} is damaged, or of a newer version; it describes no root") from error


@click.command()
@click.argument("source")
@_target_option
@pass_session
def restore(session: Session, source: str, options: dict[str, object]) -> None:
    """Make the root, which must not exist, of the backup in SOURCE. May be repeated if it was interrupted."""
    if session.wal is not None:
        raise click.UsageError("A root that is restored has its log in itself: leave out --wal.")
    store, origin = open_store(session.url, session.options), open_store(source, options)
    config = _restored(store, origin)
    with session.output.progress() as bar:
        task = bar.add_task("objects", total=None) if bar is not None else None

        def told(what: str) -> None:
            if bar is not None and task is not None:
                bar.update(task, description=what)

        done = [copy_container(origin, store, number, told) for number in range(config.containers)]
    with Root(Stores(store, store), config, Settings()) as root:
        for number in range(config.containers):
            with suppress(NothingToRecover):  # an earlier try did it
                root.recover(number)
    store.put_if_absent(CONFIG, config.to_bytes())
    store.delete([RESTORING])
    _tell(session, "restored", done, store)


def _restored(store: Store, origin: Store) -> RootConfig:
    """What the new root is like. Raises StorageRefused if there is one, or something else, or no backup."""
    if _described(store, CONFIG) is not None:
        raise StorageRefused(f"{store.root} is a root already: restore to an empty folder or bucket")
    config = _described(origin, MANIFEST)
    if config is None:
        raise StorageRefused(f"{origin.root} holds no backup: there is no {MANIFEST}")
    begun = _described(store, RESTORING)
    if (begun is None or begun.id != config.id) and store.list("", limit=1):
        raise StorageRefused(f"{store.root} is not empty: restore to an empty folder or bucket")
    config = replace(config, wal=None)
    if begun is None:
        self_test(store)
        store.put(RESTORING, config.to_bytes())
    return config


def _tell(session: Session, what: str, done: list[Copied], store: Store) -> None:
    rows = [{**row._asdict(), "time": moment(row.time)} for row in done]
    session.output.document({what: rows, "place": store.root})
    session.output.table(_COPIED, rows, title=store.root)


# --- copying ------------------------------------------------------------------------------------------------------


def copy_container(
    source: Store, target: Store, number: int, told: Callable[[str], None] = lambda what: None
) -> Copied:
    """Copy what the newest backup object of a container names, and then that object; what is there is not copied again.

    told: hears what is being copied. Raises DataCorruption for what fails its checks, or is missing though the newest
    backup names it; StorageError.
    """
    for left in reversed(range(TRIES)):
        found = backups.newest(source, number)
        if found is None:
            raise DataCorruption(f"{source.root}: container {number} has no backup object; run `container flush`")
        try:
            return _copy(source, target, number, found, told)
        except ObjectNotFound as error:
            newest = backups.newest(source, number)
            if newest is not None and newest.number == found.number:
                raise DataCorruption(f"{error}, though the newest backup names it; restore it from a copy") from error
            if not left:
                raise
    raise AssertionError("unreachable")


def _copy(
    source: Store, target: Store, number: int, found: backups.Backup, told: Callable[[str], None]
) -> Copied:
    objects = copied = size = 0
    pieces = _named(source, number, found)
    with ThreadPoolExecutor(PARALLEL, "copy") as pool:
        while batch := list(islice(pieces, 10 * PARALLEL)):
            for length in pool.map(lambda named: _copy_object(source, target, named), batch):
                objects, copied, size = objects + 1, copied + (length is not None), size + (length or 0)
            told(f"container {number}: {objects} objects")
    folder = backups.folder(number)
    path = f"{folder}{found.number:020d}"
    target.put(path, source.read(path))
    target.delete([info.path for info in target.list(folder) if info.path < path])
    return Copied(number, found.number, found.state.cycle.time, objects, copied, size)


def _named(source: Store, number: int, found: backups.Backup) -> Iterator[list[Piece]]:
    """What a backup names: for each object the pieces that it needs, from its beginning on."""
    tables: dict[str, list[Piece]] = {}
    for table in found.state.tables.values():
        for extents in (table.entries, table.pages):
            for _, (path, position, length, checksums) in extents:
                assert isinstance(path, str)  # a backup names nothing in the log
                tables.setdefault(path, []).append(Piece(False, path, position, length, checksums, 0, length))
    yield from tables.values()
    tier_two = TierTwo(Stores(source, source), number, Cache(_CACHE))
    for _, entry in tier_two.scan(found.state, STORAGE):
        record = decode(entry.value or b"")
        if isinstance(record, ChunkRecord) and record.length:
            yield [Piece(False, record.name, 0, record.length, record.checksums, 0, record.length)]


def _copy_object(source: Store, target: Store, pieces: list[Piece]) -> int | None:
    """Copy an object up to where it is needed, after its checks; how many bytes, None if it was there."""
    path, length = pieces[0].path, max(piece.position + piece.length for piece in pieces)
    with suppress(ObjectNotFound):
        if target.stat(path).size >= length:
            return None
    data = source.read(path, 0, length)
    for piece in pieces:
        part = memoryview(data)[piece.position : piece.position + piece.length]
        if len(part) < piece.length or first_bad_block(part, piece.checksums) is not None:
            raise DataCorruption(f"{source.root}: {path} is not what was written there; restore it from a copy")
    target.put(path, data)
    return length


_COPIED = {
    "number": "container",
    "cycle": "flush cycle",
    "time": "begun",
    "objects": "objects",
    "copied": "copied now",
    "bytes": "bytes copied",
}
