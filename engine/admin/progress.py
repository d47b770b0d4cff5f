"""How long operations report their progress."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with the name of the step, how many items are done, and their total (0: unknown)."""


def no_progress(what: str, done: int, total: int) -> None:
    """Report nothing."""
