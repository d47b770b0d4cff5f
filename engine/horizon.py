"""The horizon of a container: chunks that were begun before it, and that nothing names, are given up for good (G1).

A chunk that a sweep of orphans gave up is known by its name only until it is deleted. So that nobody who was slow, or
slept, attaches it after that, the sweep also moves the horizon of the container (`State.swept`), and an append of
chunks says when the first of them was begun (`Append.made`). Both are in the log: an append of chunks that are older
than the horizon is refused in whatever order things happen.

When a chunk was begun its writer tells by its own clock, as asking the storage's would cost requests; the sweep goes by
the storage's. So the horizon lies CLOCKS later than the age of the sweep asks for, but never in the future, as nothing
that is begun after a sweep was given up by it. A sweep of younger chunks than CLOCKS relies on clocks that agree to
within their age.
"""

from __future__ import annotations

import math

CLOCKS = 900.0
"""Seconds by which the clock of who writes chunks may be ahead of the storage's: buckets refuse requests of who is
further off."""


def made_at(now: float) -> int:
    """What an append says of chunks that are begun from `now` on (s since the epoch, by the writer's clock): ms."""
    return int(now * 1000)


def swept_at(before: float, now: float) -> int:
    """The horizon (ms since the epoch) of who gives up chunks that were made before `before`; `now` is the storage's
    time when it began. Both in seconds since the epoch."""
    return math.ceil(min(before + CLOCKS, now) * 1000)
