"""The event writer: writes events to a stream, many of them in one append.

Events that are written while an append is in flight are queued, and the next append takes all of them. So the events of
a slow writer are durable after one append, and a fast writer makes few appends. A writer has one append in flight at a
time. Whatever fails, the stream holds a prefix of what the writer wrote.

Keeps W16: a call prepares its events first, then adds them to the queue in one step (`_enqueue`). Either the writer's
thread or a caller of `flush` is the appender; it resigns however its append ends. An append that an interrupt broke off
fails the writer. No lock is held while waiting.

If the stream is scaled, events that are not durable yet are routed again. Their keys are kept until then, so the events
of a key stay in order across the scale.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import threading
import time
import uuid
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from engine.errors import ChunksExpired, SegmentNotFound, SegmentSealed
from engine.interrupts import uninterrupted
from engine.logs.payload import MAX_PAYLOAD
from engine.logs.processor import INLINE_BYTES
from engine.ownership import Owner
from engine.waiting import Waiters
from pravega_spark.client.attachments import MAX_UPLOADING, Attachment, Attachments, combined
from pravega_spark.client.batches import (
    Batch,
    EventKeys,
    KeyPosition,
    Queued,
    Routes,
    route,
    routes_of,
    with_random_hashes,
)
from pravega_spark.client.event_validation import (
    Column,
    Keys,
    check_atomic,
    check_key,
    check_number,
    check_numbers,
    encode_text,
    frame_event,
    row_ranges,
    validated_events,
    validated_keys,
)
from pravega_spark.client.large_events.large_event import LargeEvent
from pravega_spark.client.loop_futures import LoopFutures
from pravega_spark.errors import Closed, StreamError, StreamNotFound, StreamSealed
from pravega_spark.parameters import checks_parameters
from pravega_spark.quantities import DurationLike, parse_seconds
from pravega_spark.streams.maintenance.scheduler import after_commit
from pravega_spark.streams.model.framing import Framed, frame_column
from pravega_spark.streams.model.key_columns import KeyHashes
from pravega_spark.streams.model.routing import segment_for
from pravega_spark.streams.stream import Stream
from pravega_spark.streams.stream_time import LEASE, StreamTime, check_time
from pravega_spark.streams.writing import uploads
from pravega_spark.streams.writing.event_numbers import AlreadyWritten, NumberedWrite

logger = logging.getLogger(__name__)

MAX_QUEUED = 64 << 20
"""Writes block while more bytes than this are not durable."""

COPIED_BYTES = 1 << 20
"""Smaller columns are copied into the batch; larger ones are referenced."""

BATCH_BYTES = MAX_PAYLOAD - (64 << 10)
"""Maximum size of an append through the log. With its index records it fits one frame."""

COLUMNS_BYTES = 16 << 20
"""Maximum size of an append of large columns: enough for segments to get chunks of their own."""


POLL_INTERVAL = 0.005
POLL_TIME = 0.1
"""After a flush the thread polls the queue for POLL_TIME seconds, so that writes need not wake it."""


_Content: TypeAlias = "tuple[int, int, tuple[int, bytes] | Framed, KeyPosition, int | np.ndarray]"
"""Number of events and bytes, the framed events, their keys, and their numbers (see `Queued`)."""

Numbers: TypeAlias = "Sequence[int] | np.ndarray"
"""The numbers of the events of a column, ascending."""


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

    Writes return immediately, or block while too much is queued; `flush` waits until everything is durable. Events of
    one routing key, and all events of one segment, keep their order. After a failure every later call raises the same
    error. Thread-safe; must be used in the process that created it.

    producer: the id of a numbering producer. Its events have ascending numbers: those given to the write methods, else
    the next ones. The append that carries events also stores the last number, if the stored one is still the one that
    the writer knows. So each number is written once, whatever fails, and whichever process writes it (X3). An event
    with a number that is not greater than `last_number`, or than that of an event written before, is dropped.
    """

    def __init__(self, stream: Stream, producer: str | None = None) -> None:
        record = stream.snapshot().record
        if record.sealed:
            raise StreamSealed(stream.key)
        self._stream = stream
        self._owner = Owner(f"this writer of stream {stream.key}", "create a new one")
        self._routes = routes_of(record.routing)
        self._key_hashes = KeyHashes()
        self._lock = threading.Lock()
        self._work = Waiters()  # the thread waits for events to append, and for its end
        self._done = Waiters()  # callers wait for durable events, for a failure, and for the appender to resign
        self._queued: list[Queued] = []
        self._taken: deque[Queued] = deque()  # moved from the queue by the appender, for its next batches
        self._taken_end = (0, 0)  # events and bytes up to the end of `_taken`
        self._batched_end = (0, 0)  # up to the end of the last batch
        self._durable_end = (0, 0)  # up to the end of the last durable batch
        self._attachments = Attachments(stream)
        self._attach_bytes = stream.container.settings.attach_bytes if Attachments.possible(stream) else None
        self._only_thread_appends = stream.container.stores.log.remote
        self._appender: object | None = None  # the thread (self), or a token of a caller of flush
        self._polling = False  # the thread polls the queue, so writes need not wake it
        self._flushed = -POLL_TIME  # when a caller of flush last appended
        self._appended = False  # since the thread last ran the maintenance of the stream
        self._producer = producer
        self._durable_number = stream.last_number(producer) if producer is not None else None
        self._taken_number = -1 if self._durable_number is None else self._durable_number  # the last of `_taken`
        self._time = StreamTime(stream, record.id)
        self._writer_id = uuid.uuid4().hex if producer is None else f"producer:{producer}"
        self._noted = False  # whether its time is noted in the stream
        self._cause: BaseException | None = None
        self._raised = False
        self._closed = False
        self._loops = WriterLoops(self)
        self._thread = threading.Thread(target=self._run_thread, name=f"event-writer {stream.key}", daemon=True)
        self._thread.start()
        _unclosed.add(self)

    @property
    def durable_events(self) -> int:
        """Number of durable events, which are the first that were written."""
        return self._durable_end[0]

    @property
    def last_number(self) -> int | None:
        """The number of the producer's last durable event, by this writer or one before it; None if there is none.

        Raises ValueError for a writer without a producer id.
        """
        self._check_numbering()
        return self._durable_number

    @property
    def unconfirmed(self) -> int:
        """Number of events that are not known to be durable yet."""
        return (self._queued[-1].events if self._queued else self._taken_end[0]) - self._durable_end[0]

    # --- writing -----------------------------------------------------------------------------------------------

    def write_event(self, event: str, routing_key: str | None = None, number: int | None = None) -> None:
        """Write a text as UTF-8. See `write_event_bytes`."""
        self.write_event_bytes(encode_text(event), routing_key, number)

    def write_event_async(
        self, event: str, routing_key: str | None = None, number: int | None = None
    ) -> asyncio.Future[None]:
        """Write a str as UTF-8; the returned future is done when the event is durable, or has failed.

        For asyncio event loops. Events are written in the order of the calls, whether the future is awaited or not.
        Like the other methods, the call blocks while too much is queued. Raises the errors of `write_event_bytes`.
        """
        content = encode_text(event)
        if routing_key is not None:
            check_key(routing_key)
        check_number(number, -1)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.write_event_bytes(content, routing_key, number)
        self._loops.running().complete_when_durable(done)
        return done

    def write_event_bytes(
        self, event: bytes | bytearray | memoryview, routing_key: str | None = None, number: int | None = None
    ) -> None:
        """Write an event to the segment of its routing key; without a key, to any segment.

        number: of a producer's event, by default one more than the last one's.

        Raises ValueError for an event of more than 8 MiB (see `begin_event`) and if the writer is closed; WriteFailed,
        StreamSealed or StreamNotFound if an earlier append failed.
        """
        self._owner.check()
        framed = frame_event(event)
        routes = self._routes
        index, position = route(routing_key, routes.bounds)
        if self._producer is None and number is None:
            self._enqueue(routes, [(1, len(framed), (index, framed), position, -1)])
            return
        check_number(number, -1)
        self._check_numbering()
        while True:
            written = self._last_written()
            following = check_number(number, written)
            if following <= written:
                self._check_open()
                return
            if self._enqueue(routes, [(1, len(framed), (index, framed), position, following)], written):
                return

    def write_events(
        self,
        events: Column,
        routing_keys: Keys | None = None,
        numbers: Numbers | None = None,
        *,
        routing_key: str | None = None,
        atomic: bool = False,
    ) -> None:
        """Write a column of strings or bytes, with a routing key (or null) for each. Fast: no object per event.

        The whole column is validated and copied before any of it is queued. A large one is appended in several parts,
        and a process that dies may have appended some of them.

        numbers: of a producer's events, ascending; by default the next ones. routing_key: of all events, instead of
        `routing_keys`. atomic: one append takes all events, so readers see all of them or none, whatever fails; those
        of one segment are contiguous in it. They may have 16 MiB, headers of 8 bytes for each event included.

        Raises ValueError for a null event, an event of more than 8 MiB, more bytes than `atomic` allows, or if there
        are not as many keys as events; TypeError for another column type; the errors of `write_event_bytes`.
        """
        self._owner.check()
        column = validated_events(events)
        keys, routes = validated_keys(routing_keys, len(column), routing_key), self._routes
        check_atomic(column, atomic, COLUMNS_BYTES)
        if len(column) == 0:
            return
        if self._producer is None and numbers is None:
            self._enqueue(routes, self._framed_column(routes, column, keys, None))
            return
        check_numbers(numbers, len(column), -1)
        self._check_numbering()
        while True:
            written = self._last_written()
            found = check_numbers(numbers, len(column), written)
            first = int(np.searchsorted(found, written, side="right"))
            if first == len(column):
                self._check_open()
                return
            left = keys[first:] if keys is not None else None
            if self._enqueue(routes, self._framed_column(routes, column[first:], left, found[first:]), written):
                return

    def _framed_column(
        self, routes: Routes, column: pa.Array, keys: pa.Array | pa.ChunkedArray | None, numbers: np.ndarray | None
    ) -> list[_Content]:
        """The parts of a column that each go into one append."""
        segments = hashes = None
        if len(routes.bounds) > 1:
            hashes = with_random_hashes(
                self._key_hashes.find(keys) if keys is not None else np.full(len(column), np.nan)
            )
            segments = segment_for(hashes, routes.bounds)
        contents: list[_Content] = []
        for start, end in row_ranges(column, COLUMNS_BYTES):
            part = segments[start:end] if segments is not None else None
            framed = frame_column(column.slice(start, end - start), part, len(routes.bounds))
            position: KeyPosition = EventKeys(keys[start:end] if keys is not None else None, end - start)
            if hashes is not None:
                position = hashes[start:end]
            numbered = -1 if numbers is None else numbers[start:end]
            contents.append((end - start, framed.data.size, framed, position, numbered))
        return contents

    def begin_event(self, routing_key: str | None = None, *, name: str | None = None) -> LargeEvent:
        """Begin an event of up to 1 GiB, which is written like a file. See `StreamManager.begin_event`.

        Its commit first flushes this writer: earlier events precede it, and later ones follow it. Raises ValueError for
        a numbering producer.
        """
        self._owner.check()
        if self._producer is not None:
            raise ValueError(
                f"begin_event: producer {self._producer!r} numbers its events, and large events have names instead: "
                "use begin_event(…, name=…) of the manager"
            )
        return LargeEvent(self._stream, uploads.begin(self._stream, routing_key, name), self.flush)

    def _check_numbering(self) -> None:
        if self._producer is None:
            raise ValueError(
                f"this writer of stream {self._stream.key} has no producer id, so its events have no numbers: give one "
                "to create_writer(…, producer=…)"
            )

    def _enqueue(self, routes: Routes, contents: Sequence[_Content], after: int | None = None) -> bool:
        """Add all that a call writes to the queue, or nothing. Blocks while too much is queued.

        after: the last number that was written before. False if another thread has written since.
        """
        while True:
            with self._lock:
                if self._cause is not None or self._closed:
                    self._check_open()
                if after is not None and after != self._last_written():
                    return False
                events, size = self._end()
                if size - self._durable_end[1] <= MAX_QUEUED:
                    written = []
                    for count, length, content, position, numbers in contents:
                        events, size = events + count, size + length
                        large = length >= COPIED_BYTES and type(content) is Framed
                        written.append(Queued(events, size, routes, content, position, large, numbers))
                    if self._work.waiting and not self._polling:
                        self._work.wake()  # before the events are queued: nothing may fail after that
                    self._queued += written
                    return True
            self._done.wait(self._may_write)

    def _end(self) -> tuple[int, int]:
        """Number of events and bytes written so far. With the lock held."""
        return self._queued[-1][:2] if self._queued else self._taken_end

    def _last_written(self) -> int:
        """The number of the last event that was written: it follows from the queue, so that an interrupt cannot come
        between the two. -1 if there is none."""
        queued = self._queued
        return queued[-1].last_number if queued else self._taken_number

    def _may_write(self) -> bool:
        with self._lock:
            return self._end()[1] - self._durable_end[1] <= MAX_QUEUED or self._cause is not None

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
        while self._durable_end[0] < target:
            if not uninterrupted(self._append_inline):
                self._wait_for(target)
            self._check()

    def _wait_for(self, events: int) -> None:
        """Wait until so many events are durable, the writer failed, or this thread may append the next batch."""

        def should_continue() -> bool:
            with self._lock:
                return self._durable_end[0] >= events or self._cause is not None or self._may_append_inline()

        self._work.wake()
        self._done.wait(should_continue)

    def note_time(self, timestamp: int, lease: DurationLike = LEASE) -> None:
        """Note the time of this writer: what it writes from now on has this time or a later one. Waits until everything
        written before is durable. (Pravega: noteTime.)

        timestamp: any whole number of 64 bits, often ms since the epoch, that never goes back. lease: readers wait for
        this writer's next note for so long (seconds, or "5m"), or until it is closed. Raises ValueError for a time
        before the last one, TooManyNotingWriters, and what `flush` raises. Noting the same time again is safe.
        """
        seconds = parse_seconds(lease)
        check_time(timestamp)
        self.flush()
        self._noted = True
        self._time.note(self._writer_id, timestamp, seconds)

    def close(self) -> None:
        """Flush and close. Raises an error that no other call has raised. Readers wait for its time no longer.

        Does nothing in a fork of the process that created it: that process writes the queued events.
        """
        if not self._owner.here:
            return
        with self._lock:
            self._closed = True
        self._work.wake()
        self._thread.join()
        _unclosed.discard(self)
        if self._noted:
            self._time.leave(self._writer_id)
            self._noted = False
        with self._lock:
            if not self._raised:
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

    def _check(self) -> None:
        """Raise the failure, if there is one."""
        if self._cause is not None:
            raise self._failure()

    def _failure(self) -> StreamError:
        """A new error with the cause of the failure, for a caller that raises it: so `close` does not."""
        failure: StreamError
        if isinstance(self._cause, StreamSealed | StreamNotFound):
            failure = type(self._cause)(self._stream.key)
        else:
            failure = WriteFailed(self._stream.key, self.unconfirmed, str(self._cause) or repr(self._cause))
        failure.__cause__ = self._cause
        self._raised = True
        return failure

    # --- appending ---------------------------------------------------------------------------------------------

    def _run_thread(self) -> None:
        """The thread: append what is queued, unless a caller of flush is the appender."""
        pending: list[Attachment] = []
        try:
            while self._wait_for_work():
                while (batch := self._next_batch()) is not None:
                    self._append_or_upload(batch, pending)
                self._attach_uploaded(0, pending)
                self._appender = None
                self._done.wake()
                after_commit(self._stream)
        except BaseException as error:  # whatever ends this thread, the next call raises it
            self._fail(error)
        finally:
            self._attachments.discard(pending)

    def _wait_for_work(self) -> bool:
        """Become the appender once there are events to append, or maintenance to run. False at the end."""
        while True:
            with self._lock:
                if self._cause is not None:
                    self._loops.wake()  # of an append that was interrupted
                    return False
                if self._appender is None:
                    if self._has_queued() or self._appended:
                        self._appender, self._polling, self._appended = self, False, False
                        return True
                    if self._closed:
                        return False
                self._polling = time.monotonic() - self._flushed < POLL_TIME
            self._work.wait(self._is_thread_needed, POLL_INTERVAL if self._polling else None)

    def _is_thread_needed(self) -> bool:
        """Whether the thread has events to append, maintenance to run, or its end to handle."""
        with self._lock:
            free = self._appender is None and (self._has_queued() or self._appended or self._closed)
            return free or self._cause is not None

    def _has_queued(self) -> bool:
        return bool(self._queued or self._taken)

    def _next_batch(self) -> Batch | None:
        """The appender's next batch, if there is one."""
        if not self._taken:
            with self._lock:
                if not self._queued:
                    return None
                last = self._queued[-1]
                self._taken_end, self._taken_number = last[:2], last.last_number
                self._taken, self._queued = deque(self._queued), []
        taken, before = self._taken, self._batched_end
        routes, large = taken[0].routes, taken[0].large
        most = before[1] + (COLUMNS_BYTES if large else BATCH_BYTES)
        chosen = [taken.popleft()]
        while taken:
            following = taken[0]
            if following.size > most or following.routes is not routes or following.large is not large:
                break
            chosen.append(taken.popleft())
        batch = Batch(chosen, before)
        self._batched_end = batch.end
        return batch

    def _append_inline(self) -> bool:
        """Append the next batch on the caller's thread, which saves a thread switch. False if there is an appender.

        An exception fails the writer, because it is unknown how much of the batch was appended.
        """
        token = object()
        try:
            with self._lock:
                if self._may_append_inline():
                    self._appender, self._appended = token, True
            if self._appender is not token:
                return False
            self._flushed = time.monotonic()
            batch = self._next_batch()
            if batch is not None:
                self._append_batch(batch)
        except BaseException as error:
            if self._appender is not token:
                raise
            self._cause = error
            if not isinstance(error, Exception):
                raise
            self._fail(error)
        finally:
            if self._appender is token:
                self._appender = None
        self._done.wake()
        if self._has_queued() or self._closed or self._cause is not None:
            self._work.wake()
        return True

    def _may_append_inline(self) -> bool:
        """Whether a caller of flush may append the next batch."""
        size = self._end()[1] - self._durable_end[1]
        return self._has_queued() and size <= INLINE_BYTES and self._appender is None and not self._only_thread_appends

    def _append_or_upload(self, batch: Batch, pending: list[Attachment]) -> None:
        """Append a batch. A large one is only uploaded; a later call attaches it."""
        if batch.routes is not self._routes:
            batch = batch.rerouted(self._routes)
        if self._attach_bytes is not None and batch.size >= self._attach_bytes:
            self._attachments.begin(batch)
            self._attach_uploaded(MAX_UPLOADING, pending)
        else:
            self._attach_uploaded(0, pending)
            self._append_batch(batch)

    def _attach_uploaded(self, most: int, pending: list[Attachment]) -> None:
        """Attach uploaded batches, in order, until at most `most` batches are still uploading."""
        pending += self._attachments.take_uploaded(most)
        if not pending:
            return
        if not all(self._missing(each.batch) is each.batch for each in pending):
            self._append_instead(pending, self._attachments.delete)
            return
        try:
            parts, numbered = [part for each in pending for part in each.parts], self._numbered(pending[-1].batch)
            self._stream.write(parts, numbered, interleaving=combined(pending))
        except (SegmentSealed, SegmentNotFound, ChunksExpired):
            self._append_instead(pending, self._attachments.delete)
            return
        except AlreadyWritten as error:
            self._durable_number = error.last
            self._append_instead(pending, self._attachments.settle)  # an earlier try may have attached them
            return
        attached, pending[:] = list(pending), []
        for each in attached:
            self._confirm(each.batch)

    def _append_instead(self, pending: list[Attachment], remove: Callable[[Sequence[Attachment]], None]) -> None:
        """Append uploaded batches through the log instead, as far as they are missing, and remove their chunks."""
        rejected, pending[:] = list(pending), []
        remove(rejected)
        for each in rejected:
            self._append_batch(each.batch)

    def _missing(self, batch: Batch) -> Batch | None:
        """The events of a batch without those that are written already, by whichever writer of the producer."""
        return batch if self._durable_number is None else batch.after(self._durable_number)

    def _append_batch(self, batch: Batch) -> None:
        """Append a batch, routed again until its segments are open, and without events that are written already."""
        missing = self._missing(batch)
        while missing is not None:
            if missing.routes is not self._routes:
                missing = missing.rerouted(self._routes)
            try:
                self._stream.write(missing.appends(), self._numbered(missing), interleaving=missing.interleaving())
                break
            except (SegmentSealed, SegmentNotFound):
                self._routes = self._current_routes()
            except AlreadyWritten as error:
                self._durable_number = error.last
                missing = self._missing(missing)
        self._confirm(batch)

    def _numbered(self, batch: Batch) -> NumberedWrite | None:
        """What makes the append of events up to the end of a batch idempotent; None without a producer."""
        if self._producer is None:
            return None
        return NumberedWrite(self._producer, batch.last_number, self._durable_number)

    def _confirm(self, batch: Batch) -> None:
        """Record that a batch is durable."""
        self._durable_end = batch.end
        if self._producer is not None and (self._durable_number is None or batch.last_number > self._durable_number):
            self._durable_number = batch.last_number
        self._done.wake()
        self._loops.wake()

    def _fail(self, error: BaseException) -> None:
        """Fail the writer: nothing more is appended, and waiting calls and futures get the error."""
        self._cause = error
        self._done.wake()
        self._work.wake()
        self._loops.wake()

    def _current_routes(self) -> Routes:
        """The present routes of the stream. Raises StreamSealed, StreamNotFound, StreamRecreated."""
        snapshot = self._stream.snapshot()
        snapshot.require(self._routes.routing.id)
        record = snapshot.record
        if record.sealed:
            raise StreamSealed(self._stream.key)
        return routes_of(record.routing)


