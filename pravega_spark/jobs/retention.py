"""The retention job: `python -m pravega_spark.jobs.retention --root URI`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pravega_spark.console.jobs import RETENTION
from pravega_spark.jobs import work
from pravega_spark.jobs.command import program
from pravega_spark.jobs.outcome import JobOutcome
from pravega_spark.jobs.spread import Target, over_streams
from pravega_spark.streams.maintenance.retention import PERIOD

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(
    target: Target, *, dry_run: bool = False, period: float = PERIOD, spark: SparkSession | None = None
) -> list[JobOutcome]:
    """Truncate streams by their retention policies.

    A stream cut is recorded, and the policy applied, if the last recorded cut is at least `period` seconds old.
    """
    return over_streams(target, {"retention": partial(work.retain, dry_run=dry_run, period=period)}, spark)


main = program(RETENTION, run, every=True)

if __name__ == "__main__":
    main()
