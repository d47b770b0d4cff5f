"""The carrier: takes in what other processes submit while this one makes the frames of an epoch (W18).

Keeps of W18 what binds a maker on its way: it listens as long as there is company, queues what comes like its own
transactions, and answers by the mailbox. The inbox knows what is taken in.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from engine.logs.commit_context import CommitContext
from engine.logs.inbox import Inbox
from engine.logs.log import MAKER_TRIPS
from engine.logs.mailbox import Kind
from engine.logs.transaction import Transaction


class Carrier:
    """Takes in submissions for this process. Callers hold the processor's log lock.

    inbox: what is taken in. enabled: False where no other process may write. leaving: frames say that this
    process closes.
    """

    def __init__(self, context: CommitContext, inbox: Inbox) -> None:
        self.inbox = inbox
        self.enabled = True
        self.leaving = False
        self._context = context
        self._replica = context.replica
        self._mailbox = context.mailbox

    def would_listen(self) -> bool:
        """Whether this process would take in submissions if it made the frames of the epoch."""
        return self._replica.log.in_company(MAKER_TRIPS) and self.enabled and not self._context.queue.closing

    def listening(self) -> bool:
        """Whether this process makes the frames of an epoch, and takes in submissions."""
        return self.would_listen() and self._replica.log.makes_frames

    @property
    def look_due(self) -> bool:
        """Whether the inbox is to be listed now."""
        return self.inbox.listing is None and self.listening() and self._context.clock() >= self.inbox.next_look

    def look(self) -> None:
        """Begin to list the inbox."""
        log = self._replica.log
        self._mailbox.open(log.writer)
        self.inbox.look(log.head.epoch, self._context.notify)

    def take_in(self) -> None:
        """Queue what the listing found."""
        self._enqueue(self.inbox.take_in(self._replica.log.round_trip))

    def _enqueue(self, batch: Iterable[Transaction]) -> None:
        for transaction in batch:
            self._replica.log.meet()
            self._context.queue.put(transaction)

    def read_messages(self) -> None:
        """Act on what came by the mailbox."""
        replica, messages = self._replica, self._mailbox.messages
        while messages:
            message = messages.popleft()
            if message.kind is Kind.SUBMISSION:
                self.inbox.receive(message)
            elif not replica.log.flights:
                replica.read(partial(replica.log.follow_durable, int.from_bytes(message.data, "big")))
        if replica.log.makes_frames and not self._context.queue.closing:
            self._enqueue(self.inbox.take_received(replica.log.head.epoch))
        self.answer_in_vain()

    def answer_in_vain(self) -> None:
        """Answer submissions that will not be carried, so that their owners read the log at once."""
        log = self._replica.log
        self._mailbox.answer(self.inbox.in_vain(log.head.epoch, log.makes_frames), log.head.address)

    def frame_settled(self, batch: Iterable[Transaction]) -> None:
        """A frame of this process is live: answer the owners of the transactions that it carries, or refuses."""
        self._mailbox.answer(self.inbox.settled(batch), self._replica.log.head.address)

    def close(self) -> None:
        """Nothing is carried any more: clear the inbox, answer what still came, and close the mailbox."""
        self._mailbox.receive()
        for message in self._mailbox.messages:
            if message.kind is Kind.SUBMISSION:
                self.inbox.receive(message)
        self._mailbox.messages.clear()
        self._mailbox.answer(self.inbox.in_vain(-1, False), self._replica.log.head.address)
        self._mailbox.close()
