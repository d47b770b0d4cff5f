"""For how long a change whose outcome is unknown is tried again.

Trying it again is safe where a repetition is known as one: by a writer's number, by a record's version, by an offset.
It never goes on for ever: the caller is told at last what is known, and what he can do (W2, W11).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.errors import OutcomeUnknown

if TYPE_CHECKING:
    from engine.containers.container import Container

TIMEOUTS = 5
"""How many times as long as the container waits for the storage's answer, before it says that an outcome is unknown."""


class OutcomeRetry:
    """The unknown outcomes of one change. what: what is not known then; advice: what the caller can do.

    The first one is always tried again, however long ago the change was begun: its process may have been stopped.
    """

    def __init__(self, container: Container, what: str, advice: str) -> None:
        self._container = container
        self._what = what
        self._advice = advice
        self._since: float | None = None

    def __bool__(self) -> bool:
        """Whether some outcome was unknown."""
        return self._since is not None

    def wait_or_raise(self, error: OutcomeUnknown) -> None:
        """Returns if the change is to be tried again. Raises OutcomeUnknown when that has gone on for long enough."""
        now = self._container.clock()
        if self._since is None:
            self._since = now
        elif now - self._since >= TIMEOUTS * self._container.settings.timeout:
            raise OutcomeUnknown(
                f"{self._what}: the storage has given no conclusive answer for {now - self._since:.0f} seconds "
                f"({error}). {self._advice}"
            ) from error
