"""Recovery points: the last object of each flush cycle, from which the container can be recovered without its log (F3).

A recovery point is a checkpoint that names nothing in the log, only the location of the tables, which hold everything
else. It corresponds to the snapshots of the system journal (Pravega: SystemJournal, PDP-34).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

import immutables

from chunkstore import ObjectNotFound, Store
from chunkstore.numbered import list_numbered
from chunkstore.paths import generation_folder
from engine.errors import LogLost
from engine.logs import checkpoints
from engine.logs.frames import Position, read_beginnings
from engine.logs.log import address_of, frame_path
from engine.state.segment_map import SegmentMap
from engine.state.segments import StoredRef
from engine.state.state import ATTRIBUTES_GARBAGE, GarbageEntry, State
from engine.storage.object_reads import Stores


class RecoveryPoint(NamedTuple):
    """number: of the cycle. head: of the log when the recovery point was made. state: the container's."""

    number: int
    head: Position
    state: State


def folder(container: int) -> str:
    """The folder of a container's recovery points."""
    return generation_folder(container, "recovery-points")


def write(
    store: Store, container: int, head: Position, state: State, begun: State, skipped: Collection[str] = ()
) -> None:
    """Write the recovery point of the cycle that began with the state `begun`, and delete older ones.

    state: after the metadata tables were flushed. skipped: the names in LTS of segments that the cycle passed over.
    Cycle numbers are unique, so a recovery point that is written late has a lower number than the newest one and is
    ignored.
    """
    number = begun.cycle.number
    path = f"{folder(container)}{number:020d}"
    store.put(path, checkpoints.encode(container, head, pruned(state, begun, skipped)))
    older = [info.path for info in list_numbered(store, folder(container)) if info.path < path]
    if older:
        store.delete(older)


def copy(store: Store, point: RecoveryPoint, container: int) -> None:
    """Copy a recovery point to another generation of its container (P4)."""
    store.put(f"{folder(container)}{point.number:020d}", checkpoints.encode(container, point.head, point.state))


def delete(store: Store, container: int) -> None:
    """Delete the recovery points of one generation of a container, after its successor has its own."""
    store.delete([info.path for info in list_numbered(store, folder(container))])


def pruned(state: State, begun: State, skipped: Collection[str] = ()) -> State:
    """The part of `state` that the cycle which began with the state `begun` has brought to LTS.

    What was deleted since then still exists in it, and must not be deleted from LTS after a recovery, unless the cycle
    passed it over (`skipped`).
    """
    tables = {
        name: table._replace(recent=immutables.Map(), size=0, flushed=state.sequence, dropped=table.layout.entries > 0)
        for name, table in state.tables.items()
        if name in begun.tables or table.layout.length  # others were created since
    }
    return state._replace(
        checkpoint=-1,
        flushed=-1,
        logged_bytes=0,
        extents=0,
        table_bytes=0,
        unsaved=immutables.Map(),
        segments=SegmentMap(),
        chunks=_chunks(state),
        garbage=_garbage(state, begun),
        dropped=_dropped(state, begun, skipped),
        tables=immutables.Map(tables),
        transients=begun.transients,
        cycle=begun.cycle._replace(complete=True, recovery_point=begun.cycle.sequence),
    )


def _garbage(state: State, begun: State) -> immutables.Map[str, GarbageEntry]:
    """The garbage of `state`, but for the table of attributes that of `begun`, as that table is from then."""
    chunks = {name: garbage for name, garbage in state.garbage.items() if garbage.kind != ATTRIBUTES_GARBAGE}
    attributes = {name: garbage for name, garbage in begun.garbage.items() if garbage.kind == ATTRIBUTES_GARBAGE}
    return immutables.Map(chunks | attributes)


def _dropped(state: State, begun: State, skipped: Collection[str]) -> immutables.Map[str, bool]:
    """The segments in LTS that were dropped because this cycle copied their bytes, or passed their segments over.

    Those that were dropped before the cycle are deleted by now. Those dropped since belong to segments that the
    recovery point has.
    """
    copied = {
        extent.source.storage
        for segment in begun.logged()
        for _, extent in segment.extents
        if isinstance(extent.source, StoredRef)
    }
    return immutables.Map(dict.fromkeys([*(storage for storage in state.dropped if storage in copied), *skipped], True))


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


def newest(store: Store, container: int) -> RecoveryPoint | None:
    """The newest recovery point, or None if no cycle was ever complete. Raises DataCorruption.

    If it is replaced between the listing and the read, the listing is repeated. Raises ObjectNotFound if the newest one
    is listed but cannot be read.
    """
    gone = ""
    while listed := list_numbered(store, folder(container)):
        path = listed[-1].path
        try:
            data = store.read(path)
        except ObjectNotFound:
            if path == gone:
                raise
            gone = path
            continue
        opening = checkpoints.decode(data, path, container, None)
        return RecoveryPoint(address_of(path), opening.head, opening.state)
    return None


def has_first_frame(log: Store, container: int) -> bool:
    """Whether a log has its first frame, from which it is opened if it has no checkpoint."""
    return read_beginnings(log, [frame_path(container, 0)], [0], 1)[0] is not None


def lost_log(stores: Stores, container: int) -> LogLost | None:
    """The error to raise if a log without a checkpoint has no first frame either, although LTS has a recovery point."""
    if has_first_frame(stores.log, container):
        return None
    point = newest(stores.chunks, container)
    return LogLost(container, stores.log.root, point.number) if point is not None else None
