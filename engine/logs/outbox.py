"""The outbox: what this process has submitted to the maker of an epoch, and not heard of yet (W18).

Keeps of W18 what binds an owner. One submission is outstanding at a time. Its transactions are told by live frames
only (rule live); they are queued again when a live frame of a higher epoch came without them, which makes the
submission void for ever (early), but may be put into own frames at any time (recalled), and then are not queued again
from here (flown). What was told is never told again, whatever comes of its submission (once, moved). Nothing is
submitted to a maker whose newest frame does not say that it listens (listens).
"""

from __future__ import annotations

import os
import random
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from chunkstore.metrics import default_metrics
from engine.logs.pending import Pending
from engine.logs.submission import Address
from engine.state.operations import AnswerSubmissions

_METRICS = default_metrics().layer("log")

PATIENCE_TRIPS = 16
"""Round trips after the last frame whose maker listens, after which an owner makes a frame itself, besides
PATIENCE_TIMES the time that it usually takes; times 1 to 2 at random, as not all of them are to do it at once."""

UNHEARD = 3
"""The owner's patience is divided by this until such a frame comes after its submission: the maker may have stopped
listening earlier."""

LONGEST_WAIT_TRIPS = 5
"""Round trips after which an outcome is looked for at the latest: to put, list, get and make a frame takes four."""

PATIENCE_TIMES = 4
"""See PATIENCE_TRIPS."""

LEAST_PATIENCE = 0.1
"""Seconds; processes of one busy machine are held up for longer than their storage takes."""

PASSED_OVER = 16
"""Frames that carry others and not this process, since it was last served, after which it makes a frame itself however
busy the maker is: it may be unable to read what was submitted, or have let go of it. That submissions become void does
not count: many processes would race then, and make the submissions of all others void."""

MOST_EXPECTED = 16
"""Frames that an owner reads at once at most, to find its outcome among them."""


class Told(NamedTuple):
    """What a live frame says of a submission: transactions with the results of their operations, and those that are to
    be queued again. `refused`: those that the maker did not put into its frame, for this process to decide."""

    done: list[tuple[Pending, list[Any]]]
    again: list[Pending]
    refused: list[Pending]


