"""Large events as programs write them: a file that becomes one event when it is committed (Pravega:
LargeEventStreamWriter of PDP-43).

What is written is collected in parts, and full parts are uploaded by a few threads while the caller goes on writing;
then the transient segment of the event takes them, in order. Keeps L1: an event holds no more than a few parts in
memory, whatever its size. An event of at most 8 MiB is held back, and written as any other one.
"""

from __future__ import annotations

import io
import logging
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from chunkstore import StorageError
from engine.chunks import chunk_name, write_chunk
from engine.errors import EngineError
from engine.horizon import made_at
from engine.operations import Payload
from engine.segments import Extent
from pravega_spark.errors import EventClosed, EventSegmentSealed, EventTooLong
from pravega_spark.streams.events import HEADER_SIZE, MAX_EVENT_SIZE, MAX_LARGE_EVENT_SIZE, event_header
from pravega_spark.streams.pointers import EventPointer
from pravega_spark.streams.upkeep import after_commit
from pravega_spark.streams.uploads import Upload

if TYPE_CHECKING:
    from typing_extensions import Buffer

logger = logging.getLogger(__name__)

PART_BYTES = MAX_EVENT_SIZE
"""A full part. An event that fits one is no upload."""

UPLOADS = 1
UPLOADS_REMOTE = 2
"""Parts of an event that are uploaded at a time, beside the one that is being filled. On a disk one is as fast as a
copy of a file, and more would make the small events of others wait."""

INLINE_BYTES = 256 << 10
"""A last part of no more than this travels in the log, and makes no object."""


class _Sent(NamedTuple):
    """A part on its way to a chunk: the memory it lies in, if that is used again, when its chunk was begun (see
    `engine.horizon`), and what comes of it."""

    part: bytearray | None
    made: int
    extents: Future[list[Extent]]


