"""The truncation job: `python -m pravega_spark.jobs.truncate --root URI --scope S --before 2026-01-31`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from pravega_spark.console.arguments import parse_moment
from pravega_spark.jobs import work
from pravega_spark.jobs.command import job
from pravega_spark.jobs.outcome import JobOutcome
from pravega_spark.jobs.spread import Target, over_streams

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
    """Truncate one stream at a stream cut, or all streams before a time (ISO 8601, or ms since the epoch).

    Some events written shortly before that time may remain. Truncated events cannot be restored.
    """
    if (cut is None) is (before is None):
        raise ValueError("give either 'cut', a stream cut, or 'before', a time")
    if cut is not None and target.stream is None:
        raise ValueError("a stream cut belongs to one stream: give scope and stream")
    moment = parse_moment(before) if before is not None else None
    if before is not None and moment is None:
        raise ValueError(f"before: {before!r} is neither ISO 8601, as 2026-01-31T12:00:00Z, nor ms since the epoch")
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
        help="Truncate what was written before this time: ISO 8601, or ms since the epoch.",
    ),
]

if __name__ == "__main__":
    main()
