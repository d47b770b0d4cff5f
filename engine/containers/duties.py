"""What upkeep a container needs, by facts that all its processes share (W12).

The facts are what the state in the log says (the last Checkpoint, the last flush cycle and how it ended, what is not in
LTS, garbage) and what the listing of checkpoints shows that each opening makes anyway. No request is made for them.
So any mix of processes keeps a root tidy, from one that commits once and ends to one that stays for a month: what one
leaves undone is due for the next.

What is DUE is done in the background by whoever notices, which is enough where processes live, or are closed. What is
OVERDUE was left undone by others who had the same facts: the first commit of whoever finds it at its opening waits for
it, for a bounded time (`Upkeep.help`).
"""

from __future__ import annotations

import enum
import math
import threading
from collections.abc import Callable, Hashable, Sequence

from chunkstore import ObjectInfo
from chunkstore.metadata.garbage_queue import GarbageKind
from engine.clocks import age
from engine.state.segments import CREATION_TIME
from engine.state.state import ATTRIBUTES_GARBAGE, State


class Urgency(enum.IntEnum):
    """How urgent a piece of upkeep is."""

    NOT_DUE = 0
    DUE = 1
    OVERDUE = 2


OVERDUE = 2
"""What is this many times past its threshold was left undone by others."""

OLD_CHECKPOINTS = 4
"""So many checkpoints, all older than the grace period, make a truncation of the log worth its requests."""

MUCH_GARBAGE = 100
"""So many objects that may be deleted show that nobody deletes any."""


class Ages:
    """How long ago things happened that the log tells of.

    What came to be known here while this process looked is timed by its own monotonic clock, and nobody else's. What
    was there at its first look is as old as the time says that its writer recorded; if that lies in the future, by more
    than clocks differ, it tells nothing, and the thing counts as expired: no host's clock keeps the others from
    anything.
    """

    def __init__(self, clock: Callable[[], float], now: Callable[[], float]) -> None:
        self._clock = clock
        self._now = now
        self._lock = threading.Lock()
        self._known: Hashable = None
        self._seen = -math.inf
        self._age = 0.0

    def of(self, thing: Hashable, recorded: Callable[[], int]) -> float:
        """Seconds since `thing` happened; `recorded` tells when that was (ms since the epoch)."""
        with self._lock:
            if thing != self._known:
                self._age = self._recorded_age(recorded()) if self._known is None else 0.0
                self._known, self._seen = thing, self._clock()
            return self._age + self._clock() - self._seen

    def _recorded_age(self, recorded: int) -> float:
        return age(recorded / 1000, self._now(), math.inf)


def checkpoint(head: int, boundary: int, frames: int) -> Urgency:
    """Of a checkpoint object, at an opening that began at `boundary` (-1: at nothing) and found the head at `head`.

    The operation may be in the log, but who wrote it died before the object was made.
    """
    return Urgency.OVERDUE if head - boundary >= OVERDUE * frames else Urgency.NOT_DUE


def began(state: State, now: int) -> int:
    """When the last flush cycle began, or, if there was none, the first segment was made; `now` if there is none
    either (ms since the epoch)."""
    if state.cycle.number:
        return state.cycle.time
    return min((state.segments[name].attributes.get(CREATION_TIME, now) for name in state.unsaved), default=now)


def flush(
    state: State,
    address: int,
    age: float,
    silence: float,
    *,
    most_bytes: int,
    frames: int,
    seconds: float,
    timeout: float,
) -> Urgency:
    """Of a flush cycle. age: seconds since the last one began; silence: since its last sign of life.

    One that is at work is left alone until it was silent for `timeout`. One that was given up, or fell silent, is
    taken up at once: all that it did stays. One that failed is tried again after a pause of the same length.
    """
    cycle = state.cycle
    if not cycle.complete:
        if silence < timeout and (not cycle.given_up or cycle.trouble):
            return Urgency.NOT_DUE
        return Urgency.OVERDUE
    measures = [state.backlog / most_bytes]
    if state.awaits_flush:
        measures += [(address - max(state.flushed, 0)) / frames, age / seconds]
    return _urgency(max(measures))


def truncation(checkpoints: Sequence[ObjectInfo], grace: float) -> Urgency:
    """Of deleting frames and checkpoints, by a listing of the checkpoints, oldest first.

    Those that are older than the grace period for certain: than the newest one is, by the storage's clock. That needs
    neither a request nor anybody's clock.
    """
    if not checkpoints:
        return Urgency.NOT_DUE
    old = sum(info.modified < checkpoints[-1].modified - grace for info in checkpoints)
    return _urgency(old / OLD_CHECKPOINTS)


def collection(state: State, now: float, delay: float) -> Urgency:
    """Of deleting garbage, at `now` (seconds since the epoch). Whether any of it goes is not decided here."""
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
    """Of deleting idle transient segments, at `now` (seconds since the epoch), those that are not active included."""
    known = [segment for name in state.transients if (segment := state.segments.get(name)) is not None]
    waiting = max(((now - segment.modified / 1000) / idle for segment in known), default=0.0)
    if waiting >= OVERDUE:
        return Urgency.OVERDUE
    return Urgency.DUE if waiting >= 1 or len(known) < len(state.transients) else Urgency.NOT_DUE


def _urgency(measure: float) -> Urgency:
    """From how full a measure is: 1 is its threshold."""
    if measure >= OVERDUE:
        return Urgency.OVERDUE
    return Urgency.DUE if measure >= 1 else Urgency.NOT_DUE
