"""The long-term storage of one container, as its log needs it (`engine.logs.long_term_storage`).

Look-ups of what is not in memory any more, chunks for large payload that lost a race (design 3, group commit), and what
a segment's name, or an entry, must be like to be kept.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from chunkstore import StorageError
from chunkstore.chunk_names import new_chunk_name
from engine.errors import LogLost
from engine.logs.transaction import Transaction
from engine.state.horizon import creation_time
from engine.state.operations import Append, CreateSegment, Operation, Payload, PutEntry
from engine.state.segments import Extent, parent_in
from engine.state.state import State
from engine.state.tables import ATTRIBUTES, LookupResult, check_attribute
from engine.storage.chunks import check_name, write_chunk
from engine.storage.lookups import Lookups
from engine.storage.reads import Stores
from engine.storage.recovery_points import lost_log
from engine.tables.content import check_entry


class ContainerStorage:
    """What lies behind a container's log. now: the storage's time of day, seconds since the epoch."""

    def __init__(self, stores: Stores, container: int, lookups: Lookups, now: Callable[[], float]) -> None:
        self._stores = stores
        self._container = container
        self._lookups = lookups
        self._now = now

    def lost_log(self) -> LogLost | None:
        """See `engine.storage.recovery_points.lost_log`."""
        return lost_log(self._stores, self._container)

    def check(self, operation: Operation) -> None:
        """Raise ValueError for what could not be kept."""
        if isinstance(operation, CreateSegment):
            check_name(operation.segment)
            if (parent_in(operation.segment) or "") != operation.parent:
                raise ValueError(
                    f"segment {operation.segment!r} cannot be made for the parent {operation.parent!r}: transient "
                    "segments, and only those, are called <parent>#transient.<32 digits>.<32 digits>"
                )
        elif isinstance(operation, PutEntry):
            check_entry(operation.key.encode(), operation.value)
            if operation.table == ATTRIBUTES:
                check_attribute(operation.key, operation.value)

    def look_up(self, state: State, table: str, keys: Sequence[str]) -> dict[tuple[str, str], LookupResult]:
        """Keys of a table as a state has them, each under the root of the table then. Raises ObjectNotFound."""
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
        """Delete a chunk that nothing names; a failure does no harm."""
        with contextlib.suppress(StorageError):
            self._stores.chunks.delete([chunk])
