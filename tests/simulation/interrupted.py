"""A writer that is interrupted (Ctrl-C) in the middle of its calls, and works as before afterwards (W16)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from pravega_spark.client.writer import EventWriter
from tests.simulation.history import History, Process
from tests.simulation.ledger import Outcome, require
from tests.simulation.streams import SCOPE, STREAM, StreamActor, Written

STRUCK = 0.3
"""The share of calls that are interrupted, if they take long enough."""


class Interrupted(KeyboardInterrupt):
    """In the place of a result: the call was interrupted."""


class InterruptedWriter(StreamActor):
    """Writes and flushes with one writer. An event whose call was interrupted is there once, or not at all."""

    def __init__(self, history: History, process: Process, name: str) -> None:
        super().__init__(history, process, name)
        self._writer: EventWriter | None = None
        self._given: list[Written] = []
        self._calls = 0

    def attempt(self, what: str, call: Callable[[], Any]) -> tuple[Outcome, Any]:
        """As always; UNKNOWN with Interrupted if the call was interrupted."""
        world, task = self.history.world, self.task
        assert task is not None
        self._calls += 1
        number = self._calls

        def strike() -> None:
            if self._calls == number:
                world.interrupt(task)

        if self.random.random() < STRUCK:
            world.at(world.now + self.random.expovariate(1 / (2 * self.history.plan.median)), strike)
        try:
            return super().attempt(what, call)
        except KeyboardInterrupt:
            self.note(f"{what}: interrupted")
            return Outcome.UNKNOWN, Interrupted()
        finally:
            self._calls += 1
            task.struck = task.forced = False

    def act(self) -> None:
        if self._writer is None:
            outcome, writer = self.attempt("create a writer", lambda: self.manager.create_writer(SCOPE, STREAM))
            if outcome is not Outcome.DONE:
                return
            self._writer = writer
        for _ in range(self.random.randint(1, 4)):
            written = self.events.begin(self.name, self.key())
            outcome, error = self.attempt(
                f"write {written.data!r}", partial(self._writer.write_event_bytes, written.data, written.key)
            )
            if isinstance(error, Interrupted):
                self.events.end([written], Outcome.UNKNOWN)
                continue
            self._given.append(written)
            if outcome is not Outcome.DONE:
                self._failed()
                return
        while True:
            outcome, error = self.attempt("flush", self._writer.flush)
            if outcome is Outcome.DONE:
                break
            if not isinstance(error, Interrupted):
                self._failed()
                return
        require(self._writer.unconfirmed == 0, f"{self.name}: flushed, and {self._writer.unconfirmed} are unconfirmed")
        self.events.end(self._given, Outcome.DONE)
        self._given = []

    def _failed(self) -> None:
        """Those that the writer has confirmed are durable; the others may be."""
        assert self._writer is not None
        sure = len(self._given) - min(self._writer.unconfirmed, len(self._given))
        self.events.end(self._given[:sure], Outcome.DONE)
        self.events.end(self._given[sure:], Outcome.UNKNOWN)
        self._writer, self._given = None, []
