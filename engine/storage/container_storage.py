"""The long-term storage of one container, for its log (`engine.logs.long_term_storage`).

It looks up entries that are not in memory, writes large payload of a lost race to a chunk (group commit), and checks
names and entries before they are appended.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from chunkstore import StorageError
from chunkstore.chunk_names import new_chunk_name
from chunkstore.room import USERS_DATA
from engine.errors import LogLost
from engine.logs.transaction import Transaction
from engine.state.attach_fence import creation_time
from engine.state.operations import Append, CreateSegment, Operation, Payload, PutEntry
from engine.state.segments import Extent, parent_in
from engine.state.state import State
from engine.state.tables import ATTRIBUTES, LookupResult, check_attribute
from engine.storage.chunk_writer import check_name, write_chunk
from engine.storage.lookups import Lookups
from engine.storage.object_reads import Stores
from engine.storage.recovery_points import lost_log
from engine.tables.content import check_entry


class ContainerStorage:
    """Implements `LongTermStorage`. now: the storage's time, seconds since the epoch."""

    def __init__(self, stores: Stores, container: int, lookups: Lookups, now: Callable[[], float]) -> None:
        self._stores = stores
        self._container = container
        self._lookups = lookups
        self._now = now

    def lost_log(self) -> LogLost | None:
        """See `engine.storage.recovery_points.lost_log`."""
        return lost_log(self._stores, self._container)

    def check(self, operation: Operation) -> None:
        """Raise ValueError if LTS could not hold what the operation appends."""
        if isinstance(operation, CreateSegment):
            check_name(operation.segment)
            if (parent_in(operation.segment) or "") != operation.parent:
                raise ValueError(
                    f"segment {operation.segment!r} cannot be created for the parent {operation.parent!r}: transient "
                    "segments, and only those, have names like <parent>#transient.<32 digits>.<32 digits>"
                )
        elif isinstance(operation, PutEntry):
            check_entry(operation.key.encode(), operation.value)
            if operation.table == ATTRIBUTES:
                check_attribute(operation.key, operation.value)

    def check_room(self, needed: int, part: float = USERS_DATA) -> None:
        """Raise StorageFull if, with `needed` bytes more, less than that part of what is kept free would be left
        (P6)."""
        self._stores.check_room(needed, part)

    def look_up(self, state: State, table: str, keys: Sequence[str]) -> dict[tuple[str, str], LookupResult]:
        """Entries of a table as a state has them, with the table's root in that state. Raises ObjectNotFound."""
        root = state.tables[table].layout.root if table in state.tables else None
        found = self._lookups.entries(state, table, keys)
        return {(table, key): LookupResult(root, entry) for key, entry in found.items()}

    def spill(self, transaction: Transaction, epoch: int) -> tuple[str, list[Extent], int]:
        """Write the payload of a transaction to one chunk; its name, its extents, and when it was begun (ms)."""
        created_at = creation_time(self._now())  # the process may be stopped before its frame leaves
        appends = [op for op in transaction.operations if isinstance(op, Append) and isinstance(op.content, Payload)]
        name = new_chunk_name(appends[0].segment, epoch, 0)
        extents = write_chunk(self._stores.chunks, name, [[op.content.data] for op in appends])  # type: ignore[union-attr]
        return name, extents, created_at

    def forget(self, chunk: str) -> None:
        """Delete a chunk that nothing names. A failure is ignored, as the sweep of orphans finds the chunk."""
        with contextlib.suppress(StorageError):
            self._stores.chunks.delete([chunk])
