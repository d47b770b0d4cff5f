"""The system journal: where the chunks of a container's system segments are, kept apart from the metadata.

The metadata lies in system segments, so it cannot hold their own layout. Their records are pinned in memory, and every
change of them is written to the journal before it counts. Now and then a snapshot of all of them is written; the next
owner of the container starts from the newest one and follows the journals from there (`SystemJournal.boot`).

The invariant: what `boot` puts into the metadata is what the last owner's commits said (S4), whenever that owner, or
one that was booting, was stopped, and whatever older owners still write. It rests on this:

- Every instance has its own epoch and writes only files that carry it. It boots after all older epochs were fenced from
  committing, so what they write later is not needed, and its snapshot, which the next boot prefers, leaves it out.
- The files of an epoch are in the order of their numbers, and after a write that failed, or may have, comes a new file.
- A record says what its writer took for the end of the segment. So it undoes whatever stands before it and contradicts
  it: the same record of an earlier attempt, one whose commit failed, a chunk of an overtaken instance.
- A snapshot covers whole files. One whose write failed, and is found later, is as good as any.
"""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from chunkstore.decoding import InvalidData, decoding
from chunkstore.errors import Damaged, ObjectNotFound, StorageError, StorageUnavailable
from chunkstore.metadata.garbage_queue import GarbageKind, GarbageQueue, GarbageTask
from chunkstore.metadata.metadata_records import ChunkRecord, RecordStatus, StoredSegmentRecord
from chunkstore.metadata.store import MetadataStore
from chunkstore.paths import CONTAINERS
from chunkstore.port import Store
from chunkstore.pravega.journal_records import (
    JournalFile,
    JournalRecord,
    JournalSnapshot,
    SegmentSnapshot,
    SnapshotInfo,
    decode_batches,
    decode_info,
    decode_snapshot,
    encode_batch,
    encode_info,
    encode_snapshot,
    journal_name,
    parse_name,
    snapshot_info_name,
    snapshot_name,
)
from chunkstore.segments.errors import StorageNotPrimary
from chunkstore.segments.system_changes import Appended, ChunkAdded, SystemChange, Truncated

_log = logging.getLogger(__name__)

_PAGE = 1000
_SYSTEM = RecordStatus.ACTIVE | RecordStatus.ATOMIC_WRITES | RecordStatus.SYSTEM_SEGMENT

Result = TypeVar("Result")


class JournalDamaged(Damaged, StorageError):
    """A journal or snapshot that counts is missing or cannot be read. Restore it, or the root from a backup."""


class JournalConfig(NamedTuple):
    """When a snapshot is due: after so many batches, or seconds; and how often requests are tried, s apart.

    `rolling_length` is the size in bytes at which a chunk of a system segment is full. Files that are superseded are
    garbage after `garbage_delay` seconds. Without `appends`, or where the store has none, every batch is a file.
    """

    snapshot_batches: int = 100
    snapshot_seconds: float = 300
    attempts: int = 10
    pause: float = 0.1
    rolling_length: int = 128 << 20
    garbage_delay: float = 60
    appends: bool = True


def system_segments(container: int) -> tuple[str, ...]:
    """The segments that hold a container's metadata, whose own layout is in its journal."""
    segments = (f"{CONTAINERS}storage_metadata_{container}", f"{CONTAINERS}metadata_{container}")
    return tuple(name for segment in segments for name in (segment, f"{segment}$attributes.index"))


