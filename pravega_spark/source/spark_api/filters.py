"""Filters that Spark 4.1 and later push down to a batch read, as bounds of what is read. Spark applies them as well.

Spark keeps what was planned for the filters of one query, and uses it for other queries of the same DataFrame, which
then miss rows (`tests/spark/test_filters.py` shows it). So a read takes filters only if option `push_filters` says so.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pravega_spark.source.batch import BatchReader
from pravega_spark.streams.reading.bounds import ANY, Bounds, Range

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter


class FilteredReader(BatchReader):
    """A batch read that leaves out what the filters of its query exclude."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._bounds = bounds_of(filters)
        return filters


def takes_filters() -> bool:
    """Whether this Spark can push filters down to a source in Python."""
    import pyspark.sql.datasource as api

    return hasattr(api, "Filter")


def bounds_of(filters: Iterable[Filter]) -> Bounds:
    """The bounds of rows that pass all filters; filters of another kind, or of other columns, set none."""
    bounds = Bounds()
    for column, limit in _limits(filters):
        bounds = bounds._replace(**{column: getattr(bounds, column).within(limit)})
    return bounds


def _limits(filters: Iterable[Filter]) -> Iterator[tuple[str, Range]]:
    for each in filters:
        path: tuple[str, ...] = getattr(each, "attribute", ())
        value = getattr(each, "value", None)
        if len(path) == 1 and path[0] in Bounds._fields and value is not None:
            yield path[0], _range(type(each).__name__, path[0], value)


def _range(kind: str, column: str, value: Any) -> Range:
    """The values that pass a filter of a class of this name; times in milliseconds, bounds included."""
    values = [one for one in value if one is not None] if kind == "In" else [value]
    if column == "timestamp" and any(one.tzinfo is None for one in values):
        return ANY  # which moment it means depends on the session's time zone
    if kind == "In":
        if column != "timestamp":
            return Range(among=frozenset(values))
        return Range(_ms(min(values)), _ms(max(values))) if values else Range(among=frozenset())
    if column == "timestamp":
        value = _ms(value)
    if kind in ("EqualTo", "EqualNullSafe"):
        return Range(value, value)
    if kind in ("GreaterThan", "GreaterThanOrEqual"):
        return Range(low=value)
    if kind in ("LessThan", "LessThanOrEqual"):
        return Range(high=value)
    return ANY


def _ms(time: datetime.datetime) -> int:
    """Milliseconds since the epoch, rounded down: events have whole milliseconds."""
    return (time - datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)) // datetime.timedelta(milliseconds=1)
