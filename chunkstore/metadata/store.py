"""Transactions over the records of segment metadata: several change together, or none does (S4).

A `MetadataStore` is transactional: a `MetadataTransaction` reads records, collects changes, and commits them only if no
other transaction changed a record that it read or changed. A subclass decides where the records are stored, with three
methods; `MemoryMetadataStore` keeps them in this process.

A caller that shares a log with the store may pass operations `with_operations`: the store commits them in the same step
as the changes, all or nothing. The transaction carries them and does not look inside.

The store caches the records that were used last (write-through: each was stored before it is cached), and holds pinned
records, which exist only in memory. So a cache shows this process's commits at once, and those of other processes after
a MetadataConflict.
"""

from __future__ import annotations

import abc
import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, TypeAlias, TypeVar

from chunkstore.errors import InvalidRecord, MetadataConflict
from chunkstore.key_locks import KeyLocks
from chunkstore.metadata.metadata_records import (
    ChunkRecord,
    IndexBlockRecord,
    Record,
    StoredSegmentRecord,
    decode,
    encode,
    segment_key,
)

ABSENT = -1
"""The version of a key that has no record."""

CACHE_SIZE = 100_000
"""Names that records in memory hold together, of which each takes some 200 bytes: a record of a chunk holds two."""

WithOperations: TypeAlias = Sequence[Any]
"""Operations that a store commits in the same step as the changes of a transaction. Only the store knows their type."""

AnyRecord = TypeVar("AnyRecord", StoredSegmentRecord, ChunkRecord, IndexBlockRecord)


class Versioned(NamedTuple):
    """What is known of a key: a version that no other state of this key ever has, but ABSENT, and its record."""

    version: int
    record: Record | None


class MetadataStore(abc.ABC):
    """Records by their keys. May be used by many threads; a transaction by one at a time.

    `cache_size` bounds what is kept in memory beside pinned records, in names (see CACHE_SIZE).
    """

    def __init__(self, *, cache_size: int = CACHE_SIZE) -> None:
        self._cache = _Cache(cache_size)
        self._locks = KeyLocks()
        self._pinned_versions = itertools.count(ABSENT - 1, -1)  # never one that a subclass gives

    def begin(self, *keys: str, read_only: bool = False, with_operations: WithOperations = ()) -> MetadataTransaction:
        """A new transaction, to be used in a with statement. `keys` are read at once, together.

        `with_operations` are committed with it, even if it changes no record.
        """
        return MetadataTransaction(self, keys, read_only=read_only, with_operations=with_operations)

    def keys(self, prefix: str = "") -> Iterator[str]:
        """The keys that begin with `prefix`, in no order."""
        return (key for key, _ in self.records(prefix))

    def records(self, prefix: str = "") -> Iterator[tuple[str, Record]]:
        """Keys that begin with `prefix`, in no order, and their records. What is changed meanwhile may be in it."""
        pinned = self._cache.pinned(prefix)
        yield from pinned.items()
        for key, record in self._scan(prefix):
            if key not in pinned:
                yield key, record

    def evict_all(self) -> None:
        """Drop the cache, except pinned records, so that records are read again."""
        self._cache.clear()

    # -- what differs from store to store

    @abc.abstractmethod
    def _load(self, keys: Collection[str]) -> Mapping[str, tuple[int, Record | None]]:
        """Version and record of each key, (ABSENT, None) for those that have none."""

    @abc.abstractmethod
    def _store(
        self, changes: Mapping[str, Record | None], expected: Mapping[str, int], with_operations: WithOperations
    ) -> Mapping[str, int]:
        """Change records (None deletes) and commit `with_operations`, if all keys in `expected` have these versions.

        All or nothing.

        Returns the new version of each changed key: one that it never had, from 0 on, or ABSENT if deleted. `expected`
        has every key of `changes`, and may have more. Raises MetadataConflict; after any other error it may have
        happened. A store that knows of no with_operations raises ValueError for any.
        """

    @abc.abstractmethod
    def _scan(self, prefix: str) -> Iterator[tuple[str, Record]]:
        """Keys that begin with `prefix`, and their records."""

    # -- for transactions

    def _read(self, keys: Collection[str]) -> dict[str, Versioned]:
        known = self._cache.find(keys)
        missing = [key for key in keys if key not in known]
        if missing:
            # Under the locks, so that what is loaded cannot replace what a commit puts into the cache meanwhile.
            with self._locks.held(missing):
                known |= self._cache.find(missing)
                known |= self._load_into_cache([key for key in missing if key not in known])
        return known

    def _commit(
        self,
        read: Mapping[str, int],
        changes: Mapping[str, Record | None],
        pinned: Collection[str],
        external_step: Callable[[], None] | None,
        with_operations: WithOperations,
    ) -> None:
        with self._locks.held(read):
            in_memory = {key for key in read if key in pinned or self._cache.is_pinned(key)}
            stored = {key: record for key, record in changes.items() if key not in in_memory}
            to_store = bool(stored or with_operations)
            self._check_versions(read, in_memory, ask_store=not to_store)
            try:
                versions: Mapping[str, int] = {}
                if to_store:
                    expected = {key: at for key, at in read.items() if key not in in_memory}
                    versions = self._store(stored, expected, with_operations)
                if external_step is not None:
                    external_step()
            except BaseException:
                # Whatever became of it, what is in memory may now be wrong.
                self._cache.drop(key for key in read if key not in in_memory)
                raise
            self._cache.put({key: Versioned(versions[key], record) for key, record in stored.items()})
            self._cache.pin(
                {key: Versioned(next(self._pinned_versions), changes[key]) for key in in_memory if key in changes}
            )

    def _check_versions(self, read: Mapping[str, int], in_memory: Collection[str], *, ask_store: bool) -> None:
        """Raise MetadataConflict if a key is known to have changed; of keys not in memory the store knows more."""
        known = dict.fromkeys(in_memory, Versioned(ABSENT, None)) | self._cache.find(read)
        if ask_store:
            known |= self._load_into_cache([key for key in read if key not in known])
        changed = tuple(key for key, version in read.items() if key in known and known[key].version != version)
        if changed:
            self._cache.drop(changed)  # in memory may be what was true before another process changed it
            raise _conflict(changed)

    def _load_into_cache(self, keys: Collection[str]) -> dict[str, Versioned]:
        if not keys:
            return {}
        loaded = {key: Versioned(*found) for key, found in self._load(keys).items()}
        self._cache.put(loaded)
        return loaded


