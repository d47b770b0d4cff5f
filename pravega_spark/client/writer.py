"""The event writer: the events that one process writes to a stream, many of them in one append.

While an append is on its way, what is written meanwhile is collected, and the next append takes all of it. So a slow
writer's events are durable after one append, and a fast writer pays for few. Only one append of a writer is on its way
at a time: what the stream holds of a writer is always a prefix of what it wrote, whatever fails.

Keeps W16: what a call writes is made aside and published in one step, when it joins what was written before
(`_publish`). Who appends has the turn, and lets go of it however that ends; an append that was torn out ends the
writer, which says so. Nobody holds a lock while waiting.

When the stream was scaled, what is not durable yet is routed again, by the keys, which are kept with it until then: the
events of a key follow those of it that went to the segments of before.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import TypeAlias

import numpy as np

from engine.errors import ChunksGivenUp, SegmentNotFound, SegmentSealed
from engine.interrupts import uninterrupted
from engine.logs.payload import MAX_PAYLOAD
from engine.logs.processor import ALONE_BYTES
from engine.ownership import Owner
from engine.waiting import Waiters
from pravega_spark.client.attachments import AHEAD, Attachment, Attachments, mix_of_all
from pravega_spark.client.batches import (
    Batch,
    EventKeys,
    Place,
    Routes,
    Written,
    drawn,
    mix_of,
    parts,
    rerouted,
    routed,
    routes_of,
)
from pravega_spark.client.checked_events import (
    Column,
    Keys,
    check_key,
    checked_events,
    checked_keys,
    cut,
    encoded_text,
    framed_event,
)
from pravega_spark.client.large_events.large_event import LargeEvent
from pravega_spark.errors import Closed, StreamError, StreamNotFound, StreamSealed
from pravega_spark.parameters import checks_parameters
from pravega_spark.streams.maintenance.scheduler import after_commit
from pravega_spark.streams.model.framing import Framed, frame_column
from pravega_spark.streams.model.key_columns import KeyPlaces
from pravega_spark.streams.model.routing import segment_for
from pravega_spark.streams.stream import Stream
from pravega_spark.streams.writing import uploads

logger = logging.getLogger(__name__)

MAX_QUEUED = 64 << 20
"""Whoever writes waits while more bytes than this are not durable."""

COPIED_BYTES = 1 << 20
"""Less than this is copied to what else is collected; more of a column stays where it is."""

BATCH_BYTES = MAX_PAYLOAD - (64 << 10)
"""How much goes into one append: with its index records it fits one frame of the log."""

COLUMNS_BYTES = 16 << 20
"""How much of columns goes into one append: so much that segments get chunks of their own."""


LOOK = 0.005
LOOKING = 0.1
"""While callers flush what they write, their writes do not wake the thread: it looks every LOOK seconds what is there,
for LOOKING seconds after the last flush."""


_Content: TypeAlias = "tuple[int, int, tuple[int, bytes] | Framed, Place]"
"""What is written: how many events and bytes, themselves, and where they belong."""


class WriteFailed(StreamError):
    """An append of an event writer failed; `__cause__` says why. unconfirmed: events that may be missing."""

    def __init__(self, stream: str, unconfirmed: int, cause: str) -> None:
        super().__init__(
            f"Writing to stream {stream} failed: {cause}. The last {unconfirmed} events given to the writer are not "
            "confirmed, though some may have been written; all before them are durable. Check the tail of the stream, "
            "then write the rest with a new writer."
        )
        self.stream = stream
        self.unconfirmed = unconfirmed
        self.cause = cause


@checks_parameters(but=("__init__", "write_event", "write_event_async", "write_event_bytes", "write_events"))
class EventWriter:
    """Writes events to a stream. Made by `StreamManager.create_writer`; close it, or use it in a with statement.

    Writes return immediately, or wait while too much is queued; `flush` waits until everything is durable. Events of
    one routing key, and all events of one segment, keep their order. After a failure every later call raises the same
    error. Thread-safe; must be used in the process that created it.
    """

    def __init__(self, stream: Stream) -> None:
        record = stream.snapshot().record
        if record.sealed:
            raise StreamSealed(stream.key)
        self._stream = stream
        self._owner = Owner(f"this writer of stream {stream.key}", "create a new one")
        self._routes = routes_of(record.routing)
        self._places = KeyPlaces()
        self._lock = threading.Lock()
        self._work = Waiters()  # the thread: there is something to do, or the end
        self._done = Waiters()  # callers: something is durable, or has failed, or the turn is free
        self._written: list[Written] = []  # and taken by nobody yet
        self._taken: deque[Written] = deque()  # by who has the turn, for its next batches
        self._last = (0, 0)  # events and bytes up to the end of what was taken
        self._batched = (0, 0)  # up to the end of the batch that was made last
        self._durable = (0, 0)  # up to the end of the one that was confirmed last
        self._attachments = Attachments(stream)
        self._attach_bytes = stream.container.settings.attach_bytes if Attachments.possible(stream) else None
        self._own_thread = stream.container.stores.log.remote  # appends are its thread's alone
        self._turn: object | None = None  # who appends
        self._looking = False  # the thread looks every now and then, and need not be woken
        self._flushed = -LOOKING  # when somebody who flushed appended
        self._appended = False  # since the thread last looked at what the stream needs from time to time
        self._cause: BaseException | None = None
        self._reported = False
        self._closed = False
        self._awaited: deque[tuple[int, asyncio.Future[None]]] = deque()  # what is done with so many durable events
        self._thread = threading.Thread(target=self._run, name=f"event-writer {stream.key}", daemon=True)
        self._thread.start()
        _unclosed.add(self)

    @property
    def durable_events(self) -> int:
        """Number of durable events, which are the first that were written."""
        return self._durable[0]

    @property
    def unconfirmed(self) -> int:
        """Number of events that were written and are not known to be durable."""
        return (self._written[-1].events if self._written else self._last[0]) - self._durable[0]

    # --- writing -----------------------------------------------------------------------------------------------

    def write_event(self, event: str, routing_key: str | None = None) -> None:
        """Write a text as UTF-8. See `write_event_bytes`."""
        self.write_event_bytes(encoded_text(event), routing_key)

    def write_event_async(self, event: str, routing_key: str | None = None) -> asyncio.Future[None]:
        """Write a str as UTF-8; the returned future is done when the event is durable, or has failed.

        For asyncio event loops. The event is written whether the future is awaited or not, in the order of the calls;
        like the other methods, the call waits while too much is queued. Raises the errors of `write_event_bytes`.
        """
        content = encoded_text(event)
        if routing_key is not None:
            check_key(routing_key)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.write_event_bytes(content, routing_key)
        with self._lock:
            self._awaited.append((self._end()[0], done))
            self._tell_awaited()
        return done

    def write_event_bytes(self, event: bytes | bytearray | memoryview, routing_key: str | None = None) -> None:
        """Write an event to the segment of its routing key; without a key, to any segment.

        Raises ValueError for an event of more than 8 MiB (see `begin_event`) and if the writer is closed; WriteFailed,
        StreamSealed or StreamNotFound if an earlier append failed.
        """
        self._owner.check()
        framed = framed_event(event)
        routes = self._routes
        index, place = routed(routing_key, routes.bounds)
        self._put(routes, [(1, len(framed), (index, framed), place)])

    def write_events(
        self,
        events: Column,
        routing_keys: Keys | None = None,
    ) -> None:
        """Write a column of strings or bytes, with a routing key (or null) for each. Fast: no object per event.

        Everything is checked, and copied, before anything is written: all of it is, or nothing.

        Raises ValueError for a null event, an event of more than 8
        MiB, or if there are not as many keys as events; TypeError for another column type; the errors of
        `write_event_bytes`.
        """
        self._owner.check()
        column = checked_events(events)
        keys, routes = checked_keys(routing_keys, len(column)), self._routes
        if len(column) == 0:
            return
        segments = fractions = None
        if len(routes.bounds) > 1:
            fractions = drawn(self._places.find(keys) if keys is not None else np.full(len(column), np.nan))
            segments = segment_for(fractions, routes.bounds)
        contents: list[_Content] = []
        for start, end in cut(column, COLUMNS_BYTES):
            part = segments[start:end] if segments is not None else None
            framed = frame_column(column.slice(start, end - start), part, len(routes.bounds))
            place = EventKeys(keys[start:end] if keys is not None else None, end - start)
            contents.append(
                (end - start, framed.data.size, framed, place if fractions is None else fractions[start:end])
            )
        self._put(routes, contents)

    def begin_event(self, routing_key: str | None = None, *, name: str | None = None) -> LargeEvent:
        """Begin an event of up to 1 GiB, which is written like a file. See `StreamManager.begin_event`.

        Its commit first flushes this writer: earlier events precede it, and later ones follow it.
        """
        self._owner.check()
        return LargeEvent(self._stream, uploads.begin(self._stream, routing_key, name), self.flush)

    def _put(self, routes: Routes, contents: Sequence[_Content]) -> None:
        """Join what was written before: all that a call writes, or nothing. Waits while too much is queued."""
        while True:
            with self._lock:
                if self._cause is not None or self._closed:
                    self._check_open()
                events, size = self._end()
                if size - self._durable[1] <= MAX_QUEUED:
                    written = []
                    for count, length, content, place in contents:
                        events, size = events + count, size + length
                        large = length >= COPIED_BYTES and type(content) is Framed
                        written.append(Written(events, size, routes, content, place, large))
                    if self._work.waiting and not self._looking:
                        self._work.wake()  # before it is there: behind that nothing may fail
                    self._written += written
                    return
            self._done.wait(self._may_write)

    def _end(self) -> tuple[int, int]:
        """How many events, and bytes, were written so far. With the lock held."""
        return self._written[-1][:2] if self._written else self._last

    def _may_write(self) -> bool:
        with self._lock:
            return self._end()[1] - self._durable[1] <= MAX_QUEUED or self._cause is not None

    def _check_open(self) -> None:
        self._check()
        if self._closed:
            raise Closed(f"this writer of stream {self._stream.key}")

    # --- waiting -----------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Wait until everything written before is durable. Raises WriteFailed, StreamSealed, StreamNotFound, Closed."""
        self._owner.check()
        with self._lock:
            self._check_open()
            target, _ = self._end()
        while not self._is_durable(target):
            if not uninterrupted(self._append_here):
                self._wait_for(target)

    def _is_durable(self, events: int) -> bool:
        self._check()
        return self._durable[0] >= events

    def _wait_for(self, events: int) -> None:
        """Wait until so many events are durable, or it failed, or the next batch may be appended here."""

        def should_continue() -> bool:
            with self._lock:
                return self._durable[0] >= events or self._cause is not None or self._free()

        self._work.wake()
        self._done.wait(should_continue)

    def close(self) -> None:
        """Flush and close. Raises an error that no other call has raised.

        In a fork of the process that made it nothing happens: what is not durable yet is the other process's to write.
        """
        if not self._owner.here:
            return
        with self._lock:
            self._closed = True
        self._work.wake()
        self._thread.join()
        _unclosed.discard(self)
        with self._lock:
            if not self._reported:
                self._check()

    def __enter__(self) -> EventWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"EventWriter({self._stream.key!r})"

    def to_str(self) -> str:
        """Its stream as text for people."""
        return self._stream.key

    def _tell_awaited(self) -> None:
        """Let those know who await events that are durable by now, or never will be."""
        while self._awaited and (self._cause is not None or self._awaited[0][0] <= self._durable[0]):
            _, done = self._awaited[0]
            with suppress(RuntimeError):  # the loop has ended, and nobody awaits anything
                done.get_loop().call_soon_threadsafe(_end_of, done, self._failure())
                self._reported = self._cause is not None
            self._awaited.popleft()

    def _check(self) -> None:
        """Raise the failure, if there is one."""
        failure = self._failure()
        if failure is not None:
            self._reported = True
            raise failure

    def _failure(self) -> StreamError | None:
        if self._cause is None:
            return None
        failure: StreamError
        if isinstance(self._cause, StreamSealed | StreamNotFound):
            failure = type(self._cause)(self._stream.key)
        else:
            failure = WriteFailed(self._stream.key, self.unconfirmed, str(self._cause) or repr(self._cause))
        failure.__cause__ = self._cause
        return failure

    # --- appending ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        """The thread: append what there is, unless who flushes has the turn."""
        doubtful: list[Attachment] = []
        try:
            while self._take_turn():
                while (batch := self._next()) is not None:
                    self._append(batch, doubtful)
                self._attach(0, doubtful)
                self._turn = None
                self._done.wake()
                after_commit(self._stream)
        except BaseException as error:  # whatever ends this thread, the next caller hears of it
            self._fail(error)
        finally:
            self._attachments.give_up(doubtful)

    def _take_turn(self) -> bool:
        """Take the turn as soon as there is something to append, or to look after. False at the end."""
        while True:
            with self._lock:
                if self._cause is not None:
                    self._tell_awaited()  # of an append that was torn out
                    return False
                if self._turn is None:
                    if self._waits() or self._appended:
                        self._turn, self._looking, self._appended = self, False, False
                        return True
                    if self._closed:
                        return False
                self._looking = time.monotonic() - self._flushed < LOOKING
            self._work.wait(self._has_work, LOOK if self._looking else None)

    def _has_work(self) -> bool:
        """Whether the thread has anything to do, its end included."""
        with self._lock:
            free = self._turn is None and (self._waits() or self._appended or self._closed)
            return free or self._cause is not None

    def _waits(self) -> bool:
        return bool(self._written or self._taken)

    def _next(self) -> Batch | None:
        """The next batch for who has the turn, if there is one."""
        if not self._taken:
            with self._lock:
                if not self._written:
                    return None
                self._taken, self._last, self._written = deque(self._written), self._written[-1][:2], []
        taken, before = self._taken, self._batched
        _, _, routes, _, _, large = taken[0]
        most = before[1] + (COLUMNS_BYTES if large else BATCH_BYTES)
        written = [taken.popleft()]
        while taken:
            _, size, others, _, _, is_large = taken[0]
            if size > most or others is not routes or is_large is not large:
                break
            written.append(taken.popleft())
        batch = Batch(written, before)
        self._batched = batch.end
        return batch

    def _append_here(self) -> bool:
        """Append the next batch in the caller's thread: nobody has to be woken for it. False if others are at it.

        An exception ends the writer: nobody can tell what of the batch is there.
        """
        mine = object()
        try:
            with self._lock:
                if self._free():
                    self._turn, self._appended = mine, True
            if self._turn is not mine:
                return False
            self._flushed = time.monotonic()
            batch = self._next()
            if batch is not None:
                self._write(batch)
        except BaseException as error:
            if self._turn is not mine:
                raise
            self._cause = error
            if not isinstance(error, Exception):
                raise
            self._fail(error)
        finally:
            if self._turn is mine:
                self._turn = None
        self._done.wake()
        if self._waits() or self._closed or self._cause is not None:
            self._work.wake()
        return True

    def _free(self) -> bool:
        """Whether who flushes may append the next batch: the thread may be at other work than appending."""
        waits = self._end()[1] - self._durable[1]
        return self._waits() and waits <= ALONE_BYTES and self._turn is None and not self._own_thread

    def _append(self, batch: Batch, doubtful: list[Attachment]) -> None:
        """Append a batch; of a large one this begins, and a later call ends it."""
        if batch.routes is not self._routes:
            batch = rerouted(batch, self._routes)
        if self._attach_bytes is not None and batch.size >= self._attach_bytes:
            self._attachments.begin(batch)
            self._attach(AHEAD, doubtful)
        else:
            self._attach(0, doubtful)
            self._write(batch)

    def _attach(self, most: int, doubtful: list[Attachment]) -> None:
        """Append batches whose chunks are written, until no more than `most` are not."""
        doubtful += self._attachments.written(most)
        if not doubtful:
            return
        try:
            self._stream.write([part for each in doubtful for part in each.parts], mix=mix_of_all(doubtful))
        except (SegmentSealed, SegmentNotFound, ChunksGivenUp):  # then they take the way through the log
            refused, doubtful[:] = list(doubtful), []
            self._attachments.drop(refused)
            for each in refused:
                self._write(each.batch)
            return
        attached, doubtful[:] = list(doubtful), []
        for each in attached:
            self._confirm(each.batch)

    def _write(self, batch: Batch) -> None:
        """Append a batch, as soon as its events are routed to segments that are open."""
        while True:
            if batch.routes is not self._routes:
                batch = rerouted(batch, self._routes)
            try:
                self._stream.write(parts(batch), mix=mix_of(batch))
                break
            except (SegmentSealed, SegmentNotFound):
                self._routes = self._routes_now()
        self._confirm(batch)

    def _confirm(self, batch: Batch) -> None:
        """A batch is durable."""
        self._durable = batch.end
        if self._awaited:
            with self._lock:
                self._tell_awaited()
        self._done.wake()

    def _fail(self, error: BaseException) -> None:
        """Nothing more is appended; who waits hears why."""
        self._cause = error
        with self._lock:
            self._tell_awaited()
        self._done.wake()
        self._work.wake()

    def _routes_now(self) -> Routes:
        """The routes since the stream was scaled. Raises StreamSealed, StreamNotFound, StreamRecreated."""
        snapshot = self._stream.snapshot()
        snapshot.require(self._routes.routing.id)
        record = snapshot.record
        if record.sealed:
            raise StreamSealed(self._stream.key)
        return routes_of(record.routing)


def _end_of(done: asyncio.Future[None], failure: Exception | None) -> None:
    """End a future, unless who awaited it has cancelled it."""
    if done.done():
        return
    if failure is None:
        done.set_result(None)
    else:
        done.set_exception(failure)


_unclosed: weakref.WeakSet[EventWriter] = weakref.WeakSet()


@atexit.register
def _warn_of_loss() -> None:
    for writer in list(_unclosed):
        lost = writer.unconfirmed
        if lost and not writer._reported and writer._owner.here:
            logger.warning("%r was not flushed or closed: its last %d events may be lost", writer, lost)
