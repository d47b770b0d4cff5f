"""Jobs as programs: their common options, their output, and how they exit: 0 = done, 1 = failed, 2 = usage error."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import click

from pravega_spark.console.arguments import storage_option, yes_option
from pravega_spark.console.output import Output
from pravega_spark.console.program import Commands, Refused
from pravega_spark.jobs.outcome import JobOutcome, failures
from pravega_spark.jobs.spread import Target

_COLUMNS = {
    "scope": "scope",
    "stream": "stream",
    "step": "step",
    "changed": "changed",
    "bytes": "bytes",
    "detail": "what",
    "error": "error",
}


def job(name: str, text: str) -> Callable[[Callable[..., Sequence[JobOutcome]]], click.Command]:
    """Make a program of a function of a target, `dry_run` and options of its own. text: its help.

    As with the commands of the command line, nothing is changed without --yes.
    """

    def decorated(function: Callable[..., Sequence[JobOutcome]]) -> click.Command:
        @functools.wraps(function)
        def run(
            url: str,
            scope: str | None,
            stream: str | None,
            wal: str | None,
            options: dict[str, object],
            as_json: bool,
            on_cluster: bool,
            dry_run: bool,
            yes: bool,
            **others: Any,
        ) -> None:
            spark = _session(name) if on_cluster else None
            look = dry_run or not yes
            outcomes = function(Target(url, scope, stream, wal, options), spark=spark, dry_run=look, **others)
            show(Output(as_json), outcomes, look)
            if not (yes or dry_run):
                raise Refused("nothing was changed: give --yes to apply the change")

        command = click.command(name, help=text)(run)
        for option in _OPTIONS:
            command = option(command)
        return Program(command)

    return decorated


class Program(Commands):
    """A job as a program: it has no subcommands, but fails as they do."""

    def __init__(self, job: click.Command) -> None:
        super().__init__(job.name, params=job.params, help=job.help, callback=job.callback, invoke_without_command=True)
        self.subcommand_metavar = ""


def show(output: Output, outcomes: Sequence[JobOutcome], dry_run: bool = False) -> None:
    """Print what was done, or would be. Raises Refused if anything failed."""
    rows = [outcome._asdict() for outcome in outcomes]
    output.document({"outcomes": rows})
    shown = [row for row in rows if row["changed"] or row["error"] is not None]
    if shown:
        output.table(_COLUMNS, shown)
    failed = failures(outcomes)
    how, count = "would change" if dry_run else "changed", sum(row["changed"] for row in rows)
    output.line(f"{len(rows)} steps: {count} {how} something, {len(failed)} failed")
    if failed:
        raise Refused(f"{len(failed)} of {len(rows)} steps failed; first error: {failed[0].error}")


def _session(name: str) -> Any:
    from pyspark.sql import SparkSession

    return SparkSession.builder.appName(f"pravega {name}").getOrCreate()


_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--root",
        "url",
        metavar="URI",
        envvar="PRAVEGA_CONTROLLER_URI",
        required=True,
        help="Root of the streams: a folder or an fsspec URL.",
    ),
    click.option("--scope", help="Only streams of this scope."),
    click.option("--stream", help="Only this stream; requires --scope."),
    click.option("--wal", metavar="URI", help="Root of the write-ahead log, if it is not the one that the root names."),
    storage_option("--storage", "the root's"),
    click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of a table."),
    click.option("--spark", "on_cluster", is_flag=True, help="Distribute many streams over a Spark cluster."),
    click.option("--dry-run", is_flag=True, help="Show what would be done; change nothing."),
    yes_option,
)
