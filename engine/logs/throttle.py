"""The throttle: delays appends while more bytes are waiting than the container can process (Pravega: Throttler).

Two things may fill up: payload that was submitted and is not durable yet, which is memory; and the backlog, which is in
the log and not in LTS. Half-way to their limits appends are delayed, the more the fuller; at a limit they wait, and are
refused when that takes too long. Operations of the container itself, and deletions, are never delayed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from engine.errors import Throttled

LONGEST_DELAY = 1.0
"""Seconds by which one append is delayed at most while there is room."""

PAUSE = 0.05
"""Seconds between two checks whether there is room."""


class Load(Protocol):
    """A transaction of `size` bytes; admitted: how many of them are counted now."""

    size: int
    admitted: int


class Throttle:
    """Counts bytes on their way, and delays callers that bring more.

    outstanding: the most bytes that are submitted and not durable. backlog: the most bytes in the log and not in LTS.
    timeout: seconds after which a waiting caller is refused. relieve: starts a flush of the backlog.
    """

    def __init__(
        self,
        outstanding: int,
        backlog: int,
        timeout: float,
        *,
        relieve: Callable[[], str],
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self._limits = outstanding, backlog
        self._timeout = timeout
        self._relieve = relieve
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self.outstanding = 0

    def admit(self, load: Load, backlog: Callable[[], int]) -> None:
        """Take a load in, as soon as there is room. Raises Throttled."""
        fill = self._enter(load, backlog())
        if fill > 1:
            self._wait(load, backlog)
        elif fill > 0.5:
            self._relieve()
            self._sleep((2 * fill - 1) * LONGEST_DELAY)

    def release(self, load: Load) -> None:
        """It is durable, or refused, and not counted any more."""
        with self._lock:
            self.outstanding, load.admitted = self.outstanding - load.admitted, 0

    def _enter(self, load: Load, backlog: int) -> float:
        """How full it is with this load, which is counted if there is room. A large load has room if it is the only
        one."""
        size = load.size
        with self._lock:
            most, most_backlog = self._limits
            waiting = backlog + self.outstanding
            fill = max(
                (self.outstanding + size) / most if self.outstanding else 0.0,
                (waiting + size) / most_backlog if waiting else 0.0,
            )
            if fill <= 1:
                self.outstanding, load.admitted = self.outstanding + size, size  # both or none (W16)
            return fill

    def _wait(self, load: Load, backlog: Callable[[], int]) -> None:
        deadline = self._clock() + self._timeout
        while self._enter(load, waiting := backlog()) > 1:
            trouble = self._relieve()
            if self._clock() >= deadline:
                raise Throttled(waiting, self.outstanding, trouble)
            self._sleep(PAUSE)
