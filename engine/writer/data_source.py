"""What the storage writer needs of the container that it writes for (Pravega: WriterDataSource)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Protocol

from chunkstore.metadata.store import MetadataStore
from engine.clocks import StorageClock
from engine.logs.frames import Position
from engine.logs.transaction import Receipt
from engine.state.operations import Operation
from engine.state.segments import Segment
from engine.state.state import State
from engine.state.tables import Entry
from engine.storage.lookups import Lookups
from engine.storage.reads import ObjectRange, Stores


class WriterSettings(Protocol):
    """See the container's settings."""

    @property
    def garbage_delay(self) -> float: ...

    @property
    def active_segments(self) -> int: ...

    @property
    def threaded(self) -> bool: ...


class WriterDataSource(Protocol):
    """The container, as the storage writer sees it: its state, its log, and where it stores what."""

    @property
    def number(self) -> int:
        """Which container of the root it is."""

    @property
    def settings(self) -> WriterSettings:
        """How it works."""

    @property
    def stores(self) -> Stores:
        """The roots of log and chunks."""

    @property
    def storage_clock(self) -> StorageClock:
        """The clock of the chunks' storage."""

    @property
    def records(self) -> MetadataStore:
        """The records of chunks and of segments in LTS."""

    @property
    def lookups(self) -> Lookups:
        """What looks tables up in LTS."""

    @property
    def state(self) -> State:
        """The state as this process knows it."""

    @property
    def head(self) -> Position:
        """Position of the last frame in `state`."""

    def refresh(self) -> State:
        """The state with everything that was acknowledged anywhere before this call."""

    def commit(self, operations: Sequence[Operation]) -> Receipt:
        """Carry out operations together: durable on return, all or none. Raises Rejected, other EngineErrors,
        StorageError."""

    def infos(self, segments: Collection[str]) -> Mapping[str, Segment | None]:
        """The properties of segments, up to date, None for those that do not exist."""

    def plan_of(self, segment: Segment, start: int, end: int) -> list[ObjectRange]:
        """Where the bytes `[start, end)` of a segment lie, as it is given."""

    def entries(self, table: str, keys: Collection[str], state: State | None = None) -> Mapping[str, Entry | None]:
        """Entries of a table as `state` has them, or this process knows them, None where there is none."""

    def scan_entries(self, table: str, prefix: str = "") -> Iterator[tuple[str, Entry]]:
        """All entries of a table whose keys begin with `prefix`, as this process knows them, in no order."""