class Outbox:
    """What one process has submitted. clock: seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._owner = uuid.uuid4().bytes
        self._number = 0
        self._address: Address | None = None
        self._waiting: dict[int, Pending] = {}
        self._sent = 0.0
        self._took: deque[float] = deque(maxlen=4)  # seconds until an outcome
        self._passed_over = 0  # frames that carried others, since it was last served
        self._frames = 0  # live frames that were read since the submission
        self._looks = 0  # how often the log was read since the submission
        self._frames_usual = 1
        self._deadline = 0.0
        self._notified = False
        self.next_look = 0.0
        self.recalled = False
        self.listening = -1  # the epoch whose maker listens, by its newest frame

    @property
    def active(self) -> bool:
        """Whether a submission is outstanding: it was not heard of, and is not void."""
        return self._address is not None

    @property
    def waiting(self) -> bool:
        """Whether its outcome is waited for: its transactions are neither queued nor in flight here."""
        return self._address is not None and not self.recalled

    def __contains__(self, pending: Pending) -> bool:
        return any(each is pending for each in self._waiting.values())

    def new_address(self, epoch: int) -> Address:
        """The address of the next submission, to the maker of an epoch."""
        self._number += 1
        return Address(epoch, self._owner, self._number, os.urandom(8))

    def submit(self, batch: Sequence[Pending], address: Address) -> None:
        """The transactions of `batch` are submitted from now on."""
        assert self._address is None, "one submission at a time"
        self._waiting = dict(enumerate(batch))
        self._address = address
        self._sent = self._clock()
        self._frames, self._looks, self.recalled = 0, 0, False

    def wait_again(self, round_trip: float) -> list[Pending]:
        """Own frames lost the race: its outcome is looked for again, that of these transactions. Where all of them were
        told something else meanwhile, it is forgotten (rule once)."""
        self._waiting = {place: pending for place, pending in self._waiting.items() if pending.told is None}
        if not self._waiting:
            return self.forget()
        self.begin_to_wait(round_trip)
        return list(self._waiting.values())

    def begin_to_wait(self, round_trip: float, notified: bool = False) -> None:
        """From now on its outcome is looked for. notified: the maker says when it is there."""
        self.recalled = False
        now = self._clock()
        self._be_patient(now, round_trip, UNHEARD)
        self._notified = notified
        if notified:
            self.next_look = self._deadline
            return
        expected = min(0.7 * self._usual, LONGEST_WAIT_TRIPS * round_trip)
        self.next_look = max(now + round_trip / 2, self._sent + expected)

    def _be_patient(self, now: float, round_trip: float, part: int = 1) -> None:
        if self._passed_over >= PASSED_OVER:
            return  # a race that is lost is tried again at once, too
        patience = (PATIENCE_TRIPS * round_trip + PATIENCE_TIMES * self._usual) / part
        self._deadline = now + max(patience, LEAST_PATIENCE) * random.uniform(1, 2)

    def looked(self, round_trip: float) -> None:
        """The log is read on, for its outcome."""
        self._looks += 1
        self.next_look = max(self._clock() + round_trip / 2, self._deadline if self._notified else 0.0)

    @property
    def frames_expected(self) -> int:
        """How many frames are likely to be there up to the one with its outcome: as many as the last time. If it was
        not among these, one at a time comes."""
        return max(min(self._frames_usual - self._frames, MOST_EXPECTED), 1) if self._looks <= 1 else 1

    def may_submit(self, epoch: int) -> bool:
        """Whether the maker of an epoch is submitted to: it listens, and this process was not passed over for long."""
        return epoch == self.listening and self._passed_over < PASSED_OVER

    def served(self) -> None:
        """A frame of this process is live."""
        self._passed_over = 0

    def heard(self, frame_epoch: int, carried: AnswerSubmissions | None, round_trip: float) -> Told:
        """What a live frame of an epoch says: that its maker listens, and carries these; None: that it does not."""
        told, now = Told([], [], []), self._clock()
        listens = carried is not None and not carried.leaving
        self.listening = frame_epoch if listens else -1
        if self._address is None:
            return told
        self._frames += 1
        for owner, number, nonce, place, results in carried.answers if carried is not None else ():
            if (owner, number) == (self._owner, self._address.number) and nonce != self._address.nonce:
                self._owner = uuid.uuid4().bytes  # of the next one: a clone of this process's memory has the old one
            if (owner, number, nonce) != self._address[1:]:
                continue
            pending = self._waiting.pop(place, None)
            if pending is None:
                continue
            self._note_time(now)
            if results is None:
                told.refused.append(pending)
            else:
                told.done.append((pending, [result.value for result in results]))
        void = frame_epoch > self._address.epoch and bool(self._waiting)
        if told.done or told.refused:
            self._passed_over = 0
        elif carried is not None and carried.answers:
            self._passed_over += 1
        if listens:
            self._be_patient(now, round_trip)
        else:
            self._deadline = now + 2 * round_trip * random.random()
            self.next_look = min(self.next_look, self._deadline)
        if void:
            _METRICS.add("void_submission", now - self._sent, 0, None)
        if void or not self._waiting:
            if not self.recalled:
                told.again.extend(self._waiting.values())
            self.forget()
        return told

    def _note_time(self, now: float) -> None:
        took = now - self._sent
        _METRICS.add("carried", took, 0, None)
        self._took.append(took)
        self._frames_usual = self._frames

    @property
    def _usual(self) -> float:
        """Seconds until an outcome, when nothing holds it up."""
        return min(self._took, default=0.0)

    @property
    def impatient(self) -> bool:
        """Whether this process makes a frame itself."""
        return self._clock() >= self._deadline

    def recall(self) -> list[Pending]:
        """The transactions that go into own frames now; the submission stays, as it may be carried all the same."""
        self.recalled = True
        return list(self._waiting.values())

    def forget(self) -> list[Pending]:
        """The submission is void, or what becomes of it is of no interest any more; what was not heard of."""
        left = list(self._waiting.values())
        self._address, self._waiting, self.recalled = None, {}, False
        return left
