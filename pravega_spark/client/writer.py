"""The event writer: the events that one process writes to a stream, many of them in one append.

While an append is on its way, what is written meanwhile is collected, and the next append takes all of it. So a slow
writer's events are durable after one append, and a fast writer pays for few. Only one append of a writer is on its way
at a time: what the stream holds of a writer is always a prefix of what it wrote, whatever fails.

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
from contextlib import suppress

import numpy as np

from engine.errors import ChunksGivenUp, SegmentNotFound, SegmentSealed
from engine.interrupts import uninterrupted
from engine.logs.payload import MAX_PAYLOAD
from engine.logs.processor import ALONE_BYTES
from engine.ownership import Owner
from pravega_spark.client.attachments import AHEAD, Attachment, Attachments
from pravega_spark.client.batches import (
    Batch,
    Columns,
    EventKeys,
    Place,
    Routes,
    drawn,
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
from pravega_spark.streams import uploads
from pravega_spark.streams.framing import Framed, frame_column
from pravega_spark.streams.key_columns import KeyPlaces
from pravega_spark.streams.routing import segment_for
from pravega_spark.streams.stream import Stream
from pravega_spark.streams.upkeep import after_commit

logger = logging.getLogger(__name__)

MAX_QUEUED = 64 << 20
"""Whoever writes waits while more bytes than this are not durable."""

BATCH_BYTES = MAX_PAYLOAD - (64 << 10)
"""How much goes into one append: with its index records it fits one frame of the log."""

COPIED_BYTES = 1 << 20
"""Less than this is copied to what else is collected; more of a column stays where it is."""

COLUMNS_BYTES = 16 << 20
"""How much of columns goes into one append: so much that segments get chunks of their own."""


LOOK = 0.005
LOOKING = 0.1
"""While callers flush what they write, their writes do not wake the thread: it looks every LOOK seconds what is there,
for LOOKING seconds after the last flush."""


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
        self._work = threading.Condition(self._lock)  # for the thread: there is a batch, or the end
        self._done = threading.Condition(self._lock)  # for callers: a batch is durable, or has failed
        self._batches: deque[Batch | Columns] = deque()
        self._attachments = Attachments(stream)
        self._attach_bytes = stream.container.settings.attach_bytes if Attachments.possible(stream) else None
        self._own_thread = stream.container.stores.log.remote  # appends are its thread's alone
        self._appending = False  # by a thread, which has the turn
        self._looking = False  # the thread looks every now and then, and need not be woken
        self._flushed = -LOOKING  # when somebody who flushed appended
        self._appended = False  # since the thread last looked at what the stream needs from time to time
        self._queued = 0
        self._written = 0
        self._durable = 0
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
        return self._durable

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
            self._awaited.append((self._written, done))
            self._tell_awaited()
        return done

    def write_event_bytes(self, event: bytes | bytearray | memoryview, routing_key: str | None = None) -> None:
        """Write an event to the segment of its routing key; without a key, to any segment.

        Raises ValueError for an event of more than 8 MiB (see `begin_event`) and if the writer is closed; WriteFailed,
        StreamSealed or StreamNotFound if an earlier append failed.
        """
        self._owner.check()
        framed = framed_event(event)
        size = len(framed)
        routes = self._routes
        index, place = routed(routing_key, routes.bounds)
        with self._lock:
            batch = self._batch_for(size, routes)
            content, lengths = batch.share(index)
            content += framed
            lengths.append(size)
            batch.places.append(place)
            batch.events += 1
            batch.size += size
            self._written += 1
            self._queued += size

    def write_events(
        self,
        events: Column,
        routing_keys: Keys | None = None,
    ) -> None:
        """Write a column of strings or bytes, with a routing key (or null) for each. Fast: no object per event.

        Everything is checked before anything is written. Raises ValueError for a null event, an event of more than 8
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
        for start, end in cut(column, COLUMNS_BYTES):
            part = segments[start:end] if segments is not None else None
            framed = frame_column(column.slice(start, end - start), part, len(routes.bounds))
            if fractions is not None:
                self._put(framed, routes, fractions[start:end])
            else:
                self._put(framed, routes, EventKeys(keys[start:end] if keys is not None else None, end - start))

    def begin_event(self, routing_key: str | None = None, *, name: str | None = None) -> LargeEvent:
        """Begin an event of up to 1 GiB, which is written like a file. See `StreamManager.begin_event`.

        Its commit first flushes this writer: earlier events precede it, and later ones follow it.
        """
        self._owner.check()
        return LargeEvent(uploads.begin(self._stream, routing_key, name), self.flush)

    def _put(self, framed: Framed, routes: Routes, places: Place) -> None:
        size = framed.data.size
        with self._lock:
            if size >= COPIED_BYTES:
                self._wait_for_room()
                last = self._batches[-1] if self._batches else None
                if not isinstance(last, Columns) or last.size + size > COLUMNS_BYTES or last.routes is not routes:
                    last = Columns(routes)
                    self._batches.append(last)
                    self._work.notify()
                last.add(framed, places)
            else:
                self._batch_for(size, routes).add_column(framed, places)
            self._written += len(framed.lengths)
            self._queued += size

    def _batch_for(self, size: int, routes: Routes) -> Batch:
        """The batch that the next `size` bytes go into. Waits while too much is queued."""
        self._wait_for_room()
        last = self._batches[-1] if self._batches else None
        if not isinstance(last, Batch) or last.size + size > BATCH_BYTES or last.routes is not routes:
            last = Batch(routes)
            self._batches.append(last)
            if not self._looking:
                self._work.notify()
        return last

    def _wait_for_room(self) -> None:
        while self._queued > MAX_QUEUED and self._cause is None:
            self._done.wait()
        self._check_open()

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
            target = self._written
        while not self._is_durable(target):
            if not uninterrupted(self._append_here):
                self._wait_for(target)

    def _is_durable(self, events: int) -> bool:
        with self._lock:
            self._check()
            return self._durable >= events

    def _wait_for(self, events: int) -> None:
        """Wait until so many events are durable, or it failed, or the next batch may be appended here."""
        with self._lock:
            if self._durable < events and self._cause is None and not self._free():
                self._done.wait()

    def close(self) -> None:
        """Flush and close. Raises an error that no other call has raised.

        In a fork of the process that made it nothing happens: what is not durable yet is the other process's to write.
        """
        if not self._owner.here:
            return
        with self._lock:
            self._closed = True
            self._work.notify()
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
        while self._awaited and (self._cause is not None or self._awaited[0][0] <= self._durable):
            _, done = self._awaited.popleft()
            with suppress(RuntimeError):  # the loop has ended, and nobody awaits anything
                done.get_loop().call_soon_threadsafe(_end, done, self._failure())
                self._reported = self._cause is not None

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
            failure = WriteFailed(self._stream.key, self._written - self._durable, str(self._cause))
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
                self._end_turn()
                after_commit(self._stream)
        except BaseException as error:  # whatever ends this thread, the next caller hears of it
            self._fail(error)
        finally:
            self._attachments.give_up(doubtful)

    def _take_turn(self) -> bool:
        """Take the turn as soon as there is something to append, or to look after. False at the end."""
        with self._lock:
            while self._appending or not (self._batches or self._appended):
                if self._cause is not None or (self._closed and not self._appending):
                    return False
                self._looking = time.monotonic() - self._flushed < LOOKING
                self._work.wait(LOOK if self._looking else None)
            self._looking = False
            self._appending, self._appended = self._cause is None, False
            return self._appending

    def _end_turn(self) -> None:
        with self._lock:
            self._appending = False
            self._done.notify_all()
            if self._batches or self._closed:
                self._work.notify()

    def _next(self) -> Batch | Columns | None:
        """The next batch for who has the turn, if there is one."""
        with self._lock:
            return self._batches.popleft() if self._batches else None

    def _append_here(self) -> bool:
        """Append the next batch in the caller's thread: nobody has to be woken for it. False if others are at it."""
        with self._lock:
            if not self._free():
                return False
            self._appending, self._appended = True, True
            self._flushed = time.monotonic()
            batch = self._batches.popleft()
        try:
            self._write(batch)
        except BaseException as error:
            self._fail(error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._end_turn()
        return True

    def _free(self) -> bool:
        """Whether who flushes may append the next batch: the thread may be at other work than appending."""
        waits = bool(self._batches) and self._batches[0].size <= ALONE_BYTES
        return waits and not self._appending and not self._own_thread

    def _append(self, batch: Batch | Columns, doubtful: list[Attachment]) -> None:
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
            self._stream.write([part for each in doubtful for part in each.parts])
        except (SegmentSealed, SegmentNotFound, ChunksGivenUp):  # then they take the way through the log
            refused, doubtful[:] = list(doubtful), []
            self._attachments.drop(refused)
            for each in refused:
                self._write(each.batch)
            return
        attached, doubtful[:] = list(doubtful), []
        for each in attached:
            self._confirm(each.batch)

    def _write(self, batch: Batch | Columns) -> None:
        """Append a batch, as soon as its events are routed to segments that are open."""
        while True:
            if batch.routes is not self._routes:
                batch = rerouted(batch, self._routes)
            try:
                self._stream.write(parts(batch))
                break
            except (SegmentSealed, SegmentNotFound):
                self._routes = self._routes_now()
        self._confirm(batch)

    def _confirm(self, batch: Batch | Columns) -> None:
        """A batch is durable."""
        with self._lock:
            self._queued -= batch.size
            self._durable += batch.events
            self._tell_awaited()
            self._done.notify_all()

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            self._cause = error
            self._batches.clear()
            self._tell_awaited()
            self._done.notify_all()
            self._work.notify()

    def _routes_now(self) -> Routes:
        """The routes since the stream was scaled. Raises StreamSealed, StreamNotFound."""
        record = self._stream.snapshot().record
        if record.created != self._routes.routing.created:
            raise StreamNotFound(self._stream.key)  # another stream has its name now
        if record.sealed:
            raise StreamSealed(self._stream.key)
        return routes_of(record.routing)


def _end(done: asyncio.Future[None], failure: Exception | None) -> None:
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
        lost = writer._written - writer._durable
        if lost and not writer._reported and writer._owner.here:
            logger.warning("%r was not flushed or closed: its last %d events may be lost", writer, lost)
