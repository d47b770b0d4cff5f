"""Progress of long work: what the work reports, whoever shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with what is being done, how many of these are done, and of how many (0: unknown)."""


def no_progress(what: str, done: int, total: int) -> None:
    """Show nothing."""
