"""A metadata store whose commits fail, as drawn from a seed, and that can be fenced off by another owner."""

from __future__ import annotations

import random
from collections.abc import Mapping

from chunkstore.errors import PutUnknown, StorageError
from chunkstore.metadata.metadata_records import Record
from chunkstore.metadata.store import CACHE_SIZE, MemoryMetadataStore, MemoryTable, WithOperations


class FlakyMetadataStore(MemoryMetadataStore):
    """Records in memory, and commits with faults. The share of commits that meet each fault is from 0 to 1.

    `fail_before`: nothing is stored. `fail_after`: it is stored, and the response is lost. Both raise PutUnknown,
    and the committer cannot tell them apart. `faults` counts those met so far. `fence`, once set, is what every commit
    raises: the log has passed to another owner, and nothing is stored.
    """

    def __init__(
        self,
        table: MemoryTable | None = None,
        *,
        seed: int = 0,
        fail_before: float = 0.0,
        fail_after: float = 0.0,
        cache_size: int = CACHE_SIZE,
    ) -> None:
        super().__init__(table, cache_size=cache_size)
        self.fail_before = fail_before
        self.fail_after = fail_after
        self.fence: StorageError | None = None
        self.faults = 0
        self._random = random.Random(seed)

    def _store(
        self, changes: Mapping[str, Record | None], expected: Mapping[str, int], with_operations: WithOperations
    ) -> dict[str, int]:
        if self.fence is not None:
            raise self.fence
        if self._meets(self.fail_before):
            raise PutUnknown(f"the commit of {', '.join(changes)} got no answer: read what is stored")
        versions = super()._store(changes, expected, with_operations)
        if self._meets(self.fail_after):
            raise PutUnknown(f"the commit of {', '.join(changes)} got no answer: read what is stored")
        return versions

    def _meets(self, share: float) -> bool:
        met = share > 0 and self._random.random() < share
        self.faults += met
        return met
