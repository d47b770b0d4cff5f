"""When the followers of a container look at its log again, all of a process together.

A follower waits for what other processes write. A look is one request for the log's next address. The followers of one
process share looks: one thread looks, and those for which a look is due at the same time wait for its result. What the
process learns otherwise, by commits of its own or by a `refresh`, counts as a look. So a look is made only if the
process has learned nothing for a pause: half of the wanted latency just after something came, all of it once nothing
has come for that long. Nothing here is needed for what a read says to be true.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from engine.interrupts import uninterrupted
from engine.state.state import State


class Looks:
    """The looks of one process at the log of one container. Thread-safe.

    state: returns the state that the process knows. refresh: reads the log to its end, and calls `note`. clock: seconds
    of a monotonic clock.
    """

    def __init__(self, state: Callable[[], State], refresh: Callable[[], State], clock: Callable[[], float]) -> None:
        self._state = state
        self._refresh = refresh
        self._clock = clock
        self._turn = threading.Lock()  # of the thread that looks
        self._known = state()
        self._changed = self._noted = clock()

    def note(self) -> None:
        """The process has just learned where the log ends."""
        state, self._noted = self._state(), self._clock()
        if state is not self._known:
            self._known, self._changed = state, self._noted

    def due_in(self, latency: float) -> float:
        """Seconds until the next look of a follower that is to see what is new within `latency` seconds; 0.0 if it is
        due."""
        if self._state() is not self._known:
            self.note()
        quiet = self._noted - self._changed
        pause = min(max(quiet, latency / 2), latency)
        return max(self._noted + pause - self._clock(), 0.0)

    def look(self, latency: float) -> State:
        """The state that the process knows, after a look if one is due for `latency` seconds. Raises as `refresh`."""
        if not self.due_in(latency):
            uninterrupted(lambda: self._look(latency))
        return self._state()

    def _look(self, latency: float) -> None:
        with self._turn:
            if not self.due_in(latency):  # no other thread has looked meanwhile
                self._refresh()
