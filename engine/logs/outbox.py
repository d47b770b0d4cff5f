"""The outbox: what this process has submitted to the maker of an epoch, and whose outcome it does not know yet (W18).

Keeps of W18 what binds an owner. One submission is outstanding at a time. Its transactions are completed by live frames
only (rule live); they are queued again when a live frame of a higher epoch came without them, which makes the
submission void for ever (early), but may be put into own frames at any time (recalled), and then are not queued again
from here (flown). A completed transaction is never completed again, whatever comes of its submission (once, moved).
Nothing is submitted to a maker whose newest frame does not say that it listens (listens).
"""

from __future__ import annotations

import os
import random
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from chunkstore.metrics import default_metrics
from engine.logs.log import CROWD
from engine.logs.submission import Address
from engine.logs.transaction import Transaction
from engine.state.operations import AnswerSubmissions

_METRICS = default_metrics().layer("log")

PATIENCE_TRIPS = 16
"""Round trips after the last frame whose maker listens, after which an owner makes a frame itself, besides
PATIENCE_TIMES the time that it usually takes, or that the last frame took if that is longer (PATIENCE_TRIPS at most);
times 1 to 2 at random, as not all of them are to do it at once."""

UNANSWERED = 3
"""The owner's patience is divided by this until such a frame comes after its submission, as the maker may have stopped
listening earlier. It is not if the newest frame answered a crowd."""

EXPECTED = 0.7
"""The part of the usual time after which an outcome is looked for first."""

LONGEST_WAIT_TRIPS = 5
"""Round trips after which it is looked for at the latest, unless the maker serves a crowd: to put, list, get and make a
frame takes four."""

LOOK_TRIPS = 0.5
"""Round trips from the end of one look to the next, at least."""

WAITED = 8
"""The time since the submission, divided by this, is the least pause too: among many owners the maker takes long, and
all of them would ask for the next frame over and over."""

PATIENCE_TIMES = 4
"""See PATIENCE_TRIPS."""

LEAST_PATIENCE = 0.1
"""Seconds; processes of one busy machine are held up for longer than their storage takes."""

PASSED_OVER = 16
"""Frames that carried transactions of other processes, since a frame last carried one of this process, after which it
makes a frame itself however busy the maker is: the maker may be unable to read what was submitted, or have dropped it.
CROWD frames that answer a crowd count as one, as the maker takes in what many submit by turns.
Submissions that become void do not count: many processes would race then, and make the submissions of all others
void."""


class Outcomes(NamedTuple):
    """What a live frame says of a submission. done: its transactions that are in the log, with the results of their
    operations. void: those that will not be, and are to be queued again. refused: those that the maker did not put into
    its frame, for this process to decide."""

    done: list[tuple[Transaction, list[Any]]]
    void: list[Transaction]
    refused: list[Transaction]


