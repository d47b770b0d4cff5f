"""The attach fence of a container: the earliest creation time of chunks that may still be attached (G1).

An orphan chunk that was deleted is no longer known as garbage. So that a slow writer cannot attach it afterwards, the
sweep that makes orphans garbage also raises the container's fence (`State.min_attach_time`), and an append of chunks
carries the creation time of the first of them (`Append.created_at`). Both are in the log, so an append of chunks below
the fence is refused in whatever order things happen.

Creation times are by the storage's clock, like the ages that the sweep goes by (W13): the stamp of a task's first
chunk, or the storage's time before it. The stamp may be somewhat late: of chunks that are written concurrently the
first may not be the oldest, and a reading of the storage's clock is extrapolated for some minutes. So the fence is
CLOCKS later than the age of the sweep implies. It is never in the future, as a sweep only finds chunks that exist. A
sweep with an age below CLOCKS relies on writes that take less time than that age.
"""

from __future__ import annotations

import math

CLOCKS = 900.0
"""Seconds by which the creation time in an append may be later than the first of its chunks was created."""


def creation_time(now: float) -> int:
    """The creation time (ms) that an append states for chunks that are created from `now` on (epoch s, by the storage's
    clock)."""
    return int(now * 1000)


def attach_fence(before: float, now: float) -> int:
    """The fence (ms since the epoch) of a sweep that began at `now` and takes orphans created before `before` (both
    epoch s)."""
    return math.ceil(min(before + CLOCKS, now) * 1000)