class WriterLoops:
    """The event loops whose coroutines wait for a writer, and what these need of it (see `loop_futures.Progress`)."""

    def __init__(self, writer: EventWriter) -> None:
        self._writer = writer
        self._loops: dict[asyncio.AbstractEventLoop, LoopFutures] = {}  # those with futures that wait

    def running(self) -> LoopFutures:
        """The futures of the running event loop that wait for the writer."""
        loop = asyncio.get_running_loop()
        found = self._loops.get(loop)
        if found is None:
            for other in list(self._loops):
                if other.is_closed():
                    self._loops.pop(other, None)
            found = self._loops[loop] = LoopFutures(loop, self)
        return found

    def wake(self) -> None:
        """Let event loops complete their futures, after an append or a failure."""
        for futures in list(self._loops.values()):
            futures.wake()

    def check_process(self) -> None:
        """Raise MadeBeforeFork in another process than the one that created the writer."""
        self._writer._owner.check()

    @property
    def written_events(self) -> int:
        """Number of events that were written: those that are durable, and those that are not yet."""
        with self._writer._lock:
            return self._writer._end()[0]

    @property
    def durable_events(self) -> int:
        """Number of durable events."""
        return self._writer.durable_events

    @property
    def has_room(self) -> bool:
        """Whether a write returns or raises at once, as at most MAX_QUEUED bytes are not durable."""
        return self._writer._may_write()

    @property
    def failed(self) -> bool:
        """Whether an append failed: every later call raises why."""
        return self._writer._cause is not None

    def failure_to_raise(self) -> StreamError:
        """A new error for a caller of the writer, which raises it."""
        return self._writer._failure()


def loops_of(writer: EventWriter) -> WriterLoops:
    """The event loops of a writer."""
    return writer._loops


_unclosed: weakref.WeakSet[EventWriter] = weakref.WeakSet()


@atexit.register
def _warn_of_unconfirmed() -> None:
    for writer in list(_unclosed):
        lost = writer.unconfirmed
        if lost and not writer._raised and writer._owner.here:
            logger.warning("%r was not flushed or closed: its last %d events may be lost", writer, lost)
