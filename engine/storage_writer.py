"""The storage writer: flush cycles, which bring everything that the log holds to tier 2 (Pravega: StorageWriter;
PDP-40).

A cycle takes the container as it was when the cycle began, and brings tier 2 to exactly that: user segments, then
system segments, each one's data before its index; then tables, the metadata tables last; then a backup of where those
tables lie (F1). With it, tier 2 alone is what the container was (F3). What is deleted or truncated is marked in tier
2's metadata in one cycle; its objects go after a later one is complete (F2).

Nobody holds a lease. Whoever begins the next cycle ends the one before; all that a cycle did stays, as each step is one
append to the log, which says what the chunk layer's metadata and the container's state are from then on.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from chunkstore import ObjectNotFound
from chunkstore.chunk_list import WrittenChunk
from chunkstore.chunks import ChunkStorage
from chunkstore.segment_errors import (
    ChunkInUse,
    ConcurrentModification,
    SegmentError,
    SegmentExists,
    StorageNotPrimary,
)
from chunkstore.segment_errors import SegmentNotFound as NotStored
from chunkstore.segments import ChunkedSegmentStorage, SegmentHandle, SegmentStorageConfig
from engine import backups
from engine.errors import DataCorruption, FlushOvertaken, SegmentNotFound
from engine.operations import (
    BeginCycle,
    EndCycle,
    EvictSegments,
    Flushed,
    Forgotten,
    SaveSegments,
    SpillAttributes,
    Stored,
    TablesFlushed,
)
from engine.reads import fetch
from engine.segment_records import encode_segment
from engine.segments import Extent, FrameRef, Segment, StoredRef, is_core, storage_name
from engine.state import State
from engine.storage_metadata import LogGarbage
from engine.table_writer import Dirty, flush_tables
from engine.tables import METADATA, STORAGE

if TYPE_CHECKING:
    from engine.container import Container

logger = logging.getLogger(__name__)

MAX_CHUNK = 64 << 20
"""The most bytes of a chunk that is made of what lies in the log."""

CACHED_ATTRIBUTES = 4096
"""Extended attributes of a segment that are kept in memory (Pravega: extended.attribute.cached.count.max)."""

TRIES = 4
"""Cycles that are begun until one is not disturbed by a segment that is deleted meanwhile."""

PARALLEL = 8
"""Segments that are flushed at a time."""

SAVED_TOGETHER = 1000
"""Records of segments in one append, at most."""

T = TypeVar("T")


class Run(NamedTuple):
    """Neighbouring extents of a segment that go to tier 2 in one step: from `offset` to `end`.

    Bytes to be written, or else chunks to be attached, or else a merged segment to be joined.
    """

    offset: int
    end: int
    attached: tuple[WrittenChunk, ...] = ()
    joined: str = ""


class StorageWriter:
    """Runs the flush cycles of a container, in this process one at a time."""

    def __init__(self, container: Container) -> None:
        self._container = container
        self._lock = threading.Lock()
        self._segments: ChunkedSegmentStorage | None = None

    def run(self) -> int:
        """Run a cycle. Returns how many bytes of segments are in tier 2 by it.

        If another process begins a cycle meanwhile, that one will do what is left. Raises StorageError, DataCorruption.
        """
        moved = 0
        with self._lock:
            for left in reversed(range(TRIES)):
                try:
                    cycle = self._begin()
                except FlushOvertaken:
                    break
                try:
                    cycle.run(strict=left > 0)
                except (FlushOvertaken, SegmentNotFound, ObjectNotFound, StorageNotPrimary) as error:
                    if not cycle.lost(error):
                        continue
                    break
                except DataCorruption as error:  # or only what another cycle has moved since
                    if not cycle.lost(error):
                        raise
                finally:
                    moved += cycle.moved
                break
        return moved

    def _begin(self) -> FlushCycle:
        container = self._container
        state = container.refresh()
        number = state.cycle.number + 1
        spills = [
            SpillAttributes(name)
            for name in state.unsaved
            if sum(not is_core(attribute) for attribute in state.segments[name].attributes) > CACHED_ATTRIBUTES
        ]
        state = container.commit([*spills, BeginCycle(number)]).state
        return FlushCycle(container, state, number, self._storage())

    def _storage(self) -> ChunkedSegmentStorage:
        """The segments in tier 2, as this epoch of the container changes them: it adds only to chunks of its own
        (S2)."""
        container, epoch = self._container, self._container.head.epoch
        if self._segments is None or self._segments.epoch != epoch:
            self._segments = ChunkedSegmentStorage(
                ChunkStorage(container.stores.chunks),
                container.records,
                LogGarbage(container, container.records, announce=False),
                epoch,
                SegmentStorageConfig(garbage_delay=container.settings.garbage_delay),
                clock=container.now,
            )
        return self._segments


class FlushCycle:
    """One cycle: `state` is the container's when it began, and what tier 2 is brought to."""

    def __init__(self, container: Container, state: State, number: int, segments: ChunkedSegmentStorage) -> None:
        self.moved = 0
        self._container = container
        self._state = state
        self._number = number
        self._segments = segments
        self._strict = True
        self._storages: dict[str, str] = {}  # by segment: what it is called in tier 2, if this cycle wrote there
        self._marked: set[str] = set()
        self._passed_over: set[str] = set()

    def run(self, strict: bool) -> None:
        """Carry out the cycle.

        With `strict`, FlushOvertaken if a segment is deleted before it is flushed; else it is passed over, and missing
        in the backup.
        """
        self._strict = strict
        state, container = self._state, self._container
        for bucket in _buckets(state):
            self._each(self._flush_segment, bucket)
        self._each(self._mark_segment, [state.segments[name] for name in state.unsaved])
        self._each(self._forget, state.dropped)
        self._flush_tables({name: Dirty.of(state, name) for name in state.tables if name not in (STORAGE, METADATA)})
        records = self._save_segments()
        after = self._flush_tables(
            {
                STORAGE: Dirty.of(container.refresh(), STORAGE),
                METADATA: Dirty.of(state, METADATA).plus({**records, **dict.fromkeys(self._passed_over)}),
            }
        )
        backups.write(container.stores.chunks, container.number, container.head, after, state)
        container.commit([EndCycle(self._number)])
        self._evict()

    def lost(self, error: Exception) -> bool:
        """Whether another process has begun a cycle; else a segment was in the way, which is gone now."""
        state = self._container.refresh()
        logger.info("container %d: flush cycle %d: %s", self._container.number, self._number, error)
        return state.cycle.number != self._number

    def _each(self, act: Callable[[T], None], items: Iterable[T]) -> None:
        """Act on all items, several at a time. The first error is raised when all are done."""
        together = list(items)
        if len(together) < 2 or not self._container.settings.threaded:
            for item in together:
                act(item)
            return
        with ThreadPoolExecutor(PARALLEL, "storage-writer") as pool:
            for future in [pool.submit(act, item) for item in together]:
                future.result()

    # --- segments ------------------------------------------------------------------------------------------------

    def _flush_segment(self, segment: Segment) -> None:
        """Bring a segment's content to tier 2."""
        storage, known = segment.storage, bool(segment.storage)
        try:
            storage = storage or self._create(segment)
            for run in runs(segment, self._state):
                self._flush_run(segment, storage, run)
                self.moved += run.end - run.offset
                known = True  # to the state: whoever deletes or merges the segment deals with what is in tier 2
            self._storages[segment.name] = storage
        except (SegmentError, FlushOvertaken, SegmentNotFound) as error:
            doubt = self._doubtful(segment, error) if isinstance(error, SegmentError) else error
            if storage and not known:
                self._give_up(segment, storage)
            if self._strict or not isinstance(doubt, SegmentNotFound):
                raise doubt from error
            self._passed_over.add(segment.name)

    def _give_up(self, segment: Segment, storage: str) -> None:
        """Delete what was begun in tier 2, if nobody will ever go on with it: the segment is gone, or begins later."""
        now = self._container.infos([segment.name])[segment.name]
        if now is None or now.id != segment.id or (not now.storage and now.storage_length > segment.storage_length):
            with contextlib.suppress(SegmentError):  # another process does the same
                self._segments.delete(SegmentHandle(storage, read_only=False))

    def _create(self, segment: Segment) -> str:
        storage = storage_name(segment.name, segment.id, segment.storage_length)
        try:
            self._segments.create(storage, MAX_CHUNK, segment.storage_length)
        except SegmentExists:  # made by a cycle that did not come any further
            self._segments.open_write(storage)
        return storage

    def _flush_run(self, segment: Segment, storage: str, run: Run) -> None:
        handle = SegmentHandle(storage, read_only=False)
        moved = tuple(chunk.name for chunk in run.attached) or ((run.joined,) if run.joined else ())
        flushed = Flushed(self._number, segment.name, storage, run.offset, run.end, moved)
        records = self._container.records
        if run.joined:
            self._segments.seal(SegmentHandle(run.joined, read_only=False))
            with records.together(flushed):
                self._segments.concat(handle, run.offset, run.joined)
            return
        if run.attached:
            with contextlib.suppress(ChunkInUse), records.together(flushed):
                self._segments.attach(handle, run.offset, run.attached)
                return
            flushed = flushed._replace(moved=())  # it was attached once before, and tier 2 has it: now it is copied
        data = fetch(self._container.stores, self._container.plan_of(segment, run.offset, run.end))
        with records.together(flushed):
            self._segments.write(handle, run.offset, data)

    def _doubtful(self, segment: Segment, error: SegmentError) -> Exception:
        """Tier 2 is not what the state says: because somebody changed it meanwhile, or it is damaged."""
        state = self._container.refresh()
        now = state.segments.get(segment.name)
        if state.cycle.number != self._number or now is None or now.id != segment.id:
            return FlushOvertaken(str(error))
        if now.storage_length != segment.storage_length:
            return FlushOvertaken(str(error))
        if isinstance(error, StorageNotPrimary | ConcurrentModification):
            return FlushOvertaken(str(error))
        return DataCorruption(
            f"segment {segment.name!r}: the container has flushed it up to {now.storage_length}, and tier 2 does not "
            f"agree: {error}. Nothing was changed; check the root with `verify`"
        )

    def _mark_segment(self, segment: Segment) -> None:
        """Let tier 2 know of truncation and sealing, unless the segment is something else by now."""
        storage = self._storages.get(segment.name, segment.storage)
        start, sealed = segment.start_offset, segment.sealed
        if not storage or (start <= segment.stored_start and sealed <= segment.stored_sealed):
            return
        handle = SegmentHandle(storage, read_only=False)
        mark = Stored(self._number, segment.name, storage, start, segment.stored_sealed)
        try:
            if start > segment.stored_start:
                with self._container.records.together(mark):
                    self._segments.truncate(handle, start)
            if sealed and not segment.stored_sealed:
                with self._container.records.together(mark._replace(sealed=True)):
                    self._segments.seal(handle)
            self._marked.add(segment.name)
        except (FlushOvertaken, SegmentNotFound):
            if self._container.refresh().cycle.number != self._number:
                raise
        except SegmentError as error:
            raise self._doubtful(segment, error) from error

    def _forget(self, storage: str) -> None:
        """Mark a segment as deleted in tier 2's metadata."""
        forgotten = Forgotten(self._number, (storage,))
        try:
            with self._container.records.together(forgotten):
                self._segments.delete(SegmentHandle(storage, read_only=False))
        except NotStored:  # nothing was written there
            self._container.commit([forgotten])

    # --- tables --------------------------------------------------------------------------------------------------

    def _flush_tables(self, tables: Mapping[str, Dirty]) -> State:
        """Bring entries of tables to tier 2. Returns a state after it."""
        flushed = flush_tables(self._container, tables)
        if not flushed:
            return self._container.refresh()
        return self._container.commit([TablesFlushed(self._number, tuple(flushed))]).state

    def _save_segments(self) -> dict[str, bytes]:
        """Put the segments that changed into the metadata table, as they were when the cycle began; their records."""
        records = {}
        for name in self._state.unsaved:
            segment = self._state.segments[name]
            if segment.length == segment.storage_length or name in self._storages:
                records[name] = encode_segment(self._as_stored(segment))
        saved = [(name, self._state.segments[name].id, record) for name, record in records.items()]
        for start in range(0, len(saved), SAVED_TOGETHER):
            batch = tuple(saved[start : start + SAVED_TOGETHER])
            self._container.commit([SaveSegments(self._number, self._state.sequence, batch)])
        return records

    def _as_stored(self, segment: Segment) -> Segment:
        """A segment as it was, with what tier 2 knows of it by this cycle."""
        marked = segment.name in self._marked
        return segment._replace(
            storage=self._storages.get(segment.name, segment.storage),
            storage_length=segment.length,
            stored_start=segment.start_offset if marked else segment.stored_start,
            stored_sealed=segment.sealed if marked else segment.stored_sealed,
        )

    def _evict(self) -> None:
        """Let the segments that were used least recently be active no more, if there are too many."""
        state, most = self._container.state, self._container.settings.active_segments
        if len(state.segments) > most:
            idle = sorted(
                (segment.touched, name)
                for name, segment in state.segments.items()
                if name not in state.unsaved and segment.saved >= segment.touched
            )
            surplus = len(state.segments) - most * 9 // 10
            self._container.commit([EvictSegments(tuple(name for _, name in idle[:surplus]))])


