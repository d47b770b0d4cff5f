"""The clocks by which data is deleted, truncated or expired (W13; docs/clocks.md has a table).

The storage's clock decides, which stamps objects; no host's clock does. Reading it costs a request on buckets, so it is
read rarely and extrapolated by a monotonic clock. If it differs from the host's time of day by more than a tolerance,
one of the two is wrong, and nothing is deleted.

Times in the log are by the storage's clock as far as the process knows it. That is always so for times by which other
processes decide (garbage, transactions, uploads, recorded cuts). For other times the host's clock is sufficient, but
never behind a time that the storage has stamped. A recorded time in the future was written by a wrong clock and is
ignored (`age`).

If the storage is a folder, its clock is the host's, which may be stepped. A process detects steps during its life. Ages
of checkpoints and garbage are confirmed by `engine.logs.age_evidence`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from chunkstore import StorageRefused, Store
from engine.errors import ClocksDisagree, utc

TOLERANCE = 300.0
"""Seconds by which clocks may differ."""

READ_AGAIN = 600.0
"""Seconds for which a reading of the storage's clock is extrapolated."""

_FURTHEST = 400 * 86_400.0  # over SFTP an object is stamped with the far future while it is being published

STEP_ACCEPTED_AFTER = 3600.0
"""Seconds after which a step of the clock is accepted, unless it was reverted."""


def is_plausible(recorded: float, now: float, tolerance: float = TOLERANCE) -> bool:
    """Whether a recorded time is not further in the future than clocks may differ. Seconds since the epoch."""
    return recorded <= now + tolerance


def age(recorded: float, now: float, unknown: float, tolerance: float = TOLERANCE) -> float:
    """How many seconds ago something was recorded, both in seconds since the epoch; not less than 0.

    unknown: the result for a time further in the future than `tolerance`, which a wrong clock wrote: 0.0 for a caller
    that deletes, truncates or expires by age, infinity for a caller that waits for a timeout.
    """
    return max(now - recorded, 0.0) if is_plausible(recorded, now, tolerance) else unknown


class _Reading(NamedTuple):
    """The storage's time, and at the same moment this host's time of day and the monotonic clock."""

    storage: float
    own: float
    steady: float


class StorageClock:
    """The storage's time of day, as one process knows it. Seconds since the epoch.

    own: this host's time of day. steady: seconds of a monotonic clock that runs in suspend.
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
        self._reading: _Reading | None = None
        self._floor: _Reading | None = None
        self._first: _Reading | None = None  # of a clock that may be stepped, to compare it with the monotonic one
        self._stepped: float | None = None  # when a step was detected

    def now(self) -> float:
        """The storage's time: a new reading, or an extrapolated one where a reading costs a request. Raises
        StorageError."""
        reading = self._reading
        if reading is None or not self._store.remote or self._steady() - reading.steady > READ_AGAIN:
            storage = self._store.clock()
            # After the response, so that extrapolated times are never ahead of the storage.
            self._reading = _Reading(storage, self._own(), self._steady())
            return storage
        return self._extrapolated(reading)

    def reported(self) -> float:
        """The time for a report, by which nothing is deleted, truncated or expired: the storage's, or the known one if
        this process may not write, as reading a folder's clock stamps a file. Raises StorageError."""
        try:
            return self.now()
        except StorageRefused:
            return self.known()

    def known(self) -> float:
        """The storage's time without a request: extrapolated, or the host's time if there is no reading."""
        moment = self._own()
        if self._reading is not None:
            ahead = self._reading.storage - self._reading.own
            moment = moment + ahead if self._store.host_clock else self._extrapolated(self._reading)
        return max(moment, self._extrapolated(self._floor)) if self._floor is not None else moment

    def at_least(self, stamped: float) -> None:
        """Note a time that the storage has stamped on an object: it is not earlier now.

        Ignored if the stamp came from a host's clock, which may have been wrong, or is implausibly far in the future.
        """
        own = self._own()
        believed = not self._store.host_clock and stamped < own + _FURTHEST
        if believed and (self._floor is None or stamped > self._extrapolated(self._floor)):
            self._floor = _Reading(stamped, own, self._steady())

    def agreed(self, purpose: str) -> float:
        """The storage's time, if the host's agrees with it, so that something may be decided by it.

        purpose: for the message, what is not done otherwise. Raises ClocksDisagree, StorageError.
        """
        storage, own = self.now(), self._own()
        if self._store.host_clock:
            self._check_for_steps(storage, purpose)
        if abs(storage - own) > self._tolerance:
            raise ClocksDisagree(
                f"{self._store.root}: {purpose}: by the storage's clock it is {utc(storage)}, by this host's "
                f"{utc(own)}. One of them is wrong, so this host deletes, truncates and expires nothing. Set its "
                "clock (NTP). Other hosts are not affected"
            )
        return storage

    def _check_for_steps(self, now: float, purpose: str) -> None:
        """Compare a clock that may be stepped with its first reading, extrapolated by the monotonic clock."""
        steady = self._steady()
        before = self._extrapolated(self._first) if self._first is not None else now
        stepped = abs(now - before) > self._tolerance
        if stepped and self._stepped is None:
            self._stepped = steady
        if stepped and self._stepped is not None and steady - self._stepped < STEP_ACCEPTED_AFTER:
            raise ClocksDisagree(
                f"{self._store.root}: {purpose}: this host's clock, which is the storage's, was stepped: it shows "
                f"{utc(now)}, but by the time that has passed it should be {utc(before)}. Nothing is deleted, "
                f"truncated or expired for {STEP_ACCEPTED_AFTER / 60:.0f} minutes. If the new time is wrong, set the "
                "clock (NTP)"
            )
        self._first, self._stepped = _Reading(now, now, steady), None

    def _extrapolated(self, reading: _Reading) -> float:
        return reading.storage + self._steady() - reading.steady
