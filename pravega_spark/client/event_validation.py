"""Validation of events and routing keys before anything is written."""

from __future__ import annotations

import reprlib
import struct
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pravega_spark.streams.model.arrays import numpy_values
from pravega_spark.streams.model.events import HEADER_SIZE, MAX_EVENT_SIZE
from pravega_spark.streams.model.framing import frame_column
from pravega_spark.streams.writing.event_numbers import MAX_NUMBER

_HEADER = struct.Struct(">ii")

Column: TypeAlias = "pa.Array | pa.ChunkedArray | Sequence[str] | Sequence[bytes]"
Keys: TypeAlias = "pa.Array | pa.ChunkedArray | Sequence[str | None]"


IN_TRANSACTION = "split it; transactions take no large events, but begin_event writes them on their own"
OF_A_WRITER = "split it, or write it with begin_event"


def encode_text(event: str) -> bytes:
    """A text as UTF-8. TypeError for anything else, with advice how to convert it."""
    if isinstance(event, str):
        return event.encode()
    if isinstance(event, bytes | bytearray | memoryview):
        raise TypeError(
            f"write_event: event must be a str, not {type(event).__name__}: use write_event_bytes for bytes"
        )
    how = "json.dumps(event)" if isinstance(event, dict | list | tuple) else "str(event)"
    raise TypeError(f"write_event: event must be a str, not {reprlib.repr(event)} ({type(event).__name__}): give {how}")


def check_key(routing_key: str) -> None:
    """Raise TypeError if it is not a routing key."""
    if not isinstance(routing_key, str):
        raise TypeError(
            f"routing_key must be a str or None, not {reprlib.repr(routing_key)} ({type(routing_key).__name__}): give "
            "str(routing_key)"
        )


def frame_event(event: bytes | bytearray | memoryview, advice: str = OF_A_WRITER) -> bytes:
    """One event with its header. ValueError, with the advice, if it is too large, TypeError if it is not bytes."""
    if not isinstance(event, bytes | bytearray | memoryview):
        raise TypeError(
            f"write_event_bytes: event must be bytes, not {reprlib.repr(event)} ({type(event).__name__}): use "
            "write_event for a str"
        )
    if len(event) > MAX_EVENT_SIZE:
        raise ValueError(
            f"The event has {len(event)} bytes, more than the limit of {MAX_EVENT_SIZE}: {advice}. "
            f"(Write size too large: {len(event) + HEADER_SIZE})"
        )
    return _HEADER.pack(0, len(event)) + event


def validated_events(events: Column, advice: str = OF_A_WRITER) -> pa.Array:
    """The events as one column that can be framed. ValueError, with the advice, for an event that is too large."""
    events = _column("events", events)
    frame_column(pa.nulls(0, events.type), None, 1)  # rejects other types
    events = events.cast(pa.large_binary())
    column = events.combine_chunks() if isinstance(events, pa.ChunkedArray) else events
    if column.null_count:
        frame_column(column, None, 1)  # raises an error that names the row
    lengths = pc.binary_length(column)
    if (longest := pc.max(lengths).as_py() or 0) > MAX_EVENT_SIZE:
        row = pc.index(lengths, longest).as_py()
        raise ValueError(
            f"The event in row {row} has {longest} bytes, more than the limit of {MAX_EVENT_SIZE}: {advice}. "
            f"(Write size too large: {longest + HEADER_SIZE})"
        )
    return column


def _column(name: str, values: Column | Keys, kind: pa.DataType | None = None) -> pa.Array | pa.ChunkedArray:
    """The value of a parameter as a column. TypeError, with the name of the parameter, for other values."""
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if hasattr(values, "__arrow_c_stream__"):  # a column of another library
        return pa.chunked_array(values)
    try:
        if isinstance(values, str | bytes):  # probably a list was meant
            raise TypeError("it is one value")
        return pa.array(values, kind or (pa.binary() if not len(values) else None))
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"write_events: {name} must be a list, or an Arrow column, of texts or bytes, not {reprlib.repr(values)}: "
            f"{error}"
        ) from None


def validated_keys(keys: Keys | None, count: int, of_all: str | None = None) -> pa.Array | pa.ChunkedArray | None:
    """The keys as a column. ValueError if there is not one, or null, for each event. of_all: the key of all events."""
    if of_all is not None:
        check_key(of_all)
        if keys is not None:
            raise ValueError("write_events: give routing_keys or routing_key, not both")
        return pa.repeat(pa.scalar(of_all), count)
    if keys is None:
        return None
    column = _column("routing_keys", keys, pa.string())
    if len(column) != count:
        raise ValueError(f"{len(column)} routing_keys were given for {count} events: give one, or null, for each")
    return column


def check_number(number: int | None, last: int) -> int:
    """The number of an event, by default the one after `last`. TypeError, ValueError if it cannot be one."""
    if number is None:
        return last + 1
    if isinstance(number, bool) or not isinstance(number, int | np.integer):
        raise TypeError(f"number must be an int, not {reprlib.repr(number)} ({type(number).__name__})")
    if not 0 <= number <= MAX_NUMBER:
        raise ValueError(f"number must be from 0 to {MAX_NUMBER}, not {number}")
    return int(number)


def check_numbers(numbers: Sequence[int] | np.ndarray | None, count: int, last: int) -> np.ndarray:
    """The numbers of `count` events, by default those after `last`. TypeError, ValueError if they cannot be that."""
    if numbers is None:
        return np.arange(last + 1, last + 1 + count)
    found = np.asarray(numbers)
    if found.shape != (count,):
        shown = reprlib.repr(numbers)
        raise ValueError(f"write_events: numbers must be {count} numbers, one for each event, not {shown}")
    if found.dtype.kind not in "iu":
        raise TypeError(f"write_events: numbers must be integers, not {reprlib.repr(numbers)}")
    found = found.astype(np.int64)
    if found[0] < 0 or (np.diff(found) <= 0).any():
        raise ValueError(f"write_events: numbers must be 0 or more and ascend, not {reprlib.repr(numbers)}")
    return found


def check_atomic(column: pa.Array, atomic: bool, most: int) -> None:
    """Raise ValueError if a write is atomic, and its framed events have more bytes than one append of a writer takes;
    TypeError if `atomic` is no bool."""
    if not isinstance(atomic, bool):
        raise TypeError(f"write_events: atomic must be True or False, not {reprlib.repr(atomic)}")
    if not atomic:
        return
    size = (pc.sum(pc.binary_length(column)).as_py() or 0) + HEADER_SIZE * len(column)
    if size > most:
        raise ValueError(
            f"write_events: the events have {size} bytes with their headers, more than the limit of {most} of an "
            "atomic write: write them with StreamManager.write_events, or in a transaction, which are atomic at any "
            "size"
        )


def row_ranges(column: pa.Array, size: int) -> Iterator[tuple[int, int]]:
    """Divide a column into ranges of rows of `size` bytes at most, headers included, and of one row at least."""
    lengths = numpy_values(pc.binary_length(column))
    ends = np.cumsum(lengths, dtype=np.int64) + HEADER_SIZE * np.arange(1, len(lengths) + 1)
    start, done = 0, 0
    while start < len(ends):
        end = max(int(np.searchsorted(ends, done + size, side="right")), start + 1)
        yield start, end
        start, done = end, int(ends[end - 1])
