"""Columns of events to framed bytes and back, without a Python object per event."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pravega_spark.streams.model.arrays import TEXTS, numpy_values
from pravega_spark.streams.model.events import HEADER_SIZE, MAX_EVENT_SIZE, MAX_INT32, MAX_LARGE_EVENT_SIZE


@dataclass(frozen=True)
class Framed:
    """Framed events grouped by segment, in row order within each segment.

    `data` holds all framed bytes; `lengths` the framed length of each event (int64, bytes) in the same order. Segment i
    has the events `event_bounds[i]:event_bounds[i + 1]` and the bytes `byte_bounds[i]:byte_bounds[i + 1]`.
    """

    data: pa.Buffer
    lengths: np.ndarray
    event_bounds: np.ndarray
    byte_bounds: np.ndarray

    def segments(self) -> list[int]:
        """The segments that have events, in order."""
        found: list[int] = np.flatnonzero(np.diff(self.event_bounds)).tolist()
        return found

    def contents(self) -> Iterator[tuple[int, memoryview, np.ndarray]]:
        """For each segment that has events its number, their bytes and their framed lengths."""
        for segment in self.segments():
            yield segment, memoryview(self.segment_data(segment)), self.segment_lengths(segment)

    def part(self, first: int, end: int) -> Framed:
        """That of the segments from `first` to the one before `end`; shares memory."""
        events, data = self.event_bounds[first : end + 1], self.byte_bounds[first : end + 1]
        content = self.data.slice(int(data[0]), int(data[-1] - data[0]))
        return Framed(content, self.lengths[events[0] : events[-1]], events - events[0], data - data[0])

    def segment_data(self, segment: int) -> pa.Buffer:
        """The framed bytes of one segment; shares memory with `data`."""
        first, end = (int(bound) for bound in self.byte_bounds[segment : segment + 2])
        return self.data.slice(first, end - first)

    def segment_lengths(self, segment: int) -> np.ndarray:
        """The framed lengths of one segment's events."""
        return self.lengths[self.event_bounds[segment] : self.event_bounds[segment + 1]]


def frame_column(
    events: pa.Array, segments: np.ndarray | None, count: int, max_event_size: int = MAX_EVENT_SIZE
) -> Framed:
    """Frames a column of strings or bytes, grouped by segment.

    `segments` gives the segment (0 to count - 1) of each row; None puts every row in segment 0. `max_event_size` is in
    bytes of payload. ValueError, naming the row, for a null event and for one that is too large; TypeError for a column
    of another type.
    """
    column = _binary(events)
    lengths = _checked_lengths(column, max_event_size)
    event_bounds = np.full(count + 1, len(column))
    event_bounds[0] = 0
    starts = _offsets(column)[:-1]
    if segments is not None:
        segments = _checked_segments(segments, len(column), count)
        np.cumsum(np.bincount(segments, minlength=count), out=event_bounds[1:])
        if not np.all(segments[1:] >= segments[:-1]):
            order = np.argsort(segments, kind="stable")
            starts, lengths = starts[order], lengths[order]
    framed_lengths = lengths + HEADER_SIZE
    ends = np.concatenate(([0], np.cumsum(framed_lengths)))
    views = np.zeros((len(column), 2, 4), np.int32)
    _describe_headers(views[:, 0], lengths)
    _describe_pieces(views[:, 1], starts, lengths, column.buffers()[2])
    framed = _gathered(views, column.buffers()[2], pa.large_binary())
    # An array of no events may have no data buffer at all.
    data = framed.buffers()[2].slice(0, int(ends[-1])) if len(column) else pa.py_buffer(b"")
    return Framed(data, framed_lengths, event_bounds, ends[event_bounds])


def large_rows(events: pa.Array) -> list[int]:
    """The rows of a column, as `frame_column` takes it, whose events are larger than MAX_EVENT_SIZE.

    Where the whole column has fewer bytes none is looked at. ValueError, naming the row, for a null beside one of them
    and for one larger than MAX_LARGE_EVENT_SIZE.
    """
    if events.nbytes <= MAX_EVENT_SIZE:
        return []
    lengths: np.ndarray = numpy_values(pc.binary_length(events))
    rows: list[int] = np.flatnonzero(lengths > MAX_EVENT_SIZE).tolist()
    if rows:
        _checked_lengths(_binary(events), MAX_LARGE_EVENT_SIZE)
    return rows


def payload_of(events: pa.Array, row: int) -> memoryview:
    """The bytes of one event of a column, where they lie."""
    column = _binary(events)
    first, end = _offsets(column)[row : row + 2].tolist()
    return memoryview(column.buffers()[2])[first:end]


