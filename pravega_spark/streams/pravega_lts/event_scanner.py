"""Scanning the framed bytes of a segment without an index: finds its events, and builds its index records.

The position of an event follows from the one before it, so bytes are taken in order, in pieces of any size.
"""

from __future__ import annotations

import struct
from array import array
from typing import NamedTuple

import numpy as np

from pravega_spark.streams.model.events import HEADER_SIZE
from pravega_spark.streams.model.index import UNKNOWN_APPEND, sparse_records

_EVENT = struct.Struct(">ii")


class BrokenEvent(ValueError):
    """Bytes that are not an event. offset: where it would begin. problem: what is wrong."""

    def __init__(self, offset: int, problem: str) -> None:
        super().__init__(f"offset {offset}: {problem}")
        self.offset = offset
        self.problem = problem


class ScannerState(NamedTuple):
    """The progress of a scan. Plain values.

    place: the offset after the bytes that were taken. ended: the offset after the last whole event. events: number
    of events. rest: the beginning of a header that continues in the next bytes. skip: bytes that are left of the
    last event.
    """

    place: int
    ended: int
    events: int = 0
    rest: bytes = b""
    skip: int = 0


class EventScanner:
    """Scans the bytes of a segment, from an event's start, or from another scan's progress."""

    def __init__(self, state: ScannerState) -> None:
        self._place, self._ended, self.events, self._rest, self._skip = state
        self._lengths = array("q")

    def take(self, data: bytes) -> None:
        """Take the next bytes. Raises BrokenEvent."""
        self._place += len(data)
        data, at = self._rest + data if self._rest else data, self._skip
        self._rest, self._skip = b"", 0
        unpack, lengths = _EVENT.unpack_from, self._lengths
        while at < len(data):
            if len(data) - at < HEADER_SIZE:
                self._rest = data[at:]
                return
            kind, length = unpack(data, at)
            if kind or length < 0:
                raise BrokenEvent(self._place - len(data) + at, f"an event has type {kind} and length {length}")
            lengths.append(HEADER_SIZE + length)
            at += HEADER_SIZE + length
        self._skip = at - len(data)

    def records(self, time_ms: int) -> np.ndarray:
        """The index records of the events since the last call: the segment's offsets, and events since its beginning.

        The last event counts as soon as its header was taken.
        """
        lengths = np.frombuffer(self._lengths, np.int64)
        found = sparse_records(lengths, time_ms)
        found[:, 0] += self._ended
        found[:, 1] += self.events
        found[:, 3] = UNKNOWN_APPEND
        self._ended += int(lengths.sum())
        self.events += len(lengths)
        self._lengths = array("q")
        return found

    def state(self) -> ScannerState:
        """The progress, once `records` were taken."""
        return ScannerState(self._place, self._ended, self.events, self._rest, self._skip)

    def finish(self) -> None:
        """Raise BrokenEvent unless what was taken are whole events."""
        if self._rest or self._skip:
            raise BrokenEvent(self._place, "an event runs over the end of the segment")
