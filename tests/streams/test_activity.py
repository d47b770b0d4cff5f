"""When events came, by the index: exactly where it is short, and with a bounded number of reads where it is long."""

from __future__ import annotations

import time

import numpy as np
import pytest

from chunkstore.testing import CountingStore, SimulatedStore
from engine.root import Root, RootConfig
from engine.settings import Settings
from engine.state.index_records import RECORD_SIZE, THIS_APPEND
from engine.state.operations import Payload
from engine.storage.object_reads import Stores
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.model.events import HEADER_SIZE, event_header
from pravega_spark.streams.reading.activity import MOST_READS, Growth, Lifetime, activity
from pravega_spark.streams.reading.timeline import Timeline, timeline
from pravega_spark.streams.stream import Stream
from pravega_spark.streams.writing.writes import SegmentAppend

HOUR = 3_600_000
BLOCK = 1 << 20  # that are read of a chunk at once
_AT_ONCE = 50_000  # events of an append


def opened(store: CountingStore) -> Root:
    return Root(Stores(store, store), RootConfig("root", 1), Settings(threaded=False, maintenance=False))


def written(times: np.ndarray, truncated: int = 0) -> CountingStore:
    """A store with a stream whose index has a record for each of its events, of these times."""
    store = SimulatedStore(0)
    store.now = time.time()
    counting = CountingStore(store)
    root = opened(counting)
    Catalog(root).create_scope("s")
    Catalog(root).create_stream("s", "x")
    stream = Catalog(root).stream("s", "x")
    for first in range(0, len(times), _AT_ONCE):
        append(stream, times[first : first + _AT_ONCE])
    if truncated:
        stream.truncate(StreamCut("s", "x", {0: truncated * HEADER_SIZE}))
    root.container(0).flush()
    root.container(0).checkpoint()
    return counting


def append(stream: Stream, times: np.ndarray) -> None:
    counts = np.arange(1, len(times) + 1)
    records = np.column_stack((counts * HEADER_SIZE, counts, times, np.full(len(times), THIS_APPEND)))
    stream.write([SegmentAppend(0, Payload(event_header(0) * len(times)), records, len(times))])


def drawn(store: CountingStore) -> tuple[Timeline, int]:
    """The timeline as another process reads it, and the reads for it once the root is open."""
    stream = Catalog(opened(store)).stream("s", "x")
    snapshot = stream.snapshot()
    snapshot.segments.load([0])
    store.reset()
    found = timeline(snapshot, {}, now=snapshot.record.created + 3 * HOUR)
    return found, store.count("read") + store.count("read_ranges")


def busy_but_for_half_an_hour(count: int, begun: int) -> np.ndarray:
    """Times in three hours; none in the second half of the second hour."""
    busy = np.sort(np.random.default_rng(1).integers(0, 3 * HOUR - HOUR // 2, count))
    return begun + busy + np.where(busy >= 3 * HOUR // 2, HOUR // 2, 0)


def in_idle_time(found: Timeline, begun: int) -> float:
    """The events that are counted in the time without any."""
    first, last = begun + 3 * HOUR // 2 + 60_000, begun + 2 * HOUR - 60_000
    return sum(_shared(growth, first, last) for growth in found.activity[0])


def _shared(growth: Growth, first: int, last: int) -> float:
    within = min(growth.ended, last) - max(growth.begun, first)
    return growth.events * max(within, 0) / max(growth.ended - growth.begun, 1)


@pytest.mark.parametrize("count", [500, 300_000])
def test_an_idle_half_hour_is_found_with_few_reads(count: int) -> None:
    begun = int(time.time() * 1000)
    store = written(busy_but_for_half_an_hour(count, begun))
    found, reads = drawn(store)
    assert sum(growth.events for growth in found.activity[0]) == count == found.events
    assert in_idle_time(found, begun) <= count / 100, "a tenth of that would look busy"
    assert reads <= MOST_READS + 10


@pytest.mark.parametrize("most", [0, 2])
def test_a_long_index_is_not_read_as_a_whole(most: int) -> None:
    begun, count = int(time.time() * 1000), 150_000
    store = written(busy_but_for_half_an_hour(count, begun))
    segments = Catalog(opened(store)).stream("s", "x").snapshot().segments
    segments.load([0])
    store.reset()
    rows = activity(segments, {0: Lifetime(begun, begun + 3 * HOUR, 1.0)}, most)[0]
    assert sum(row.events for row in rows) == count
    assert store.bytes_read <= 2 * most * BLOCK < count * RECORD_SIZE
    if not most:
        assert rows == (Growth(begun, begun + 3 * HOUR, count),), "spread evenly"


def test_events_before_the_head_do_not_count() -> None:
    begun = int(time.time() * 1000)
    found, _ = drawn(written(begun + np.arange(1000) * 1000, truncated=900))
    assert sum(growth.events for growth in found.activity[0]) == 100 == found.events
    assert min(growth.begun for growth in found.activity[0]) >= begun + 900_000


def test_events_of_unknown_times_are_left_out() -> None:
    found, _ = drawn(written(np.zeros(10, np.int64)))
    assert found.activity == {} and found.events == 10
