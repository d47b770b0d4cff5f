"""Tables: conditional puts and removals, and their flushes to LTS."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.errors import BadKeyVersion, FlushOvertaken
from engine.state import operations as ops
from engine.state.changes.chunk_references import add_references, drop_references
from engine.state.changes.cycle_changes import check_cycle
from engine.state.changes.draft import StateDraft
from engine.state.segments import Extent, Extents
from engine.state.state import NOT_EXISTS
from engine.tables.btree import TreeRoot
from engine.tables.content import TableLayout


def check_version(draft: StateDraft, op: ops.PutEntry | ops.CheckEntry) -> None:
    if op.expected is not None and draft.validating:
        entry = draft.entry(op.table, op.key)
        version = entry.version if entry is not None else NOT_EXISTS
        if op.expected != version:
            raise BadKeyVersion(op.table, op.key, op.expected, version)


def put_entry(draft: StateDraft, op: ops.PutEntry) -> int:
    check_version(draft, op)
    draft.put(op.table, op.key, op.value)
    return draft.sequence


def record_table_flush(draft: StateDraft, op: ops.RecordTableFlush) -> None:
    check_cycle(draft, op.cycle)
    for flushed in op.tables:
        _record_one_flush(draft, flushed)


def _record_one_flush(draft: StateDraft, op: ops.TableFlush) -> None:
    table = draft.tables[op.table]
    layout = layout_of(op.layout)
    entries = _grown(draft, table.entries, table.layout.length, op.entries, op.merged_entries, layout.start)
    pages = _grown(draft, table.pages, table.layout.index_length, op.pages, op.merged_pages, layout.index_start)
    draft.tables[op.table] = table._replace(layout=layout, entries=entries, pages=pages).settled(op.upto, op.keep)


def _grown(
    draft: StateDraft,
    extents: Extents,
    end: int,
    added: Sequence[Extent],
    merged: tuple[int, Sequence[Extent]],
    start: int,
) -> Extents:
    """A byte space of a table after a flush: extents merged, others appended, and those before `start` dropped."""
    add_references(draft, added)
    if merged[1]:
        result = extents.replaced(*merged)
        if result is None:
            raise FlushOvertaken("a table's extents changed while they were merged")
        add_references(draft, merged[1])
        drop_references(draft, result[1])
        extents = result[0]
    kept, dropped = extents.appended(end, added).truncated(start)
    drop_references(draft, dropped)
    return kept


def layout_of(fields: Sequence[Any]) -> TableLayout:
    """A table's layout, from its fields in an operation or a checkpoint."""
    layout = TableLayout(*fields)
    return layout._replace(root=TreeRoot(*layout.root)) if layout.root is not None else layout
