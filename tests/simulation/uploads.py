"""The actors that write events like files: in parts, with pauses, interrupted half-way, and continued elsewhere."""

from __future__ import annotations

from functools import partial
from typing import Any

from pravega_spark.client.large_events import large_event
from pravega_spark.errors import EventExists, EventExpired, EventSegmentSealed, EventTaken, StreamError
from tests.simulation.history import History, Process
from tests.simulation.ledger import Outcome, require
from tests.simulation.streams import SCOPE, STREAM, StreamActor, Written

PART, INLINE = 100, 30
"""Bytes of a part of an event, and of a last part that goes through the log, instead of MiB."""

SMALL_PARTS = [(large_event, "PART_BYTES", PART), (large_event, "INLINE_BYTES", INLINE)]
"""What is to be patched for that."""


class Uploader(StreamActor):
    """Writes an event in parts. Without a name it may be left half-way; one with a name is continued until it is
    committed once, also by another process after its own was killed, or by two at a time."""

    def __init__(self, history: History, process: Process, name: str) -> None:
        super().__init__(history, process, name)
        self._named: Written | None = None

    def successor(self, process: Process) -> Uploader:
        follower = Uploader(self.history, process, self.name)
        follower.inherit(self._named)
        return follower

    def inherit(self, named: Written | None) -> None:
        """Continue what another one did."""
        self._named = named

    def act(self) -> None:
        if self._named is None and self.random.random() < 0.5:
            self._unnamed()
            return
        if self._named is None:
            self._named = self._begun()
        written = self._named
        for _ in range(6):
            if self._continued(written):
                self.events.end([written], Outcome.DONE)
                self._named = None
                return
            self.history.world.sleep(0.3)

    def _begun(self) -> Written:
        return self.events.begin(self.name, self.key(), self.random.choice((1, 50, 150, 400)))

    def _unnamed(self) -> None:
        written = self._begun()
        outcome, event = self.attempt("begin", lambda: self.manager.begin_event(SCOPE, STREAM, written.key))
        if outcome is not Outcome.DONE:
            self.events.end([written], Outcome.REFUSED)
            return
        if not self._write(event, written) or self.random.random() < 0.3:
            if self.random.random() < 0.5:
                self.attempt("abort", event.abort)
            self.events.end([written], Outcome.REFUSED)
            return
        outcome, error = self.attempt("commit", lambda: event.commit(move=True))
        self.events.end([written], Outcome.REFUSED if isinstance(error, EventExpired) else outcome)

    def _continued(self, written: Written) -> bool:
        """Continue an event with a name. Whether it is committed."""
        name = f"{self.name}.{written.number}"
        outcome, event = self.attempt(
            f"begin {name}", lambda: self.manager.begin_event(SCOPE, STREAM, written.key, name=name)
        )
        if outcome is not Outcome.DONE:
            return isinstance(event, EventExists)
        self.note(f"{name} continues at {event.tell()}")
        if self.random.random() < 0.2:  # somebody else takes it over
            self.history.world.spawn(
                self.process.host, f"{self.name} too", lambda: self._continued_elsewhere(written, name)
            )
        if not self._write(event, written):
            return False
        outcome, error = self.attempt("commit", lambda: event.commit(move=self.random.random() < 0.8))
        if isinstance(error, StreamError):
            known = EventTaken | EventExpired | EventExists | EventSegmentSealed
            require(isinstance(error, known), f"{self.name}: {error!r}")
        return outcome is Outcome.DONE or isinstance(error, EventExists)

    def _continued_elsewhere(self, written: Written, name: str) -> None:
        outcome, event = self.attempt(
            f"take over {name}", lambda: self.manager.begin_event(SCOPE, STREAM, written.key, name=name)
        )
        if outcome is Outcome.DONE and self._write(event, written):
            self.attempt("commit too", lambda: event.commit(move=True))

    def _write(self, event: Any, written: Written) -> bool:
        """Write the rest. False after a failure, or if it was left half-way."""
        data = written.data[event.tell() :]
        while data:
            size = self.random.choice((10, 60, PART, 3 * PART))
            if self.attempt(f"write {len(data[:size])}", partial(event.write, data[:size]))[0] is not Outcome.DONE:
                return False
            data = data[size:]
            if self.random.random() < 0.2 and self.attempt("flush", event.flush)[0] is not Outcome.DONE:
                return False
            if self.random.random() < 0.2:
                self.pause()
            if self.random.random() < 0.05:
                return False
        return True
