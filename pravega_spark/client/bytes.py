"""Byte streams: a stream of one segment as a file that grows at its end and is truncated at its head (Pravega:
ByteStreamWriter and ByteStreamReader; `pravega_client.ByteStream`).

The segment holds the bytes as they were written, without event headers, index and event count. Only this module
reads them, and it rejects a segment that has events. Appends are conditional on the offset, as in the original: no
other writer's bytes come between those of one writer.
"""

from __future__ import annotations

import io
import math
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

from chunkstore import StorageError
from engine.errors import BadOffset, EngineError, SegmentNotFound, SegmentSealed, SegmentTruncated, Throttled
from engine.logs.transaction import Receipt
from engine.ownership import Owner
from engine.state.operations import Append, Payload
from engine.state.segments import EVENT_COUNT, Segment
from pravega_spark.errors import Closed, InvalidStreamCut, StreamError
from pravega_spark.parameters import buffer_of, checks_parameters
from pravega_spark.quantities import DurationLike, parse_seconds
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.reading.rebuilt_index import CountedSegment
from pravega_spark.streams.reading.snapshot import Snapshot
from pravega_spark.streams.stream import Stream

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

MAX_WRITE = 8 << 20
"""Maximum bytes of one `write`, all of which are appended or none (Pravega: EventWriter::MAX_EVENT_SIZE)."""

MAX_READ = 8 << 20
"""Maximum bytes of one `readinto`."""

MAX_WAITING = 16
"""Maximum number of writes in flight (Pravega: ByteWriter::CHANNEL_CAPACITY, by bytes)."""

T = TypeVar("T")


class ByteStreamError(StreamError, OSError):
    """An operation on a byte stream failed. It is also an OSError, as in `pravega_client`."""


