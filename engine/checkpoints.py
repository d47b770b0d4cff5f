"""Checkpoint objects: the whole state of a container after one frame, where an opening starts (W6).

The object's name makes it the boundary of all frames before it (W7). It begins with a token as every object made by
`put_if_absent`, carries a CRC32C over all of it and names its container and frame, so that a damaged or misplaced one
is told from a good one (W8).
"""

from __future__ import annotations

import struct
import uuid
from typing import Any, NamedTuple

import immutables
import msgpack

from chunkstore import ObjectNotFound, Store
from chunkstore.checksums import crc32c
from engine.errors import DataCorruption
from engine.frames import START, Position
from engine.log import checkpoint_path, folder
from engine.operations import decode_extents, encode_extents
from engine.segment_map import SegmentMap
from engine.segments import Extents, Segment
from engine.state import EMPTY, Cycle, Garbage, State, layout_of
from engine.tables import Entry, Table

MAGIC = b"PSCP"
VERSION = 1
_HEADER = struct.Struct(">24s4sBIqI")
HEADER = _HEADER.size
"""Bytes before the state in the object."""


class Opening(NamedTuple):
    """Where a log is to be read from: the last live frame in the state, and the state."""

    head: Position
    state: State


def encode(container: int, head: Position, state: State) -> bytes:
    """The checkpoint object of `state`, which is the state after the frame `head`."""
    body = msgpack.packb([list(head), _plain(state)])
    token = uuid.uuid4().bytes + bytes(8)
    prefix = _HEADER.pack(token, MAGIC, VERSION, container, head.address, 0)[:-4]
    return bytes(prefix + crc32c(body, crc32c(prefix)).to_bytes(4, "big") + body)


def decode(data: bytes, path: str, container: int, address: int | None) -> Opening:
    """The inverse of `encode`, of the frame at `address` if that is known. Raises DataCorruption when a check fails."""
    if len(data) < _HEADER.size:
        raise _damaged(path, f"it has only {len(data)} bytes")
    _, magic, version, number, own, crc = _HEADER.unpack_from(data)
    if magic != MAGIC or version != VERSION:
        raise _damaged(path, f"it is not a checkpoint of format {VERSION}")
    if crc != crc32c(data[_HEADER.size :], crc32c(data[: _HEADER.size - 4])):
        raise _damaged(path, "its checksum does not match")
    if number != container or address not in (own, None):
        raise _damaged(path, f"it holds checkpoint {own} of container {number}")
    head, plain = msgpack.unpackb(data[_HEADER.size :], strict_map_key=False)
    return Opening(Position(*head), _state(plain))


def _damaged(path: str, reason: str) -> DataCorruption:
    return DataCorruption(
        f"{path}: {reason}. Restore the object from a copy; if an older checkpoint and all frames after it exist "
        "still, the container also opens once this object is removed"
    )


def read_newest(store: Store, container: int) -> Opening:
    """The newest checkpoint, or the empty state of a new log."""
    while True:
        listed = store.list(f"{folder(container)}/checkpoints/")
        if not listed:
            return Opening(START, EMPTY)
        path = listed[-1].path
        try:
            data = store.read(path)
        except ObjectNotFound:
            continue  # a newer one has replaced it meanwhile
        return decode(data, path, container, int(path.rpartition("/")[2]))


def write(store: Store, container: int, head: Position, state: State) -> int:
    """Make the checkpoint object for the frame `head`. Returns its size. Another process may have made the same one."""
    data = encode(container, head, state)
    store.put_if_absent(checkpoint_path(container, head.address), data)
    return len(data)


def _plain(state: State) -> list[Any]:
    return [
        state.sequence,
        state.checkpoint,
        state.flushed,
        state.logged_bytes,
        state.segments.packed(_plain_segment),
        list(state.unsaved),
        {name: _plain_table(table) for name, table in state.tables.items()},
        dict(state.chunks.items()),
        dict(state.garbage.items()),
        list(state.dropped),
        list(state.cycle),
        dict(state.transients.items()),
        state.swept,
    ]


def _plain_segment(segment: Segment) -> list[Any]:
    return [*segment[:7], dict(segment.attributes), _plain_extents(segment.extents), *segment[9:]]


def _plain_table(table: Table) -> list[Any]:
    recent = {key: list(entry) for key, entry in table.recent.items()}
    return [recent, *table[1:4], list(table.layout), _plain_extents(table.entries), _plain_extents(table.pages)]


def _plain_extents(extents: Extents) -> list[Any]:
    pairs = list(extents)
    return [pairs[0][0], encode_extents([extent for _, extent in pairs])] if pairs else []


def _state(plain: list[Any]) -> State:
    *numbers, segments, unsaved, tables, chunks, garbage, dropped, cycle, transients, swept = plain
    sequence, checkpoint, flushed, logged = numbers
    return State(
        sequence,
        checkpoint,
        flushed,
        logged,
        immutables.Map(dict.fromkeys(unsaved, True)),
        SegmentMap(segments, _segment),
        immutables.Map({name: _table(fields) for name, fields in tables.items()}),
        immutables.Map(chunks),
        immutables.Map({name: Garbage(*fields) for name, fields in garbage.items()}),
        immutables.Map(dict.fromkeys(dropped, True)),
        Cycle(*cycle),
        immutables.Map(transients),
        swept,
    )


def _segment(fields: list[Any]) -> Segment:
    return Segment._make([*fields[:7], immutables.Map(fields[7]), _extents(fields[8]), *fields[9:]])


def _table(fields: list[Any]) -> Table:
    recent, size, flushed, dropped, layout, entries, pages = fields
    known = immutables.Map({key: Entry(*entry) for key, entry in recent.items()})
    return Table(known, size, flushed, dropped, layout_of(layout), _extents(entries), _extents(pages))


def _extents(plain: list[Any]) -> Extents:
    if not plain:
        return Extents()
    offset, extents = plain
    return Extents().appended(offset, decode_extents(extents))
