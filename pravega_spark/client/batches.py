"""Batches: the events of one append of an event writer, framed and routed, with what tells where else they belong.

Keeps that after a scale the events of a key follow those of it that went to the segments of before: the keys are kept
until the events are durable. And, of W16, that what a call has written is one object, made before anybody sees it.
"""

from __future__ import annotations

import random
import time
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from pravega_spark.client.checked_events import check_key
from pravega_spark.streams.model.framing import Framed
from pravega_spark.streams.model.key_columns import hash_keys
from pravega_spark.streams.model.routing import hash_key
from pravega_spark.streams.model.stream_record import Routing
from pravega_spark.streams.stream import parts_of
from pravega_spark.streams.writing.event_order import Mix
from pravega_spark.streams.writing.writes import SegmentAppend

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


class Written(NamedTuple):
    """What one call has written, or a part of it that goes into one append.

    events, size: how many events and bytes the writer was given up to its end. content: an event with the index of its
    segment, or a column. large: it is a column that is not copied.
    """

    events: int
    size: int
    routes: Routes
    content: tuple[int, bytes] | Framed
    place: Place
    large: bool


class Batch:
    """What goes into one append: of what was written, some in a row that have the same routes, and are large or not.

    before: what was written before it, in events and bytes. end: the same behind it. It does not change.
    """

    def __init__(self, written: Sequence[Written], before: tuple[int, int]) -> None:
        self.routes = written[0].routes
        self.written = written
        self.before = before
        self.end = written[-1].events, written[-1].size
        self.events, self.size = self.end[0] - before[0], self.end[1] - before[1]

    def places(self) -> Iterator[Place]:
        """Where the events belong, in the order in which they were written."""
        return (each.place for each in self.written)

    def used(self) -> list[int]:
        """The indexes of the segments that have events, in order."""
        found: set[int] = set()
        for each in self.written:
            found |= {each.content[0]} if isinstance(each.content, tuple) else set(each.content.segments())
        return sorted(found)

    def pieces(self) -> Iterator[tuple[int, list[memoryview], np.ndarray]]:
        """For each segment, by its index, the framed events, which lie in so many pieces, and their lengths."""
        copied: dict[int, bytearray] = {}
        pieces: dict[int, list[memoryview]] = {}
        lengths: dict[int, array[int]] = {}
        for each in self.written:
            content = each.content
            if isinstance(content, tuple):
                index, framed = content
                if index not in copied:
                    copied[index] = bytearray()
                    lengths[index] = array("q")
                copied[index] += framed
                lengths[index].append(len(framed))
                continue
            for index, data, sizes in content.contents():
                if each.large:
                    pieces.setdefault(index, []).append(data)
                else:
                    copied.setdefault(index, bytearray()).extend(data)
                counted = sizes.astype(np.int64, copy=False).tobytes()
                lengths.setdefault(index, array("q")).frombytes(counted)
        pieces |= {index: [memoryview(content)] for index, content in copied.items()}
        for index, found in sorted(pieces.items()):
            yield index, found, np.frombuffer(lengths[index], np.int64)


def _contents(batch: Batch) -> Iterator[tuple[int, memoryview, np.ndarray]]:
    """For each segment, by its index, the framed events in one piece and their lengths."""
    for index, pieces, lengths in batch.pieces():
        yield index, pieces[0] if len(pieces) == 1 else memoryview(b"".join(pieces)), lengths


def parts(batch: Batch) -> list[SegmentAppend]:
    """A batch as a stream takes it."""
    return parts_of(_contents(batch), batch.routes.routing.segments, now_ms())


def mix_of(batch: Batch) -> Mix | None:
    """How the events of a batch were mixed; None if the stream has one segment for them."""
    segments, bounds = batch.routes.routing.segments, batch.routes.bounds
    if len(bounds) == 1:
        return None
    used = batch.used()
    if len(used) == 1:
        return Mix((segments[used[0]].id,), np.zeros(batch.events, np.int64))
    indexes = np.searchsorted(bounds, _fractions(batch.places()), side="left")
    return Mix(tuple(segments[index].id for index in used), np.searchsorted(used, indexes))


def now_ms() -> int:
    """The time that events are stamped with: ms since the epoch."""
    return int(time.time() * 1000)


def rerouted(batch: Batch, routes: Routes) -> Batch:
    """The same events as another epoch routes them, those of each segment in the order in which they were written.

    One by one, because it is seldom done.
    """
    fractions = _fractions(batch.places())
    before = np.searchsorted(batch.routes.bounds, fractions, side="left")
    after = np.searchsorted(routes.bounds, fractions, side="left")
    starts, ends, contents = np.empty(len(before), np.int64), np.empty(len(before), np.int64), {}
    for index, content, lengths in _contents(batch):
        contents[index] = content
        ends[before == index] = np.cumsum(lengths)
        starts[before == index] = np.cumsum(lengths) - lengths
    found: list[Written] = []
    events, size = batch.before
    rows = zip(before.tolist(), after.tolist(), starts.tolist(), ends.tolist(), fractions.tolist(), strict=True)
    for old, new, start, end, place in rows:
        events, size = events + 1, size + end - start
        found.append(Written(events, size, routes, (new, bytes(contents[old][start:end])), place, False))
    return Batch(found, batch.before)


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
    found = _place_of(key)
    return bisect_left(bounds, found), found


def _fractions(places: Iterable[Place]) -> np.ndarray:
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
