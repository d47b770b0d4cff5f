"""Retries of a change with an unknown outcome.

A retry is safe if a repetition is recognised: by a producer's sequence, a record's version, or an offset. Retrying
ends after a timeout with an error that says what is unknown, and what the caller can do (W2, W11).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.errors import OutcomeUnknown

if TYPE_CHECKING:
    from engine.containers.container import Container

TIMEOUTS = 5
"""The timeout, as a multiple of the time after which the container reports an unknown outcome."""


class OutcomeRetry:
    """The unknown outcomes of one change. what: is unknown then; advice: for the caller.

    The first one is always retried, however long ago the change began: the process may have been suspended.
    """

    def __init__(self, container: Container, what: str, advice: str) -> None:
        self._container = container
        self._what = what
        self._advice = advice
        self._since: float | None = None

    def wait_or_raise(self, error: OutcomeUnknown) -> None:
        """Return if the change may be retried. Raises OutcomeUnknown after the timeout."""
        now = self._container.clock()
        if self._since is None:
            self._since = now
        elif now - self._since >= TIMEOUTS * self._container.settings.timeout:
            raise OutcomeUnknown(
                f"{self._what}: the storage has given no conclusive answer for {now - self._since:.0f} seconds "
                f"({error}). {self._advice}"
            ) from error
