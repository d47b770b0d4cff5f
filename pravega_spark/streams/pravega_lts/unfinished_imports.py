"""What a root keeps of the import of a stream while it is not finished, so that it goes on where it was killed.

    _system/imports/<scope>/<stream>/begun                             which import it is
    _system/imports/<scope>/<stream>/<import>/<segment>-<offset>       how far one of its segments is

The names of an import's chunks follow from its number, so a part that is made again is the same object again, and no
other import's (S2). Of what cannot be understood, or was kept of another import, nothing is used: it is begun anew.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgpack
import numpy as np

from chunkstore import ObjectNotFound, Outcome, Store
from chunkstore.checksums import WIDTH, crc32c
from chunkstore.chunk_names import chunk_name, object_name
from chunkstore.decoding import InvalidData, Natural, check_format, decoding, reader, unpack
from chunkstore.paths import IMPORTS
from chunkstore.port import TOKEN
from engine.state.attach_fence import creation_time
from engine.state.operations import decode_extents, encode_extents
from engine.state.segments import Extent
from pravega_spark.streams.model.events import HEADER_SIZE
from pravega_spark.streams.model.index import decode_records, encode_records
from pravega_spark.streams.model.readback import readable
from pravega_spark.streams.pravega_lts.event_scanner import ScannerState

FORMAT = 1


class Begun(NamedTuple):
    """An import of a stream (by "scope/stream") that is not finished. Plain values.

    source: what tells its source, and way, from others. created: when it began, by the storage's clock (ms).
    """

    stream: str
    id: bytes
    source: bytes
    created: int

    @property
    def folder(self) -> str:
        """Where its progress lies."""
        return f"{_folder(self.stream)}{self.id.hex()}/"

    def chunk_name(self, segment: str, offset: int) -> str:
        """The name of the chunk with what begins at an offset of a segment."""
        return chunk_name(segment, 0, offset, uuid.uuid5(uuid.UUID(bytes=self.id), f"{segment}/{offset}"))


class Reached(NamedTuple):
    """How far an import is with a segment: extents and index records up to `walk.place`, as they follow each other."""

    extents: tuple[Extent, ...]
    records: np.ndarray
    walk: ScannerState


def begin(store: Store, stream: str, source: bytes) -> Begun:
    """The import of a stream from a source: the one that is not finished, or a new one. Raises StorageError."""
    place = f"{_folder(stream)}begun"
    while True:
        try:
            found = decode_begun(store.read(place), stream)
        except InvalidData:
            found = None
        except ObjectNotFound:
            new = _new(store, stream, source)
            if store.put_if_absent(place, _encoded(new)) is Outcome.MINE:
                return new
            continue  # somebody else has begun it: if from the same source, it is the same import
        if found is not None and found.source == source:
            return found
        new = _new(store, stream, source)
        store.put(place, _encoded(new))
        return new


def _folder(stream: str) -> str:
    """Where all is that is kept of imports of a stream."""
    return f"{IMPORTS}{object_name(stream)}/"


def unkept(store: Store, stream: str) -> Begun:
    """An import of which nothing is kept: it is done at once, or anew. Raises StorageError."""
    return _new(store, stream, b"")


def _new(store: Store, stream: str, source: bytes) -> Begun:
    return Begun(stream, uuid.uuid4().bytes, source, creation_time(store.clock()))


def _encoded(begun: Begun) -> bytes:
    """Begins with a token, as `put_if_absent` wants it."""

    def written(begun: Begun) -> bytes:
        fields = bytes(msgpack.packb([FORMAT, begun.source, begun.created]))
        return sealed(begun.id + begun.id[: TOKEN - len(begun.id)] + fields)

    return readable(
        f"the import of stream {begun.stream}", begun, written, lambda data: decode_begun(data, begun.stream)
    )


def decode_begun(data: bytes, stream: str) -> Begun:
    """The import of a stream that was begun. Raises InvalidData."""
    content = _opened(data)
    with decoding():
        known, *fields = unpack(content[TOKEN:])
        check_format(known, FORMAT)
        return Begun(stream, content[:16], *_BEGUN(fields))


def finish(store: Store, stream: str) -> None:
    """Forget what is kept of imports of a stream. Raises StorageError."""
    while page := [info.path for info in store.list(_folder(stream), limit=1000)]:
        store.delete(page)


def keep(store: Store, begun: Begun, segment: int, reached: Reached, since: int) -> None:
    """Keep how far a segment is, with what came since the offset `since`. Raises StorageError."""
    fields = _fields_of(reached, since)
    what = f"how far the import of stream {begun.stream} is"
    data = readable(
        what,
        fields,
        lambda plain: sealed(bytes(msgpack.packb(plain))),
        lambda data: _fields_of(decode_reached(data, since), since),
    )
    store.put(f"{begun.folder}{segment}-{since:020d}", data)


def _fields_of(reached: Reached, since: int) -> list[Any]:
    return [FORMAT, since, encode_extents(reached.extents), encode_records(reached.records), reached.walk]


def reached(store: Store, begun: Begun, segment: int, start: int) -> Iterator[Reached]:
    """What was kept of a segment from `start` on, in order, as far as it can be used. Raises StorageError."""
    while True:
        try:
            data = store.read(f"{begun.folder}{segment}-{start:020d}")
            found = decode_reached(data, start)
        except (ObjectNotFound, InvalidData):
            return
        yield found
        start = found.walk.place


def decode_reached(data: bytes, start: int) -> Reached:
    """How far a segment is, by what was kept when it had been at `start`. Raises InvalidData."""
    with decoding():
        known, since, extents, records, walk = unpack(_opened(data))
        check_format(known, FORMAT)
        found = Reached(decode_extents(extents), decode_records(_BYTES(records)), ScannerState(*_WALK(walk)))
        if since != start or sum(extent.length for extent in found.extents) != found.walk.place - start:
            raise InvalidData(f"it is of offset {since}, or its extents do not reach {found.walk.place}")
        if len(found.walk.rest) >= HEADER_SIZE:
            raise InvalidData(f"{len(found.walk.rest)} bytes of a header are left, which has {HEADER_SIZE}")
        return found


def sealed(data: bytes) -> bytes:
    """The bytes, with their checksum behind them."""
    return data + crc32c(data).to_bytes(WIDTH, "big")


def _opened(data: bytes) -> bytes:
    if len(data) < TOKEN or crc32c(data[:-WIDTH]) != int.from_bytes(data[-WIDTH:], "big"):
        raise InvalidData("its checksum is another")
    return data[:-WIDTH]


_BEGUN = reader(tuple[bytes, Natural])
_WALK = reader(tuple[Natural, Natural, Natural, bytes, Natural])
_BYTES = reader(bytes)
