"""Segments made of chunks (PDP-34): created, written, read, sealed, merged, truncated, deleted.

A segment's content is what its metadata says (S2): the chunks' bytes up to their recorded lengths, nothing else. So
bytes are written first and recorded after. Every change is one conditional transaction on the segment's record, which
carries the epoch of its owner (S4): an instance of an earlier epoch is refused, and could change nothing if it were
not. Only the instance that made a chunk adds to it, and no longer once anything about it went wrong. So whatever a
failed, slow or overtaken instance still writes lies beyond what counts, or in chunks that nothing names.

Its garbage queue decides whether a new chunk is queued before it is created, or only if its transaction fails (G1, see
`chunkstore.metadata.garbage_queue`). Truncation and deletion change metadata only; the collector deletes the chunks
later (F2).
"""

from __future__ import annotations

import builtins
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from chunkstore.checksums import block_checksums, continued
from chunkstore.chunk_names import new_chunk_name
from chunkstore.errors import InvalidOffset, MetadataConflict, StorageError, StorageFull
from chunkstore.key_locks import KeyLocks
from chunkstore.metadata.garbage_queue import GarbageKind, GarbageQueue, GarbageTask
from chunkstore.metadata.metadata_records import RecordStatus, StoredSegmentRecord, segment_key
from chunkstore.metadata.store import MetadataStore, MetadataTransaction, WithOperations
from chunkstore.paths import SYSTEM
from chunkstore.port import Parts, Store, check_path, joined, pieces_of
from chunkstore.segments.chunk_list import ChunkList, PlacedChunk, WrittenChunk, deleted_name
from chunkstore.segments.copying import copy_chunks
from chunkstore.segments.errors import (
    BadStoredOffset,
    ChunkInUse,
    ConcurrentModification,
    SegmentStorageFull,
    SegmentUnsupported,
    StorageNotPrimary,
    StoredSegmentExists,
    StoredSegmentNotFound,
    StoredSegmentNotSealed,
    StoredSegmentSealed,
)
from chunkstore.segments.segment_reads import SegmentReads
from chunkstore.segments.system_changes import Appended, ChunkAdded, JournalSink, SystemChange, Truncated

_log = logging.getLogger(__name__)

NO_ROLLING = (1 << 62) - 1
"""The rolling length of a segment whose chunks may have any length."""

_MOST_OPEN_CHUNKS = 100_000


@dataclass(frozen=True)
class SegmentStorageConfig:
    """Sizes in bytes, times in seconds.

    `appends`: whether a chunk may be added to; without, every write is a chunk. `system_rolling_length`: at which the
    chunks of system segments are full.
    `relocate`: whether the live rest of a first chunk is copied, if the chunk is longer than `relocate_min`, at most
    `relocate_max`, and truncated by `relocate_percent` or more. `garbage_delay`: how long garbage is kept,
    longer than any read takes. `transaction_batch`: chunks that one transaction takes out.
    """

    appends: bool = True
    system_rolling_length: int = 128 << 20
    relocate: bool = True
    relocate_min: int = 64 << 20
    relocate_max: int = 1 << 30
    relocate_percent: int = 80
    garbage_delay: float = 60.0
    transaction_batch: int = 5000


class SegmentInfo(NamedTuple):
    """A segment: it has the bytes [start_offset, length). `last_modified` is in milliseconds since the epoch."""

    name: str
    length: int
    start_offset: int
    sealed: bool
    last_modified: int


class NewChunk(NamedTuple):
    """A chunk that is being made. It is garbage unless it comes to belong to a segment before `deadline` (epoch s)."""

    name: str
    deadline: float


