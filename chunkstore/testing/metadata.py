"""Metadata stores in memory: one that does what it should, and one whose commits fail, as drawn from a seed."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Collection, Iterator, Mapping

from chunkstore.errors import PutUnknown, StorageError
from chunkstore.metadata.records import Record, decode, encode
from chunkstore.metadata.store import ABSENT, CACHE_SIZE, Companions, MetadataStore, conflict


class MemoryTable:
    """What `MemoryMetadataStore`s keep: the bytes of each record, and its version. It outlives the stores on it."""

    def __init__(self) -> None:
        self.rows: dict[str, tuple[int, bytes]] = {}
        self.lock = threading.Lock()
        self.versions = itertools.count()


class MemoryMetadataStore(MetadataStore):
    """Records in this process. Several stores on one `table` are like processes that take over from one another."""

    def __init__(self, table: MemoryTable | None = None, *, cache_size: int = CACHE_SIZE) -> None:
        super().__init__(cache_size=cache_size)
        self.table = MemoryTable() if table is None else table

    def _load(self, keys: Collection[str]) -> dict[str, tuple[int, Record | None]]:
        with self.table.lock:
            found = {key: self.table.rows.get(key) for key in keys}
        return {key: (row[0], decode(row[1])) if row else (ABSENT, None) for key, row in found.items()}

    def _store(
        self, changes: Mapping[str, Record | None], expected: Mapping[str, int], companions: Companions
    ) -> dict[str, int]:
        if companions:
            raise ValueError(f"nothing can happen together with a change of records in memory: {companions!r}")
        encoded = {key: record and encode(record) for key, record in changes.items()}
        rows = self.table.rows
        with self.table.lock:
            changed = tuple(key for key, version in expected.items() if rows.get(key, (ABSENT,))[0] != version)
            if changed:
                raise conflict(changed)
            versions = {}
            for key, data in encoded.items():
                if data is None:
                    rows.pop(key, None)
                    versions[key] = ABSENT
                else:
                    versions[key] = next(self.table.versions)
                    rows[key] = versions[key], data
            return versions

    def _scan(self, prefix: str) -> Iterator[tuple[str, Record]]:
        with self.table.lock:
            found = [(key, data) for key, (_, data) in self.table.rows.items() if key.startswith(prefix)]
        return ((key, decode(data)) for key, data in found)


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
        self, changes: Mapping[str, Record | None], expected: Mapping[str, int], companions: Companions
    ) -> dict[str, int]:
        if self.fence is not None:
            raise self.fence
        if self._meets(self.fail_before):
            raise PutUnknown(f"the commit of {', '.join(changes)} got no answer: read what is stored")
        versions = super()._store(changes, expected, companions)
        if self._meets(self.fail_after):
            raise PutUnknown(f"the commit of {', '.join(changes)} got no answer: read what is stored")
        return versions

    def _meets(self, share: float) -> bool:
        met = share > 0 and self._random.random() < share
        self.faults += met
        return met
