"""What flush cycles, garbage collection and compaction use of the container that they work on (Pravega:
WriterDataSource).

Their operations go to the log itself: they schedule no maintenance that they would have to wait for.
"""

from __future__ import annotations

from typing import NamedTuple

from chunkstore.segments.storage import ChunkedSegmentStorage, SegmentStorageConfig
from engine.clocks import StorageClock
from engine.logs.durable_log import DurableLog
from engine.reading.container_segments import ContainerSegments
from engine.reading.table_store import TableStore
from engine.settings import Settings
from engine.storage.lookups import Lookups
from engine.storage.object_reads import Stores
from engine.writer.container_garbage import ContainerGarbage
from engine.writer.container_records import ContainerRecords


class FlushContext(NamedTuple):
    """The parts of one container below its maintenance.

    stores: the roots of log and chunks. storage_clock: the clock of the chunks' storage. log: the state, and where
    operations are committed. lookups: table entries in LTS. tables, segments: as this process knows them. records: the
    records of chunks and segments in LTS, changed through the log.
    """

    stores: Stores
    settings: Settings
    storage_clock: StorageClock
    log: DurableLog
    lookups: Lookups
    tables: TableStore
    segments: ContainerSegments
    records: ContainerRecords

    def segment_storage(self, *, announce: bool) -> ChunkedSegmentStorage:
        """The segments in LTS, as the log's present epoch changes them: it appends only to chunks that it created (S2).

        announce: see `ContainerGarbage`.
        """
        return ChunkedSegmentStorage(
            self.stores.chunks,
            self.records,
            ContainerGarbage(self.log, announce=announce),
            self.log.head.epoch,
            SegmentStorageConfig(garbage_delay=self.settings.garbage_delay),
            clock=self.storage_clock.now,
        )
