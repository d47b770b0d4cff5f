"""Who waits for what became of a transaction, and what they are told.

Keeps W3 (in the order of the log) and W11: each transaction is told once, by one method, success if and only if its
frame is live. Owns what was submitted and not yet told, and the room that the throttle counts for it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from engine.errors import Rejected
from engine.logs.judging import Refusal
from engine.logs.log import Flight
from engine.logs.pending import Pending, Receipt, wake
from engine.logs.throttle import Throttle
from engine.state.state import State

logger = logging.getLogger(__name__)


class Body(NamedTuple):
    """What is kept with a frame in flight: the state after it, and what it decides."""

    after: State
    accepted: list[tuple[Pending, list[Any]]]
    rejected: list[tuple[Pending, Refusal]]
    checkpoint: bool

    def transactions(self) -> list[Pending]:
        """All that wait for this frame."""
        return [pending for pending, _ in self.accepted] + [pending for pending, _ in self.rejected]


class Acknowledgements:
    """Tells callers what became of their transactions.

    Args:
        throttle: holds callers back that bring more payload than can be worked off.
        forget: deletes a chunk that nothing names.

    settled: frames that are live, and nobody was told yet. The processor puts them there itself: a call of ours could
    fail between a frame's way out of the log and its place here.
    """

    def __init__(self, throttle: Throttle, forget: Callable[[str], None]) -> None:
        self._throttle = throttle
        self._forget = forget
        self.settled: deque[Flight] = deque()
        self._untold: set[Pending] = set()

    def admit(self, pending: Pending, backlog: Callable[[], int]) -> None:
        """Wait until there is room for its payload. Raises Throttled."""
        if pending.size:
            self._throttle.admit(pending, backlog)

    def release(self, pending: Pending) -> None:
        """Make room for the next ones, once."""
        if pending.admitted:
            self._throttle.release(pending)

    def withdraw(self, pending: Pending) -> None:
        """Something came between its caller and the queue: what is not queued is nobody's to tell of."""
        if pending.number < 0:
            self._untold.discard(pending)
            self.release(pending)

    def owe(self, pending: Pending) -> None:
        """It is queued: it will be told what became of it."""
        self._untold.add(pending)

    def untold(self) -> list[Pending]:
        """What was submitted so far, and nobody was told of yet."""
        return list(self._untold)

    def tell(self) -> bool:
        """Tell who waits for what was settled. True if there was any."""
        told = bool(self.settled)
        while self.settled:
            flight = self.settled[0]
            body: Body = flight.body
            together: deque[Pending] = deque()
            for pending, results in body.accepted:
                self.tell_one(pending, Receipt(flight.position.address, results, pending.tries, body.after), together)
            wake(together)
            self.tell_each(body.rejected)
            if self.settled and self.settled[0] is flight:  # who was told may have come back here
                self.settled.popleft()
        return told

    def tell_each(self, failed: Iterable[tuple[Pending, BaseException]]) -> None:
        """Tell each its own error."""
        for pending, error in failed:
            self.tell_one(pending, error)

    def tell_all(self, batch: Iterable[Pending], error: BaseException) -> None:
        """Tell all the same error."""
        for pending in batch:
            self.tell_one(pending, error)

    def tell_one(
        self, pending: Pending, outcome: Receipt | BaseException, together: deque[Pending] | None = None
    ) -> None:
        """Tell what became of a transaction, once: nothing else does.

        A Receipt says that its frame is live, OutcomeUnknown that it may be; all other errors that it is not: Rejected
        by what the log says, StorageError and DataCorruption by what keeps it from being sent, ContainerOffline.
        """
        if pending.told is not None:
            pending.release()  # if something went wrong as it was told
            return
        self.release(pending)
        pending.tell(outcome, together)
        self._untold.discard(pending)
        if pending.chunk is not None and isinstance(outcome, Rejected):
            guarded(self._forget, pending.chunk)


def guarded(call: Callable[..., None], *args: Any) -> None:
    """Do what hangs on an operation whose outcome stands, whatever becomes of this."""
    try:
        call(*args)
    except Exception:
        logger.exception("%s failed; the operations before it are not touched by that", call)
