"""Micro-batches of a stream that is scaled, without a JVM: none goes past a scale, whatever its limit."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows

from pravega_spark.roots import open_root
from pravega_spark.source.micro_batch import MicroBatchReader
from pravega_spark.source.options import SourceOptions
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.cuts import StreamCut
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
