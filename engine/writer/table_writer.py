"""Flushing tables: the new entries of all tables and the new index pages go to LTS in one object.

So a cycle costs one object, however many tables there are. Only much data of a created table gets an object of its own:
its space is free when the table is deleted, or compacted, whatever other tables need. Each flush adds small extents to
a table's byte spaces. To keep their number low, a flush merges the last extents that are no larger than what it adds,
as an LSM store does.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from chunkstore.paths import tables_path
from engine.state import tables as limits
from engine.state.operations import TableFlush
from engine.state.segments import Extent, Extents
from engine.state.state import State
from engine.state.tables import Entry, is_created, new_table
from engine.storage.chunk_writer import write_chunk
from engine.storage.object_reads import fetch, plan_extents
from engine.tables.content import TableEntry
from engine.writer.flush_context import FlushContext

FEW_EXTENTS = 8
"""Fewer extents than this are not merged."""

SHARED_BYTES = 16 << 10
"""So many bytes of a created table share an object with other tables, at most."""

LARGE_EXTENT = 8 << 20
"""Extents are merged up to about this size, bytes."""


class Dirty(NamedTuple):
    """Entries of a table that are to be written to LTS, by their keys. Afterwards LTS has all versions up to `upto`."""

    entries: Mapping[str, Entry]
    upto: int

    @classmethod
    def of(cls, state: State, name: str) -> Dirty:
        """The entries of a table in `state` that LTS does not have."""
        table = state.tables.get(name)
        return cls(dict(table.dirty(state.sequence)) if table is not None else {}, state.sequence)

    def plus(self, values: Mapping[str, bytes | None]) -> Dirty:
        """These entries and others, or removals, that get the version `upto`."""
        newest = {key: Entry(value, self.upto) for key, value in values.items()}
        return self._replace(entries={**self.entries, **newest})


class _Draft(NamedTuple):
    """The flush of one table, before its bytes have a place in an object. alone: in one of its own."""

    name: str
    upto: int
    layout: tuple[object, ...]
    parts: tuple[bytes, bytes, bytes, bytes]  # new entries, new index pages, merged entries, merged index pages
    merged_at: tuple[int, int]
    keep: bool
    alone: bool


def flush_tables(context: FlushContext, tables: Mapping[str, Dirty]) -> list[TableFlush]:
    """Write entries of tables to LTS. Returns what has to be committed; empty if there was nothing to write."""
    wanted = {name: dirty for name, dirty in tables.items() if dirty.entries}
    if not wanted:
        return []
    created = _created_size(context.log.state)
    drafts = [_draft(context, name, dirty, created) for name, dirty in wanted.items()]
    alone = [[draft] for draft in drafts if draft.alone]
    together = [draft for draft in drafts if not draft.alone]
    return [flushed for group in (together, *alone) if group for flushed in _written(context, group)]


def _written(context: FlushContext, drafts: Sequence[_Draft]) -> list[TableFlush]:
    """Write flushes of tables to one object."""
    upto = max(draft.upto for draft in drafts)
    path = tables_path(context.log.number, context.log.head.epoch, upto, uuid.uuid4())
    extents = iter(write_chunk(context.stores.chunks, path, [[part] for draft in drafts for part in draft.parts]))
    return [_placed(draft, _take(draft, extents)) for draft in drafts]


def _take(draft: _Draft, extents: Iterable[Extent]) -> list[tuple[Extent, ...]]:
    """The extents of each part; empty parts have none."""
    iterator = iter(extents)
    return [(next(iterator),) if part else () for part in draft.parts]


def _placed(draft: _Draft, extents: Sequence[tuple[Extent, ...]]) -> TableFlush:
    entries, pages, merged_entries, merged_pages = extents
    entries_at, pages_at = draft.merged_at
    return TableFlush(
        draft.name,
        draft.upto,
        draft.layout,
        entries,
        pages,
        (entries_at, merged_entries),
        (pages_at, merged_pages),
        draft.keep,
    )


def _draft(context: FlushContext, name: str, dirty: Dirty, created: int) -> _Draft:
    """created: the bytes of all created tables in memory. They count together, as there may be very many."""
    table = context.log.state.tables.get(name) or new_table(name)
    entries = [TableEntry(key.encode(), entry.value, entry.version) for key, entry in dirty.entries.items()]
    flush = context.lookups.content(name, table).flush(entries)
    entries_at, merged_entries = _merged(context, table.entries, len(flush.entries), flush.layout.start)
    pages_at, merged_pages = _merged(context, table.pages, len(flush.pages), flush.layout.index_start)
    parts = (flush.entries, flush.pages, merged_entries, merged_pages)
    is_one = is_created(name, table)
    keep = (created if is_one else table.size) <= limits.RESIDENT_BYTES
    alone = is_one and sum(map(len, parts)) > SHARED_BYTES
    return _Draft(name, dirty.upto, tuple(flush.layout), parts, (entries_at, pages_at), keep, alone)


def _created_size(state: State) -> int:
    return sum(table.size for name, table in state.tables.items() if is_created(name, table))


def _merged(context: FlushContext, extents: Extents, added: int, start: int) -> tuple[int, bytes]:
    """Where the last extents that are to be merged begin, and their bytes; no bytes if none are merged."""
    listed = list(extents)
    if len(listed) < FEW_EXTENTS:
        return 0, b""
    size, first = added, len(listed)
    while first and listed[first - 1][1].length <= max(size, 1 << 12) and size < LARGE_EXTENT:
        if listed[first - 1][0] + listed[first - 1][1].length <= start:
            break
        first -= 1
        size += listed[first][1].length
    if len(listed) - first < 2 or size > context.stores.chunks.largest_object():
        return 0, b""
    at, end = listed[first][0], listed[-1][0] + listed[-1][1].length
    return at, b"".join(fetch(context.stores, plan_extents(extents, context.log.number, at, end)))
