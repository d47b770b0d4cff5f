"""The segment that holds the metadata log of a segment store, and the epoch in which one process may append to it.

It is a system segment: its layout is in memory and in the system journal (`chunkstore.pravega.journal`), as it cannot
be in the metadata that it holds.

The invariant: `append` returns only if its bytes are durable and no later epoch existed after that. The next owner
makes its epoch first and reads the journal after. So it finds everything that was acknowledged, and a process that was
overtaken acknowledges nothing (S4).
"""

from __future__ import annotations

import os
import time

from chunkstore.garbage_collector import GarbageCollector, GarbageConfig, GarbageReport
from chunkstore.metadata.garbage_queue import GarbageTask, MemoryGarbageQueue
from chunkstore.metadata.store import MemoryMetadataStore
from chunkstore.numbered import list_numbered, number_of
from chunkstore.paths import CONTAINERS, EPOCHS
from chunkstore.port import TOKEN, Outcome, Parts, Store
from chunkstore.pravega.journal import JournalConfig, SystemJournal, system_segments
from chunkstore.segments.errors import StorageNotPrimary
from chunkstore.segments.storage import ChunkedSegmentStorage, SegmentStorageConfig

LOG = system_segments(0)[0]
"""The name of the segment, which is Pravega's for the metadata of container 0."""


class StoreEpoch:
    """The epoch in which this process owns a segment store. Making one fences all processes that opened it before."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.number = self._newest() + 1
        token = os.urandom(TOKEN)
        while store.put_if_absent(f"{EPOCHS}{self.number:020d}", token) is not Outcome.MINE:
            self.number += 1

    def check(self) -> None:
        """Raise StorageNotPrimary if another process has opened the store since."""
        newest = self._newest(self.number)
        if newest > self.number:
            raise StorageNotPrimary(LOG, newest, self.number)

    def delete_earlier(self) -> None:
        """Delete the objects of earlier epochs: only the newest is ever looked for."""
        numbers = (number_of(info.path, EPOCHS) for info in list_numbered(self._store, EPOCHS))
        self._store.delete([f"{EPOCHS}{number:020d}" for number in numbers if number and number < self.number])

    def _newest(self, after: int = 0) -> int:
        found = list_numbered(self._store, EPOCHS, f"{EPOCHS}{after:020d}")
        return (number_of(found[-1].path, EPOCHS) or 0) if found else after


class LogSegment:
    """The segment LOG in `chunks`, as the last owner left it; `epoch` owns it now. Raises what journal and store raise.

    Methods may not be called by several threads at once, but for `collect_garbage`.
    """

    def __init__(self, chunks: Store, epoch: StoreEpoch, config: SegmentStorageConfig) -> None:
        self._chunks = chunks
        self._epoch = epoch
        self._garbage = MemoryGarbageQueue()
        self._collector_config = GarbageConfig(delay=config.garbage_delay)
        self._journal = SystemJournal(
            chunks,
            0,
            epoch.number,
            self._garbage,
            JournalConfig(
                rolling_length=config.system_rolling_length, garbage_delay=config.garbage_delay, appends=config.appends
            ),
        )
        self._layout = MemoryMetadataStore()
        self._journal.boot(self._layout)
        self._queue_orphans()
        self._storage = ChunkedSegmentStorage(
            chunks, self._layout, self._garbage, epoch.number, config, journal=self._journal.record
        )
        epoch.check()

    @property
    def end(self) -> int:
        """The offset at which the next bytes are appended."""
        return self._storage.info(LOG).length

    def read(self) -> bytes:
        """All bytes from the start offset on. Raises SegmentDamaged."""
        info = self._storage.info(LOG)
        return self._storage.read(LOG, info.start_offset, info.length - info.start_offset)

    def append(self, data: Parts) -> None:
        """Add bytes at the end, all or nothing. Raises StorageNotPrimary if another process has opened the store.

        After any error the bytes may be there, and nothing may be appended any more: open the segment again.
        """
        self._storage.write(LOG, self.end, data)
        self._epoch.check()

    def truncate(self, offset: int) -> None:
        """Let the segment begin at `offset`. Raises as `append`."""
        self._storage.truncate(LOG, offset)
        self._epoch.check()

    def collect_garbage(self, now: float) -> GarbageReport:
        """Delete chunks and journal files that were superseded `garbage_delay` before `now` (epoch s)."""
        report = GarbageCollector(
            self._chunks,
            self._layout,
            self._garbage,
            self._collector_config,
            is_needed=self._journal.is_needed,
            snapshot=self._snapshot,
        ).run_once(now)
        self._epoch.delete_earlier()
        return report

    def close(self) -> None:
        """End the threads of reads."""
        self._storage.close()

    def _snapshot(self) -> None:
        """Write a snapshot of the layout, and make sure that no other process had read an older one by then."""
        self._journal.snapshot()
        self._epoch.check()

    def _queue_orphans(self) -> None:
        """Queue the chunks that the layout does not name, before this process makes any: no commit will name them."""
        prefix = f"{LOG}.E-"
        with self._layout.begin(read_only=True) as transaction:
            for info in self._chunks.list(CONTAINERS, prefix):
                if info.path.startswith(prefix) and transaction.chunk(info.path) is None:
                    self._garbage.add([GarbageTask(info.path, time.time(), segment=LOG)])
