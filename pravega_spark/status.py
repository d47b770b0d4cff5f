"""The status of a root: what somebody who operates it wants to know at a glance, collected without changing anything.

Looks at each container once for each scope, and at what consumers recorded, and reads a few index records for each
segment that grew. What cannot be read is a problem in the result, and never hides the rest.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

from chunkstore.errors import StorageError, fact_of
from engine.admin.inspection import ContainerStatus, describe_container
from engine.errors import DataCorruption, EngineError
from engine.root import Root
from engine.state.index_records import RECORD_SIZE
from pravega_spark.client.groups.entry import GroupNotFound
from pravega_spark.client.groups.positions import group_cuts, group_names
from pravega_spark.errors import InvalidStreamCut, StreamError, StreamNotFound
from pravega_spark.source.checkpoint import query_positions
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.maintenance.subscribers import SubscriberPosition, positions
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.model.index import UNKNOWN_TIME
from pravega_spark.streams.reading.foreign_root import ForeignRoot
from pravega_spark.streams.reading.lag import Lag, lag
from pravega_spark.streams.reading.snapshot import Snapshot

WINDOW = 60.0
"""Seconds over which rates are averaged."""

_THREADS = 8
"""Streams whose indexes are read at the same time."""


class StreamStatus(NamedTuple):
    """A stream. segments: the open ones. bytes: readable, event headers included. last_event: when the last append to
    it was made, in ms since the epoch; None if it is not known. The rates are those of the last WINDOW seconds."""

    scope: str
    stream: str
    sealed: bool
    segments: int
    events: int
    bytes: int
    last_event: int | None
    events_per_second: float
    bytes_per_second: float


class ConsumerStatus(NamedTuple):
    """A consumer of a stream. kind: "group" (a reader group), "subscriber" (what it has not released is kept by
    retention), or "query" (a streaming query of Spark, by its checkpoint). lag: None if there is a problem."""

    kind: str
    name: str
    scope: str
    stream: str
    lag: Lag | None
    problem: str


class RootStatus(NamedTuple):
    """A root at one moment, in seconds since the epoch. problems: what could not be read, a sentence for each."""

    url: str
    moment: float
    streams: tuple[StreamStatus, ...]
    consumers: tuple[ConsumerStatus, ...]
    containers: tuple[ContainerStatus, ...]
    problems: tuple[str, ...]


def root_status(
    root: Root,
    scope: str | None = None,
    checkpoints: Mapping[str, Mapping[str, Any] | None] | None = None,
    now: float | None = None,
) -> RootStatus:
    """The status of a root, or of the streams of one scope and their consumers.

    checkpoints: the checkpointLocations of streaming queries, and options of their filesystems. now: seconds since the
    epoch, by default this host's time. Raises ScopeNotFound, StorageError.
    """
    moment = time.time() if now is None else now
    containers = () if isinstance(root, ForeignRoot) else tuple(_containers(root))
    catalog = Catalog(root, leaving_out={each.number for each in containers if not each.online})
    if scope is not None:
        catalog.check_scope(scope)
    scopes = catalog.scopes() if scope is None else [scope]
    collected = _Collected(root, catalog, moment)
    collected.problems += [f"container {each.number} is offline: {each.reason}" for each in containers if each.reason]
    for each in scopes:
        collected.add_scope(each)
    for place, options in (checkpoints or {}).items():
        collected.add_query(place, options)
    return RootStatus(
        root.stores.chunks.root,
        moment,
        tuple(collected.streams),
        tuple(collected.consumers),
        containers,
        tuple(collected.problems),
    )


class _Collected:
    """What was found so far."""

    def __init__(self, root: Root, catalog: Catalog, now: float) -> None:
        self._root, self._catalog, self._now = root, catalog, now
        self.streams: list[StreamStatus] = []
        self.consumers: list[ConsumerStatus] = []
        self.problems: list[str] = []

    def add_scope(self, scope: str) -> None:
        """The streams of a scope, their subscribers, and its reader groups."""

        def unreadable(name: str, error: DataCorruption) -> None:
            self.problems.append(f"stream {scope}/{name}: {fact_of(error)}")

        found = self._catalog.query(scope, lambda snapshot: (snapshot, positions(snapshot, refresh=False)), unreadable)
        with ThreadPoolExecutor(_THREADS) as threads:
            for stream, subscribers in threads.map(self._stream, found):
                self.streams += stream
                self.consumers += subscribers
        try:
            groups = group_names(self._root, scope)
        except EngineError as error:
            self.problems.append(f"reader groups of scope {scope}: {fact_of(error)}")
            return
        for name in groups:
            self._add_group(scope, name)

    def _stream(
        self, found: tuple[Snapshot, Mapping[str, SubscriberPosition]]
    ) -> tuple[list[StreamStatus], list[ConsumerStatus]]:
        snapshot, subscribers = found
        where = (snapshot.stream.scope, snapshot.stream.name)
        try:
            return [_stream_status(snapshot, self._now)], [
                ConsumerStatus("subscriber", name, *where, None, held.problem)
                if held.problem
                else ConsumerStatus("subscriber", name, *where, lag(snapshot, held.cut, now=self._now), "")
                for name, held in subscribers.items()
            ]
        except EngineError as error:
            self.problems.append(f"stream {'/'.join(where)}: {fact_of(error)}")
            return [], []

    def _add_group(self, scope: str, name: str) -> None:
        try:
            cuts = group_cuts(self._root, scope, name)
        except GroupNotFound:
            return  # deleted meanwhile
        except EngineError as error:
            self.problems.append(f"reader group {scope}/{name}: {fact_of(error)}")
            return
        self._add("group", f"{scope}/{name}", cuts)

    def add_query(self, place: str, options: Mapping[str, Any] | None) -> None:
        """A streaming query, by its checkpoint."""
        try:
            cuts = query_positions(place, options)
        except (StreamError, StorageError) as error:
            self.problems.append(f"checkpoint of a query: {fact_of(error)}")
            return
        self._add("query", place, cuts)

    def _add(self, kind: str, name: str, cuts: Sequence[StreamCut]) -> None:
        for cut in cuts:
            try:
                stream = self._catalog.stream(cut.scope, cut.stream)
                behind, problem = stream.query(partial(self._lag, cut)), ""
            except (InvalidStreamCut, StreamNotFound, EngineError) as error:
                behind, problem = None, fact_of(error)
            self.consumers.append(ConsumerStatus(kind, name, cut.scope, cut.stream, behind, problem))

    def _lag(self, cut: StreamCut, snapshot: Snapshot) -> Lag:
        return lag(snapshot, cut, now=self._now)


def _stream_status(snapshot: Snapshot, now: float) -> StreamStatus:
    since = round((now - WINDOW) * 1000)
    grown = [_growth(snapshot, number, since) for number in snapshot.record.segment_ids()]
    times = [moment for moment, _, _ in grown if moment is not None]
    return StreamStatus(
        snapshot.stream.scope,
        snapshot.stream.name,
        snapshot.record.sealed,
        0 if snapshot.record.sealed else len(snapshot.record.current.segments),
        snapshot.events(),
        snapshot.size(),
        max(times, default=None),
        sum(events for _, _, events in grown) / WINDOW,
        sum(size for _, size, _ in grown) / WINDOW,
    )


def _growth(snapshot: Snapshot, number: int, since: int) -> tuple[int | None, int, int]:
    """When a segment got its last event, and the bytes and events that it got since a time."""
    segments = snapshot.segments
    if not segments.has_times(number):
        return None, 0, 0  # nor is an index built for it
    index = segments.index_segment(number)
    if index.length == index.start_offset:
        return None, 0, 0  # it got none, or is truncated at its end, and its index with it
    end = index.length // RECORD_SIZE
    last = int(segments.index(number).records(end - 1, end)[0, 2])
    if last == UNKNOWN_TIME:
        return None, 0, 0
    return (last, *(segments.growth_since(number, since) if last >= since else (0, 0)))


def _containers(root: Root) -> Iterator[ContainerStatus]:
    for number in range(root.config.containers):
        try:
            yield ContainerStatus(number, "", describe_container(root.container(number)))
        except EngineError as error:
            yield ContainerStatus(number, str(error), None)
