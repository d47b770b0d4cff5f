"""Deleting what nobody needs any more: frames behind a boundary (W7), and chunks that are garbage (G1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from chunkstore import Store
from chunkstore.chunks import ChunkStorage
from chunkstore.garbage import GarbageCollector
from engine.log import address_of, folder
from engine.operations import Collected
from engine.segments import FrameRef
from engine.state import ATTRIBUTES_GARBAGE, State
from engine.storage_metadata import LogGarbage
from engine.tables import ATTRIBUTES

if TYPE_CHECKING:
    from engine.container import Container

BATCH = 1000
"""Objects deleted by one request, at most."""


def needed_from(state: State) -> int | None:
    """The lowest address of a frame whose payload a segment still needs; None when there is none."""
    addresses = (  # of all extents: those of a merged segment may be older than what stands before them
        extent.source.address
        for segment in state.logged()
        for _, extent in segment.extents
        if isinstance(extent.source, FrameRef)
    )
    return min(addresses, default=None)


def truncate_log(store: Store, container: int, refresh: Callable[[], State], grace: float) -> int:
    """Delete the frames, and checkpoints, behind the newest boundary that is older than `grace` seconds.

    The boundary's age is taken by the store's clock. Frames that hold data not flushed yet stay: `refresh` gives the
    state by which they are known, and is asked after the boundary was looked up, so that it knows of all frames before
    it. Returns how many objects were deleted. A frame that a sleeper makes again at a deleted address is deleted by the
    next truncation.
    """
    checkpoints = store.list(f"{folder(container)}/checkpoints/")
    now = store.clock()
    old = [info.path for info in checkpoints if info.modified < now - grace]
    if not old:
        return 0
    boundary = address_of(old[-1])
    needed = needed_from(refresh())
    limit = boundary if needed is None else min(boundary, needed)
    doomed = old[:-1]
    store.delete(doomed)
    deleted = len(doomed)
    while True:
        listed = store.list(f"{folder(container)}/wal/", limit=BATCH)
        doomed = [info.path for info in listed if address_of(info.path) < limit]
        store.delete(doomed)
        deleted += len(doomed)
        if len(doomed) < BATCH:
            return deleted


def collect_garbage(container: Container, before: int) -> int:
    """Deal with what became garbage before `before` (ms since the epoch), and before the last complete flush cycle
    began (F2): chunks are deleted if no metadata names them (G1). Returns how many were.

    Doing it twice, or in several processes, does no harm.
    """
    container.refresh()
    _collect_attributes(container, before)
    queue = LogGarbage(container, container.records, before=before)
    collector = GarbageCollector(ChunkStorage(container.stores.chunks), container.records, queue)
    return collector.run_once(container.now()).deleted


def _collect_attributes(container: Container, before: int) -> None:
    """Remove what deleted segments left in the table of attributes."""
    for prefix, garbage in container.state.garbage.items():
        if garbage.kind == ATTRIBUTES_GARBAGE and garbage.since < before:
            keys = [key for key, _ in container.scan_entries(ATTRIBUTES, prefix)]
            for start in range(0, len(keys), BATCH):
                container.put_entries(ATTRIBUTES, dict.fromkeys(keys[start : start + BATCH]))
            container.commit([Collected((prefix,))])