@checks_parameters(but=("__init__", "write", "readinto"))
class ByteStream(io.RawIOBase):
    """The bytes of a stream. Made by `StreamManager.create_byte_stream`; use it in a with statement, or close it.

    It is a raw file: what `io.BufferedReader`, `io.BufferedWriter` and `shutil.copyfileobj` need. Offsets count from
    the original start of the stream, also after a truncation. Reading starts at the head and ends at the tail, and
    continues once more is written; writing always appends. One thread at a time; any number of objects and processes
    may read, one may write.

    Raises ByteStreamError, ValueError when it is closed, and StorageError when the storage fails.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._owner = Owner(f"byte stream {stream.key}", "create another ByteStream to write")
        self._waiting: deque[Future[Receipt]] = deque()
        self._failure: Exception | None = None
        self._segment, self._name, known = stream.query(_the_segment)
        self._position = known.start_offset
        self._known = known.length  # the last known number of durable bytes
        self._end = known.length  # the offset of the next write

    def __repr__(self) -> str:
        return f"ByteStream({self._stream.key!r})"

    def to_str(self) -> str:
        """Its stream as text for people."""
        return self._stream.key

    # --- writing -----------------------------------------------------------------------------------------------

    def writable(self) -> bool:
        """True, even if the stream is sealed."""
        return True

    def write(self, byte_array: ReadableBuffer) -> int:
        """Append up to 8 MiB at once; how many bytes were taken. They are durable after `flush`.

        After a failure every write fails: another writer has appended, the stream was sealed or deleted, or it is
        unknown whether something was appended. Create a new ByteStream then, and compare `current_tail_offset`.
        """
        self._check_open()
        self._owner.check()
        self._check()
        data = bytes(buffer_of("byte_array", byte_array)[:MAX_WRITE])
        if not data:
            return 0
        self._stream.container.check_room()
        while len(self._waiting) >= MAX_WAITING:
            self._settle()
        self._submit(data)
        return len(data)

    def _submit(self, data: bytes) -> None:
        end = self._end + len(data)
        try:
            self._waiting.append(self._stream.container.submit([Append(self._name, Payload(data), self._end)]))
            self._end = end
        except Throttled as error:
            raise self._byte_stream_error(error) from error  # the caller may retry
        except EngineError as error:
            raise self._failed(error) from error
        except BaseException as error:
            if self._end != end:
                self._failure = ByteStreamError(
                    f"byte stream {self._stream.key}: a write was interrupted ({error!r}), and it is unknown whether "
                    "its bytes are there. Create a new ByteStream, and compare current_tail_offset()"
                )
            raise

    def flush(self) -> None:
        """Wait until all that was written is durable."""
        self._check_open()
        self._owner.check()
        while self._waiting:
            self._settle()
        self._check()

    def _settle(self) -> None:
        try:
            self._waiting[0].result()
        except (EngineError, StorageError) as error:
            self._waiting.clear()  # later writes are conditional on it, so they fail too
            raise self._failed(error) from error
        self._waiting.popleft()  # not before: an exception of a signal handler is not the outcome (W16)

    def _failed(self, error: Exception) -> Exception:
        """The error that is raised now, and by each later call that writes."""
        self._failure = self._byte_stream_error(error)
        return self._failure

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _byte_stream_error(self, error: Exception) -> Exception:
        key = self._stream.key
        if isinstance(error, BadOffset):
            return ByteStreamError(
                f"byte stream {key}: another writer has appended to it: {error}. Bytes written here since the last "
                "flush may be lost; only one writer may write at a time"
            )
        if isinstance(error, SegmentSealed):
            return ByteStreamError(f"byte stream {key} is sealed: it can be read, but not written")
        if isinstance(error, SegmentNotFound):
            return ByteStreamError(f"byte stream {key} was deleted")
        if isinstance(error, EngineError):
            return ByteStreamError(f"byte stream {key}: {error}")
        return error

    def close(self) -> None:
        """Flush and close. Raises an error that no other call has raised.

        In a fork of the process that created it nothing is flushed: that process flushes its writes.
        """
        if not self._owner.here:
            return
        known = self._failure
        try:
            super().close()  # this flushes
        except Exception as error:
            if error is not known:
                raise

    # --- reading -----------------------------------------------------------------------------------------------

    def readable(self) -> bool:
        """True."""
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Fill the buffer from the reading position; returns how many, 0 at the tail. Reads durable bytes only.

        Raises ByteStreamError if the reading position was truncated: seek to `current_head_offset()` then.
        """
        self._check_open()
        room = buffer_of("buffer", buffer)[:MAX_READ]
        if len(room) > self._known - self._position:
            self._known = self._now().length
        size = min(len(room), self._known - self._position)
        if size <= 0:
            return 0
        data = self._answer(lambda: self._stream.container.read(self._name, self._position, self._position + size))
        room[:size] = data
        self._position += size
        return size

    def available(self) -> int:
        """How many durable bytes follow the reading position."""
        self._check_open()
        self._known = self._now().length
        return max(self._known - self._position, 0)

    def skip(self, count: int) -> int:
        """Move the reading position by `count` bytes, but not beyond the tail; returns by how many. Raises ValueError
        for a negative number."""
        if count < 0:
            raise ValueError(f"count must be 0 or more, not {count}")
        skipped = min(count, self.available())
        self._position += skipped
        return skipped

    def wait_for_data(self, timeout: DurationLike | None = None, poll_interval: DurationLike = 0.2) -> bool:
        """Wait until there are bytes at the reading position: True; or until the stream is sealed, or `timeout`
        (seconds, or "1m") has passed: False. For a reader that follows the stream, as a read at the tail returns
        nothing.

        poll_interval: seconds between polls, at most; a poll is one request.
        """
        interval, clock = parse_seconds(poll_interval), self._stream.container.clock
        end = math.inf if timeout is None else clock() + parse_seconds(timeout)
        while True:
            now = self._now()
            self._known = now.length
            if now.length > self._position:
                return True
            left = end - clock()
            if now.sealed or left <= 0:
                return False
            time.sleep(min(interval, left))

    def seal(self) -> None:
        """Flush, and seal the stream: it can be read, but never written again (Pravega: closeAndSeal)."""
        self.flush()
        self._stream.seal()

    def seekable(self) -> bool:
        """True."""
        return True

    def seek(self, position: int, whence: int | None = io.SEEK_SET) -> int:
        """Set the reading position, relative to offset 0 (whence 0 or None), itself (1) or the tail (2); returns it.

        It may be before the head or after the tail. Raises ValueError if it is negative.
        """
        self._check_open()
        whence = io.SEEK_SET if whence is None else whence  # as in the original
        if whence not in (io.SEEK_SET, io.SEEK_CUR, io.SEEK_END):
            raise ValueError(f"whence must be 0 (start), 1 (current position) or 2 (tail), not {whence!r}")
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position}.get(whence)
        target = position + (self.current_tail_offset() if base is None else base)
        if target < 0:
            raise ValueError(f"byte stream {self._stream.key}: cannot seek to {target}: the offset must be 0 or more")
        self._position = target
        return target

    def tell(self) -> int:
        """The reading position."""
        self._check_open()
        return self._position

    # --- head and tail -----------------------------------------------------------------------------------------

    def current_head_offset(self) -> int:
        """The offset of the first readable byte."""
        return self._now().start_offset

    def current_tail_offset(self) -> int:
        """The offset after the last durable byte."""
        return self._now().length

    def truncate(self, offset: int) -> None:  # type: ignore[override]  # as in the original: at the head, not the tail
        """Delete all bytes before `offset`. Does nothing if they are deleted already.

        Raises ByteStreamError for an offset after the tail, and for a sealed stream; ValueError for a negative one.
        """
        if offset < 0:
            raise ValueError(f"offset must be 0 or more, not {offset}")
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
            if self.current_head_offset() < offset:  # otherwise another process has truncated further
                raise
        except StreamError as error:
            raise ByteStreamError(str(error)) from error

    def _now(self) -> Segment:
        self._check_open()
        return self._answer(lambda: self._stream.container.info(self._name))

    def _answer(self, read: Callable[[], T]) -> T:
        try:
            return read()
        except SegmentTruncated as error:
            raise ByteStreamError(
                f"byte stream {self._stream.key}: offset {error.offset} was truncated; the head is "
                f"{error.start_offset}: seek to current_head_offset()"
            ) from error
        except EngineError as error:
            raise self._byte_stream_error(error) from error

    def _check_open(self) -> None:
        if self.closed:
            raise Closed(f"this object of byte stream {self._stream.key}")


def _the_segment(snapshot: Snapshot) -> tuple[int, str, Segment]:
    """Id, name and properties of the only segment of a byte stream. Raises ByteStreamError for another stream.

    In the storage of a Pravega byte streams cannot be distinguished from streams of events: any stream is read as
    bytes there, as in the original.
    """
    key, numbers = snapshot.stream.key, snapshot.record.segment_ids()
    if len(numbers) != 1:
        raise ByteStreamError(
            f"stream {key} has {len(numbers)} segments, but a byte stream has one: create it with a fixed scaling "
            "policy of one segment"
        )
    segment = snapshot.segments.segment(numbers[0])
    if not isinstance(segment, CountedSegment) and segment.attributes.get(EVENT_COUNT, 0):
        raise ByteStreamError(
            f"stream {key} has events: read and write them as events, or create another stream for bytes"
        )
    return numbers[0], segment.name, segment
