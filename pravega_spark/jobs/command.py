"""The command line of jobs: what all of them take, and how they end: 0 = done, 1 = something failed, 2 = usage."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import click

from pravega_spark.cli.output import Output
from pravega_spark.cli.session import Commands, Refused, storage_option
from pravega_spark.jobs.outcome import Outcome, failures
from pravega_spark.jobs.spread import Target

_COLUMNS = {
    "scope": "scope",
    "stream": "stream",
    "action": "action",
    "changed": "changed",
    "bytes": "bytes",
    "detail": "what",
    "error": "error",
}


def job(name: str) -> Callable[[Callable[..., Sequence[Outcome]]], click.Command]:
    """Make a function of a target, `dry_run`, and options of its own, a program."""

    def decorated(function: Callable[..., Sequence[Outcome]]) -> click.Command:
        @functools.wraps(function)
        def run(
            url: str,
            scope: str | None,
            stream: str | None,
            wal: str | None,
            options: dict[str, object],
            as_json: bool,
            on_cluster: bool,
            **others: Any,
        ) -> None:
            spark = _session(name) if on_cluster else None
            outcomes = function(Target(url, scope, stream, wal, options), spark=spark, **others)
            show(Output(as_json), outcomes)

        command = click.command(name, help=function.__doc__)(run)
        for option in reversed(_OPTIONS):
            command = option(command)
        return Program(command)

    return decorated


class Program(Commands):
    """A job as a program: it has no commands, but fails as they do."""

    def __init__(self, job: click.Command) -> None:
        super().__init__(
            job.name, params=job.params, help=job.help, callback=job.callback, invoke_without_command=True
        )


def show(output: Output, outcomes: Sequence[Outcome]) -> None:
    """Print what was done. Raises Refused if anything failed."""
    rows = [outcome._asdict() for outcome in outcomes]
    output.document({"outcomes": rows})
    told = [row for row in rows if row["changed"] or row["error"] is not None]
    if told:
        output.table(_COLUMNS, told)
    output.line(f"{len(rows)} looked at, {sum(row['changed'] for row in rows)} changed")
    failed = failures(outcomes)
    if failed:
        raise Refused(f"{len(failed)} of {len(rows)} failed, the first: {failed[0].error}")


def _session(name: str) -> Any:
    from pyspark.sql import SparkSession

    return SparkSession.builder.appName(f"pravega {name}").getOrCreate()


_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option("--root", "url", metavar="URI", envvar="PRAVEGA_CONTROLLER_URI", required=True, help="Root."),
    click.option("--scope", help="Only the streams of this scope."),
    click.option("--stream", help="Only this stream, whose scope has to be named too."),
    click.option("--wal", metavar="URI", help="Where the write-ahead log is, if not where the root says."),
    storage_option("--storage", "the root's"),
    click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of a table."),
    click.option("--spark", "on_cluster", is_flag=True, help="Spread many streams over the cluster of Spark."),
    click.option("--dry-run", is_flag=True, help="Tell what would be done, and change nothing."),
)
