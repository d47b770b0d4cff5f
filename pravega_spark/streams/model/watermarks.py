"""The time of a stream as its writers note it, and what readers are told of it (Pravega: WriterMark, Watermark,
TimeWindow).

A mark is the last time that a writer has noted. A watermark is a lower and an upper bound of time for a stream cut: the
least of the marks at the moment of the cut, and the greatest time that was noted until then. Watermarks follow each
other in time and in the stream. Leaving one out makes the bounds of a place wider, never wrong, so only so many are
kept, and more of the later ones.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgpack

from chunkstore.decoding import Natural, check_format, reader, unpack
from chunkstore.optional_fields import NONE, OptionalFields, with_optional, without_optional
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.model.epochs import Comparison

FORMAT = 1

LEAST_TIME, MOST_TIME = -(1 << 63), (1 << 63) - 1
"""The least and the greatest time that can be noted: a time is any number of 64 bits."""

KEPT_BYTES = 64 << 10
"""Maximum bytes of the watermarks of a stream, of which each has some 30, and more for each segment."""

MAX_WRITERS = 1000
"""Maximum number of writers of a stream that note time and are waited for."""


class TimeWindow(NamedTuple):
    """The bounds of the times of the events at a place in a stream, as its writers noted them.

    lower_time_bound: events from there on were written after all writers had noted this time or a later one. None near
    the head, before the first watermark. upper_time_bound: no writer had noted a later time before there. None near the
    tail, after the last watermark.
    """

    lower_time_bound: int | None
    upper_time_bound: int | None

    @property
    def is_near_head_of_stream(self) -> bool:
        """Whether there is no lower bound."""
        return self.lower_time_bound is None

    @property
    def is_near_tail_of_stream(self) -> bool:
        """Whether there is no upper bound."""
        return self.upper_time_bound is None


class WriterMark(NamedTuple):
    """The last time that a writer has noted. noted: when (ms since the epoch, by the storage's clock). lease: ms for
    which the writer is waited for without another note."""

    timestamp: int
    noted: int
    lease: int

    def expired(self, now: int) -> bool:
        """Whether the writer is waited for no longer."""
        return now > self.noted + self.lease


class Marks(NamedTuple):
    """The marks of a stream by the ids of its writers, and the greatest time that any writer has noted; None: no time
    was. optional: what newer versions added that this one need not know (W19)."""

    highest: int | None
    writers: Mapping[str, WriterMark]
    optional: OptionalFields = NONE


NO_MARKS = Marks(None, {})


class Watermark(NamedTuple):
    """The bounds of time for a stream cut, by its positions."""

    lower: int
    upper: int
    positions: Mapping[int, int]


Watermarks = tuple[Watermark, ...]

_MARKS = reader(tuple[int | None, dict[str, tuple[int, int, Natural]]])
_WATERMARKS = reader(list[tuple[int, int, bytes]])


def encode_marks(marks: Marks) -> bytes:
    """The table entry's value."""
    writers = {name: list(mark) for name, mark in marks.writers.items()}
    return bytes(msgpack.packb(with_optional([FORMAT, marks.highest, writers], marks.optional)))


def decode_marks(data: bytes) -> Marks:
    """The inverse of `encode_marks`. Raises InvalidData."""
    known, *fields = unpack(data)
    check_format(known, FORMAT)
    plain, optional = without_optional(fields, 2)
    highest, writers = _MARKS(plain)
    return Marks(highest, {writer: WriterMark(*mark) for writer, mark in writers.items()}, optional)


def encode_watermarks(watermarks: Sequence[Watermark], scope: str, stream: str) -> bytes:
    """The table entry's value."""
    plain = [(each.lower, each.upper, StreamCut(scope, stream, each.positions).to_bytes()) for each in watermarks]
    return bytes(msgpack.packb([FORMAT, plain]))


def decode_watermarks(data: bytes) -> Watermarks:
    """The inverse of `encode_watermarks`. Raises InvalidData, InvalidStreamCut."""
    known, plain = unpack(data)
    check_format(known, FORMAT)
    return tuple(Watermark(low, high, StreamCut.from_bytes(cut).positions) for low, high, cut in _WATERMARKS(plain))


def next_watermark(marks: Marks, last: Watermark | None, positions: Mapping[int, int]) -> Watermark | None:
    """The watermark that follows, if all writers have noted a later time than its lower bound.

    marks: of the writers that are waited for. positions: of a cut after all that they had written when they noted.
    """
    lower = min((mark.timestamp for mark in marks.writers.values()), default=None)
    if lower is None or marks.highest is None or (last is not None and lower <= last.lower):
        return None
    return Watermark(lower, marks.highest, dict(positions))


def thinned(watermarks: Sequence[Watermark], size: Callable[[Sequence[Watermark]], int]) -> Watermarks:
    """Without every second one of the earlier half, until they fit KEPT_BYTES."""
    kept = tuple(watermarks)
    while len(kept) > 2 and size(kept) > KEPT_BYTES:
        half = len(kept) // 2
        kept = (*kept[:half:2], *kept[half:])
    return kept


def window_at(
    watermarks: Sequence[Watermark], compare: Callable[[Mapping[int, int]], Comparison], *, beyond: int = 0
) -> tuple[int, TimeWindow]:
    """How many watermarks a place has passed, and its window. compare: the place with a watermark's positions.

    A watermark at exactly the place is passed. beyond: the number of those that are known to be passed.
    """
    passed = bisect_left(
        watermarks, True, lo=beyond, key=lambda each: compare(each.positions) is not Comparison.EQUAL_OR_AFTER
    )
    following = watermarks[passed:]
    upper = next((each for each in following if compare(each.positions) is Comparison.BEFORE), None)
    if upper is None and following:
        upper = following[-1]
    return passed, TimeWindow(watermarks[passed - 1].lower if passed else None, upper.upper if upper else None)
