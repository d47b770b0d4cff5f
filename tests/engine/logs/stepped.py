"""An operation processor that moves on only when it is told to: tests decide what happens in which order."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from engine.logs.mailbox import Kind, open_mailbox
from engine.logs.outbox import Outbox
from engine.logs.pending import Pending
from engine.logs.processor import Processor


class Stepped(Processor):
    """Does nothing by itself: `step` settles or sends one frame. finishes: it does all that there is to do, as ever.
    submits, listens, sends: as it finds right; False: it does not."""

    finishes = False
    submits = True
    listens = True
    sends = True
    _steps_left = 0

    @property
    def first(self) -> Pending:
        """What is to leave next."""
        return self._queue.first()

    @property
    def queued(self) -> int:
        """Transactions that are to leave."""
        return len(self._queue)

    @property
    def most_flights(self) -> int:
        """How many frames may be in flight now."""
        return self._most_flights()

    @property
    def outbox(self) -> Outbox:
        """What it has submitted."""
        return self._outbox

    def have_the_memory_of(self, other: Stepped) -> None:
        """As a clone of another process."""
        self._outbox = copy.copy(other.outbox)

    def start_over(self) -> None:
        """Open again from the newest checkpoint, as after LogMoved."""
        with self._turn:
            self._start_over()

    def _submits(self, batch: Sequence[Pending]) -> bool:
        return self.submits and super()._submits(batch)

    def _would_listen(self) -> bool:
        return self.listens and super()._would_listen()

    def _most_flights(self) -> int:
        return super()._most_flights() if self.sends else 0

    def _drain(self) -> None:
        if self.finishes:
            super()._drain()

    def step(self) -> None:
        with self._turn:
            self._steps_left = 1
            self._steps()

    def one_transaction_a_frame(self) -> None:
        """As where many are queued."""
        self._frame_transactions = 1

    def die(self) -> None:
        """As a process that is killed."""

    def look(self) -> None:
        """Look for the outcome of what it has submitted."""
        with self._turn:
            self._look()

    def _step(self) -> bool:
        self._steps_left -= 1
        return (self.finishes or self._steps_left >= 0) and super()._step()


class Neighbour(Stepped):
    """One whose host has mailboxes: it receives when it steps."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **{**settings, "open_mailbox": open_mailbox})

    def step(self) -> None:
        self._receive()
        super().step()

    def open_mailboxes_with(self, opening: Callable[[bytes], None]) -> None:
        """As on a host where there are none."""
        self._open_mailbox = opening

    def lose_messages(self) -> None:
        """What has come by the mailbox is lost."""
        self._receive()
        self._messages.clear()

    def double_messages(self) -> None:
        """What has come by the mailbox comes twice."""
        self._receive()
        self._messages.extend([*self._messages])

    def answer_all(self, address: int) -> None:
        """Say to all that have submitted something that the log is durable up to an address."""
        self._receive()
        assert self._mailbox is not None
        for message in self._messages:
            self._mailbox.answer(message.sender, Kind.DURABLE, address.to_bytes(8, "big"))

    def die(self) -> None:
        if self._mailbox is not None:
            self._mailbox.abandon()
