"""One event as a file: its payload, located by its pointer, read piece by piece (PDP-43: EventReader).

Keeps L1: only a few blocks of an event are in memory, whatever its size. All bytes are verified against their
checksums. Before anything is read, the pointer is verified to be the position of an event.
"""

from __future__ import annotations

import io
import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING

from chunkstore import ObjectNotFound
from engine.errors import DataCorruption, ObjectLost, SegmentNotFound, SegmentTruncated
from engine.ownership import Owner
from engine.root import Root
from engine.storage.object_reads import ObjectRange, fetch, measured
from pravega_spark.errors import Closed, EventTooLarge, InvalidEventPointer, NoSuchEvent
from pravega_spark.parameters import buffer_of, checks_parameters
from pravega_spark.streams.model.events import HEADER_SIZE, event_header
from pravega_spark.streams.model.pointers import EventPointer
from pravega_spark.streams.reading.object_ranges import WINDOW, between, fetch_whole, windows
from pravega_spark.streams.reading.snapshot import Snapshot
from pravega_spark.streams.stream import Stream

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

AHEAD = 3
"""Blocks that are prefetched while one is read."""

AHEAD_REMOTE = 6
"""Blocks that are prefetched from remote storage."""

DIRECT = 1 << 20
"""Bytes: a random read of up to this size prefetches nothing."""


class EventPayload:
    """The payload of an event. Thread-safe. Made by `EventPayload.at`; must be used in the process that created it."""

    def __init__(self, stream: Stream, pointer: EventPointer, pieces: Sequence[ObjectRange]) -> None:
        self.pointer = pointer
        self.size = pointer.length - HEADER_SIZE
        self._stream = stream
        self._pieces = pieces
        self._lock = threading.Lock()

    @classmethod
    def at(cls, root: Root, pointer: EventPointer | str) -> EventPayload:
        """The payload of the event at a pointer, which may be given as text.

        Raises NoSuchEvent if it was truncated, InvalidEventPointer if it is not the position of an event,
        StreamNotFound.
        """
        place = EventPointer.from_text(pointer) if isinstance(pointer, str) else pointer
        stream = Stream(root, place.scope, place.stream, suggesting=True)
        return cls(stream, place, _located(stream, place))

    def blocks(self) -> list[int]:
        """The block boundaries in the payload, from 0 to its size, so that nothing is read twice."""
        sizes = (sum(piece.taken for piece in window) for window in windows(self._pieces, WINDOW))
        return list(accumulate(sizes, initial=0))

    def read(self, start: int, end: int) -> bytes | memoryview:
        """The bytes `[start, end)`. Raises NoSuchEvent, DataCorruption, StorageError."""
        pieces = between(self._pieces, start, end)
        while True:
            try:
                if end - start > WINDOW:
                    return measured(partial(fetch_whole, self._stream.root.stores, pieces))[0]
                parts = measured(partial(fetch, self._stream.root.stores, pieces))
                return parts[0] if len(parts) == 1 else b"".join(parts)
            except (ObjectNotFound, DataCorruption) as error:
                with self._lock:
                    self._pieces = _located(self._stream, self.pointer)  # moved by a flush, or truncated
                moved = between(self._pieces, start, end)
                if moved == pieces:
                    if isinstance(error, DataCorruption):
                        raise
                    raise ObjectLost(f"event {self.pointer}: {error}") from error
                pieces = moved

    def whole(self, limit: int | None = None) -> bytes:
        """The whole payload. Raises EventTooLarge if it has more than `limit` bytes; and as `read`."""
        check_limit(self.pointer, limit)
        return bytes(self.read(0, self.size))

    def __repr__(self) -> str:
        return f"<the payload of {self.pointer}>"


def check_limit(pointer: EventPointer, limit: int | None) -> None:
    """Raise EventTooLarge if an event has more than `limit` bytes."""
    if limit is not None and pointer.length - HEADER_SIZE > limit:
        raise EventTooLarge(str(pointer), pointer.length - HEADER_SIZE, limit)


def _located(stream: Stream, pointer: EventPointer) -> list[ObjectRange]:
    try:
        return stream.query(lambda snapshot: _found(snapshot, pointer))
    except (SegmentTruncated, SegmentNotFound) as error:
        raise NoSuchEvent(str(pointer)) from error


def _found(snapshot: Snapshot, pointer: EventPointer) -> list[ObjectRange]:
    """The location of the payload, if an event of that length begins there."""
    number, start, end = pointer.segment_id, pointer.offset, pointer.offset + pointer.length
    if number not in snapshot.record.history.segments or start < snapshot.segments.segment(number).start_offset:
        raise NoSuchEvent(str(pointer))
    segment, container = snapshot.segments.segment(number), snapshot.stream.container
    if end > segment.length or not snapshot.segments.is_boundary(number, start):
        raise InvalidEventPointer(str(pointer))
    if container.read(segment.name, start, start + HEADER_SIZE) != event_header(pointer.length - HEADER_SIZE):
        raise InvalidEventPointer(str(pointer))
    return container.plan_of(segment, start + HEADER_SIZE, end)


