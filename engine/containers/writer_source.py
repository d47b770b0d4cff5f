"""What whoever moves a container's content to LTS sees of it (Pravega: WriterDataSource).

Its operations go to the log itself: they set off no upkeep that they would have to wait for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from engine.clocks import StorageClock
from engine.logs.durable_log import DurableLog
from engine.logs.frames import Position
from engine.logs.pending import Receipt
from engine.reading.segment_store import SegmentStore
from engine.reading.table_store import TableStore
from engine.settings import Settings
from engine.state.operations import Operation
from engine.state.segments import Segment
from engine.state.state import State
from engine.state.tables import Entry
from engine.storage.lookups import Lookups
from engine.storage.reads import ObjectRange, Stores
from engine.writer.records import ContainerRecords


class WriterSource:
    """A container, as its storage writer, its garbage collection and its defragmentation see it. Thread-safe.

    records: those of chunks and of segments in LTS, changed through the log.
    """

    def __init__(
        self,
        stores: Stores,
        settings: Settings,
        storage_clock: StorageClock,
        log: DurableLog,
        lookups: Lookups,
        tables: TableStore,
        segments: SegmentStore,
    ) -> None:
        self.stores = stores
        self.number = log.number
        self.settings = settings
        self.storage_clock = storage_clock
        self.lookups = lookups
        self._log = log
        self._tables = tables
        self._segments = segments
        self.records = ContainerRecords(tables, log)

    @property
    def state(self) -> State:
        """The state as this process knows it."""
        return self._log.state

    @property
    def head(self) -> Position:
        """Position of the last frame in `state`."""
        return self._log.head

    def refresh(self) -> State:
        """The newest state."""
        return self._log.refresh()

    def commit(self, operations: Sequence[Operation]) -> Receipt:
        """Carry out operations together; see DurableLog.commit."""
        return self._log.commit(operations)

    def entries(self, table: str, keys: Collection[str], state: State | None = None) -> dict[str, Entry | None]:
        """See TableStore.entries."""
        return self._tables.entries(table, keys, state)

    def scan_entries(self, table: str, prefix: str = "") -> Iterator[tuple[str, Entry]]:
        """See TableStore.scan."""
        return self._tables.scan(table, prefix)

    def infos(self, segments: Collection[str]) -> dict[str, Segment | None]:
        """See SegmentStore.infos."""
        return self._segments.infos(segments)

    def plan_of(self, segment: Segment, start: int, end: int) -> list[ObjectRange]:
        """See SegmentStore.plan_of."""
        return self._segments.plan_of(segment, start, end)
