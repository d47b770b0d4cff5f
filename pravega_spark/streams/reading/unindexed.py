"""Parsing the events of a slice without an index: each event's position follows from the one before it.

The index is built on the way, and saved if the slice is the whole segment (see `rebuilt_index`).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pravega_spark.streams.model.events import HEADER_SIZE, InvalidEvent, decode_whole
from pravega_spark.streams.model.index import WIDEST_GAP
from pravega_spark.streams.model.index_builder import IndexBuilder
from pravega_spark.streams.reading.object_ranges import between
from pravega_spark.streams.reading.rebuilt_index import IndexCache
from pravega_spark.streams.reading.slices import Events, ScanSlice


class UnindexedEvents:
    """Parses the events of a slice from its bytes, piece by piece, and builds their index."""

    def __init__(self, part: ScanSlice, wanted: int | None) -> None:
        """wanted: payloads of large events of more bytes are left out; None: none are."""
        self._part = part
        self._wanted = wanted
        self._at = part.start  # where the first event begins that was not returned yet
        self._partial: list[bytes] = []  # the bytes of it so far
        self._have = 0
        self._large = 0  # its size, if it is large
        self._index = IndexBuilder(part.start)

    def events(self, data: memoryview, end: int) -> Iterator[Events]:
        """The events completed by the next bytes of the slice, which reach to `end`. Raises InvalidEvent."""
        if self._large:
            taken = min(self._large - self._have, len(data))
            self._keep(data[:taken])
            data = data[taken:]
            if self._have < self._large:
                return
            yield self._large_one()
        buffer = memoryview(b"".join([*self._partial, data])) if self._partial else data
        starts, lengths, behind = decode_whole(buffer, self._at)
        self._partial, self._have = [], 0
        base, self._at = self._at, self._at + behind
        self._index.add(starts + lengths + (HEADER_SIZE + base))
        rest = buffer[behind:]
        if len(rest) >= HEADER_SIZE:
            size = HEADER_SIZE + int.from_bytes(rest[4:HEADER_SIZE], "big")
            if self._at + size > self._part.end:
                raise InvalidEvent(f"it would end behind {self._part.end}", self._at)
            self._large = size if size > WIDEST_GAP else 0
        self._keep(rest)
        if end == self._part.end and len(rest):
            raise InvalidEvent(f"the last {len(rest)} bytes are no whole event", self._at)
        if len(starts):
            yield Events(self._part.segment_id, base, buffer[:behind], starts, lengths)
        if end == self._part.end and self._part.index_key:
            IndexCache().save(self._part.index_key, self._index.records())

    def rest(self) -> list[ScanSlice]:
        """The part of the slice that was not returned yet."""
        start, end = self._at, self._part.end
        if start == end:
            return []
        pieces = between(self._part.pieces, start - self._part.start, end - self._part.start)
        return [self._part._replace(start=start, pieces=tuple(pieces), index_key="")]

    def _keep(self, data: memoryview) -> None:
        """Keep a copy, as the memory is reused."""
        leaves_out = self._large and self._wanted is not None and self._large - HEADER_SIZE > self._wanted
        if not leaves_out and len(data):
            self._partial.append(bytes(data))
        self._have += len(data)

    def _large_one(self) -> Events:
        size, base, whole = self._large, self._at, self._partial
        self._at, self._partial, self._have, self._large = base + size, [], 0, 0
        self._index.add(np.array([base + size], np.int64))
        data = memoryview(b"".join(whole))  # empty if it is left out
        starts, lengths = np.zeros(1, np.int64), np.array([size - HEADER_SIZE])
        return Events(self._part.segment_id, base, data, starts, lengths, True)
