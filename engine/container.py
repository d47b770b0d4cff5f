"""A segment container: the segments whose operations share one write-ahead log.

Owns opening (W6), the operations' public form, reading, and the upkeep that an append may set off: checkpoint objects,
flushing, truncation of the log, collection of garbage. Any number of processes may hold the same container *shared*:
whoever was overtaken catches up and goes on. Held *exclusively*, it goes offline when another process appends.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from chunkstore import ObjectNotFound, StorageError
from chunkstore.metrics import default_metrics
from engine import checkpoints
from engine.backups import lost_log
from engine.cache import Cache
from engine.chunks import check_name, chunk_name, write_chunk
from engine.errors import DataCorruption, FrameDamaged, SegmentNotFound
from engine.frames import START, Position
from engine.horizon import swept_at
from engine.log import Executor, InlineExecutor, Log, boot_time
from engine.operations import (
    Append,
    AttributeUpdate,
    CheckEntry,
    Checkpoint,
    CreateSegment,
    DeleteSegment,
    ExpireSegments,
    MergeSegment,
    Operation,
    Payload,
    PutEntry,
    SealSegment,
    TruncateSegment,
    UpdateAttributes,
)
from engine.pending import Pending, Receipt
from engine.processor import Processor
from engine.read_index import ReadEntry, ReadIndex
from engine.reads import Piece, Stores, fetch_through, plan
from engine.segment_records import decode_segment
from engine.segments import Extent, Segment, parent_in
from engine.state import State
from engine.storage_metadata import ContainerRecords
from engine.storage_writer import StorageWriter
from engine.table_content import check_entry
from engine.tables import ATTRIBUTES, METADATA, Entry, Known, attribute_key
from engine.throttle import Throttle
from engine.tier_two import Changes, TierTwo
from engine.truncation import collect_garbage, truncate_log
from engine.upkeep import Upkeep

logger = logging.getLogger(__name__)

_METRICS = default_metrics().layer("container")

T = TypeVar("T")


@dataclass(frozen=True)
class Settings:
    """How a container works.

    grace: seconds for which frames outlive the boundary that covers them; one value for all processes of a root (W7).
    garbage_delay: seconds for which chunks outlive the operation that let them go (G1); likewise.
    checkpoint_frames: a checkpoint is due after this many frames, unless checkpoints would take too much of the time.
    flush_bytes, flush_frames: the append that brings the log to so many unflushed bytes, or to so many frames since the
    last flush cycle began, flushes.
    flush_seconds: the first append after so much time since the last flush cycle flushes too.
    backlog_bytes, outstanding_bytes: see Throttle.
    transient_idle: seconds without an append after which a transient segment is deleted (PDP-43); one value for all
    processes of a root.
    active_segments: how many segments are kept in memory at most (Pravega: segment.active.count.max).
    cache_bytes: the size of the cache of what was read. poll: seconds between two looks at the log of who waits for
    others' appends.
    flights, linger: see Processor. patience: see Log. upkeep: whether appends set off upkeep at all.
    threaded: requests in flight and upkeep are carried out by threads; otherwise all is done in the caller's thread.
    """

    grace: float = 600.0
    garbage_delay: float = 600.0
    transient_idle: float = 3600.0
    checkpoint_frames: int = 8
    flush_bytes: int = 32 << 20
    flush_frames: int = 1000
    flush_seconds: float = 300.0
    backlog_bytes: int = 1 << 30
    outstanding_bytes: int = 128 << 20
    active_segments: int = 25_000
    cache_bytes: int = 64 << 20
    poll: float = 0.1
    flights: int = 4
    linger: float = 0.005
    patience: float = 60.0
    upkeep: bool = True
    threaded: bool = True


class Container:
    """One container of a root. Thread-safe. Use `engine.root.Root.container` to get it.

    Args:
        stores: the roots of log and chunks. number: which container. exclusive: see above.
        repair: the address of a damaged frame that is to be given up, see `repair`.
        clock: a monotonic clock that runs in suspend; now: the time of day, seconds since the epoch.
    """

    def __init__(
        self,
        stores: Stores,
        number: int,
        settings: Settings | None = None,
        *,
        exclusive: bool = False,
        repair: int | None = None,
        executor: Executor | None = None,
        clock: Callable[[], float] = boot_time,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.stores = stores
        self.number = number
        self.settings = settings or Settings()
        self.clock = clock
        self.now = now
        self._sleep = sleep
        self._pool: ThreadPoolExecutor | None = None
        self._executor = executor or self._make_executor()
        self._upkeep = Upkeep(self)
        self._throttle = Throttle(
            self.settings.outstanding_bytes,
            self.settings.backlog_bytes,
            self.settings.patience,
            relieve=self._upkeep.relieve,
            clock=clock,
            sleep=sleep,
        )
        self.cache = Cache(self.settings.cache_bytes)
        self.tier_two = TierTwo(stores, number, self.cache)
        self.records = ContainerRecords(self)
        self.read_index = ReadIndex(self)
        self._writer = StorageWriter(self)
        log, state = self._open()
        self._processor = Processor(
            log,
            state,
            reopen=self._open,
            look_up=self._look_up,
            spill=self._spill,
            forget=self._forget,
            committed=self._upkeep.committed,
            checkpoint_due=self._upkeep.checkpoint_due,
            flights=self.settings.flights,
            linger=self.settings.linger,
            threaded=self.settings.threaded,
            now=now,
        )
        try:
            if repair is not None:
                self._give_up(repair)
            self._processor.refresh()
            if exclusive:
                self._processor.claim()
        except BaseException:
            self.close()
            raise

    def _give_up(self, address: int) -> None:
        with contextlib.suppress(FrameDamaged):
            self._processor.refresh()
        self._repair(address)

    def _repair(self, address: int) -> None:
        now = self.stores.chunks.clock()
        self._processor.repair(address, swept_at(now, now))

    def _make_executor(self) -> Executor:
        if not self.settings.threaded:
            return InlineExecutor()
        self._pool = ThreadPoolExecutor(self.settings.flights, f"container-{self.number}")
        return self._pool

    def _open(self) -> tuple[Log, State]:
        """Log and state from the newest checkpoint (W6). The time before the listing is the first proof of the head."""
        proof = self.clock()
        head, state = checkpoints.read_newest(self.stores.log, self.number)
        if head == START and (lost := lost_log(self.stores, self.number)) is not None:
            head, state = checkpoints.read_newest(self.stores.log, self.number)
            if head == START:  # and was so before and after the look at the log's first frame
                raise lost
        log = Log(
            self.stores.log,
            self.number,
            head,
            proof,
            grace=self.settings.grace,
            executor=self._executor,
            patience=self.settings.patience,
            clock=self.clock,
            sleep=self._sleep,
        )
        return log, state

    # --- operations --------------------------------------------------------------------------------------------

    def submit(self, operations: Sequence[Operation]) -> Future[Receipt]:
        """Queue operations that take effect together or not at all. The future fails as `commit` does.

        Raises ValueError for the name of a new segment that chunks cannot be named after, Throttled, ContainerOffline.
        """
        return self._submit(operations)[1]

    def _submit(self, operations: Sequence[Operation]) -> tuple[int, Future[Receipt]]:
        for operation in operations:
            check(operation)
        pending = Pending(operations)
        size = pending.size  # of payload that goes to a chunk it will be 0
        if size:
            self._throttle.admit(size, self._backlog)
        try:
            future = self._processor.submit(pending)
        except BaseException:
            self._throttle.release(size)
            raise
        if size:
            future.add_done_callback(lambda _: self._throttle.release(size))
        self._upkeep.do_deferred()
        return size, future

    def _backlog(self) -> int:
        return self.state.logged_bytes

    def commit(self, operations: Sequence[Operation]) -> Receipt:
        """Carry out operations together: durable on return, all or none.

        Raises a Rejected error (nothing was done), OutcomeUnknown, ContainerOffline, DataCorruption or StorageError.
        """
        with _METRICS.measure("commit") as measurement:
            size, future = self._submit(operations)
            receipt = future.result()
            measurement.bytes = size
            return receipt

    def create_segment(self, segment: str, updates: Sequence[AttributeUpdate] = (), parent: str = "") -> None:
        """Make an empty segment; with a parent a transient one, which must be called as `transient_name` says.

        Raises SegmentExists; of the parent SegmentNotFound, SegmentSealed, SegmentTransient.
        """
        self.commit([CreateSegment(segment, tuple(updates), parent)])

    def append(
        self,
        segment: str,
        data: bytes | bytearray | memoryview,
        offset: int | None = None,
        updates: Sequence[AttributeUpdate] = (),
    ) -> int:
        """Append bytes, at `offset` if given, together with attribute updates. Returns the first byte's offset.

        Raises SegmentNotFound, SegmentSealed, BadAttributeUpdate, BadOffset (checked in this order).
        """
        offset_given: int = self.commit([Append(segment, Payload(data), offset, tuple(updates))]).results[0]
        return offset_given

    def submit_append(self, segment: str, data: bytes | bytearray | memoryview) -> Future[Receipt]:
        """Append without waiting; the future fails as `append` does. The caller may change `data` at once."""
        return self.submit([Append(segment, Payload(bytes(data)))])

    def seal(self, segment: str) -> None:
        """Let the segment take no more data. Raises SegmentNotFound."""
        self.commit([SealSegment(segment)])

    def merge(self, target: str, source: str, header: bytes | bytearray | memoryview = b"") -> int:
        """Append all of a sealed or transient segment to another, moving no data, and delete it. Returns where that
        begins there.

        `header` goes before it in the same step (PDP-43). Raises SegmentNotFound, SegmentSealed, SegmentNotSealed,
        BadOffset for a source that was truncated.
        """
        operation = MergeSegment(target, source, Payload(header) if len(header) else ())
        offset: int = self.commit([operation]).results[0]
        return offset

    def truncate(self, segment: str, offset: int) -> None:
        """Forget what lies before `offset`. Raises SegmentNotFound, BadOffset."""
        self.commit([TruncateSegment(segment, offset)])

    def delete(self, *segments: str) -> None:
        """Delete segments, all or none. Raises SegmentNotFound."""
        self.commit([DeleteSegment(segment) for segment in segments])

    def update_attributes(self, segment: str, updates: Sequence[AttributeUpdate]) -> None:
        """Update attributes, all or none. Raises SegmentNotFound, BadAttributeUpdate."""
        self.commit([UpdateAttributes(segment, tuple(updates))])

    # --- reading -----------------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """The state as this process knows it, without looking at storage."""
        return self._processor.state

    @property
    def offline(self) -> bool:
        """True when the container takes no operations any more; open it again."""
        return self._processor.failure is not None

    @property
    def outstanding(self) -> int:
        """Bytes of payload that were submitted and are not durable yet."""
        return self._throttle.outstanding

    def fail(self, cause: BaseException) -> None:
        """Take the container offline, as one in whose state something is wrong."""
        self._processor.fail(cause)

    @property
    def failure(self) -> BaseException | None:
        """What took the container offline."""
        return self._processor.failure

    @property
    def head(self) -> Position:
        """Position of the last frame in `state`."""
        return self._processor.log.head

    def refresh(self) -> State:
        """The state with everything that was acknowledged anywhere before this call. Idle: one read of one object."""
        return self._processor.refresh()

    def info(self, segment: str) -> Segment:
        """The properties of a segment, up to date. Raises SegmentNotFound."""
        found = self.infos([segment])[segment]
        if found is None:
            raise SegmentNotFound(segment)
        return found

    def infos(self, segments: Collection[str]) -> dict[str, Segment | None]:
        """The properties of many segments, up to date, None for those that do not exist."""
        return self.activated(segments, self.refresh())

    def activated(self, segments: Collection[str], state: State | None = None) -> dict[str, Segment | None]:
        """Segments by name as `state` has them, or this process knows them; those not active are looked up."""
        return self._looked_up(lambda state: self._found(segments, state), state)

    def _found(self, segments: Collection[str], state: State) -> dict[str, Segment | None]:
        found: dict[str, Segment | None] = {}
        idle = []
        for name in segments:
            found[name] = state.segments.get(name)
            if found[name] is None:
                idle.append(name)
        for name, entry in self.tier_two.entries(state, METADATA, idle).items() if idle else ():
            if entry is not None and entry.value is not None:
                found[name] = decode_segment(entry.value, entry.version)
        return found

    def attributes(self, segment: str, attributes: Collection[bytes] | None = None) -> dict[bytes, int]:
        """Attributes of a segment, up to date: those of the given ones that it has, or all. Raises SegmentNotFound."""
        self.refresh()
        return self.known_attributes(segment, attributes)

    def known_attributes(self, segment: str, attributes: Collection[bytes] | None = None) -> dict[bytes, int]:
        """The same, as this process knows them."""
        info = self.activated([segment])[segment]
        if info is None:
            raise SegmentNotFound(segment)
        found = dict(info.attributes)
        if info.spilled:
            found = self._spilled(info, attributes) | found
        return found if attributes is None else {key: found[key] for key in attributes if key in found}

    def _spilled(self, segment: Segment, attributes: Collection[bytes] | None) -> dict[bytes, int]:
        """What the table of attributes has of a segment."""
        prefix = attribute_key(segment.id, b"")
        entries: Iterable[tuple[str, Entry | None]] = (
            self.scan_entries(ATTRIBUTES, prefix)
            if attributes is None
            else self.entries(ATTRIBUTES, [attribute_key(segment.id, key) for key in attributes]).items()
        )
        return {
            bytes.fromhex(key[len(prefix) :]): int.from_bytes(entry.value, "big", signed=True)
            for key, entry in entries
            if entry is not None and entry.value is not None
        }

    # --- tables ------------------------------------------------------------------------------------------------

    def put_entries(
        self, table: str, entries: Mapping[str, bytes | None], expected: Mapping[str, int] | None = None
    ) -> dict[str, int]:
        """Put entries of a table, or remove those whose value is None, all or none. Returns their new versions.

        expected: versions that entries must have, -1 for those that must be absent, by their keys. Raises
        BadKeyVersion, ValueError for keys and values that are too long.
        """
        wanted = expected or {}
        operations: list[Operation] = [PutEntry(table, key, value, wanted.get(key)) for key, value in entries.items()]
        operations += [CheckEntry(table, key, version) for key, version in wanted.items() if key not in entries]
        return dict(zip(entries, self.commit(operations).results, strict=False))

    def entry(self, table: str, key: str) -> Entry | None:
        """An entry of a table, as this process knows it, None if there is none."""
        return self.entries(table, [key])[key]

    def entries(
        self, table: str, keys: Collection[str], state: State | None = None
    ) -> dict[str, Entry | None]:
        """Entries of a table as `state` has them, or this process knows them, None where there is none."""
        return self._looked_up(lambda state: self.tier_two.entries(state, table, keys), state)

    def scan_entries(self, table: str, prefix: str = "") -> Iterator[tuple[str, Entry]]:
        """All entries of a table whose keys begin with `prefix`, as this process knows them, in no order.

        What changes meanwhile may be met or not, and nothing is met twice.
        """
        known, met = self.state, set()
        while True:
            try:
                for key, entry in self.tier_two.scan(known, table, prefix):
                    if key not in met:
                        met.add(key)
                        yield key, entry
                return
            except ObjectNotFound as error:
                known = self._newer(known, error)

    def changed_entries(self, table: str, position: int = 0) -> Changes:
        """What was put into a table, or removed, since an earlier call, as this process knows it (Pravega:
        TableStore.entryDeltaIterator).

        `position` is that of the earlier call's result, 0 for all; what was not flushed by then may come again. Raises
        ChangesLost where compaction has passed it: begin at 0.
        """
        return self._looked_up(lambda state: self.tier_two.changes(state, table, position))

    def _looked_up(self, find: Callable[[State], T], state: State | None = None) -> T:
        """What `find` finds in a state; in a newer one, if what it names in tier 2 is gone."""
        known = state or self.state
        while True:
            try:
                return find(known)
            except ObjectNotFound as error:
                known = self._newer(known, error)

    def _newer(self, known: State, error: ObjectNotFound) -> State:
        """A newer state, where what an older one names in tier 2 is gone. DataCorruption if there is none."""
        newer = self.refresh()
        if newer.tables == known.tables and newer.segments == known.segments:
            raise DataCorruption(
                f"{error}, though the container's state names it; restore the object from a copy"
            ) from error
        return newer

    def _look_up(self, state: State, table: str, keys: Sequence[str]) -> dict[tuple[str, str], Known]:
        root = state.tables[table].layout.root if table in state.tables else None
        found = self.tier_two.entries(state, table, keys)
        return {(table, key): Known(root, entry) for key, entry in found.items()}

    # --- reading -----------------------------------------------------------------------------------------------

    def plan(self, segment: str, start: int, end: int) -> list[Piece]:
        """Where the bytes `[start, end)` lie, by the state as known (see reads.plan)."""
        found = self.activated([segment])[segment]
        if found is None:
            raise SegmentNotFound(segment)
        return self.plan_of(found, start, end)

    def plan_of(self, segment: Segment, start: int, end: int) -> list[Piece]:
        """Where the bytes `[start, end)` of a segment lie, as it is given."""
        return plan(segment, self.number, start, end, self._stored)

    def _stored(self, storage: str, start: int, end: int) -> list[Piece]:
        return self._looked_up(lambda state: self.tier_two.pieces(state, storage, start, end))

    def read(self, segment: str, start: int, end: int) -> bytes:
        """The bytes `[start, end)` of a segment.

        Bytes that were moved or truncated meanwhile are looked up again: moved is read at the new place.
        Raises SegmentNotFound, SegmentTruncated, BadOffset, DataCorruption.
        """
        known = self.state.segments.get(segment)
        if known is None or end > known.length:
            self.refresh()
        while True:
            pieces = self.plan(segment, start, end)
            try:
                with _METRICS.measure("read") as measurement:
                    parts = fetch_through(self.stores, pieces, self.cache)
                    measurement.bytes = sum(map(len, parts))
                return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)
            except (ObjectNotFound, DataCorruption) as error:
                self.refresh()
                if self.plan(segment, start, end) == pieces:
                    raise self._lost(error, pieces) from error

    @staticmethod
    def _lost(error: Exception, pieces: Sequence[Piece]) -> Exception:
        if isinstance(error, DataCorruption):
            return error
        return DataCorruption(
            f"{error}, though the container's state names it (one of {sorted({piece.path for piece in pieces})[:3]}); "
            "restore the object from a copy"
        )

    def follow(self, segment: str, offset: int, length: int, timeout: float) -> Iterator[ReadEntry]:
        """Read from `offset` on, and wait at the end for what comes; see ReadIndex.read."""
        return self.read_index.read(segment, offset, length, timeout)

    def wait_for_news(self, timeout: float) -> None:
        """Wait until this process learns of a new state, at most `timeout` seconds."""
        if self.settings.threaded:
            self._processor.wait_for_news(timeout)
        else:
            self._sleep(timeout)

    def in_background(self, work: Callable[..., Any], *args: Any) -> None:
        """Do something that nobody waits for, if there are threads for it."""
        if self.settings.threaded:
            self._upkeep.start(work, *args)

    # --- upkeep ------------------------------------------------------------------------------------------------

    def flush(self) -> int:
        """Run a flush cycle: bring everything that lies only in the log to tier 2. Returns how many bytes were moved.

        Raises StorageError, DataCorruption.
        """
        with self._upkeep.taking_care(), _METRICS.measure("flush") as measurement:
            measurement.bytes = self._writer.run()
            return measurement.bytes

    def checkpoint(self) -> None:
        """Make a checkpoint of the present state, so that opening starts here and the log before it can be truncated.

        Raises StorageError when its object could not be made.
        """
        address = self.commit([Checkpoint()]).address
        self.wait_for_upkeep()
        if self._processor.log.boundary() < address:
            raise StorageError(f"the checkpoint at {address} could not be written; the log's warnings tell why")

    def truncate_log(self) -> int:
        """Delete frames that nothing needs any more, once their boundary is older than the grace period (W7)."""
        return truncate_log(self.stores.log, self.number, self.refresh, self.settings.grace)

    def collect_garbage(self) -> int:
        """Delete chunks that have been garbage for the delay (G1). Returns their number."""
        with self._upkeep.taking_care():
            return collect_garbage(self, int((self.now() - self.settings.garbage_delay) * 1000))

    def idle_transients(self) -> dict[str, Segment]:
        """The transient segments that nobody has appended to for `transient_idle`, by the time in the appends."""
        before = self._idle_before()
        found = self.activated(self.refresh().transients)
        return {name: segment for name, segment in found.items() if segment and segment.modified < before}

    def expire_transients(self) -> tuple[str, ...]:
        """Delete the transient segments that are idle; their names. One that is appended to meanwhile stays."""
        before = self._idle_before()
        found = self.activated(self.refresh().transients)
        idle = tuple(name for name, segment in found.items() if segment is None or segment.modified < before)
        expired: tuple[str, ...] = self.commit([ExpireSegments(idle, before)]).results[0] if idle else ()
        if expired:
            logger.info("container %d: %d transient segments were idle and are deleted", self.number, len(expired))
        return expired

    def _idle_before(self) -> int:
        return int((self.now() - self.settings.transient_idle) * 1000)

    def repair(self, address: int) -> None:
        """Give up the damaged frame that stops the log, and whatever hangs on it. An operator's decision (W8).

        Stop all other processes first. Raises ValueError when the frame at `address` is not damaged.
        """
        self._repair(address)
        self.refresh()

    def wait_for_upkeep(self) -> None:
        """Wait until the upkeep that was set off so far is done."""
        self._upkeep.wait()

    def close(self) -> None:
        """Finish what was submitted and the upkeep under way, then give the container up."""
        self._processor.close()
        self._upkeep.close()
        if self._pool is not None:
            self._pool.shutdown()

    def __enter__(self) -> Container:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _spill(self, pending: Pending, epoch: int) -> tuple[str, list[Extent]]:
        """Write the payload of a transaction to one chunk."""
        appends = [op for op in pending.operations if isinstance(op, Append) and isinstance(op.content, Payload)]
        name = chunk_name(appends[0].segment, epoch, 0)
        return name, write_chunk(self.stores.chunks, name, [[op.content.data] for op in appends])  # type: ignore[union-attr]

    def _forget(self, chunk: str) -> None:
        with contextlib.suppress(StorageError):  # nothing names it, so it does no harm
            self.stores.chunks.delete([chunk])


def check(operation: Operation) -> None:
    """Raise ValueError for what could not be kept: names that no chunk can have, keys and values that are too long."""
    if isinstance(operation, CreateSegment):
        check_name(operation.segment)
        if (parent_in(operation.segment) or "") != operation.parent:
            raise ValueError(
                f"segment {operation.segment!r} cannot be made for the parent {operation.parent!r}: transient "
                "segments, and only those, are called <parent>#transient.<32 digits>.<32 digits>"
            )
    elif isinstance(operation, PutEntry):
        operation.table.encode()
        check_entry(operation.key.encode(), operation.value)
