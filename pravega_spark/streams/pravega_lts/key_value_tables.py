"""Key-value tables, which only a Pravega's long-term storage has: what is live in them, as far as it was flushed."""

from __future__ import annotations

from collections.abc import Iterator

from engine.root import Root
from pravega_spark.errors import KeyValueTableNotFound
from pravega_spark.streams.model.system_tables import SCOPES
from pravega_spark.streams.pravega_lts.root import ArchivedRoot
from pravega_spark.streams.pravega_lts.streams import ArchivedEntry
from pravega_spark.streams.reading.suggestions import has_key, similar_keys, similar_names


def key_value_tables(root: Root, scope: str) -> list[str]:
    """The names of the key-value tables of a scope, sorted; none in a root of ours. Raises ScopeNotFound."""
    return root.archived.streams.key_value_tables(scope) if isinstance(root, ArchivedRoot) else []


def entries(root: Root, scope: str, name: str) -> Iterator[ArchivedEntry]:
    """The live entries of a key-value table. Raises KeyValueTableNotFound, ArchiveDamaged."""
    key = f"{scope}/{name}"
    if not has_key(root, SCOPES, scope):
        raise KeyValueTableNotFound(key, similar_keys(root, SCOPES, scope), without_scope=True)
    if name not in key_value_tables(root, scope):
        raise KeyValueTableNotFound(key, similar_names(_all_tables(root), key))
    assert isinstance(root, ArchivedRoot)
    yield from root.archived.streams.key_value_table(scope, name).entries()


def _all_tables(root: Root) -> Iterator[str]:
    """All of a root, as "scope/table"."""
    if isinstance(root, ArchivedRoot):
        for scope in root.archived.streams.scopes():
            yield from (f"{scope}/{name}" for name in key_value_tables(root, scope))
