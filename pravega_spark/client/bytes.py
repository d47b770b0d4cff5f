"""Byte streams: a stream of one segment as a file that grows at its end and is truncated at its head (Pravega:
ByteStreamWriter and ByteStreamReader; `pravega_client.ByteStream`).

The bytes lie in the segment as they were written, without events' headers, without an index and without a count of
events. So nothing but this module reads them, and a segment that has events is refused. Appends are conditional on the
offset, as in the original: nobody's bytes ever come between those of one writer.
"""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

from engine.errors import BadOffset, EngineError, SegmentNotFound, SegmentSealed, SegmentTruncated, Throttled
from engine.operations import Append, Payload
from engine.pending import Receipt
from engine.segments import EVENT_COUNT, Segment
from pravega_spark.errors import InvalidStreamCut, StreamError
from pravega_spark.streams.cuts import StreamCut
from pravega_spark.streams.stream import Snapshot, Stream

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

MAX_WRITE = 8 << 20
"""Bytes of one `write`, all of which are appended or none (Pravega: EventWriter::MAX_EVENT_SIZE)."""

MAX_READ = 8 << 20
"""Bytes of one `readinto`, at most."""

MAX_WAITING = 16
"""Writes that wait to be durable, at most (Pravega: ByteWriter::CHANNEL_CAPACITY, by bytes)."""

T = TypeVar("T")


class ByteStreamError(StreamError, OSError):
    """A byte stream cannot do what was asked. It is an OSError too, as those of `pravega_client` are."""


