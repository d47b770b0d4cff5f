"""Whether what LTS holds of a table agrees with itself: entries, the index over them, and their numbers (S4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

from chunkstore.errors import fact_of
from engine.admin.checks.findings import Problem
from engine.admin.checks.inventory import Inventory
from engine.errors import DataCorruption
from engine.state.tables import Table
from engine.tables.content import TableContent

BATCH = 1000
"""Entries that are looked at together."""

REMEDY = "restore the objects of the table from a copy, or recover the container from its last recovery point"

Item = TypeVar("Item")


def table_problems(name: str, table: Table, content: TableContent, inventory: Inventory) -> Iterator[Problem]:
    """What is wrong with a table. Raises ObjectNotFound if one of its objects is gone."""
    for check in (_entries, _index, _resident):
        try:
            for problem in check(table, content, inventory):
                yield Problem(name, problem, REMEDY)
        except DataCorruption as error:
            yield Problem(name, fact_of(error), REMEDY)


def _entries(table: Table, content: TableContent, inventory: Inventory) -> Iterator[str]:
    """The entries one after the other, of which `inventory` keeps the newest of each key."""
    inventory.begin_table()
    written = 0
    for batch in batches(content.changes(table.layout.start)):
        inventory.fold([(entry.key, entry.version, entry.value is not None) for _, entry in batch])
        written += len(batch)
        late = max(entry.version for _, entry in batch)
        if late > table.flushed:
            yield f"an entry has version {late}, and only those up to {table.flushed} were flushed"
    if written != table.layout.written:
        yield f"it has {written} entries, live or not, and {table.layout.written} are counted"
    if inventory.folded() != table.layout.entries:
        yield f"{inventory.folded()} of its entries are live, and {table.layout.entries} are counted"


def _index(table: Table, content: TableContent, inventory: Inventory) -> Iterator[str]:
    """The index leads to the newest entry of each key, and to nothing else."""
    found = 0
    for batch in batches(content.scan()):
        found += len(batch)
        for key, _, version in batch:
            newest = inventory.newest(key)
            if newest != version:
                what = "which is removed" if newest is None else f"whose newest version is {newest}"
                yield f"its index leads to version {version} of key {key!r}, {what}"
    if found != table.layout.entries:
        yield f"its index leads to {found} entries, and {table.layout.entries} are counted"


def _resident(table: Table, content: TableContent, inventory: Inventory) -> Iterator[str]:
    """What is in memory and was flushed is in LTS as well."""
    flushed = ((key, entry) for key, entry in table.recent.items() if entry.version <= table.flushed)
    for batch in batches(flushed):
        stored = content.get([key.encode() for key, _ in batch])
        for key, entry in batch:
            other = stored.get(key.encode())
            if other is None or (other.value, other.version) != entry:
                version = "no entry" if other is None else f"version {other.version}"
                yield f"key {key!r}: version {entry.version} was flushed, and LTS has {version} of it"


def batches(items: Iterable[Item], size: int = BATCH) -> Iterator[list[Item]]:
    """The items, some at a time."""
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch
