"""A segment container: the segments whose operations share one write-ahead log.

Owns opening (W6), the operations' public form, reading, and the upkeep that an append may set off: checkpoint objects,
flushing, truncation of the log, collection of garbage. Any number of processes may hold the same container *shared*:
whoever was overtaken catches up and goes on. Held *exclusively*, it goes offline when another process appends.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

from chunkstore import ObjectNotFound, StorageError
from chunkstore.metrics import default_metrics
from engine import checkpoints
from engine.chunks import check_name, chunk_name, write_chunk
from engine.errors import DataCorruption, EngineError, FrameDamaged
from engine.flush import flush
from engine.frames import Position
from engine.log import Executor, InlineExecutor, Log, boot_time
from engine.operations import (
    Append,
    AttributeUpdate,
    Checkpoint,
    CreateSegment,
    DeleteSegment,
    MergeSegment,
    Operation,
    Payload,
    SealSegment,
    TruncateSegment,
    UpdateAttributes,
)
from engine.processor import Pending, Processor, Receipt
from engine.reads import Piece, Stores, fetch, plan
from engine.segments import Extent, Segment
from engine.state import State
from engine.truncation import collect_garbage, truncate_log

logger = logging.getLogger(__name__)

_METRICS = default_metrics().layer("container")


@dataclass(frozen=True)
class Settings:
    """How a container works.

    grace: seconds for which frames outlive the boundary that covers them; one value for all processes of a root (W7).
    garbage_delay: seconds for which chunks outlive the operation that let them go (G1); likewise.
    checkpoint_frames: a checkpoint is due after this many frames, unless checkpoints would take too much of the time.
    flush_bytes, flush_frames: the append that brings the log to so many unflushed bytes, or to so many frames since the
    oldest unflushed one, flushes.
    flights, linger: see Processor. patience: see Log. upkeep: whether appends set off upkeep at all.
    threaded: requests in flight and upkeep are carried out by threads; otherwise all is done in the caller's thread.
    """

    grace: float = 600.0
    garbage_delay: float = 600.0
    checkpoint_frames: int = 8
    flush_bytes: int = 32 << 20
    flush_frames: int = 1000
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
        self._clock = clock
        self._now = now
        self._sleep = sleep
        self._pool: ThreadPoolExecutor | None = None
        self._executor = executor or self._make_executor()
        self._upkeep_lock = threading.Lock()
        self._upkeep: set[Future[Any]] = set()
        self._deferred: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque()
        self._working = False
        self._truncated = clock()
        self._next_checkpoint = -math.inf
        log, state = self._open()
        self._processor = Processor(
            log,
            state,
            reopen=self._open,
            spill=self._spill,
            forget=self._forget,
            committed=self._committed,
            checkpoint_due=self._checkpoint_due,
            flights=self.settings.flights,
            linger=self.settings.linger,
            threaded=self.settings.threaded,
            now=now,
        )
        if repair is not None:
            self._give_up(repair)
        self._processor.refresh()
        if exclusive:
            self._processor.claim()

    def _give_up(self, address: int) -> None:
        with contextlib.suppress(FrameDamaged):
            self._processor.refresh()
        self._processor.repair(address)

    def _make_executor(self) -> Executor:
        if not self.settings.threaded:
            return InlineExecutor()
        self._pool = ThreadPoolExecutor(self.settings.flights + 2, f"container-{self.number}")
        return self._pool

    def _open(self) -> tuple[Log, State]:
        """Log and state from the newest checkpoint (W6). The time before the listing is the first proof of the head."""
        proof = self._clock()
        head, state = checkpoints.read_newest(self.stores.log, self.number)
        log = Log(
            self.stores.log,
            self.number,
            head,
            proof,
            grace=self.settings.grace,
            executor=self._executor,
            patience=self.settings.patience,
            clock=self._clock,
            sleep=self._sleep,
        )
        return log, state

    # --- operations --------------------------------------------------------------------------------------------

    def submit(self, operations: Sequence[Operation]) -> Future[Receipt]:
        """Queue operations that take effect together or not at all. The future fails as `commit` does.

        Raises ValueError for the name of a new segment that chunks cannot be named after, ContainerOffline.
        """
        for operation in operations:
            if isinstance(operation, CreateSegment):
                check_name(operation.segment)
        future = self._processor.submit(operations)
        if not self.settings.threaded:
            self._do_deferred()
        return future

    def commit(self, operations: Sequence[Operation]) -> Receipt:
        """Carry out operations together: durable on return, all or none.

        Raises a Rejected error (nothing was done), OutcomeUnknown, ContainerOffline, DataCorruption or StorageError.
        """
        with _METRICS.measure("commit") as measurement:
            receipt = self.submit(operations).result()
            payloads = (op.content for op in operations if isinstance(op, Append))
            measurement.bytes = sum(len(content) for content in payloads if isinstance(content, Payload))
            return receipt

    def create_segment(self, segment: str, updates: Sequence[AttributeUpdate] = ()) -> None:
        """Make an empty segment. Raises SegmentExists."""
        self.commit([CreateSegment(segment, tuple(updates))])

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

    def seal(self, segment: str) -> None:
        """Let the segment take no more data. Raises SegmentNotFound."""
        self.commit([SealSegment(segment)])

    def merge(self, target: str, source: str) -> int:
        """Append all of a sealed segment to another, moving no data, and delete it. Returns its offset there."""
        offset: int = self.commit([MergeSegment(target, source)]).results[0]
        return offset

    def truncate(self, segment: str, offset: int) -> None:
        """Forget what lies before `offset`. Raises SegmentNotFound, BadOffset."""
        self.commit([TruncateSegment(segment, offset)])

    def delete(self, segment: str) -> None:
        """Delete a segment. Raises SegmentNotFound."""
        self.commit([DeleteSegment(segment)])

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
    def head(self) -> Position:
        """Position of the last frame in `state`."""
        return self._processor.log.head

    def refresh(self) -> State:
        """The state with everything that was acknowledged anywhere before this call. Idle: one read of one object."""
        return self._processor.refresh()

    def info(self, segment: str) -> Segment:
        """The properties of a segment, up to date. Raises SegmentNotFound."""
        return self.refresh().segment(segment)

    def plan(self, segment: str, start: int, end: int) -> list[Piece]:
        """Where the bytes `[start, end)` lie, by the state as known (see reads.plan)."""
        return plan(self.state.segment(segment), self.number, start, end)

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
                    parts = fetch(self.stores, pieces)
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

    # --- upkeep ------------------------------------------------------------------------------------------------

    def flush(self) -> int:
        """Write everything that lies only in the log to chunks. Returns the number of bytes that were moved."""
        with _METRICS.measure("flush") as measurement:
            measurement.bytes = flush(self)
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
        self._truncated = self._clock()
        return truncate_log(self.stores.log, self.number, self.refresh, self.settings.grace)

    def collect_garbage(self) -> int:
        """Delete chunks that have been garbage for the delay (G1). Returns their number."""
        return collect_garbage(self, int((self._now() - self.settings.garbage_delay) * 1000))

    def repair(self, address: int) -> None:
        """Give up the damaged frame that stops the log, and whatever hangs on it. An operator's decision (W8).

        Stop all other processes first. Raises ValueError when the frame at `address` is not damaged.
        """
        self._processor.repair(address)
        self.refresh()

    def wait_for_upkeep(self) -> None:
        """Wait until the upkeep that was set off so far is done."""
        while under_way := [future for future in self._upkeep if not future.done()]:
            wait(under_way)

    def close(self) -> None:
        """Finish what was submitted and the upkeep under way, then give the container up."""
        self._processor.close()
        self.wait_for_upkeep()
        if self._pool is not None:
            self._pool.shutdown()

    def __enter__(self) -> Container:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _committed(self, position: Position, state: State, checkpoint: bool) -> None:
        """After each own frame: set off what is due."""
        if checkpoint:
            self._next_checkpoint = math.inf
            self._start(self._write_checkpoint, position, state)
        if self.settings.upkeep and self._flush_due(position, state):
            self._start(self._flush_once)
        if self.settings.upkeep and self._clock() - self._truncated > self.settings.grace / 2:
            self._truncated = self._clock()
            self._start(self._clean)

    def _start(self, work: Callable[..., Any], *args: Any) -> None:
        """Do upkeep without keeping anybody waiting. It may fail: the next append sets it off again."""
        if not self.settings.threaded:
            self._deferred.append((work, args))
            return
        future = self._executor.submit(self._guarded, work, *args)
        self._upkeep = {other for other in self._upkeep if not other.done()} | {future}

    def _do_deferred(self) -> None:
        """Without threads, upkeep is done after the operation that set it off."""
        if self._working:
            return
        self._working = True
        try:
            while self._deferred:
                work, args = self._deferred.popleft()
                self._guarded(work, *args)
        finally:
            self._working = False

    def _guarded(self, work: Callable[..., Any], *args: Any) -> None:
        try:
            work(*args)
        except (EngineError, StorageError) as error:
            logger.warning("container %d: upkeep failed and will be tried again: %s", self.number, error)

    def _checkpoint_due(self, frames: int) -> bool:
        """Every few frames, so that opening costs the same however many came before and however large the state is."""
        settings = self.settings
        return settings.upkeep and frames >= settings.checkpoint_frames and self._clock() >= self._next_checkpoint

    def _write_checkpoint(self, position: Position, state: State) -> None:
        begun = self._clock()
        try:
            checkpoints.write(self.stores.log, self.number, position, state)
        finally:
            # Who commits without a pause spends no more than a tenth of the time on checkpoints.
            self._next_checkpoint = self._clock() + 9 * (self._clock() - begun)

    def _flush_due(self, position: Position, state: State) -> bool:
        if not state.logged_bytes:
            return False
        frames = position.address - state.flushed
        return state.logged_bytes >= self.settings.flush_bytes or frames >= self.settings.flush_frames

    def _flush_once(self) -> None:
        if self._upkeep_lock.acquire(blocking=False):
            try:
                self.flush()
            finally:
                self._upkeep_lock.release()

    def _clean(self) -> None:
        self.truncate_log()
        self.collect_garbage()

    def _spill(self, pending: Pending, epoch: int) -> tuple[str, list[Extent]]:
        """Write the payload of a transaction to one chunk."""
        appends = [op for op in pending.operations if isinstance(op, Append) and isinstance(op.content, Payload)]
        name = chunk_name(appends[0].segment, epoch, 0)
        return name, write_chunk(self.stores.chunks, name, [[op.content.data] for op in appends])  # type: ignore[union-attr]

    def _forget(self, chunk: str) -> None:
        with contextlib.suppress(StorageError):  # nothing names it, so it does no harm
            self.stores.chunks.delete([chunk])
