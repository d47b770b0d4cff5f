"""The submitter: hands transactions to the maker of an epoch, and waits for their outcome (W18).

The maker is the process that makes the frames of the epoch; this one is the owner of the transactions.

Keeps of W18 what binds an owner on its way to the maker and back: what is submitted may be put into own frames at any
time, its outcome comes from live frames only, and it is unknown once this process cannot look for it any more. The
outbox knows what is outstanding.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence

from chunkstore import StorageError
from chunkstore.metrics import default_metrics
from engine.errors import OutcomeUnknown
from engine.logs.acknowledgements import guarded
from engine.logs.commit_context import CommitContext
from engine.logs.log import MAX_WINDOW, OWNER_TRIPS
from engine.logs.mailbox import Delivery, Kind
from engine.logs.outbox import Outbox
from engine.logs.replica import AppliedFrame
from engine.logs.submission import Address, encode, submission_path
from engine.logs.transaction import Receipt, Transaction, wake_next

logger = logging.getLogger(__name__)

_METRICS = default_metrics().layer("log")

SUBMITTED_BYTES = 1 << 20
"""The most payload of one submission. A transaction that has more goes into an own frame."""

ONE_BY_ONE = 3
"""Frames that an owner reads with a request each, as its outcome is in one of the next as a rule. If they are not the
last ones, it reads ever more at once: it would not catch up with a maker that makes frames as fast as it reads them."""


class Submitter:
    """Submits transactions of this process to another one. Callers hold the processor's log lock.

    outbox: what is outstanding. enabled: False where all transactions go into own frames.
    """

    def __init__(self, context: CommitContext) -> None:
        self.outbox = Outbox(context.clock)
        self.enabled = True
        self._context = context
        self._replica = context.replica

    @property
    def maker_listens(self) -> bool:
        """Whether the maker of the head's epoch listens, by its newest frame."""
        return self.outbox.listening == self._replica.log.head.epoch

    # --- there ---------------------------------------------------------------------------------------------------

    def accepts(self, batch: Sequence[Transaction]) -> bool:
        """Whether these go to another process, which makes the frames of this epoch."""
        log = self._replica.log
        if log.flights or not self.enabled or self.outbox.active or not log.made_elsewhere:
            return False
        if not (log.in_company(OWNER_TRIPS) and self.outbox.may_submit(log.head.epoch)):
            return False
        return batch[0].size <= SUBMITTED_BYTES and not any(transaction.direct for transaction in batch)

    def submit(self, batch: Sequence[Transaction]) -> None:
        """Submit transactions to the maker of the head's epoch; those that are too many for one submission go back into
        the queue."""
        log = self._replica.log
        taken, size = 0, 0
        while taken < len(batch) and size + batch[taken].size <= SUBMITTED_BYTES:
            size += batch[taken].size
            taken += 1
        self._context.queue.put_back(batch[taken:])
        batch = batch[:taken]
        address = self.outbox.new_address(log.head.epoch)
        data = encode(log.container, address, [transaction.operations for transaction in batch])
        self.outbox.submit(batch, address)
        for transaction in batch:
            transaction.tries += 1
            transaction.sent = True
        try:
            delivery = self._deliver(address, data)
        except StorageError as error:  # it may be there all the same
            logger.info("container %d: submitting to another process failed: %s", log.container, str(error))
            self.recall()
            return
        if delivery is Delivery.DEAD:
            self.outbox.listening = -1
            self.recall()
        else:
            self.outbox.begin_to_wait(log.round_trip, notified=delivery is Delivery.SENT)

    def _deliver(self, address: Address, data: bytes) -> Delivery:
        """Deliver a submission to the writer that makes the epoch's frames: as a message to its mailbox (SENT), or as
        an object (NOBODY). DEAD: that writer was on this host, and has ended. Raises StorageError; the submission may
        be there all the same."""
        log = self._replica.log
        mailbox = self._context.mailbox.open(log.writer)
        if mailbox is not None:
            delivery = mailbox.send(log.head.writer, Kind.SUBMISSION, data)
            if delivery is not Delivery.NOBODY:
                _METRICS.add("submit_message", 0.0, len(data), None)
                return delivery
        with _METRICS.measure("submit") as measurement:
            sent = self._context.clock()
            log.store.post(submission_path(log.container, address), data)
            log.guess_trip(self._context.clock() - sent)
            measurement.bytes = len(data)
        return Delivery.NOBODY

    # --- the outcome ---------------------------------------------------------------------------------------------

    @property
    def look_due(self) -> bool:
        """Whether the log is to be read for the outcome now."""
        return self.outbox.waiting and not self._replica.log.flights and self._context.clock() >= self.outbox.next_look

    def wait_and_look(self) -> None:
        """Wait until that is so, and read."""
        self._context.sleep(max(self.outbox.next_look - self._context.clock(), 0.0))
        self.look()

    def look(self) -> None:
        """Read the log for the outcome of a submission. After a long wait its transactions go into an own frame."""
        ended, reads = False, 0
        while not ended and (self.outbox.waiting or self._context.queue.transactions):  # which go to the present maker
            reads += 1
            ended = self._replica.read_some(min(1 << max(reads - ONE_BY_ONE, 0), MAX_WINDOW))
        self.outbox.looked(self._replica.log.round_trip)
        if self.outbox.waiting and self.outbox.impatient:
            self._replica.log.meet()  # its frame says that it listens: what others submitted is void with this epoch
            self.recall()

    def frame_applied(self, applied: AppliedFrame) -> None:
        """Act on a live frame of another process: complete the transactions that it carries."""
        frame, after, carried = applied
        log = self._replica.log
        concerned = self.outbox.active or log.in_company(OWNER_TRIPS)
        outcomes = self.outbox.read(frame.position.epoch, carried, log.round_trip)
        if outcomes.void or (concerned and carried is not None and carried.answers):
            log.meet()
        chain: deque[Transaction] = deque()
        for transaction, results in outcomes.done:
            receipt = Receipt(frame.position.address, results, transaction.tries, after)
            self._context.acknowledgements.complete(transaction, receipt, chain)
        wake_next(chain)
        for transaction in outcomes.refused:
            transaction.direct = True
        self._context.queue.retry([*outcomes.void, *outcomes.refused])
        if outcomes.done:
            guarded(self._replica.observer.committed, frame.position, after, False)

    def own_frame_settled(self, epoch: int) -> None:
        """Act on a live frame of this process: if it begins an epoch, what was submitted to the last one is void."""
        if self.outbox.active:
            self._context.queue.retry(self.outbox.read(epoch, None, self._replica.log.round_trip).void)
        self.outbox.served()

    def recall(self) -> None:
        """What was submitted goes into own frames; the submission may be carried all the same."""
        self._context.queue.put_back(self.outbox.recall())

    def wait_again(self) -> None:
        """Own frames lost the race, and what was submitted is not void: wait for its outcome again."""
        if self.outbox.recalled:
            self._context.queue.discard(self.outbox.wait_again(self._replica.log.round_trip))

    def forget(self, why: Exception) -> None:
        """The outcome of a submission cannot be looked for any more: it is unknown (rules once, moved)."""
        left = self.outbox.forget()
        if left:
            error = OutcomeUnknown(f"it was submitted to another process, and may be done: {why}")
            self._context.acknowledgements.fail(left, error)
