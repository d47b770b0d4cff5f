"""Builds the sparse index of a segment from its events, if the stored one is missing or wrong.

Times and append numbers are unknown then: all records have UNKNOWN_TIME and UNKNOWN_APPEND.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from chunkstore.errors import StorageError
from pravega_spark.streams.model.events import HEADER_SIZE, MAX_EVENT_SIZE, InvalidEvent, decode_whole
from pravega_spark.streams.model.index import SPACING, UNKNOWN_APPEND, UNKNOWN_TIME, encode_records

WINDOW = 16 << 20
"""Bytes that are read at once while an index is built."""


class IndexBuilder:
    """Takes the events of a segment in order, and builds the records of its index, with one before a large event.

    end: where the last event ended. last: where it began. events: their number.
    """

    def __init__(self, start: int) -> None:
        self.end = self.last = start
        self.events = 0
        self._next = start - start % SPACING + SPACING
        self._parts: list[np.ndarray] = []

    def add(self, ends: np.ndarray) -> None:
        """Events, by the offsets in the segment where they end, ascending."""
        if not len(ends):
            return
        marks = np.arange(self._next, int(ends[-1]) + 1, SPACING)
        large = np.flatnonzero(np.diff(ends, prepend=self.end) > HEADER_SIZE + MAX_EVENT_SIZE)
        chosen = np.unique(np.concatenate((np.searchsorted(ends, marks), large, large[large > 0] - 1)))
        if len(large) and not large[0] and self.events:
            self._parts.append(np.array([[self.end, self.events, UNKNOWN_TIME, UNKNOWN_APPEND]], np.int64))
        if len(chosen):
            last = int(ends[chosen[-1]])
            self._next = last - last % SPACING + SPACING
            unknown = np.tile([UNKNOWN_TIME, UNKNOWN_APPEND], (len(chosen), 1))
            self._parts.append(np.column_stack((ends[chosen], chosen + 1 + self.events, unknown)))
        self.events += len(ends)
        self.last = int(ends[-2]) if len(ends) > 1 else self.end
        self.end = int(ends[-1])

    def records(self) -> bytes:
        """The records of what was added, as they are stored; the last one is at its end."""
        found = np.unique(np.concatenate([np.empty((0, 4), np.int64), *self._parts]), axis=0)
        if self.events and (not len(found) or found[-1, 0] < self.end):
            found = np.concatenate([found, [[self.end, self.events, UNKNOWN_TIME, UNKNOWN_APPEND]]])
        return encode_records(found)


class IndexedEvents(NamedTuple):
    """The index of a segment's valid events: its records up to `end`, the end of the last valid event, which begins
    at `last`. problem: the error there; None at the end."""

    records: bytes
    end: int
    last: int
    problem: InvalidEvent | StorageError | None


def index_events(
    read: Callable[[int, int], bytes], start: int, end: int, window: int = WINDOW, builder: IndexBuilder | None = None
) -> IndexedEvents:
    """The index records of a segment's events in [start, end), up to the first error.

    `read` returns bytes of the segment. builder: builds the records. The payload of an event that is larger than a
    window is not read.
    """
    builder = builder or IndexBuilder(start)
    place, rest = start, b""
    try:
        while place < end:
            data = rest + read(place, min(end, place + window))
            base, place = place - len(rest), min(end, place + window)
            try:
                starts, lengths, behind = decode_whole(data, base)
            except InvalidEvent as error:
                starts, lengths, _ = decode_whole(data[: error.offset - base], base)
                builder.add(starts + lengths + (HEADER_SIZE + base))
                raise
            builder.add(starts + lengths + (HEADER_SIZE + base))
            rest = data[behind:]
            if len(rest) >= HEADER_SIZE:
                due = base + behind + HEADER_SIZE + int.from_bytes(rest[4:HEADER_SIZE], "big")
                if due > end:
                    raise InvalidEvent(f"an event would end at {due}, behind the end {end}", base + behind)
                if place < due - window:
                    builder.add(np.array([due], np.int64))
                    place, rest = due, b""
        if rest:
            raise InvalidEvent(f"the last {len(rest)} bytes are no whole event", builder.end)
    except (InvalidEvent, StorageError) as error:
        return IndexedEvents(builder.records(), builder.end, builder.last, error)
    return IndexedEvents(builder.records(), end, builder.last, None)
