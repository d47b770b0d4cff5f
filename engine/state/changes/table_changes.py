"""Tables: conditional puts and removals, and their flushes to LTS."""

from __future__ import annotations

from collections.abc import Sequence

from engine.errors import BadKeyVersion, FlushOvertaken, TableExists, TableNotFound, WrongKeyLength
from engine.state import operations as ops
from engine.state.changes.chunk_references import add_references, drop_references
from engine.state.changes.cycle_changes import check_cycle
from engine.state.changes.draft import StateDraft
from engine.state.segments import Extent, Extents
from engine.state.state import NOT_EXISTS
from engine.state.tables import Table, is_created, new_table
from engine.tables.content import TableLayout


def check_version(draft: StateDraft, op: ops.PutEntry | ops.CheckEntry) -> None:
    if op.expected is not None and draft.validating:
        entry = draft.entry(op.table, op.key)
        version = entry.version if entry is not None else NOT_EXISTS
        if op.expected != version:
            raise BadKeyVersion(op.table, op.key, op.expected, version)


def put_entry(draft: StateDraft, op: ops.PutEntry) -> int:
    if draft.validating:
        _check_key(draft.tables.get(op.table), op)
    check_version(draft, op)
    draft.put(op.table, op.key, op.value)
    return draft.sequence


def _check_key(table: Table | None, op: ops.PutEntry) -> None:
    """Reject a key of another length than a created table has: no flush could bring it to LTS."""
    if table is not None and is_created(op.table, table):
        length = len(op.key.encode())
        if length != table.layout.key_length:
            raise WrongKeyLength(op.table, length, table.layout.key_length)


def create_table(draft: StateDraft, op: ops.CreateTable) -> None:
    if op.table in draft.tables:
        raise TableExists(op.table)
    if not op.key_length:
        raise ValueError("a table that is created has keys of 1 byte or more")
    draft.tables[op.table] = new_table(op.table, op.key_length)


def delete_table(draft: StateDraft, op: ops.DeleteTable) -> None:
    """The objects of the table become garbage where nothing else names them."""
    table = draft.tables.get(op.table)
    if table is None or not is_created(op.table, table):
        raise TableNotFound(op.table)
    draft.table_bytes -= table.unflushed()
    for extents in (table.entries, table.pages):
        drop_references(draft, [extent for _, extent in extents])
    del draft.tables[op.table]


def record_table_flush(draft: StateDraft, op: ops.RecordTableFlush) -> None:
    check_cycle(draft, op.cycle)
    for flushed in op.tables:
        _record_one_flush(draft, flushed)


def _record_one_flush(draft: StateDraft, op: ops.TableFlush) -> None:
    table = draft.tables.get(op.table)
    if table is None:
        return  # it was deleted since the cycle began
    layout = TableLayout(*op.layout)
    if layout.key_length != table.layout.key_length:
        raise FlushOvertaken(f"table {op.table!r} has keys of another length than its flush")
    if table.layout.length + sum(extent.length for extent in op.entries) != layout.length:
        raise FlushOvertaken(f"table {op.table!r} changed while it was flushed")
    entries = _grown(draft, table.entries, table.layout.length, op.entries, op.merged_entries, layout.start)
    pages = _grown(draft, table.pages, table.layout.index_length, op.pages, op.merged_pages, layout.index_start)
    flushed = table._replace(layout=layout, entries=entries, pages=pages).settled(op.upto, op.keep)
    draft.tables[op.table] = flushed
    if is_created(op.table, table):
        draft.table_bytes += flushed.unflushed() - table.unflushed()


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
