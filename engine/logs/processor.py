"""The operation processor of a container: queue, group commit, frames in flight.

Owns the way of an operation from `submit` to its future. All threads' transactions queue up and leave together in one
frame; several frames may be in flight. Keeps W2 (validate again after a lost race), W4 (spanning operations), and of
W11: a refusal is final only when it was judged by a state that is the log's and no older than the call; what was looked
up is judged like everything else, and forgotten when its transaction is queued again. `judging` holds transactions
against the state (W5), `acknowledgements` tells their callers (W3, W11).

Where several processes write, one of them makes the frames of an epoch, and the others submit to it (W18): the queue
has what came by the `inbox` beside own transactions, and all take the same way from there; what is for another maker
leaves by the `outbox`, instead of in a frame.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from chunkstore import ObjectNotFound, StorageError
from engine.errors import (
    ContainerOffline,
    DataCorruption,
    EngineError,
    FrameDamaged,
    LogMoved,
    NotPrimary,
    ObjectLost,
    OutcomeUnknown,
    Overtaken,
    RootReplaced,
    Unresolved,
)
from engine.interrupts import uninterrupted
from engine.logs.acknowledgements import Acknowledgements, Body, guarded
from engine.logs.frames import HEADER, Frame, Position
from engine.logs.inbox import Inbox
from engine.logs.judging import Judgement, Refusal, judge, spans
from engine.logs.log import MAKER_TRIPS, OWNER_TRIPS, Flight, Log, Repair
from engine.logs.long_term_storage import LongTermStorage
from engine.logs.mailbox import Delivery, Kind, Mailbox, Message, no_mailbox
from engine.logs.outbox import Outbox
from engine.logs.payload import MAX_PAYLOAD, Layout
from engine.logs.pending import Pending, Queue, Receipt, payload_size, wake
from engine.logs.replay import applied, apply_frame, not_applicable, repaired_in
from engine.logs.submission import encode
from engine.logs.throttle import Throttle
from engine.ownership import Owner
from engine.state.changes.apply import apply
from engine.state.operations import (
    Answer,
    AnswerSubmissions,
    Append,
    Checkpoint,
    LoggedTransaction,
    Operation,
    Payload,
    encode_transactions,
)
from engine.state.state import State
from engine.waiting import Waiters

logger = logging.getLogger(__name__)

_CLAIMS = 3

RING = 3
"""Races lost in a short time, after which this process rings for a maker that does not listen: the maker may not know
that it has company."""

SPILL_BYTES = 64 << 10
"""A transaction with more payload than this goes to a chunk once it has lost a race, or before its first one where
others write too (design 3, group commit): a lost race costs a small frame, never the payload again."""

SUBMITTED_BYTES = 1 << 20
"""The most payload of one submission. A transaction that has more goes into an own frame."""

ALONE_BYTES = 1 << 20
"""A transaction with no more payload than this is carried out by its caller where nobody else is at work."""


class Processor:
    """Applies operations to a container's log and state.

    Args:
        log, state: as opened, the state being the one after the log's head.
        owner: the process that all of this belongs to (W10).
        reopen: opens both again from the newest checkpoint, when W7 says so.
        storage: the long-term storage behind the log.
        throttle: holds callers back that bring more payload than can be worked off.
        inbox: what other processes submit to this one, and where this one submits to others.
        committed: told the position and state after each own frame, and whether it holds a Checkpoint.
        checkpoint_due: tells, from the number of frames since the last Checkpoint, whether the next frame carries one.
        flights: the most frames in flight. frame_transactions: the most transactions of one frame.
        linger: seconds for which operations are collected while others fly.
        threaded: a background thread does the work; otherwise `submit` does it at once, in the caller's thread.
        alone: who commits while nothing is queued and nothing flies does it all in its own thread: where a request
        takes no longer than waking another thread does.
        open_mailbox: gives a writer a mailbox, where processes of this host hand each other submissions by it.
        clock, sleep: seconds, and who waits for them.
    """

    def __init__(
        self,
        log: Log,
        state: State,
        owner: Owner,
        *,
        reopen: Callable[[], tuple[Log, State]],
        storage: LongTermStorage,
        throttle: Throttle,
        inbox: Inbox,
        committed: Callable[[Position, State, bool], None],
        checkpoint_due: Callable[[int], bool],
        flights: int = 4,
        frame_transactions: int = 4096,
        linger: float = 0.005,
        threaded: bool = True,
        alone: bool = False,
        open_mailbox: Callable[[bytes], Mailbox | None] = no_mailbox,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.state = state
        self.log = log
        self.failure: BaseException | None = None
        self._ahead = state
        self._reopen = reopen
        self._storage = storage
        self._committed = committed
        self._checkpoint_due = checkpoint_due
        self._max_flights = flights
        self._frame_transactions = frame_transactions
        self._linger = linger
        self._exclusive = False
        self._threaded = threaded
        self._alone = alone
        self._here = False  # a caller does the work itself
        self._now = now
        self._clock = clock
        self._sleep = sleep
        self._inbox = inbox
        self._outbox = Outbox(clock)
        self._open_mailbox = open_mailbox
        self._mailbox: Mailbox | None = None
        self._mailbox_of = b""  # the writer for which one was opened, or could not be
        self._messages: deque[Message] = deque()
        self._polls = False  # the thread waits for the mailbox
        self._queue = Queue()
        self._lock = threading.RLock()  # guards the queue and `_closing`
        self._wake = threading.Condition(self._lock)  # for the thread; callers hold the lock itself (see `waiting`)
        self._turn = threading.RLock()  # guards the log and the states
        self._closing = False
        self._leaving = False  # frames say to those who submit that this process closes
        self._thread: threading.Thread | None = None
        self._news = Waiters()
        self._owner = owner
        self._callers = Acknowledgements(throttle, storage.forget)
        self.readers: deque[object] = deque()  # callers that read the log to its end, or wait until they can
        self._behind = False  # the log has to be read to its end before the next frame
        self._opened = log.head.address  # of the checkpoint that the state began with
        self._proven = -1  # the newest transaction that was submitted before the log was last read to its end

    # --- for callers -------------------------------------------------------------------------------------------

    def submit(self, pending: Pending) -> Future[Receipt]:
        """Queue a transaction, as soon as there is room for its payload. Its future gets a Receipt, or an error: see
        `Acknowledgements.tell_one`. Raises Throttled, ContainerOffline, MadeBeforeFork."""
        future = pending.promised()
        try:
            self._admit(pending)
            self._submit(pending)
        except BaseException:
            self._callers.withdraw(pending)
            raise
        return future

    def commit(self, pending: Pending) -> Receipt:
        """Submit a transaction and wait for what becomes of it. Raises as the future of `submit` does."""
        try:
            self._admit(pending)
            if not (self._goes_alone(pending) and uninterrupted(partial(self._carried_out, pending))):
                self._submit(pending)
            return pending.receipt()
        except BaseException:
            pending.leave()
            self._callers.withdraw(pending)
            raise

    def _goes_alone(self, pending: Pending) -> bool:
        return self._alone and pending.size <= ALONE_BYTES and not self.log.in_company(MAKER_TRIPS)

    def _admit(self, pending: Pending) -> None:
        self._owner.check()  # before any lock is taken; whoever calls this need not ask again
        self._callers.admit(pending, self._backlog)

    def _submit(self, pending: Pending) -> None:
        self._enqueue(pending)
        if not self._threaded:
            try:
                self._drain()
            except BaseException as error:
                self.fail(error)
                if not isinstance(error, Exception):
                    raise

    def _backlog(self) -> int:
        return self.state.backlog

    def _enqueue(self, pending: Pending) -> None:
        with self._lock:
            self._check_open()
            self._start_thread()  # it may fail, so nothing is queued yet
            if not self._queue or self._queue.size + pending.size >= MAX_PAYLOAD:
                self._wake_thread()  # otherwise it changes nothing: they leave when the first one does
            self._callers.owe(pending)
            self._queue.put(pending)  # last: behind it nothing may fail, and the thread waits for the lock

    def _start_thread(self) -> None:
        if self._threaded and self._thread is None:
            thread = threading.Thread(target=self._run, name="operation-processor", daemon=True)
            thread.start()
            self._thread = thread

    def _check_open(self) -> None:
        if isinstance(self.failure, RootReplaced):
            raise RootReplaced(self.failure.root)
        if self._closing or self.failure is not None:
            raise ContainerOffline("the container is closed; open it again") from self.failure

    def refresh(self) -> State:
        """The state with everything that was acknowledged anywhere before this call."""
        self._owner.check()
        me = object()
        try:
            self.readers.append(me)
            return uninterrupted(self._refreshed)
        finally:
            with contextlib.suppress(ValueError):
                self.readers.remove(me)

    def _refreshed(self) -> State:
        with self._turn:
            self._check_online()
            try:
                self._read_to_the_end()
            except RootReplaced as error:
                self.fail(error)
                raise
            except (EngineError, StorageError):
                raise
            except BaseException as error:
                self.fail(error)
                raise
            finally:
                self._callers.tell()
                self._notify(None)
            return self.state

    def wait_for_news(self, timeout: float) -> None:
        """Wait until this process learns of a new state, at most `timeout` seconds."""
        known = self.state
        self._news.wait(lambda: self.state is not known, timeout)

    def _know(self, state: State) -> None:
        self.state = state
        if self._news.waiting:
            self._news.wake()

    def untold(self) -> list[Pending]:
        """What was submitted so far, and nobody was told of yet."""
        return self._callers.untold()

    @property
    def idle(self) -> bool:
        """Whether nothing is queued, and no frame is in flight."""
        return not self._queue and not self.log.flights and not self._outbox.waiting

    def claim(self) -> None:
        """Hold the log exclusively: from our next frame on, go offline with NotPrimary when another process appends."""
        for left in reversed(range(_CLAIMS)):
            try:
                self.submit(Pending([], direct=True)).result()
                break
            except OutcomeUnknown:  # the process was stopped for too long; there was nothing in it
                if not left:
                    raise
        with self._turn:
            self._exclusive = True

    def repair(self, address: int, min_attach_time: int, dry_run: bool) -> Repair:
        """Give up the damaged frame at `address`, or what nobody understands of it (W8), and chunks that were begun
        before `min_attach_time` (ms): what gave them up may hang on that frame. Returns what that is."""
        self._owner.check()
        with self._turn:
            while self.log.flights:
                self._settle()
            try:
                live = self.log.follow()
            except FrameDamaged:
                repair = Repair(address, min_attach_time)
                self.log.check_damaged(address)
                if not dry_run:
                    self.log.repair(address, min_attach_time)
                return repair
            repair = Repair(address, min_attach_time, self._not_applicable(live, address))
            if not dry_run:
                self.log.pass_over(repair)
            self._start_over()
            return repair

    def _not_applicable(self, live: Sequence[Frame], address: int) -> tuple[int, ...]:
        """What nobody understands of the live frame at `address`. Raises ValueError where nothing is wrong."""
        state, container = self.state, self.log.container
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
        if self.failure is None and not self._closing and self._listening():
            self._leaving = True
            with contextlib.suppress(EngineError, StorageError):
                self.submit(Pending([], direct=True)).result()
        with self._lock:
            self._closing = True
            self._wake_thread()
        if self._thread is not None:
            self._thread.join()
        if self.failure is None:
            self._drain()  # what a caller carries out meanwhile
        self._inbox.clear()
        with self._turn:
            self._answer_late_messages()
            self._close_mailbox()

    # --- in the caller's thread ------------------------------------------------------------------------------------

    def _carried_out(self, pending: Pending) -> bool:
        """Do all of a transaction in this thread, and tell what became of it; False, and nothing is done, in company.

        No other thread is woken: what others submit meanwhile leaves with it, or when it is done.
        """
        taken: bool | None = None
        try:
            # Who waits for the turn is not awake in time to take it between two of these.
            taken = not self.readers and self._turn.acquire(blocking=False)
            return taken and self._done_here(pending)
        finally:
            if taken:
                self._turn.release()
            elif taken is None:  # interrupted: it may be ours all the same
                with contextlib.suppress(RuntimeError):
                    self._turn.release()

    def _done_here(self, pending: Pending) -> bool:
        """The same, with the turn held."""
        if not self.idle:
            return False
        with self._lock:
            self._check_open()
            self._callers.owe(pending)
            self._queue.put(pending)
        try:
            self._steps_here(pending)
        except BaseException as error:  # the caller hears what becomes of its transaction, and nothing else
            self.fail(error)
            if not isinstance(error, Exception):
                raise
        return True

    def _steps_here(self, pending: Pending) -> None:
        try:
            self._here = True
            while pending.told is None and not (self._outbox.waiting and self._thread_goes_on()):
                self._step_here()
        finally:
            self._here = False
        if not self.idle or self._listening():
            self._thread_goes_on()

    def _thread_goes_on(self) -> bool:
        """Whether the thread does what there is to do. Where none can be had it is left to the next caller."""
        try:
            with self._lock:
                self._start_thread()
                self._wake_thread()
        except Exception as error:
            logger.warning("container %d has no thread: %s", self.log.container, repr(error))
            return False
        return self._threaded

    def _step_here(self) -> None:
        """Send a frame or settle one, and tell of it at once: nobody's frame is made while the caller waits to hear."""
        try:
            if self.log.flights:
                self._settle()
            elif self._outbox.waiting:
                self._look_in_time()
            else:
                self._send()
        except StorageError as error:
            self._give_up(error)
        finally:
            self._callers.tell()

    # --- the loop ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._wait():
                with self._turn:
                    self._steps()
        except BaseException as error:  # the thread must not die and leave callers waiting
            self.fail(error)

    def _drain(self) -> None:
        """Do all that is to be done, in the caller's thread."""
        with self._turn:
            while not self.idle:
                self._steps(wait=True)

    def _steps(self, wait: bool = False) -> None:
        """Do what can be done without waiting; with `wait`, then settle the first frame in flight.

        A storage that fails costs the operations at hand, not the container.
        """
        try:
            while self._step():
                pass
            if wait and self.log.flights:
                self._settle()
            elif wait and self._outbox.waiting:
                self._look_in_time()
        except StorageError as error:
            self._give_up(error)
        finally:
            self._callers.tell()

    def _wait(self) -> bool:
        """Wait until something can be done. False when all is done and the processor is closing."""
        while True:
            with self._lock:
                if self.failure is not None:
                    return False  # whoever failed it has told all that wait
                if self._ready():
                    return True
                if self._closing and self.idle:
                    return False
                mailbox, seconds = self._mailbox, self._lingering()
                if mailbox is None:
                    self._wake.wait(seconds)
                    continue
                self._polls = True
            mailbox.wait(seconds)
            self._polls = False
            self._receive()

    def _lingering(self) -> float | None:
        """Seconds until something can be done that no notification tells of; None when there is no such thing."""
        due = []
        if self._outbox.waiting:
            due.append(self._outbox.next_look - self._clock())
        elif self._collects():
            due.append(self._queue.first().queued + self._linger - time.monotonic())
        if self._listening():
            due.append(self.log.round_trip if self._inbox.looking else self._inbox.next_look - self._clock())
            if self._queue and self._gathers():
                due.append(self._inbox.gathers_until(self.log.round_trip) - self._clock())
        return max(min(due), 0.0) if due else None

    def _collects(self) -> bool:
        """Whether what is queued leaves when it has lingered. What waits for a round leaves when that lands."""
        if not self._queue or len(self.log.flights) >= self._most_flights():
            return False
        return not self._inbox.in_rounds(self.log.round_trip)

    def _ready(self) -> bool:
        try:
            landed = self.log.flights[0].future.done()
        except IndexError:  # nothing flies, or `refresh` settled it just now
            landed = False
        if self._messages:
            return True
        return landed or self._inbox.landed or self._must_listen() or self._may_send() or self._must_look()

    def _may_send(self) -> bool:
        flying = len(self.log.flights)
        if not self._queue or flying >= self._most_flights():
            return False
        first = self._queue.first()
        if self._outbox.waiting:
            return first.direct
        if self._gathers():
            return False
        if self._closing or self._queue.size >= MAX_PAYLOAD or first.carrying is not None or first.direct:
            return True
        if self._inbox.in_rounds(self.log.round_trip):
            return False
        return not flying or time.monotonic() - first.queued >= self._linger

    def _gathers(self) -> bool:
        """Whether the next frame waits for those that the last one answered."""
        return not self._closing and self._clock() < self._inbox.gathers_until(self.log.round_trip)

    def _most_flights(self) -> int:
        """In flight at most, for another frame to be sent."""
        return 1 if self._behind or self._one_at_a_time() else self._max_flights

    def _one_at_a_time(self) -> bool:
        """Whether what comes meanwhile leaves with the next frame. Where a request takes no longer than waking threads,
        or all that write are on this host, several frames in flight would only be smaller ones."""
        return (self._alone or self._inbox.gathers) and self.log.in_company(MAKER_TRIPS)

    def _step(self) -> bool:
        """Settle or send one frame, if one can be without waiting, or else tell of what was settled.

        In this order, because those who are told take the processor's time: the next frame is better under way then.
        """
        if self.failure is not None:
            return self._callers.tell()
        if self.log.flights and self.log.flights[0].future.done():
            self._settle()
        elif self._messages:
            self._read_messages()
        elif self._inbox.landed:
            self._take_in()
        elif self._may_send():
            self._send()
        elif self._must_listen():
            self._listen()
        elif self._must_look():
            self._look()
        else:
            return self._callers.tell()
        return True

    def _notify(self, _: Any) -> None:
        with self._lock:
            self._wake_thread()

    def _wake_thread(self) -> None:
        """Let the thread see what there is to do. The lock is held."""
        self._wake.notify_all()
        if self._polls and self._mailbox is not None:
            self._polls = False  # one message is enough
            self._mailbox.wake()

    # --- sending -----------------------------------------------------------------------------------------------

    def _send(self) -> None:
        """Let transactions at the head of the queue leave: in a frame, or for another process that makes the frames."""
        if self._behind or self.log.passed:
            self._read_to_the_end()
        if self.log.aged and not self.log.flights:
            self._read_on(self.log.follow)
        if self._outbox.waiting:
            self._recall()  # the order of submission is that of own frames too
        batch = self._take()
        if not batch or not self._spilled(batch):
            return
        if self._submits(batch):
            self._hand_in(batch)
            return
        try:
            self._send_laid_out(batch, self._new_layout(batch))
        except (Overtaken, LogMoved) as error:  # while the pieces of a spanning operation were on their way
            self._again(batch)
            self._come_down(error)
        except (OutcomeUnknown, StorageError) as error:  # likewise; the operation itself was not sent
            self._forget_submission(error)
            self._callers.tell_all(batch, error)
            self._come_down(error)

    def _take(self) -> list[Pending]:
        """What leaves next. What others submitted is of no use to a frame of another epoch (rule epoch), and what has
        an outcome was queued for an own frame before it had that (once, moved)."""
        epoch = self.log.upcoming().epoch
        with self._lock:
            batch = self._queue.take(MAX_PAYLOAD, self._frame_transactions) if self._queue else []
        batch = [each for each in batch if each.told is None]
        return [each for each in batch if each.carrying is None or each.carrying.address.epoch == epoch]

    def _new_layout(self, batch: list[Pending]) -> Layout:
        return Layout(self.log.upcoming().address, self._send_piece if spans(batch[0]) else None)

    def _send_laid_out(self, batch: list[Pending], layout: Layout) -> None:
        time_ms = int(self._now() * 1000)
        judged = judge(self._ahead, batch, layout, time_ms)
        rejected = judged.rejected
        for pending, error in judged.damaged:
            if pending in self._outbox:
                rejected.append((pending, error))
            else:
                self._callers.tell_one(pending, error)
        state, accepted, transactions = judged.state, judged.accepted, judged.transactions
        answers = _answers(judged)
        announces = bool(answers) or self._leaving or self._would_listen()
        # What was submitted may be done by another process until a frame of ours is live, be it an empty one.
        if transactions or answers or self._leaving or any(pending in self._outbox for pending, _ in rejected):
            address = layout.frame.address
            if announces and self.log.upcoming().epoch > self.log.head.epoch:
                self.log.meet()  # it listens for as long as owners may believe this frame
            added: list[Operation] = [AnswerSubmissions(answers, self._leaving)] if announces else []
            if self._checkpoint_due(address - state.checkpoint):
                added.append(Checkpoint())
            if added:
                transactions.append(LoggedTransaction(time_ms, tuple(added)))
                state, _ = apply(state, transactions[-1], address)
            meta = encode_transactions(transactions, layout.frame)
            layout.frame.start = HEADER + len(meta)
            for pending, _ in accepted:
                pending.tries += 1
                pending.sent = True
            self._ahead = state
            self._launch(meta, layout, Body(state, accepted, rejected, state.checkpoint == address))
        else:
            self._refuse(rejected)
        if judged.unresolved:
            self._resolve(judged.unresolved)

    def _resolve(self, unresolved: Sequence[tuple[Pending, Unresolved]]) -> None:
        """Look up in LTS what operations depend on, and queue them again with that."""
        resolved = []
        for pending, error in unresolved:
            try:
                pending.known |= self._storage.look_up(self._ahead, error.table, error.keys)
            except ObjectNotFound as gone:  # the state is out of date, and what it names collected
                layout = self._ahead.tables[error.table].layout
                if pending.missed == layout:  # though the log has been read to its end since
                    self._not_looked_up(pending, ObjectLost(str(gone)))
                    continue
                pending.missed, self._behind = layout, True
            except (StorageError, DataCorruption) as failure:
                self._not_looked_up(pending, failure)
                continue
            resolved.append(pending)
        self._put_back(resolved)

    def _not_looked_up(self, pending: Pending, error: Exception) -> None:
        if pending in self._outbox:
            self._forget_submission(error)
        self._callers.tell_one(pending, error)

    def _launch(self, meta: bytes, layout: Layout, body: Body) -> None:
        here = self._here or (self._alone and self._one_at_a_time())
        flight = self.log.send(meta, layout.buffers, body, here)
        if self._threaded and not here:
            flight.future.add_done_callback(self._notify)

    def _send_piece(self, layout: Layout) -> int:
        """Send payload of a spanning operation ahead of it; the address of the next frame."""
        while len(self.log.flights) >= self._max_flights:
            self._settle_or_raise()
        layout.frame.start = HEADER
        self._launch(b"", layout, Body(self._ahead, [], [], False))
        return self.log.upcoming().address

    def _spilled(self, batch: Sequence[Pending]) -> bool:
        """Write what has to go to chunks first. False when the storage refused, and the batch has been told."""
        try:
            for pending in batch:
                large = pending.chunk is None and pending.carrying is None and pending.payload() >= SPILL_BYTES
                if large and (pending.spill or self.log.in_company(OWNER_TRIPS)):
                    self._to_chunk(pending)
        except StorageError as error:
            self._forget_submission(error)
            self._callers.tell_all(batch, error)
            return False
        return True

    def _to_chunk(self, pending: Pending) -> None:
        """Write a large payload that has lost a race to a chunk, so that the next frame only refers to it."""
        pending.chunk, extents, created_at = self._storage.spill(pending, self.log.upcoming().epoch)
        bound: list[Operation] = []
        for operation in pending.operations:
            if isinstance(operation, Append) and isinstance(operation.content, Payload):
                bound.append(
                    operation._replace(content=(extents.pop(0),) if operation.content else (), created_at=created_at)
                )
            else:
                bound.append(operation)
        pending.operations = tuple(bound)
        pending.size = payload_size(bound)

    def _refuse(self, rejected: list[tuple[Pending, Refusal]]) -> None:
        """Tell why transactions were refused: at once those that were submitted before the log was last read to its
        end, if all of the state they were held against is known to be the log's (W5, W11). The others wait for that.
        """
        proven = [(pending, error) for pending, error in rejected if pending.number <= self._proven]
        if self.log.flights:
            self.log.flights[-1].body.rejected.extend(proven)
        else:
            self._callers.tell_each(proven)
        doubtful = [pending for pending, _ in rejected if pending.number > self._proven]
        if doubtful:
            self._behind = True
            self._requeue(doubtful)

    # --- company (W18) -----------------------------------------------------------------------------------------

    def _submits(self, batch: Sequence[Pending]) -> bool:
        """Whether these go to another process, which makes the frames of this epoch."""
        log = self.log
        if log.flights or self._exclusive or self._outbox.active or not log.made_elsewhere:
            return False
        if not (log.in_company(OWNER_TRIPS) and self._outbox.may_submit(log.head.epoch)):
            return False
        if batch[0].size > SUBMITTED_BYTES:
            return False
        return not any(pending.direct for pending in batch)

    def _hand_in(self, batch: list[Pending]) -> None:
        """Submit transactions to the maker of the head's epoch."""
        taken, size = 0, 0
        while taken < len(batch) and size + batch[taken].size <= SUBMITTED_BYTES:
            size += batch[taken].size
            taken += 1
        self._put_back(batch[taken:])
        batch = batch[:taken]
        address = self._outbox.new_address(self.log.head.epoch)
        data = encode(self.log.container, address, [pending.operations for pending in batch])
        self._outbox.submit(batch, address)
        for pending in batch:
            pending.tries += 1
            pending.sent = True
        try:
            delivery = self._inbox.post(address, data, self.log.head.writer, self._own_mailbox())
        except StorageError as error:  # it may be there all the same
            logger.info("container %d: what is submitted to others fails: %s", self.log.container, str(error))
            self._recall()
            return
        if delivery is Delivery.DEAD:
            self._outbox.listening = -1
            self._recall()
        else:
            self._outbox.begin_to_wait(self.log.round_trip, notified=delivery is Delivery.SENT)

    def _must_look(self) -> bool:
        return self._outbox.waiting and not self.log.flights and self._clock() >= self._outbox.next_look

    def _look_in_time(self) -> None:
        self._sleep(max(self._outbox.next_look - self._clock(), 0.0))
        self._look()

    def _look(self) -> None:
        """Read the log on, for what became of a submission; who waited for long enough makes a frame itself."""
        self._outbox.looked(self.log.round_trip)
        ended = False
        while not ended and (self._outbox.waiting or self._queue):  # what leaves next goes to the present maker
            ended = self._read_some(self._outbox.frames_expected)
        if self._outbox.waiting and self._outbox.impatient:
            self._recall()

    def _recall(self) -> None:
        """What was submitted goes into own frames; the submission may be carried all the same."""
        self._put_back(self._outbox.recall())

    def _wait_again(self) -> None:
        """Own frames lost the race, and what was submitted is not void."""
        if self._outbox.recalled:
            left = self._outbox.wait_again(self.log.round_trip)
            with self._lock:
                self._queue.keep(lambda each: each not in left)

    def _forget_submission(self, why: Exception) -> None:
        """Nobody waits for what becomes of a submission any more (rules once, moved)."""
        left = self._outbox.forget()
        if left:
            self._callers.tell_all(left, OutcomeUnknown(f"it was submitted to another process, and may be done: {why}"))

    def _hear(self, frame: Frame, after: State, carried: AnswerSubmissions | None) -> None:
        """What the maker of a live frame says to those that submit to it. after: the state then."""
        concerned = self._outbox.active or self.log.in_company(OWNER_TRIPS)
        told = self._outbox.heard(frame.position.epoch, carried, self.log.round_trip)
        if concerned and carried is not None and carried.answers:
            self.log.meet()
        together: deque[Pending] = deque()
        for pending, results in told.done:
            receipt = Receipt(frame.position.address, results, pending.tries, after)
            self._callers.tell_one(pending, receipt, together)
        wake(together)
        for pending in told.refused:
            pending.direct = True
        self._requeue([*told.again, *told.refused])
        if told.done:
            guarded(self._committed, frame.position, after, False)

    def _listening(self) -> bool:
        """Whether this process makes the frames of an epoch, and takes in what others submit."""
        return self.log.makes_frames and self._would_listen()

    def _would_listen(self) -> bool:
        """Whether this process would take in submissions if it made the frames of the epoch."""
        return self.log.in_company(MAKER_TRIPS) and not (self._exclusive or self._closing)

    def _answer(self, senders: Iterable[str]) -> None:
        """Say that the log is durable up to its head, and answers to what these submitted, or has made it void."""
        for sender in senders:
            if self._mailbox is not None:
                self._mailbox.answer(sender, Kind.DURABLE, self.log.head.address.to_bytes(8, "big"))

    def _own_mailbox(self) -> Mailbox | None:
        """Where this process receives as the writer that it is now."""
        if self._mailbox_of != self.log.writer:
            self._close_mailbox()
            self._mailbox_of = self.log.writer
            self._mailbox = self._open_mailbox(self.log.writer)
        return self._mailbox

    def _close_mailbox(self) -> None:
        mailbox, self._mailbox = self._mailbox, None
        if mailbox is not None:
            mailbox.wake()  # a thread that waits for what is closed would wait on
            mailbox.close()

    def _receive(self) -> None:
        """Take out of the mailbox what has come."""
        if self._mailbox is not None:
            self._messages.extend(self._mailbox.receive())

    def _answer_late_messages(self) -> None:
        """Nothing is carried any more: let those that submitted something look at the log at once."""
        self._receive()
        for message in self._messages:
            if message.kind is Kind.SUBMISSION:
                self._inbox.receive(message)
        self._messages.clear()
        self._answer(self._inbox.in_vain(-1, False))

    def _read_messages(self) -> None:
        """Act on what came by the mailbox."""
        while self._messages:
            message = self._messages.popleft()
            if message.kind is Kind.SUBMISSION:
                self._inbox.receive(message)
            elif not self.log.flights:
                self._read_on(partial(self.log.follow_durable, int.from_bytes(message.data, "big")))
        if self.log.makes_frames and not self._closing:
            self._queue_carried(self._inbox.take_received(self.log.head.epoch))
        self._answer(self._inbox.in_vain(self.log.head.epoch, self.log.makes_frames))

    def _must_listen(self) -> bool:
        return not self._inbox.looking and self._listening() and self._clock() >= self._inbox.next_look

    def _listen(self) -> None:
        self._own_mailbox()
        self._inbox.look(self.log.head.epoch, self._notify if self._threaded else None)

    def _take_in(self) -> None:
        """Queue what others submitted, like own transactions."""
        self._queue_carried(self._inbox.take_in(self.log.round_trip))

    def _queue_carried(self, batch: Iterable[Pending]) -> None:
        for pending in batch:
            self.log.meet()
            with self._lock:
                self._queue.put(pending)

    # --- settling ----------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Wait for the first frame in flight and act on its outcome."""
        try:
            self._settle_or_raise()
        except (Overtaken, LogMoved, OutcomeUnknown, StorageError) as error:
            self._come_down(error)

    def _settle_or_raise(self) -> None:
        flight = self.log.settle()
        self._callers.settled.append(flight)
        body: Body = flight.body
        self._know(body.after)
        if self._inbox.used:
            self._answer(self._inbox.settled(body.transactions()))
        if self._outbox.active:  # an own frame begins an epoch
            self._requeue(self._outbox.heard(flight.position.epoch, None, self.log.round_trip).again)
        self._outbox.served()
        # Before they are told: who waits may wait for upkeep next.
        guarded(self._committed, flight.position, body.after, body.checkpoint)

    def _come_down(self, error: Exception) -> None:
        """Act on why no frame in flight will be acknowledged any more."""
        if isinstance(error, Overtaken):
            self._catch_up()
        elif isinstance(error, LogMoved):
            self._tell_unknown(self.log.drop(), error)
            self._start_over()
        elif isinstance(error, RootReplaced):
            self._tell_unknown(self.log.renew(), error)
            self.fail(error)
        elif isinstance(error, OutcomeUnknown):
            self._tell_unknown(self.log.renew(), error)
            self._ahead = self.state
        else:  # the storage refused the first one, so that those behind it are void; another writer goes on (W1)
            self._forget_submission(error)
            for flight in self.log.renew():
                self._callers.tell_all(flight.body.transactions(), error)
            self._ahead = self.state

    def _catch_up(self) -> None:
        """Another writer was there first: read on, apply, and queue our operations again to be validated anew (W2)."""
        flights = self.log.drop()
        self._again([pending for flight in flights for pending in flight.body.transactions()])
        self._ahead = self.state
        self._follow()
        if self.log.losses % RING == 0 and self._outbox.listening != self.log.head.epoch:
            self.log.ring()
        self._wait_again()

    def _give_up(self, error: StorageError) -> None:
        """The log cannot be read on, which is tried when nothing flies: what was not sent is not done."""
        self._callers.tell()
        self._forget_submission(error)
        with self._lock:
            queued = self._queue.clear()
        self._callers.tell_all(queued, error)

    # --- telling (W11) -----------------------------------------------------------------------------------------

    def _tell_unknown(self, flights: Iterable[Flight], cause: Exception) -> None:
        error = cause if isinstance(cause, OutcomeUnknown) else OutcomeUnknown(str(cause))
        for flight in flights:
            self._callers.tell_all([pending for pending, _ in flight.body.accepted], error)
            self._requeue([pending for pending, _ in flight.body.rejected])

    def _again(self, batch: Sequence[Pending]) -> None:
        """Queue what lost a race again; large payload goes to a chunk first."""
        for pending in batch:
            pending.spill = pending.spill or pending.payload() >= SPILL_BYTES
        self._requeue(batch)

    def _requeue(self, batch: Iterable[Pending]) -> None:
        """Queue again what is in no live frame. What was looked up for it is forgotten: it is older than the reason."""
        again = list(batch)
        for pending in again:
            pending.sent = False
            pending.known = {}
        self._put_back(again)

    def _put_back(self, batch: Iterable[Pending]) -> None:
        with self._lock:
            self._queue.put_back([pending for pending in batch if pending.told is None])

    # --- following ---------------------------------------------------------------------------------------------

    def _read_to_the_end(self) -> None:
        """Settle what flies, then follow the log."""
        self._behind = False
        while self.log.flights:
            self._settle()
        self._callers.tell()
        self._follow()

    def _follow(self) -> None:
        """Read on to the log's end, and apply. Nothing may be in flight."""
        with self._lock:
            newest = self._queue.newest
        self._read_on(self.log.follow)
        self._proven = newest

    def _read_some(self, window: int) -> bool:
        """Read at most so many frames on, and apply. Whether that is the log's end. Nothing may be in flight."""
        ended = False

        def read() -> list[Frame]:
            nonlocal ended
            live, ended = self.log.follow_some(window)
            return live

        self._read_on(read)
        return ended

    def _read_on(self, read: Callable[[], list[Frame]]) -> None:
        since = self.log.end_seen
        try:
            live = read()
        except LogMoved:
            self._start_over()
            self._read_on(self.log.follow)
            return
        try:
            self._apply(live, since)
        except BaseException as error:  # the log has gone past frames that the state lacks
            self.fail(error)
            raise

    def _apply(self, live: Sequence[Frame], since: float) -> None:
        """Apply live frames. since: when the log's end was last known before they were read."""
        if not live:
            return
        repaired = repaired_in(live, self.log.container)
        if any(self._opened < address < live[0].position.address for address in repaired):
            self._start_over()  # the state has what they pass over
            self._follow()
            return
        state, states = self.state, []
        for frame in live:
            state, carried = applied(state, frame, self.log.container, repaired.get(frame.position.address))
            states.append((state, carried))
        self._ahead = state
        self._know(state)
        self.log.meet_if_often(sum(carried is not None for _, carried in states), since)
        for frame, (after, carried) in zip(live, states, strict=True):
            self._hear(frame, after, carried)
        self._answer(self._inbox.in_vain(self.log.head.epoch, self.log.makes_frames))
        if self._exclusive:
            self.fail(NotPrimary(f"frame {live[0].position.address} of the log was written by another process"))
            self._check_online()

    def _start_over(self) -> None:
        """What was seen may have been deleted behind our back: open again from the newest checkpoint (W7)."""
        self._forget_submission(LogMoved("the log was read from its newest checkpoint again"))
        log, state = self._reopen()
        self.log, self.state, self._ahead = log, state, state
        self._opened = log.head.address
        self._know(state)
        if self._exclusive:
            self.fail(NotPrimary("the process was stopped for longer than the grace period of the log allows"))
            self._check_online()

    # --- failing -----------------------------------------------------------------------------------------------

    def fail(self, error: BaseException) -> None:
        """Take the container offline and tell all who wait: what flies is settled first, as far as that can be done."""
        with self._turn:
            with self._lock:
                if self.failure is None:
                    self.failure = error
                    if not isinstance(error, EngineError | StorageError):
                        logger.error("the operation processor stopped: %s", repr(error))
                self._queue.clear()
            void = self._land()
            self._callers.tell()
            told = self._told(self.failure)
            unknown = OutcomeUnknown(str(told))
            for pending in self._callers.untold():
                may_be = (pending.sent and pending not in void) or pending in self._outbox
                self._callers.tell_one(pending, unknown if may_be else told)
            self._close_mailbox()
            self._notify(None)  # the thread ends

    def _land(self) -> set[Pending]:
        """Settle what flies; the transactions that are in none of the frames that are live."""
        try:
            while self.log.flights:
                self._settle_or_raise()
        except Overtaken:
            return {pending for flight in self.log.drop() for pending in flight.body.transactions()}
        except BaseException as error:
            logger.warning("%d frames in flight are given up: %s", len(self.log.flights), repr(error))
            self.log.flights.clear()
        return set()

    def _told(self, error: BaseException) -> BaseException:
        """What callers hear of an error that ends the container."""
        return error if isinstance(error, ContainerOffline | DataCorruption | RootReplaced) else self._offline(error)

    @staticmethod
    def _offline(error: BaseException) -> ContainerOffline:
        offline = ContainerOffline(f"the container went offline: {error}")
        offline.__cause__ = error
        return offline

    def _check_online(self) -> None:
        if isinstance(self.failure, ContainerOffline):
            raise self.failure
        if self.failure is not None:
            raise self._offline(self.failure)


def _answers(judged: Judgement) -> tuple[Answer, ...]:
    """What a frame says to those whose transactions it carries, or refuses."""
    answers = [each.carrying.answer(results) for each, results in judged.accepted if each.carrying is not None]
    answers += [each.carrying.answer(None) for each, _ in judged.rejected if each.carrying is not None]
    return tuple(answers)
