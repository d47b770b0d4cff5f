"""The durable log of a container: operations go in, and the state with all that was acknowledged comes out (Pravega:
DurableLog).

The public face of this package. Owns the log from its opening (W6) to its end: the requests for frames, group commit,
throttling, checkpoints, and which process it belongs to (W10). An observer decides when a checkpoint is due, and acts
on what is in the log.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from chunkstore import ObjectInfo, StorageError, StorageFull, Store, stamps
from chunkstore.boot_clock import boot_time
from chunkstore.metrics import default_metrics
from chunkstore.room import CHECKPOINTS, SMALL_ADDITIONS, USERS_DATA
from engine.clocks import StorageClock
from engine.identity import ANY_IDENTITY, Identity
from engine.logs import checkpoints
from engine.logs.frames import START, Position
from engine.logs.inbox import Inbox
from engine.logs.log import Executor, InlineExecutor, Log, Repair
from engine.logs.long_term_storage import LongTermStorage
from engine.logs.mailbox import no_mailbox, open_mailbox
from engine.logs.observer import LogObserver
from engine.logs.polling import LogPoller
from engine.logs.processor import Processor
from engine.logs.replica import OpenedLog
from engine.logs.throttle import Throttle
from engine.logs.transaction import Receipt, Transaction, adds_data
from engine.ownership import Owner
from engine.settings import Settings
from engine.state.attach_fence import attach_fence
from engine.state.operations import Operation
from engine.state.state import State

_METRICS = default_metrics().layer("container")


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
        self._storage = storage
        self._store_clock = store_clock
        self._clock = clock
        self._listed: Sequence[ObjectInfo] = ()
        self._pool: ThreadPoolExecutor | None = None
        inline = executor is None and not (settings.threaded and store.remote)
        if executor is None and settings.threaded:
            executor = self._pool = ThreadPoolExecutor(settings.flights + 1, f"container-{number}")
        requests = executor or InlineExecutor()
        self._new_log = partial(
            Log,
            store,
            number,
            grace=settings.grace,
            executor=requests,
            timeout=settings.timeout,
            clock=clock,
            sleep=sleep,
            wall=wall,
            identity=identity,
        )
        opened = self._open()
        self._throttle = Throttle(
            settings.outstanding_bytes,
            settings.backlog_bytes,
            settings.timeout,
            relieve=lambda: self._replica.observer.relieve(),
            clock=clock,
            sleep=sleep,
        )
        self.processor = Processor(
            opened,
            self.owner,
            settings,
            reopen=self._open,
            storage=storage,
            throttle=self._throttle,
            inbox=Inbox(store, number, requests.submit, clock),
            inline=inline,
            open_mailbox=open_mailbox if self._pool is not None else no_mailbox,
            now=now,
            clock=clock,
            sleep=sleep,
        )
        self._replica = self.processor.replica
        self._poller = LogPoller(lambda: self._replica.state, self.refresh, clock)

    def _open(self) -> OpenedLog:
        """Open the log from its newest checkpoint (W6). The time before the listing is the first proof of the head."""
        proof = self._clock()
        with stamps.listening() as noted:
            stamp = None if self._store.dated else self._store_time()
            (head, state), listed = checkpoints.read_newest(self._store, self.number)
        if head == START and (lost := self._storage.lost_log()) is not None:
            (head, state), listed = checkpoints.read_newest(self._store, self.number)
            if head == START:  # and was so before and after the log's first frame was looked for
                raise lost
        if listed:
            self._store_clock.at_least(listed[-1].modified)
        self._listed = listed
        # The first answer was no later than the listing.
        stamp = noted.first if stamp is None else stamp
        return OpenedLog(self._new_log(head, proof, log_start=head.address, stamp=stamp), state, listed)

    def _store_time(self) -> float | None:
        """The storage's time, by a request; None if this process may not write."""
        try:
            return self._store.clock()
        except StorageError:
            return None

    # --- operations ----------------------------------------------------------------------------------------------

    def submit(self, operations: Sequence[Operation]) -> Future[Receipt]:
        """Queue operations, without maintenance: see Container.submit."""
        return self.processor.submit(self._transaction(operations))

    def commit(self, operations: Sequence[Operation], *, frees: bool = False) -> Receipt:
        """Commit operations together, without maintenance: see Container.commit."""
        with _METRICS.measure("commit") as measurement:
            transaction = self._transaction(operations, frees)
            size = transaction.size  # of payload that goes to a chunk it will be 0
            receipt = self.processor.commit(transaction)
            measurement.bytes = size
            return receipt

    def _transaction(self, operations: Sequence[Operation], frees: bool = False) -> Transaction:
        transaction = Transaction(operations)
        for operation in transaction.operations:
            self._storage.check(operation)
        try:
            self._check_room(transaction.size, SMALL_ADDITIONS)
        except StorageFull:
            if not frees and adds_data(transaction.operations):
                self._make_room()
                raise
        return transaction

    def check_room(self) -> None:
        """Raise StorageFull unless there is room for more of users' data (P6)."""
        try:
            self._check_room(0, USERS_DATA)
        except StorageFull:
            self._make_room()
            raise

    def _check_room(self, size: int, part: float) -> None:
        """What is in the log, or on its way there, is copied once more before the log gets shorter, so there has to be
        room for that too."""
        self._storage.check_room(size + self.state.backlog + self._throttle.outstanding, part)

    def _make_room(self) -> None:
        self.owner.check()  # another process starts no maintenance here
        self._replica.observer.make_room()

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

    # --- maintenance --------------------------------------------------------------------------------------------------

    @property
    def checkpoints(self) -> Sequence[ObjectInfo]:
        """The checkpoints that the last opening listed, oldest first."""
        return self._listed

    def observe(self, observer: LogObserver) -> None:
        """Call `observer` from now on."""
        self._replica.observer = observer

    def write_checkpoint(self, position: Position, state: State) -> int:
        """Make the checkpoint object of the frame at `position`, from which an opening starts (W6); its size. Raises
        StorageError."""
        self._store.check_room(0, CHECKPOINTS)
        return checkpoints.write(self._store, self.number, position, state, self._settings.checkpoint_part)

    def log_start(self) -> int:
        """The address of the newest checkpoint object, from which an opening reads; -1 when there is none. Raises
        StorageError."""
        return self._replica.log.log_start()

    # --- lifecycle ------------------------------------------------------------------------------------------------

    @property
    def offline(self) -> bool:
        """True when the log takes no operations any more; open it again."""
        return self.processor.failure is not None

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
