"""Which chunks are named, and what is garbage (G1, F2).

A chunk is counted with each extent that names it. What nothing names any more becomes garbage with the very operation
that lets it go, and what is garbage, or was given up by a sweep of orphans, is never named again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from engine.errors import ChunksGivenUp, Rejected
from engine.state import operations as ops
from engine.state.changes.draft import StateDraft
from engine.state.segments import Extent, StoredRef
from engine.state.state import GarbageEntry

_CHUNK = 1  # GarbageKind.CHUNK


def new_garbage(draft: StateDraft, kind: int, segment: str = "") -> GarbageEntry:
    """What becomes garbage by the operation at hand."""
    return GarbageEntry(draft.time, draft.sequence, kind, segment)


def queue_garbage(draft: StateDraft, op: ops.QueueGarbage) -> None:
    for name, kind, segment in op.tasks:
        draft.garbage[name] = new_garbage(draft, kind, segment)


def discard(draft: StateDraft, op: ops.Discard) -> None:
    for chunk in op.chunks:
        if chunk not in draft.chunks:
            draft.garbage[chunk] = new_garbage(draft, _CHUNK)
    draft.orphan_horizon = max(draft.orphan_horizon, op.before)


def collected(draft: StateDraft, op: ops.Collected) -> None:
    for chunk in op.chunks:
        draft.garbage.pop(chunk, None)


def check_created(draft: StateDraft, segment: str, extents: Sequence[Extent], created_at: int) -> None:
    """Refuse chunks that a sweep may have given up: collected by now, they would not be known as garbage any more.

    What flush cycles write needs no such check: they are fenced by their numbers, see `engine.admin.orphans`.
    """
    if created_at < draft.orphan_horizon:
        for source, _, length, _ in extents:
            if isinstance(source, str) and length and source not in draft.chunks:
                raise ChunksGivenUp(segment, created_at, draft.orphan_horizon)


def refer(draft: StateDraft, extents: Sequence[Extent]) -> None:
    """Count the extents that name chunks. Raises Rejected for one that is garbage: it may be deleted (G1)."""
    for source, _, length, _ in extents:
        if isinstance(source, str) and length:
            if source in draft.garbage:
                raise Rejected(f"chunk {source!r} was given up already and cannot be attached any more")
            draft.chunks[source] = draft.chunks.get(source, 0) + 1


def release(draft: StateDraft, extents: Sequence[Extent], moved: Collection[str] = ()) -> None:
    """What no extent names any more becomes garbage with the very operation that lets it go (G1), unless LTS
    has taken it over."""
    for source, _, _, _ in extents:
        if isinstance(source, str):
            count = draft.chunks[source] - 1
            if count:
                draft.chunks[source] = count
                continue
            del draft.chunks[source]
            if source not in moved:
                draft.garbage[source] = new_garbage(draft, _CHUNK)
        elif isinstance(source, StoredRef) and source.storage not in moved:
            draft.dropped[source.storage] = True
