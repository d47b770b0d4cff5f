"""Filters that Spark pushes down to a batch read: what they bound, and what that saves."""

from __future__ import annotations

import datetime
import pickle
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import engine.root
from chunkstore import open_store
from chunkstore.testing import CountingStore
from pravega_spark.roots import open_root
from pravega_spark.source.options import SourceOptions
from pravega_spark.source.spark_api.filters import FilteredReader, bounds_of, takes_filters
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.model.policies import ScalingPolicy
from pravega_spark.streams.reading.bounds import ANY, Bounds, Range
from tests.large_events import put_small

if not takes_filters():
    pytest.skip("Spark 4.0 pushes no filters down", allow_module_level=True)

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

NOON = datetime.datetime(2026, 1, 2, 12, tzinfo=datetime.timezone.utc)
NOON_MS = 1_767_355_200_000


@pytest.mark.parametrize(
    ("filters", "bounds"),
    [
        ([EqualTo(("stream",), "a")], Bounds(stream=Range("a", "a"))),
        ([EqualNullSafe(("scope",), "s")], Bounds(scope=Range("s", "s"))),
        ([In(("stream",), ("a", None, "b"))], Bounds(stream=Range(among=frozenset("ab")))),
        ([GreaterThan(("offset",), 5), LessThan(("offset",), 9)], Bounds(offset=Range(5, 9))),
        ([GreaterThanOrEqual(("offset",), 5), EqualTo(("offset",), 7)], Bounds(offset=Range(7, 7))),
        ([In(("segment_id",), (1, 2)), In(("segment_id",), (2, 3))], Bounds(segment_id=Range(among=frozenset([2])))),
        ([LessThanOrEqual(("timestamp",), NOON)], Bounds(timestamp=Range(high=NOON_MS))),
        ([GreaterThan(("timestamp",), NOON.replace(tzinfo=None))], Bounds()),
        (
            [In(("timestamp",), (NOON, NOON + datetime.timedelta(1)))],
            Bounds(timestamp=Range(NOON_MS, NOON_MS + 86_400_000)),
        ),
        ([In(("timestamp",), (None,))], Bounds(timestamp=Range(among=frozenset()))),
        ([EqualTo(("event",), b"x"), IsNotNull(("offset",)), StringStartsWith(("stream",), "a")], Bounds()),
        ([Not(EqualTo(("stream",), "a")), EqualTo(("stream", "part"), "a"), EqualTo(("offset",), None)], Bounds()),
    ],
)
def test_the_bounds_of_filters(filters: list[Filter], bounds: Bounds) -> None:
    assert bounds_of(filters) == bounds


def test_a_range_without_bounds_has_all() -> None:
    assert ANY.has(0) and ANY.has("x") and not ANY.is_empty()


class Source:
    """Streams one and two of three segments each, 100 KB in each segment, behind a store that counts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.url = f"memory://{uuid.uuid4()}"
        self.store = CountingStore(open_store(self.url))
        monkeypatch.setattr(engine.root, "open_store", lambda url, options=None: self.store)
        catalog = Catalog(open_root(self.url, create=True))
        catalog.create_scope("s")
        for name in ("one", "two"):
            catalog.create_stream("s", name, scaling=ScalingPolicy("fixed", 3))
            for segment in range(3):
                for _ in range(4):
                    put_small(catalog.stream("s", name), *[bytes(1000)] * 25, segment=segment)

    def read(self, *filters: Filter) -> tuple[list[dict[str, Any]], int]:
        """The rows of a read with filters, and how many bytes of objects it read."""
        given = {"controller": self.url, "scope": "s", "stream": "one,two"}
        reader = FilteredReader(SourceOptions.parse(given, {}))
        assert list(reader.pushFilters([*filters])) == [*filters], "Spark applies them too"
        partitions = pickle.loads(pickle.dumps(reader.partitions()))
        self.store.reset()
        rows = [
            row
            for partition in partitions
            for batch in pickle.loads(pickle.dumps(reader)).read(partition)
            for row in batch.drop_columns("event").to_pylist()
        ]
        return rows, self.store.bytes_read


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Iterator[Source]:
    source = Source(monkeypatch)
    yield source
    open_root(source.url).close()


def test_filters_save_reads(source: Source) -> None:
    everything, bytes_of_all = source.read()
    assert len(everything) == 600
    for filters, share in (
        ([EqualTo(("stream",), "one")], 1 / 2),
        ([EqualTo(("scope",), "other")], 0),
        ([In(("segment_id",), (0, 2))], 2 / 3),
        ([EqualTo(("stream",), "two"), EqualTo(("segment_id",), 1)], 1 / 6),
        ([LessThan(("offset",), 1008 * 10)], 1 / 4),
        ([GreaterThanOrEqual(("offset",), 1008 * 90)], 1 / 4),
    ):
        rows, size = source.read(*filters)
        assert size <= share * bytes_of_all, filters
        wanted = [row for row in everything if passes(row, filters)]
        assert [row for row in rows if passes(row, filters)] == wanted, filters


def passes(row: dict[str, Any], filters: list[Any]) -> bool:
    checks: dict[str, Callable[[Any, Any], bool]] = {
        "EqualTo": lambda value, other: value == other,
        "In": lambda value, others: value in others,
        "LessThan": lambda value, other: value < other,
        "GreaterThanOrEqual": lambda value, other: value >= other,
    }
    return all(checks[type(each).__name__](row[each.attribute[0]], each.value) for each in filters)
