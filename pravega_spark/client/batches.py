"""Batches: the events of one append of an event writer, framed and routed.

Keeps that the events of a key stay in order across a scale: the keys are kept until the events are durable. Keeps of
W16 that all events of a call are in one object, which is complete before other threads see it.
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

from pravega_spark.client.event_validation import check_key
from pravega_spark.streams.model.framing import Framed
from pravega_spark.streams.model.key_columns import hash_keys
from pravega_spark.streams.model.routing import hash_key
from pravega_spark.streams.model.stream_record import Routing
from pravega_spark.streams.writing.event_order import Interleaving
from pravega_spark.streams.writing.writes import SegmentAppend, segment_appends

_cached_hash = lru_cache(4096)(hash_key)  # most writers use the same keys again and again


class Routes(NamedTuple):
    """The routing of an epoch, and the upper bounds of its segments' key ranges."""

    routing: Routing
    bounds: list[float]


class EventKeys(NamedTuple):
    """The keys of some events of one segment. They are hashed only if the events have to be routed again."""

    keys: pa.Array | pa.ChunkedArray | None
    events: int


KeyPosition: TypeAlias = "str | float | np.ndarray | EventKeys | None"
"""Where events belong in the key space: a key or its hash for one event, None for any position, hashes or keys for the
events of a column."""


class Queued(NamedTuple):
    """The events of one call, or of a part of it that goes into one append.

    events, size: number of events and bytes given to the writer up to the end of these. content: an event with the
    index of its segment, or a column. large: a column that is referenced, not copied. numbers: of the events of a
    numbering producer, one or an ascending array; of others -1.
    """

    events: int
    size: int
    routes: Routes
    content: tuple[int, bytes] | Framed
    position: KeyPosition
    large: bool
    numbers: int | np.ndarray = -1

    @property
    def last_number(self) -> int:
        """The number of the last event."""
        return self.numbers if isinstance(self.numbers, int) else int(self.numbers[-1])


class Batch:
    """Consecutive queued events with the same routes that go into one append, all large or all not. Immutable.

    before, end: number of events and bytes given to the writer before and after these.
    """

    def __init__(self, queued: Sequence[Queued], before: tuple[int, int]) -> None:
        self.routes = queued[0].routes
        self.before = before
        self.end = queued[-1].events, queued[-1].size
        self.events, self.size = self.end[0] - before[0], self.end[1] - before[1]
        self.last_number = queued[-1].last_number
        self._queued = queued

    def pieces(self) -> Iterator[tuple[int, list[memoryview], np.ndarray]]:
        """For each segment, by its index, the framed events as buffers, and the lengths of the events."""
        copied: dict[int, bytearray] = {}
        pieces: dict[int, list[memoryview]] = {}
        lengths: dict[int, array[int]] = {}
        for each in self._queued:
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

    def _contents(self) -> Iterator[tuple[int, memoryview, np.ndarray]]:
        """As `pieces`, with one buffer for each segment."""
        for index, pieces, lengths in self.pieces():
            yield index, pieces[0] if len(pieces) == 1 else memoryview(b"".join(pieces)), lengths

    def appends(self) -> list[SegmentAppend]:
        """The parts of its append to the stream."""
        return segment_appends(self._contents(), self.routes.routing.segments, now_ms())

    def interleaving(self) -> Interleaving | None:
        """The order of its events across segments; None if the stream has one segment."""
        segments, bounds = self.routes.routing.segments, self.routes.bounds
        if len(bounds) == 1:
            return None
        found: set[int] = set()
        for each in self._queued:
            found |= {each.content[0]} if isinstance(each.content, tuple) else set(each.content.segments())
        used = sorted(found)
        if len(used) == 1:
            return Interleaving((segments[used[0]].id,), np.zeros(self.events, np.int64))
        indexes = np.searchsorted(bounds, self._hashes(), side="left")
        return Interleaving(tuple(segments[index].id for index in used), np.searchsorted(used, indexes))

    def rerouted(self, routes: Routes) -> Batch:
        """The same events with the routes of another epoch, those of each segment in the order of writing.

        One by one, as this is rare.
        """
        hashes = self._hashes()
        before = np.searchsorted(self.routes.bounds, hashes, side="left")
        after = np.searchsorted(routes.bounds, hashes, side="left")
        starts, ends, contents = np.empty(len(before), np.int64), np.empty(len(before), np.int64), {}
        for index, content, lengths in self._contents():
            contents[index] = content
            ends[before == index] = np.cumsum(lengths)
            starts[before == index] = np.cumsum(lengths) - lengths
        queued: list[Queued] = []
        events, size = self.before
        columns = (before, after, starts, ends, hashes, self._numbers())
        for old, new, start, end, position, number in zip(*(each.tolist() for each in columns), strict=True):
            events, size = events + 1, size + end - start
            framed = bytes(contents[old][start:end])
            queued.append(Queued(events, size, routes, (new, framed), position, False, number))
        return Batch(queued, self.before)

    def after(self, number: int) -> Batch | None:
        """The events with greater numbers; None if there are none. One by one if some are left out, as this is rare."""
        first = self._queued[0].numbers
        if (first if isinstance(first, int) else int(first[0])) > number:
            return self
        gone = int(np.searchsorted(self._numbers(), number, side="right"))
        if gone == self.events:
            return None
        queued = self.rerouted(self.routes)._queued
        return Batch(queued[gone:], queued[gone - 1][:2])

    def _numbers(self) -> np.ndarray:
        """The number of each event, in the order of writing."""
        found: list[np.ndarray] = []
        events = self.before[0]
        for each in self._queued:
            count, events = each.events - events, each.events
            found.append(np.full(count, each.numbers) if isinstance(each.numbers, int) else each.numbers)
        return np.concatenate(found)

    def _hashes(self) -> np.ndarray:
        """The key hash of each event, in the order of writing."""
        found: list[np.ndarray] = []
        single: list[float] = []
        for position in (each.position for each in self._queued):
            if isinstance(position, str):
                single.append(_cached_hash(position))
            elif isinstance(position, float):
                single.append(position)
            elif position is None:
                single.append(random.random())
            else:
                if isinstance(position, EventKeys):
                    keys = position.keys
                    position = with_random_hashes(np.full(position.events, np.nan) if keys is None else hash_keys(keys))
                found += [np.array(single, np.float64), position]
                single = []
        return np.concatenate([*found, np.array(single, np.float64)])


def now_ms() -> int:
    """The time of an append for the index: ms since the epoch."""
    return int(time.time() * 1000)


def routes_of(routing: Routing) -> Routes:
    return Routes(routing, [segment.high for segment in routing.segments])


def route(key: str | None, bounds: list[float]) -> tuple[int, str | float | None]:
    """The index of an event's segment, and the position by which it can be routed again."""
    if key is None:
        hashed = None if len(bounds) == 1 else random.random()
        return (0 if hashed is None else bisect_left(bounds, hashed)), hashed
    check_key(key)
    if len(bounds) == 1:
        return 0, key
    found = _cached_hash(key)
    return bisect_left(bounds, found), found


def with_random_hashes(hashes: np.ndarray) -> np.ndarray:
    """The hashes, with random ones for events without a key, where they are NaN."""
    keyless = np.isnan(hashes)
    return np.where(keyless, np.random.default_rng().random(len(hashes)), hashes) if keyless.any() else hashes
