"""Futures of an event loop that wait for an event writer: until events are durable, or until its queue has room.

Any number of coroutines may wait. After an append the writer's thread wakes each event loop once, and the futures are
completed there. A loop that was closed is not woken, and its futures stay as they are.

Keeps, of W16, that a cancelled future changes nothing for the writer and for other futures.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

from engine.interrupts import uninterrupted


class Progress(Protocol):
    """What a writer has done so far. All of it may be called in any thread."""

    @property
    def written_events(self) -> int:
        """Number of events that were given to it."""

    @property
    def durable_events(self) -> int:
        """Number of durable events."""

    @property
    def has_room(self) -> bool:
        """Whether a write returns or raises at once."""

    @property
    def failed(self) -> bool:
        """Whether it failed, after which no event becomes durable."""

    def failure_to_raise(self) -> Exception:
        """A new error for a caller of the writer, which raises it."""


class LoopFutures:
    """The futures of one event loop that wait for one writer. `wake` may be called in any thread, all else in that of
    the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, writer: Progress) -> None:
        self._loop = loop
        self._writer = writer
        self._durable: deque[tuple[int, asyncio.Future[None]]] = deque()  # each with the durable events it waits for
        self._room: deque[asyncio.Future[None]] = deque()
        self._woken = False

    def complete_when_durable(self, done: asyncio.Future[None]) -> None:
        """Complete `done` when all events that were written so far are durable, or with the writer's failure."""
        events = self._writer.written_events
        while self._durable and self._durable[-1][1].done():  # cancelled: a stuck storage must not collect them
            self._durable.pop()
        self._durable.append((events, done))  # before the check, so that an append after it wakes the loop
        self._complete_durable()

    def complete_when_room(self, done: asyncio.Future[None]) -> None:
        """Complete `done` when the writer's queue has room, or the writer failed."""
        self._room.append(done)
        self._complete_room()

    def wake(self) -> None:
        """Let the loop complete what is due. Call it after an append, and after a failure."""
        if self._woken or not (self._durable or self._room):
            return
        try:
            self._woken = True
            self._loop.call_soon_threadsafe(self._complete)
        except RuntimeError:  # the loop was closed
            return
        except BaseException:  # of a signal handler
            self._woken = False
            raise

    def _complete(self) -> None:
        self._woken = False  # before anything is read, so that what comes after it wakes the loop again
        uninterrupted(self._complete_durable)
        uninterrupted(self._complete_room)

    def _complete_durable(self) -> None:
        waiting, writer = self._durable, self._writer
        while waiting:
            failed = writer.failed  # read first: nothing becomes durable after a failure
            events, done = waiting[0]
            if done.done():
                pass  # it was cancelled
            elif events <= writer.durable_events:
                done.set_result(None)
            elif failed:
                done.set_exception(writer.failure_to_raise())
            else:
                return
            waiting.popleft()

    def _complete_room(self) -> None:
        while self._room and (self._room[0].done() or self._writer.has_room):
            if not self._room[0].done():
                self._room[0].set_result(None)
            self._room.popleft()
