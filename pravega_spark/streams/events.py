"""Event framing: whole columns of events to framed bytes and back, without a Python object per event.

An event is `int32 type = 0 | int32 payload length | payload`, big-endian. Owns the promise that what is decoded is made
of whole, valid events: anything else is an `InvalidEvent`, never a wrong row.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from chunkstore.errors import DeclaredError
from pravega_spark.streams.arrays import numpy_values

HEADER_SIZE = 8
MAX_EVENT_SIZE = 8 * 1024 * 1024  # bytes of payload
MAX_LARGE_EVENT_SIZE = 1 << 30  # the same of an event that is written in a way of its own (PDP-43)

_MAX_INT32 = 0x7FFFFFFF
_HEADER = struct.Struct(">ii")
_FEW_LANES = 48  # below this many lanes a plain loop is faster than numpy


class InvalidEvent(DeclaredError, ValueError):
    """Bytes that are not a sequence of whole events. `offset` is where the offending event starts."""

    def __init__(self, problem: str, offset: int) -> None:
        super().__init__(f"{problem} (event at offset {offset})")
        self.problem = problem
        self.offset = offset


def event_header(length: int) -> bytes:
    """The header of an event with so many bytes of payload."""
    return _HEADER.pack(0, length)


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
        return np.flatnonzero(np.diff(self.event_bounds)).tolist()

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
    kind, types = events.type, pa.types
    if not (
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_binary_view(kind)
        or types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_string_view(kind)
    ):
        raise TypeError(f"column event must hold strings or binary, not {kind}: cast or serialize it (to_json)")
    # The offsets of large_binary have 64 bits, so the framed column may exceed 2 GiB. It costs no measurable time.
    return events.cast(pa.large_binary())


def _checked_lengths(column: pa.Array, max_event_size: int) -> np.ndarray:
    lengths: np.ndarray = numpy_values(pc.binary_length(column))
    limit = min(max_event_size, _MAX_INT32)
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


def decode(
    buffer: bytes | bytearray | memoryview | pa.Buffer, lanes: np.ndarray, end: int, base: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Finds the events in `buffer[:end]`: the offsets of their headers in the buffer and their payload lengths.

    `lanes` are offsets in the buffer known to be event boundaries, ascending, the first one 0: the walk goes on in all
    of them at once. `base`, the offset of the buffer in its segment, is only used in errors. Both results are int64
    and in order of position. InvalidEvent if the bytes are not whole events, or an event runs over a boundary.
    """
    lanes = np.asarray(lanes, dtype=np.int64)
    data = np.frombuffer(buffer, np.uint8)
    if not 0 <= end <= len(data):
        raise ValueError(f"the end {end} is outside of the buffer of {len(data)} bytes")
    if end == 0:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    if len(lanes) == 0 or lanes[0] != 0 or lanes[-1] >= end or not np.all(lanes[1:] > lanes[:-1]):
        raise ValueError(f"the known event boundaries must ascend from 0 and stay below the end {end}")
    limits = np.append(lanes[1:], end)
    found, lanes, limits = _walk_together(data[:end], lanes, limits, base)
    for first, limit in zip(lanes.tolist(), limits.tolist(), strict=True):
        found.append(_walk(data, first, limit, base))
    starts = np.sort(np.concatenate(found))
    # The lanes join without gaps, so an event ends where the next one starts.
    return starts, np.diff(starts, append=end) - HEADER_SIZE


def decode_whole(buffer: bytes | bytearray | memoryview, base: int = 0) -> tuple[np.ndarray, np.ndarray, int]:
    """Finds the whole events that `buffer` begins with: as `decode`, and where the first one that is not whole begins.

    For bytes in which no other event boundary is known than the first. InvalidEvent where there can be no event.
    """
    starts, place, end = [], 0, len(buffer)
    unpack = _HEADER.unpack_from
    while end - place >= HEADER_SIZE:
        kind, length = unpack(buffer, place)
        if kind != 0 or length < 0:
            raise InvalidEvent(f"there is no event: its type is {kind}, its length {length}", base + place)
        if place + HEADER_SIZE + length > end:
            break
        starts.append(place)
        place += HEADER_SIZE + length
    found = np.array(starts, np.int64)
    return found, np.diff(found, append=place) - HEADER_SIZE, place


def _walk_together(
    data: np.ndarray, places: np.ndarray, limits: np.ndarray, base: int
) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """Walks many lanes in lock-step until few are left; returns the events found and where the other lanes stand."""
    # Every header as one unsigned number: a valid one has type 0 and a length below 2^31, so it is at most _MAX_INT32.
    last = len(data) - HEADER_SIZE
    headers = np.ndarray((max(last + 1, 0),), ">u8", data, strides=(1,))
    found = []
    while len(places) > _FEW_LANES:
        # A header cut off by the end is read a little before its place; whatever it says, its event has no room.
        at = np.minimum(places, last) if places[-1] > last else places
        header = headers[at].astype(np.uint64)
        room = limits - (places + header.view(np.int64) + HEADER_SIZE)
        least = room.min()
        if least < 0 or header.max() > _MAX_INT32:
            wrong = np.flatnonzero((header > _MAX_INT32) | (room < 0))[0]
            _walk(data, int(places[wrong]), int(limits[wrong]), base)
        found.append(places)
        if least == 0:  # some lanes are done
            going = room > 0
            limits, room = limits[going], room[going]
        places = limits - room
    return found, places, limits


def _walk(data: np.ndarray, place: int, limit: int, base: int) -> np.ndarray:
    """The offsets of the events from `place` up to `limit`, one at a time. All refusals are worded here."""
    starts = []
    view = data.data
    while place < limit:
        if limit - place < HEADER_SIZE:
            raise InvalidEvent(f"Event header runs over the end at offset {base + limit}", base + place)
        kind, length = _HEADER.unpack_from(view, place)
        if kind != 0:
            raise InvalidEvent(f"Event was of wrong type: {kind}", base + place)
        if length < 0:
            raise InvalidEvent(f"Event of invalid length: {length}", base + place)
        if place + HEADER_SIZE + length > limit:
            raise InvalidEvent(f"Event of length {length} runs over the end at offset {base + limit}", base + place)
        starts.append(place)
        place += HEADER_SIZE + length
    return np.array(starts, dtype=np.int64)


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
    if ends[-1] - begins[0] > _MAX_INT32:
        raise ValueError(f"the events span {ends[-1] - begins[0]} bytes; make columns of less than 2 GiB each")
    views = np.zeros((len(begins), 4), np.int32)
    _describe_pieces(views, begins, lengths, source)
    return _gathered(views, source, pa.binary())