class SystemLayouts:
    """The layout of each system segment, as the records say that are applied one after the other."""

    def __init__(self) -> None:
        self._layouts: dict[str, _Layout] = {}

    def add_missing(self, segments: Iterable[str], rolling_length: int) -> None:
        """Make those of `segments` that are not known; they are empty."""
        for name in segments:
            self._layouts.setdefault(
                name, _Layout(StoredSegmentRecord(name, status=_SYSTEM, max_rolling_length=rolling_length))
            )

    def apply(self, record: JournalRecord, rolling_length: int) -> bool:
        """Follow a record; one that builds on what is not there comes from an overtaken instance and is passed over.

        Returns whether it was followed.
        """
        match record:
            case JournalSnapshot():
                self._layouts = {}
                for segment in record.segments:
                    self.apply(segment, rolling_length)
            case SegmentSnapshot():
                self._layouts[record.segment.name] = _Layout.of(record)
            case ChunkAdded() | Appended() | Truncated():
                self.add_missing([record.segment], rolling_length)
                if not self._layouts[record.segment].apply(record):
                    _log.warning("system journal: %s does not continue what is there, and is passed over", record)
                    return False
        return True

    def snapshots(self, epoch: int) -> tuple[SegmentSnapshot, ...]:
        """The records of all segments, owned by `epoch`. Raises InvalidRecord if they contradict themselves."""
        return tuple(layout.snapshot(epoch) for layout in self._layouts.values())

    def last_chunk(self, segment: str) -> ChunkRecord | None:
        """The last chunk of a segment, with its length so far; None if it has none."""
        layout = self._layouts.get(segment)
        return layout.last_chunk() if layout is not None else None

    def drop_empty_chunks(self) -> None:
        """Forget chunks that were added and hold nothing: their writer was stopped before it wrote."""
        for layout in self._layouts.values():
            layout.drop_empty_chunks()


class _Layout:
    """One segment: where its chunks start, in their order, and where it ends."""

    def __init__(self, record: StoredSegmentRecord) -> None:
        self._record = record
        self._starts: dict[str, int] = {}
        self._length = record.length
        self._start_offset = record.start_offset
        self._first_chunk: str | None = None  # that a truncation named; chunks before it go when all is known

    @classmethod
    def of(cls, snapshot: SegmentSnapshot) -> _Layout:
        layout = cls(snapshot.segment)
        start = snapshot.segment.first_chunk_start
        for chunk in snapshot.chunks:
            layout._starts[chunk.name] = start
            start += chunk.length
        layout._first_chunk = snapshot.segment.first_chunk
        if start != snapshot.segment.length:
            raise InvalidData(
                f"the chunks of {snapshot.segment.name!r} end at {start}, the segment at {snapshot.segment.length}"
            )
        return layout

    def apply(self, record: SystemChange) -> bool:
        match record:
            case ChunkAdded():
                return self._add_chunk(record)
            case Appended():
                return self._append(record)
            case Truncated():
                self._start_offset = record.offset
                self._first_chunk = record.first_chunk
                return True

    def _add_chunk(self, record: ChunkAdded) -> bool:
        old = record.old_chunk
        if old is not None and not self._starts.get(old, record.offset + 1) <= record.offset:
            return False
        self._cut_behind(old)
        self._starts[record.new_chunk] = self._length = record.offset
        return True

    def _append(self, record: Appended) -> bool:
        start = self._starts.get(record.chunk)
        if start is None or start + record.offset > self._end_of(record.chunk):
            return False
        self._cut_behind(record.chunk)
        self._length = start + record.offset + record.length
        return True

    def _cut_behind(self, chunk: str | None) -> None:
        while self._starts and next(reversed(self._starts)) != chunk:
            self._starts.popitem()

    def _end_of(self, chunk: str) -> int:
        end = self._length
        for name in reversed(self._starts):
            if name == chunk:
                break
            end = self._starts[name]
        return end

    def last_chunk(self) -> ChunkRecord | None:
        for name, start in reversed(self._starts.items()):
            return ChunkRecord(name, self._length - start)
        return None

    def drop_empty_chunks(self) -> None:
        self._starts = {chunk: start for chunk, start, end in self._extents() if start < end}

    def snapshot(self, epoch: int) -> SegmentSnapshot:
        chunks = self._live_extents()
        following = [chunk for chunk, _, _ in chunks[1:]] + [None]
        records = tuple(
            ChunkRecord(name, end - start, after) for (name, start, end), after in zip(chunks, following, strict=False)
        )
        segment = self._record._replace(
            length=self._length,
            chunk_count=len(chunks),
            start_offset=self._start_offset,
            status=self._record.status | _SYSTEM,
            first_chunk=chunks[0][0] if chunks else None,
            last_chunk=chunks[-1][0] if chunks else None,
            first_chunk_start=chunks[0][1] if chunks else self._length,
            last_chunk_start=chunks[-1][1] if chunks else self._length,
            owner_epoch=epoch,
            blocks=(),
        )
        segment.check_invariants()
        return SegmentSnapshot(segment, records)

    def _live_extents(self) -> list[tuple[str, int, int]]:
        if self._first_chunk in self._starts:
            first = self._starts[self._first_chunk]
            return [extent for extent in self._extents() if extent[1] >= first]
        # Either no chunk was left, or the chunk that the truncation named has been cut off since.
        offset = self._start_offset
        return [(chunk, start, end) for chunk, start, end in self._extents() if end > offset or start >= offset]

    def _extents(self) -> list[tuple[str, int, int]]:
        starts = list(self._starts.values())
        return [
            (chunk, start, end)
            for (chunk, start), end in zip(self._starts.items(), [*starts, self._length][1:], strict=True)
        ]