class MetadataTransaction:
    """Reads records and changes them, all at once, at `commit`. Leaving the with statement without it changes nothing.

    What is read is remembered with its version, and its own changes are seen. A key that is put without having been
    read is taken for a new one.

    Records that are read one after the other need not fit together if another transaction commits in between: `commit`,
    which a transaction that only reads may call too, raises MetadataConflict then.

    `with_operations` are committed in the same step as its changes; until then more may be added.
    """

    def __init__(
        self, store: MetadataStore, keys: Collection[str], *, read_only: bool, with_operations: WithOperations = ()
    ) -> None:
        self._store = store
        self._read_only = read_only
        self._seen: dict[str, Versioned] = {}
        self._changes: dict[str, Record | None] = {}
        self._pinned: set[str] = set()
        self.with_operations = list(with_operations)
        self._otherwise: list[Callable[[], None]] = []
        self._ended = False
        try:
            self.load(*keys)
        except BaseException:
            self.abort()
            raise

    def load(self, *keys: str) -> None:
        """Read these keys together, which is quicker than one by one."""
        self._check_open()
        self._seen |= self._store._read([key for key in dict.fromkeys(keys) if key not in self._seen])

    def get(self, key: str) -> Record | None:
        """The record, None if there is none."""
        self.load(key)
        return self._changes[key] if key in self._changes else self._seen[key].record

    def segment(self, name: str) -> StoredSegmentRecord | None:
        """The record of the segment `name`, None if there is none. Raises InvalidRecord for any other kind."""
        return self._of_type(segment_key(name), StoredSegmentRecord)

    def chunk(self, name: str) -> ChunkRecord | None:
        """The record of the chunk `name`, None if there is none. Raises InvalidRecord for any other kind."""
        return self._of_type(name, ChunkRecord)

    def block(self, key: str) -> IndexBlockRecord | None:
        """The block with this key, None if there is none. Raises InvalidRecord for any other kind."""
        return self._of_type(key, IndexBlockRecord)

    def put(self, record: Record, pinned: bool = False) -> None:
        """Note a record that is new or changed. A pinned one is only in memory, now and whenever it is changed again.

        Raises ValueError if the record is stored already, and so cannot be pinned.
        """
        self._check_writable()
        key = record.key
        if key not in self._seen:
            # Looking would cost a request for each new chunk, and is impossible while the records are made that say
            # where the store itself lies.
            self._seen[key] = Versioned(ABSENT, None)
        if pinned and self._seen[key].version > ABSENT:
            raise ValueError(f"{key!r} is stored: only a new record can be pinned")
        self._changes[key] = record
        if pinned:
            self._pinned.add(key)

    def delete(self, key: str) -> None:
        """Delete the record at `commit`; nothing happens if there is none."""
        self._check_writable()
        if self.get(key) is None:
            return
        if self._seen[key].record is None:
            del self._changes[key]
        else:
            self._changes[key] = None

    def unless_committed(self, act: Callable[[], None]) -> None:
        """Call `act` when the transaction ends otherwise than by a commit that is known to be made."""
        self._check_open()
        self._otherwise.append(act)

    def commit(self, external_step: Callable[[], None] | None = None) -> None:
        """Commit the changes and the operations, all or none, and end the transaction.

        `external_step` is called when they are stored, and before they are visible. If it raises, changes of pinned
        records are dropped, but the rest is stored. It must not read keys of this transaction. Raises MetadataConflict
        if a key was changed since it was read, InvalidRecord for a segment that contradicts itself, and what the store
        raises: then the outcome is not known, and what is read next is what was stored.
        """
        self._check_open()
        try:
            for record in self._changes.values():
                if isinstance(record, StoredSegmentRecord):
                    record.check_invariants()
            versions = {key: seen.version for key, seen in self._seen.items()}
            self._store._commit(versions, self._changes, self._pinned, external_step, self.with_operations)
            self._otherwise.clear()
        finally:
            self.abort()

    def abort(self) -> None:
        """End the transaction; changes that were not committed are forgotten."""
        if not self._ended:
            self._ended = True
            for act in self._otherwise:
                act()

    def __enter__(self) -> MetadataTransaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()

    def _of_type(self, key: str, kind: type[AnyRecord]) -> AnyRecord | None:
        record = self.get(key)
        if record is None or isinstance(record, kind):
            return record
        found = type(record).__name__
        raise InvalidRecord(f"{key!r} is a {found}, not a {kind.__name__}: the metadata is damaged", "type")

    def _check_open(self) -> None:
        if self._ended:
            raise RuntimeError("this transaction has ended: begin another")

    def _check_writable(self) -> None:
        self._check_open()
        if self._read_only:
            raise RuntimeError("this transaction was begun for reading only")


