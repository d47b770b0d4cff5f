"""An operation processor that moves on only when it is told to: tests decide what happens in which order."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from engine.logs.mailbox import open_mailbox
from engine.logs.outbox import Outbox
from engine.logs.processor import Processor
from engine.logs.transaction import Transaction


class Stepped(Processor):
    """Does nothing by itself: `step` settles or sends one frame. finishes: it does all that there is to do, as ever.
    submits, listens, sends: as it finds right; False: it does not."""

    finishes = False
    _steps_left = 0

    @property
    def submits(self) -> bool:
        return self._submitter.enabled

    @submits.setter
    def submits(self, submits: bool) -> None:
        self._submitter.enabled = submits

    @property
    def listens(self) -> bool:
        return self._carrier.enabled

    @listens.setter
    def listens(self, listens: bool) -> None:
        self._carrier.enabled = listens

    @property
    def sends(self) -> bool:
        return self._sender.max_flights > 0

    @sends.setter
    def sends(self, sends: bool) -> None:
        self._sender.max_flights = 4 if sends else 0

    @property
    def first(self) -> Transaction:
        """What is to leave next."""
        return self._queue.transactions[0]

    @property
    def queued(self) -> int:
        """Transactions that are to leave."""
        return len(self._queue.transactions)

    @property
    def most_flights(self) -> int:
        """How many frames may be in flight now."""
        return self._sender.allowed_flights

    @property
    def outbox(self) -> Outbox:
        """What it has submitted."""
        return self._submitter.outbox

    def have_the_memory_of(self, other: Stepped) -> None:
        """As a clone of another process."""
        self._submitter.outbox = copy.copy(other.outbox)

    def start_over(self) -> None:
        """Open again from the newest checkpoint, as after LogMoved."""
        with self._log_lock:
            self.replica.reopen()

    def _drain(self) -> None:
        if self.finishes:
            super()._drain()

    def step(self) -> None:
        with self._log_lock:
            self._steps_left = 1
            self._steps()

    def one_transaction_a_frame(self) -> None:
        """As where many are queued."""
        self._sender.max_transactions = 1

    def die(self) -> None:
        """As a process that is killed."""

    def look(self) -> None:
        """Look for the outcome of what it has submitted."""
        with self._log_lock:
            self._submitter.look()

    def _step(self) -> bool:
        self._steps_left -= 1
        going_on = self.finishes or self._sender.inline_commit or self._steps_left >= 0
        return going_on and super()._step()


class Neighbour(Stepped):
    """One whose host has mailboxes: it receives when it steps."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **{**settings, "open_mailbox": open_mailbox})

    def step(self) -> None:
        self._own_mailbox.receive()
        super().step()

    def open_mailboxes_with(self, opening: Callable[[bytes], None]) -> None:
        """As on a host where there are none."""
        self._own_mailbox.open_mailbox = opening

    def lose_messages(self) -> None:
        """What has come by the mailbox is lost."""
        self._own_mailbox.receive()
        self._own_mailbox.messages.clear()

    def double_messages(self) -> None:
        """What has come by the mailbox comes twice."""
        self._own_mailbox.receive()
        self._own_mailbox.messages.extend([*self._own_mailbox.messages])

    def answer_all(self, address: int) -> None:
        """Say to all that have submitted something that the log is durable up to an address."""
        self._own_mailbox.receive()
        self._own_mailbox.answer([message.sender for message in self._own_mailbox.messages], address)

    def die(self) -> None:
        if self._own_mailbox.mailbox is not None:
            self._own_mailbox.mailbox.abandon()
