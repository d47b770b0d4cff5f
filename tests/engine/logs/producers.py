"""Producers that append numbered events to two segments in company (W18), and what must be there in the end.

Each event is one transaction over both segments. Every third one is so large that its payload goes to a chunk. An
idempotent producer guards each event by its sequence number, and resubmits after a restart what it knows no outcome of.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from engine.containers.container import Container
from engine.errors import BadAttributeUpdate, OutcomeUnknown
from engine.logs.transaction import Receipt
from engine.state.operations import Append, AttributeUpdate, CreateSegment, Operation, Payload, UpdateKind
from tests.engine.logs.company import Company, S
from tests.support.simulation import audit

T = "s/b"

LARGE = 150
"""Bytes of every third event: within `small_sizes` it goes to a chunk where there is company."""


class Producer:
    """Submits the events of one producer by a container, in order.

    name: one letter. acknowledged, unknown: the numbers of the events whose transactions ended so.
    """

    def __init__(self, name: str, container: Container, *, idempotent: bool = False) -> None:
        self.name = name
        self.container = container
        self.idempotent = idempotent
        self.submitted = 0
        self.acknowledged: list[int] = []
        self.unknown: list[int] = []
        self._waiting: dict[int, Future[Receipt]] = {}

    def event(self, number: int) -> bytes:
        """The bytes of an event."""
        event = b"%s%03d" % (self.name.encode(), number)
        return event + b"." * (LARGE if number % 3 == 0 else 1) + b";"

    def submit(self) -> None:
        """Submit the next event."""
        number = self.submitted
        self.submitted += 1
        guard = (AttributeUpdate(self.name.encode() * 16, UpdateKind.REPLACE_IF_GREATER, number),)
        event = Payload(self.event(number))
        operations: list[Operation] = [Append(S, event, None, guard if self.idempotent else ()), Append(T, event)]
        self._waiting[number] = self.container.submit(operations)

    @property
    def waits(self) -> bool:
        """Whether the outcome of an event is not known yet."""
        self._note()
        return bool(self._waiting)

    def _note(self) -> None:
        for number, future in list(self._waiting.items()):
            if not future.done():
                continue
            del self._waiting[number]
            error = future.exception(0)
            if isinstance(error, OutcomeUnknown):
                self.unknown.append(number)
            elif error is None or (self.idempotent and isinstance(error, BadAttributeUpdate)):
                self.acknowledged.append(number)  # if its sequence number is there, it is
            else:
                raise AssertionError(f"event {number} of {self.name}: {error!r}") from error

    def restart(self, container: Container) -> None:
        """Go on as another process: resubmit, in order, all that was not acknowledged. For idempotent producers."""
        assert self.idempotent
        self._note()
        again = self.submitted
        self.container, self._waiting = container, {}
        self.submitted = max(self.acknowledged, default=-1) + 1
        while self.submitted < again:
            self.submit()

    def check(self, found: bytes) -> None:
        """What was acknowledged is there once, what is unknown at most once, nothing else, in order."""
        self._note()
        there = [int(each[1:4]) for each in found.split(b";") if each.startswith(self.name.encode())]
        assert all(each == self.event(number)[:-1] for number, each in zip(there, self._of(found), strict=True))
        assert there == sorted({*there}), f"events of {self.name} are out of order, or doubled: {there}"
        assert {*self.acknowledged} <= {*there} <= {*range(self.submitted)}, (self.name, self.acknowledged, there)

    def _of(self, found: bytes) -> list[bytes]:
        return [each for each in found.split(b";") if each.startswith(self.name.encode())]


def make_segments(company: Company) -> None:
    """Make what events go to."""
    company.now(company.maker, CreateSegment(T))
    for container in company.containers:
        container.refresh()


def read_all(container: Container) -> bytes:
    """The events as a process sees them; both segments have the same ones."""
    audit(container.state)
    found, other = (container.read(segment, 0, container.info(segment).length) for segment in (S, T))
    assert found == other, "part of a transaction is there"
    return found


def check(newcomer: Container, producers: Sequence[Producer]) -> None:
    """What a newcomer reads is what the producers know."""
    found = read_all(newcomer)
    for producer in producers:
        producer.check(found)


def finish(company: Company, producers: Sequence[Producer], turn: Callable[[], None] | None = None) -> None:
    """Let all go on until each living producer knows the outcomes of its events."""
    for _ in range(300):
        living = [producer for producer in producers if producer.container not in company.dead]
        if not any(producer.waits for producer in living):
            return
        (turn or company.turn)()
        company.simulation.advance(0.02)
    raise AssertionError(f"no outcome: {[producer.name for producer in living if producer.waits]}")


def take_turns(company: Company, producers: Sequence[Producer], rounds: int, seed: int) -> None:
    """Let each producer submit an event a round, sometimes two, while the processes go on in an order that is drawn."""
    chance = random.Random(seed)
    for _ in range(rounds):
        for producer in producers:
            for _ in range(chance.choice((1, 1, 2))):
                company.let(producer.container, producer.submit)
        for _ in range(8):
            for container in chance.sample(company.containers, len(company.containers)):
                for _ in range(chance.choice((1, 3))):
                    company.step(container)
            company.simulation.advance(0.001)
