"""The framing of events in a segment, and finding them in its bytes.

An event is `int32 type = 0 | int32 payload length | payload`, big-endian. Keeps that decoded bytes are whole, valid
events: anything else is an `InvalidEvent`, never a wrong row. Does not import pyarrow, because planning and
committing a job do not need columns (see `framing`).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np

from engine.errors import DataCorruption

if TYPE_CHECKING:
    import pyarrow as pa

HEADER_SIZE = 8
MAX_EVENT_SIZE = 8 * 1024 * 1024  # bytes of payload
MAX_LARGE_EVENT_SIZE = 1 << 30  # bytes of payload of a large event (PDP-43)

MAX_INT32 = 0x7FFFFFFF
_HEADER = struct.Struct(">ii")
_FEW_LANES = 48  # below this many lanes a plain loop is faster than numpy


class InvalidEvent(DataCorruption, ValueError):
    """Bytes that are not a sequence of whole events. `offset` is where the offending event starts."""

    remedy = f"A byte stream cannot be read as events. If it is none: {DataCorruption.remedy}"

    def __init__(self, problem: str, offset: int) -> None:
        super().__init__(f"{problem} (event at offset {offset})")
        self.problem = problem
        self.offset = offset


def event_header(length: int) -> bytes:
    """The header of an event with so many bytes of payload."""
    return _HEADER.pack(0, length)


def decode(
    buffer: bytes | bytearray | memoryview | pa.Buffer, lanes: np.ndarray, end: int, base: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Finds the events in `buffer[:end]`: the offsets of their headers in the buffer and their payload lengths.

    `lanes` are offsets in the buffer known to be event boundaries, ascending, the first one 0: all of them are
    scanned at once. `base`, the offset of the buffer in its segment, is only used in errors. Both results are int64
    and in order of position. InvalidEvent if the bytes are not whole events, or an event crosses a boundary.
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
    found, lanes, limits = _scan_in_lanes(data[:end], lanes, limits, base)
    for first, limit in zip(lanes.tolist(), limits.tolist(), strict=True):
        found.append(_scan(data, first, limit, base))
    starts = np.sort(np.concatenate(found))
    # The lanes join without gaps, so an event ends where the next one starts.
    return starts, np.diff(starts, append=end) - HEADER_SIZE


def decode_whole(buffer: bytes | bytearray | memoryview, base: int = 0) -> tuple[np.ndarray, np.ndarray, int]:
    """Finds the whole events at the start of `buffer`, as `decode`, and the offset after them.

    For bytes with no known event boundary but the first. InvalidEvent if the bytes cannot be an event.
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


def _scan_in_lanes(
    data: np.ndarray, places: np.ndarray, limits: np.ndarray, base: int
) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """Scans many lanes in lock-step until few are left; returns the events and the positions of the other lanes."""
    # Every header as one unsigned number: a valid one has type 0 and a length below 2^31, so it is at most MAX_INT32.
    last = len(data) - HEADER_SIZE
    headers = np.ndarray((max(last + 1, 0),), ">u8", data, strides=(1,))
    found = []
    while len(places) > _FEW_LANES:
        # A header cut off by the end is read a little before its position; in any case its event does not fit.
        at = np.minimum(places, last) if places[-1] > last else places
        header = headers[at].astype(np.uint64)
        room = limits - (places + header.view(np.int64) + HEADER_SIZE)
        least = room.min()
        if least < 0 or header.max() > MAX_INT32:
            wrong = np.flatnonzero((header > MAX_INT32) | (room < 0))[0]
            _scan(data, int(places[wrong]), int(limits[wrong]), base)
        found.append(places)
        if least == 0:  # some lanes are done
            going = room > 0
            limits, room = limits[going], room[going]
        places = limits - room
    return found, places, limits


def _scan(data: np.ndarray, place: int, limit: int, base: int) -> np.ndarray:
    """The offsets of the events from `place` up to `limit`, one at a time. Raises all errors about invalid events."""
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
