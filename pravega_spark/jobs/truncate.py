"""The truncation job: `python -m pravega_spark.jobs.truncate --root URI --scope S --at 2026-01-31`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pravega_spark.console.jobs import TRUNCATE
from pravega_spark.jobs import work
from pravega_spark.jobs.command import program
from pravega_spark.jobs.outcome import JobOutcome
from pravega_spark.jobs.spread import Target, over_streams
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.reading.stream_position import PositionLike, parse_position

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(
    target: Target,
    *,
    at: PositionLike,
    dry_run: bool = False,
    spark: SparkSession | None = None,
) -> list[JobOutcome]:
    """Delete the events before a position, which becomes the head: of one stream, or of all selected streams.

    at: a time (2026-01-31, or 7d for seven days ago), an end of the stream, or, for one stream, a stream cut. Some
    events written shortly before a given time may remain. Truncated events cannot be restored.
    """
    place = parse_position(at)
    if isinstance(place, StreamCut) and target.stream is None:
        raise ValueError("a stream cut belongs to one stream: give scope and stream")
    return over_streams(target, {"truncation": partial(work.truncate, dry_run=dry_run, place=place)}, spark)


main = program(TRUNCATE, run, every=True)

if __name__ == "__main__":
    main()
