"""The saved progress of an unfinished import of a stream, from which an interrupted import continues.

    _system/imports/<scope>/<stream>/begun                             which import it is
    _system/imports/<scope>/<stream>/<import>/<segment>-<offset>       how far one of its segments is

The names of an import's chunks follow from its number, so a repeated part is the same object, and never another
import's (S2). Damaged progress, or that of another import, is not used: the import starts over.
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
    """An unfinished import of a stream (by "scope/stream"). Plain values.

    source: identifies its source, and copying or linking. created: when it began, by the storage's clock (ms).
    """

    stream: str
    id: bytes
    source: bytes
    created: int

    @property
    def folder(self) -> str:
        """The folder of its progress."""
        return f"{_folder(self.stream)}{self.id.hex()}/"

    def chunk_name(self, segment: str, offset: int) -> str:
        """The name of the chunk with what begins at an offset of a segment."""
        return chunk_name(segment, 0, offset, uuid.uuid5(uuid.UUID(bytes=self.id), f"{segment}/{offset}"))


class Reached(NamedTuple):
    """The progress of an import in a segment: extents and index records up to `walk.place`, in order."""

    extents: tuple[Extent, ...]
    records: np.ndarray
    walk: ScannerState


def begin(store: Store, stream: str, source: bytes) -> Begun:
    """The unfinished import of a stream from a source, or a new one. Raises StorageError."""
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
            continue  # another process has begun it: the same import if it has the same source
        if found is not None and found.source == source:
            return found
        new = _new(store, stream, source)
        store.put(place, _encoded(new))
        return new


def _folder(stream: str) -> str:
    """The folder of all imports of a stream."""
    return f"{IMPORTS}{object_name(stream)}/"


def unkept(store: Store, stream: str) -> Begun:
    """An import without saved progress: it is finished in one step, or begun again. Raises StorageError."""
    return _new(store, stream, b"")


def _new(store: Store, stream: str, source: bytes) -> Begun:
    return Begun(stream, uuid.uuid4().bytes, source, creation_time(store.clock()))


def _encoded(begun: Begun) -> bytes:
    """The object's content. It begins with the token of `put_if_absent`."""

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
    """Delete the progress of imports of a stream. Raises StorageError."""
    while page := [info.path for info in store.list(_folder(stream), limit=1000)]:
        store.delete(page)


def keep(store: Store, begun: Begun, segment: int, reached: Reached, since: int) -> None:
    """Save the progress of a segment, with what was added since the offset `since`. Raises StorageError."""
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
    """The saved progress of a segment from `start` on, in order, as far as it is valid. Raises StorageError."""
    while True:
        try:
            data = store.read(f"{begun.folder}{segment}-{start:020d}")
            found = decode_reached(data, start)
        except (ObjectNotFound, InvalidData):
            return
        yield found
        start = found.walk.place


def decode_reached(data: bytes, start: int) -> Reached:
    """The progress of a segment, by the object saved at `start`. Raises InvalidData."""
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
    """The bytes, followed by their checksum."""
    return data + crc32c(data).to_bytes(WIDTH, "big")


def _opened(data: bytes) -> bytes:
    if len(data) < TOKEN or crc32c(data[:-WIDTH]) != int.from_bytes(data[-WIDTH:], "big"):
        raise InvalidData("its checksum is another")
    return data[:-WIDTH]


_BEGUN = reader(tuple[bytes, Natural])
_WALK = reader(tuple[Natural, Natural, Natural, bytes, Natural])
_BYTES = reader(bytes)
