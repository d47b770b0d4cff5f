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
import random
import threading
import time
import weakref
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from engine.errors import SegmentNotFound, SegmentSealed
from engine.logs.payload import MAX_PAYLOAD
from engine.ownership import Owner
from pravega_spark.client.checked_events import Column, Keys, checked_events, checked_keys, cut, framed_event
from pravega_spark.client.large_events.large_event import LargeEvent
from pravega_spark.errors import StreamError, StreamNotFound, StreamSealed
from pravega_spark.streams import uploads
from pravega_spark.streams.events import Framed, frame_column
from pravega_spark.streams.routing import KeyPlaces, hash_key, hash_keys, segment_for
from pravega_spark.streams.stream import SegmentAppend, Stream, parts_of
from pravega_spark.streams.stream_record import Routing
from pravega_spark.streams.upkeep import after_commit

logger = logging.getLogger(__name__)

MAX_QUEUED = 64 << 20
"""Whoever writes waits while more bytes than this are not durable."""

BATCH_BYTES = MAX_PAYLOAD - (64 << 10)
"""How much goes into one append: with its index records it fits one frame of the log."""

COPIED_BYTES = 1 << 20
"""Less than this is copied to what else is collected; more of a column makes an append of its own."""

_place_of = lru_cache(4096)(hash_key)  # most writers use the same keys again and again


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


class _Routes(NamedTuple):
    """By what events are routed, and the upper bounds of its segments' key ranges."""

    routing: Routing
    bounds: list[float]


class _Keys(NamedTuple):
    """The keys of some events that have one segment, wherever they belong: hashed when there are several."""

    keys: pa.Array | pa.ChunkedArray | None
    events: int


_Place: TypeAlias = "str | float | np.ndarray | _Keys | None"
"""Where events belong: one by its key, or by a place that was drawn, or (None) anywhere; or many of a column."""


class _Batch:
    """Framed events of one append: each segment's bytes and the events' lengths with their headers.

    places: where the events belong, in the order in which they were written.
    """

    __slots__ = ("events", "places", "routes", "shares", "size")

    def __init__(self, routes: _Routes) -> None:
        self.routes = routes
        self.shares: dict[int, tuple[bytearray, array[int]]] = {}
        self.places: list[_Place] = []
        self.size = 0
        self.events = 0

    def share(self, index: int) -> tuple[bytearray, array[int]]:
        """What is there for a segment."""
        found = self.shares.get(index)
        if found is None:
            found = self.shares[index] = bytearray(), array("q")
        return found

    def contents(self) -> Iterator[tuple[int, memoryview, np.ndarray]]:
        """For each segment, by its index, the framed events and their lengths."""
        for index, (content, lengths) in sorted(self.shares.items()):
            yield index, memoryview(content), np.frombuffer(lengths, np.int64)


class _Column:
    """Framed events of one append that came as a column."""

    def __init__(self, framed: Framed, routes: _Routes, places: _Place) -> None:
        self._framed = framed
        self.routes = routes
        self.places = [places]
        self.size = framed.data.size
        self.events = len(framed.lengths)

    def contents(self) -> Iterator[tuple[int, memoryview, np.ndarray]]:
        """As of a batch."""
        return self._framed.contents()


def _parts(batch: _Batch | _Column) -> list[SegmentAppend]:
    """A batch as a stream takes it."""
    return parts_of(batch.contents(), batch.routes.routing.segments, int(time.time() * 1000))


