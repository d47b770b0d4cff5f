"""Reading a segment from an offset on, from memory, log or LTS, and waiting at its end (Pravega:
StreamSegmentReadIndex).

Reads go through the block cache. After a sequential read, the next blocks are fetched in the background. At the end of
a segment a read waits. Appends of this process wake it; for those of other processes it reads the log at intervals,
once for all waiting reads of this process. This module holds no truth of its own: every process reads the same from a
state and the storage (S1).
"""

from __future__ import annotations

import contextlib
import enum
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import NamedTuple

from chunkstore import StorageError
from engine.errors import EngineError, SegmentNotFound, SegmentTruncated
from engine.logs.durable_log import DurableLog
from engine.reading.container_segments import ContainerSegments
from engine.task_runner import TaskRunner

ENTRY_BYTES = 1 << 20
"""The most bytes in one entry of a read."""

AHEAD_BYTES = 4 << 20
"""Bytes that are fetched ahead of a sequential read."""

_REMEMBERED = 1000


class ReadKind(enum.Enum):
    """What a read entry is (Pravega: ReadResultEntryType)."""

    DATA = "data"
    FUTURE = "future"  # the end was reached, and nothing was appended within the timeout
    END_OF_SEGMENT = "end of segment"
    TRUNCATED = "truncated"


class ReadEntry(NamedTuple):
    """A part of a read: `data` begins at `offset`. If TRUNCATED, `offset` is the segment's start offset."""

    kind: ReadKind
    offset: int
    data: bytes = b""


class ReadIndex:
    """Reads of the segments of one container. Thread-safe.

    poll: the longest interval in seconds between two reads of the log while a read waits. background: runs read-ahead,
    if it has threads.
    """

    def __init__(
        self,
        segments: ContainerSegments,
        log: DurableLog,
        background: TaskRunner,
        poll: float,
        clock: Callable[[], float],
    ) -> None:
        self._segments = segments
        self._log = log
        self._background = background
        self._poll = poll
        self._clock = clock
        self._ends: OrderedDict[str, int] = OrderedDict()

    def read(self, segment: str, offset: int, length: int, timeout: float = 0.0) -> Iterator[ReadEntry]:
        """`length` bytes from `offset` on, in entries. If there are fewer, the last entry has another kind.

        At the end of the segment it waits up to `timeout` seconds for more. Raises SegmentNotFound, DataCorruption,
        StorageError.
        """
        end = offset + length
        while offset < end:
            entry = self._next(segment, offset, min(end - offset, ENTRY_BYTES), timeout)
            yield entry
            if entry.kind is not ReadKind.DATA:
                return
            offset += len(entry.data)

    def _next(self, segment: str, offset: int, length: int, timeout: float) -> ReadEntry:
        deadline = self._clock() + timeout
        is_current = False
        while True:
            found = self._segments.activated([segment])[segment]
            if found is not None and found.start_offset <= offset < found.length:
                try:
                    data = self._data(segment, offset, min(offset + length, found.length))
                    return ReadEntry(ReadKind.DATA, offset, data)
                except SegmentTruncated:
                    continue
            if is_current:
                if found is None:
                    raise SegmentNotFound(segment)
                if offset < found.start_offset:
                    return ReadEntry(ReadKind.TRUNCATED, found.start_offset)
                if found.sealed:
                    return ReadEntry(ReadKind.END_OF_SEGMENT, offset)
                left = deadline - self._clock()
                if left <= 0:
                    return ReadEntry(ReadKind.FUTURE, offset)
                self._log.wait_for_change(min(left, self._log.due_in(self._poll)))
                self._log.look(self._poll)
            else:
                self._log.refresh()
                is_current = True

    def _data(self, segment: str, offset: int, end: int) -> bytes:
        data = self._segments.read(segment, offset, end)
        if self._ends.get(segment) == offset:
            self._background.offer("read_ahead", self._fetch_ahead, segment, end)
        self._ends[segment] = end
        self._ends.move_to_end(segment)
        while len(self._ends) > _REMEMBERED:
            self._ends.popitem(last=False)
        return data

    def _fetch_ahead(self, segment: str, offset: int) -> None:
        """Read the next blocks into the cache."""
        with contextlib.suppress(EngineError, StorageError):  # the next read raises it
            self._segments.fetch_ahead(segment, offset, AHEAD_BYTES)
