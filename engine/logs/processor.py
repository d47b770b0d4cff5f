"""The operation processor of a container: from a caller's `submit` or `commit` to the outcome.

Coordinates the parts that do the work: the commit queue, the replica (the log as read, and its states), the frame
sender and the frame settler, and, where several processes write, the submitter and the carrier (W18: one process makes
the frames of an epoch, and the others submit to it). Transactions of all threads queue up and leave together in one
frame; several frames may be in flight.

Owns the log lock: one thread at a time works on the log, be it the background thread, a reader, or the calling thread
of a commit. They share one step function. Owns how a container goes offline: what is in flight is settled first, and
every transaction is completed.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from chunkstore import StorageError
from engine.errors import (
    ContainerOffline,
    DataCorruption,
    EngineError,
    FrameDamaged,
    FrameMissing,
    OutcomeUnknown,
    RootReplaced,
)
from engine.interrupts import uninterrupted
from engine.logs.acknowledgements import Acknowledgements
from engine.logs.carrier import Carrier
from engine.logs.commit_context import CommitContext
from engine.logs.commit_queue import CommitQueue
from engine.logs.frame_sender import FrameSender
from engine.logs.frame_settler import FrameSettler
from engine.logs.frames import Frame
from engine.logs.inbox import Inbox
from engine.logs.log import MAKER_TRIPS, Log, Repair
from engine.logs.long_term_storage import LongTermStorage
from engine.logs.mailbox import Mailbox, OwnMailbox
from engine.logs.replay import apply_frame, not_applicable, repaired_in
from engine.logs.replica import AppliedFrame, OpenedLog, Replica
from engine.logs.submitter import Submitter
from engine.logs.throttle import Throttle
from engine.logs.transaction import Receipt, Transaction
from engine.ownership import Owner
from engine.settings import Settings
from engine.state.state import State

logger = logging.getLogger(__name__)

_CLAIMS = 3

INLINE_BYTES = 1 << 20
"""A transaction with no more payload than this is committed on the calling thread where no other work is queued."""


class Processor:
    """Applies operations to a container's log and state. Thread-safe.

    Args:
        opened: the log, and the state after its head.
        owner: the process that all of this belongs to (W10).
        reopen: opens both again from the newest checkpoint, when W7 says so.
        storage: the long-term storage behind the log.
        throttle: holds callers back that bring more payload than can be worked off.
        inbox: what other processes submit to this one.
        inline: a commit runs on its calling thread while nothing is queued and nothing is in flight: where a request
            takes no longer than waking another thread does.
        open_mailbox: gives a writer a mailbox, where processes of this host hand each other submissions by it.
        clock, sleep: seconds, and how to wait for them.

    replica: the log and its states. failure: what took the container offline. readers: threads that read the log to its
    end, or wait until they can.
    """

    def __init__(
        self,
        opened: OpenedLog,
        owner: Owner,
        settings: Settings,
        *,
        reopen: Callable[[], OpenedLog],
        storage: LongTermStorage,
        throttle: Throttle,
        inbox: Inbox,
        inline: bool,
        open_mailbox: Callable[[bytes], Mailbox | None],
        now: Callable[[], float],
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self.failure: BaseException | None = None
        self.readers: deque[object] = deque()
        self._owner = owner
        self._throttle = throttle
        self._linger = settings.linger
        self._threaded = settings.threaded
        self._inline = inline
        self._clock = clock
        self._log_lock = threading.RLock()  # guards the log, the states, and all parts but the queue
        self._queue = CommitQueue()
        self._wake = threading.Condition(self._queue.lock)  # for the thread; callers hold the lock itself
        self._thread: threading.Thread | None = None
        self._own_mailbox = OwnMailbox(open_mailbox)
        self._acknowledgements = Acknowledgements(throttle, storage.forget)
        self.replica = Replica(
            opened,
            self._queue,
            reopen=reopen,
            on_frames=self._frames_applied,
            on_reopen=self._reopening,
            fail=self.fail,
            check_online=self._check_online,
        )
        context = CommitContext(
            self.replica,
            self._queue,
            self._acknowledgements,
            self._own_mailbox,
            settings,
            self.fail,
            self._notify if settings.threaded else None,
            clock,
            sleep,
        )
        self._submitter = Submitter(context)
        self._carrier = Carrier(context, inbox)
        self._settler = FrameSettler(context, self._submitter, self._carrier)
        self._sender = FrameSender(context, self._submitter, self._carrier, self._settler, storage, now, inline)

    def _frames_applied(self, frames: Sequence[AppliedFrame]) -> None:
        for applied in frames:
            self._submitter.frame_applied(applied)
        self._carrier.answer_in_vain()

    def _reopening(self, why: Exception) -> None:
        self._submitter.forget(why)

    # --- for callers ---------------------------------------------------------------------------------------------

    @property
    def log(self) -> Log:
        """The log."""
        return self.replica.log

    def submit(self, transaction: Transaction) -> Future[Receipt]:
        """Queue a transaction, as soon as there is room for its payload. Its future gets a Receipt, or an error: see
        `Acknowledgements.complete`. Raises Throttled, ContainerOffline, MadeBeforeFork."""
        future = transaction.create_future()
        try:
            self._admit(transaction)
            self._enqueue(transaction)
        except BaseException:
            self._acknowledgements.withdraw(transaction)
            raise
        return future

    def commit(self, transaction: Transaction) -> Receipt:
        """Commit a transaction and wait for its outcome. Raises as the future of `submit` does."""
        try:
            self._admit(transaction)
            alone = self._inline and transaction.size <= INLINE_BYTES and not self.replica.log.in_company(MAKER_TRIPS)
            if not (alone and uninterrupted(partial(self._commit_inline, transaction))):
                self._enqueue(transaction)
            return transaction.result()
        except BaseException:
            transaction.abandon()
            self._acknowledgements.withdraw(transaction)
            raise

    def _admit(self, transaction: Transaction) -> None:
        self._owner.check()  # before any lock is taken; callers of this need not check again
        if transaction.size:
            self._throttle.admit(transaction, self._backlog)

    def _backlog(self) -> int:
        return self.replica.state.backlog

    def _enqueue(self, transaction: Transaction) -> None:
        with self._queue.lock:
            self._check_open()
            self._start_thread()  # it may fail, so nothing is queued yet
            if not self._queue.transactions or self._queue.fills_a_frame(transaction.size):
                self._wake_thread()  # otherwise it changes nothing: they leave when the first one does
            self._acknowledgements.register(transaction)
            self._queue.put(transaction)  # last: behind it nothing may fail, and the thread waits for the lock
        if not self._threaded:
            try:
                self._drain()
            except BaseException as error:
                self.fail(error)
                if not isinstance(error, Exception):
                    raise

    def refresh(self) -> State:
        """The state with everything that was acknowledged anywhere before this call."""
        self._owner.check()
        reader = object()
        try:
            self.readers.append(reader)
            return uninterrupted(self._refresh)
        finally:
            with contextlib.suppress(ValueError):
                self.readers.remove(reader)

    def _refresh(self) -> State:
        with self._log_lock:
            self._check_online()
            try:
                self._settler.catch_up()
            except RootReplaced as error:
                self.fail(error)
                raise
            except (EngineError, StorageError):
                raise
            except BaseException as error:
                self.fail(error)
                raise
            finally:
                self._acknowledgements.complete_settled()
                self._notify(None)
            return self.replica.state

    def pending(self) -> list[Transaction]:
        """The transactions that were submitted so far, and are not completed."""
        return self._acknowledgements.pending()

    @property
    def idle(self) -> bool:
        """Whether nothing is queued, and no frame is in flight."""
        return not self._queue.transactions and not self.replica.log.flights and not self._submitter.outbox.waiting

    def claim(self) -> None:
        """Hold the log exclusively: from our next frame on, go offline with NotPrimary when another process appends."""
        for left in reversed(range(_CLAIMS)):
            try:
                self.submit(Transaction([], direct=True)).result()
                break
            except OutcomeUnknown:  # the process was stopped for too long; the transaction was empty
                if not left:
                    raise
        with self._log_lock:
            self.replica.exclusive = True
            self._submitter.enabled = self._carrier.enabled = False

    def repair(self, address: int, min_attach_time: int, dry_run: bool) -> Repair:
        """Skip the damaged frame at `address`, or those of its transactions that cannot be decoded or applied (W8), or
        go on in the place of a missing one (W21). Expire chunks that were begun before `min_attach_time` (ms), as what
        expired them may hang on that frame. Returns what is skipped."""
        self._owner.check()
        with self._log_lock:
            log = self.replica.log
            while log.flights:
                self._settler.settle()
            try:
                live = log.follow()
            except FrameMissing:
                log.check_missing(address)
                if not dry_run:
                    log.fill(address, min_attach_time)
                return Repair(address, min_attach_time)
            except FrameDamaged:
                log.check_damaged(address)
                if not dry_run:
                    log.repair(address, min_attach_time)
                return Repair(address, min_attach_time)
            repair = Repair(address, min_attach_time, self._not_applicable(live, address))
            if not dry_run:
                log.pass_over(repair)
            self.replica.reopen()
            return repair

    def _not_applicable(self, live: Sequence[Frame], address: int) -> tuple[int, ...]:
        """The transactions of the live frame at `address` that cannot be decoded or applied. Raises ValueError if there
        are none."""
        state, container = self.replica.state, self.replica.log.container
        repaired = repaired_in(live, container)
        for frame in live:
            if frame.position.address == address and address not in repaired:
                found = not_applicable(state, frame, container)
                if found is not None:
                    return found
            state = apply_frame(state, frame, container, repaired.get(frame.position.address))
            if frame.position.address >= address:
                break
        raise ValueError(f"frame {address} of container {container} is not a damaged frame that stops the log")

    def close(self) -> None:
        """Finish what was submitted, then take nothing more."""
        self._owner.check()
        if self.failure is None and not self._queue.closing and self._carrier.listening():
            self._carrier.leaving = True
            with contextlib.suppress(EngineError, StorageError):
                self.submit(Transaction([], direct=True)).result()
        with self._queue.lock:
            self._queue.closing = True
            self._wake_thread()
        if self._thread is not None:
            self._thread.join()
        if self.failure is None:
            self._drain()  # what a calling thread commits meanwhile
        self._carrier.inbox.clear()
        with self._log_lock:
            self._carrier.close()

    # --- on the calling thread -----------------------------------------------------------------------------------

    def _commit_inline(self, transaction: Transaction) -> bool:
        """Try to commit on the calling thread. Returns False, without side effects, if other work is queued or in
        flight.

        No other thread is woken: what is submitted meanwhile leaves with it, or when it is done.
        """
        taken: bool | None = None
        try:
            # A thread that waits for the lock is not awake in time to take it between two of these.
            taken = not self.readers and self._log_lock.acquire(blocking=False)
            if not taken or not self.idle:
                return False
            with self._queue.lock:
                self._check_open()
                self._acknowledgements.register(transaction)
                self._queue.put(transaction)
            try:
                self._steps_inline(transaction)
            except BaseException as error:  # the caller gets the outcome of its transaction, and no other error
                self.fail(error)
                if not isinstance(error, Exception):
                    raise
            return True
        finally:
            if taken:
                self._log_lock.release()
            elif taken is None:  # interrupted: this thread may hold the lock all the same
                with contextlib.suppress(RuntimeError):
                    self._log_lock.release()

    def _steps_inline(self, transaction: Transaction) -> None:
        try:
            self._sender.inline_commit = True
            while transaction.outcome is None and not (self._submitter.outbox.waiting and self._hand_over()):
                self._steps(wait=True)
        finally:
            self._sender.inline_commit = False
        if not self.idle or self._carrier.listening():
            self._hand_over()

    def _hand_over(self) -> bool:
        """Whether the thread goes on with the work. If none can be started, the next calling thread does."""
        try:
            with self._queue.lock:
                self._start_thread()
                self._wake_thread()
        except Exception as error:
            logger.warning("container %d has no thread: %s", self.replica.log.container, repr(error))
            return False
        return self._threaded

    # --- the loop ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._wait():
                with self._log_lock:
                    self._steps()
        except BaseException as error:  # the thread must not die and leave callers waiting
            self.fail(error)

    def _drain(self) -> None:
        """Do all the work that there is, on the calling thread."""
        with self._log_lock:
            while not self.idle:
                self._steps(wait=True)

    def _steps(self, wait: bool = False) -> None:
        """Do what can be done without waiting: one step on the calling thread of a commit, as no other transaction's
        frame is made while it waits; otherwise all. With `wait`, wait for an outcome if there is nothing to do.

        A storage that fails costs the transactions at hand, not the container.
        """
        try:
            done = self._step()
            while done and not self._sender.inline_commit:
                done = self._step()
            if wait and not done:
                self._wait_for_outcome()
        except StorageError as error:
            self._fail_queued(error)
        finally:
            self._acknowledgements.complete_settled()

    def _step(self) -> bool:
        """Do the next thing that can be done without waiting, such as to settle or send one frame. If there is none,
        complete what was settled. Returns False if there was nothing to do.

        In this order, because callers that are notified take CPU time: the next frame is better under way then.
        """
        step = self._next_step() if self.failure is None else None
        if step is None:
            return self._acknowledgements.complete_settled()
        step()
        return True

    def _next_step(self) -> Callable[[], None] | None:
        """What can be done without waiting, the most urgent first."""
        flights, inbox = self.replica.log.flights, self._carrier.inbox
        with contextlib.suppress(IndexError):  # `refresh` may settle it just now, if this thread only asks
            if flights and flights[0].future.done():
                return self._settler.settle
        if self._own_mailbox.messages:
            return self._carrier.read_messages
        if inbox.listing is not None and inbox.listing.done():
            return self._carrier.take_in
        if self._may_send():
            return self._sender.send
        if self._carrier.look_due:
            return self._carrier.look
        return self._submitter.look if self._submitter.look_due else None

    def _wait_for_outcome(self) -> None:
        """Wait for the first frame in flight, or for the outcome of what is submitted."""
        if self.replica.log.flights:
            self._settler.settle()
        elif self._submitter.outbox.waiting:
            self._submitter.wait_and_look()

    def _may_send(self) -> bool:
        queue, flights = self._queue, self.replica.log.flights
        if not queue.transactions:
            return False
        if self._sender.inline_commit:
            return not flights and not self._submitter.outbox.waiting
        if len(flights) >= self._sender.allowed_flights:
            return False
        first = queue.transactions[0]
        if self._submitter.outbox.waiting:
            return first.direct
        if self._gathers():
            return False
        if queue.closing or queue.fills_a_frame() or first.carrying is not None or first.direct:
            return True
        if self._carrier.inbox.in_rounds(self.replica.log.round_trip):
            return False
        return not flights or time.monotonic() - first.queued_at >= self._linger

    def _gathers(self) -> bool:
        """Whether the next frame waits for those that the last one answered."""
        until = self._carrier.inbox.gathers_until(self.replica.log.round_trip)
        return until > 0 and not self._queue.closing and self._clock() < until

    def _fail_queued(self, error: StorageError) -> None:
        """The log cannot be read on, which is tried when nothing is in flight: what was not sent is not done."""
        self._acknowledgements.complete_settled()
        self._submitter.forget(error)
        self._acknowledgements.fail(self._queue.clear(), error)

    # --- the thread ----------------------------------------------------------------------------------------------

    def _start_thread(self) -> None:
        if self._threaded and self._thread is None:
            thread = threading.Thread(target=self._run, name="operation-processor", daemon=True)
            thread.start()
            self._thread = thread

    def _wait(self) -> bool:
        """Wait until something can be done. False when all is done and the processor is closing."""
        while True:
            with self._queue.lock:
                if self.failure is not None:
                    return False  # `fail` has completed all transactions
                if self._next_step() is not None:
                    return True
                if self._queue.closing and self.idle:
                    return False
                seconds = self._seconds_until_next_step()
                mailbox = self._own_mailbox.begin_to_wait()
                if mailbox is None:
                    self._wake.wait(seconds)
                    continue
            self._own_mailbox.wait(mailbox, seconds)

    def _seconds_until_next_step(self) -> float | None:
        """Seconds until something can be done without a notification; None when there is no such thing."""
        due = []
        inbox, log = self._carrier.inbox, self.replica.log
        if self._submitter.outbox.waiting:
            due.append(self._submitter.outbox.next_look - self._clock())
        elif self._lingers():
            due.append(self._queue.transactions[0].queued_at + self._linger - time.monotonic())
        if self._carrier.listening():
            due.append(log.round_trip if inbox.listing is not None else inbox.next_look - self._clock())
            if self._queue.transactions and self._gathers():
                due.append(inbox.gathers_until(log.round_trip) - self._clock())
        return max(min(due), 0.0) if due else None

    def _lingers(self) -> bool:
        """Whether what is queued leaves when it has lingered. What waits for a round leaves when that lands."""
        if not self._queue.transactions or len(self.replica.log.flights) >= self._sender.allowed_flights:
            return False
        return not self._carrier.inbox.in_rounds(self.replica.log.round_trip)

    def _notify(self, _: Any) -> None:
        with self._queue.lock:
            self._wake_thread()

    def _wake_thread(self) -> None:
        """Let the thread see what there is to do. The lock is held."""
        self._wake.notify_all()
        self._own_mailbox.wake()

    # --- failing -------------------------------------------------------------------------------------------------

    def fail(self, error: BaseException) -> None:
        """Take the container offline and complete all transactions: what is in flight is settled first, as far as that
        can be done."""
        with self._log_lock:
            with self._queue.lock:
                if self.failure is None:
                    self.failure = error
                    if not isinstance(error, Exception):  # a user's Ctrl-C, and no fault of ours
                        logger.warning("container %d: %s", self.replica.log.container, self._offline(error))
                    elif not isinstance(error, EngineError | StorageError):
                        logger.error("the operation processor stopped: %s", repr(error))
                self._queue.clear()
            void = self._settler.settle_before_failing()
            self._acknowledgements.complete_settled()
            reason = self.failure
            if not isinstance(reason, ContainerOffline | DataCorruption | RootReplaced):
                reason = self._offline(reason)
            unknown = OutcomeUnknown(str(reason))
            for transaction in self._acknowledgements.pending():
                may_be = (transaction.sent and transaction not in void) or transaction in self._submitter.outbox
                self._acknowledgements.complete(transaction, unknown if may_be else reason)
            self._own_mailbox.close()
            self._notify(None)  # the thread ends

    @staticmethod
    def _offline(error: BaseException) -> ContainerOffline:
        interrupted = f"{type(error).__name__} ended its work on the log half-way; open it again"
        why = str(error) if isinstance(error, Exception) else interrupted
        offline = ContainerOffline(f"the container went offline: {why}")
        offline.__cause__ = error
        return offline

    def _check_open(self) -> None:
        if isinstance(self.failure, RootReplaced):
            raise RootReplaced(self.failure.root)
        if self._queue.closing or self.failure is not None:
            raise ContainerOffline("the container is closed; open it again") from self.failure

    def _check_online(self) -> None:
        if isinstance(self.failure, ContainerOffline):
            raise self.failure
        if self.failure is not None:
            raise self._offline(self.failure)
