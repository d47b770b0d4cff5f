"""A stream made of a segment that old code left in its own layout (`engine.admin.rolling_segments`).

The chunks are attached to the stream's segment where they are, once all events in them were walked (S3).
"""

from __future__ import annotations

import struct
import time
from array import array
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from chunkstore import Store
from chunkstore.checksums import continued
from engine.admin.progress import Progress, no_progress
from engine.admin.rolling_segments import RollingSegment, check_unused, creation_time_of, find_rolling_segment
from engine.root import Root
from engine.state.segments import Extent
from pravega_spark.errors import StreamError
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.index import sparse_records
from pravega_spark.streams.policies import ScalingPolicy
from pravega_spark.streams.stream import SegmentAppend

STEP = 8 << 20
"""Bytes that are read at a time."""

_EVENT = struct.Struct(">ii")


class ImportRefused(StreamError):
    """A segment cannot be imported. Nothing was changed."""


class Imported(NamedTuple):
    """What was imported: numbers of events, bytes and chunks."""

    events: int
    bytes: int
    chunks: int


def import_segment(root: Root, segment: str, scope: str, name: str, progress: Progress = no_progress) -> Imported:
    """Make the events of a segment in the old layout a new stream of one segment, without moving a byte.

    The chunks belong to the stream then, and its header is deleted: old code must not use them any more. Raises
    SegmentNotFound, InvalidHeader, HeaderRefused, ImportRefused, ScopeNotFound, StorageError.
    """
    store = root.stores.chunks
    found = find_rolling_segment(store, segment)
    chunks = [chunk for chunk, _ in found.chunks]
    check_unused(root, chunks)
    walk = _Walk(found)
    for done in walk.over(store):
        progress(segment, done, found.length)
    catalog = Catalog(root)
    if not catalog.create_stream(scope, name, ScalingPolicy("fixed", 1)):
        raise ImportRefused(f"stream {scope}/{name} exists already; give the name of a new stream")
    stream = catalog.stream(scope, name)
    if found.length:
        created = creation_time_of(store, chunks)
        stream.write([walk.append(stream.snapshot().record.current.segments[0].id, created)])
    if found.header is not None:
        store.delete([found.header])
    return Imported(len(walk.lengths), found.length, len(found.chunks))


class _Walk:
    """Walks all events of a segment in the old layout, and makes the checksums of its chunks."""

    def __init__(self, segment: RollingSegment) -> None:
        self._segment = segment
        self._rest = b""  # the beginning of an event's header that goes on in the next bytes
        self._skip = 0  # bytes that are left of the event before
        self._place = 0
        self.lengths = array("q")
        self.extents: list[Extent] = []

    def over(self, store: Store) -> Iterator[int]:
        """Read everything; how many bytes were. Raises ImportRefused for what are no events."""
        for name, length in self._segment.chunks:
            checksums = b""
            for start in range(0, length, STEP):
                end = min(start + STEP, length)
                data = store.read(name, start, end)
                if len(data) != end - start:
                    raise ImportRefused(f"chunk {name!r} ends before its byte {end}")
                checksums = continued(checksums, start, data)
                self._take(data)
                yield self._place
            self.extents.append(Extent(name, 0, length, checksums))
        if self._rest or self._skip:
            raise self._broken("an event runs over the end of the segment")

    def _take(self, data: bytes) -> None:
        self._place += len(data)
        data, at = self._rest + data, self._skip
        self._rest, self._skip = b"", 0
        while at < len(data):
            if len(data) - at < _EVENT.size:
                self._rest = data[at:]
                return
            kind, length = _EVENT.unpack_from(data, at)
            if kind or length < 0:
                self._place -= len(data) - at
                raise self._broken(f"an event has type {kind} and length {length}")
            self.lengths.append(_EVENT.size + length)
            at += _EVENT.size + length
        self._skip = at - len(data)

    def _broken(self, what: str) -> ImportRefused:
        return ImportRefused(f"segment {self._segment.name!r}, offset {self._place}: {what}; nothing was imported")

    def append(self, segment_id: int, made: int) -> SegmentAppend:
        """What a write appends."""
        records = sparse_records(np.frombuffer(self.lengths, np.int64), int(time.time() * 1000))
        return SegmentAppend(segment_id, tuple(self.extents), records, len(self.lengths), made)
