"""Writing and following streams in an event loop: an asynchronous face of the event writer and of a tail.

Neither has an engine of its own. A write goes into the queue of an `EventWriter`, whose thread appends it, and the
coroutine waits for a future. What makes requests (opening, a poll of a tail, closing) runs in the loop's default
executor, for the time of the requests. So the event loop is never blocked, and an idle tail holds no thread.

Keeps, of W16, that a cancelled call is all or nothing: a write that waits for room has not been written and never will
be, and any other write is in the writer's queue as a whole. A tail that is cancelled has lost no event.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial

from engine.interrupts import uninterrupted
from pravega_spark.client.event import Event
from pravega_spark.client.event_validation import Column, Keys, check_numbers, validated_events, validated_keys
from pravega_spark.client.reader import Follower, follow
from pravega_spark.client.writer import EventWriter, Numbers, loops_of
from pravega_spark.errors import Closed
from pravega_spark.quantities import DurationLike
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.model.events import HEADER_SIZE
from pravega_spark.streams.stream_time import LEASE

ROUND_BYTES = 1 << 20
"""About how many bytes of events a tail reads at a time, and has in memory."""

CHECK_AGAIN = 1.0
"""Maximum seconds after which a tail that waits for its next poll notices that it or its manager was closed."""


class _OfOneLoop:
    """An object that belongs to the event loop in which it is first used, like those of asyncio."""

    _loop: asyncio.AbstractEventLoop | None = None

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise RuntimeError(f"{self!r} belongs to another event loop, in which it was used first: make one for each")
        return loop


class AsyncEventWriter(_OfOneLoop):
    """Writes events to a stream from coroutines. Made by `StreamManager.create_async_writer`; use it in an async with
    statement, or await `open` and `close`.

    Each write returns once its events are durable, and raises WriteFailed, StreamSealed or StreamNotFound if they are
    not known to be. Any number of coroutines may wait; those that wait at the same time share appends. Events are
    written in the order in which the calls began: those of `asyncio.gather` in the order of its arguments. While too
    much is queued, calls wait in this order before they write anything.

    A call that is cancelled, or that runs into a timeout, while it waits for room has written nothing. Later its events
    are in the queue: as a rule they become durable, and `unconfirmed` and `durable_events` count them. Other calls are
    not affected. It belongs to one event loop and to the process that created it.
    """

    def __init__(self, create: Callable[[], EventWriter], stream: str) -> None:
        self._create = create
        self._stream = stream
        self._writer: EventWriter | None = None
        self._turns: OrderedDict[asyncio.Future[None], Callable[[], None]] = OrderedDict()  # of writes without room
        self._room: asyncio.Future[None] | None = None  # done when there is room for them
        self._closed = False

    async def open(self) -> AsyncEventWriter:
        """Open the stream, and return this writer. Raises as `StreamManager.create_writer`.

        If the call is cancelled, the manager closes what it opened.
        """
        self._running_loop()
        self._check_open()
        if self._writer is None:
            self._writer = await asyncio.to_thread(self._create)
        return self

    async def __aenter__(self) -> AsyncEventWriter:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"AsyncEventWriter({self._stream!r})"

    @property
    def durable_events(self) -> int:
        """Number of durable events, which are the first that were written."""
        return self._opened.durable_events

    @property
    def unconfirmed(self) -> int:
        """Number of events that were written and are not known to be durable yet. Those of `waiting` do not count."""
        return self._opened.unconfirmed

    @property
    def waiting(self) -> int:
        """Number of calls that have not written yet, because too much is queued."""
        return len(self._turns)

    @property
    def last_number(self) -> int | None:
        """The number of the producer's last durable event. See `EventWriter.last_number`."""
        return self._opened.last_number

    async def write_event(self, event: str, routing_key: str | None = None, number: int | None = None) -> None:
        """Write a text as UTF-8; returns when it is durable. Raises as `EventWriter.write_event`."""
        await self._written(partial(self._opened.write_event, event, routing_key, number))

    async def write_event_bytes(
        self, event: bytes | bytearray | memoryview, routing_key: str | None = None, number: int | None = None
    ) -> None:
        """Write an event; returns when it is durable. Raises as `EventWriter.write_event_bytes`."""
        content = bytes(event) if isinstance(event, bytearray | memoryview) else event
        await self._written(partial(self._opened.write_event_bytes, content, routing_key, number))

    async def write_events(
        self,
        events: Column,
        routing_keys: Keys | None = None,
        numbers: Numbers | None = None,
        *,
        routing_key: str | None = None,
        atomic: bool = False,
    ) -> None:
        """Write a column of strings or bytes; returns when all of it is durable. Raises as `EventWriter.write_events`.

        The event loop is busy while the column is validated and copied: some milliseconds for 10 MB.
        """
        column = validated_events(events)
        keys = validated_keys(routing_keys, len(column), routing_key)
        checked = None if numbers is None else check_numbers(numbers, len(column), -1)
        await self._written(partial(self._opened.write_events, column, keys, checked, atomic=atomic))

    async def flush(self) -> None:
        """Wait until all that was written before is durable, cancelled writes included. Raises as
        `EventWriter.flush`."""
        await self._written(lambda: None)

    async def note_time(self, timestamp: int, lease: DurationLike = LEASE) -> None:
        """Note the time of this writer; returns when all that was written before is durable, and the time is noted.

        What is written after that has this time or a later one. Raises as `EventWriter.note_time`.
        """
        await self.flush()
        await asyncio.to_thread(self._opened.note_time, timestamp, lease)

    async def close(self) -> None:
        """Let the calls that wait for room write, flush and close. Raises an error that no other call has raised.

        If it is cancelled, the writer takes no further events and closes in the background.
        """
        self._running_loop()
        self._closed = True
        if self._writer is None:
            return
        while self._turns:
            await asyncio.wait([next(reversed(self._turns))])
        await asyncio.to_thread(self._writer.close)

    @property
    def _opened(self) -> EventWriter:
        if self._writer is None:
            raise ValueError(f"{self!r} is not open: use it in an async with statement, or await its open() first")
        return self._writer

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"this writer of stream {self._stream}")

    async def _written(self, write: Callable[[], None]) -> None:
        """Write when it is the call's turn and there is room, and wait until it is durable."""
        loops = loops_of(self._opened)
        loops.check_process()
        loop = self._running_loop()
        self._check_open()
        done: asyncio.Future[None] = loop.create_future()
        if not self._turns and loops.has_room:
            write()
            loops.running().complete_when_durable(done)
            await done
            return
        self._turns[done] = write
        self._await_room()
        try:
            await done
        finally:
            self._turns.pop(done, None)  # it was cancelled: nothing is written

    def _await_room(self) -> None:
        """Let `_take_turns` run when there is room."""
        if self._room is None:
            self._room = self._running_loop().create_future()
            self._room.add_done_callback(lambda _: uninterrupted(self._take_turns))
            loops_of(self._opened).running().complete_when_room(self._room)

    def _take_turns(self) -> None:
        """Let waiting calls write in their order, while there is room."""
        self._room = None
        while self._turns and loops_of(self._opened).has_room:
            done, write = self._turns.popitem(last=False)
            if not done.done():  # otherwise it was cancelled just now
                self._write_for(done, write)
        if self._turns:
            self._await_room()

    def _write_for(self, done: asyncio.Future[None], write: Callable[[], None]) -> None:
        try:
            write()
        except Exception as error:
            done.set_exception(error)
        except BaseException:
            done.cancel()
            raise
        else:
            loops_of(self._opened).running().complete_when_durable(done)


