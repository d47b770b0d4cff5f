"""Polling: when the followers of a container read its log again, all of a process together.

A follower waits for what other processes write. A poll is one request for the log's next address. The followers of one
process share polls: one thread polls, and those for which a poll is due at the same time wait for its result. A commit
or a `refresh` of this process counts as a poll. So a poll is made only if the process has not read the log for a pause:
half of the wanted latency just after a change, all of it once nothing has changed for that long. Polling affects only
when a follower sees a change, never what a read returns.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from engine.interrupts import uninterrupted
from engine.state.state import State


class LogPoller:
    """Polls the log of one container for all followers of a process. Thread-safe.

    state: returns the state that the process knows. refresh: reads the log to its end, and calls `note`. clock: seconds
    of a monotonic clock.
    """

    def __init__(self, state: Callable[[], State], refresh: Callable[[], State], clock: Callable[[], float]) -> None:
        self._state = state
        self._refresh = refresh
        self._clock = clock
        self._polling = threading.Lock()  # of the thread that polls
        self._known = state()
        self._changed = self._noted = clock()

    def note(self) -> None:
        """The process has just learned where the log ends."""
        state, self._noted = self._state(), self._clock()
        if state is not self._known:
            self._known, self._changed = state, self._noted

    def due_in(self, latency: float) -> float:
        """Seconds until the next poll of a follower that is to see changes within `latency` seconds; 0.0 if it is
        due."""
        if self._state() is not self._known:
            self.note()
        quiet = self._noted - self._changed
        pause = min(max(quiet, latency / 2), latency)
        return max(self._noted + pause - self._clock(), 0.0)

    def poll(self, latency: float) -> State:
        """The state that the process knows, after a poll if one is due for `latency` seconds. Raises as `refresh`."""
        if not self.due_in(latency):
            uninterrupted(lambda: self._poll(latency))
        return self._state()

    def _poll(self, latency: float) -> None:
        with self._polling:
            if not self.due_in(latency):  # no other thread has polled meanwhile
                self._refresh()
