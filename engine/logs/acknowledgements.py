"""Acknowledgements: completes each transaction with its outcome.

Keeps W3 (in the order of the log) and W11: each transaction is completed once, by one method, with success if and only
if its frame is live. Owns the transactions that were submitted and are not completed, and releases the room that the
throttle counts for them.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from engine.errors import Rejected
from engine.logs.log import Flight
from engine.logs.throttle import Throttle
from engine.logs.transaction import Receipt, Transaction, wake_next
from engine.logs.validation import ValidationResult

logger = logging.getLogger(__name__)


class Acknowledgements:
    """Completes the transactions of callers.

    Args:
        throttle: holds callers back that bring more payload than can be worked off.
        delete_chunk: deletes a chunk that no segment names.

    settled: frames that are live, and whose transactions are not completed. They are put there without a call, which
    could fail between a frame's way out of the log and its place here.
    """

    def __init__(self, throttle: Throttle, delete_chunk: Callable[[str], None]) -> None:
        self._throttle = throttle
        self._delete_chunk = delete_chunk
        self.settled: deque[Flight] = deque()
        self._pending: set[Transaction] = set()

    def register(self, transaction: Transaction) -> None:
        """It is about to be queued: it will be completed."""
        self._pending.add(transaction)

    def withdraw(self, transaction: Transaction) -> None:
        """An error came between its caller and the queue. If it is not queued, nothing else will complete it."""
        if transaction.number < 0:
            self._pending.discard(transaction)
            if transaction.admitted:  # otherwise the throttle's lock is not taken: a fork may hold it for ever (W10)
                self._throttle.release(transaction)

    def pending(self) -> list[Transaction]:
        """The transactions that were submitted so far, and are not completed."""
        return list(self._pending)

    def complete_settled(self) -> bool:
        """Complete the transactions of settled frames. True if there were any frames."""
        if not self.settled:
            return False
        while self.settled:
            flight = self.settled[0]
            result: ValidationResult = flight.body
            chain: deque[Transaction] = deque()
            for transaction, results in result.accepted:
                receipt = Receipt(flight.position.address, results, transaction.tries, result.state)
                self.complete(transaction, receipt, chain)
            wake_next(chain)
            for transaction, error in result.rejected:
                self.complete(transaction, error)
            if self.settled and self.settled[0] is flight:  # a callback may have come back here
                self.settled.popleft()
        return True

    def fail(self, batch: Iterable[Transaction], error: BaseException) -> None:
        """Complete transactions with the same error."""
        for transaction in batch:
            self.complete(transaction, error)

    def complete(
        self, transaction: Transaction, outcome: Receipt | BaseException, chain: deque[Transaction] | None = None
    ) -> None:
        """Set the outcome of a transaction, once: nothing else does.

        A Receipt says that its frame is live, OutcomeUnknown that it may be; all other errors that it is not: Rejected
        by what the log says, StorageError and DataCorruption by what keeps it from being sent, ContainerOffline.
        """
        if transaction.outcome is not None:
            transaction.release()  # if something went wrong as it was completed
            return
        if transaction.admitted:
            self._throttle.release(transaction)
        transaction.complete(outcome, chain)
        self._pending.discard(transaction)
        if transaction.chunk is not None and isinstance(outcome, Rejected):
            guarded(self._delete_chunk, transaction.chunk)


def guarded(call: Callable[..., None], *args: Any) -> None:
    """Do what follows an operation whose outcome stands; an error of it is logged and not raised."""
    try:
        call(*args)
    except Exception:
        logger.exception("%s failed; the operations before it are not affected", call)
