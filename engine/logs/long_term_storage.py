"""What a log needs of long-term storage, which lies above it in the order of wings (the pattern is Pravega's
WriterDataSource). `engine.storage.container_storage` provides it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from chunkstore.room import USERS_DATA
from engine.errors import LogLost
from engine.logs.transaction import Transaction
from engine.state.operations import Operation
from engine.state.segments import Extent
from engine.state.state import State
from engine.state.tables import LookupResult


class LongTermStorage(Protocol):
    """The long-term storage of one container, seen from its log."""

    def lost_log(self) -> LogLost | None:
        """The error to raise if a log without a checkpoint has no first frame either, and LTS holds what was in it."""

    def check(self, operation: Operation) -> None:
        """Raise ValueError for what LTS could not keep: names that no chunk can have, keys and values that are too
        long."""

    def check_room(self, needed: int, part: float = USERS_DATA) -> None:
        """Raise StorageFull if, with `needed` bytes more, less than that part of what is kept free would be left
        (P6)."""

    def look_up(self, state: State, table: str, keys: Sequence[str]) -> dict[tuple[str, str], LookupResult]:
        """Keys of a table, as a state has them. Raises ObjectNotFound when that state is so old that its objects are
        gone."""

    def spill(self, transaction: Transaction, epoch: int) -> tuple[str, list[Extent], int]:
        """Write the payload of a transaction to one chunk; its name, its extents, and when it was begun (ms)."""

    def forget(self, chunk: str) -> None:
        """Delete a chunk that no segment names."""
