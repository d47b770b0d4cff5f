"""What tasks get of a stream whose segments are as uneven as can be: by bytes and events, without a JVM.

The rule: where events are small beside what a task reads, the heaviest task has at most twice as much as the lightest,
and at most 1.3 times the mean, in bytes and in events.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence

import pytest
from pyspark.sql.datasource import InputPartition

from pravega_spark.roots import open_root
from pravega_spark.source.batch import BatchReader
from pravega_spark.source.micro_batch import MicroBatchReader
from pravega_spark.source.options import SourceOptions
from pravega_spark.source.partitions import LEAST_BYTES, SlicePartition
from pravega_spark.source.spark_api.read_limits import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.model.policies import ScalingPolicy
from pravega_spark.streams.stream import Stream
from tests.large_events import put_small

SEGMENTS = 100
EVENT = 1000
FRAMED = EVENT + 8
EVENTS = 36_000
HOT_SHARE = 0.9
MiB = 1 << 20


def made(hot: int) -> Stream:
    """A stream of 100 segments, one of which holds 90 %, appended some 100 events at a time."""
    root = open_root(f"memory://{uuid.uuid4()}", create=True)
    catalog = Catalog(root)
    catalog.create_scope("s")
    catalog.create_stream("s", "t", ScalingPolicy(min_segments=SEGMENTS))
    stream = catalog.stream("s", "t")
    for segment in range(SEGMENTS):
        put_small(stream, *[b"c" * EVENT] * round(EVENTS * (1 - HOT_SHARE) / (SEGMENTS - 1)), segment=segment)
    for _ in range(50):
        put_small(stream, *[b"h" * EVENT] * round(EVENTS * HOT_SHARE / 50), segment=hot)
    return stream


@pytest.fixture(
    scope="module",
    params=[0, pytest.param(37, marks=pytest.mark.long), SEGMENTS - 1],
    ids=lambda hot: f"hot{hot}",
)
def stream(request: pytest.FixtureRequest) -> Iterator[Stream]:
    stream = made(request.param)
    yield stream
    stream.root.close()


def options(stream: Stream, **more: str) -> SourceOptions:
    url = stream.root.stores.chunks.root
    return SourceOptions.parse({"controller": url, "scope": "s", "stream": "t", "start_stream_cut": "earliest", **more})


def weights(stream: Stream, partitions: Sequence[InputPartition]) -> tuple[list[int], list[int]]:
    """Bytes and events of each partition."""
    segments, sizes, events = stream.snapshot().segments, [], []
    for partition in partitions:
        assert isinstance(partition, SlicePartition)
        sizes.append(sum(part.end - part.start for part in partition.slices))
        events.append(sum(segments.events_in(part.segment_id, part.start, part.end) for part in partition.slices))
    return sizes, events


def assert_even(found: Sequence[int]) -> None:
    assert max(found) <= 2 * min(found), found
    assert max(found) <= 1.3 * sum(found) / len(found), found


def assert_covered(stream: Stream, partitions: Sequence[InputPartition]) -> None:
    """Each byte once, and each segment in order."""
    at = dict.fromkeys(range(SEGMENTS), 0)
    for partition in partitions:
        assert isinstance(partition, SlicePartition)
        for part in partition.slices:
            assert part.start == at[part.segment_id] < part.end
            at[part.segment_id] = part.end
    segments = stream.snapshot().segments
    assert at == {number: segments.length(number) for number in at}


@pytest.mark.parametrize(
    ("more", "count"),
    [
        ({}, None),
        ({"min_partitions": "2"}, 2),
        ({"min_partitions": "7"}, 7),
        ({"min_partitions": "100"}, 100),
        ({"max_bytes_per_partition": "2MiB"}, EVENTS * FRAMED // (2 * MiB) + 1),
        ({"max_bytes_per_partition": "10MiB", "min_partitions": "3"}, EVENTS * FRAMED // (10 * MiB) + 1),
    ],
    ids=str,
)
def test_tasks_of_a_batch_read_are_even(stream: Stream, more: dict[str, str], count: int | None) -> None:
    partitions = BatchReader(options(stream, **more)).partitions()
    sizes, events = weights(stream, partitions)
    assert sum(events) == pytest.approx(EVENTS, rel=0.01)
    assert_covered(stream, partitions)
    assert_even(sizes)
    assert_even(events)
    if count is None:
        count = min(2 * (os.cpu_count() or 1), round(sum(sizes) / LEAST_BYTES))
    assert len(partitions) == count


def test_a_small_segment_is_rarely_cut(stream: Stream) -> None:
    partitions = BatchReader(options(stream, min_partitions="4")).partitions()
    slices = sum(len(partition.slices) for partition in partitions if isinstance(partition, SlicePartition))
    assert slices <= SEGMENTS + 3


@pytest.mark.parametrize(
    ("more", "limit"),
    [
        ({}, ReadAllAvailable()),
        ({}, ReadMaxBytes(10 * MiB)),
        pytest.param({}, ReadMaxRows(8000), marks=pytest.mark.long),
        ({}, ReadMaxRows(36_000)),
        ({"min_partitions": "6"}, ReadAllAvailable()),
        ({"min_partitions": "6"}, ReadMaxBytes(10 * MiB)),
        ({"min_partitions": "6"}, ReadMaxRows(8000)),
        ({"min_partitions": "6"}, ReadMaxRows(36_000)),
    ],
    ids=str,
)
def test_tasks_of_a_micro_batch_are_even(stream: Stream, limit: ReadLimit, more: dict[str, str]) -> None:
    reader = MicroBatchReader(options(stream, **more))
    at, every = reader.initialOffset(), []
    while (end := reader.latestOffset(at, limit)) != at:
        partitions = reader.partitions(at, end)
        every.extend(partitions)
        sizes, events = weights(stream, partitions)
        if sum(sizes) > 4 * MiB:  # not what was left over for the last one
            assert_even(sizes)
            assert_even(events)
            assert len(partitions) >= int(more.get("min_partitions", "1"))
        at = end
    assert_covered(stream, every)
