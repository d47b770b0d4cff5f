"""The operation processor of a container: queue, validation, group commit, frames in flight.

Owns the way of an operation from `submit` to its future. All threads' transactions queue up and leave together in one
frame; several frames may be in flight. Keeps W2 (validate again after a lost race), W3 (acknowledge in order), W4
(spanning operations), W5 (an operation is validated against exactly the state it is applied to) and W11: each
transaction is told once, by one method, success if and only if its frame is live; a refusal is final only when it was
judged by a state that is the log's and no older than the call; what was looked up is judged like everything else, and
forgotten when its transaction is queued again.
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
from typing import Any, NamedTuple

from chunkstore import ObjectNotFound, StorageError
from engine.errors import (
    ContainerOffline,
    DataCorruption,
    EngineError,
    LogMoved,
    NotPrimary,
    OutcomeUnknown,
    Overtaken,
    Rejected,
    Unresolved,
    understanding,
)
from engine.interrupts import uninterrupted
from engine.logs.frames import HEADER, Frame, Kind, Position
from engine.logs.log import Flight, Log, frame_path, repair_of
from engine.logs.long_term_storage import LongTermStorage
from engine.logs.payload import MAX_PAYLOAD, Layout
from engine.logs.pending import Loads, Pending, Queue, Receipt, more_loads, payload_size, runs, wake
from engine.logs.throttle import Throttle
from engine.ownership import Owner
from engine.state.changes.change import StateChange, apply, replay
from engine.state.operations import (
    Append,
    Checkpoint,
    LoggedTransaction,
    Operation,
    Payload,
    decode_transactions,
    encode_transactions,
)
from engine.state.segments import FrameRef
from engine.state.state import State

logger = logging.getLogger(__name__)

_CLAIMS = 3

_REMEDY = "Restore the object from a copy"

SPILL_BYTES = 64 << 10
"""A transaction with more payload than this goes to a chunk once it has lost a race, or before its first one where
others write too (design 3, group commit): a lost race costs a small frame, never the payload again."""

ALONE_BYTES = 1 << 20
"""A transaction with no more payload than this is carried out by its caller where nobody else is at work."""


class Body(NamedTuple):
    """What the processor keeps with a frame in flight: the state after it, and what it decides."""

    after: State
    accepted: list[tuple[Pending, list[Any]]]
    rejected: list[tuple[Pending, Rejected]]
    checkpoint: bool


class _Judged:
    """What becomes of the transactions of a frame: the state after those that are accepted, and the others."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.accepted: list[tuple[Pending, list[Any]]] = []
        self.transactions: list[LoggedTransaction] = []
        self.rejected: list[tuple[Pending, Rejected]] = []
        self.unresolved: list[tuple[Pending, Unresolved]] = []

    def accept(self, pending: Pending, layout: Layout, change: StateChange, loads: Loads | None = None) -> None:
        """Lay a transaction out and apply it, `loads` first. Raises Rejected or Unresolved."""
        bound, results = list((loads or {}).values()), []
        for operation in bound:
            change.apply(operation)
        for operation in pending.operations:
            operation = layout.bind(operation, change.segment)
            bound.append(operation)
            results.append(change.apply(operation))
        self.transactions.append(LoggedTransaction(change.time, tuple(bound)))
        self.accepted.append((pending, results))

    def accept_appends(self, segment: str, run: Sequence[Pending], layout: Layout, change: StateChange) -> None:
        """The same for plain appends to one segment, as one operation: that costs less here and in every reader."""
        payloads: list[Payload] = [pending.operations[0].content for pending in run]  # type: ignore[union-attr, misc]
        operation = Append(segment, layout.together(payloads))
        offset: int = change.apply(operation)
        self.transactions.append(LoggedTransaction(change.time, (operation,)))
        for pending, payload in zip(run, payloads, strict=True):
            self.accepted.append((pending, [offset]))
            offset += len(payload)


