"""Truncation: deletes frames and checkpoints before a truncation point (W7), checkpoints that nobody needs (P6), and
submissions that were left (W18)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from chunkstore import ObjectInfo, Store
from chunkstore.numbered import list_numbered
from engine.logs import checkpoint_parts
from engine.logs.log import address_of, checkpoints_folder, frames_folder
from engine.logs.submission import inbox_folder
from engine.state.segments import FrameRef
from engine.state.state import State

BATCH = 1000
"""Objects deleted by one request, at most."""

KEPT_BYTES, POINTS = 16 << 20, 8
"""Of each grace period, as many checkpoints are kept as have so many bytes, for later truncations; so many at least."""

OPENING = 10.0
"""Seconds for which a checkpoint is kept that a newer one has replaced: an opening may have listed it, and not read it
yet. One that takes longer lists again."""


def needed_from(state: State) -> int | None:
    """The lowest address of a frame whose payload a segment still needs; None when there is none."""
    addresses = (  # of all extents: those of a merged segment may be older than what stands before them
        extent.source.address
        for segment in state.logged()
        for _, extent in segment.extents
        if isinstance(extent.source, FrameRef)
    )
    return min(addresses, default=None)


def truncate_log(
    store: Store, container: int, refresh: Callable[[], State], grace: float, now: float, covered: int
) -> int:
    """Delete the frames and checkpoints before the truncation point: the newest checkpoint that is older than `grace`
    seconds. Of the checkpoints behind it, only some are kept, so that they take little space however fast they come.

    now: the store's time. covered: checkpoints up to this address are so old by other clocks too (see `age_evidence`).
    Frames with data that is not flushed yet stay: `refresh` returns the state that names them, and is called after the
    truncation point was chosen, so that the state covers all frames before it. Returns how many objects were deleted. A
    frame that a stopped process makes again at a deleted address is deleted by the next truncation.
    """
    checkpoints = list_numbered(store, checkpoints_folder(container))
    old = [info for info in checkpoints if info.modified < now - grace and address_of(info.path) <= covered]
    rest = checkpoints[checkpoints.index(old[-1]) :] if old else checkpoints
    doomed = [*old[:-1], *superseded(rest, grace, now - OPENING)]
    if not old and not doomed:
        return 0
    store.sync(checkpoints_folder(container))  # their makers may have died before that
    if not old:
        store.delete([info.path for info in doomed])
        return len(doomed)
    truncation_point = address_of(old[-1].path)
    needed = needed_from(refresh())
    limit = truncation_point if needed is None else min(truncation_point, needed)
    store.delete([info.path for info in doomed])
    deleted = len(doomed) + checkpoint_parts.delete(store, container, truncation_point, now - grace)
    while True:
        listed = list_numbered(store, frames_folder(container), limit=BATCH)
        frames = [info.path for info in listed if address_of(info.path) < limit]
        store.delete(frames)
        deleted += len(frames)
        if len(frames) < BATCH:
            return deleted + _sweep_inbox(store, container, now - grace)


def superseded(checkpoints: Sequence[ObjectInfo], grace: float, before: float) -> list[ObjectInfo]:
    """The checkpoints that no opening and no truncation needs: neither the first one, nor the newest one, nor from
    after `before` (s, the store's clock), nor far away from the last one that is needed.

    Those that are needed stay so, however often this is asked.
    """
    if len(checkpoints) < POINTS:
        return []
    found, last = [], checkpoints[:1]
    spacing = grace / max(KEPT_BYTES // max(checkpoints[-1].size, 1), POINTS)
    for info in checkpoints[1:-1]:
        if abs(info.modified - last[0].modified) >= spacing:  # also where the clock was set back
            last = [info]
        elif info.modified < before:
            found.append(info)
    return found


def _sweep_inbox(store: Store, container: int, before: float) -> int:
    """Delete submissions from before that time: their owners died, or made frames themselves. An owner that still waits
    for one loses a message and nothing else (W18)."""
    deleted, last = 0, ""
    while listed := store.list(inbox_folder(container), last, BATCH):
        last = listed[-1].path
        doomed = [info.path for info in listed if info.modified < before]
        store.delete(doomed)
        deleted += len(doomed)
    return deleted
