"""Events and routing keys as programs give them to writers: checked before anything is written."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pravega_spark.streams.arrays import numpy_values
from pravega_spark.streams.events import HEADER_SIZE, MAX_EVENT_SIZE, frame_column

_HEADER = struct.Struct(">ii")

Column: TypeAlias = "pa.Array | pa.ChunkedArray | Sequence[str] | Sequence[bytes]"
Keys: TypeAlias = "pa.Array | pa.ChunkedArray | Sequence[str | None]"


IN_TRANSACTION = "split it; transactions take no large events, but begin_event writes them on their own"
OF_A_WRITER = "split it, or write it with begin_event"


def framed_event(event: bytes | bytearray | memoryview, advice: str = OF_A_WRITER) -> bytes:
    """One event with its header. ValueError, with the advice, if it is too large, TypeError if it is not bytes."""
    if not isinstance(event, bytes | bytearray | memoryview):
        raise TypeError(f"write_event_bytes takes bytes, not {type(event).__name__}; use write_event for a str")
    if len(event) > MAX_EVENT_SIZE:
        raise ValueError(
            f"Write size too large: {len(event) + HEADER_SIZE}. The event exceeds the limit of {MAX_EVENT_SIZE} bytes: "
            f"{advice}"
        )
    return _HEADER.pack(0, len(event)) + event


def checked_events(events: Column, advice: str = OF_A_WRITER) -> pa.Array:
    """The events as one column whose rows can all be framed. ValueError, with the advice, for one that is too large."""
    if not isinstance(events, pa.Array | pa.ChunkedArray):
        events = pa.array(events)
    frame_column(pa.nulls(0, events.type), None, 1)  # refuses other types
    events = events.cast(pa.large_binary())
    column = events.combine_chunks() if isinstance(events, pa.ChunkedArray) else events
    if column.null_count:
        frame_column(column, None, 1)  # tells which row it is
    lengths = pc.binary_length(column)
    if (longest := pc.max(lengths).as_py()) > MAX_EVENT_SIZE:
        row = pc.index(lengths, longest).as_py()
        raise ValueError(
            f"Write size too large: {longest + HEADER_SIZE}. The event in row {row} exceeds the limit of "
            f"{MAX_EVENT_SIZE} bytes: {advice}"
        )
    return column


def checked_keys(keys: Keys | None, count: int) -> pa.Array | pa.ChunkedArray | None:
    """The keys as a column. ValueError if there is not one, or null, for each event."""
    if keys is None:
        return None
    if len(keys) != count:
        raise ValueError(f"{len(keys)} routing keys were given for {count} events: give one, or null, for each")
    return keys if isinstance(keys, pa.Array | pa.ChunkedArray) else pa.array(keys, pa.string())


def cut(column: pa.Array, size: int) -> Iterator[tuple[int, int]]:
    """Cut a column into runs of rows of `size` bytes at most, with their headers; of one row at least."""
    lengths = numpy_values(pc.binary_length(column))
    ends = np.cumsum(lengths, dtype=np.int64) + HEADER_SIZE * np.arange(1, len(lengths) + 1)
    start, done = 0, 0
    while start < len(ends):
        end = max(int(np.searchsorted(ends, done + size, side="right")), start + 1)
        yield start, end
        start, done = end, int(ends[end - 1])
