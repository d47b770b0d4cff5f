"""The durable log of a container: operations go in, and the state with all that was acknowledged comes out (Pravega:
DurableLog).

The public face of this package. Owns the log from its opening (W6) to its end: the requests for frames, group commit,
throttling, checkpoints, and which process it belongs to (W10). Observers decide when a checkpoint is due, and act on
what is in the log. A log without observers works, and makes no checkpoints by itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from chunkstore import ObjectInfo, StorageError, Store, stamps
from chunkstore.boot_clock import boot_time
from chunkstore.metrics import default_metrics
from engine.clocks import StorageClock
from engine.identity import ANY_IDENTITY, Identity
from engine.logs import checkpoints
from engine.logs.frames import START, Position
from engine.logs.inbox import Inbox
from engine.logs.log import Executor, InlineExecutor, Log, Repair
from engine.logs.long_term_storage import LongTermStorage
from engine.logs.mailbox import no_mailbox, open_mailbox
from engine.logs.polling import LogPoller
from engine.logs.processor import Processor
from engine.logs.throttle import Throttle
from engine.logs.transaction import Receipt, Transaction
from engine.ownership import Owner
from engine.settings import Settings
from engine.state.attach_fence import attach_fence
from engine.state.operations import Operation
from engine.state.state import State

_METRICS = default_metrics().layer("container")


class LogObserver(Protocol):
    """Observes a log. Its methods run while the log waits, so they start work in the background and do none."""

    def opened(self, listed: Sequence[ObjectInfo]) -> None:
        """The log was opened again, which listed these checkpoints."""

    def checkpoint_due(self, frames: int) -> bool:
        """Whether the next frame is to carry a Checkpoint, so many frames after the last one."""

    def committed(self, position: Position, state: State, checkpoint: bool) -> None:
        """A frame of this process is live. state: the one after it. checkpoint: it carries a Checkpoint."""

    def relieve(self) -> str:
        """Appends wait for a flush to LTS. Returns the error of the last flush, or ""."""


class _Observers:
    """All observers of a log, called one after the other."""

    def __init__(self) -> None:
        self._observers: list[LogObserver] = []

    def add(self, observer: LogObserver) -> None:
        self._observers.append(observer)

    def opened(self, listed: Sequence[ObjectInfo]) -> None:
        for observer in self._observers:
            observer.opened(listed)

    def checkpoint_due(self, frames: int) -> bool:
        due = False
        for observer in self._observers:
            due = observer.checkpoint_due(frames) or due
        return due

    def committed(self, position: Position, state: State, checkpoint: bool) -> None:
        for observer in self._observers:
            observer.committed(position, state, checkpoint)

    def relieve(self) -> str:
        return "; ".join(filter(None, [observer.relieve() for observer in self._observers]))


class _Opening:
    """Opens a log from its newest checkpoint, as often as needed. listed: the checkpoints that it found last."""

    def __init__(
        self,
        store: Store,
        number: int,
        storage: LongTermStorage,
        store_clock: StorageClock,
        new_log: Callable[[Position, float, float | None], Log],
        clock: Callable[[], float],
        opened: Callable[[Sequence[ObjectInfo]], None],
    ) -> None:
        self.listed: Sequence[ObjectInfo] = ()
        self._store = store
        self._number = number
        self._storage = storage
        self._store_clock = store_clock
        self._new_log = new_log
        self._clock = clock
        self._opened = opened

    def open(self) -> tuple[Log, State]:
        """Log and state from the newest checkpoint (W6). The time before the listing is the first proof of the head."""
        proof = self._clock()
        with stamps.listening() as noted:
            stamp = None if self._store.dated else self._time()
            (head, state), listed = checkpoints.read_newest(self._store, self._number)
        if head == START and (lost := self._storage.lost_log()) is not None:
            (head, state), listed = checkpoints.read_newest(self._store, self._number)
            if head == START:  # and was so before and after the log's first frame was looked for
                raise lost
        if listed:
            self._store_clock.at_least(listed[-1].modified)
        self.listed = listed
        self._opened(listed)
        # The first answer was no later than the listing.
        return self._new_log(head, proof, noted.first if stamp is None else stamp), state

    def _time(self) -> float | None:
        """The storage's time, by a request; None if this process may not write."""
        try:
            return self._store.clock()
        except StorageError:
            return None


