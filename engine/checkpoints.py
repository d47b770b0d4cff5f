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
from engine.checksums import crc32c
from engine.errors import DataCorruption
from engine.frames import START, Position
from engine.log import checkpoint_path, folder
from engine.operations import decode_extents, encode_extents
from engine.segments import Extents, FrameRef, Segment
from engine.state import EMPTY, Entry, State

MAGIC = b"PSCP"
VERSION = 1
_HEADER = struct.Struct(">24s4sBIqI")


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


def decode(data: bytes, path: str, container: int, address: int) -> Opening:
    """The inverse of `encode`; DataCorruption when a check fails."""
    if len(data) < _HEADER.size:
        raise _damaged(path, f"it has only {len(data)} bytes")
    _, magic, version, number, own, crc = _HEADER.unpack_from(data)
    if magic != MAGIC or version != VERSION:
        raise _damaged(path, f"it is not a checkpoint of format {VERSION}")
    if crc != crc32c(data[_HEADER.size :], crc32c(data[: _HEADER.size - 4])):
        raise _damaged(path, "its checksum does not match")
    if number != container or own != address:
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
        [[*segment[:7], dict(segment.attributes), _extents(segment.extents)] for segment in state.segments.values()],
        {
            name: {key: list(entry) for key, entry in entries.items()}  #
            for name, entries in state.tables.items()
        },
        dict(state.garbage),
    ]


def _extents(extents: Extents) -> list[Any]:
    pairs = list(extents)
    return [pairs[0][0] if pairs else 0, encode_extents([extent for _, extent in pairs])]


def _state(plain: list[Any]) -> State:
    sequence, checkpoint, flushed, segments, tables, garbage = plain
    found: dict[str, Segment] = {}
    chunks: dict[str, int] = {}
    frames: dict[FrameRef, FrameRef] = {}
    for name, number, start, length, sealed, modified, logged, attributes, (offset, extents) in segments:
        items = [
            extent if extent.flushed else extent._replace(source=frames.setdefault(extent.source, extent.source))  # type: ignore[arg-type]
            for extent in decode_extents(extents)
        ]
        for extent in items:
            if isinstance(extent.source, str):
                chunks[extent.source] = chunks.get(extent.source, 0) + 1
        content = Extents().appended(offset, items)
        found[name] = Segment(
            name, number, start, length, sealed, modified, logged, immutables.Map(attributes), content
        )
    return State(
        sequence,
        checkpoint,
        flushed,
        sum(segment.logged for segment in found.values()),
        immutables.Map({name: True for name, segment in found.items() if segment.logged}),
        immutables.Map(found),
        immutables.Map(
            {
                name: immutables.Map({key: Entry(*entry) for key, entry in entries.items()})
                for name, entries in tables.items()
            }
        ),
        immutables.Map(chunks),
        immutables.Map(garbage),
    )