class SystemJournal:
    """The journal of one container, written by the instance that owns it as `epoch`. `boot` it before anything else.

    `record` is the `JournalSink` of a `ChunkedSegmentStorage`. Methods raise StorageError if the change could not be
    made durable, after several tries; then the change must not count, and what comes next is recorded against the state
    before it. `clock` is in seconds since the epoch.
    """

    def __init__(
        self,
        store: Store,
        container: int,
        epoch: int,
        garbage: GarbageQueue,
        config: JournalConfig | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._container = container
        self._epoch = epoch
        self._garbage = garbage
        self._config = config or JournalConfig()
        self._clock = clock
        self._lock = threading.RLock()
        self._layouts: SystemLayouts | None = None
        self._file = 0  # the number of the last journal file
        self._place: int | None = None  # where that file is appended to; None: start another
        self._snapshot = 0  # the number of the last snapshot
        self._batches = 0
        self._snapshot_time = clock()
        self._counts: tuple[SnapshotInfo, int] | None = None  # the snapshot that counts, the last file it covers
        self._superseded: list[str] = []  # files that the next snapshot makes needless

    def boot(self, metadata: MetadataStore) -> None:
        """Put the records of the system segments into `metadata`, pinned, as the last owner left them; take over.

        Raises StorageNotPrimary if a later epoch has booted, JournalDamaged, and what the store raises; then it may be
        called again.
        """
        with self._lock:
            layouts = self._recovered()
            layouts.drop_empty_chunks()
            layouts.add_missing(system_segments(self._container), self._config.rolling_length)
            self._layouts = layouts
            self.snapshot()
            with metadata.begin() as transaction:
                for segment, chunks in layouts.snapshots(self._epoch):
                    transaction.put(segment, pinned=True)
                    for chunk in chunks:
                        transaction.put(chunk, pinned=True)
                transaction.commit()

    def record(self, changes: Sequence[SystemChange]) -> None:
        """Write down changes, which count together or not at all."""
        with self._lock:
            layouts = self._known_layouts()
            self._snapshot_if_due()
            data = encode_batch(changes)
            self._retry(lambda: self._try_write(data))
            for change in changes:
                layouts.apply(change, self._config.rolling_length)
            self._batches += 1

    def snapshot(self) -> SnapshotInfo:
        """Write a snapshot of all system segments, which counts when it was read back; journals before it are garbage.

        Raises StorageNotPrimary if a later epoch has taken over, and what the store raises.
        """
        with self._lock:
            self._place = None  # whatever becomes of it, what follows is not in the files that it covers
            snapshot = JournalSnapshot(self._epoch, self._file, self._known_layouts().snapshots(self._epoch))
            self._retry(lambda: self._try_snapshot(snapshot))
            info = SnapshotInfo(self._epoch, self._snapshot)
            self._retry(lambda: self._publish(info))
            self._counts = info, snapshot.file_index
            self._batches = 0
            self._snapshot_time = self._clock()
            name = snapshot_name(self._container, *info)
            self._discard([file for file in self._superseded if file != name])
            self._superseded = [name]
            return info

    def is_needed(self, name: str) -> bool:
        """Whether the next boot may read this object; False for journals and snapshots that are superseded only."""
        with self._lock:
            parsed = parse_name(name)
            if parsed is None or parsed[0] != self._container or self._counts is None:
                return True
            _, is_snapshot, file = parsed
            info, covered = self._counts
            if is_snapshot:
                return (file.epoch, file.number) >= info
            return (file.epoch, file.number) > (info.epoch, covered)

    def _snapshot_if_due(self) -> None:
        late = self._clock() - self._snapshot_time > self._config.snapshot_seconds
        if late or self._batches >= self._config.snapshot_batches:
            try:
                self.snapshot()
            except StorageNotPrimary:
                raise
            except StorageError as error:  # the journal continues without one
                _log.warning("system journal of container %d: no snapshot: %s", self._container, str(error))

    def _try_write(self, data: bytes) -> None:
        place, self._place = self._place, None  # until it is known to have happened
        if place is None:
            self._file += 1
            self._superseded.append(journal_name(self._container, self._epoch, self._file))
            self._store.put(self._superseded[-1], data)
            place = 0
        else:
            self._store.append(journal_name(self._container, self._epoch, self._file), place, data)
        if self._config.appends and self._store.can_append:
            self._place = place + len(data)

    def _try_snapshot(self, snapshot: JournalSnapshot) -> None:
        self._snapshot += 1
        name = snapshot_name(self._container, self._epoch, self._snapshot)
        self._superseded.append(name)
        self._store.put(name, encode_snapshot(snapshot))
        try:
            back, _ = decode_snapshot(self._store.read(name))
        except (InvalidData, ObjectNotFound) as error:
            raise StorageUnavailable(f"{self._store.root}: snapshot {name!r} cannot be read back: {error}") from error
        if back != snapshot:
            raise StorageUnavailable(f"{self._store.root}: snapshot {name!r} does not read back as it was written")

    def _publish(self, info: SnapshotInfo) -> None:
        published = self._read_info()
        if published is not None:
            self._refuse_if_overtaken(published.epoch)
        self._store.put(snapshot_info_name(self._container), encode_info(info))

    def _discard(self, names: Sequence[str]) -> None:
        due = self._clock() + self._config.garbage_delay
        self._garbage.add([GarbageTask(name, due, kind=GarbageKind.JOURNAL) for name in names])

    # -- recovery

    def _recovered(self) -> SystemLayouts:
        for _ in range(self._config.attempts):
            try:
                return self._replayed()
            except ObjectNotFound as error:  # collected by a later owner, which the next try will meet
                vanished = error
        raise JournalDamaged(
            f"{self._store.root}: a journal of container {self._container} is listed but cannot be read: {vanished}"
        ) from vanished

    def _replayed(self) -> SystemLayouts:
        snapshots, journals = self._files()
        for file in (*snapshots, *journals):
            self._refuse_if_overtaken(file.epoch)
        layouts = SystemLayouts()
        base = self._base(snapshots)
        if base is not None:
            with decoding(lambda problem: self._damaged(f"the snapshot of epoch {base.epoch}", problem)):
                layouts.apply(base, self._config.rolling_length)
        elif journals:
            raise JournalDamaged(
                f"{self._store.root}: container {self._container} has system journals, but no snapshot to begin with"
            )
        for file in journals:
            if base is not None and (file.epoch, file.number) > (base.epoch, base.file_index):
                with decoding(functools.partial(self._damaged, f"journal {file.name!r}")):
                    for record in self._records(file):
                        layouts.apply(record, self._config.rolling_length)
        self._superseded = [file.name for file in (*snapshots, *journals)]
        # An earlier boot() of this instance may have used numbers under which nothing has arrived yet.
        self._snapshot = max([self._snapshot, *(file.number for file in snapshots if file.epoch == self._epoch)])
        self._file = max([self._file, *(file.number for file in journals if file.epoch == self._epoch)])
        return layouts

    def _base(self, snapshots: Sequence[JournalFile]) -> JournalSnapshot | None:
        """The newest snapshot that can be read; at least that which counts."""
        info = self._retry(self._read_info)
        if info is not None:
            self._refuse_if_overtaken(info.epoch)
        for file in reversed(snapshots):
            at = SnapshotInfo(file.epoch, file.number)
            if info is not None and at < info:
                break
            snapshot = self._readable_snapshot(file, trusted=at == info)
            if snapshot is not None:
                return snapshot
        if info is not None:
            raise JournalDamaged(
                f"{self._store.root}: the snapshot that counts, {snapshot_name(self._container, *info)!r}, is missing"
            )
        return None

    def _readable_snapshot(self, file: JournalFile, *, trusted: bool) -> JournalSnapshot | None:
        data = self._retry(lambda: self._store.read(file.name))
        try:
            snapshot, checked = decode_snapshot(data)
        except InvalidData as error:
            if trusted:
                raise JournalDamaged(
                    f"{self._store.root}: snapshot {file.name!r} counts, but is damaged: {error}"
                ) from error
            _log.warning(
                "system journal: snapshot %s is damaged (%s) and never counted: passed over", file.name, str(error)
            )
            return None
        return snapshot if trusted or checked else None

    def _records(self, file: JournalFile) -> Iterator[JournalRecord]:
        for batch in decode_batches(self._retry(lambda: self._store.read(file.name))):
            yield from batch

    def _damaged(self, what: str, problem: InvalidData) -> JournalDamaged:
        return JournalDamaged(f"{self._store.root}: {what} is damaged: {problem}")

    def _files(self) -> tuple[list[JournalFile], list[JournalFile]]:
        """This container's snapshots and journals, from old to new."""
        snapshots: list[JournalFile] = []
        journals: list[JournalFile] = []
        for name in self._journal_names():
            parsed = parse_name(name)
            if parsed is not None and parsed[0] == self._container:
                (snapshots if parsed[1] else journals).append(parsed[2])
        return sorted(snapshots), sorted(journals)

    def _journal_names(self) -> Iterator[str]:
        prefix = f"{CONTAINERS}_sysjournal."
        last = prefix
        while True:
            page = self._retry(functools.partial(self._store.list, CONTAINERS, last, _PAGE))
            for found in page:
                if not found.path.startswith(prefix):
                    return
                yield found.path
            if len(page) < _PAGE:
                return
            last = page[-1].path

    def _read_info(self) -> SnapshotInfo | None:
        name = snapshot_info_name(self._container)
        try:
            with decoding(functools.partial(self._damaged, f"{name!r}")):
                return decode_info(self._store.read(name))
        except ObjectNotFound:
            return None

    # -- both

    def _known_layouts(self) -> SystemLayouts:
        if self._layouts is None:
            raise RuntimeError(f"the system journal of container {self._container} is used before boot()")
        return self._layouts

    def _refuse_if_overtaken(self, epoch: int) -> None:
        if epoch > self._epoch:
            raise StorageNotPrimary(f"{CONTAINERS}metadata_{self._container}", epoch, self._epoch)

    def _retry(self, attempt: Callable[[], Result]) -> Result:
        """What an attempt returns that reaches the store. Other errors than its being unavailable are final."""
        for _ in range(self._config.attempts - 1):
            try:
                return attempt()
            except StorageUnavailable as error:
                _log.info("system journal of container %d: %s", self._container, str(error))
                time.sleep(self._config.pause)
        return attempt()
