"""Checkpoint objects: the whole state of a container after one frame, where an opening starts (W6).

Its name says that frames before it may be deleted (W7). The object begins with a token as every object made by
`put_if_absent`, carries a CRC32C over all of it and names its container and frame, so that a damaged or misplaced
object is recognised (W8). A state that does not fit into one object lies in parts, which the object lists.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import immutables
import msgpack

from chunkstore import ObjectInfo, ObjectNotFound, Store
from chunkstore.checksums import crc32c
from chunkstore.decoding import Natural, NewerFormat, check_format, reader, unpack
from chunkstore.numbered import list_numbered
from chunkstore.optional_fields import LaterRevisions
from engine.errors import DataCorruption, understanding
from engine.logs import checkpoint_parts
from engine.logs.checkpoint_parts import Part, PartMissing
from engine.logs.frames import START, Position, generation_bytes
from engine.logs.log import address_of, checkpoint_path, checkpoints_folder
from engine.settings import CHECKPOINT_PART
from engine.state.operations import AttributeId, decode_extents, encode_extents
from engine.state.segment_map import SegmentMap
from engine.state.segments import Extents, Segment
from engine.state.state import EMPTY, Cycle, GarbageEntry, State
from engine.state.tables import Entry, Table, is_created
from engine.tables.content import TableLayout

MAGIC = b"PSCP"
VERSION = 1
_HEADER = struct.Struct(">24s4sBI16sqI")
HEADER = _HEADER.size
"""Bytes before the state in the object."""


class Opening(NamedTuple):
    """Where to read a log from: the state, and the last live frame in it."""

    head: Position
    state: State


def encode(container: int, head: Position, state: State) -> bytes:
    """The checkpoint object of `state`, which is the state after the frame `head`. Raises DataCorruption for a state
    that could not be read back (W14)."""
    return _object(container, head, _validated(container, head, state), ())


def _validated(container: int, head: Position, state: State) -> list[Any]:
    """A state as it is packed, once it was read back."""
    path = checkpoint_path(container, head.address)
    with understanding(f"{path} is not written, as it could not be read back", _UNMADE):
        _POSITION(head)
        plain = _plain(state)
        _state(plain, path)
    return plain


def _object(container: int, head: Position, plain: list[Any] | None, parts: Sequence[Part]) -> bytes:
    body = msgpack.packb([list(head), plain, parts])
    token = uuid.uuid4().bytes + bytes(8)
    prefix = _HEADER.pack(token, MAGIC, VERSION, container, generation_bytes(container), head.address, 0)[:-4]
    return bytes(prefix + crc32c(body, crc32c(prefix)).to_bytes(4, "big") + body)


def decode(data: bytes, path: str, container: int, address: int | None) -> Opening:
    """The inverse of `encode`, of the frame at `address` if that is known. Raises DataCorruption when a check fails."""
    head, plain, _ = _parsed(data, path, container, address)
    if plain is None:
        raise _damaged(path, "it is in parts, where it cannot be")
    return _opening(head, plain, path)


def _opening(head: Position, plain: list[Any], path: str) -> Opening:
    with understanding(path, _REMEDY):
        return Opening(head, _state(plain, path))


def _parsed(
    data: bytes, path: str, container: int, address: int | None
) -> tuple[Position, list[Any] | None, list[Part]]:
    """The head, and the state as it was packed, or its parts."""
    if len(data) < _HEADER.size:
        raise _damaged(path, f"it has only {len(data)} bytes")
    _, magic, version, number, generation, own, crc = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise _damaged(path, "it is not a checkpoint")
    if crc != crc32c(data[_HEADER.size :], crc32c(data[: _HEADER.size - 4])):
        raise _damaged(path, "its checksum does not match")
    if number != container or address not in (own, None):
        raise _damaged(path, f"it holds checkpoint {own} of container {number}")
    if generation != generation_bytes(container):
        raise _damaged(path, f"it holds a checkpoint of another root or earlier log: {generation.hex()}")
    with understanding(path, _REMEDY):
        check_format(version, VERSION)
        head, plain, parts = unpack(data[_HEADER.size :])
        return _POSITION(head), plain, _PARTS(parts)


_REMEDY = (
    "Restore the object from a copy; if an older checkpoint and all frames after it exist still, the container also "
    "opens once this object is removed"
)


_UNMADE = "Nothing was written; the log keeps all that it holds"


def _damaged(path: str, reason: str) -> DataCorruption:
    return DataCorruption(f"{path}: {reason}. {_REMEDY}")


def read_newest(store: Store, container: int) -> tuple[Opening, Sequence[ObjectInfo]]:
    """The newest checkpoint, or the empty state of a new log; and the listing that showed it."""
    while True:
        listed = list_numbered(store, checkpoints_folder(container))
        if not listed:
            return Opening(START, EMPTY), listed
        path = listed[-1].path
        try:
            found = read(store, path, container, address_of(path))
        except ObjectNotFound:
            continue  # a newer one has replaced it meanwhile
        store.sync(checkpoints_folder(container))  # what we append will depend on it (G3)
        return found, listed


def read(store: Store, path: str, container: int, address: int) -> Opening:
    """The checkpoint of the frame at `address`. Raises ObjectNotFound, DataCorruption."""
    head, plain, parts = _parsed(store.read(path), path, container, address)
    if plain is None:
        try:
            content = checkpoint_parts.read(store, parts)
        except PartMissing as error:
            store.stat(path)  # it is deleted before its parts are
            raise _damaged(path, f"its part {error} is missing") from None
        with understanding(path, _REMEDY):
            plain = unpack(content)
    return _opening(head, plain, path)


def write(store: Store, container: int, head: Position, state: State, largest: int = CHECKPOINT_PART) -> int:
    """Make the checkpoint object for the frame `head`, of more than `largest` bytes in parts. Returns its size.

    Another process may have made the same one. Raises StorageError, and DataCorruption as `encode`.
    """
    plain = _validated(container, head, state)
    content = msgpack.packb(plain)
    if len(content) <= largest:
        data = _object(container, head, plain, ())
    else:
        data = _object(container, head, None, checkpoint_parts.write(store, container, head.address, content, largest))
    store.put_if_absent(checkpoint_path(container, head.address), data)
    return max(len(content), len(data))


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
        state.min_attach_time,
        state.extents,
    ]


def _plain_segment(segment: Segment) -> list[Any]:
    """The fields of a segment as msgpack values, which were read back."""
    plain = [*segment[:7], dict(segment.attributes), _plain_extents(segment.extents), *segment[9:_KNOWN]]
    if segment.later:
        plain.append([list(revision) for revision in segment.later])
    _segment_of(plain)
    return plain


def _plain_table(table: Table) -> list[Any]:
    recent = {key: list(entry) for key, entry in table.recent.items()}
    return [recent, *table[1:4], list(table.layout), _plain_extents(table.entries), _plain_extents(table.pages)]


def _plain_extents(extents: Extents) -> list[Any]:
    pairs = list(extents)
    return [pairs[0][0], encode_extents([extent for _, extent in pairs])] if pairs else []


# How a state is read: by the annotations of its parts.

_PARTS = reader(list[Part])
_POSITION = reader(Position)
_INT, _FLAG, _OFFSET = reader(int), reader(bool), reader(Natural)
_NAMES, _COUNTS, _PARENTS = reader(tuple[str, ...]), reader(dict[str, Natural]), reader(dict[str, str])
_PACKED, _GARBAGE, _RECENT = reader(dict[str, list[Any]]), reader(dict[str, GarbageEntry]), reader(dict[str, Entry])
_TABLES, _CYCLE, _LAYOUT = reader(dict[str, list[Any]]), reader(Cycle), reader(TableLayout)
_BEGIN = [reader(kind) for kind in (str, int, Natural, Natural, bool, int, Natural)]
_ATTRIBUTES = reader(dict[AttributeId, int])
_END = [reader(kind) for kind in (Natural, str, Natural, bool, int, int, bool, str)]
_LATER = reader(LaterRevisions)
_KNOWN = 9 + len(_END)
"""The fields of a segment, without the last one, which most do not have."""


def _state(plain: list[Any], path: str) -> State:
    """The state in the object `path`. Its segments are decoded and validated at their first use."""
    *numbers, segments, unsaved, tables, chunks, garbage, dropped, cycle, transients, min_attach_time, extents = plain
    sequence, checkpoint, flushed, logged = map(_INT, numbers)
    known = {name: _table(fields) for name, fields in _TABLES(tables).items()}
    return State(
        sequence,
        checkpoint,
        flushed,
        logged,
        immutables.Map(dict.fromkeys(_NAMES(unsaved), True)),
        SegmentMap(_PACKED(segments), partial(_segment, path)),
        immutables.Map(known),
        immutables.Map(_COUNTS(chunks)),
        immutables.Map(_GARBAGE(garbage)),
        immutables.Map(dict.fromkeys(_NAMES(dropped), True)),
        _CYCLE(cycle),
        immutables.Map(_PARENTS(transients)),
        _INT(min_attach_time),
        _OFFSET(extents),
        sum(table.unflushed() for name, table in known.items() if is_created(name, table)),
    )


def _segment(path: str, fields: list[Any]) -> Segment:
    with understanding(path, _REMEDY):
        return _segment_of(fields)


def _segment_of(fields: list[Any]) -> Segment:
    begin = [read(value) for read, value in zip(_BEGIN, fields[:7], strict=True)]
    end = [read(value) for read, value in zip(_END, fields[9:_KNOWN], strict=True)]
    if len(fields) > _KNOWN + 1:
        raise NewerFormat(f"a segment has {len(fields)} fields; this version knows {_KNOWN + 1}: upgrade this program")
    end += [_LATER(later) for later in fields[_KNOWN:]]
    values = [*begin, immutables.Map(_ATTRIBUTES(fields[7])), _extents(fields[8]), *end]
    return Segment(*values)


def _table(fields: list[Any]) -> Table:
    recent, size, flushed, dropped, layout, entries, pages = fields
    known = immutables.Map(_RECENT(recent))
    where = _extents(entries), _extents(pages)
    return Table(known, _INT(size), _INT(flushed), _FLAG(dropped), _LAYOUT(layout), *where)


def _extents(plain: list[Any]) -> Extents:
    if not plain:
        return Extents()
    offset, extents = plain
    return Extents().appended(_OFFSET(offset), decode_extents(extents))
