"""Whether a table in LTS is consistent: its entries, the index over them, and the counts of both (S4)."""

from __future__ import annotations

from collections.abc import Iterator

from chunkstore.errors import fact_of
from engine.admin.batching import batches
from engine.admin.checks.findings import Problem
from engine.admin.checks.object_index import ObjectIndex
from engine.errors import DataCorruption
from engine.state.tables import Table
from engine.tables.content import TableContent

BATCH = 1000
"""Entries that are checked together."""

REMEDY = "restore the objects of the table from a copy, or recover the container from its last recovery point"


def table_problems(name: str, table: Table, content: TableContent, index: ObjectIndex) -> Iterator[Problem]:
    """The problems of a table. Raises ObjectNotFound if one of its objects is gone."""
    for check in (_entries, _index, _resident):
        try:
            for problem in check(table, content, index):
                yield Problem(name, problem, REMEDY)
        except DataCorruption as error:
            yield Problem(name, fact_of(error), REMEDY)


def _entries(table: Table, content: TableContent, index: ObjectIndex) -> Iterator[str]:
    """Checks all entries in the order of writing, and stores the newest version of each key in `index`."""
    index.begin_table()
    written = 0
    for batch in batches(content.changes(table.layout.start), BATCH):
        index.fold([(entry.key, entry.version, entry.value is not None) for _, entry in batch])
        written += len(batch)
        late = max(entry.version for _, entry in batch)
        if late > table.flushed:
            yield f"an entry has version {late}, but only versions up to {table.flushed} were flushed"
    if written != table.layout.written:
        yield f"it has {written} entries, superseded ones included, but {table.layout.written} are counted"
    if index.folded() != table.layout.entries:
        yield f"{index.folded()} of its entries are live, but {table.layout.entries} are counted"


def _index(table: Table, content: TableContent, index: ObjectIndex) -> Iterator[str]:
    """Checks that the index points to the newest entry of each key, and to no other."""
    found = 0
    for batch in batches(content.scan(), BATCH):
        found += len(batch)
        for key, _, version in batch:
            newest = index.newest(key)
            if newest != version:
                what = "which was removed" if newest is None else f"whose newest version is {newest}"
                yield f"its index points to version {version} of key {key!r}, {what}"
    if found != table.layout.entries:
        yield f"its index has {found} entries, but {table.layout.entries} are counted"


def _resident(table: Table, content: TableContent, index: ObjectIndex) -> Iterator[str]:
    """Checks that entries that are in memory and were flushed are in LTS too."""
    flushed = ((key, entry) for key, entry in table.recent.items() if entry.version <= table.flushed)
    for batch in batches(flushed, BATCH):
        stored = content.get([key.encode() for key, _ in batch])
        for key, entry in batch:
            other = stored.get(key.encode())
            if other is None or (other.value, other.version) != entry:
                version = "no entry" if other is None else f"version {other.version}"
                yield f"key {key!r}: version {entry.version} was flushed, but LTS has {version}"
