"""Batches: the events of one append of an event writer, framed and routed, with what tells where else they belong.

Keeps that after a scale the events of a key follow those of it that went to the segments of before: the keys are kept
until the events are durable.
"""

from __future__ import annotations

import random
import time
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from pravega_spark.client.checked_events import check_key
from pravega_spark.streams.framing import Framed
from pravega_spark.streams.key_columns import hash_keys
from pravega_spark.streams.routing import hash_key
from pravega_spark.streams.stream import SegmentAppend, parts_of
from pravega_spark.streams.stream_record import Routing

_place_of = lru_cache(4096)(hash_key)  # most writers use the same keys again and again


class Routes(NamedTuple):
    """By what events are routed, and the upper bounds of its segments' key ranges."""

    routing: Routing
    bounds: list[float]


class EventKeys(NamedTuple):
    """The keys of some events that have one segment, wherever they belong: hashed when there are several."""

    keys: pa.Array | pa.ChunkedArray | None
    events: int


Place: TypeAlias = "str | float | np.ndarray | EventKeys | None"
"""Where events belong: one by its key, or by a place that was drawn, or (None) anywhere; or many of a column."""


class Batch:
    """Framed events of one append: each segment's bytes and the events' lengths with their headers.

    places: where the events belong, in the order in which they were written.
    """

    __slots__ = ("events", "places", "routes", "shares", "size")

    def __init__(self, routes: Routes) -> None:
        self.routes = routes
        self.shares: dict[int, tuple[bytearray, array[int]]] = {}
        self.places: list[Place] = []
        self.size = 0
        self.events = 0

    def share(self, index: int) -> tuple[bytearray, array[int]]:
        """What is there for a segment."""
        found = self.shares.get(index)
        if found is None:
            found = self.shares[index] = bytearray(), array("q")
        return found

    def add_column(self, framed: Framed, places: Place) -> None:
        """Add the events of a column, and where they belong."""
        for index, data, sizes in framed.contents():
            content, lengths = self.share(index)
            content += data
            lengths.frombytes(sizes.astype(np.int64, copy=False).tobytes())
        self.places.append(places)
        self.events += len(framed.lengths)
        self.size += framed.data.size

    def pieces(self) -> Iterator[tuple[int, list[memoryview], np.ndarray]]:
        """For each segment, by its index, the framed events and their lengths."""
        for index, (content, lengths) in sorted(self.shares.items()):
            yield index, [memoryview(content)], np.frombuffer(lengths, np.int64)


class Columns:
    """Framed events of one append that came as columns."""

    def __init__(self, routes: Routes) -> None:
        self.routes = routes
        self.places: list[Place] = []
        self.size = 0
        self.events = 0
        self._framed: list[Framed] = []

    def add(self, framed: Framed, places: Place) -> None:
        """Add a column, and where its events belong."""
        self._framed.append(framed)
        self.places.append(places)
        self.size += framed.data.size
        self.events += len(framed.lengths)

    def pieces(self) -> Iterator[tuple[int, list[memoryview], np.ndarray]]:
        """For each segment, by its index, the framed events, which lie in so many pieces, and their lengths."""
        for index in sorted({index for framed in self._framed for index in framed.segments()}):
            held = [framed for framed in self._framed if index in framed.segments()]
            lengths = [framed.segment_lengths(index) for framed in held]
            yield index, [memoryview(framed.segment_data(index)) for framed in held], np.concatenate(lengths)


def _contents(batch: Batch | Columns) -> Iterator[tuple[int, memoryview, np.ndarray]]:
    """For each segment, by its index, the framed events in one piece and their lengths."""
    for index, pieces, lengths in batch.pieces():
        yield index, pieces[0] if len(pieces) == 1 else memoryview(b"".join(pieces)), lengths


def parts(batch: Batch | Columns) -> list[SegmentAppend]:
    """A batch as a stream takes it."""
    return parts_of(_contents(batch), batch.routes.routing.segments, now_ms())


def now_ms() -> int:
    """The time that events are stamped with: ms since the epoch."""
    return int(time.time() * 1000)


def rerouted(batch: Batch | Columns, routes: Routes) -> Batch:
    """The same events as another epoch routes them, those of each segment in the order in which they were written.

    One by one, because it is seldom done.
    """
    fractions = _fractions(batch.places)
    before = np.searchsorted(batch.routes.bounds, fractions, side="left")
    after = np.searchsorted(routes.bounds, fractions, side="left")
    starts, ends, contents = np.empty(len(before), np.int64), np.empty(len(before), np.int64), {}
    for index, content, lengths in _contents(batch):
        contents[index] = content
        ends[before == index] = np.cumsum(lengths)
        starts[before == index] = np.cumsum(lengths) - lengths
    found = Batch(routes)
    found.places, found.size, found.events = [fractions], batch.size, batch.events
    for old, new, start, end in zip(before.tolist(), after.tolist(), starts.tolist(), ends.tolist(), strict=True):
        framed, sizes = found.share(new)
        framed += contents[old][start:end]
        sizes.append(end - start)
    return found


def routes_of(routing: Routing) -> Routes:
    return Routes(routing, [segment.high for segment in routing.segments])


def routed(key: str | None, bounds: list[float]) -> tuple[int, str | float | None]:
    """The index of the segment that an event goes to, and by what its place can be told later."""
    if key is None:
        place = None if len(bounds) == 1 else random.random()
        return (0 if place is None else bisect_left(bounds, place)), place
    check_key(key)
    if len(bounds) == 1:
        return 0, key
    return bisect_left(bounds, _place_of(key)), key


def _fractions(places: Sequence[Place]) -> np.ndarray:
    """The place of each event on the key space."""
    found: list[np.ndarray] = []
    single: list[float] = []
    for place in places:
        if isinstance(place, str):
            single.append(_place_of(place))
        elif isinstance(place, float):
            single.append(place)
        elif place is None:
            single.append(random.random())
        else:
            if isinstance(place, EventKeys):
                place = drawn(np.full(place.events, np.nan) if place.keys is None else hash_keys(place.keys))
            found += [np.array(single, np.float64), place]
            single = []
    return np.concatenate([*found, np.array(single, np.float64)])


def drawn(fractions: np.ndarray) -> np.ndarray:
    """The places, with drawn ones for the events without a key, where it is NaN."""
    keyless = np.isnan(fractions)
    return np.where(keyless, np.random.default_rng().random(len(fractions)), fractions) if keyless.any() else fractions
