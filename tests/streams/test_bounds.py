"""Bounds of the wanted events: no wanted event is left out, and little else is planned."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator

import pytest

from pravega_spark.roots import open_root
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.model.policies import ScalingPolicy
from pravega_spark.streams.reading import snapshot as snapshots
from pravega_spark.streams.reading.bounds import Bounds, Range
from pravega_spark.streams.stream import Stream
from tests.large_events import put_small

SEGMENTS, APPENDS, EVENTS, SIZE = 3, 6, 40, 1000
FRAMED = SIZE + 8


@pytest.fixture
def stream() -> Iterator[Stream]:
    """Segments of many index records each, as they have 40 KB."""
    root = open_root(f"memory://{uuid.uuid4()}", create=True)
    catalog = Catalog(root)
    catalog.create_scope("s")
    catalog.create_stream("s", "t", scaling=ScalingPolicy("fixed", SEGMENTS))
    made = catalog.stream("s", "t")
    for segment in range(SEGMENTS):
        for _ in range(APPENDS):
            put_small(made, *[bytes(SIZE)] * EVENTS, segment=segment)
    yield made
    root.close()


def whole(stream: Stream) -> dict[int, tuple[int, int]]:
    snapshot = stream.snapshot()
    return snapshot.ranges(snapshot.head_cut(), snapshot.tail_cut())


def test_without_bounds_all_is_planned(stream: Stream) -> None:
    assert Bounds().narrowed(stream.snapshot(), whole(stream)) == whole(stream)


@pytest.mark.parametrize("column", ["scope", "stream"])
def test_another_stream_is_left_out(stream: Stream, column: str) -> None:
    own = {"scope": "s", "stream": "t"}[column]
    for wanted in (Range("x", "x"), Range(low="z"), Range(among=frozenset("xy"))):
        assert Bounds(**{column: wanted}).narrowed(stream.snapshot(), whole(stream)) == {}
    for wanted in (Range(own, own), Range(high="z"), Range(among=frozenset(["x", own]))):
        assert Bounds(**{column: wanted}).narrowed(stream.snapshot(), whole(stream)) == whole(stream)


def test_other_segments_are_left_out(stream: Stream) -> None:
    for wanted, left in (
        (Range(1, 1), {1}),
        (Range(low=1), {1, 2}),
        (Range(among=frozenset([0, 2, 9])), {0, 2}),
        (Range(among=frozenset()), set()),
    ):
        assert set(Bounds(segment_id=wanted).narrowed(stream.snapshot(), whole(stream))) == left


@pytest.mark.parametrize("seed", range(40))
def test_every_event_at_a_wanted_offset_is_planned_and_few_others(stream: Stream, seed: int) -> None:
    chance, length = random.Random(seed), FRAMED * EVENTS * APPENDS
    one, other = sorted(chance.choices([*range(0, length + 3 * FRAMED, FRAMED), *range(-5, length, 977)], k=2))
    wanted = chance.choice([Range(one, other), Range(low=one), Range(high=one), Range(among=frozenset([one, other]))])
    planned = Bounds(offset=wanted).narrowed(stream.snapshot(), whole(stream)).get(0, (0, 0))
    starts = range(0, length, FRAMED)
    assert all(planned[0] <= start < planned[1] for start in starts if wanted.has(start))
    assert planned[0] % FRAMED == planned[1] % FRAMED == 0, "only whole events are planned"
    low, high = wanted.ends()
    least = sum(1 for start in starts if (low is None or start >= low) and (high is None or start <= high))
    assert planned[1] - planned[0] <= least * FRAMED + 2 * (20 << 10)


def test_times_may_descend_by_as_much_as_clocks_differ(stream: Stream) -> None:
    records = stream.snapshot().segments.index(0).records(0, 6)
    first, last = int(records[0, 2]), int(records[-1, 2])
    differ = snapshots.CLOCKS_DIFFER
    for wanted, is_planned in (
        (Range(first, last), True),
        (Range(low=last + differ), True),
        (Range(low=last + differ + 60_000), False),
        (Range(high=first - differ), True),
        (Range(high=first - differ - 60_000), False),
        (Range(1, 0), False),
    ):
        planned = Bounds(timestamp=wanted).narrowed(stream.snapshot(), whole(stream))
        assert (planned == whole(stream)) is is_planned, wanted
        assert planned == {} or is_planned
