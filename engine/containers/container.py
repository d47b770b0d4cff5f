"""A segment container: the segments whose operations share one write-ahead log.

The public face of a container: it puts the durable log, reading and maintenance together, and delegates each call. Any
number of processes may hold the same container *shared*: a process that lost a race reads on and retries. Held
*exclusively*, it goes offline when another process appends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import NamedTuple

from chunkstore import ObjectInfo, StorageError
from chunkstore.boot_clock import boot_time
from chunkstore.paths import generation_of
from chunkstore.room import CHECKPOINTS
from engine.clocks import StorageClock
from engine.containers.maintenance_scheduler import MaintenanceScheduler
from engine.containers.maintenance_tasks import MaintenanceTasks
from engine.identity import ANY_IDENTITY, Identity
from engine.logs.durable_log import DurableLog
from engine.logs.frames import Position
from engine.logs.log import Executor, Repair
from engine.logs.transaction import Receipt
from engine.reading.container_segments import ContainerSegments
from engine.reading.table_store import TableStore
from engine.settings import Settings
from engine.state.operations import (
    Append,
    AttributeUpdate,
    CheckEntry,
    Checkpoint,
    CreateSegment,
    DeleteSegment,
    MergeSegment,
    Operation,
    Payload,
    PutEntry,
    SealSegment,
    TruncateSegment,
    UpdateAttributes,
)
from engine.state.segments import Segment
from engine.state.state import State
from engine.state.tables import Entry
from engine.storage.cache import Cache
from engine.storage.container_storage import ContainerStorage
from engine.storage.lookups import Lookups
from engine.storage.object_reads import ObjectRange, Stores
from engine.task_runner import TaskRunner
from engine.writer.container_records import ContainerRecords
from engine.writer.flush_context import FlushContext
from engine.writer.storage_writer import StorageWriter

BACKGROUND_THREADS = 3
"""One for checkpoints, one for flush cycles, one for deleting."""


class Loss(NamedTuple):
    """Bytes [start, end) of a segment that are not read, and why. stream: "scope/stream". there: whether they exist,
    and are left out; else they are lost."""

    stream: str
    segment: str
    start: int
    end: int
    reason: str
    there: bool = False

    @property
    def fact(self) -> str:
        """What is not read, without the names."""
        what = "left out" if self.there else "lost"
        return f"bytes {self.start} to {self.end} are {what}: {self.reason}"

    def __str__(self) -> str:
        return f"stream {self.stream}: {self.segment!r}: {self.fact}"


class Container:
    """One container of a root. Thread-safe. Use `engine.root.Root.container` to get it.

    Args:
        stores: the roots of log and chunks. number: which container. exclusive: see above.
        unread: only open the newest checkpoint, and do not read on: for `repair`.
        executor: carries out the requests of frames; None: threads, as the settings say.
        clock: a monotonic clock that runs in suspend; now: this host's time of day, seconds since the epoch, which only
            `storage_clock` may use. sleep: waits for so many seconds.
        identity: of the root that it belongs to (P4).

    log: its durable log. segments, tables: read them. lookups, cache: reads of LTS, and their cache.
    background: the threads of its maintenance.
    """

    def __init__(
        self,
        stores: Stores,
        number: int,
        settings: Settings | None = None,
        *,
        exclusive: bool = False,
        unread: bool = False,
        executor: Executor | None = None,
        clock: Callable[[], float] = boot_time,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
        identity: Identity = ANY_IDENTITY,
    ) -> None:
        settings = settings or Settings()
        self.stores = stores
        self.number = number
        self.settings = settings
        self.clock = clock
        self.storage_clock = log_clock = StorageClock(stores.chunks, now, clock, settings.clock_tolerance)
        if stores.log is not stores.chunks:
            log_clock = StorageClock(stores.log, now, clock, settings.clock_tolerance)
        self.cache = Cache(settings.cache_bytes)
        self.lookups = Lookups(stores, number, self.cache)
        self.log = DurableLog(
            stores.log,
            number,
            settings,
            ContainerStorage(stores, number, self.lookups, self.storage_clock.now),
            store_clock=log_clock,
            now=self.storage_clock.known,
            executor=executor,
            clock=clock,
            wall=now,
            sleep=sleep,
            identity=identity,
        )
        self.background = TaskRunner(f"container {number}", BACKGROUND_THREADS if settings.threaded else 0, clock)
        self.tables = TableStore(self.log, self.lookups)
        self.segments = ContainerSegments(stores, self.log, self.lookups, self.tables, self.cache)
        self.records = ContainerRecords(self.tables, self.log)
        self.flush_context = FlushContext(
            stores, settings, self.storage_clock, self.log, self.lookups, self.tables, self.segments, self.records
        )
        self.writer = StorageWriter(self.flush_context)
        self.maintenance = MaintenanceTasks(self.flush_context, self.writer, log_clock, clock, sleep, identity)
        self._scheduler = MaintenanceScheduler(
            self.log, self.maintenance, self.background, settings, self.storage_clock, clock
        )
        self.log.observe(self._scheduler)
        try:
            if not unread:
                self.log.refresh()
            if exclusive:
                self.log.claim()
        except BaseException:
            self.close()
            raise

    @property
    def generation(self) -> str:
        """The generation of its log: another one after the root was created anew or restored, or this container was
        recovered (P4). "" if it belongs to no root."""
        return generation_of(self.number)

    # --- operations --------------------------------------------------------------------------------------------

    def submit(self, operations: Sequence[Operation]) -> Future[Receipt]:
        """Queue operations that take effect together or not at all. The future fails as `commit` does.

        Raises ValueError for the name of a new segment that chunks cannot be named after, Throttled, ContainerOffline.
        """
        future = self.log.submit(operations)
        self._scheduler.after_operation()
        return future

    def commit(self, operations: Sequence[Operation], *, frees: bool = False) -> Receipt:
        """Carry out operations together: durable on return, all or none.

        frees: they are a step of what frees space, so that they may take the last of it (P6). Truncations and deletions
        need not say so. Raises a Rejected error (nothing was done), OutcomeUnknown, ContainerOffline, DataCorruption or
        StorageError.
        """
        receipt = self.log.commit(operations, frees=frees)
        self._scheduler.after_operation()
        return receipt

    def check_room(self) -> None:
        """Raise StorageFull unless there is room for more of users' data (P6). For a caller that adds some."""
        self.log.check_room()

    def create_segment(self, segment: str, updates: Sequence[AttributeUpdate] = (), parent: str = "") -> None:
        """Create an empty segment; with a parent a transient one, whose name must come from `transient_name`.

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
        return self.submit([Append(segment, Payload(bytes(Payload(data).data)))])

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
        """Update attributes, all or none. Of a sealed segment only core ones can be updated (Pravega:
        SegmentMetadataUpdateTransaction). Raises SegmentNotFound, SegmentSealed, BadAttributeUpdate."""
        self.commit([UpdateAttributes(segment, tuple(updates))])

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

    # --- the state ---------------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """The state as this process knows it, without looking at storage."""
        return self.log.state

    @property
    def head(self) -> Position:
        """Position of the last frame in `state`."""
        return self.log.head

    def refresh(self) -> State:
        """The state with everything that was acknowledged anywhere before this call. Idle: one read of one object."""
        return self.log.refresh()

    def look(self, latency: float) -> State:
        """The state for a follower that is to see what is new within `latency` seconds. It makes no request before
        `due_in`, and shares those that it makes with all followers of this process."""
        return self.log.look(latency)

    def due_in(self, latency: float) -> float:
        """Seconds until the next `look` of such a follower reads one object; 0.0 if it does now."""
        return self.log.due_in(latency)

    @property
    def offline(self) -> bool:
        """True when the container takes no operations any more; open it again."""
        return self.log.offline

    # --- reading -----------------------------------------------------------------------------------------------

    def info(self, segment: str) -> Segment:
        """The properties of a segment, up to date. Raises SegmentNotFound."""
        return self.segments.info(segment)

    def activated(self, segments: Collection[str], state: State | None = None) -> dict[str, Segment | None]:
        """Segments by name as `state` has them, or this process knows them; those not active are looked up."""
        return self.segments.activated(segments, state)

    def attributes(self, segment: str, attributes: Collection[bytes] | None = None) -> dict[bytes, int]:
        """Attributes of a segment, up to date: those of the given ones that it has, or all. Raises SegmentNotFound."""
        self.refresh()
        return self.segments.attributes(segment, attributes)

    def known_attributes(self, segment: str, attributes: Collection[bytes] | None = None) -> dict[bytes, int]:
        """The same, as this process knows them."""
        return self.segments.attributes(segment, attributes)

    def plan(self, segment: str, start: int, end: int) -> list[ObjectRange]:
        """Where the bytes `[start, end)` lie, by the state as known (see reads.plan)."""
        return self.segments.plan(segment, start, end)

    def plan_of(self, segment: Segment, start: int, end: int) -> list[ObjectRange]:
        """Where the bytes `[start, end)` of a segment lie, as it is given."""
        return self.segments.plan_of(segment, start, end)

    def read(self, segment: str, start: int, end: int) -> bytes:
        """The bytes `[start, end)` of a segment; see ContainerSegments.read."""
        return self.segments.read(segment, start, end)

    def entry(self, table: str, key: str) -> Entry | None:
        """An entry of a table, as this process knows it, None if there is none."""
        return self.tables.entries(table, [key])[key]

    def entries(self, table: str, keys: Collection[str], state: State | None = None) -> dict[str, Entry | None]:
        """Entries of a table as `state` has them, or this process knows them, None where there is none."""
        return self.tables.entries(table, keys, state)

    def scan_entries(self, table: str, prefix: str = "") -> Iterator[tuple[str, Entry]]:
        """All entries of a table whose keys begin with `prefix`, in no order; see TableStore.scan."""
        return self.tables.scan(table, prefix)

    def range_entries(
        self, table: str, start: str = "", end: str | None = None, state: State | None = None, *, whole: bool = True
    ) -> Iterator[tuple[str, Entry]]:
        """The entries of a created table whose keys are in `[start, end)`, in order; see TableStore.range."""
        return self.tables.range(table, start, end, state, whole=whole)

    def lost(self, prefix: str = "") -> Sequence[Loss]:
        """Bytes of segments whose names begin with `prefix` that readers skip: none here."""
        return ()

    # --- maintenance--------------------------------------------------------------------------------------------

    def flush(self) -> int:
        """Bring everything to LTS that was acknowledged before this call, even if another process flushes too (W17).

        Returns how many bytes this process moved; see MaintenanceTasks.flush.
        """
        self.log.owner.check()
        moved = self.maintenance.flush()
        self.background.do_deferred()
        return moved

    def checkpoint(self) -> None:
        """Make a checkpoint of the present state, so that opening starts here and the log before it can be truncated.

        Raises StorageFull; StorageError when its object could not be made, not even at the second try.
        """
        self.stores.log.check_room(0, CHECKPOINTS)
        for _ in range(2):  # a single failed request does not fail the checkpoint
            address = self.commit([Checkpoint()]).address
            self.wait_for_upkeep()
            if self.log.log_start() >= address:
                return
        why = self.background.failures.get("checkpoint", "another process has to, and has not yet")
        raise StorageError(f"the checkpoint at {address} could not be written: {why}")

    def truncate_log(self) -> int:
        """Delete frames that are not needed any more; see MaintenanceTasks.truncate_log."""
        self.log.owner.check()
        return self.maintenance.truncate_log()

    def collect_garbage(self) -> int:
        """Delete chunks that have been garbage for the delay; see MaintenanceTasks.collect_garbage."""
        self.log.owner.check()
        collected = self.maintenance.collect_garbage()
        self.background.do_deferred()
        return collected

    def idle_transients(self) -> dict[str, Segment]:
        """The transient segments without an append for `transient_idle`, by the time in the appends."""
        return self.maintenance.idle_transients()

    def expire_transients(self) -> tuple[str, ...]:
        """Delete the transient segments that are idle; their names. One that is appended to meanwhile stays."""
        expired = self.maintenance.expire_transients()
        self.background.do_deferred()
        return expired

    def repair(self, address: int, dry_run: bool = False) -> Repair:
        """Skip the damaged frame that stops the log, and the frames that depend on it. An operator's decision (W8).

        Of a frame that is whole, only the transactions are skipped that cannot be decoded or applied. dry_run: only
        return what would be skipped. Stop all other processes first. Raises ValueError when the frame at `address` is
        not damaged.
        """
        return self.log.repair(address, self.stores.chunks.clock(), dry_run)

    @property
    def failures(self) -> Mapping[str, str]:
        """The last errors of this process's maintenance, by task; empty if there are none."""
        return dict(self.background.failures)

    def due(self, checkpoints: Sequence[ObjectInfo]) -> dict[str, bool]:
        """The maintenance tasks that are due, given a listing of the checkpoints, and whether each is overdue."""
        return self._scheduler.due(checkpoints)

    def wait_for_upkeep(self) -> None:
        """Wait until the maintenance that was started so far is done."""
        self.log.owner.check()
        self.background.wait()

    def close(self) -> None:
        """Finish what was submitted and the maintenance that runs, then close the container.

        A flush cycle that does not end within `maintenance_wait` is left to the process that commits next. In a fork
        this does nothing: the container belongs to the process that opened it (W10).
        """
        if not self.log.owner.here:
            return
        self.log.settle()
        if not self.background.finish(self.settings.maintenance_wait):
            self.writer.stop()
        self.background.close()  # the steps under way are appended to the log
        self.log.close()

    def __enter__(self) -> Container:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
