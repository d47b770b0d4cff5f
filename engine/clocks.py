"""Whose clock decides (W13; the table is in docs/clocks.md).

No host's own clock decides what is deleted, truncated or given up: the storage's does, which stamps objects. It is
asked rarely, as that costs requests on buckets, and carried on by a clock that nobody can step. Where it and the
host's own time of day are further apart than a tolerance, one of the two is wrong, and nobody can tell which: then
nothing goes.

What is recorded in the log is stamped by the storage's clock too, as far as a process knows it: always, where others
decide by the time (garbage, transactions, uploads, recorded cuts); for the rest a host's clock is good enough, but
never behind what the storage has stamped already. Whoever decides by a recorded time judges it first: one that lies
in the future was written by a clock that was wrong, and says nothing (`age`).

Where the storage's clock is the host's (a folder), it can be stepped under everybody's feet. A process notices a step
in its own life; ages of boundaries and of garbage go by `engine.logs.age_evidence`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from chunkstore import Store
from engine.errors import ClocksDisagree

TOLERANCE = 300.0
"""Seconds by which clocks may differ."""

ASK_AGAIN = 600.0
"""Seconds for which the storage's time is carried on before it is asked again."""

_FURTHEST = 400 * 86_400.0  # over SFTP an object is stamped with the far future while it is being published

BELIEVED = 3600.0
"""Seconds after which a step of the clock is believed that nobody has taken back."""


def is_plausible(recorded: float, now: float, tolerance: float = TOLERANCE) -> bool:
    """Whether a recorded time is not in the future, further than clocks may differ. Seconds since the epoch."""
    return recorded <= now + tolerance


def age(recorded: float, now: float, unknown: float, tolerance: float = TOLERANCE) -> float:
    """How many seconds ago something was recorded, both in seconds since the epoch; not less than 0.

    unknown: what to take for a time in the future, further than `tolerance`, which a wrong clock wrote. 0.0 for who
    would delete, truncate or give up what is old; infinity for who waits for somebody until he has taken too long.
    """
    return max(now - recorded, 0.0) if is_plausible(recorded, now, tolerance) else unknown


class _Asked(NamedTuple):
    """The storage's time, and what this host's clock, and the one that cannot be stepped, showed when it was there."""

    storage: float
    own: float
    steady: float


class StorageClock:
    """The storage's time of day, as one process knows it. Seconds since the epoch.

    own: this host's time of day. steady: seconds of a clock that cannot be stepped and runs in suspend.
    """

    def __init__(
        self,
        store: Store,
        own: Callable[[], float],
        steady: Callable[[], float],
        tolerance: float = TOLERANCE,
    ) -> None:
        self._store = store
        self._own = own
        self._steady = steady
        self._tolerance = tolerance
        self._asked: _Asked | None = None
        self._floor: _Asked | None = None
        self._first: _Asked | None = None  # of a clock that may be stepped: how it goes with the steady one
        self._stepped: float | None = None  # when a step of it was noticed

    def now(self) -> float:
        """The storage's time. Asks the storage; where that costs requests, only if it has not lately. Raises
        StorageError."""
        asked = self._asked
        if asked is None or not self._store.remote or self._steady() - asked.steady > ASK_AGAIN:
            storage = self._store.clock()
            # After the answer: what is carried on from here is never ahead of the storage.
            self._asked = _Asked(storage, self._own(), self._steady())
            return storage
        return self._carried(asked)

    def known(self) -> float:
        """The storage's time without asking: as it was asked before, or else the host's, as far as it can be true."""
        moment = self._own()
        if self._asked is not None:
            ahead = self._asked.storage - self._asked.own
            moment = moment + ahead if self._store.host_clock else self._carried(self._asked)
        return max(moment, self._carried(self._floor)) if self._floor is not None else moment

    def at_least(self, stamped: float) -> None:
        """The storage has stamped an object with this time, so it is not earlier by now. A host's clock may have been
        wrong then; and no host is so far behind that its own time is out of reach of what was stamped."""
        own = self._own()
        believed = not self._store.host_clock and stamped < own + _FURTHEST
        if believed and (self._floor is None or stamped > self._carried(self._floor)):
            self._floor = _Asked(stamped, own, self._steady())

    def agreed(self, purpose: str) -> float:
        """The storage's time, if the host's agrees with it, so that something may be decided by it.

        purpose: what else is not done, for the message. Raises ClocksDisagree, StorageError.
        """
        storage, own = self.now(), self._own()
        if self._store.host_clock:
            self._check_for_steps(storage, purpose)
        if abs(storage - own) > self._tolerance:
            raise ClocksDisagree(
                f"{self._store.root}: {purpose}: by the storage's clock it is {_moment(storage)}, by this host's "
                f"{_moment(own)}. One of them is wrong, so nothing is deleted, truncated or given up from here. Set "
                "the clock (NTP); other hosts go on meanwhile"
            )
        return storage

    def _check_for_steps(self, now: float, purpose: str) -> None:
        """Compare a clock that may be stepped with what it was, carried on by the steady one."""
        steady = self._steady()
        before = self._carried(self._first) if self._first is not None else now
        stepped = abs(now - before) > self._tolerance
        if stepped and self._stepped is None:
            self._stepped = steady
        if stepped and self._stepped is not None and steady - self._stepped < BELIEVED:
            raise ClocksDisagree(
                f"{self._store.root}: {purpose}: this host's clock, which is the storage's, was stepped: it shows "
                f"{_moment(now)}, and by the time that has passed it is {_moment(before)}. Nothing is deleted, "
                f"truncated or given up for {BELIEVED / 60:.0f} minutes. If the new time is wrong, set the clock (NTP)"
            )
        self._first, self._stepped = _Asked(now, now, steady), None

    def _carried(self, asked: _Asked) -> float:
        return asked.storage + self._steady() - asked.steady


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))