class ChunkedSegmentStorage:
    """The segments whose metadata is in `metadata`, changed by the instance of `epoch`. May be used by many threads.

    Changes of one segment follow one another, those of different ones run in parallel. After an error a change may have
    happened unless the error is a SegmentError: look at `info`. `chunks` is the store of the
    chunks; their names are never used again, so none is looked up before it is made. The metadata store commits the
    operations of a change (`with_operations`) in the same step, even if there turns out to be nothing to change.
    `journal` makes `_system/` segments system segments, whose records are pinned and journaled. `adopter` is called for
    a segment that has no metadata, and returns whether it has some now. `clock` is in seconds since the epoch.
    """

    def __init__(
        self,
        chunks: Store,
        metadata: MetadataStore,
        garbage: GarbageQueue,
        epoch: int,
        config: SegmentStorageConfig | None = None,
        *,
        reads: SegmentReads | None = None,
        journal: JournalSink | None = None,
        adopter: Callable[[str], bool] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.epoch = epoch
        self.config = config or SegmentStorageConfig()
        self.reads = reads or SegmentReads(chunks, metadata)
        self._chunks = chunks
        self._metadata = metadata
        self._garbage = garbage
        self._journal = journal
        self._adopter = adopter
        self.clock = clock
        self._locks = KeyLocks()
        self._open_chunks: dict[str, str] = {}  # by segment: the chunk that this instance made, and may add to

    # -- existence

    def create(
        self,
        segment: str,
        rolling_length: int = 0,
        start_offset: int = 0,
        with_operations: WithOperations = (),
    ) -> None:
        """Make an empty segment, whose chunks are full at `rolling_length` bytes (0: never).

        It begins at `start_offset`, as if what was before it had been written and truncated. Raises
        StoredSegmentExists.
        """
        check_path(segment)
        check_path(new_chunk_name(segment, self.epoch, NO_ROLLING))
        if rolling_length < 0:
            raise ValueError(f"segment {segment!r}: rolling length {rolling_length} is negative: 0 means no limit")
        is_system = self._journal is not None and segment.startswith(SYSTEM)
        status = (
            RecordStatus.ACTIVE
            | RecordStatus.ATOMIC_WRITES
            | (RecordStatus.SYSTEM_SEGMENT if is_system else RecordStatus(0))
        )
        default = self.config.system_rolling_length if is_system else NO_ROLLING
        if self._has_metadata(segment):
            raise StoredSegmentExists(segment)
        with self._changing(segment, with_operations=with_operations) as transaction:
            if transaction.segment(segment) is not None:
                raise StoredSegmentExists(segment)
            record = StoredSegmentRecord(
                segment,
                status=status,
                max_rolling_length=rolling_length or default,
                length=start_offset,
                start_offset=start_offset,
                first_chunk_start=start_offset,
                last_chunk_start=start_offset,
                owner_epoch=self.epoch,
                last_modified=self._now(),
            )
            transaction.put(record, pinned=is_system)
            transaction.commit()

    def exists(self, segment: str) -> bool:
        """Whether there is such a segment."""
        return self._has_metadata(segment)

    def info(self, segment: str) -> SegmentInfo:
        """What this instance knows of the segment. Raises StoredSegmentNotFound."""
        if self._has_metadata(segment):
            with self._metadata.begin(read_only=True) as transaction:
                record = transaction.segment(segment)
                if record is not None:
                    return _info(record)
        raise StoredSegmentNotFound(segment)

    def list(self, prefix: str = "") -> Iterator[SegmentInfo]:
        """The segments whose names begin with `prefix`, in no order."""
        for _, record in self._metadata.records(prefix):
            if isinstance(record, StoredSegmentRecord) and record.status & RecordStatus.ACTIVE:
                yield _info(record)

    def delete(self, segment: str, with_operations: WithOperations = ()) -> None:
        """Delete the segment. Its name is free at once; its chunks go when no reader can want them any more."""
        self._has_metadata(segment)
        with self._changing(segment, with_operations=with_operations) as transaction:
            record = self._owned(transaction, segment).record
            self._refuse_system(record, "deleted")
            self._open_chunks.pop(segment, None)
            transaction.delete(record.key)
            # The record stays, under a name that cannot be opened.
            deleted = record._replace(name=deleted_name(segment), status=record.status & ~RecordStatus.ACTIVE)
            self._let_go(transaction, segment, deleted)
            transaction.commit()

    # -- writing

    def write(self, segment: str, offset: int, data: Parts, with_operations: WithOperations = ()) -> int:
        """Add `data` at `offset`, which must be the segment's length; returns how many bytes that were. All or nothing.

        Raises BadStoredOffset, StoredSegmentSealed, StoredSegmentNotFound, StorageNotPrimary,
        SegmentStorageFull, ConcurrentModification, and what storage and metadata raise.
        """
        self._has_metadata(segment)
        rest = _Rest(data)
        with self._changing(segment, with_operations=with_operations) as transaction:
            chunks = self._growing(transaction, segment, offset)
            length = rest.length
            if not length:
                self._leave(transaction)
                return 0
            self._commit(transaction, chunks, self._write_chunks(transaction, chunks, rest))
            if self._chunks.can_append and self.config.appends:
                self._remember_open_chunk(segment, chunks.record.last_chunk)
        return length

    def attach(
        self, segment: str, offset: int, chunks: Sequence[WrittenChunk], with_operations: WithOperations = ()
    ) -> int:
        """Make existing chunks the end of the segment, which is at `offset` (S3).

        Other processes may have written them, under names that are used nowhere else. They must not be appended to any
        more. Returns their length together. Raises as `write`, and ChunkInUse.
        """
        self._has_metadata(segment)
        names = [chunk.name for chunk in chunks]
        for name, length, _ in chunks:
            check_path(name)
            if length <= 0:
                raise ValueError(f"segment {segment!r}: chunk {name!r} has {length} bytes: leave it out")
        with self._changing(segment, with_operations=with_operations) as transaction:
            layout = self._growing(transaction, segment, offset)
            self._refuse_system(layout.record, "attached to")
            transaction.load(*names)
            known: set[str] = set()
            for name in names:
                if name in known or transaction.get(name) is not None:
                    raise ChunkInUse(segment, name)
                known.add(name)
            if names:
                self._open_chunks.pop(segment, None)
                layout.extend(chunks)
                self._commit(transaction, layout)
            else:
                self._leave(transaction)
        return sum(chunk.length for chunk in chunks)

    def seal(self, segment: str, with_operations: WithOperations = ()) -> None:
        """Let nothing be added to the segment any more. Nothing happens if it is sealed."""
        self._set_sealed(segment, sealed=True, with_operations=with_operations)

    def unseal(self, segment: str) -> None:
        """Let the segment grow again."""
        self._set_sealed(segment, sealed=False)

    def concat(self, segment: str, offset: int, source: str, with_operations: WithOperations = ()) -> None:
        """Make the sealed segment `source` the end of `segment`, which is at `offset`. Only metadata moves.

        `source` is gone then. Raises as `write`, StoredSegmentNotSealed, and SegmentUnsupported for a source that is
        truncated, a system segment, or the target itself.
        """
        self._has_metadata(segment)
        if source == segment:
            raise SegmentUnsupported("it cannot be merged into itself", segment)
        self._has_metadata(source)
        with self._changing(segment, source, with_operations=with_operations) as transaction:
            chunks = self._growing(transaction, segment, offset)
            merged = self._owned(transaction, source).record
            for record in (chunks.record, merged):
                self._refuse_system(record, "merged")
            if not merged.status & RecordStatus.SEALED:
                raise StoredSegmentNotSealed(source)
            if merged.start_offset:
                raise SegmentUnsupported(
                    f"it is truncated at {merged.start_offset}: only a whole one is merged", source
                )
            ours = self._open_chunks.pop(segment, None), self._open_chunks.pop(source, None)
            chunks.join(merged)
            self._commit(transaction, chunks)
            self._remember_open_chunk(segment, ours[1] if merged.first_chunk else ours[0])

    # -- truncation

    def truncate(self, segment: str, offset: int, with_operations: WithOperations = ()) -> None:
        """Let the segment begin at `offset`, sealed or not; nothing happens if it begins there or later.

        `with_operations` are committed with the new start, and again with the copy of a first chunk, if one is made:
        what may reject the one commit may reject the other. Raises BadStoredOffset beyond the end, or below 0.
        """
        self._has_metadata(segment)
        with self._changing(segment, with_operations=with_operations) as transaction:
            chunks = self._owned(transaction, segment)
            if not 0 <= offset <= chunks.record.length:
                raise BadStoredOffset(segment, chunks.record.length, offset, "truncation")
            if offset <= chunks.record.start_offset:
                self._leave(transaction)
                return
            chunks.record = chunks.record._replace(start_offset=offset)
            taken_out = self._cut(transaction, chunks)
        while taken_out == self.config.transaction_batch:
            with self._changing(segment) as transaction:
                taken_out = self._cut(transaction, self._owned(transaction, segment))
        self._relocate_first_chunk(segment, with_operations)

    def replace_chunks(
        self,
        segment: str,
        start: int,
        old: Sequence[str],
        new: NewChunk,
        length: int,
        checksums: bytes = b"",
    ) -> None:
        """Put the chunk `new` in the place of the chunks `old`, the first of which begins at `start` of the segment.

        It holds the same bytes, `length` of them, and has these checksums, if they are known. `track_new_chunks` gave
        its name. No byte of the segment changes, so any instance may do it, whichever epoch owns the segment. Raises
        ConcurrentModification if other chunks are there now, the last one has grown, or it is too late.
        """
        self._has_metadata(segment)
        with self._changing(segment) as transaction:
            record = transaction.segment(segment)
            if record is None or not record.status & RecordStatus.ACTIVE:
                raise StoredSegmentNotFound(segment)
            # Checked after the record was read: a collector that comes later makes this commit fail. The clock of a
            # host that was stopped may be late, so the queue is asked, too, whether a collector has claimed the chunk.
            if self.clock() >= new.deadline or not self._garbage.waits(new.name):
                raise ConcurrentModification(segment)
            self._replace(transaction, ChunkList(transaction, record), start, old, start, new.name, length, checksums)

    def track_new_chunks(self, segment: str, offsets: Iterable[int]) -> builtins.list[NewChunk]:
        """Names for chunks to be made, and the time, half the garbage delay, until which they may be put in place."""
        deadline = self.clock() + self.config.garbage_delay / 2
        return [NewChunk(name, deadline) for name in self._track_new_chunks(segment, offsets)]

    # -- reading

    def read(self, segment: str, offset: int, length: int) -> bytes:
        """Exactly these bytes. Raises StoredSegmentNotFound, SegmentTruncated, BadStoredOffset, SegmentDamaged."""
        self._has_metadata(segment)
        return self.reads.read(segment, offset, length)

    def scan(self, segment: str, offset: int, end: int | None = None) -> Iterator[bytes]:
        """The bytes [offset, end) in pieces, fetched ahead of the caller. Raises as `read`."""
        self._has_metadata(segment)
        return self.reads.scan(segment, offset, end)

    def layout(self, segment: str) -> Iterator[PlacedChunk]:
        """The segment's chunks, from the first on, and where they start. Raises StoredSegmentNotFound."""
        self._has_metadata(segment)
        return self.reads.layout(segment)

    def close(self) -> None:
        """End the threads of reads."""
        self.reads.close()

    # -- how changes are made

    @contextlib.contextmanager
    def _changing(self, *segments: str, with_operations: WithOperations = ()) -> Iterator[MetadataTransaction]:
        """A transaction over segments, whose other changes wait meanwhile."""
        # One lock for all system segments: their journal has one order.
        with self._locks.held({SYSTEM if segment.startswith(SYSTEM) else segment for segment in segments}):
            try:
                with self._metadata.begin(*map(segment_key, segments), with_operations=with_operations) as transaction:
                    yield transaction
            except MetadataConflict as error:
                for segment in segments:
                    self._open_chunks.pop(segment, None)
                raise self._lost(segments) from error
            except StorageFull as error:
                raise SegmentStorageFull(segments[0], str(error)) from error

    def _lost(self, segments: Iterable[str]) -> StorageError:
        """The error for a change that lost against a concurrent one."""
        self._metadata.evict_all()
        for segment in segments:
            with self._metadata.begin(read_only=True) as transaction:
                record = transaction.segment(segment)
            if record is not None and record.owner_epoch > self.epoch:
                return StorageNotPrimary(segment, record.owner_epoch, self.epoch)
        return ConcurrentModification(next(iter(segments)))

    def _commit(
        self, transaction: MetadataTransaction, chunks: ChunkList, changes: Sequence[SystemChange] = ()
    ) -> None:
        """Commit; the journal, which knows system segments only, records the changes before they are visible."""
        chunks.record = chunks.record._replace(last_modified=self._now())
        chunks.save()
        is_system = chunks.record.status & RecordStatus.SYSTEM_SEGMENT
        transaction.commit(partial(self._journal, changes) if self._journal is not None and is_system else None)

    @staticmethod
    def _leave(transaction: MetadataTransaction) -> None:
        """Change nothing, where nothing is to be changed; commit the operations all the same."""
        if transaction.with_operations:
            transaction.commit()

    def _owned(self, transaction: MetadataTransaction, segment: str) -> ChunkList:
        """The segment's chunks, to be changed by this epoch, which claims them if they belong to an earlier one."""
        record = transaction.segment(segment)
        if record is None or not record.status & RecordStatus.ACTIVE:
            raise StoredSegmentNotFound(segment)
        if record.owner_epoch > self.epoch:
            raise StorageNotPrimary(segment, record.owner_epoch, self.epoch)
        chunks = ChunkList(transaction, record)
        if record.owner_epoch < self.epoch:
            self._open_chunks.pop(segment, None)
            self._claim(chunks)
        return chunks

    def _claim(self, chunks: ChunkList) -> None:
        record = chunks.record
        if not record.status & RecordStatus.ATOMIC_WRITES and record.last_chunk is not None:
            # Old versions of the original recorded the length of the last chunk late: what is there counts.
            chunks.grow(max(self._chunks.stat(record.last_chunk).size - chunks.chunk(record.last_chunk).length, 0))
        status = record.status | RecordStatus.OWNERSHIP_CHANGED | RecordStatus.ATOMIC_WRITES
        chunks.record = chunks.record._replace(owner_epoch=self.epoch, status=status)

    def _growing(self, transaction: MetadataTransaction, segment: str, offset: int) -> ChunkList:
        """The segment's chunks, if it may grow at `offset`."""
        chunks = self._owned(transaction, segment)
        if chunks.record.status & RecordStatus.SEALED:
            raise StoredSegmentSealed(segment)
        if offset != chunks.record.length:
            raise BadStoredOffset(segment, chunks.record.length, offset, "adding to it")
        return chunks

    def _write_chunks(
        self, transaction: MetadataTransaction, chunks: ChunkList, rest: _Rest
    ) -> builtins.list[SystemChange]:
        """Write to the last chunk, if it may be added to, and then to new ones. Returns what changed."""
        changes: list[SystemChange] = []
        segment, rolling = chunks.record.name, chunks.record.max_rolling_length or NO_ROLLING
        may_append = self._may_append(chunks.record)
        self._open_chunks.pop(segment, None)  # and remembered after the commit: after any failure a chunk is begun
        if may_append and chunks.record.last_chunk is not None:
            last = chunks.chunk(chunks.record.last_chunk)
            piece = rest.ahead(rolling - last.length)
            size = sum(map(len, piece))
            if piece and self._append(last.name, last.length, piece):
                rest.skip(piece)
                changes.append(Appended(segment, last.name, last.length, size))
                chunks.grow(size, continued(last.checksums, last.length, *piece))
        offsets = range(chunks.record.length, chunks.record.length + rest.length, rolling)
        added, last_chunk = [], chunks.record.last_chunk
        for offset, name in zip(offsets, self._track_new_chunks(segment, offsets, transaction), strict=True):
            piece = rest.ahead(rolling)
            size = sum(map(len, piece))
            self._chunks.put(name, piece)
            rest.skip(piece)
            changes += ChunkAdded(segment, name, last_chunk, offset), Appended(segment, name, 0, size)
            added.append(WrittenChunk(name, size, block_checksums(*piece)))
            last_chunk = name
        chunks.extend(added)
        if added:
            chunks.record = chunks.record._replace(status=chunks.record.status & ~RecordStatus.OWNERSHIP_CHANGED)
        return changes

    def _may_append(self, record: StoredSegmentRecord) -> bool:
        """Whether the last chunk may be added to: this instance made it in this epoch, and nothing failed (S2)."""
        return record.last_chunk is not None and self._open_chunks.get(record.name) == record.last_chunk

    def _append(self, chunk: str, length: int, piece: Sequence[memoryview]) -> bool:
        """Add to a chunk; False if it is longer than it should be, as an earlier attempt arrived after all."""
        try:
            self._chunks.append(chunk, length, joined(piece))
        except InvalidOffset as error:
            if error.expected < length:
                raise
            return False
        return True

    def _remember_open_chunk(self, segment: str, chunk: str | None) -> None:
        if chunk is not None:
            if len(self._open_chunks) >= _MOST_OPEN_CHUNKS:
                self._open_chunks.clear()  # forgetting costs a new chunk each
            self._open_chunks[segment] = chunk

    def _track_new_chunks(
        self, segment: str, offsets: Iterable[int], transaction: MetadataTransaction | None = None
    ) -> builtins.list[str]:
        """Names for chunks to be made, which are garbage unless a commit comes to name them: that of `transaction`, if
        it is under way. The garbage queue decides whether it has them from now on, or only if that commit fails."""
        names = [new_chunk_name(segment, self.epoch, offset) for offset in offsets]
        if names:
            due = self._due()
            tasks = [GarbageTask(name, due, kind=GarbageKind.NEW_CHUNK, segment=segment) for name in names]
            self._garbage.add(tasks, transaction)
        return names

    def _let_go(self, transaction: MetadataTransaction, segment: str, deleted: StoredSegmentRecord) -> None:
        """Keep what is deleted of a segment for the collector: one piece of garbage, however many chunks it has."""
        task = GarbageTask(deleted.name, self._due(), kind=GarbageKind.SEGMENT, segment=segment)
        self._garbage.add([task], transaction)
        transaction.put(deleted)

    def _set_sealed(self, segment: str, *, sealed: bool, with_operations: WithOperations = ()) -> None:
        self._has_metadata(segment)
        with self._changing(segment, with_operations=with_operations) as transaction:
            chunks = self._owned(transaction, segment)
            self._refuse_system(chunks.record, "sealed")
            status = chunks.record.status & ~RecordStatus.SEALED | (RecordStatus.SEALED if sealed else RecordStatus(0))
            # Even if it seems to be so already: it may have been changed, and only the commit shows that.
            chunks.record = chunks.record._replace(status=status)
            self._commit(transaction, chunks)

    def _cut(self, transaction: MetadataTransaction, chunks: ChunkList) -> int:
        """Take out chunks that are truncated away, at most a batch; returns how many."""
        segment = chunks.record.name
        if chunks.record.status & RecordStatus.SYSTEM_SEGMENT:  # the journal knows of no list but the segment's own
            names = chunks.cut(self.config.transaction_batch)
            due, count = self._due(), len(names)
            self._garbage.add([GarbageTask(name, due, segment=segment) for name in names], transaction)
        else:
            deleted = chunks.detach(self.config.transaction_batch)
            count = deleted.chunk_count if deleted is not None else 0
            if deleted is not None:
                self._let_go(transaction, segment, deleted)
        record = chunks.record
        truncated = Truncated(segment, record.start_offset, record.first_chunk, record.first_chunk_start)
        self._commit(transaction, chunks, [truncated])
        return count

    def _relocate_first_chunk(self, segment: str, with_operations: WithOperations) -> None:
        """Copy the rest of a first chunk that is mostly truncated away. It only saves space, so failures are logged."""
        try:
            with self._changing(segment, with_operations=with_operations) as transaction:
                # One transaction over the copy, however long it takes: the collector forestalls its commit, or waits.
                chunks = self._owned(transaction, segment)
                first, start = chunks.record.first_chunk, chunks.record.start_offset
                if first is None:
                    return
                placed = PlacedChunk(chunks.record.first_chunk_start, chunks.chunk(first))
                # A concurrent truncation may be about to take the chunk out.
                if start < placed.end and self._is_worth_relocating(segment, placed, start):
                    (name,) = self._track_new_chunks(segment, [start], transaction)
                    source = WrittenChunk(first, placed.chunk.length, placed.chunk.checksums)
                    checksums = copy_chunks(self._chunks, segment, [source], name, start - placed.start)
                    length = placed.end - start
                    self._replace(transaction, chunks, placed.start, [first], start, name, length, checksums)
        except StorageError as error:
            _log.warning("segment %r: its first chunk is not relocated: %s", segment, str(error))

    def _replace(
        self,
        transaction: MetadataTransaction,
        chunks: ChunkList,
        start: int,
        old: Sequence[str],
        new_start: int,
        new: str,
        length: int,
        checksums: bytes,
    ) -> None:
        segment = chunks.record.name
        self._refuse_system(chunks.record, "rearranged")
        self._let_go(transaction, segment, chunks.replace(start, old, new_start, new, length, checksums))
        if chunks.record.last_chunk == new:
            self._open_chunks.pop(segment, None)
        self._commit(transaction, chunks)

    def _is_worth_relocating(self, segment: str, first: PlacedChunk, start: int) -> bool:
        config, length = self.config, first.chunk.length
        return (
            config.relocate
            and not segment.startswith(SYSTEM)
            and config.relocate_min < length <= config.relocate_max
            and 100 * (start - first.start) // length >= config.relocate_percent
        )

    # -- small things

    def _has_metadata(self, segment: str) -> bool:
        """Whether there is such a segment, which may have to be adopted first."""
        with self._metadata.begin(read_only=True) as transaction:
            record = transaction.segment(segment)
        if record is None:
            return self._adopter is not None and self._adopter(segment)
        return bool(record.status & RecordStatus.ACTIVE)

    @staticmethod
    def _refuse_system(record: StoredSegmentRecord, what: str) -> None:
        if record.status & RecordStatus.SYSTEM_SEGMENT:
            raise SegmentUnsupported(f"a system segment cannot be {what}: the journal cannot tell it", record.name)

    def _due(self) -> float:
        return self.clock() + self.config.garbage_delay

    def _now(self) -> int:
        return int(self.clock() * 1000)


class _Rest:
    """Data of which one piece after the other is taken from the front."""

    def __init__(self, data: Parts) -> None:
        self._pieces = [view for view in (memoryview(piece).cast("B") for piece in pieces_of(data)) if len(view)]
        self._pieces.reverse()
        self.length = sum(map(len, self._pieces))

    def ahead(self, size: int) -> list[memoryview]:
        """The next `size` bytes, or all if there are fewer, in pieces; they stay."""
        taken: list[memoryview] = []
        for view in reversed(self._pieces):
            if size <= 0:
                break
            taken.append(view[:size])
            size -= len(view)
        return taken

    def skip(self, taken: Sequence[memoryview]) -> None:
        """Take away what `ahead` returned."""
        for view in taken:
            whole = self._pieces.pop()
            if len(view) < len(whole):
                self._pieces.append(whole[len(view) :])
            self.length -= len(view)


def _info(record: StoredSegmentRecord) -> SegmentInfo:
    sealed = bool(record.status & RecordStatus.SEALED)
    return SegmentInfo(record.name, record.length, record.start_offset, sealed, record.last_modified)
