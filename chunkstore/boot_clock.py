"""The clock of this host that cannot be set."""

from __future__ import annotations

import time


def boot_time() -> float:
    """Seconds on a monotonic clock that also runs while the machine is suspended (W7)."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