class DurableLog:
    """The log of one container, and the state that its operations make. Thread-safe.

    Args:
        store: the root of the log. number: the container's. storage: the long-term storage behind the log.
        store_clock: the time of day of `store`. now: the time that operations are stamped with, seconds since the
            epoch.
        executor: runs the requests for frames; None: threads of the log's own, as the settings say.
        clock: seconds of a monotonic clock that runs in suspend. wall: this host's time of day. sleep: waits for so
            many seconds. identity: of the root that the log belongs to (P4).

    A new one has the state of the newest checkpoint; `refresh` reads on. owner: the process that it belongs to.
    Raises StorageError, DataCorruption, LogLost.
    """

    def __init__(
        self,
        store: Store,
        number: int,
        settings: Settings,
        storage: LongTermStorage,
        *,
        store_clock: StorageClock,
        now: Callable[[], float],
        executor: Executor | None = None,
        clock: Callable[[], float] = boot_time,
        wall: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
        identity: Identity = ANY_IDENTITY,
    ) -> None:
        self.number = number
        self.owner = Owner(f"container {number}", "open the root, or the container, in each process")
        self._store = store
        self._settings = settings
        self._check = storage.check
        self._sleep = sleep
        self._observers = _Observers()
        self._pool: ThreadPoolExecutor | None = None
        inline = executor is None and not (settings.threaded and store.remote)
        if executor is None and settings.threaded:
            executor = self._pool = ThreadPoolExecutor(settings.flights + 1, f"container-{number}")
        requests = executor or InlineExecutor()

        def new_log(head: Position, proof: float, stamp: float | None) -> Log:
            return Log(
                store,
                number,
                head,
                proof,
                grace=settings.grace,
                executor=requests,
                timeout=settings.timeout,
                clock=clock,
                sleep=sleep,
                log_start=head.address if head != START else -1,
                stamp=stamp,
                wall=wall,
                identity=identity,
            )

        self._opening = _Opening(store, number, storage, store_clock, new_log, clock, self._observers.opened)
        log, state = self._opening.open()
        self._throttle = Throttle(
            settings.outstanding_bytes,
            settings.backlog_bytes,
            settings.timeout,
            relieve=self._observers.relieve,
            clock=clock,
            sleep=sleep,
        )
        self.processor = Processor(
            log,
            state,
            self.owner,
            reopen=self._opening.open,
            storage=storage,
            throttle=self._throttle,
            inbox=Inbox(store, number, requests.submit, clock),
            committed=self._observers.committed,
            checkpoint_due=self._observers.checkpoint_due,
            flights=settings.flights,
            frame_transactions=settings.frame_transactions,
            linger=settings.linger,
            threaded=settings.threaded,
            inline=inline,
            open_mailbox=open_mailbox if self._pool is not None else no_mailbox,
            now=now,
            clock=clock,
            sleep=sleep,
        )
        self._replica = self.processor.replica
        self._poller = LogPoller(lambda: self._replica.state, self.refresh, clock)

    # --- operations ----------------------------------------------------------------------------------------------

    def submit(self, operations: Sequence[Operation]) -> Future[Receipt]:
        """Queue operations, without maintenance: see Container.submit."""
        return self.processor.submit(self._transaction(operations))

    def commit(self, operations: Sequence[Operation]) -> Receipt:
        """Commit operations together, without maintenance: see Container.commit."""
        with _METRICS.measure("commit") as measurement:
            transaction = self._transaction(operations)
            size = transaction.size  # of payload that goes to a chunk it will be 0
            receipt = self.processor.commit(transaction)
            measurement.bytes = size
            return receipt

    def _transaction(self, operations: Sequence[Operation]) -> Transaction:
        transaction = Transaction(operations)
        for operation in transaction.operations:
            self._check(operation)
        return transaction

    @property
    def outstanding(self) -> int:
        """Bytes of payload that were submitted and are not durable yet."""
        return self._throttle.outstanding

    # --- the state -----------------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """The state as this process knows it, without a request."""
        return self._replica.state

    @property
    def head(self) -> Position:
        """Position of the last frame in `state`."""
        return self._replica.log.head

    def refresh(self) -> State:
        """The state with everything that was acknowledged anywhere before this call. Idle: one read of one object."""
        state = self.processor.refresh()
        self._poller.note()
        return state

    def look(self, latency: float) -> State:
        """The state for a follower that is to see changes within `latency` seconds, after a poll if one is due. All
        followers of this process share polls (see LogPoller). Raises as `refresh`."""
        self.owner.check()
        return self._poller.poll(latency)

    def due_in(self, latency: float) -> float:
        """Seconds until the next `look` of such a follower makes a request; 0.0 if it does now."""
        return self._poller.due_in(latency)

    def wait_for_change(self, timeout: float) -> None:
        """Wait until this process knows a newer state, at most `timeout` seconds."""
        if self._settings.threaded:
            self._replica.wait_for_change(timeout)
        else:
            self._sleep(timeout)

    # --- maintenance --------------------------------------------------------------------------------------------------

    @property
    def checkpoints(self) -> Sequence[ObjectInfo]:
        """The checkpoints that the last opening listed, oldest first."""
        return self._opening.listed

    def add_observer(self, observer: LogObserver) -> None:
        """Call `observer` from now on."""
        self._observers.add(observer)

    def write_checkpoint(self, position: Position, state: State) -> None:
        """Make the checkpoint object of the frame at `position`, from which an opening starts (W6). Raises
        StorageError."""
        checkpoints.write(self._store, self.number, position, state, self._settings.checkpoint_part)

    def log_start(self) -> int:
        """The address of the newest checkpoint object, from which an opening reads; -1 when there is none. Raises
        StorageError."""
        return self._replica.log.log_start()

    # --- lifecycle ------------------------------------------------------------------------------------------------

    @property
    def offline(self) -> bool:
        """True when the log takes no operations any more; open it again."""
        return self.processor.failure is not None

    @property
    def failure(self) -> BaseException | None:
        """What took the log offline."""
        return self.processor.failure

    def fail(self, cause: BaseException) -> None:
        """Take the log offline, because its state is wrong."""
        self.processor.fail(cause)

    def claim(self) -> None:
        """Hold the log exclusively: go offline with NotPrimary when another process appends."""
        self.processor.claim()

    def repair(self, address: int, now: float, dry_run: bool = False) -> Repair:
        """Skip the damaged frame that stops the log, and the frames that depend on it, or those transactions of a whole
        frame that cannot be decoded or applied (W8). now: by the clock of the chunks' storage. dry_run: only return
        what would be skipped. Raises ValueError when the frame at `address` is not damaged."""
        return self.processor.repair(address, attach_fence(now, now), dry_run)

    def settle(self) -> None:
        """Wait for what was submitted so far, for the settings' timeout at most: then its maintenance has begun."""
        if self._settings.threaded:
            deadline = time.monotonic() + self._settings.timeout
            for transaction in self.processor.pending():
                transaction.wait(max(deadline - time.monotonic(), 0.0))

    def close(self) -> None:
        """Finish what was submitted, and take nothing more. Raises MadeBeforeFork in another process."""
        self.processor.close()
        if self._pool is not None:
            self._pool.shutdown()
