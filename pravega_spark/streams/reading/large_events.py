"""Large events in a range, by the sparse index, and their weight when the range is divided.

The index has a record exactly before and exactly after an event of more than MAX_EVENT_SIZE bytes, and otherwise at
least one every SPACING bytes. So two neighbouring records more than WIDEST_GAP apart enclose exactly one event.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from chunkstore.checksums import BLOCK
from pravega_spark.streams.model.events import HEADER_SIZE

if TYPE_CHECKING:
    from pravega_spark.streams.reading.indexed_segments import IndexedSegments

LEAST_SOUGHT = 64 << 20
"""Bytes: smaller events are not searched for when a range is divided; each search may read the index."""

HEADER_COST = BLOCK
"""Maximum bytes that are read to detect a large event: one checksum block."""


class SkippedEvent(NamedTuple):
    """Large events of a segment of which only the headers are read: [start, end) of each, ascending, int64."""

    starts: np.ndarray
    ends: np.ndarray

    def _saved(self) -> np.ndarray:
        """Skipped bytes of the first n of them, for each n."""
        return np.concatenate(([0], np.cumsum(self.ends - self.starts - HEADER_COST)))

    def size(self, low: int, high: int) -> int:
        """About how many bytes a read between two event boundaries transfers."""
        first, last = np.searchsorted(self.ends, (low, high), side="right")
        saved = self._saved()
        return high - low - int(saved[last] - saved[first])

    def behind(self, low: int, size: int) -> int:
        """The offset up to which about `size` bytes are transferred from `low` on. It may be inside a large event."""
        saved = self._saved()
        target = low - int(saved[np.searchsorted(self.ends, low, side="right")]) + size
        return target + int(saved[np.searchsorted(self.ends - saved[1:], target)])


NONE_LEFT_OUT = SkippedEvent(np.empty(0, np.int64), np.empty(0, np.int64))


def find_skipped_events(segments: IndexedSegments, segment_id: int, low: int, high: int, limit: int) -> SkippedEvent:
    """The events between two event boundaries with more than `limit` bytes of payload, and at least LEAST_SOUGHT.

    Searches the index once for every `limit` bytes or LEAST_SOUGHT.
    """
    found = np.array(list(_found(segments, segment_id, low, high, max(limit + HEADER_SIZE, LEAST_SOUGHT))), np.int64)
    return SkippedEvent(*found.reshape(-1, 2).T)


def _found(segments: IndexedSegments, segment_id: int, low: int, high: int, least: int) -> Iterator[tuple[int, int]]:
    """Events of more than `least` bytes. Each contains or ends at one of the probed offsets, because it cannot fit
    between a boundary and the offset `least` bytes after it."""
    index = segments.index(segment_id)
    while high - low > least:
        record = index.locate_offset(low + least)
        if record is None:
            return
        start = segments.record_start(segment_id, record)
        if record.offset - start > least and record.offset <= high:
            yield start, record.offset
        low = record.offset


def gaps(boundaries: np.ndarray, start: int, end: int, least: int) -> Iterator[tuple[int, int, bool]]:
    """Divide a range at index records into parts, each with whether it is one event of more than `least` bytes.

    `boundaries` are the records' offsets, ascending. `least` is WIDEST_GAP or more.
    """
    known = np.concatenate(([start], boundaries[(boundaries > start) & (boundaries < end)], [end]))
    large = np.flatnonzero(np.diff(known) > least)
    cuts = [start, *known[np.unique(np.concatenate((large, large + 1)))].tolist(), end]
    begins = set(known[large].tolist())
    for low, high in pairwise(cuts):
        if low < high:
            yield low, high, low in begins
