"""A store of segments on any filesystem or bucket, without the engine: append-only byte sequences made of chunks.

`SegmentStore` puts the parts of this package together: chunks on the storage port, segments over their records, the
records in a log that is a segment itself (`chunkstore.metadata_log`), and the layout of that segment in a system
journal (`chunkstore.pravega.journal`). It is the storage of PDP-34, as a library.

The invariant: a method that returns is durable, and a change that raises has happened wholly or not at all. Opening a
store fences the processes that opened it before (S4).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any

from chunkstore.backends import open_store
from chunkstore.compaction import CompactionReport, Compactor
from chunkstore.errors import StorageRefused, Unsupported
from chunkstore.garbage_collector import GarbageCollector, GarbageConfig, GarbageReport
from chunkstore.log_segment import LogSegment, StoreEpoch
from chunkstore.metadata_log import LogGarbageQueue, MetadataLog
from chunkstore.paths import CONTAINERS, EPOCHS, MARKERS
from chunkstore.port import Parts, Range, Store
from chunkstore.pravega.layout_mode import LayoutMode, layout_mode, open_segments, set_layout_mode
from chunkstore.pravega.rolling import AdoptionReport, LegacySegments
from chunkstore.segments.chunk_list import PlacedChunk
from chunkstore.segments.errors import BadStoredOffset, ConcurrentModification
from chunkstore.segments.storage import SegmentInfo, SegmentStorageConfig

_JOURNALS = f"{CONTAINERS}_sysjournal."
_LOG_ROLLING = 8 << 20  # superseded bytes of the log go with its full chunks
_ATTEMPTS = 10  # at a change that the garbage collector got ahead of


class SegmentStore:
    """The segments in one folder or bucket. One process uses it at a time; in that process, any number of threads.

    Names of segments are storage paths, such as "logs/app-1"; offsets and lengths are in bytes. Offsets count from the
    beginning of the segment, before any truncation. All methods raise the errors of `chunkstore.errors` and
    `chunkstore.segments.errors`: StoredSegmentNotFound for a segment that does not exist, StorageNotPrimary once
    another process has opened the store. After a change that raised StorageUnavailable the store may have to be opened
    again, as its outcome is unknown: then all methods raise StorageError.
    """

    def __init__(self, store: Store, config: SegmentStorageConfig) -> None:
        """Use `open`."""
        self.root = store.root
        self._store = store
        self._config = config
        epoch = StoreEpoch(store)
        self._log = LogSegment(store, epoch, config)
        self._metadata = MetadataLog(self._log)
        self._garbage = LogGarbageQueue(self._metadata)
        self._segments = open_segments(store, self._metadata, self._garbage, epoch.number, config)

    @classmethod
    def open(
        cls,
        where: str | Store,
        storage_options: Mapping[str, Any] | None = None,
        *,
        layout: LayoutMode | None = None,
        config: SegmentStorageConfig | None = None,
    ) -> SegmentStore:
        """Open the store at `where`, a URL or path (see `open_store`), or make one there if the place is empty.

        It is recovered to the last change that was acknowledged, however the process before ended, and belongs to this
        process from now on. `layout` takes over segments of Pravega's RollingStorage that are there: LAYOUT_UPGRADE for
        good, CODE_ONLY_UPGRADE with headers that are kept up to date, so that old code can come back. Raises
        StorageRefused for a place that holds something else, or a layout that cannot be reached.
        """
        store = open_store(where, storage_options) if isinstance(where, str) else where
        if not store.list(EPOCHS, limit=1):
            _check_place(store, layout)
        if layout is not None:
            set_layout_mode(store, layout)
        return cls(store, config or SegmentStorageConfig(system_rolling_length=_LOG_ROLLING))

    def create(self, segment: str, rolling_length: int = 0) -> None:
        """Create an empty segment whose chunks have at most `rolling_length` bytes (0: any number).

        Raises StoredSegmentExists, and ValueError for a name that is no storage path.
        """
        self._metadata.check()
        self._segments.create(segment, rolling_length)

    def append(self, segment: str, data: Parts, offset: int | None = None) -> int:
        """Add `data` at the end of a segment, all or nothing; returns the offset at which it begins.

        `offset`: where the end must be, for a caller that must not append twice. Raises BadStoredOffset if it is
        elsewhere, StoredSegmentSealed, SegmentStorageFull.
        """
        while True:
            at = self.info(segment).length if offset is None else offset
            try:
                self._change(partial(self._segments.write, segment, at, data))
            except BadStoredOffset:
                if offset is not None:
                    raise
            else:
                return at  # otherwise another thread was faster

    def read(self, segment: str, offset: int, length: int) -> bytes:
        """Exactly these bytes. Raises StoredSegmentTruncated before the start, BadStoredOffset beyond the end."""
        self._metadata.check()
        return self._segments.read(segment, offset, length)

    def scan(self, segment: str, offset: int, end: int | None = None) -> Iterator[bytes]:
        """The bytes [offset, end), to the end by default, in pieces that are fetched ahead. Raises as `read`."""
        self.info(segment)  # raises now, and not at the first piece
        return self._segments.scan(segment, offset, end)

    def concat(self, segment: str, source: str, offset: int | None = None) -> int:
        """Make the sealed segment `source` the end of `segment`; returns where it begins there. No byte is copied.

        Afterwards `source` does not exist. `offset`: where the end must be. Raises as `append`, StoredSegmentNotSealed,
        and SegmentUnsupported for a source that is truncated.
        """
        at = self.info(segment).length if offset is None else offset
        self._change(partial(self._segments.concat, segment, at, source))
        return at

    def truncate(self, segment: str, offset: int) -> None:
        """Let a segment begin at `offset`; bytes before it are deleted later. Raises BadStoredOffset beyond the end."""
        self._change(partial(self._segments.truncate, segment, offset))

    def seal(self, segment: str) -> None:
        """Let nothing be added to a segment any more."""
        self._change(partial(self._segments.seal, segment))

    def unseal(self, segment: str) -> None:
        """Let a sealed segment grow again."""
        self._change(partial(self._segments.unseal, segment))

    def delete(self, segment: str) -> None:
        """Delete a segment. Its name is free at once; `collect_garbage` deletes its chunks."""
        self._change(partial(self._segments.delete, segment))

    def exists(self, segment: str) -> bool:
        """Whether there is such a segment."""
        self._metadata.check()
        return self._segments.exists(segment)

    def info(self, segment: str) -> SegmentInfo:
        """Length, start offset, seal and time of the last change of a segment."""
        self._metadata.check()
        return self._segments.info(segment)

    def list(self, prefix: str = "") -> Iterator[SegmentInfo]:
        """The segments whose names begin with `prefix`, in no order. Of old ones, those that were adopted."""
        self._metadata.check()
        return self._segments.list(prefix)

    def chunks(self, segment: str) -> Iterator[PlacedChunk]:
        """The chunks of a segment from the first on, and where they start: objects with bytes of the segment only."""
        self._metadata.check()
        return self._segments.layout(segment)

    def compact(self, segment: str, target: int = 64 << 20) -> CompactionReport:
        """Merge runs of small chunks into chunks of at most `target` bytes. Where every append is a chunk, reads get
        faster. Raises SegmentDamaged for a chunk that is not what was written."""
        self._metadata.check()
        compactor = Compactor(self._segments, self._store, self._metadata, target)
        return next(iter(compactor.compact([segment])), CompactionReport(segment))

    def collect_garbage(self) -> GarbageReport:
        """Delete the chunks that no segment names any more, once the garbage delay (`SegmentStorageConfig`) is over.

        Nothing else deletes chunks: call it now and then.
        """
        self._metadata.check()
        config = GarbageConfig(delay=self._config.garbage_delay)
        now = time.time()
        report = GarbageCollector(self._store, self._metadata, self._garbage, config).run_once(now)
        for field, count in vars(self._log.collect_garbage(now)).items():
            setattr(report, field, getattr(report, field) + count)
        return report

    def adopt_all(self, prefix: str = "") -> AdoptionReport:
        """Adopt the RollingStorage segments in the folder `prefix` ("a/b/", "" for all) now, not when they are met.

        Raises Unsupported for a store whose layout mode adopts none.
        """
        self._metadata.check()
        mode = layout_mode(self._store)
        if mode not in (LayoutMode.CODE_ONLY_UPGRADE, LayoutMode.LAYOUT_UPGRADE):
            raise Unsupported(f"{self.root}: layout mode {mode and mode.name} adopts no segments: open it with another")
        return LegacySegments(self._store, self._metadata, keep_headers=mode is LayoutMode.CODE_ONLY_UPGRADE).adopt_all(
            prefix
        )

    def close(self) -> None:
        """End the threads of reads. Nothing has to be flushed."""
        self._segments.close()
        self._log.close()

    def __enter__(self) -> SegmentStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _change(self, change: Callable[[], object]) -> None:
        """Make a change; again, if another one got ahead."""
        self._metadata.check()
        for _ in range(_ATTEMPTS - 1):
            with suppress(ConcurrentModification):
                change()
                return
        change()


def _check_place(store: Store, layout: LayoutMode | None) -> None:
    """Raise StorageRefused unless a new store may be made here: foreign objects are never taken for its chunks."""
    journals = store.list(CONTAINERS, _JOURNALS, 1)
    if any(found is not None for found in store.read_ranges([Range(marker) for marker in MARKERS])):
        raise StorageRefused(f"{store.root} holds streams, not segments: open it with StreamManager")
    if journals and journals[0].path.startswith(_JOURNALS):
        raise StorageRefused(f"{store.root} is the long-term storage of a Pravega: import it into a root of streams")
    if layout is None and store.list("", limit=1):
        raise StorageRefused(f"{store.root} is not empty: name an empty place, or a layout mode to take over segments")
