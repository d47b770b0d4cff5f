"""The frame sender: lets the transactions at the head of the queue leave, in a frame or to another process.

Keeps W2 (validate before sending, against the state behind the frames in flight), W4 (spanning transactions), and of
W11: a rejection is final only if it was validated against a state that is the log's and no older than the call. What
was looked up is validated like everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from chunkstore import ObjectNotFound, StorageError
from engine.errors import DataCorruption, LogMoved, ObjectLost, OutcomeUnknown, Overtaken, Unresolved
from engine.logs.carrier import Carrier
from engine.logs.commit_context import CommitContext
from engine.logs.frame_settler import FrameSettler
from engine.logs.frames import HEADER
from engine.logs.log import MAKER_TRIPS, OWNER_TRIPS, RENEWED
from engine.logs.long_term_storage import LongTermStorage
from engine.logs.payload import Layout
from engine.logs.submitter import Submitter
from engine.logs.transaction import Transaction, payload_size
from engine.logs.validation import ValidationResult, keys_together, spans, validate
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


class FrameSender:
    """Sends the frames of a container. Callers hold the processor's log lock.

    Args:
        storage: the long-term storage behind the log.
        now: the time that operations are stamped with, seconds since the epoch.
        inline: frames are put by the calling thread where that takes no longer than waking another one.

    max_flights: the most frames in flight; max_transactions: the most transactions of one frame. inline_commit: the
    calling thread of a commit holds the log lock, and puts its frames itself.
    """

    def __init__(
        self,
        context: CommitContext,
        submitter: Submitter,
        carrier: Carrier,
        settler: FrameSettler,
        storage: LongTermStorage,
        now: Callable[[], float],
        inline: bool,
    ) -> None:
        self.max_flights = context.settings.flights
        self.max_transactions = context.settings.frame_transactions
        self.inline_commit = False
        self._context = context
        self._replica = context.replica
        self._submitter = submitter
        self._carrier = carrier
        self._settler = settler
        self._storage = storage
        self._now = now
        self._inline = inline

    @property
    def allowed_flights(self) -> int:
        """How many frames may be in flight now."""
        if self._replica.must_catch_up or self._one_at_a_time():
            return min(self.max_flights, 1)
        return self.max_flights

    def _one_at_a_time(self) -> bool:
        """Whether what comes meanwhile leaves with the next frame. Where a request takes no longer than waking threads,
        or all writers are on this host, several frames in flight would only be smaller ones."""
        return (self._inline or self._carrier.inbox.gathers) and self._replica.log.in_company(MAKER_TRIPS)

    def send(self) -> None:
        """Let transactions at the head of the queue leave: in a frame, or to another process that makes the frames."""
        replica, submitter = self._replica, self._submitter
        if replica.must_catch_up or replica.log.unapplied:
            self._settler.catch_up()
        if replica.log.proof_is_older_than(RENEWED) and not replica.log.flights:
            replica.read(replica.log.follow)
        if submitter.outbox.waiting:
            submitter.recall()  # the order of submission is that of own frames too
        position = replica.log.upcoming()
        batch = self._take(position.epoch)
        if not batch or not self._spilled(batch):
            return
        if submitter.accepts(batch):
            submitter.submit(batch)
            return
        try:
            self._send_frame(batch, Layout(position.address, self._send_piece if spans(batch[0]) else None))
        except (Overtaken, LogMoved) as error:  # while the pieces of a spanning transaction were on their way
            self._context.queue.retry_after_lost_race(batch)
            self._settler.recover(error)
        except (OutcomeUnknown, StorageError) as error:  # likewise; the transaction itself was not sent
            submitter.forget(error)
            self._context.acknowledgements.fail(batch, error)
            self._settler.recover(error)

    def _take(self, epoch: int) -> list[Transaction]:
        """The next transactions to leave. What another process submitted has no place in a frame of another epoch
        (rule epoch). A transaction may be completed while it waits here for an own frame (rules once, moved)."""
        return [
            each
            for each in self._context.queue.take(self.max_transactions)
            if each.outcome is None and (each.carrying is None or each.carrying.address.epoch == epoch)
        ]

    def _send_frame(self, batch: Sequence[Transaction], layout: Layout) -> None:
        """Validate transactions, and send those that are accepted."""
        time_ms = int(self._now() * 1000)
        result = validate(self._replica.optimistic, batch, layout, time_ms)
        if result.invalid:
            self._fail_invalid(result)
        answers = _answers(result) if result.carries else ()
        if result.logged or answers or self._carrier.leaving or self._rejects_submitted(result):
            self._add_own_operations(result, answers, layout.frame.address, time_ms)
            meta = encode_transactions(result.logged, layout.frame)
            layout.frame.start = HEADER + len(meta)
            for transaction, _ in result.accepted:
                transaction.tries += 1
                transaction.sent = True
            self._replica.optimistic = result.state
            self._launch(meta, layout, result)
        else:
            self._refuse(result)
        if result.unresolved:
            self._look_up(result.unresolved)

    def _rejects_submitted(self, result: ValidationResult) -> bool:
        """Whether a rejected transaction was submitted to another process, which may do it until a frame of this
        process is live, be it an empty one."""
        return any(transaction in self._submitter.outbox for transaction, _ in result.rejected)

    def _fail_invalid(self, result: ValidationResult) -> None:
        for transaction, error in result.invalid:
            if transaction in self._submitter.outbox:
                result.rejected.append((transaction, error))
            else:
                self._context.acknowledgements.complete(transaction, error)

    def _add_own_operations(
        self, result: ValidationResult, answers: tuple[Answer, ...], address: int, time_ms: int
    ) -> None:
        """Add what a frame says to the processes that submit to this one, and a Checkpoint if one is due."""
        carrier, log = self._carrier, self._replica.log
        added: list[Operation] = []
        if answers or carrier.leaving or carrier.would_listen():
            if log.upcoming().epoch > log.head.epoch:
                log.meet()  # it listens for as long as owners may believe this frame
            added.append(AnswerSubmissions(answers, carrier.leaving))
        if self._replica.observer.checkpoint_due(address - result.state.checkpoint):
            added.append(Checkpoint())
        if added:
            result.logged.append(LoggedTransaction(time_ms, tuple(added)))
            result.state, _ = apply(result.state, result.logged[-1], address)
        result.checkpoint = result.state.checkpoint == address

    def _launch(self, meta: bytes, layout: Layout, result: ValidationResult) -> None:
        inline = self.inline_commit or (self._inline and self._one_at_a_time())
        flight = self._replica.log.send(meta, layout.buffers, result, inline)
        if self._context.notify is not None and not inline:
            flight.future.add_done_callback(self._context.notify)

    def _send_piece(self, layout: Layout) -> int:
        """Send payload of a spanning transaction ahead of it; the address of the next frame."""
        while len(self._replica.log.flights) >= self.max_flights:
            self._settler.settle_or_raise()
        layout.frame.start = HEADER
        self._launch(b"", layout, ValidationResult(self._replica.optimistic))
        return self._replica.log.upcoming().address

    # --- before a frame ------------------------------------------------------------------------------------------

    def _spilled(self, batch: Sequence[Transaction]) -> bool:
        """Write large payload to chunks first. False if the storage refused, which failed the batch."""
        try:
            for transaction in batch:
                large = transaction.is_large() and transaction.chunk is None and transaction.carrying is None
                if large and (transaction.spill or self._replica.log.in_company(OWNER_TRIPS)):
                    self._spill(transaction)
        except StorageError as error:
            self._submitter.forget(error)
            self._context.acknowledgements.fail(batch, error)
            return False
        return True

    def _spill(self, transaction: Transaction) -> None:
        """Write a large payload that has lost a race to a chunk, so that the next frame only refers to it."""
        epoch = self._replica.log.upcoming().epoch
        transaction.chunk, extents, created_at = self._storage.spill(transaction, epoch)
        bound: list[Operation] = []
        for operation in transaction.operations:
            if isinstance(operation, Append) and isinstance(operation.content, Payload):
                content = (extents.pop(0),) if operation.content else ()
                operation = operation._replace(content=content, created_at=created_at)
            bound.append(operation)
        transaction.operations = tuple(bound)
        transaction.size = payload_size(bound)

    # --- instead of a frame --------------------------------------------------------------------------------------

    def _refuse(self, result: ValidationResult) -> None:
        """Complete rejected transactions: at once those that were submitted before the log was last read to its end, if
        all of the state they were validated against is known to be the log's (W5, W11). The others wait for that."""
        replica = self._replica
        final = [(each, error) for each, error in result.rejected if each.number <= replica.verified_up_to]
        if replica.log.flights:
            replica.log.flights[-1].body.rejected.extend(final)
        else:
            for transaction, error in final:
                self._context.acknowledgements.complete(transaction, error)
        unverified = [each for each, _ in result.rejected if each.number > replica.verified_up_to]
        if unverified:
            replica.must_catch_up = True
            self._context.queue.retry(unverified)

    def _look_up(self, unresolved: Sequence[tuple[Transaction, Unresolved]]) -> None:
        """Look up in LTS what transactions depend on, and queue them again with that."""
        replica, resolved = self._replica, []
        for transaction, error in unresolved:
            try:
                keys = keys_together(transaction, error, replica.optimistic)
                transaction.looked_up |= self._storage.look_up(replica.optimistic, error.table, keys)
            except ObjectNotFound as gone:  # the state is out of date, and the object that it names was deleted
                layout = replica.optimistic.tables[error.table].layout
                if transaction.missing_table == layout:  # though the log has been read to its end since
                    self._fail_look_up(transaction, ObjectLost(str(gone)))
                    continue
                transaction.missing_table, replica.must_catch_up = layout, True
            except (StorageError, DataCorruption) as failure:
                self._fail_look_up(transaction, failure)
                continue
            resolved.append(transaction)
        self._context.queue.put_back(resolved)

    def _fail_look_up(self, transaction: Transaction, error: Exception) -> None:
        if transaction in self._submitter.outbox:
            self._submitter.forget(error)
        self._context.acknowledgements.complete(transaction, error)


def _answers(result: ValidationResult) -> tuple[Answer, ...]:
    """What a frame says to the processes whose transactions it carries, or refuses."""
    answers = [each.carrying.answer(results) for each, results in result.accepted if each.carrying is not None]
    answers += [each.carrying.answer(None) for each, _ in result.rejected if each.carrying is not None]
    return tuple(answers)
