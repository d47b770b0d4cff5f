"""A root in the storage of another system, with the features that only such a storage has.

`pravega_spark.roots` opens it. Callers use this class, so they do not depend on the implementation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from engine.root import Root
from pravega_spark.errors import KeyValueTableNotFound
from pravega_spark.streams.model.system_tables import SCOPES
from pravega_spark.streams.reading.suggestions import has_key, similar_keys, similar_names

if TYPE_CHECKING:
    from engine.admin.progress import Progress
    from engine.admin.verify import Report
    from pravega_spark.streams.model.cuts import StreamCut


class KeyValueTableEntry(NamedTuple):
    """An entry of a key-value table. version: partition number and offset, as in the original's `Version`."""

    primary: bytes
    secondary: bytes
    value: bytes
    version: tuple[int, int]


class ForeignRoot(Root, ABC):
    """A root that another system wrote, and that can only be read."""

    read_only = True

    @abstractmethod
    def reader_groups(self, scope: str) -> list[str]:
        """The reader groups of a scope whose state was flushed. Raises ScopeNotFound."""

    @abstractmethod
    def reader_group_cuts(self, scope: str, group: str) -> list[StreamCut]:
        """A reader group's last flushed position in each of its streams. Raises ScopeNotFound, StreamNotFound."""

    @abstractmethod
    def key_value_tables(self, scope: str) -> list[str]:
        """The key-value tables of a scope, sorted. Raises ScopeNotFound."""

    @abstractmethod
    def key_value_table_entries(self, scope: str, name: str) -> Iterator[KeyValueTableEntry]:
        """The live entries of a key-value table. Raises ScopeNotFound, StreamNotFound."""

    @abstractmethod
    def verify_storage(self, progress: Progress, deep: bool) -> Report:
        """Verify all of it, with `deep` every event. Raises StorageError."""


def key_value_tables(root: Root, scope: str) -> list[str]:
    """The key-value tables of a scope, sorted. Only a foreign root has any. Raises ScopeNotFound."""
    return root.key_value_tables(scope) if isinstance(root, ForeignRoot) else []


def key_value_table_entries(root: Root, scope: str, name: str) -> Iterator[KeyValueTableEntry]:
    """The live entries of a key-value table. Raises KeyValueTableNotFound, ArchiveDamaged."""
    key = f"{scope}/{name}"
    if not has_key(root, SCOPES, scope):
        raise KeyValueTableNotFound(key, similar_keys(root, SCOPES, scope), without_scope=True)
    if not isinstance(root, ForeignRoot) or name not in root.key_value_tables(scope):
        raise KeyValueTableNotFound(key, similar_names(_all_tables(root), key))
    yield from root.key_value_table_entries(scope, name)


def _all_tables(root: Root) -> Iterator[str]:
    """All key-value tables of a root, as "scope/table"."""
    for number in range(root.config.containers):
        for scope, _ in root.container(number).scan_entries(SCOPES):
            yield from (f"{scope}/{name}" for name in key_value_tables(root, scope))
