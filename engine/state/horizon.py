"""The horizon of a container: chunks that were begun before it, and that nothing names, are given up for good (G1).

A chunk that a sweep of orphans gave up is known by its name only until it is deleted. So that nobody who was slow, or
slept, attaches it after that, the sweep also moves the horizon of the container (`State.orphan_horizon`), and an
append of chunks says when the first of them was begun (`Append.created_at`). Both are in the log: an append of chunks
that are older than the horizon is refused in whatever order things happen.

When a chunk was begun is told by the storage's clock, as the sweep goes by that (W13): by the stamp of the first chunk
of a task, or the storage's time before it. Of chunks that are written side by side the first may be stamped after the
others, and a storage's clock is carried on for some minutes before it is asked again. So the horizon lies CLOCKS later
than the age of the sweep asks for, but never in the future, as nothing that is begun after a sweep was given up by it.
A sweep of younger chunks than CLOCKS relies on writes that take less than their age.
"""

from __future__ import annotations

import math

CLOCKS = 900.0
"""Seconds by which what an append says may be later than when the first of its chunks was made."""


def creation_time(now: float) -> int:
    """What an append says of chunks that are begun from `now` on (s since the epoch, by the storage's clock): ms."""
    return int(now * 1000)


def sweep_horizon(before: float, now: float) -> int:
    """The horizon (ms since the epoch) of who gives up chunks that were made before `before`; `now` is the storage's
    time when it began. Both in seconds since the epoch."""
    return math.ceil(min(before + CLOCKS, now) * 1000)
