"""Large events as programs write them: a file that becomes one event when it is committed (Pravega:
LargeEventStreamWriter of PDP-43).

Data is collected in parts. Threads upload full parts while the caller continues to write, and the event's transient
segment attaches them in order. Keeps L1: an event has only a few parts in memory, whatever its size. An event of at
most 8 MiB is buffered, and written as an ordinary event.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from chunkstore import StorageError
from engine.errors import EngineError
from engine.ownership import Owner
from engine.state.attach_fence import creation_time
from engine.state.operations import Payload
from engine.state.segments import Extent
from pravega_spark.errors import Closed, EventClosed, EventSegmentSealed, EventTooLong
from pravega_spark.parameters import buffer_of, checks_parameters
from pravega_spark.streams.maintenance.scheduler import after_commit
from pravega_spark.streams.model.events import HEADER_SIZE, MAX_EVENT_SIZE, MAX_LARGE_EVENT_SIZE, event_header
from pravega_spark.streams.model.pointers import EventPointer
from pravega_spark.streams.stream import Stream
from pravega_spark.streams.writing.chunk_uploads import ChunkUploads
from pravega_spark.streams.writing.uploads import Upload

if TYPE_CHECKING:
    from typing_extensions import Buffer

logger = logging.getLogger(__name__)

PART_BYTES = MAX_EVENT_SIZE
"""Size of a full part. An event that fits into one part is not uploaded."""

UPLOADS = 1
UPLOADS_REMOTE = 2
"""Number of parts of an event that are uploaded in parallel, while the writer fills another one. One upload saturates a
local disk, and more would delay small events of other writers."""

INLINE_BYTES = 256 << 10
"""A last part of up to this size is appended through the log, without an object of its own."""


class _Sent(NamedTuple):
    """A part that is uploading: its buffer, None if that is not reused, and when the upload began (see
    `engine.state.attach_fence`)."""

    part: bytearray | None
    created_at: int


@checks_parameters(but=("__init__", "write"))
class LargeEvent(io.RawIOBase):
    """An event that is written like a file. Made by `StreamManager.begin_event` and `EventWriter.begin_event`.

    `commit` adds it to the stream. Closing it or leaving a with statement without a commit aborts it. Its limit is 1
    GiB. After a failure it cannot be written any more; an event with a name can be begun again and continues at
    `tell`. For one thread; must be used in the process that created it.

    Methods raise ValueError (EventClosed) if it was committed or aborted before, EventTaken, EventExpired,
    EventExists, StreamSealed, StreamNotFound, StorageError.
    """

    def __init__(self, stream: Stream, upload: Upload, before_commit: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self._stream = stream
        self._upload = upload
        self._before_commit = before_commit
        self._owner = Owner(
            f"this event of stream {upload.stream.key}", "begin a new one, or continue this one by its name"
        )
        self._store = upload.stream.container.stores.chunks
        self._at_once = UPLOADS_REMOTE if self._store.remote else UPLOADS
        self._uploads = ChunkUploads[_Sent](self._store, self._at_once, "large-event")
        self._landed: list[Extent] = []
        self._created_at = 0  # when the upload of the first of `_landed` began
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
        """Number of bytes written. A continued event begins with the number of bytes that are durable."""
        return self._size

    # --- writing -----------------------------------------------------------------------------------------------

    def write(self, data: Buffer, /) -> int:
        """Write all of `data`, which is copied. Waits while too much is being uploaded.

        If the event would exceed 1 GiB, it is aborted, and EventTooLong is raised.
        """
        self._check_open()
        view = buffer_of("data", data)
        if self._size + len(view) > MAX_LARGE_EVENT_SIZE:
            size = self._size + len(view)
            self.abort()
            raise EventTooLong(self._upload.stream.key, size, MAX_LARGE_EVENT_SIZE)
        with self._ending_if_it_fails():
            self._collect(view)
            self._take_written()
            self._upload.keep()
        return len(view)

    def flush(self) -> None:
        """Wait until everything written is durable. If the event has a name, another process can continue it there."""
        if self.closed:
            raise Closed(f"this event of stream {self._upload.stream.key}", "begin a new one")
        self._owner.check()
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
        """The content of the part that is being filled. The buffer has room for an event's header before it."""
        return memoryview(self._part)[HEADER_SIZE : HEADER_SIZE + self._fill]

    def _send(self) -> None:
        """Upload the part, and start another one."""
        self._take_written(self._at_once - 1)
        created_at = creation_time(self._upload.stream.container.storage_clock.now())
        remote = self._store.remote  # its client copies anything but bytes
        content = bytes(self._content()) if remote else self._content()
        epoch, offset = self._upload.stream.container.head.epoch, self._size - self._fill
        sent = _Sent(None if remote else self._part, created_at)
        self._uploads.send(sent, self._upload.target(), [[content]], epoch, offset)
        if not remote:
            self._part = self._free.pop() if self._free else _new_part()
        self._fill = 0

    def _take_written(self, most: int | None = None) -> None:
        """Attach uploaded parts, in order. Waits until at most `most` parts are uploading; None: does not wait."""
        for (part, created_at), extents in self._uploads.written(most):
            self._created_at = self._created_at if self._landed else created_at
            self._landed += extents
            if part is not None:
                self._free.append(part)
        if self._landed and self._upload.ready():
            self._attach()

    def _attach(self) -> None:
        landed, self._landed = tuple(self._landed), []
        self._upload.attach(landed, self._created_at)

    def _flush(self) -> None:
        """Make everything that was written durable in the transient segment."""
        rest = self._content() if self._fill <= INLINE_BYTES else None
        if rest is None:
            self._send()
        self._take_written(0)
        if self._landed:
            self._attach()  # after the attachment in flight
        if rest:
            self._upload.attach(Payload(bytes(rest)))
            self._fill = 0
        self._upload.settle()
        self._uploads.names.clear()  # the transient segment references these chunks now

    # --- its end -----------------------------------------------------------------------------------------------

    def commit(self, move: bool = False) -> EventPointer:
        """Add the whole event to the stream and close it; returns its pointer. Durable on return.

        move: if the stream was scaled meanwhile, commit to the segment that owns the key now. Otherwise
        EventSegmentSealed is raised. Nothing is lost then, and the commit can be repeated with `move`. Raises
        OutcomeUnknown if the storage did not answer, so that it is unknown whether the event was committed.
        """
        self._check_open()
        with self._ending_if_it_fails():
            self._before_commit()
            pointer = self._commit(move)
        self._end(f"committed as {pointer}")
        self.close()
        after_commit(self._stream)
        return pointer

    def _commit(self, move: bool) -> EventPointer:
        if not self._upload.segment and not self._uploads.pending and not self._landed:
            framed = memoryview(self._part)[: HEADER_SIZE + self._fill]
            framed[:HEADER_SIZE] = event_header(self._fill)
            return self._upload.append(framed)
        self._flush()
        return self._upload.commit(move)

    def abort(self) -> None:
        """Delete the upload, and close the event. If deleting fails, the upload expires once it has been idle.

        Raises EventClosed if the event was committed. Aborting it again changes nothing.
        """
        self._owner.check()
        if self._ended.startswith("committed"):
            self._check_open()
        if not self._ended:
            self._end("aborted")
            self._forget()
        self.close()

    def close(self) -> None:
        """Abort the event, unless it was committed. Does nothing in a fork of the process that created it."""
        if not self._owner.here:
            return
        if not self.closed:
            try:
                if not self._ended:
                    self.abort()
            finally:
                super().close()

    def __del__(self) -> None:
        """Makes no request: an abandoned upload expires once it has been idle."""

    def _check_open(self) -> None:
        self._owner.check()
        if self._ended:
            raise EventClosed(self._upload.stream.key, self._ended)
        if self.closed:
            raise Closed(f"this event of stream {self._upload.stream.key}", "begin a new one")

    def _end(self, how: str) -> None:
        self._ended = how
        self._uploads.close()
        self._free.clear()
        self._part = bytearray()

    @contextmanager
    def _ending_if_it_fails(self) -> Iterator[None]:
        """Abort the event if the block fails. An event with a name keeps its durable bytes, and can be continued."""
        try:
            yield
        except EventSegmentSealed:
            raise
        except BaseException as error:
            if not self._ended:
                self._end(f"aborted, because writing it had failed ({error}),")
                self._forget(keep=self._upload.name is not None)
                super().close()
            raise

    def _forget(self, keep: bool = False) -> None:
        try:
            if not keep:
                self._upload.abandon()
            self._upload.discard(sorted(self._uploads.names))
        except (EngineError, StorageError) as error:
            logger.warning(
                "%s: its upload could not be deleted and is left until it is idle: %s", repr(self), str(error)
            )


def _new_part() -> bytearray:
    return bytearray(HEADER_SIZE + PART_BYTES)