class AsyncTail(_OfOneLoop, AsyncIterator[Event]):
    """Follows a stream: `async for event in manager.tail_async(…)`. It ends when the stream is sealed and everything
    was read, or by `aclose`.

    In an async with statement it begins on entry, otherwise with the first event: events that are written from then on
    are returned. If waiting for an event is cancelled, runs into a timeout or fails, no event is lost: it can be
    continued, or another tail can begin at its `position`. It belongs to one event loop.
    """

    def __init__(
        self,
        begin: Callable[[], Follower],
        stream: str,
        stop: threading.Event | Callable[[], bool] | None,
        check_open: Callable[[], None],
    ) -> None:
        self._begin = begin
        self._stream = stream
        self._stopped = stop.is_set if isinstance(stop, threading.Event) else stop
        self._check_open = check_open
        self._follower: Follower | None = None
        self._ready: deque[Event] = deque()  # read, and not returned yet
        self._start: StreamCut | None = None  # where the events of `_ready` began
        self._returned: dict[int, Event] = {}  # the last one of each segment since `_start`
        self._step: asyncio.Future[None] | None = None  # a poll in another thread
        self._failure: BaseException | None = None
        self._idle = False  # the last poll found nothing
        self._closed = False

    async def __aenter__(self) -> AsyncTail:
        while self._follower is None:
            await self._advance()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"AsyncTail({self._stream!r})"

    def __aiter__(self) -> AsyncTail:
        return self

    async def __anext__(self) -> Event:
        """The next event. Raises as `StreamManager.tail`; after an error the next call tries again."""
        while self._closed or not self._ready:
            if self._is_over():
                raise StopAsyncIteration
            await self._advance()
            if self._idle:
                await self._pause()
        event = self._ready.popleft()
        self._returned[event.segment_id] = event
        return event

    @property
    def position(self) -> StreamCut:
        """The cut behind the events that were returned. A tail from there returns all others.

        After a scale it may be before some of the events that were returned, which then come again. ValueError before
        the tail has begun.
        """
        if self._follower is None:
            raise ValueError(f"{self!r} has not begun, so it has no position: use it in an async with statement")
        if not self._ready or self._start is None:
            return self._follower.position
        positions = dict(self._start.positions)
        for segment, event in self._returned.items():
            if segment in positions:  # otherwise it follows on others, and to read it again is right too
                positions[segment] = event[2] + HEADER_SIZE + event.size
        return StreamCut(self._start.scope, self._start.stream, positions)

    async def aclose(self) -> None:
        """End the iteration, also for a task that waits for an event. Waits for the request in flight, if any."""
        self._closed = True
        if self._step is not None:
            await asyncio.wait([self._step])

    def _is_over(self) -> bool:
        if self._closed or (self._follower is not None and self._follower.at_end):
            return True
        return self._stopped is not None and self._stopped()

    async def _advance(self) -> None:
        """Wait for a poll, by this call or begun by one that was cancelled. Raises its error."""
        loop = self._running_loop()
        if self._step is None:
            self._step = loop.run_in_executor(None, self._poll)
        step = self._step
        await asyncio.wait([step])  # which cancels nothing
        if self._step is step:
            self._step = None
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def _poll(self) -> None:
        """Begin, or read the next events; in another thread, while the tail has none."""
        try:
            self._idle = False
            if self._follower is None:
                self._follower = self._begin()
                return
            end, events = self._follower.poll(ROUND_BYTES)
            if events is None:
                self._idle = not self._follower.at_end
                return
            found = deque(events)
            self._start, self._returned = self._follower.position, {}
            self._ready = found
            self._follower.position = end
        except BaseException as error:  # the caller of this step may be gone: the next one gets it
            self._failure = error

    async def _pause(self) -> None:
        """Wait until the next poll is due."""
        assert self._follower is not None
        loop = self._running_loop()
        until = loop.time() + self._follower.due_in()
        while not self._is_over() and (left := until - loop.time()) > 0:
            self._check_open()
            await asyncio.sleep(min(left, CHECK_AGAIN))


class Tail(Iterator[Event]):
    """Follows a stream: `for event in manager.tail(…)`, or `async for` in an event loop. It begins where the call of
    `tail` has found the position."""

    def __init__(
        self,
        follower: Follower,
        stream: str,
        stop: threading.Event | Callable[[], bool] | None,
        check_open: Callable[[], None],
    ) -> None:
        self._events = follow(follower, stop)
        self._in_loop = AsyncTail(lambda: follower, stream, stop, check_open)
        self._stream = stream

    def __iter__(self) -> Tail:
        return self

    def __next__(self) -> Event:
        return next(self._events)

    def __aiter__(self) -> AsyncTail:
        return self._in_loop

    def __repr__(self) -> str:
        return f"Tail({self._stream!r})"