def _rerouted(batch: _Batch | _Column, routes: _Routes) -> _Batch:
    """The same events as another epoch routes them, those of each segment in the order in which they were written.

    One by one, because it is seldom done.
    """
    fractions = _fractions(batch.places)
    before = np.searchsorted(batch.routes.bounds, fractions, side="left")
    after = np.searchsorted(routes.bounds, fractions, side="left")
    starts, ends, contents = np.empty(len(before), np.int64), np.empty(len(before), np.int64), {}
    for index, content, lengths in batch.contents():
        contents[index] = content
        ends[before == index] = np.cumsum(lengths)
        starts[before == index] = np.cumsum(lengths) - lengths
    found = _Batch(routes)
    found.places, found.size, found.events = [fractions], batch.size, batch.events
    for old, new, start, end in zip(before.tolist(), after.tolist(), starts.tolist(), ends.tolist(), strict=True):
        framed, sizes = found.share(new)
        framed += contents[old][start:end]
        sizes.append(end - start)
    return found


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
        self._routes = _routes(record.routing)
        self._places = KeyPlaces()
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)  # for the thread: there is a batch, or the end
        self._done = threading.Condition(self._lock)  # for callers: a batch is durable, or has failed
        self._batches: deque[_Batch | _Column] = deque()
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
        if not isinstance(event, str):
            raise TypeError(f"write_event takes a str, not {type(event).__name__}; use write_event_bytes for bytes")
        self.write_event_bytes(event.encode(), routing_key)

    def write_event_async(self, event: str, routing_key: str | None = None) -> asyncio.Future[None]:
        """Write a str as UTF-8; the returned future is done when the event is durable, or has failed.

        For asyncio event loops. The event is written whether the future is awaited or not, in the order of the calls;
        like the other methods, the call waits while too much is queued. Raises the errors of `write_event_bytes`.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.write_event(event, routing_key)
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
        index, place = _routed(routing_key, routes.bounds)
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
        if len(events) == 0:
            return
        column, keys, routes = checked_events(events), checked_keys(routing_keys, len(events)), self._routes
        segments = fractions = None
        if len(routes.bounds) > 1:
            fractions = _drawn(self._places.find(keys) if keys is not None else np.full(len(column), np.nan))
            segments = segment_for(fractions, routes.bounds)
        for start, end in cut(column, BATCH_BYTES):
            part = segments[start:end] if segments is not None else None
            framed = frame_column(column.slice(start, end - start), part, len(routes.bounds))
            if fractions is not None:
                self._put(framed, routes, fractions[start:end])
            else:
                self._put(framed, routes, _Keys(keys[start:end] if keys is not None else None, end - start))

    def begin_event(self, routing_key: str | None = None, *, name: str | None = None) -> LargeEvent:
        """Begin an event of up to 1 GiB, which is written like a file. See `StreamManager.begin_event`.

        Its commit first flushes this writer: earlier events precede it, and later ones follow it.
        """
        self._owner.check()
        return LargeEvent(uploads.begin(self._stream, routing_key, name), self.flush)

    def _put(self, framed: Framed, routes: _Routes, places: _Place) -> None:
        with self._lock:
            if framed.data.size >= COPIED_BYTES:
                self._wait_for_room()
                self._batches.append(_Column(framed, routes, places))
                self._work.notify()
            else:
                batch = self._batch_for(framed.data.size, routes)
                for index in framed.segments():
                    content, lengths = batch.share(index)
                    content += memoryview(framed.segment_data(index))
                    lengths.frombytes(framed.segment_lengths(index).astype(np.int64, copy=False).tobytes())
                batch.places.append(places)
                batch.events += len(framed.lengths)
                batch.size += framed.data.size
            self._written += len(framed.lengths)
            self._queued += framed.data.size

    def _batch_for(self, size: int, routes: _Routes) -> _Batch:
        """The batch that the next `size` bytes go into. Waits while too much is queued."""
        self._wait_for_room()
        last = self._batches[-1] if self._batches else None
        if not isinstance(last, _Batch) or last.size + size > BATCH_BYTES or last.routes is not routes:
            last = _Batch(routes)
            self._batches.append(last)
            self._work.notify()
        return last

    def _wait_for_room(self) -> None:
        while self._queued > MAX_QUEUED and self._cause is None:
            self._done.wait()
        self._check()
        if self._closed:
            raise ValueError(f"this writer of stream {self._stream.key} is closed: create a new one")

    # --- waiting -----------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Wait until everything written before is durable. Raises WriteFailed, StreamSealed or StreamNotFound."""
        self._owner.check()
        with self._lock:
            target = self._written
            while self._durable < target and self._cause is None:
                self._done.wait()
            self._check()

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

    # --- the thread --------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while (batch := self._next()) is not None:
                self._write(batch)
                with self._lock:
                    self._queued -= batch.size
                    self._durable += batch.events
                    self._tell_awaited()
                    self._done.notify_all()
                after_commit(self._stream)
        except BaseException as error:  # whatever ends this thread, the next caller hears of it
            with self._lock:
                self._cause = error
                self._batches.clear()
                self._tell_awaited()
                self._done.notify_all()

    def _write(self, batch: _Batch | _Column) -> None:
        """Append a batch, as soon as its events are routed to segments that are open."""
        while True:
            if batch.routes is not self._routes:
                batch = _rerouted(batch, self._routes)
            try:
                self._stream.write(_parts(batch))
                return
            except (SegmentSealed, SegmentNotFound):
                self._routes = self._routes_now()

    def _routes_now(self) -> _Routes:
        """The routes since the stream was scaled. Raises StreamSealed, StreamNotFound."""
        record = self._stream.snapshot().record
        if record.created != self._routes.routing.created:
            raise StreamNotFound(self._stream.key)  # another stream has its name now
        if record.sealed:
            raise StreamSealed(self._stream.key)
        return _routes(record.routing)

    def _next(self) -> _Batch | _Column | None:
        """The next batch, as soon as there is one; None at the end."""
        with self._lock:
            while not self._batches and not self._closed:
                self._work.wait()
            return self._batches.popleft() if self._batches else None


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


def _routes(routing: Routing) -> _Routes:
    return _Routes(routing, [segment.high for segment in routing.segments])


def _routed(key: str | None, bounds: list[float]) -> tuple[int, str | float | None]:
    """The index of the segment that an event goes to, and by what its place can be told later."""
    if len(bounds) == 1:
        if key is not None and not isinstance(key, str):
            raise TypeError(f"a routing key must be a str, not {type(key).__name__}")
        return 0, key
    if key is None:
        drawn = random.random()
        return bisect_left(bounds, drawn), drawn
    return bisect_left(bounds, _place_of(key)), key


def _fractions(places: Sequence[_Place]) -> np.ndarray:
    """The place of each event on the key space."""
    found: list[np.ndarray] = []
    single: list[float] = []
    for place in places:
        if isinstance(place, str):
            single.append(_place_of(place))
        elif isinstance(place, float):
            single.append(place)
        elif place is None:
            single.append(random.random())
        else:
            if isinstance(place, _Keys):
                place = _drawn(np.full(place.events, np.nan) if place.keys is None else hash_keys(place.keys))
            found += [np.array(single, np.float64), place]
            single = []
    return np.concatenate([*found, np.array(single, np.float64)])


def _drawn(fractions: np.ndarray) -> np.ndarray:
    """The places, with drawn ones for the events without a key, where it is NaN."""
    keyless = np.isnan(fractions)
    return np.where(keyless, np.random.default_rng().random(len(fractions)), fractions) if keyless.any() else fractions
