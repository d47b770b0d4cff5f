"""A root in the storage of another system, with the features that only such a storage has.

`pravega_spark.roots` opens it. Callers use this class, so they do not depend on the implementation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING

from engine.root import Root
from pravega_spark.streams.model.key_value_table import KeyValueTableEntry

if TYPE_CHECKING:
    from engine.admin.progress import Progress
    from engine.admin.verify import Report
    from pravega_spark.streams.model.cuts import StreamCut


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
