"""Flushing tables: what is new in them goes to LTS, all in one object, their index behind it.

So a cycle costs one object for many tables. The byte spaces that a table lies in are made of many small extents by
this; neighbours are merged into larger ones, each time those that are no larger than what comes with them, so that
there are never more than a few.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from chunkstore.paths import tables_path
from engine.state import tables as limits
from engine.state.operations import FlushedTable
from engine.state.segments import Extent, Extents
from engine.state.state import State
from engine.state.tables import Entry, new_table
from engine.storage.chunks import write_chunk
from engine.storage.reads import fetch, plan_extents
from engine.tables.content import TableEntry
from engine.writer.data_source import WriterDataSource

FEW_EXTENTS = 8
"""Extents that are never merged."""

LARGE_EXTENT = 8 << 20
"""Extents of this size, bytes, are not merged any more."""


class Dirty(NamedTuple):
    """Entries of a table that are to come to LTS, by their keys; versions up to `upto` are there then."""

    entries: Mapping[str, Entry]
    upto: int

    @classmethod
    def of(cls, state: State, name: str) -> Dirty:
        """What LTS lacks of a table in `state`."""
        table = state.tables.get(name)
        return cls(dict(table.dirty(state.sequence)) if table is not None else {}, state.sequence)

    def plus(self, values: Mapping[str, bytes | None]) -> Dirty:
        """These and other entries, or removals, which have the newest version."""
        newest = {key: Entry(value, self.upto) for key, value in values.items()}
        return self._replace(entries={**self.entries, **newest})


class _Draft(NamedTuple):
    """The flush of one table: what is to be written, before it is known where it lies."""

    name: str
    upto: int
    layout: tuple[object, ...]
    parts: tuple[bytes, bytes, bytes, bytes]  # new entries, new index pages, merged entries, merged index pages
    merged_at: tuple[int, int]
    keep: bool


def flush_tables(source: WriterDataSource, tables: Mapping[str, Dirty]) -> list[FlushedTable]:
    """Write entries of tables to LTS; what is to be committed. Empty if there was nothing to write."""
    drafts = [_draft(source, name, dirty) for name, dirty in tables.items() if dirty.entries]
    if not drafts:
        return []
    upto = max(draft.upto for draft in drafts)
    path = tables_path(source.number, source.head.epoch, upto, uuid.uuid4())
    extents = iter(write_chunk(source.stores.chunks, path, [[part] for draft in drafts for part in draft.parts]))
    return [_placed(draft, _take(draft, extents)) for draft in drafts]


def _take(draft: _Draft, extents: Iterable[Extent]) -> list[tuple[Extent, ...]]:
    """The extents of each part; empty parts have none."""
    iterator = iter(extents)
    return [(next(iterator),) if part else () for part in draft.parts]


def _placed(draft: _Draft, extents: Sequence[tuple[Extent, ...]]) -> FlushedTable:
    entries, pages, merged_entries, merged_pages = extents
    entries_at, pages_at = draft.merged_at
    return FlushedTable(
        draft.name,
        draft.upto,
        draft.layout,
        entries,
        pages,
        (entries_at, merged_entries),
        (pages_at, merged_pages),
        draft.keep,
    )


def _draft(source: WriterDataSource, name: str, dirty: Dirty) -> _Draft:
    table = source.state.tables.get(name) or new_table(name)
    entries = [TableEntry(key.encode(), entry.value, entry.version) for key, entry in dirty.entries.items()]
    flush = source.lookups.content(name, table).flush(entries)
    entries_at, merged_entries = _merged(source, table.entries, len(flush.entries), flush.layout.start)
    pages_at, merged_pages = _merged(source, table.pages, len(flush.pages), flush.layout.index_start)
    parts = (flush.entries, flush.pages, merged_entries, merged_pages)
    keep = table.size <= limits.RESIDENT_BYTES
    return _Draft(name, dirty.upto, tuple(flush.layout), parts, (entries_at, pages_at), keep)


def _merged(source: WriterDataSource, extents: Extents, added: int, start: int) -> tuple[int, bytes]:
    """Where the last extents that are to be merged begin, and their bytes; none if there are few."""
    listed = list(extents)
    if len(listed) < FEW_EXTENTS:
        return 0, b""
    size, first = added, len(listed)
    while first and listed[first - 1][1].length <= max(size, 1 << 12) and size < LARGE_EXTENT:
        if listed[first - 1][0] + listed[first - 1][1].length <= start:
            break
        first -= 1
        size += listed[first][1].length
    if len(listed) - first < 2:
        return 0, b""
    at, end = listed[first][0], listed[-1][0] + listed[-1][1].length
    return at, b"".join(fetch(source.stores, plan_extents(extents, source.number, at, end)))