class Processor:
    """Applies operations to a container's log and state.

    Args:
        log, state: as opened, the state being the one after the log's head.
        owner: the process that all of this belongs to (W10).
        reopen: opens both again from the newest checkpoint, when W7 says so.
        storage: the long-term storage behind the log.
        throttle: holds callers back that bring more payload than can be worked off.
        committed: told the position and state after each own frame, and whether it holds a Checkpoint.
        checkpoint_due: tells, from the number of frames since the last Checkpoint, whether the next frame carries one.
        flights: the most frames in flight. frame_transactions: the most transactions of one frame.
        linger: seconds for which operations are collected while others fly.
        threaded: a background thread does the work; otherwise `submit` does it at once, in the caller's thread.
        alone: who commits while nothing is queued and nothing flies does it all in its own thread: where a request
        takes no longer than waking another thread does.
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
        committed: Callable[[Position, State, bool], None],
        checkpoint_due: Callable[[int], bool],
        flights: int = 4,
        frame_transactions: int = 4096,
        linger: float = 0.005,
        threaded: bool = True,
        alone: bool = False,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.state = state
        self.log = log
        self.failure: BaseException | None = None
        self._ahead = state
        self._reopen = reopen
        self._storage = storage
        self._throttle = throttle
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
        self._queue = Queue()
        self._wake = threading.Condition()  # guards the queue and `_closing`
        self._turn = threading.RLock()  # guards the log and the states
        self._closing = False
        self._thread: threading.Thread | None = None
        self._news = threading.Condition()
        self._waiting = 0
        self._owner = owner
        self._settled: deque[Flight] = deque()  # and nobody told yet
        self._untold: set[Pending] = set()
        self.readers: deque[None] = deque()  # callers that read the log to its end, or wait until they can
        self._behind = False  # the log has to be read to its end before the next frame
        self._proven = -1  # the newest transaction that was submitted before the log was last read to its end

    # --- for callers -------------------------------------------------------------------------------------------

    def submit(self, pending: Pending) -> Future[Receipt]:
        """Queue a transaction, as soon as there is room for its payload. Its future gets a Receipt, or an error: see
        `_tell_one`. Raises Throttled, ContainerOffline, MadeBeforeFork."""
        future = pending.promised()
        self._admit(pending)
        self._submit(pending)
        return future

    def commit(self, pending: Pending) -> Receipt:
        """Submit a transaction and wait for what becomes of it. Raises as the future of `submit` does."""
        self._admit(pending)
        try:
            if not (self._alone and pending.size <= ALONE_BYTES and uninterrupted(partial(self._carried_out, pending))):
                self._submit(pending)
            return pending.receipt()
        except BaseException:
            pending.leave()
            raise

    def _admit(self, pending: Pending) -> None:
        self._owner.check()  # before any lock is taken; whoever calls this need not ask again
        if pending.size:
            self._throttle.admit(pending.size, self._backlog)
            pending.admitted = pending.size

    def _submit(self, pending: Pending) -> None:
        try:
            self._enqueue(pending)
        except BaseException:
            self._release(pending)
            raise
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
        with self._wake:
            self._check_open()
            if self._threaded and self._thread is None:
                thread = threading.Thread(target=self._run, name="operation-processor", daemon=True)
                thread.start()  # it may fail, so nothing is queued yet
                self._thread = thread
            leaves = not self._queue or self._queue.size + pending.size >= MAX_PAYLOAD
            self._untold.add(pending)
            self._queue.put(pending)
            if leaves:
                self._wake.notify()  # otherwise it changes nothing: they leave when the first one does

    def _check_open(self) -> None:
        if self._closing or self.failure is not None:
            raise ContainerOffline("the container is closed; open it again") from self.failure

    def refresh(self) -> State:
        """The state with everything that was acknowledged anywhere before this call."""
        self._owner.check()
        self.readers.append(None)
        try:
            with self._turn:
                return self._refreshed()
        finally:
            self.readers.pop()

    def _refreshed(self) -> State:
        self._check_online()
        try:
            self._read_to_the_end()
        except (EngineError, StorageError):
            raise
        except BaseException as error:
            self.fail(error)
            raise
        finally:
            self._tell()
            self._notify(None)
        return self.state

    def wait_for_news(self, timeout: float) -> None:
        """Wait until this process learns of a new state, at most `timeout` seconds."""
        with self._news:
            self._waiting += 1
            self._news.wait(timeout)
            self._waiting -= 1

    def _know(self, state: State) -> None:
        self.state = state
        if self._waiting:
            with self._news:
                self._news.notify_all()

    def untold(self) -> list[Pending]:
        """What was submitted so far, and nobody was told of yet."""
        return list(self._untold)

    @property
    def idle(self) -> bool:
        """Whether nothing is queued, and no frame is in flight."""
        return not self._queue and not self.log.flights

    def claim(self) -> None:
        """Hold the log exclusively: from our next frame on, go offline with NotPrimary when another process appends."""
        for left in reversed(range(_CLAIMS)):
            try:
                self.submit(Pending([])).result()
                break
            except OutcomeUnknown:  # the process was stopped for too long; there was nothing in it
                if not left:
                    raise
        with self._turn:
            self._exclusive = True

    def repair(self, address: int, orphan_horizon: int) -> None:
        """Give up the damaged frame at `address` (W8), and chunks that were begun before `orphan_horizon` (ms): what
        gave them up may hang on that frame."""
        with self._turn:
            self.log.repair(address, orphan_horizon)

    def close(self) -> None:
        """Finish what was submitted, then take nothing more."""
        self._owner.check()
        with self._wake:
            self._closing = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join()
        if self.failure is None:
            self._drain()  # what a caller carries out meanwhile

    # --- in the caller's thread ------------------------------------------------------------------------------------

    def _carried_out(self, pending: Pending) -> bool:
        """Do all of a transaction in this thread, and tell what became of it; False, and nothing is done, in company.

        No other thread is woken: what others submit meanwhile leaves with it, or when it is done.
        """
        if self.readers or not self._turn.acquire(blocking=False):
            return False  # who waits for the turn is not awake in time to take it between two of these
        try:
            if not self.idle:
                return False
            try:
                with self._wake:
                    self._check_open()
                    self._untold.add(pending)
                    self._queue.put(pending)
            except BaseException:
                self._release(pending)
                raise
            self._here = True
            try:
                while pending.told is None:
                    self._step_here()
            except BaseException as error:
                self.fail(error)
                if not isinstance(error, Exception):
                    raise
            finally:
                self._here = False
                if self._threaded and not self.idle:
                    self._notify(None)
            return True
        finally:
            self._turn.release()

    def _step_here(self) -> None:
        """Send a frame or settle one, and tell of it at once: nobody's frame is made while the caller waits to hear."""
        try:
            if self.log.flights:
                self._settle()
            else:
                self._send()
        except StorageError as error:
            self._give_up(error)
        finally:
            self._tell()

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
        except StorageError as error:
            self._give_up(error)
        finally:
            self._tell()

    def _wait(self) -> bool:
        """Wait until something can be done. False when all is done and the processor is closing."""
        with self._wake:
            while not self._ready():
                if self._closing and self.idle:
                    return False
                self._wake.wait(self._lingering())
            return True

    def _lingering(self) -> float | None:
        """Seconds until what is queued may leave by itself; None when only a notification changes anything."""
        if not self._queue or len(self.log.flights) >= self._most_flights():
            return None
        return max(self._queue.first().queued + self._linger - time.monotonic(), 0.0)

    def _ready(self) -> bool:
        try:
            landed = self.log.flights[0].future.done()
        except IndexError:  # nothing flies, or `refresh` settled it just now
            landed = False
        return landed or self._may_send()

    def _may_send(self) -> bool:
        flying = len(self.log.flights)
        if not self._queue or flying >= self._most_flights():
            return False
        if not flying or self._closing or self._queue.size >= MAX_PAYLOAD:
            return True
        return time.monotonic() - self._queue.first().queued >= self._linger

    def _most_flights(self) -> int:
        """In flight at most, for another frame to be sent."""
        return 1 if self._behind else self._max_flights

    def _step(self) -> bool:
        """Settle or send one frame, if one can be without waiting, or else tell of what was settled.

        In this order, because those who are told take the processor's time: the next frame is better under way then.
        """
        if self.log.flights and self.log.flights[0].future.done():
            self._settle()
        elif self._may_send():
            self._send()
        else:
            return self._tell()
        return True

    def _notify(self, _: Any) -> None:
        with self._wake:
            self._wake.notify()

    # --- sending -----------------------------------------------------------------------------------------------

    def _send(self) -> None:
        """Send a frame with the transactions at the head of the queue."""
        if self._behind:
            self._read_to_the_end()
        self._read_on(self.log.follow if self.log.stale and not self.log.flights else self.log.give_way)
        batch = self._take()
        if not self._spilled(batch):
            return
        try:
            if not self.log.flights and any(pending.chunk is not None for pending in batch):
                self._read_on(self.log.begin_turn)
            self._send_laid_out(batch, self._new_layout(batch))
        except (Overtaken, LogMoved) as error:  # while the pieces of a spanning operation were on their way
            self._again(batch)
            self._come_down(error)
        except (OutcomeUnknown, StorageError) as error:  # likewise; the operation itself was not sent
            self._tell_all(batch, error)
            self._come_down(error)
        finally:
            if not self.log.flights:
                self.log.end_turn()

    def _take(self) -> list[Pending]:
        with self._wake:
            return self._queue.take(MAX_PAYLOAD, self._frame_transactions)

    def _new_layout(self, batch: list[Pending]) -> Layout:
        spans = batch[0].chunk is None and batch[0].size > MAX_PAYLOAD
        return Layout(self.log.upcoming().address, self._send_piece if spans else None)

    def _send_laid_out(self, batch: list[Pending], layout: Layout) -> None:
        time_ms = int(self._now() * 1000)
        judged = self._judged_together(batch, layout, time_ms) or self._judged(batch, layout, time_ms)
        state, accepted, transactions = judged.state, judged.accepted, judged.transactions
        if transactions:
            address = layout.frame.address
            if self._checkpoint_due(address - state.checkpoint):
                transactions.append(LoggedTransaction(time_ms, (Checkpoint(),)))
                state, _ = apply(state, transactions[-1], address)
            meta = encode_transactions(transactions, layout.frame)
            layout.frame.start = HEADER + len(meta)
            for pending, _ in accepted:
                pending.tries += 1
                pending.sent = True
            self._ahead = state
            self._launch(meta, layout, Body(state, accepted, judged.rejected, state.checkpoint == address))
        else:
            self._refuse(judged.rejected)
        if judged.unresolved:
            self._resolve(judged.unresolved)

    def _judged_together(self, batch: list[Pending], layout: Layout, time_ms: int) -> _Judged | None:
        """What becomes of transactions none of which is refused; None when one is: then each has to be tried alone."""
        if batch[0].size > MAX_PAYLOAD or any(pending.known for pending in batch):
            return None
        judged, mark = _Judged(self._ahead), layout.mark()
        change = StateChange(self._ahead, time_ms, layout.frame.address, {})
        try:
            for segment, run in runs(batch):
                if segment is not None and len(run) > 1:
                    judged.accept_appends(segment, run, layout, change)
                else:
                    judged.accept(run[0], layout, change)
        except (Rejected, Unresolved):
            layout.rewind(mark)
            return None
        judged.state = change.state()
        return judged

    def _judged(self, batch: list[Pending], layout: Layout, time_ms: int) -> _Judged:
        judged = _Judged(self._ahead)
        for pending in batch:
            mark = layout.mark()
            try:
                self._judge(pending, judged, layout, time_ms)
            except Unresolved as error:
                layout.rewind(mark)
                judged.unresolved.append((pending, error))
            except Rejected as error:
                layout.rewind(mark)
                judged.rejected.append((pending, error))
            except DataCorruption as error:  # of what was looked up for this one, which is no other's concern
                layout.rewind(mark)
                self._tell_one(pending, error)
        return judged

    def _judge(self, pending: Pending, judged: _Judged, layout: Layout, time_ms: int) -> None:
        """Accept one transaction. Raises Rejected or Unresolved.

        What brings into memory what was looked up for it is made here, from the state at hand; nobody keeps it.
        """
        state, mark = judged.state, layout.mark()
        loads: Loads = {}
        if pending.size > MAX_PAYLOAD and pending.chunk is None:
            loads = self._dry_run(pending, state, time_ms)
        while True:
            change = StateChange(state, time_ms, layout.frame.address, pending.known)
            try:
                judged.accept(pending, layout, change, loads)
            except Unresolved as error:
                layout.rewind(mark)
                loads = more_loads(error, state, pending.known, loads)
                continue
            judged.state = change.state()
            return

    def _resolve(self, unresolved: Sequence[tuple[Pending, Unresolved]]) -> None:
        """Look up in LTS what operations depend on, and queue them again with that."""
        resolved = []
        for pending, error in unresolved:
            try:
                pending.known |= self._storage.look_up(self._ahead, error.table, error.keys)
            except ObjectNotFound as gone:  # the state is out of date, and what it names collected
                layout = self._ahead.tables[error.table].layout
                if pending.missed == layout:  # though the log has been read to its end since
                    damage = f"{gone}, though the container's state names it; restore the object from a copy"
                    self._tell_one(pending, DataCorruption(damage))
                    continue
                pending.missed, self._behind = layout, True
            except (StorageError, DataCorruption) as failure:
                self._tell_one(pending, failure)
                continue
            resolved.append(pending)
        self._put_back(resolved)

    def _launch(self, meta: bytes, layout: Layout, body: Body) -> None:
        flight = self.log.send(meta, layout.buffers, body, self._here)
        if self._threaded and not self._here:
            flight.future.add_done_callback(self._notify)

    def _send_piece(self, layout: Layout) -> int:
        """Send payload of a spanning operation ahead of it; the address of the next frame."""
        while len(self.log.flights) >= self._max_flights:
            self._settle_or_raise()
        layout.frame.start = HEADER
        self._launch(b"", layout, Body(self._ahead, [], [], False))
        return self.log.upcoming().address

    @staticmethod
    def _dry_run(pending: Pending, state: State, time_ms: int) -> Loads:
        """See whether a spanning transaction is acceptable before its pieces are sent. Raises Rejected if not."""
        loads: Loads = {}
        while True:
            layout, change = Layout(0), StateChange(state, time_ms, 0, pending.known)
            try:
                for operation in (*loads.values(), *pending.operations):
                    change.apply(layout.bind(operation, change.segment))
                return loads
            except Unresolved as error:
                loads = more_loads(error, state, pending.known, loads)

    def _spilled(self, batch: Sequence[Pending]) -> bool:
        """Write what has to go to chunks first. False when the storage refused, and the batch has been told."""
        try:
            for pending in batch:
                if (
                    pending.spill or (self.log.contended and pending.payload() >= SPILL_BYTES)
                ) and pending.chunk is None:
                    self._to_chunk(pending)
        except StorageError as error:
            self._tell_all(batch, error)
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

    def _refuse(self, rejected: list[tuple[Pending, Rejected]]) -> None:
        """Tell why transactions were refused: at once those that were submitted before the log was last read to its
        end, if all of the state they were held against is known to be the log's (W5, W11). The others wait for that.
        """
        proven = [(pending, error) for pending, error in rejected if pending.number <= self._proven]
        if self.log.flights:
            self.log.flights[-1].body.rejected.extend(proven)
        else:
            self._tell_refusals(proven)
        doubtful = [pending for pending, _ in rejected if pending.number > self._proven]
        if doubtful:
            self._behind = True
            self._requeue(doubtful)

    # --- settling ----------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Wait for the first frame in flight and act on its outcome."""
        try:
            self._settle_or_raise()
        except (Overtaken, LogMoved, OutcomeUnknown, StorageError) as error:
            self._come_down(error)

    def _settle_or_raise(self) -> None:
        flight = self.log.settle()
        self._settled.append(flight)
        body: Body = flight.body
        self._know(body.after)
        # Before they are told: who waits may wait for upkeep next.
        self._guarded(self._committed, flight.position, body.after, body.checkpoint)

    @staticmethod
    def _guarded(call: Callable[..., None], *args: Any) -> None:
        """Do what hangs on an operation whose outcome stands, whatever becomes of this."""
        try:
            call(*args)
        except Exception:
            logger.exception("%s failed; the operations before it are not touched by that", call)

    def _come_down(self, error: Exception) -> None:
        """Act on why no frame in flight will be acknowledged any more."""
        if isinstance(error, Overtaken):
            self._catch_up()
        elif isinstance(error, LogMoved):
            self._tell_unknown(self.log.drop(), error)
            self._start_over()
        elif isinstance(error, OutcomeUnknown):
            self._tell_unknown(self.log.renew(), error)
            self._ahead = self.state
        else:  # the storage refused the first one, so that those behind it are void; another writer goes on (W1)
            for flight in self.log.renew():
                self._tell_all(self._of(flight), error)
            self._ahead = self.state

    def _catch_up(self) -> None:
        """Another writer was there first: read on, apply, and queue our operations again to be validated anew (W2)."""
        flights = self.log.drop()
        self._again([pending for flight in flights for pending in self._of(flight)])
        self._ahead = self.state
        self._follow()
        if self.log.losses and self.log.losses % 2 == 0:  # who asked tries twice before it asks again
            self._read_on(self.log.ask)

    def _give_up(self, error: StorageError) -> None:
        """The log cannot be read on: what flies is settled all the same, what was not sent is not done."""
        while self.log.flights:
            with contextlib.suppress(StorageError):  # the same again, when a race was lost: its operations are queued
                self._settle()
        self._tell()
        with self._wake:
            queued = self._queue.clear()
        self._tell_all(queued, error)

    # --- telling (W11) -----------------------------------------------------------------------------------------

    def _tell(self) -> bool:
        """Tell who waits for what was settled. True if there was any."""
        told = bool(self._settled)
        while self._settled:
            flight = self._settled[0]
            body: Body = flight.body
            together: deque[Pending] = deque()
            for pending, results in body.accepted:
                self._tell_one(pending, Receipt(flight.position.address, results, pending.tries, body.after), together)
            wake(together)
            self._tell_refusals(body.rejected)
            if self._settled and self._settled[0] is flight:  # who was told may have come back here
                self._settled.popleft()
        return told

    def _tell_refusals(self, rejected: Iterable[tuple[Pending, Rejected]]) -> None:
        for pending, error in rejected:
            self._tell_one(pending, error)

    def _tell_all(self, batch: Iterable[Pending], error: BaseException) -> None:
        for pending in batch:
            self._tell_one(pending, error)

    def _tell_unknown(self, flights: Iterable[Flight], cause: Exception) -> None:
        error = cause if isinstance(cause, OutcomeUnknown) else OutcomeUnknown(str(cause))
        for flight in flights:
            self._tell_all([pending for pending, _ in flight.body.accepted], error)
            self._requeue([pending for pending, _ in flight.body.rejected])

    def _tell_one(
        self, pending: Pending, outcome: Receipt | BaseException, together: deque[Pending] | None = None
    ) -> None:
        """Tell what became of a transaction, once: nothing else does.

        A Receipt says that its frame is live, OutcomeUnknown that it may be; all other errors that it is not: Rejected
        by what the log says, StorageError and DataCorruption by what keeps it from being sent, ContainerOffline.
        """
        if pending.told is not None:
            pending.release()  # if something went wrong as it was told
            return
        self._release(pending)
        pending.tell(outcome, together)
        self._untold.discard(pending)
        if pending.chunk is not None and isinstance(outcome, Rejected):
            self._guarded(self._storage.forget, pending.chunk)

    def _release(self, pending: Pending) -> None:
        """Make room for the next ones, once."""
        size, pending.admitted = pending.admitted, 0
        if size:
            self._throttle.release(size)

    def _again(self, batch: Sequence[Pending]) -> None:
        """Queue what lost a race again; large payload goes to a chunk first."""
        for pending in batch:
            pending.spill = pending.spill or pending.payload() >= SPILL_BYTES
        self._requeue(batch)

    @staticmethod
    def _of(flight: Flight) -> list[Pending]:
        body: Body = flight.body
        return [pending for pending, _ in body.accepted] + [pending for pending, _ in body.rejected]

    def _requeue(self, batch: Iterable[Pending]) -> None:
        """Queue again what is in no live frame. What was looked up for it is forgotten: it is older than the reason."""
        again = list(batch)
        for pending in again:
            pending.sent = False
            pending.known = {}
        self._put_back(again)

    def _put_back(self, batch: Iterable[Pending]) -> None:
        with self._wake:
            self._queue.put_back([pending for pending in batch if pending.told is None])

    # --- following ---------------------------------------------------------------------------------------------

    def _read_to_the_end(self) -> None:
        """Settle what flies, then follow the log."""
        self._behind = False
        while self.log.flights:
            self._settle()
        self._tell()
        self._follow()

    def _follow(self) -> None:
        """Read on to the log's end, and apply. Nothing may be in flight."""
        with self._wake:
            newest = self._queue.newest
        self._read_on(self.log.follow)
        self._proven = newest

    def _read_on(self, read: Callable[[], list[Frame]]) -> None:
        try:
            live = read()
        except LogMoved:
            self._start_over()
            self._read_on(self.log.follow)
            return
        try:
            self._apply(live)
        except BaseException as error:  # the log has gone past frames that the state lacks
            self.fail(error)
            raise

    def _apply(self, live: Sequence[Frame]) -> None:
        if not live:
            return
        state = self.state
        for frame in live:
            state = apply_frame(state, frame, frame_path(self.log.container, frame.position.address))
        self._ahead = state
        self._know(state)
        if self._exclusive:
            self.fail(NotPrimary(f"frame {live[0].position.address} of the log was written by another process"))
            self._check_online()

    def _start_over(self) -> None:
        """What was seen may have been deleted behind our back: open again from the newest checkpoint (W7)."""
        self.log.end_turn()
        log, state = self._reopen()
        self.log, self.state, self._ahead = log, state, state
        self._know(state)
        if self._exclusive:
            self.fail(NotPrimary("the process was stopped for longer than the grace period of the log allows"))
            self._check_online()

    # --- failing -----------------------------------------------------------------------------------------------

    def fail(self, error: BaseException) -> None:
        """Take the container offline and tell all who wait: what flies is settled first, as far as that can be done."""
        with self._turn:
            with self._wake:
                if self.failure is None:
                    self.failure = error
                    if not isinstance(error, EngineError | StorageError):
                        logger.error("the operation processor stopped: %r", error)
                self._queue.clear()
            void = self._land()
            self.log.end_turn()
            self._tell()
            told = self._told(self.failure)
            unknown = OutcomeUnknown(str(told))
            for pending in list(self._untold):
                self._tell_one(pending, unknown if pending.sent and pending not in void else told)

    def _land(self) -> set[Pending]:
        """Settle what flies; the transactions that are in none of the frames that are live."""
        try:
            while self.log.flights:
                self._settle_or_raise()
        except Overtaken:
            return {pending for flight in self.log.drop() for pending in self._of(flight)}
        except BaseException as error:
            logger.warning("%d frames in flight are given up: %r", len(self.log.flights), error)
            self.log.flights.clear()
        return set()

    def _told(self, error: BaseException) -> BaseException:
        """What callers hear of an error that ends the container."""
        return error if isinstance(error, ContainerOffline | DataCorruption) else self._offline(error)

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


def apply_frame(state: State, frame: Frame, path: str) -> State:
    """The state after a live frame, the object `path`.

    Raises DataCorruption for one that cannot be applied: then the log is not what was written.
    """
    own = FrameRef(frame.position.address, frame.payload_start)
    if frame.kind is Kind.REPAIR:
        return state._replace(orphan_horizon=max(state.orphan_horizon, repair_of(frame, path).orphan_horizon))
    try:
        with understanding(path, _REMEDY):
            return replay(state, decode_transactions(frame.meta, own), frame.position.address)
    except Rejected as error:
        raise DataCorruption(f"{path}: it cannot be applied: {error}. {_REMEDY}") from error