class ByteStream(io.RawIOBase):
    """The bytes of a stream. Made by `StreamManager.create_byte_stream`; use it in a with statement, or close it.

    It is a raw file: what `io.BufferedReader`, `io.BufferedWriter` and `shutil.copyfileobj` need. Offsets count from
    where the stream once began, whatever was truncated since. Reading begins at the head, ends at the tail, and goes on
    when there is more; writing appends, wherever the reading position is. One thread at a time; any number of objects
    and processes may read, one may write.

    Raises ByteStreamError, ValueError when it is closed, and StorageError when the storage fails.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._waiting: deque[Future[Receipt]] = deque()
        self._failure: Exception | None = None
        self._segment, self._name, known = stream.look(_the_segment)
        self._position = known.start_offset
        self._known = known.length  # bytes that are durable, as far as is known
        self._end = known.length  # where the next write goes

    def __repr__(self) -> str:
        return f"ByteStream({self._stream.key!r})"

    def to_str(self) -> str:
        """Its stream as text for people."""
        return self._stream.key

    # --- writing -----------------------------------------------------------------------------------------------

    def writable(self) -> bool:
        """True, though a sealed stream takes nothing."""
        return True

    def write(self, byte_array: ReadableBuffer) -> int:
        """Append up to 8 MiB at once; how many bytes were taken. They are durable after `flush`.

        After a failure nothing more is taken: somebody else has written, the stream was sealed or deleted, or it is not
        known whether something was appended. Then make another ByteStream and compare `current_tail_offset`.
        """
        self._check_open()
        self._check()
        data = bytes(memoryview(byte_array).cast("B")[:MAX_WRITE])
        if not data:
            return 0
        while len(self._waiting) >= MAX_WAITING:
            self._settle(self._waiting.popleft())
        self._waiting.append(self._submit(data))
        self._end += len(data)
        return len(data)

    def _submit(self, data: bytes) -> Future[Receipt]:
        try:
            return self._stream.container.submit([Append(self._name, Payload(data), self._end)])
        except Throttled as error:
            raise self._told(error) from error  # it may be tried again
        except EngineError as error:
            raise self._failed(error) from error

    def flush(self) -> None:
        """Wait until all that was written is durable."""
        self._check_open()
        while self._waiting:
            self._settle(self._waiting.popleft())
        self._check()

    def _settle(self, future: Future[Receipt]) -> None:
        try:
            future.result()
        except Exception as error:
            self._waiting.clear()  # those behind it, which are conditional on it, fail as it did
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> Exception:
        """What is raised, now and by each later call that writes."""
        self._failure = self._told(error)
        return self._failure

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _told(self, error: Exception) -> Exception:
        key = self._stream.key
        if isinstance(error, BadOffset):
            return ByteStreamError(
                f"byte stream {key}: somebody else has written to it: {error}. What was written here after the last "
                "flush may be lost; only one may write at a time"
            )
        if isinstance(error, SegmentSealed):
            return ByteStreamError(f"byte stream {key} is sealed: it can be read, but takes no more bytes")
        if isinstance(error, SegmentNotFound):
            return ByteStreamError(f"byte stream {key} was deleted")
        if isinstance(error, EngineError):
            return ByteStreamError(f"byte stream {key}: {error}")
        return error

    def close(self) -> None:
        """Flush, and take nothing more. Raises a failure that no other call has raised."""
        told = self._failure
        try:
            super().close()  # which flushes
        except Exception as error:
            if error is not told:
                raise

    # --- reading -----------------------------------------------------------------------------------------------

    def readable(self) -> bool:
        """True."""
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Fill the buffer with what follows; how many bytes there were, 0 at the tail. Reads what is durable only.

        Raises ByteStreamError when what follows was truncated: seek to `current_head_offset()` then.
        """
        self._check_open()
        room = memoryview(buffer).cast("B")[:MAX_READ]
        if len(room) > self._known - self._position:
            self._known = self._now().length
        size = min(len(room), self._known - self._position)
        if size <= 0:
            return 0
        data = self._asked(lambda: self._stream.container.read(self._name, self._position, self._position + size))
        room[:size] = data
        self._position += size
        return size

    def seekable(self) -> bool:
        """True."""
        return True

    def seek(self, position: int, whence: int | None = io.SEEK_SET) -> int:
        """Where to read next, from offset 0 (whence 0, or None), from here (1), or from the tail (2); the new offset.

        It may lie in front of the head or behind the tail. Raises ValueError for one below 0.
        """
        self._check_open()
        whence = io.SEEK_SET if whence is None else whence  # as the original takes it
        if whence not in (io.SEEK_SET, io.SEEK_CUR, io.SEEK_END):
            raise ValueError(f"whence is 0 (offset), 1 (from here) or 2 (from the tail), not {whence!r}")
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position}.get(whence)
        target = position + (self.current_tail_offset() if base is None else base)
        if target < 0:
            raise ValueError(f"byte stream {self._stream.key}: cannot seek to offset {target}: give one from 0 on")
        self._position = target
        return target

    def tell(self) -> int:
        """The offset that is read next."""
        self._check_open()
        return self._position

    # --- head and tail -----------------------------------------------------------------------------------------

    def current_head_offset(self) -> int:
        """The offset of the first byte that can be read."""
        return self._now().start_offset

    def current_tail_offset(self) -> int:
        """The offset behind the last byte that is durable."""
        return self._now().length

    def truncate(self, offset: int) -> None:  # type: ignore[override]  # as in the original: at the head, not the tail
        """Forget all bytes in front of `offset`; nothing happens if they are gone already.

        Raises ByteStreamError for an offset behind the tail, and for a sealed stream.
        """
        self.flush()
        now = self._now()
        if offset <= now.start_offset:
            return
        if offset > now.length:
            raise ByteStreamError(
                f"byte stream {self._stream.key} has offsets {now.start_offset} to {now.length} and cannot be "
                f"truncated at {offset}"
            )
        try:
            self._stream.truncate(StreamCut(self._stream.scope, self._stream.name, {self._segment: offset}))
        except InvalidStreamCut:
            if self.current_head_offset() < offset:  # else somebody else has truncated further
                raise
        except StreamError as error:
            raise ByteStreamError(str(error)) from error

    def _now(self) -> Segment:
        self._check_open()
        return self._asked(lambda: self._stream.container.info(self._name))

    def _asked(self, look: Callable[[], T]) -> T:
        try:
            return look()
        except SegmentTruncated as error:
            raise ByteStreamError(
                f"byte stream {self._stream.key}: offset {error.offset} was truncated away; the first that can be read "
                f"is {error.start_offset}: seek to current_head_offset()"
            ) from error
        except EngineError as error:
            raise self._told(error) from error

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError(f"byte stream {self._stream.key}: this object is closed; make a new one")


def _the_segment(snapshot: Snapshot) -> tuple[int, str, Segment]:
    """Id, name and properties of the only segment of a byte stream. Raises ByteStreamError for another stream."""
    key, numbers = snapshot.stream.key, snapshot.record.segment_ids()
    if len(numbers) != 1:
        raise ByteStreamError(
            f"stream {key} has {len(numbers)} segments: a byte stream has one, for ever; make it with a fixed scaling "
            "policy and one segment"
        )
    segment = snapshot.segment(numbers[0])
    if segment.attributes.get(EVENT_COUNT, 0):
        raise ByteStreamError(f"stream {key} has events: read and write it as such, or make another stream for bytes")
    return numbers[0], segment.name, segment
