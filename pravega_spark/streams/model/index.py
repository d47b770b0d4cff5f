"""The sparse index of a segment: records of (offset, event count, time, append), searched by each of them.

A record is written with the data. It says: where the segment had `offset` bytes, an event ended, `count` events lay
before, it was `time_ms`, and the events before it came by the append of that number: among the appends of a stream, to
whatever segments, a later one has a greater number. The index segment is nothing but such records of 32 bytes, so
record n lies at bytes [32 n, 32 n + 32). Record numbers count from the index segment's beginning; truncating it
renumbers nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from engine.errors import DataCorruption
from engine.state.index_records import RECORD_SIZE, THIS_APPEND
from pravega_spark.streams.model.events import HEADER_SIZE, MAX_EVENT_SIZE

SPACING = 16 * 1024  # bytes of events between two records of one append

WIDEST_GAP = MAX_EVENT_SIZE + HEADER_SIZE + SPACING
"""Maximum distance in bytes of two neighbouring index records without a large event between them."""

_STORED = np.dtype(">i8")
_FIELDS = 4
_OFFSET, _COUNT, _TIME, _APPEND = range(_FIELDS)

UNKNOWN_APPEND = 0
"""The append number of unnumbered appends: data adopted from a Pravega, and recorded cuts."""

UNKNOWN_TIME = 0
"""The time in a record whose events have no known time."""

_BLOCK_RECORDS = 64 * 1024 // RECORD_SIZE
_CACHED_BLOCKS = 16


class InvalidIndex(DataCorruption, ValueError):
    """Bytes that are not whole index records, or records that contradict the segment that they are of."""

    remedy = (
        "`pravega-spark stream rebuild-index` makes an index from the events that are there. " + DataCorruption.remedy
    )


@dataclass(frozen=True)
class IndexRecord:
    """offset: the segment's length in bytes after an event. count: events up to there. time_ms: since the epoch.
    append: the number of the append that it came with."""

    offset: int
    count: int
    time_ms: int
    append: int


def sparse_records(framed_lengths: np.ndarray, time_ms: int, spacing: int = SPACING) -> np.ndarray:
    """The index records of one append, relative to its start: shape (k, 4), int64 columns offset, count, time, append.

    `framed_lengths` are the events' lengths in bytes with their headers. There is a record at the first event end at or
    after every multiple of `spacing` bytes, and one at the append's end.
    """
    if spacing <= 0:
        raise ValueError(f"the spacing of index records must be positive, not {spacing}")
    ends = np.cumsum(framed_lengths, dtype=np.int64)
    if not len(ends):
        return np.empty((0, _FIELDS), np.int64)
    if ends[-1] < spacing:  # of few events, as most appends are: they need no search
        return np.array([[ends[-1], len(ends), time_ms, THIS_APPEND]], np.int64)
    events = np.searchsorted(ends, np.arange(spacing, ends[-1] + 1, spacing))
    events = np.append(events[np.diff(events, prepend=-1) > 0], len(ends) - 1)
    events = events[: len(events) - (len(events) > 1 and events[-2] == events[-1])]
    times, appends = np.full(len(events), time_ms, np.int64), np.full(len(events), THIS_APPEND, np.int64)
    return np.column_stack((ends[events], events + 1, times, appends))


def encode_records(records: np.ndarray) -> bytes:
    """Records as they are stored. ValueError for rows that are none."""
    if records.shape[1:] != (_FIELDS,):
        raise ValueError(f"index records have {_FIELDS} columns, not the shape {records.shape}")
    return records.astype(_STORED, casting="same_kind").tobytes()


def decode_records(data: bytes | memoryview) -> np.ndarray:
    """Stored records as an int64 array of shape (k, 4). InvalidIndex if the last one is not whole."""
    if len(data) % RECORD_SIZE:
        raise InvalidIndex(f"{len(data)} bytes are not whole index records of {RECORD_SIZE} bytes")
    return np.frombuffer(data, _STORED).reshape(-1, _FIELDS).astype(np.int64)


class _Mark(NamedTuple):
    """A record that the search knows: its number and its value in the searched column."""

    number: int
    value: int


def _interpolated(low: _Mark, high: _Mark, target: int) -> int:
    """Where the target is expected if the values between the marks are even."""
    return low.number - (target - low.value) * (low.number - high.number) // (high.value - low.value)


class IndexReader:
    """Searches the index records in bytes [start, end) of an index segment. For one thread.

    `read(from, to)` returns those bytes of the index segment. Records are read in blocks of 64 KiB, and the blocks used
    last are kept. Offsets, counts and appends never descend from one record to the next, so searching them is exact.
    """

    def __init__(
        self,
        read: Callable[[int, int], bytes | memoryview],
        start: int,
        end: int,
        what: str = "an index",
        most: tuple[int, int] | None = None,
    ) -> None:
        """what: whose index it is, for people. most: the bytes and events of the segment, which no record exceeds."""
        if not 0 <= start <= end or start % RECORD_SIZE or end % RECORD_SIZE:
            raise InvalidIndex(f"{what}: bytes {start} to {end} are not whole index records of {RECORD_SIZE} bytes")
        self._what = what
        self._most = most
        self._read = read
        self._first = start // RECORD_SIZE
        self._end = end // RECORD_SIZE
        self._blocks: OrderedDict[int, np.ndarray] = OrderedDict()

    def locate_offset(self, target: int) -> IndexRecord | None:
        """The first record with an offset of at least `target`; None if there is none."""
        return self._record(self._search(_OFFSET, target))

    def locate_count(self, target: int) -> IndexRecord | None:
        """The first record with at least `target` events up to it; None if there is none."""
        return self._record(self._search(_COUNT, target))

    def locate_time(self, time_ms: int) -> IndexRecord | None:
        """A record of `time_ms` or later whose predecessor is earlier; None if the last record is earlier.

        That is the first record of `time_ms` or later when times never descend. They may, where writers' clocks differ.
        If no record is more than d ms earlier than one before it, then every record before the found one (every record,
        for None) is earlier than `time_ms` + d, and none after it is earlier than `time_ms` - d.
        """
        return self._record(self._search(_TIME, time_ms))

    def position_of(self, offset: int) -> int:
        """The number of the first record with an offset of at least `offset`; the end of the index if there is none."""
        return self._search(_OFFSET, offset)

    def position_of_count(self, count: int) -> int:
        """The number of the first record with at least `count` events up to it."""
        return self._search(_COUNT, count)

    def position_of_append(self, append: int) -> int:
        """The number of the first record of the append of that number, or of a later one."""
        return self._search(_APPEND, append)

    def records(self, from_number: int, to_number: int) -> np.ndarray:
        """The records [from_number, to_number) as an int64 array of shape (k, 4). IndexError outside of the index."""
        if not self._first <= from_number <= to_number <= self._end:
            raise IndexError(
                f"records {from_number} to {to_number} are not all in the index, which has {self._first} to {self._end}"
            )
        return self._loaded(from_number, to_number)

    def _record(self, number: int) -> IndexRecord | None:
        if number == self._end:
            return None
        block = number // _BLOCK_RECORDS
        return IndexRecord(*self._block(block)[number - self._block_start(block)].tolist())

    def _search(self, column: int, target: int) -> int:
        """The number of a record with at least `target` whose predecessor has less; the end if the last one has less.

        Two known records enclose the answer: `low` has less than the target, `high` has not. The block to read next is
        guessed by interpolating between them. Every third time it is the middle one, so that the reads are at most
        three times those of a binary search, however uneven the records.
        """
        if self._first == self._end:
            return self._end
        low, high = self._outer_marks(column)
        if low.value >= target:
            return self._first
        if high.value < target:
            return self._end
        tries = 0
        while (first := max(low.number + 1, self._first)) < high.number:
            tries += 1
            middle = (first + high.number) // 2
            aim = middle if tries % 3 == 0 else _interpolated(low, high, target)
            block = min(max(aim, first), high.number - 1) // _BLOCK_RECORDS
            start = self._block_start(block)
            first = max(first, start)
            values = self._block(block)[first - start :, column]
            reached = values >= target
            if reached[0]:
                high = _Mark(first, int(values[0]))
            elif reached.any():
                return first + int(np.argmax(reached))
            else:
                low = _Mark(first + len(values) - 1, int(values[-1]))
        return high.number

    def _outer_marks(self, column: int) -> tuple[_Mark, _Mark]:
        """Marks at the beginning and at the last record."""
        last_block = (self._end - 1) // _BLOCK_RECORDS
        high = _Mark(self._end - 1, int(self._block(last_block)[-1, column]))
        if column == _TIME:
            # When the segment began is written nowhere but in its first record.
            return _Mark(self._first, int(self._block(self._first // _BLOCK_RECORDS)[0, column])), high
        # A segment begins with 0 bytes and 0 events: a mark that need not be read, and holds if the head is truncated.
        return _Mark(-1, 0), high

    def _block_start(self, block: int) -> int:
        return max(block * _BLOCK_RECORDS, self._first)

    def _block(self, block: int) -> np.ndarray:
        """The records of a block that are in the index; at least one."""
        if block not in self._blocks:
            self._blocks[block] = self._loaded(self._block_start(block), min((block + 1) * _BLOCK_RECORDS, self._end))
            if len(self._blocks) > _CACHED_BLOCKS:
                self._blocks.popitem(last=False)
        self._blocks.move_to_end(block)
        return self._blocks[block]

    def _loaded(self, first: int, end: int) -> np.ndarray:
        data = self._read(first * RECORD_SIZE, end * RECORD_SIZE)
        if len(data) != (end - first) * RECORD_SIZE:
            raise InvalidIndex(f"{self._what}: {len(data)} bytes were read of the index records {first} to {end}")
        return self._checked(first, decode_records(data))

    def _checked(self, first: int, records: np.ndarray) -> np.ndarray:
        """Records that can be searched: offsets, counts and appends do not descend, and are those of places in the
        segment."""
        places, ordered = records[:, :_TIME], np.delete(records, _TIME, axis=1)
        wrong = (ordered < 0).any(axis=1) | (np.diff(ordered, axis=0, prepend=ordered[:1]) < 0).any(axis=1)
        if self._most is not None:
            wrong |= (places > self._most).any(axis=1)
        if wrong.any():
            row = int(np.argmax(wrong))
            offset, count, *_ = records[row].tolist()
            within = "" if self._most is None else ", of a segment of {} bytes and {} events".format(*self._most)
            says = f"{count} events up to offset {offset}{within}"
            raise InvalidIndex(f"{self._what}: record {first + row} cannot be right: it says {says}")
        return records
