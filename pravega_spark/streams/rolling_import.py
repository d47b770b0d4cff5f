"""A stream made of a segment that old code left in its own layout (`engine.admin.rolling_segments`).

The chunks are attached to the stream's segment where they are, once all events in them were walked (S3).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from chunkstore import Store
from chunkstore.checksums import continued
from engine.admin.progress import Progress, no_progress
from engine.admin.rolling_segments import RollingSegment, check_unused, creation_time_of, find_rolling_segment
from engine.root import Root
from engine.state.segments import Extent
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.event_walk import BrokenEvent, EventWalk, WalkState
from pravega_spark.streams.policies import ScalingPolicy
from pravega_spark.streams.stream import SegmentAppend
from pravega_spark.streams.stream_import import ImportRefused

STEP = 8 << 20
"""Bytes that are read at a time."""


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
    return Imported(walk.events, found.length, len(found.chunks))


class _Walk:
    """Walks all events of a segment in the old layout, and makes the checksums of its chunks."""

    def __init__(self, segment: RollingSegment) -> None:
        self._segment = segment
        self._events = EventWalk(WalkState(0, 0))
        self._records = np.empty((0, 3), np.int64)
        self.extents: list[Extent] = []

    @property
    def events(self) -> int:
        """How many there are."""
        return self._events.events

    def over(self, store: Store) -> Iterator[int]:
        """Read everything; how many bytes were. Raises ImportRefused for what are no events."""
        place = 0
        for name, length in self._segment.chunks:
            checksums = b""
            for start in range(0, length, STEP):
                end = min(start + STEP, length)
                data = store.read(name, start, end)
                if len(data) != end - start:
                    raise ImportRefused(f"chunk {name!r} ends before its byte {end}")
                checksums = continued(checksums, start, data)
                with self._whole():
                    self._events.take(data)
                place += len(data)
                yield place
            self.extents.append(Extent(name, 0, length, checksums))
        self._records = self._events.records(int(time.time() * 1000))
        with self._whole():
            self._events.finish()

    @contextmanager
    def _whole(self) -> Iterator[None]:
        try:
            yield
        except BrokenEvent as error:
            raise ImportRefused(f"segment {self._segment.name!r}, {error}; nothing was imported") from error

    def append(self, segment_id: int, made: int) -> SegmentAppend:
        """What a write appends."""
        return SegmentAppend(segment_id, tuple(self.extents), self._records, self.events, made)
