"""The frame settler: waits for the frames in flight, and acts on what became of them.

Keeps W3 (frames settle in the order of the log), and W2 after a lost race: what was in the lost frames is queued again
and validated against the state behind the winner. What may be in the log and cannot be found out is reported as unknown
(W11).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from chunkstore import StorageError
from engine.errors import LogMoved, OutcomeUnknown, Overtaken, RootReplaced
from engine.logs.acknowledgements import guarded
from engine.logs.carrier import Carrier
from engine.logs.commit_context import CommitContext
from engine.logs.log import RACE_WINDOW, Flight
from engine.logs.submitter import Submitter
from engine.logs.transaction import Transaction
from engine.logs.validation import ValidationResult

logger = logging.getLogger(__name__)

RING = 3
"""Races lost in a short time, after which this process rings for a maker that does not listen: the maker may not know
that it has company."""

LEAD = 2
"""From so many frames of one epoch on, made in quick succession since this process last knew the log's end, their maker
is expected to win the next races too: this process rings for it after the first one. Where epochs change, many race,
and bells in the way of all would only make that worse."""

RUNG_TRIPS = 16
"""Round trips at most until a maker that was rung for says that it listens."""

QUIET_TRIPS = 4
"""Round trips without a frame after which it makes none: to run into the bell, read on and make a frame takes three."""


class FrameSettler:
    """Settles the frames in flight. Callers hold the processor's log lock."""

    def __init__(self, context: CommitContext, submitter: Submitter, carrier: Carrier) -> None:
        self._context = context
        self._replica = context.replica
        self._submitter = submitter
        self._carrier = carrier

    def settle(self) -> None:
        """Wait for the first frame in flight and act on its outcome."""
        try:
            self.settle_or_raise()
        except (Overtaken, LogMoved, OutcomeUnknown, StorageError) as error:
            self.recover(error)

    def settle_or_raise(self) -> None:
        """Wait for the first frame in flight. Raises as `Log.settle`; the frames are still in flight then."""
        flight = self._replica.log.settle()
        self._context.acknowledgements.settled.append(flight)
        result: ValidationResult = flight.body
        self._replica.state = result.state
        if self._carrier.inbox.unsettled:
            self._carrier.frame_settled(result.transactions())
        self._submitter.own_frame_settled(flight.position.epoch)
        # Before callers are notified: one that waits may wait for maintenance next.
        guarded(self._replica.observer.committed, flight.position, result.state, result.checkpoint)

    def catch_up(self) -> None:
        """Settle what is in flight, then read the log to its end."""
        self._replica.must_catch_up = False
        while self._replica.log.flights:
            self.settle()
        self._context.acknowledgements.complete_settled()
        self._replica.read_to_end()

    def recover(self, error: Exception) -> None:
        """Act on an error because of which no frame in flight will be acknowledged any more."""
        replica = self._replica
        if isinstance(error, Overtaken):
            self._retry_behind_the_winner()
        elif isinstance(error, LogMoved):
            self._report_unknown(replica.log.drop(), error)
            replica.reopen()
        elif isinstance(error, RootReplaced):
            self._report_unknown(replica.log.renew(), error)
            self._context.fail(error)
        elif isinstance(error, OutcomeUnknown):
            self._report_unknown(replica.log.renew(), error)
            replica.optimistic = replica.state
        else:  # the storage refused the first one, so those behind it are void; the log's next writer is another (W1)
            self._submitter.forget(error)
            for flight in replica.log.renew():
                self._context.acknowledgements.fail(flight.body.transactions(), error)
            replica.optimistic = replica.state

    def _retry_behind_the_winner(self) -> None:
        """Another writer made the frame first: read on, apply, and queue our transactions for validation again (W2)."""
        replica = self._replica
        flights = replica.log.drop()
        self._context.queue.retry_after_lost_race([each for flight in flights for each in flight.body.transactions()])
        replica.optimistic = replica.state
        since, epoch = replica.log.end_seen, replica.log.head.epoch
        count = replica.read_to_end()
        log = replica.log
        busy = count >= LEAD and log.head.epoch == epoch and log.made_often(count, since)
        if (busy or log.losses % RING == 0) and not self._submitter.maker_listens:
            self._ring()
        self._submitter.wait_again()

    def _ring(self) -> None:
        """Ring for the maker, and read on while it makes frames and does not say that it listens: it would win the
        races meanwhile."""
        replica, clock = self._replica, self._context.clock
        replica.log.ring()
        begun, quiet = clock(), 0
        for trip in range(1, RUNG_TRIPS + 1):
            head = replica.log.head
            replica.read_some(RACE_WINDOW)
            quiet = quiet + 1 if replica.log.head == head else 0
            if self._submitter.maker_listens or quiet == QUIET_TRIPS:
                break
            self._context.sleep(max(begun + trip * replica.log.round_trip - clock(), 0.0))

    def _report_unknown(self, flights: Iterable[Flight], cause: Exception) -> None:
        error = cause if isinstance(cause, OutcomeUnknown) else OutcomeUnknown(str(cause))
        for flight in flights:
            self._context.acknowledgements.fail([transaction for transaction, _ in flight.body.accepted], error)
            self._context.queue.retry([transaction for transaction, _ in flight.body.rejected])

    def settle_before_failing(self) -> set[Transaction]:
        """Settle what is in flight, as far as that can be done; the transactions that are in no live frame."""
        log = self._replica.log
        try:
            while log.flights:
                self.settle_or_raise()
        except Overtaken:
            return {transaction for flight in log.drop() for transaction in flight.body.transactions()}
        except BaseException as error:
            logger.warning("the outcome of %d frames in flight is not waited for: %s", len(log.flights), repr(error))
            log.flights.clear()
        return set()
