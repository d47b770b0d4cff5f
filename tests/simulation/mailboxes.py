"""Mailboxes between processes, as those of one machine have them (`engine.logs.mailbox`), in simulated time.

A message is there at once, some time later, twice, or never. A process that is stopped receives nothing meanwhile, so
that its queue gets full; of one that was killed, senders learn that it is dead.
"""

from __future__ import annotations

from engine.logs.mailbox import LARGEST, Delivery, Kind, Message
from engine.waiting import CHECK_AGAIN
from tests.simulation.world import Task, World

PLACES = 10
"""Messages that a queue holds."""

LOST, DOUBLED, LATE = 0.05, 0.05, 0.1
"""The share of messages that meet this."""


class Mailboxes:
    """The mailboxes of a machine, by the names of their sockets."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.by_path: dict[str, SimulatedMailbox] = {}

    def open(self, writer: bytes) -> SimulatedMailbox:
        """The mailbox of a writer, which the process of the present thread is."""
        return SimulatedMailbox(self, writer)


class SimulatedMailbox:
    """`engine.logs.mailbox.Mailbox`. host: of its process. messages: that have come, and were not received."""

    def __init__(self, machine: Mailboxes, writer: bytes) -> None:
        assert machine.world.current is not None
        self.writer = writer
        self._machine = machine
        self._world = machine.world
        self.host = machine.world.current.host
        self._path = writer.hex()
        self.messages: list[Message] = []
        self._waiting: Task | None = None
        self._woken = False
        machine.by_path[self._path] = self

    def send(self, writer: bytes, kind: Kind, data: bytes) -> Delivery:
        """Send a message to the process that is this writer."""
        return self._send(writer.hex(), kind, data)

    def answer(self, message_sender: str, kind: Kind, data: bytes) -> None:
        """Send a message back."""
        self._send(message_sender, kind, data)

    def _send(self, path: str, kind: Kind, data: bytes) -> Delivery:
        other, world = self._machine.by_path.get(path), self._world
        if other is None or len(data) > LARGEST or len(other.messages) >= PLACES:
            return Delivery.NOBODY
        if other.host.dead:
            return Delivery.DEAD
        message, drawn = Message(kind, bytes(data), self._path), world.random.random()
        if drawn < LATE:
            world.at(world.now + world.random.expovariate(10.0), lambda: other.arrive(message))
        elif drawn < LATE + DOUBLED:
            world.at(world.now + world.random.expovariate(1.0), lambda: other.arrive(message))
            other.arrive(message)
        elif drawn < 1 - LOST:
            other.arrive(message)
        return Delivery.SENT

    def arrive(self, message: Message) -> None:
        """A message has come, unless the mailbox is closed."""
        if self._machine.by_path.get(self._path) is self:
            self.messages.append(message)
            self.wake()

    def receive(self) -> list[Message]:
        """All messages that are there; does not wait."""
        self._woken = False
        messages, self.messages = self.messages, []
        return messages

    def wait(self, seconds: float | None) -> None:
        """Wait until there is a message, or `wake` is called, at most so long, and at most CHECK_AGAIN."""
        if self.messages or self._woken:
            return
        self._waiting = self._world.current
        try:
            self._world.wait(min(CHECK_AGAIN if seconds is None else seconds, CHECK_AGAIN) / self.host.rate)
        finally:
            self._waiting = None

    def wake(self) -> None:
        """Let the thread that waits go on."""
        self._woken = True
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            self._world.wake(waiting)

    def close(self) -> None:
        """Receive nothing more: a sender learns that there is no mailbox."""
        if self._machine.by_path.get(self._path) is self:
            del self._machine.by_path[self._path]
