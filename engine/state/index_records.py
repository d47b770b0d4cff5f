"""Index records: where events of a segment end. They go to an index segment in the same transaction as the events.

A record is four big-endian numbers of 8 bytes. The first three are those of Pravega (IndexAppendProcessor, IndexEntry):
the segment's length after an event, the number of events up to there, and the time (ms since the epoch). The fourth is
the number of the append, which grows with each append of the container. Length and event count are relative to the
append, and its number is THIS_APPEND, until the append is validated, as only then its position is known (W5).
"""

from __future__ import annotations

import reprlib
import sys
from array import array

from engine.errors import Rejected

RECORD_SIZE = 32
"""Bytes of an index record."""

THIS_APPEND = -1
"""Stands for the number of the append in a record that is not appended yet."""

_FIELDS = 4
_OFFSET, _COUNT, _, _APPEND = range(_FIELDS)


class IndexRecords:
    """The bytes `records` of index records, relative to the beginning of an append to `segment`.

    They have to be appended to the index segment before the events are appended to the segment.
    """

    __slots__ = ("records", "segment")

    def __init__(self, segment: str, records: bytes) -> None:
        if not isinstance(records, bytes):
            raise TypeError(f"segment {segment!r}: index records must be bytes, not {reprlib.repr(records)}")
        if len(records) % RECORD_SIZE:
            raise ValueError(f"segment {segment!r}: {len(records)} bytes are not whole index records of {RECORD_SIZE}")
        self.segment = segment
        self.records = records

    def __len__(self) -> int:
        return len(self.records)

    def counted_from(self, length: int, events: int, append: int) -> bytes:
        """The records as stored, if the segment has `length` bytes and `events` events before the append.

        append: its number. Raises Rejected if a number does not fit into 64 bits.
        """
        numbers = array("q", self.records)
        if sys.byteorder == "little":
            numbers.byteswap()
        try:
            numbers[_OFFSET::_FIELDS] = array("q", [offset + length for offset in numbers[_OFFSET::_FIELDS]])
            numbers[_COUNT::_FIELDS] = array("q", [count + events for count in numbers[_COUNT::_FIELDS]])
        except OverflowError:
            raise Rejected(
                f"index records of segment {self.segment!r}: behind {length} bytes and {events} events they do not fit "
                "into 64 bits"
            ) from None
        given = numbers[_APPEND::_FIELDS]
        numbers[_APPEND::_FIELDS] = array("q", [append if number == THIS_APPEND else number for number in given])
        if sys.byteorder == "little":
            numbers.byteswap()
        return numbers.tobytes()