class LargeEvent(io.RawIOBase):
    """An event that is written like a file. Made by `StreamManager.begin_event` and `EventWriter.begin_event`.

    `commit` lets it into the stream. Closing it without, and so leaving a with statement, aborts it. It takes 1 GiB at
    most. After a failure it takes nothing more; if it has a name it can be begun again, and goes on at `tell`. For one
    thread; belongs to the process that made it.

    Methods raise ValueError (EventClosed) when it was committed or aborted before, EventTaken, EventExpired,
    EventExists, StreamSealed, StreamNotFound, StorageError.
    """

    def __init__(self, upload: Upload, before_commit: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self._upload = upload
        self._before_commit = before_commit
        self._store = upload.stream.container.stores.chunks
        self._uploads = UPLOADS_REMOTE if self._store.remote else UPLOADS
        self._pool = ThreadPoolExecutor(self._uploads, "large-event")
        self._sent: deque[_Sent] = deque()
        self._landed: list[Extent] = []
        self._made = 0  # when the first chunk of what has landed was begun
        self._names: set[str] = set()  # of chunks that the transient segment may not have
        self._free: list[bytearray] = []
        self._part = _new_part()
        self._fill = 0
        self._size = upload.length
        self._ended = ""

    def __repr__(self) -> str:
        return f"LargeEvent({self._upload.stream.key!r}, {self._size} bytes{', ' * bool(self._ended)}{self._ended})"

    def writable(self) -> bool:
        """True."""
        return True

    def tell(self) -> int:
        """How many bytes of the event were written; of one that was begun before, at first how many are durable."""
        return self._size

    # --- writing -----------------------------------------------------------------------------------------------

    def write(self, data: Buffer, /) -> int:
        """Write all of `data`; it may be changed at once. Waits while too much is being uploaded.

        Raises EventTooLong, which names the limit, when it would exceed 1 GiB; it is aborted then.
        """
        self._check_open()
        view = memoryview(data)
        view = view.cast("B") if view.contiguous else memoryview(view.tobytes())
        if self._size + len(view) > MAX_LARGE_EVENT_SIZE:
            size = self._size + len(view)
            self.abort()
            raise EventTooLong(self._upload.stream.key, size, MAX_LARGE_EVENT_SIZE)
        with self._ending_if_it_fails():
            self._collect(view)
            self._land()
            self._upload.keep()
        return len(view)

    def flush(self) -> None:
        """Wait until all that was written is durable: with a name it can be gone on with by another process."""
        if self.closed:
            raise ValueError("I/O operation on closed file")
        if not self._ended:
            with self._ending_if_it_fails():
                self._flush()
                self._upload.keep()

    def _collect(self, view: memoryview) -> None:
        done = 0
        while done < len(view):
            if self._fill == PART_BYTES:
                self._send()
            taken = min(PART_BYTES - self._fill, len(view) - done)
            start = HEADER_SIZE + self._fill
            self._part[start : start + taken] = view[done : done + taken]
            self._fill += taken
            self._size += taken
            done += taken

    def _content(self) -> memoryview:
        """The part that is being filled; there is room for an event's header before it."""
        return memoryview(self._part)[HEADER_SIZE : HEADER_SIZE + self._fill]

    def _send(self) -> None:
        """Upload the part, and go on with another one."""
        name = chunk_name(self._upload.target(), self._upload.stream.container.head.epoch, self._size - self._fill)
        self._names.add(name)
        while len(self._sent) >= self._uploads:
            wait([self._sent[0].extents])
            self._land()
        made = made_at(self._upload.stream.container.now())
        if self._store.remote:  # its client would copy anything but bytes
            self._sent.append(_Sent(None, made, self._pool.submit(self._write, name, bytes(self._content()))))
        else:
            self._sent.append(_Sent(self._part, made, self._pool.submit(self._write, name, self._content())))
            self._part = self._free.pop() if self._free else _new_part()
        self._fill = 0

    def _write(self, chunk: str, content: bytes | memoryview) -> list[Extent]:
        return write_chunk(self._store, chunk, [[content]])

    def _land(self) -> None:
        """Attach what is uploaded by now, in order; nothing is waited for."""
        while self._sent and self._sent[0].extents.done():
            part, made, extents = self._sent.popleft()
            self._made = self._made if self._landed else made
            self._landed += extents.result()
            if part is not None:
                self._free.append(part)
        if self._landed and self._upload.ready():
            self._attach()

    def _attach(self) -> None:
        landed, self._landed = tuple(self._landed), []
        self._upload.attach(landed, self._made)

    def _flush(self) -> None:
        """Bring all that was written to the transient segment."""
        rest = self._content() if self._fill <= INLINE_BYTES else None
        if rest is None:
            self._send()
        wait([sent.extents for sent in self._sent])
        self._upload.settle()
        self._land()
        if rest:
            self._upload.attach(Payload(bytes(rest)))
            self._fill = 0
        self._upload.settle()
        self._names.clear()

    # --- its end -----------------------------------------------------------------------------------------------

    def commit(self, move: bool = False) -> EventPointer:
        """Let the event into the stream, whole, and close this; returns where it is. Durable on return.

        move: where the stream was scaled meanwhile, to the segment that has its key now. Otherwise EventSegmentSealed
        is raised then; nothing is lost, and it may be committed again with `move`. Raises OutcomeUnknown when the
        storage gave no answer, and it cannot be told whether the event is there.
        """
        self._check_open()
        with self._ending_if_it_fails():
            self._before_commit()
            pointer = self._commit(move)
        self._end(f"committed as {pointer}")
        self.close()
        after_commit(self._upload.stream)
        return pointer

    def _commit(self, move: bool) -> EventPointer:
        if not self._upload.segment and not self._sent and not self._landed:
            framed = memoryview(self._part)[: HEADER_SIZE + self._fill]
            framed[:HEADER_SIZE] = event_header(self._fill)
            return self._upload.append(framed)
        self._flush()
        return self._upload.commit(move)

    def abort(self) -> None:
        """Forget the event, and close this. What cannot be forgotten now, as the storage fails, goes when it is idle.

        Raises EventClosed when it was committed; aborting it again changes nothing.
        """
        if self._ended.startswith("committed"):
            self._check_open()
        if not self._ended:
            self._end("aborted")
            self._forget()
        self.close()

    def close(self) -> None:
        """Abort the event, unless it was committed."""
        if not self.closed:
            try:
                if not self._ended:
                    self.abort()
            finally:
                super().close()

    def __del__(self) -> None:
        """Asks nothing of the storage: what was uploaded goes when it is idle."""

    def _check_open(self) -> None:
        if self._ended:
            raise EventClosed(self._upload.stream.key, self._ended)
        if self.closed:
            raise ValueError("I/O operation on closed file")

    def _end(self, how: str) -> None:
        self._ended = how
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._sent.clear()
        self._free.clear()
        self._part = bytearray()

    @contextmanager
    def _ending_if_it_fails(self) -> Iterator[None]:
        """A failure within is the end of the event. With a name it can be gone on with: what is durable stays."""
        try:
            yield
        except EventSegmentSealed:
            raise
        except BaseException as error:
            if not self._ended:
                self._end(f"given up, as writing it had failed ({error}),")
                self._forget(keep=self._upload.name is not None)
                super().close()
            raise

    def _forget(self, keep: bool = False) -> None:
        try:
            if not keep:
                self._upload.abandon()
            self._upload.discard(sorted(self._names))
        except (EngineError, StorageError) as error:
            logger.warning("%r: what was uploaded stays until it is idle: %s", self, error)


def _new_part() -> bytearray:
    return bytearray(HEADER_SIZE + PART_BYTES)
