"""The operation processor of a container: queue, validation, group commit, frames in flight.

Owns the way of an operation from `submit` to its future. All threads' transactions queue up and leave together in one
frame; several frames may be in flight. Keeps W2 (validate again after a lost race), W3 (acknowledge in order), W4
(spanning operations) and W5 (an operation is validated against exactly the state it is applied to; a refusal is final
only when that state is known to be the log's).
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import msgpack

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
)
from engine.frames import HEADER, Frame, Kind, Position
from engine.horizon import made_at
from engine.layout import MAX_PAYLOAD, Layout
from engine.log import Flight, Log
from engine.operations import (
    Append,
    Checkpoint,
    Operation,
    Payload,
    Transaction,
    decode_transactions,
    encode_transactions,
)
from engine.pending import Pending, Queue, Receipt, load_of, payload_size, runs
from engine.segments import Extent, FrameRef
from engine.state import Change, State
from engine.tables import Known

logger = logging.getLogger(__name__)

MAX_TRANSACTIONS = 4096
"""The most transactions of one frame."""

_CLAIMS = 3

SPILL_BYTES = 1 << 20
"""A transaction with more payload than this goes to a chunk once it has lost a race (design 3, group commit)."""


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
        self.transactions: list[Transaction] = []
        self.rejected: list[tuple[Pending, Rejected]] = []
        self.unresolved: list[tuple[Pending, Unresolved]] = []

    def accept(self, pending: Pending, layout: Layout, change: Change) -> None:
        """Lay a transaction out and apply it. Raises Rejected or Unresolved."""
        bound, results = list(pending.loads.values()), []
        for operation in bound:
            change.apply(operation)
        for operation in pending.operations:
            operation = layout.bind(operation, change.segment)
            bound.append(operation)
            results.append(change.apply(operation))
        self.transactions.append(Transaction(change.time, tuple(bound)))
        self.accepted.append((pending, results))

    def accept_appends(self, segment: str, run: Sequence[Pending], layout: Layout, change: Change) -> None:
        """The same for plain appends to one segment, as one operation: that costs less here and in every reader."""
        payloads: list[Payload] = [pending.operations[0].content for pending in run]  # type: ignore[union-attr, misc]
        operation = Append(segment, layout.together(payloads))
        offset: int = change.apply(operation)
        self.transactions.append(Transaction(change.time, (operation,)))
        for pending, payload in zip(run, payloads, strict=True):
            self.accepted.append((pending, [offset]))
            offset += len(payload)


class Processor:
    """Applies operations to a container's log and state.

    Args:
        log, state: as opened, the state being the one after the log's head.
        reopen: opens both again from the newest checkpoint, when W7 says so.
        look_up: looks keys of a table up in tier 2, as a state has it; ObjectNotFound if that state is too old.
        spill: writes payload to a chunk and returns its extents; forget: deletes such a chunk again.
        committed: told the position and state after each own frame, and whether it holds a Checkpoint.
        checkpoint_due: tells, from the number of frames since the last Checkpoint, whether the next frame carries one.
        flights: the most frames in flight. linger: seconds for which operations are collected while others fly.
        threaded: a background thread does the work; otherwise `submit` does it at once, in the caller's thread.
    """

    def __init__(
        self,
        log: Log,
        state: State,
        *,
        reopen: Callable[[], tuple[Log, State]],
        look_up: Callable[[State, str, Sequence[str]], dict[tuple[str, str], Known]],
        spill: Callable[[Pending, int], tuple[str, list[Extent]]],
        forget: Callable[[str], None],
        committed: Callable[[Position, State, bool], None],
        checkpoint_due: Callable[[int], bool],
        flights: int = 4,
        linger: float = 0.005,
        threaded: bool = True,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.state = state
        self.log = log
        self.failure: BaseException | None = None
        self._ahead = state
        self._reopen = reopen
        self._look_up = look_up
        self._spill = spill
        self._forget = forget
        self._committed = committed
        self._checkpoint_due = checkpoint_due
        self._max_flights = flights
        self._linger = linger
        self._exclusive = False
        self._threaded = threaded
        self._now = now
        self._queue = Queue()
        self._wake = threading.Condition()  # guards the queue and `_closing`
        self._turn = threading.RLock()  # guards the log and the states
        self._closing = False
        self._thread: threading.Thread | None = None
        self._news = threading.Condition()
        self._waiting = 0
        self._settled: deque[Flight] = deque()  # and nobody told yet

    # --- for callers -------------------------------------------------------------------------------------------

    def submit(self, pending: Pending) -> Future[Receipt]:
        """Queue a transaction. Its future gets a Receipt, a Rejected error, OutcomeUnknown or ContainerOffline."""
        with self._wake:
            if self._closing or self.failure is not None:
                raise ContainerOffline("the container is closed; open it again") from self.failure
            self._queue.put(pending)
            if self._threaded and self._thread is None:
                self._thread = threading.Thread(target=self._run, name="operation-processor", daemon=True)
                self._thread.start()
            if len(self._queue) == 1 or self._queue.size >= MAX_PAYLOAD:
                self._wake.notify()  # otherwise it changes nothing: they leave when the first one does
        if not self._threaded:
            self._drain()
        return pending.future

    def refresh(self) -> State:
        """The state with everything that was acknowledged anywhere before this call."""
        with self._turn:
            self._check_online()
            try:
                while self.log.flights:
                    self._settle()
                self._follow()
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

    def repair(self, address: int, swept: int) -> None:
        """Give up the damaged frame at `address` (W8), and chunks that were begun before `swept` (ms): what gave them
        up may hang on that frame."""
        with self._turn:
            self.log.repair(address, swept)

    def close(self) -> None:
        """Finish what was submitted, then take nothing more."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join()
        elif self.failure is None:
            self._drain()

    # --- the loop ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._wait():
                with self._turn:
                    self._steps()
        except ContainerOffline:
            pass  # every pending operation has been told
        except BaseException as error:  # the thread must not die and leave callers waiting
            self.fail(error)

    def _drain(self) -> None:
        """Do all that is to be done, in the caller's thread."""
        with self._turn:
            try:
                while self._queue or self.log.flights:
                    self._steps(wait=True)
            except ContainerOffline:
                pass  # every pending operation has been told
            except EngineError as error:
                self.fail(error)

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
            self._abandon(error)
            with self._wake:
                queued = self._queue.clear()
            self._deliver_failure(queued, error)
        finally:
            self._tell()

    def _wait(self) -> bool:
        """Wait until something can be done. False when all is done and the processor is closing."""
        with self._wake:
            while not self._ready():
                if self._closing and not self._queue and not self.log.flights:
                    return False
                self._wake.wait(self._lingering())
            return True

    def _lingering(self) -> float | None:
        """Seconds until what is queued may leave by itself; None when only a notification changes anything."""
        if not self._queue or len(self.log.flights) >= self._max_flights:
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
        if not self._queue or flying >= self._max_flights:
            return False
        if not flying or self._closing or self._queue.size >= MAX_PAYLOAD:
            return True
        return time.monotonic() - self._queue.first().queued >= self._linger

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
        self._read_on(self.log.follow if self.log.stale and not self.log.flights else self.log.give_way)
        batch = self._take()
        try:
            if self._spilled(batch):
                self._send_laid_out(batch, self._new_layout(batch))
        except Overtaken:  # while the pieces of a spanning operation were on their way
            self._again(batch)
            self._catch_up()
        except LogMoved as error:  # likewise; the operation itself was not sent
            self._requeue(batch)
            self._deliver_unknown(self.log.drop(), error)
            self._start_over()
        except (OutcomeUnknown, StorageError) as error:
            self._deliver_failure(batch, error)
            self._abandon(error)
        except BaseException as error:  # nobody may be left waiting
            self._deliver_failure(batch, self._told(error))
            raise

    def _take(self) -> list[Pending]:
        with self._wake:
            return self._queue.take(MAX_PAYLOAD, MAX_TRANSACTIONS)

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
                transactions.append(Transaction(time_ms, (Checkpoint(),)))
                state, _ = state.apply(transactions[-1], address)
            meta = encode_transactions(transactions, layout.frame)
            layout.frame.start = HEADER + len(meta)
            for pending, _ in accepted:
                pending.tries += 1
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
        change = Change(self._ahead, time_ms, layout.frame.address, {})
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
                if pending.size > MAX_PAYLOAD and pending.chunk is None:
                    self._dry_run(pending, judged.state, time_ms)
                change = Change(judged.state, time_ms, layout.frame.address, pending.known)
                judged.accept(pending, layout, change)
                judged.state = change.state()
            except Unresolved as error:
                layout.rewind(mark)
                judged.unresolved.append((pending, error))
            except Rejected as error:
                layout.rewind(mark)
                judged.rejected.append((pending, error))
        return judged

    def _resolve(self, unresolved: Sequence[tuple[Pending, Unresolved]]) -> None:
        """Look up in tier 2 what operations depend on, and queue them again."""
        state = self._ahead
        for pending, error in unresolved:
            try:
                found = self._look_up(state, error.table, error.keys)
            except ObjectNotFound:  # the state is out of date, and what it names collected
                self._catch_up_with_tier_two()
                found = {}
            except (StorageError, DataCorruption) as failure:
                self._deliver_failure([pending], failure)
                continue
            pending.known |= found
            for key, known in found.items():
                load = load_of(*key, known.entry, error.segment)
                pending.loads.pop(key, None)
                if load is not None:
                    pending.loads[key] = load
        self._requeue([pending for pending, _ in unresolved])

    def _catch_up_with_tier_two(self) -> None:
        while self.log.flights:
            self._settle()
        self._follow()

    def _launch(self, meta: bytes, layout: Layout, body: Body) -> None:
        flight = self.log.send(meta, layout.buffers, body)
        if self._threaded:
            flight.future.add_done_callback(self._notify)

    def _send_piece(self, layout: Layout) -> int:
        """Send payload of a spanning operation ahead of it; the address of the next frame."""
        while len(self.log.flights) >= self._max_flights:
            self._settle_or_raise()
        layout.frame.start = HEADER
        self._launch(b"", layout, Body(self._ahead, [], [], False))
        return self.log.upcoming().address

    def _dry_run(self, pending: Pending, state: State, time_ms: int) -> None:
        """See whether a spanning transaction is acceptable before its pieces are sent. Raises Rejected if not."""
        layout, change = Layout(0), Change(state, time_ms, 0, pending.known)
        for operation in (*pending.loads.values(), *pending.operations):
            change.apply(layout.bind(operation, change.segment))

    def _spilled(self, batch: Sequence[Pending]) -> bool:
        """Write what has to go to chunks first. False when the storage refused, and the batch has been told."""
        try:
            for pending in batch:
                if pending.spill and pending.chunk is None:
                    self._to_chunk(pending)
        except StorageError as error:
            self._deliver_failure(batch, error)
            return False
        return True

    def _to_chunk(self, pending: Pending) -> None:
        """Write a large payload that has lost a race to a chunk, so that the next frame only refers to it."""
        made = made_at(self._now())  # the process may be stopped before that frame leaves
        pending.chunk, extents = self._spill(pending, self.log.upcoming().epoch)
        bound: list[Operation] = []
        for operation in pending.operations:
            if isinstance(operation, Append) and isinstance(operation.content, Payload):
                bound.append(operation._replace(content=(extents.pop(0),) if operation.content else (), made=made))
            else:
                bound.append(operation)
        pending.operations = tuple(bound)
        pending.size = payload_size(bound)

    def _refuse(self, rejected: list[tuple[Pending, Rejected]]) -> None:
        """Tell why transactions were refused, once the state they were held against is known to be the log's (W5)."""
        if self.log.flights:
            self.log.flights[-1].body.rejected.extend(rejected)
            return
        self._deliver([(pending, error) for pending, error in rejected if pending.checked])
        doubtful = [(pending, error) for pending, error in rejected if not pending.checked]
        if doubtful and not self._follow():
            self._deliver(doubtful)
        for pending, _ in doubtful:
            pending.checked = True
        self._requeue([pending for pending, _ in doubtful])

    # --- settling ----------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Wait for the first frame in flight and act on its outcome."""
        try:
            self._settle_or_raise()
        except Overtaken:
            self._catch_up()
        except LogMoved as error:
            self._deliver_unknown(self.log.drop(), error)
            self._start_over()
        except (OutcomeUnknown, StorageError) as error:
            self._abandon(error)

    def _settle_or_raise(self) -> None:
        flight = self.log.settle()
        body: Body = flight.body
        self._know(body.after)
        self._committed(flight.position, body.after, body.checkpoint)  # first: who waits may wait for upkeep next
        self._settled.append(flight)

    def _tell(self) -> bool:
        """Tell who waits for what was settled. True if there was any."""
        told = bool(self._settled)
        while self._settled:
            flight = self._settled.popleft()
            body: Body = flight.body
            for pending, results in body.accepted:
                pending.future.set_result(Receipt(flight.position.address, results, pending.tries, body.after))
            self._deliver(body.rejected)
        return told

    def _deliver(self, rejected: list[tuple[Pending, Rejected]]) -> None:
        for pending, error in rejected:
            self._deliver_failure([pending], error)

    def _deliver_failure(self, batch: Sequence[Pending], error: BaseException) -> None:
        for pending in batch:
            if not pending.future.done():
                pending.future.set_exception(error)
                if pending.chunk is not None and isinstance(error, Rejected):
                    self._forget(pending.chunk)

    def _deliver_unknown(self, flights: Sequence[Flight], cause: Exception) -> None:
        error = cause if isinstance(cause, OutcomeUnknown) else OutcomeUnknown(str(cause))
        for flight in flights:
            self._deliver_failure([pending for pending, _ in flight.body.accepted], error)
            self._requeue([pending for pending, _ in flight.body.rejected])

    def _catch_up(self) -> None:
        """Another writer was there first: read on, apply, and queue our operations again to be validated anew (W2)."""
        flights = self.log.drop()
        again = [pending for flight in flights for pending in self._of(flight)]
        self._again(again)
        self._ahead = self.state
        self._follow()
        if self.log.losses and self.log.losses % 2 == 0:  # who asked tries twice before it asks again
            self._read_on(self.log.ask)

    def _again(self, batch: Sequence[Pending]) -> None:
        """Queue what lost a race again; large payload goes to a chunk first."""
        for pending in batch:
            pending.spill = pending.spill or pending.payload() >= SPILL_BYTES
        self._requeue(batch)

    @staticmethod
    def _of(flight: Flight) -> list[Pending]:
        body: Body = flight.body
        return [pending for pending, _ in body.accepted] + [pending for pending, _ in body.rejected]

    def _requeue(self, batch: Sequence[Pending]) -> None:
        with self._wake:
            self._queue.put_back([pending for pending in batch if not pending.future.done()])

    def _abandon(self, error: Exception) -> None:
        """The storage does not answer or refuses: tell whoever waits, and go on as another writer."""
        unknown = isinstance(error, OutcomeUnknown)
        flights = self.log.renew()
        if unknown:
            self._deliver_unknown(flights, error)
        else:
            for flight in flights:
                self._deliver_failure(self._of(flight), error)
        self._ahead = self.state

    # --- following ---------------------------------------------------------------------------------------------

    def _follow(self) -> bool:
        """Read on and apply. True when there was something new. Nothing may be in flight."""
        before = self.state
        self._read_on(self.log.follow)
        return self.state is not before

    def _read_on(self, read: Callable[[], list[Frame]]) -> None:
        try:
            self._apply(read())
        except LogMoved:
            self._start_over()
            self._read_on(self.log.follow)

    def _apply(self, live: Sequence[Frame]) -> None:
        if not live:
            return
        state = self.state
        for frame in live:
            state = apply_frame(state, frame)
        self._ahead = state
        self._know(state)
        if self._exclusive:
            self.fail(NotPrimary(f"frame {live[0].position.address} of the log was written by another process"))
            self._check_online()

    def _start_over(self) -> None:
        """What was seen may have been deleted behind our back: open again from the newest checkpoint (W7)."""
        self.log, state = self._reopen()
        self._ahead = state
        self._know(state)
        if self._exclusive:
            self.fail(NotPrimary("the process was stopped for longer than the grace period of the log allows"))
            self._check_online()

    # --- failing -----------------------------------------------------------------------------------------------

    def fail(self, error: BaseException) -> None:
        """Take the container offline and tell all who wait."""
        if not isinstance(error, EngineError | StorageError):
            logger.error("the operation processor stopped: %r", error)
        with self._wake:
            self.failure = error
            queued = self._queue.clear()
        told = self._told(error)
        self._deliver_failure(queued, told)
        for flight in self.log.drop():
            self._deliver_failure([pending for pending, _ in flight.body.rejected], told)
            self._deliver_failure([pending for pending, _ in flight.body.accepted], OutcomeUnknown(str(told)))

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


def apply_frame(state: State, frame: Frame) -> State:
    """The state after a live frame. A transaction that cannot be applied means that the log is not what was written."""
    own = FrameRef(frame.position.address, frame.payload_start)
    if frame.kind is Kind.REPAIR:
        _, swept = msgpack.unpackb(frame.meta)
        return state._replace(swept=max(state.swept, swept))
    try:
        return state.replay(decode_transactions(frame.meta, own), frame.position.address)
    except Rejected as error:
        raise DataCorruption(f"frame {frame.position.address} cannot be applied: {error}") from error
