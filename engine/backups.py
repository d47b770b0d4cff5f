"""Backups: one object for each complete flush cycle, by which tier 2 alone is the container as it was then (F3).

It is a checkpoint that names nothing in the log: where the tables lie, which hold all the rest. It plays the part of
the system journal's snapshots (Pravega: SystemJournal, PDP-34): the layout of the system segments, kept apart from
them.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import immutables

from chunkstore import Range, Store
from engine import checkpoints
from engine.errors import LogLost
from engine.frames import Position
from engine.log import frame_path
from engine.reads import Stores
from engine.segment_map import SegmentMap
from engine.state import Cycle, State


class Backup(NamedTuple):
    """A container without its log. number: the cycle's. head: the log's head when it was made."""

    number: int
    head: Position
    state: State


def folder(container: int) -> str:
    """Where the backups of a container are."""
    return f"_system/containers/{container}/backups/"


def write(store: Store, container: int, head: Position, state: State, begun: State) -> None:
    """Make the backup of the cycle that began with the state `begun`, and delete older ones.

    `state` is the one after the metadata tables were flushed. No other cycle ever has this number, so that a backup
    that arrives late is an old one, and does no harm.
    """
    number = begun.cycle.number
    path = f"{folder(container)}{number:020d}"
    store.put(path, checkpoints.encode(container, head, pruned(state, begun.cycle)))
    older = [info.path for info in store.list(folder(container)) if info.path < path]
    if older:
        store.delete(older)


def pruned(state: State, cycle: Cycle) -> State:
    """A state of which only that is left which is in tier 2."""
    tables = {
        name: table._replace(recent=immutables.Map(), size=0, flushed=state.sequence, dropped=table.layout.entries > 0)
        for name, table in state.tables.items()
    }
    return state._replace(
        checkpoint=-1,
        flushed=-1,
        logged_bytes=0,
        unsaved=immutables.Map(),
        segments=SegmentMap(),
        chunks=_chunks(state),
        tables=immutables.Map(tables),
        cycle=cycle._replace(complete=True, backup=cycle.sequence),
    )


def _chunks(state: State) -> immutables.Map[str, int]:
    """How many extents of tables name each chunk."""
    names = (
        extent.source
        for table in state.tables.values()
        for extents in (table.entries, table.pages)
        for _, extent in extents
        if isinstance(extent.source, str)
    )
    return immutables.Map(Counter(names))


def newest(store: Store, container: int) -> Backup | None:
    """The newest backup, or None if no cycle was ever complete. Raises DataCorruption."""
    listed = store.list(folder(container))
    if not listed:
        return None
    path = listed[-1].path
    data = store.read(path)
    opening = checkpoints.decode(data, path, container, None)
    return Backup(int(path.rpartition("/")[2]), opening.head, opening.state)


def lost_log(stores: Stores, container: int) -> LogLost | None:
    """The error to raise if a log without a checkpoint has no first frame either, and tier 2 holds what was in it."""
    if stores.log.read_ranges([Range(frame_path(container, 0), 0, 1)])[0] is not None:
        return None
    backup = newest(stores.chunks, container)
    return LogLost(container, stores.log.root, backup.number) if backup is not None else None