def open_event_file(root: Root, pointer: EventPointer | str) -> EventFile:
    """The file of the event at a pointer. Raises as `EventPayload.at`."""
    return EventFile(EventPayload.at(root, pointer), root.stores.chunks.remote)


@checks_parameters(but=("__init__", "readinto", "write"))
class EventFile(io.RawIOBase):
    """The payload of an event as a raw binary file; made by `StreamManager.open_event`, to be closed, or used in a with
    statement.

    It is seekable and works with `io.BufferedReader` and `shutil.copyfileobj`. Sequential reads prefetch the next
    blocks in threads. A read returns as many bytes as requested, unless the event ends. One thread at a time.

    Raises NoSuchEvent when the event is truncated under it, DataCorruption, StorageError, ValueError when it is closed.
    """

    def __init__(self, payload: EventPayload, remote: bool = False) -> None:
        self.pointer = payload.pointer
        self.size = payload.size
        self._payload = payload
        self._bounds = payload.blocks()
        self._position = 0
        self._expected = 0
        self._ahead = AHEAD_REMOTE if remote else AHEAD
        self._owner = Owner(f"the file of event {self.pointer}", "open the event again")
        self._pool: ThreadPoolExecutor | None = None
        self._flying: dict[int, Future[bytes | memoryview]] = {}

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def tell(self) -> int:
        """The reading position in the payload."""
        self._check_open()
        return self._position

    def seek(self, position: int, whence: int = io.SEEK_SET) -> int:
        """Set the reading position, relative to the start (whence 0), to itself (1) or to the end (2); returns it.

        After the end nothing is read. Raises ValueError for a negative position.
        """
        self._check_open()
        if whence not in (io.SEEK_SET, io.SEEK_CUR, io.SEEK_END):
            raise ValueError(f"whence must be 0 (start), 1 (current position) or 2 (end), not {whence!r}")
        target = position + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}[whence]
        if target < 0:
            raise ValueError(f"event {self.pointer}: cannot seek to {target}: the position must be 0 or more")
        self._position = target
        return target

    def read(self, size: int | None = -1) -> bytes:
        """Read `size` bytes, or all that are left."""
        return b"".join(self._parts(self.size if size is None or size < 0 else size))

    def readall(self) -> bytes:
        """Read all bytes that are left."""
        return self.read()

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Fill the buffer from the reading position; returns how many, fewer than its size only at the end."""
        room, filled = buffer_of("buffer", buffer), 0
        for part in self._parts(len(room)):
            room[filled : filled + len(part)] = part
            filled += len(part)
        return filled

    def _parts(self, size: int) -> Iterator[bytes | memoryview]:
        """The next `size` bytes at most, piece by piece."""
        self._check_open()
        end = min(self._position + size, self.size)
        if self._position != self._expected and 0 < end - self._position <= DIRECT:
            yield self._advanced(self._payload.read(self._position, end))
        while self._position < end:
            number = bisect_right(self._bounds, self._position) - 1
            begin = self._bounds[number]
            yield self._advanced(memoryview(self._block(number))[self._position - begin : end - begin])

    def _advanced(self, part: bytes | memoryview) -> bytes | memoryview:
        self._position += len(part)
        self._expected = self._position
        return part

    def _block(self, number: int) -> bytes | memoryview:
        """A block. Prefetches the following ones, and cancels prefetches of other blocks."""
        last = min(number + self._ahead, len(self._bounds) - 2)
        for other in [other for other in self._flying if not number <= other <= last]:
            self._flying.pop(other).cancel()
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._ahead, "event")
        for other in range(number, last + 1):
            if other not in self._flying:
                bounds = self._bounds[other : other + 2]
                self._flying[other] = self._pool.submit(self._payload.read, *bounds)
        try:
            return self._flying[number].result()
        except BaseException:
            del self._flying[number]  # so that the next read retries
            raise

    def write(self, data: ReadableBuffer) -> int:
        """Always fails: an event never changes."""
        raise io.UnsupportedOperation(f"event {self.pointer} can only be read")

    def close(self) -> None:
        """Release the memory."""
        if not self.closed and self._owner.here:
            self._flying.clear()
            if self._pool is not None:
                self._pool.shutdown(cancel_futures=True)
        super().close()

    def _check_open(self) -> None:
        if self.closed:
            raise Closed(f"this file of event {self.pointer}", "open the event again")
        self._owner.check()

    def __repr__(self) -> str:
        return f"<EventFile {self.pointer}>"
