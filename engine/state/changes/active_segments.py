"""Active segments: loaded from the metadata table, evicted, and saved there as of the beginning of a cycle."""

from __future__ import annotations

from engine.errors import Unresolved
from engine.state import operations as ops
from engine.state.changes.cycle_changes import check_cycle
from engine.state.changes.draft import StateDraft
from engine.state.segment_record import decode_segment
from engine.state.tables import METADATA, Entry, new_table


def activate(draft: StateDraft, op: ops.ActivateSegment) -> None:
    if op.segment in draft.segments:
        return
    if draft.validating:
        entry = draft.entry(METADATA, op.segment)
        if entry is None or entry.version != op.version:
            raise Unresolved(METADATA, (op.segment,))
    draft.store(decode_segment(op.record, draft.sequence, op.segment))


def evict(draft: StateDraft, op: ops.EvictSegments) -> None:
    for name in op.segments:
        if name in draft.segments and name not in draft.unsaved:
            del draft.segments[name]


def save(draft: StateDraft, op: ops.SaveSegments) -> None:
    check_cycle(draft, op.cycle)
    table = draft.tables.get(METADATA) or new_table(METADATA)
    for name, number, record in op.records:
        segment = draft.segments.get(name)
        if segment is None or segment.id != number:
            continue
        table = table.put(name, Entry(record, op.sequence))
        draft.store(segment._replace(saved=op.sequence))
        if segment.touched <= op.sequence:
            draft.unsaved.pop(name, None)
    draft.tables[METADATA] = table
