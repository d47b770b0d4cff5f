"""The flush context: a container, as the code that moves its content to LTS sees it (Pravega: WriterDataSource).

Operations of a flush go to the log directly: they start no maintenance that they would have to wait for.
"""

from __future__ import annotations

from engine.clocks import StorageClock
from engine.logs.durable_log import DurableLog
from engine.logs.frames import Position
from engine.reading.segment_store import SegmentStore
from engine.reading.table_store import TableStore
from engine.settings import Settings
from engine.state.state import State
from engine.storage.lookups import Lookups
from engine.storage.reads import Stores
from engine.writer.records import ContainerRecords


class ContainerFlushContext:
    """A container, as its storage writer, its garbage collection and its compaction see it. Thread-safe.

    records: those of chunks and of segments in LTS, changed through the log. refresh, commit: the log's. entries,
    scan_entries: see TableStore. infos, plan_of: see SegmentStore.
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
        self.records = ContainerRecords(tables, log)
        self.refresh = log.refresh
        self.commit = log.commit
        self.entries = tables.entries
        self.scan_entries = tables.scan
        self.infos = segments.infos
        self.plan_of = segments.plan_of

    @property
    def state(self) -> State:
        """The state as this process knows it."""
        return self._log.state

    @property
    def head(self) -> Position:
        """Position of the last frame in `state`."""
        return self._log.head