class MemoryTable:
    """What `MemoryMetadataStore`s keep: the bytes of each record, and its version. It outlives the stores on it."""

    def __init__(self) -> None:
        self.rows: dict[str, tuple[int, bytes]] = {}
        self.lock = threading.Lock()
        self.versions = itertools.count()

    def put(self, key: str, data: bytes | None) -> int:
        """Set or delete (None) a record; returns its new version, ABSENT if it is gone."""
        if data is None:
            self.rows.pop(key, None)
            return ABSENT
        version = next(self.versions)
        self.rows[key] = version, data
        return version


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
        self, changes: Mapping[str, Record | None], expected: Mapping[str, int], with_operations: WithOperations
    ) -> dict[str, int]:
        encoded = {key: record and encode(record) for key, record in changes.items()}
        rows = self.table.rows
        with self.table.lock:
            changed = tuple(key for key, version in expected.items() if rows.get(key, (ABSENT,))[0] != version)
            if changed:
                raise _conflict(changed)
            self._persist(changes, with_operations)
            return {key: self.table.put(key, data) for key, data in encoded.items()}

    def _persist(self, changes: Mapping[str, Record | None], with_operations: WithOperations) -> None:
        """Make a change durable before it is made here. A subclass does so; in memory nothing is durable."""
        if with_operations:
            raise ValueError(f"a store in memory cannot commit operations with a change: {with_operations!r}")

    def _scan(self, prefix: str) -> Iterator[tuple[str, Record]]:
        with self.table.lock:
            found = [(key, data) for key, (_, data) in self.table.rows.items() if key.startswith(prefix)]
        return ((key, decode(data)) for key, data in found)


def _conflict(keys: tuple[str, ...]) -> MetadataConflict:
    return MetadataConflict(f"another transaction changed {', '.join(map(repr, keys))}: begin again", keys)


class _Cache:
    """What is known of keys: what was used last, as long as it fits, and pinned records."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._used = 0
        self._recent: OrderedDict[str, Versioned] = OrderedDict()
        self._pinned: dict[str, Versioned] = {}

    def find(self, keys: Iterable[str]) -> dict[str, Versioned]:
        found = {}
        with self._lock:
            for key in keys:
                if key in self._pinned:
                    found[key] = self._pinned[key]
                elif key in self._recent:
                    self._recent.move_to_end(key)
                    found[key] = self._recent[key]
        return found

    def is_pinned(self, key: str) -> bool:
        return key in self._pinned

    def pinned(self, prefix: str) -> dict[str, Record]:
        with self._lock:
            return {
                key: found.record
                for key, found in self._pinned.items()
                if key.startswith(prefix) and found.record is not None
            }

    def put(self, entries: Mapping[str, Versioned]) -> None:
        with self._lock:
            for key, entry in entries.items():
                self._remove(key)
                self._recent[key] = entry
                self._used += _names_in(entry.record)
            while self._used > self._size:
                self._remove(next(iter(self._recent)))

    def pin(self, entries: Mapping[str, Versioned]) -> None:
        with self._lock:
            for key, entry in entries.items():
                self._remove(key)
                if entry.record is None:
                    self._pinned.pop(key, None)
                else:
                    self._pinned[key] = entry

    def drop(self, keys: Iterable[str]) -> None:
        with self._lock:
            for key in keys:
                self._remove(key)

    def clear(self) -> None:
        with self._lock:
            self._recent.clear()
            self._used = 0

    def _remove(self, key: str) -> None:
        entry = self._recent.pop(key, None)
        if entry is not None:
            self._used -= _names_in(entry.record)


def _names_in(record: Record | None) -> int:
    if isinstance(record, StoredSegmentRecord):
        return 3 + len(record.blocks)
    if isinstance(record, IndexBlockRecord):
        return 1 + len(record.entries)
    return 2
