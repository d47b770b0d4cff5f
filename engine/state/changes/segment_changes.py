"""Segments: create, append, seal, merge, truncate, delete, and the expiry of transient segments (PDP-43)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import immutables

from engine.errors import (
    BadOffset,
    Rejected,
    SegmentExists,
    SegmentNotFound,
    SegmentNotSealed,
    SegmentSealed,
    SegmentTransient,
)
from engine.state import operations as ops
from engine.state.changes.attribute_changes import check_few, remove_spilled, updated, updated_attributes
from engine.state.changes.chunk_references import add_references, check_created, drop_references, new_garbage
from engine.state.changes.draft import StateDraft
from engine.state.operations import AttributeUpdate, UpdateKind
from engine.state.segments import (
    CREATION_TIME,
    EVENT_COUNT,
    MAX_LENGTH,
    MAX_VALUE,
    Extent,
    Extents,
    Segment,
    StoredRef,
    logged_bytes,
)
from engine.state.state import ATTRIBUTES_GARBAGE
from engine.state.tables import METADATA, Entry, attribute_key, new_table


def create(draft: StateDraft, op: ops.CreateSegment) -> None:
    if op.segment in draft.segments or (draft.validating and draft.entry(METADATA, op.segment) is not None):
        raise SegmentExists(op.segment)
    created = AttributeUpdate(CREATION_TIME, UpdateKind.NONE, draft.time)
    attributes = updated_attributes(op.segment, immutables.Map(), (created, *op.updates))
    segment = Segment(op.segment, draft.sequence, 0, 0, False, draft.time, 0, attributes, Extents(), parent=op.parent)
    if op.parent:
        _check_parent(draft, segment)
        draft.transients = draft.transients.set(op.segment, op.parent)
    draft.keep(segment)


def _check_parent(draft: StateDraft, segment: Segment) -> None:
    """Reject a transient segment that could not be merged into its parent, or has too many attributes."""
    parent = draft.segment(segment.parent)
    if parent.sealed:
        raise SegmentSealed(parent.name)
    if parent.parent:
        raise SegmentTransient(parent.name, "have transient segments itself")
    check_few(segment.name, segment.attributes)


def start(draft: StateDraft, op: ops.StartSegment) -> None:
    segment = draft.segment(op.segment)
    if segment.sealed:
        raise SegmentSealed(op.segment)
    if segment.parent:
        raise SegmentTransient(op.segment, "begin elsewhere than at 0")
    if segment.length:
        raise BadOffset(op.segment, "a segment that is empty and begins at 0", segment.length)
    if not 0 <= op.offset <= MAX_LENGTH:
        raise BadOffset(op.segment, f"0 to {MAX_LENGTH}", op.offset)
    segment = _without_storage(draft, segment, op.offset)
    draft.keep(segment._replace(start_offset=op.offset, length=op.offset, modified=draft.time))


def append(draft: StateDraft, op: ops.Append) -> int:
    segment = draft.segment(op.segment)
    if segment.sealed:
        raise SegmentSealed(op.segment)
    attributes = updated(draft, segment, op.updates) if op.updates else segment.attributes
    if op.offset is not None and op.offset != segment.length:
        raise BadOffset(op.segment, segment.length, op.offset)
    if segment.spilled:
        remove_spilled(draft, segment, op.updates)
    extents: Sequence[Extent] = op.content  # type: ignore[assignment]
    check_created(draft, op.segment, extents, op.created_at)
    add_references(draft, extents)
    draft.keep(_extended(draft, segment, extents, attributes))
    return segment.length


def _extended(
    draft: StateDraft, segment: Segment, extents: Sequence[Extent], attributes: immutables.Map[bytes, int]
) -> Segment:
    length = segment.length
    for extent in extents:
        length += extent.length
    if length > MAX_LENGTH:
        raise Rejected(
            f"segment {segment.name!r} cannot have {length} bytes: {MAX_LENGTH} is the most. Append to another segment"
        )
    return segment._replace(
        length=length,
        logged=segment.logged + logged_bytes(extents),
        modified=draft.time,
        extents=segment.extents.appended(segment.length, extents),
        attributes=attributes,
        touched=draft.sequence,
    )


def seal(draft: StateDraft, op: ops.SealSegment) -> None:
    segment = draft.segment(op.segment)
    if segment.parent:
        raise SegmentTransient(op.segment, "be sealed")
    if not segment.sealed:
        draft.keep(segment._replace(sealed=True, modified=draft.time))


def merge(draft: StateDraft, op: ops.MergeSegment) -> int:
    target, source = draft.segment(op.target), draft.segment(op.source)
    if op.target == op.source:
        raise Rejected(f"segment {op.target!r} cannot be merged into itself")
    if target.sealed:
        raise SegmentSealed(op.target)
    if target.parent:
        raise SegmentTransient(op.target, "be merged into")
    if not source.sealed and not source.parent:
        raise SegmentNotSealed(op.source)
    if source.start_offset:
        raise BadOffset(op.source, "a segment that was never truncated", source.start_offset)
    events = source.attributes.get(EVENT_COUNT, 0)
    update = (AttributeUpdate(EVENT_COUNT, UpdateKind.ACCUMULATE, events),) if events else ()
    attributes = updated_attributes(op.target, target.attributes, update)
    header: Sequence[Extent] = op.header  # type: ignore[assignment]
    check_created(draft, op.target, header, 0)
    add_references(draft, header)
    draft.keep(_extended(draft, target, [*header, *_content_of(source)], attributes))
    if not source.storage_length:
        _drop_storage(draft, source)
    _drop(draft, source)
    return target.length


def truncate(draft: StateDraft, op: ops.TruncateSegment) -> None:
    segment = draft.segment(op.segment)
    if segment.parent:
        raise SegmentTransient(op.segment, "be truncated")
    if op.offset > segment.length or op.offset < 0:
        raise BadOffset(op.segment, f"0 to {segment.length}", op.offset)
    if op.offset <= segment.start_offset:
        return
    if op.offset > segment.storage_length:
        segment = _without_storage(draft, segment, op.offset)
    extents, dropped = segment.extents.truncated(op.offset)
    drop_references(draft, dropped)
    logged = segment.logged - logged_bytes(dropped)
    draft.keep(segment._replace(start_offset=op.offset, extents=extents, logged=logged, modified=draft.time))


def _without_storage(draft: StateDraft, segment: Segment, offset: int) -> Segment:
    """A segment without content in LTS, as all of that is truncated. What is flushed next becomes another one there."""
    _drop_storage(draft, segment)
    return segment._replace(storage="", storage_length=offset, stored_start=0, stored_sealed=False)


def _drop_storage(draft: StateDraft, segment: Segment) -> None:
    if segment.storage:
        draft.dropped[segment.storage] = True


def delete(draft: StateDraft, op: ops.DeleteSegment) -> None:
    _remove(draft, draft.segment(op.segment))


def expire(draft: StateDraft, op: ops.ExpireSegments) -> tuple[str, ...]:
    return tuple(name for name in op.segments if name in draft.transients and _delete_transient(draft, name, op.before))


def _remove(draft: StateDraft, segment: Segment) -> None:
    """Delete a segment with its content."""
    drop_references(draft, [extent for _, extent in segment.extents])
    _drop_storage(draft, segment)
    _drop(draft, segment)


def _drop(draft: StateDraft, segment: Segment) -> None:
    """Remove a segment from memory and from the metadata table."""
    del draft.segments[segment.name]
    draft.unsaved.pop(segment.name, None)
    draft.logged_bytes -= segment.logged
    draft.extents -= len(segment.extents)
    # A cycle under way may be saving it: also one that was created later, but in the frame that began the cycle.
    if segment.saved >= 0 or not draft.cycle.complete:
        table = draft.tables.get(METADATA) or new_table(METADATA)
        draft.tables[METADATA] = table.put(segment.name, Entry(None, draft.sequence), under_way=True)
    if segment.spilled:
        draft.garbage[attribute_key(segment.id, b"")] = new_garbage(draft, ATTRIBUTES_GARBAGE, segment.name)
    if segment.parent:
        draft.transients = draft.transients.delete(segment.name)
    for name, parent in draft.transients.items() if draft.transients else ():
        if parent == segment.name:
            _delete_transient(draft, name)


def _delete_transient(draft: StateDraft, name: str, before: int = MAX_VALUE) -> bool:
    """Delete a transient segment if its last append was before that time (ms). Returns whether it was deleted."""
    segment = draft.segments.get(name)
    if segment is None and draft.validating:
        with suppress(SegmentNotFound):
            draft.segment(name)  # raises Unresolved for a segment that has to become active first
    if segment is None:  # after a recovery, names of segments that the recovery point does not have are left
        draft.transients = draft.transients.delete(name)
    elif segment.modified < before:
        _remove(draft, segment)
        return True
    return False


def _content_of(segment: Segment) -> list[Extent]:
    """All of a segment's content as extents: one for its content in LTS, then its own."""
    extents = [extent for _, extent in segment.extents]
    if segment.storage_length:
        return [Extent(StoredRef(segment.storage), 0, segment.storage_length, b""), *extents]
    return extents
