"""The maintenance policy: which maintenance a container needs, by facts that all its processes share (W12).

The facts are the state in the log (the last Checkpoint, the last flush cycle and how it ended, what is not in LTS,
garbage) and the listing of checkpoints that each opening makes anyway. They cost no request. So any mix of processes
keeps a root tidy, from one that commits once and ends to one that runs for a month: a task that one process leaves
undone is due for the next.

A task that is DUE runs in the background of the process that notices it, which is enough where processes stay, or are
closed. A task that is OVERDUE was left undone by processes that had the same facts: the first commit of a process that
finds it at its opening waits for it, for a bounded time (`MaintenanceScheduler.after_operation`).
"""

from __future__ import annotations

import enum
import math
import threading
from collections.abc import Callable, Hashable, Sequence

from chunkstore import ObjectInfo
from chunkstore.metadata.garbage_queue import GarbageKind
from engine.clocks import age
from engine.settings import Settings
from engine.state.segments import CREATION_TIME
from engine.state.state import ATTRIBUTES_GARBAGE, State


class Urgency(enum.IntEnum):
    """How urgent a maintenance task is."""

    NOT_DUE = 0
    DUE = 1
    OVERDUE = 2


OVERDUE = 2
"""A task that is this many times past its threshold is overdue."""

OLD_CHECKPOINTS = 4
"""So many checkpoints, all older than the grace period, make a truncation of the log worth its requests."""

MUCH_GARBAGE = 100
"""If so many objects may be deleted, no process deletes any."""


class Ages:
    """How long ago an event happened that the log records.

    An event that this process saw happen is timed by its own monotonic clock alone. One that was there when it first
    looked is as old as the time says that its writer recorded. If that time lies in the future, by more than clocks
    differ, the event counts as expired: no host's wrong clock keeps other processes from maintenance.
    """

    def __init__(self, clock: Callable[[], float], now: Callable[[], float]) -> None:
        self._clock = clock
        self._now = now
        self._lock = threading.Lock()
        self._known: Hashable = None
        self._seen = -math.inf
        self._age = 0.0

    def of(self, event: Hashable, recorded: Callable[[], int]) -> float:
        """Seconds since `event` happened. recorded: returns the time that its writer recorded (ms since the epoch)."""
        with self._lock:
            if event != self._known:
                self._age = self._recorded_age(recorded()) if self._known is None else 0.0
                self._known, self._seen = event, self._clock()
            return self._age + self._clock() - self._seen

    def _recorded_age(self, recorded: int) -> float:
        return age(recorded / 1000, self._now(), math.inf)


def checkpoint(head: int, log_start: int, frames: int) -> Urgency:
    """How urgent a checkpoint object is, at an opening that found the newest one at `log_start` (-1: there is none) and
    the head at `head`.

    The operation may be in the log, but its writer died before it made the object.
    """
    return Urgency.OVERDUE if head - log_start >= OVERDUE * frames else Urgency.NOT_DUE


def began(state: State, now: int) -> int:
    """When the last flush cycle began, or, if there was none, the first segment was made; `now` if there is none
    either (ms since the epoch)."""
    if state.cycle.number:
        return state.cycle.time
    return min((state.segments[name].attributes.get(CREATION_TIME, now) for name in state.unsaved), default=now)


def flush(state: State, address: int, age: float, silence: float, settings: Settings) -> Urgency:
    """How urgent a flush cycle is. age: seconds since the last one began; silence: since it last made progress.

    A running cycle is left to its process until it made no progress for the timeout. One that was aborted, or makes no
    progress, is continued at once: all that it did stays. One that failed is tried again after a pause of the same
    length.
    """
    cycle = state.cycle
    if not cycle.complete:
        if silence < settings.timeout and (not cycle.aborted or cycle.error):
            return Urgency.NOT_DUE
        return Urgency.OVERDUE
    measures = [state.backlog / settings.flush_bytes]
    if state.awaits_flush:
        measures += [(address - max(state.flushed, 0)) / settings.flush_frames, age / settings.flush_seconds]
    return _urgency(max(measures))


def truncation(checkpoints: Sequence[ObjectInfo], grace: float) -> Urgency:
    """How urgent a truncation of the log is, by a listing of the checkpoints, oldest first.

    Counts those that are certainly older than the grace period: older than the newest one by more than that, by the
    storage's clock. This needs neither a request nor a host's clock.
    """
    if not checkpoints:
        return Urgency.NOT_DUE
    old = sum(info.modified < checkpoints[-1].modified - grace for info in checkpoints)
    return _urgency(old / OLD_CHECKPOINTS)


def garbage_collection(state: State, now: float, delay: float) -> Urgency:
    """How urgent a garbage collection is, at `now` (seconds since the epoch). The collection itself decides what it
    deletes."""
    kinds = {*GarbageKind, ATTRIBUTES_GARBAGE}
    due = [
        garbage.since / 1000
        for garbage in state.garbage.values()
        if garbage.since / 1000 < now - delay and garbage.kind in kinds and not state.is_kept_for_recovery(garbage)
    ]
    if not due:
        return Urgency.NOT_DUE
    waiting = (now - min(due)) / max(delay, 1.0)  # 1 is when it came due
    return Urgency.OVERDUE if len(due) >= MUCH_GARBAGE or waiting >= 1 + OVERDUE else Urgency.DUE


def expiry(state: State, now: float, idle: float) -> Urgency:
    """How urgent the expiry of idle transient segments is, at `now` (seconds since the epoch), including those that are
    not active."""
    known = [segment for name in state.transients if (segment := state.segments.get(name)) is not None]
    waiting = max(((now - segment.modified / 1000) / idle for segment in known), default=0.0)
    if waiting >= OVERDUE:
        return Urgency.OVERDUE
    return Urgency.DUE if waiting >= 1 or len(known) < len(state.transients) else Urgency.NOT_DUE


def _urgency(measure: float) -> Urgency:
    """The urgency of a measure whose threshold is 1."""
    if measure >= OVERDUE:
        return Urgency.OVERDUE
    return Urgency.DUE if measure >= 1 else Urgency.NOT_DUE
