"""Key-value tables, which only a Pravega's long-term storage has: what is live in them, as far as it was flushed."""

from __future__ import annotations

from collections.abc import Iterator

from engine.root import Root
from pravega_spark.errors import KeyValueTableNotFound, ScopeNotFound, StreamNotFound
from pravega_spark.streams.archived import ArchivedEntry
from pravega_spark.streams.archived_root import ArchivedRoot


def key_value_tables(root: Root, scope: str) -> list[str]:
    """The names of the key-value tables of a scope, sorted; none in a root of ours. Raises ScopeNotFound."""
    return root.archived.streams.key_value_tables(scope) if isinstance(root, ArchivedRoot) else []


def entries(root: Root, scope: str, name: str) -> Iterator[ArchivedEntry]:
    """The live entries of a key-value table. Raises KeyValueTableNotFound, ArchiveDamaged."""
    try:
        if name not in key_value_tables(root, scope):
            raise KeyValueTableNotFound(f"{scope}/{name}")
    except (ScopeNotFound, StreamNotFound):
        raise KeyValueTableNotFound(f"{scope}/{name}") from None
    assert isinstance(root, ArchivedRoot)
    yield from root.archived.streams.key_value_table(scope, name).entries()
