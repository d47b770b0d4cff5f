"""A retention job for a scheduler: truncates streams before the start of a data interval, as Airflow passes it.

In Airflow: BashOperator(bash_command="python retention_job.py --root s3://bucket/streams --scope rides
--keep-days 30 --logical-date {{ ts }}"). It may run twice, late, and beside writers and readers.
"""

import argparse
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone

from pravega_spark.jobs import truncate
from pravega_spark.jobs.outcome import JobOutcome, failures
from pravega_spark.jobs.spread import Target


def run(arguments: Sequence[str] | None = None) -> list[JobOutcome]:
    """Truncate; return the outcome of each stream."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", required=True)
    parser.add_argument("--scope", required=True)
    parser.add_argument("--stream")
    parser.add_argument("--keep-days", type=float, required=True)
    parser.add_argument("--logical-date", type=datetime.fromisoformat, default=datetime.now(timezone.utc))
    parser.add_argument("--dry-run", action="store_true")
    given = parser.parse_args(arguments)

    before = given.logical_date - timedelta(days=given.keep_days)
    target = Target(given.root, given.scope, given.stream)
    outcomes = truncate.run(target, at=before.isoformat(), dry_run=given.dry_run)
    for outcome in outcomes:
        print(f"{outcome.scope}/{outcome.stream}: {outcome.error or outcome.detail} ({outcome.bytes} bytes)")
    return outcomes


if __name__ == "__main__":
    sys.exit(1 if failures(run()) else 0)
