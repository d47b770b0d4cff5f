"""Reference counts of chunks, and garbage (G1, F2).

A chunk's count is the number of extents that name it. The operation that drops the last reference makes the chunk
garbage. A chunk that is garbage, or was created before the attach fence, is never named again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from engine.errors import ChunksExpired, Rejected
from engine.state import operations as ops
from engine.state.changes.draft import StateDraft
from engine.state.segments import Extent, StoredRef
from engine.state.state import GarbageEntry

_CHUNK = 1  # GarbageKind.CHUNK


def new_garbage(draft: StateDraft, kind: int, segment: str = "") -> GarbageEntry:
    """An entry for what the present operation makes garbage."""
    return GarbageEntry(draft.time, draft.sequence, kind, segment)


def queue_garbage(draft: StateDraft, op: ops.QueueGarbage) -> None:
    for name, kind, segment in op.tasks:
        draft.garbage[name] = new_garbage(draft, kind, segment)


def discard_chunks(draft: StateDraft, op: ops.DiscardChunks) -> None:
    for chunk in op.chunks:
        if chunk not in draft.chunks:
            draft.garbage[chunk] = new_garbage(draft, _CHUNK)
    draft.min_attach_time = max(draft.min_attach_time, op.min_attach_time)


def dequeue_garbage(draft: StateDraft, op: ops.DequeueGarbage) -> None:
    for chunk in op.chunks:
        draft.garbage.pop(chunk, None)


def check_created(draft: StateDraft, segment: str, extents: Sequence[Extent], created_at: int) -> None:
    """Reject chunks below the attach fence: a sweep may have deleted them, so they are not known as garbage any more.

    Chunks of flush cycles need no such check, as the cycle's number fences them (see `engine.admin.orphans`).
    """
    if created_at < draft.min_attach_time:
        for source, _, length, _ in extents:
            if isinstance(source, str) and length and source not in draft.chunks:
                raise ChunksExpired(segment, created_at, draft.min_attach_time)


def add_references(draft: StateDraft, extents: Sequence[Extent]) -> None:
    """Count the references of extents to chunks. Raises Rejected for a chunk that is garbage: it may be deleted
    (G1)."""
    for source, _, length, _ in extents:
        if isinstance(source, str) and length:
            if source in draft.garbage:
                raise Rejected(f"chunk {source!r} is garbage and cannot be attached any more")
            draft.chunks[source] = draft.chunks.get(source, 0) + 1


def drop_references(draft: StateDraft, extents: Sequence[Extent], moved: Collection[str] = ()) -> None:
    """Drop the references of extents to chunks and merged segments. What loses its last one becomes garbage (G1),
    unless LTS has taken it over (`moved`)."""
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
