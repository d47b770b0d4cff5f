"""Micro-batches of a stream that is scaled, without a JVM: none goes past a scale, whatever its limit."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from engine.root import Root
from pravega_spark.roots import open_root
from pravega_spark.source.batch import BatchReader
from pravega_spark.source.micro_batch import MicroBatchReader
from pravega_spark.source.options import SourceOptions
from pravega_spark.source.spark_api.read_limits import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.model.policies import ScalingPolicy
from pravega_spark.streams.stream import Stream
from tests.large_events import put_small


@pytest.fixture
def stream() -> Iterator[Stream]:
    root = open_root(f"memory://{uuid.uuid4()}", create=True)
    catalog = Catalog(root)
    catalog.create_scope("s")
    catalog.create_stream("s", "t")
    yield catalog.stream("s", "t")
    root.close()


def current(stream: Stream) -> list[int]:
    return [segment.id for segment in stream.snapshot().record.current.segments]


def scaled(stream: Stream) -> None:
    """Split, merged and split again, with events in each segment and, in the end, in none of the new ones."""
    for ranges in ([(0.0, 0.5), (0.5, 1.0)], [(0.0, 1.0)], [(0.0, 0.3), (0.3, 1.0)]):
        for segment in current(stream):
            put_small(stream, *[b"%d" % segment] * 5, segment=segment)
        stream.scale(current(stream), ranges)


@pytest.mark.parametrize("limit", [ReadAllAvailable(), ReadMaxRows(1000), ReadMaxBytes(1 << 20), ReadMaxRows(7)])
@pytest.mark.parametrize("pinned", [False, True])
def test_a_batch_ends_where_the_stream_was_scaled(stream: Stream, limit: ReadLimit, pinned: bool) -> None:
    scaled(stream)
    url = stream.root.stores.chunks.root
    given = {"controller": url, "scope": "s", "stream": "t", "start_stream_cut": "earliest"}
    reader = MicroBatchReader(SourceOptions.parse(given))
    if pinned:
        reader.prepareForTriggerAvailableNow()
    at, batches, read = reader.initialOffset(), [], 0
    while (end := reader.latestOffset(at, limit)) != at:
        snapshot = stream.snapshot()
        ranges = snapshot.ranges(StreamCut.from_text(at), StreamCut.from_text(end))
        epochs = {number >> 32 for number, (low, high) in ranges.items() if low < high}
        assert len(epochs) <= 1, "Spark reads the partitions of a batch in any order"
        read += snapshot.events_between(StreamCut.from_text(at), StreamCut.from_text(end))
        batches.append(reader.partitions(at, end))
        at = end
    assert read == 20
    assert StreamCut.from_text(at).positions == dict.fromkeys(current(stream), 0)
    assert len(batches) >= 3


def test_a_batch_is_planned_on_a_stream_that_reaches_to_its_end(stream: Stream) -> None:
    """A query that is started again plans its last batch before it has looked for news: others wrote it meanwhile."""
    put_small(stream, b"known")
    url = stream.root.stores.chunks.root
    options = SourceOptions.parse({"controller": url, "scope": "s", "stream": "t", "start_stream_cut": "earliest"})
    reader = MicroBatchReader(options)
    begin = reader.initialOffset()
    with Root.open(url) as root:
        others = Catalog(root).stream("s", "t")
        put_small(others, b"more")
        others.scale(current(others), [(0.0, 0.5), (0.5, 1.0)])
        (_, segment) = current(others)
        put_small(others, b"most", segment=segment)
        end = others.snapshot().tail_cut().as_text()
    found = [
        event
        for partition in reader.partitions(begin, end)
        for batch in reader.read(partition)
        for event in batch.column("event").to_pylist()
    ]
    assert sorted(found) == [b"known", b"more", b"most"]


def test_however_finely_a_read_is_cut_it_ends_where_it_is_told(stream: Stream) -> None:
    """The end lies between two records of the index, and so does the bound of the first task's share."""
    put_small(stream, *[b"." * 1000] * 100)
    snapshot = stream.snapshot()
    end = snapshot.next_cut(snapshot.head_cut(), snapshot.tail_cut(), max_events=10)
    given = {"controller": stream.root.stores.chunks.root, "scope": "s", "stream": "t", "min_partitions": "2"}
    reader = BatchReader(SourceOptions.parse({**given, "end_stream_cut": end.as_text()}))
    found = [batch.num_rows for partition in reader.partitions() for batch in reader.read(partition)]
    assert sum(found) == 10


def test_nothing_is_left_out_where_a_task_has_no_room_for_the_next_event(stream: Stream) -> None:
    """The first segment fills a part of a share, and the events of the second one are larger than shares are."""
    catalog = Catalog(stream.root)
    catalog.create_stream("s", "two", ScalingPolicy(min_segments=2))
    two = catalog.stream("s", "two")
    put_small(two, b"." * 30_000, segment=0)
    put_small(two, *[b"." * 100_000] * 5, segment=1)
    given = {"controller": stream.root.stores.chunks.root, "scope": "s", "stream": "two", "min_partitions": "10"}
    reader = BatchReader(SourceOptions.parse(given))
    found = [batch.num_rows for partition in reader.partitions() for batch in reader.read(partition)]
    assert sum(found) == 6