class Outbox:
    """What one process has submitted. clock: seconds.

    active: a submission is outstanding: its outcome is not known, and it is not void. waiting: its outcome is waited
    for: its transactions are neither queued nor in flight here. recalled: they are. next_look: when the log is to be
    read for the outcome. listening: the epoch whose maker listens, by its newest frame; -1: none.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._owner = uuid.uuid4().bytes
        self._number = 0
        self._address: Address | None = None
        self._transactions: dict[int, Transaction] = {}
        self._sent = 0.0
        self._took: deque[float] = deque(maxlen=4)  # seconds until an outcome
        self._deadline = 0.0
        self._notified = False
        self.active = False
        self.waiting = False
        self.recalled = False
        self._passed_over = 0.0  # frames that carried transactions of other processes, since one served this one
        self._heard = 0.0  # when the newest frame was read whose maker listens
        self._frame_took = 0.0  # seconds from the frame before it, or from the submission
        self._crowded = False  # it answered a crowd
        self.next_look = 0.0
        self.listening = -1

    def _note(self, address: Address | None, recalled: bool) -> None:
        self._address = address
        self.active, self.recalled = address is not None, recalled
        self.waiting = self.active and not recalled

    def __contains__(self, transaction: Transaction) -> bool:
        return any(each is transaction for each in self._transactions.values())

    def new_address(self, epoch: int) -> Address:
        """The address of the next submission, to the maker of an epoch."""
        self._number += 1
        return Address(epoch, self._owner, self._number, os.urandom(8))

    def submit(self, batch: Sequence[Transaction], address: Address) -> None:
        """The transactions of `batch` are submitted from now on."""
        assert self._address is None, "one submission at a time"
        self._transactions = dict(enumerate(batch))
        self._note(address, False)
        self._sent = self._clock()

    def wait_again(self, round_trip: float) -> list[Transaction]:
        """Own frames lost the race: wait again for the outcome of the transactions that are not completed, which are
        returned. If all of them were completed meanwhile, the submission is forgotten (rule once)."""
        self._transactions = {place: each for place, each in self._transactions.items() if each.outcome is None}
        if not self._transactions:
            return self.forget()
        self.begin_to_wait(round_trip)
        return list(self._transactions.values())

    def begin_to_wait(self, round_trip: float, notified: bool = False) -> None:
        """Wait for the outcome from now on. notified: the maker sends a message when it is there."""
        self._note(self._address, False)
        now = self._clock()
        self._be_patient(now, round_trip, 1 if self._crowded else UNANSWERED)
        self._notified = notified
        if notified:
            self.next_look = self._deadline
            return
        expected = EXPECTED * self._usual
        if not self._crowded:
            expected = min(expected, LONGEST_WAIT_TRIPS * round_trip)
        self.next_look = max(now + round_trip / 2, min(self._sent + expected, self._deadline))

    def _be_patient(self, now: float, round_trip: float, part: int = 1) -> None:
        if self._passed_over >= PASSED_OVER:
            return  # a race that is lost is tried again at once, too
        least = PATIENCE_TRIPS * round_trip
        usual = max(self._usual, min(self._frame_took, least))
        patience = (least + PATIENCE_TIMES * usual) / part
        self._deadline = now + max(patience, LEAST_PATIENCE) * random.uniform(1, 2)

    def looked(self, round_trip: float) -> None:
        """The log was read to its end."""
        now = self._clock()
        soon = now + max(LOOK_TRIPS * round_trip, (now - self._sent) / WAITED)
        self.next_look = max(soon, self._deadline) if self._notified else max(min(soon, self._deadline), now)

    def may_submit(self, epoch: int) -> bool:
        """Whether the maker of an epoch is submitted to: it listens, and this process was not passed over for long."""
        return epoch == self.listening and self._passed_over < PASSED_OVER

    def served(self) -> None:
        """A frame of this process is live."""
        self._passed_over = 0

    def read(self, frame_epoch: int, carried: AnswerSubmissions | None, round_trip: float) -> Outcomes:
        """The outcomes in a live frame of an epoch. carried: the transactions that it carries, which also says that its
        maker listens; None: it does not."""
        outcomes, now = Outcomes([], [], []), self._clock()
        listens = carried is not None and not carried.leaving
        self.listening = frame_epoch if listens else -1
        self._crowded = carried is not None and len(carried.answers) >= CROWD
        if self._address is None:
            return outcomes
        for owner, number, nonce, place, results in carried.answers if carried is not None else ():
            if (owner, number) == (self._owner, self._address.number) and nonce != self._address.nonce:
                self._owner = uuid.uuid4().bytes  # of the next one: a clone of this process's memory has the old one
            if (owner, number, nonce) != self._address[1:]:
                continue
            transaction = self._transactions.pop(place, None)
            if transaction is None:
                continue
            self._note_time(now)
            if results is None:
                outcomes.refused.append(transaction)
            else:
                outcomes.done.append((transaction, [result.value for result in results]))
        void = frame_epoch > self._address.epoch and bool(self._transactions)
        if outcomes.done or outcomes.refused:
            self._passed_over = 0
        elif carried is not None and carried.answers:
            self._passed_over += 1 / CROWD if self._crowded else 1
        if listens:
            self._frame_took, self._heard = now - max(self._heard, self._sent), now
            self._be_patient(now, round_trip)
        else:
            self._deadline = now + 2 * round_trip * random.random()
            self.next_look = min(self.next_look, self._deadline)
        if void:
            _METRICS.add("void_submission", now - self._sent, 0, None)
        if void or not self._transactions:
            if not self.recalled:
                outcomes.void.extend(self._transactions.values())
            self.forget()
        return outcomes

    def _note_time(self, now: float) -> None:
        took = now - self._sent
        _METRICS.add("carried", took, 0, None)
        self._took.append(took)

    @property
    def _usual(self) -> float:
        """Seconds until an outcome, when nothing holds it up."""
        return min(self._took, default=0.0)

    @property
    def impatient(self) -> bool:
        """Whether this process makes a frame itself."""
        return self._clock() >= self._deadline

    def recall(self) -> list[Transaction]:
        """The transactions that go into own frames now; the submission stays, as it may be carried all the same."""
        self._note(self._address, True)
        return list(self._transactions.values())

    def forget(self) -> list[Transaction]:
        """The submission is void, or its outcome is not waited for any more. Returns the transactions without one."""
        left = list(self._transactions.values())
        self._note(None, False)
        self._transactions = {}
        return left