def _buckets(state: State) -> Iterator[list[Segment]]:
    """The segments that are to be flushed: those of users, then those of the system; of each first the data (F1)."""
    buckets: dict[tuple[bool, bool], list[Segment]] = {}
    for segment in state.logged():
        is_system = segment.name.startswith("_system/")
        buckets.setdefault((is_system, is_attached(segment.name)), []).append(segment)
    return (buckets[key] for key in sorted(buckets))


def is_attached(segment: str) -> bool:
    """Whether a segment belongs to another one, as its index or its attributes: their names hold a '#' or '$'."""
    tail = segment.rpartition("/")[2].removeprefix("_").partition(".#epoch.")[2] or segment
    return "#" in tail or "$" in tail


def runs(segment: Segment, state: State) -> Iterator[Run]:
    """The steps by which a segment's content goes to tier 2, in order."""
    offset, position = segment.storage_length, segment.storage_length
    attached: list[WrittenChunk] = []
    for at, extent in segment.extents:
        end = at + extent.length
        whole = at >= segment.storage_length
        joined = isinstance(extent.source, StoredRef) and whole
        chunk = _whole_chunk(extent, state) if whole else None
        if (joined or chunk is not None) and not attached and position > offset:
            yield Run(offset, position)
            offset = position
        if attached and chunk is None:
            yield Run(offset, position, tuple(attached))
            attached, offset = [], position
        if joined:
            assert isinstance(extent.source, StoredRef)
            yield Run(offset, end, joined=extent.source.storage)
            offset = end
        elif chunk is not None:
            attached.append(chunk)
        elif end - offset > MAX_CHUNK and position > offset:
            yield Run(offset, position)
            offset = position
        position = end
    if position > offset:
        yield Run(offset, position, tuple(attached))


def _whole_chunk(extent: Extent, state: State) -> WrittenChunk | None:
    """An attached chunk that is nobody else's, which tier 2 can take over as it is."""
    source, position, length, checksums = extent
    if isinstance(source, FrameRef | StoredRef) or position or state.chunks.get(source) != 1:
        return None
    return WrittenChunk(source, length, checksums)
