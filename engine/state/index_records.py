"""Index records: where events of a segment end. They go to an index segment in the same transaction as the events.

A record is three big-endian numbers of 8 bytes: the segment's length after an event, the events up to there, and the
time (ms since the epoch), as in the original (Pravega: IndexAppendProcessor, IndexEntry). What the first two are is
known only where the append is validated, as they count from the segment's beginning; so an operation carries records
that count from the append's (W5).
"""

from __future__ import annotations

import sys
from array import array

RECORD_SIZE = 24
"""Bytes of an index record."""

_FIELDS = 3
_OFFSET, _COUNT, _ = range(_FIELDS)


class IndexRecords:
    """Index records of an append to `segment`, which count from where that append begins.

    `records` are their bytes. They are to be appended to the index segment before the events are to the segment.
    """

    __slots__ = ("records", "segment")

    def __init__(self, segment: str, records: bytes) -> None:
        if len(records) % RECORD_SIZE:
            raise ValueError(f"segment {segment!r}: {len(records)} bytes are not whole index records of {RECORD_SIZE}")
        self.segment = segment
        self.records = records

    def __len__(self) -> int:
        return len(self.records)

    def counted_from(self, length: int, events: int) -> bytes:
        """The records as they are stored if the segment has so many bytes and events before the append."""
        numbers = array("q", self.records)
        if sys.byteorder == "little":
            numbers.byteswap()
        numbers[_OFFSET::_FIELDS] = array("q", [offset + length for offset in numbers[_OFFSET::_FIELDS]])
        numbers[_COUNT::_FIELDS] = array("q", [count + events for count in numbers[_COUNT::_FIELDS]])
        if sys.byteorder == "little":
            numbers.byteswap()
        return numbers.tobytes()
