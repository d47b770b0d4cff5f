"""The truncation job: `python -m pravega_spark.jobs.truncate --root URI --scope S --before 2026-01-31`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from pravega_spark.jobs import work
from pravega_spark.jobs.command import job
from pravega_spark.jobs.outcome import JobOutcome
from pravega_spark.jobs.spread import Target, over_streams
from pravega_spark.quantities import parse_time

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(
    target: Target,
    *,
    cut: str | None = None,
    before: str | None = None,
    dry_run: bool = False,
    spark: SparkSession | None = None,
) -> list[JobOutcome]:
    """Truncate one stream at a stream cut, or all streams before a time (2026-01-31, 7d: seven days ago).

    Some events written shortly before that time may remain. Truncated events cannot be restored.
    """
    if (cut is None) is (before is None):
        raise ValueError("give either 'cut', a stream cut, or 'before', a time")
    if cut is not None and target.stream is None:
        raise ValueError("a stream cut belongs to one stream: give scope and stream")
    moment = parse_time(before) if before is not None else None
    return over_streams(target, partial(work.truncate, dry_run=dry_run, cut=cut, before=moment), spark)


main = job(
    "truncate",
    """Truncate one stream at a stream cut, or all selected streams before a time.

    Give either --cut, with --scope and --stream, or --before. Some events written shortly before that time may remain.
    Truncated events cannot be restored.
    """,
)(run)
main.params += [
    click.Option(["--cut"], metavar="TEXT", help="Truncate the stream at this stream cut."),
    click.Option(
        ["--before"],
        metavar="TIME",
        help="Truncate what was written before this time: 2026-01-31T12:00, or 7d: seven days ago.",
    ),
]

if __name__ == "__main__":
    main()