def _binary(events: pa.Array) -> pa.Array:
    if events.null_count:
        row = int(np.argmax(numpy_values(pc.is_null(events))))
        raise ValueError(f"column event is null in row {row}: filter out such rows or give them an empty event")
    if events.type not in (*TEXTS, pa.binary(), pa.large_binary(), pa.binary_view()):
        raise TypeError(f"column event must hold strings or binary, not {events.type}: cast or serialize it (to_json)")
    # The offsets of large_binary have 64 bits, so the framed column may exceed 2 GiB. It costs no measurable time.
    return events.cast(pa.large_binary())


def _checked_lengths(column: pa.Array, max_event_size: int) -> np.ndarray:
    lengths: np.ndarray = numpy_values(pc.binary_length(column))
    limit = min(max_event_size, MAX_INT32)
    if lengths.max(initial=0) > limit:
        row = int(np.argmax(lengths > limit))
        advice = "split it" if limit >= MAX_LARGE_EVENT_SIZE else "split it, or write it as a large event"
        raise ValueError(
            f"The event in row {row} has {lengths[row]} bytes, more than the limit of {limit}: {advice}. "
            f"(Write size too large: {lengths[row] + HEADER_SIZE})"
        )
    return lengths


def _checked_segments(segments: np.ndarray, rows: int, count: int) -> np.ndarray:
    if len(segments) != rows:
        raise ValueError(f"{len(segments)} segments were given for {rows} events: give one for each event")
    if rows and (segments.min() < 0 or segments.max() >= count):
        raise ValueError(f"a segment is outside of 0 to {count - 1}")
    # numpy sorts integers of 8 and 16 bits by radix.
    return segments.astype(np.min_scalar_type(max(count - 1, 0)), copy=False)


def _offsets(column: pa.Array) -> np.ndarray:
    """Where in its data buffer each value of a large_binary column begins, and where the last one ends."""
    offsets: np.ndarray = np.frombuffer(column.buffers()[1] or bytes(8), np.int64)
    return offsets[column.offset : column.offset + len(column) + 1]


# Gathering. Arrow's binary views say for each value where it lies; casting an array of them to plain binary copies all
# the pieces into one buffer, in one pass. A view has four int32: the length, then either up to 12 bytes of the value
# itself, or its first 4 bytes (which the cast does not look at), which of the buffers it is in, and where.

_INLINE = 12
_REACH = 1 << 30  # views reach 2^31 bytes into a buffer: a larger one is given again and again, from further on


def _describe_headers(views: np.ndarray, lengths: np.ndarray) -> None:
    """Make the views (n, 4) those of the event headers for these payload lengths."""
    views[:, 0] = HEADER_SIZE
    views[:, 2] = lengths.astype(">i4").view(np.int32)


def _describe_pieces(views: np.ndarray, starts: np.ndarray, lengths: np.ndarray, data: pa.Buffer | None) -> None:
    """Make the views (n, 4) those of the pieces of `data` that begin at `starts`."""
    views[:, 0] = lengths
    if data is not None and data.size > _REACH:
        views[:, 2], views[:, 3] = np.divmod(starts, _REACH)
    else:
        views[:, 3] = starts  # all of them are in the first buffer: divisions are slow
    short = np.flatnonzero(lengths <= _INLINE)
    if len(short):
        inline = np.zeros((len(short), _INLINE), np.uint8)
        content = np.frombuffer(data or b"", np.uint8)
        for at in range(int(lengths[short].max())):
            reaching = np.flatnonzero(lengths[short] > at)
            inline[reaching, at] = content[starts[short[reaching]] + at]
        views[short, 1:] = inline.view(np.int32)


def _gathered(views: np.ndarray, data: pa.Buffer | None, kind: pa.DataType) -> pa.Array:
    """The pieces that the views describe, as an array of binary or large_binary."""
    reached = [data.slice(start) for start in range(0, data.size, _REACH)] if data is not None else []
    count = views.size // 4
    return pa.Array.from_buffers(pa.binary_view(), count, [None, pa.py_buffer(views), *reached]).cast(kind)


def event_column(
    buffer: bytes | bytearray | memoryview | pa.Buffer, starts: np.ndarray, lengths: np.ndarray
) -> pa.Array:
    """The payloads of the events that `decode` found (or of a slice of them) as a binary array.

    ValueError if the events are not inside the buffer in ascending order, or span 2 GiB or more.
    """
    if len(starts) == 0:
        return pa.nulls(0, pa.binary())
    source = pa.py_buffer(buffer)
    begins = starts + HEADER_SIZE
    ends = begins + lengths
    ascending = lengths.min() >= 0 and bool(np.all(ends[:-1] <= begins[1:]))
    if begins[0] < HEADER_SIZE or ends[-1] > source.size or not ascending:
        raise ValueError(f"the events must be in ascending order and inside the buffer of {source.size} bytes")
    if ends[-1] - begins[0] > MAX_INT32:
        raise ValueError(f"the events span {ends[-1] - begins[0]} bytes; make columns of less than 2 GiB each")
    views = np.zeros((len(begins), 4), np.int32)
    _describe_pieces(views, begins, lengths, source)
    return _gathered(views, source, pa.binary())
