"""Jobs as programs: their common options, their output, and how they exit: 0 = done, 1 = failed, 2 = usage error."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import click

from pravega_spark.console.advice import ROOT_VARIABLE
from pravega_spark.console.arguments import check_selection, forms, storage_option, yes_option
from pravega_spark.console.output import Headings, Output, size_column
from pravega_spark.console.program import Commands, NothingChanged, Refused
from pravega_spark.jobs.outcome import NOTE, JobOutcome, failures
from pravega_spark.jobs.spread import Target
from pravega_spark.quantities import counted
from pravega_spark.streams.model.cuts import StreamCut, positions_text

_COLUMNS: Headings = {"stream": "stream", "step": "step", "bytes": size_column("size"), "what": "what"}
_TRUNCATIONS: Headings = {
    "stream": "stream",
    "events": "events",
    "bytes": size_column("size"),
    "head": "old head",
    "what": "what",
}
_REASONS: Headings = {"stream": "stream", "what": "what"}


def job(name: str, text: str, *, every: bool = False) -> Callable[[Callable[..., Sequence[JobOutcome]]], click.Command]:
    """Make a program of a function of a target, `dry_run` and options of its own. text: its help. every: see `show`.

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
            wide: bool,
            traceback: bool,  # see Commands
            on_cluster: bool,
            dry_run: bool,
            yes: bool,
            **others: Any,
        ) -> None:
            check_selection(scope, stream)
            spark = _session(name) if on_cluster else None
            look = dry_run or not yes
            outcomes = function(Target(url, scope, stream, wal, options), spark=spark, dry_run=look, **others)
            output = Output(as_json, wide)
            output.document(document(outcomes, look))
            show(output, outcomes, look, every=every)
            if not (yes or dry_run):
                raise NothingChanged()

        example = f"\b\nExample:\n  python -m pravega_spark.jobs.{name} {_EXAMPLES[name]}"
        command = click.command(name, help=text, epilog=example)(run)
        for option in _OPTIONS:
            command = option(command)
        return Program(command)

    return decorated


class Program(Commands):
    """A job as a program: it has no subcommands, but fails as they do."""

    def __init__(self, job: click.Command) -> None:
        super().__init__(
            job.name,
            params=job.params,
            help=job.help,
            callback=job.callback,
            invoke_without_command=True,
            context_settings={"help_option_names": ["-h", "--help"]},
        )
        self.subcommand_metavar = ""
        self._example = job.epilog or ""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """What values look like, and the example. A job gets options of its own after it is made."""
        self.epilog = "\n\n".join([*forms(self.params), self._example])
        super().format_epilog(ctx, formatter)


def document(outcomes: Sequence[JobOutcome], dry_run: bool) -> dict[str, Any]:
    """What was done, or would be, for programs. What is about the root has no scope and no stream."""
    rows = [{**each._asdict(), "scope": each.scope or None, "stream": each.stream or None} for each in outcomes]
    changed, failed = sum(each.changed for each in outcomes), len(failures(outcomes))
    return {"dry_run": dry_run, "steps": len(rows), "changed": changed, "failed": failed, "outcomes": rows}


def show(output: Output, outcomes: Sequence[JobOutcome], dry_run: bool = False, *, every: bool = False) -> None:
    """Print for people what was done, or would be. Raises Refused if anything failed.

    every: all steps are truncations: those that change nothing are shown too, with the reason; else only counted.
    """
    notes = sum(outcome.step == NOTE for outcome in outcomes)
    told = [each for each in outcomes if every or each.changed or each.error is not None or each.step == NOTE]
    shown = [_row(outcome) for outcome in told]
    if shown:
        truncated = any(row["head"] for row in shown)
        output.table(_COLUMNS if not every else _TRUNCATIONS if truncated else _REASONS, shown)
    failed = failures(outcomes)
    steps, count = counted(len(outcomes) - notes, "step"), sum(outcome.changed for outcome in outcomes)
    rest = len(outcomes) - notes - count - len(failed)
    how, not_so = ("would change", "would not") if dry_run else ("changed", "did not")
    output.line(f"{steps}: {count} {how} something, {rest} {not_so}, {len(failed)} failed")
    if failed:
        raise Refused(f"{len(failed)} of {steps} failed; first error: {failed[0].error}")


def _row(outcome: JobOutcome) -> dict[str, Any]:
    stream = f"{outcome.scope}/{outcome.stream}" if outcome.stream else "the root"
    what = outcome.detail if outcome.error is None else f"failed: {outcome.error}"
    head = positions_text(StreamCut.from_text(outcome.old_head)) if outcome.old_head is not None else None
    return {**outcome._asdict(), "stream": stream, "head": head, "what": what}


def _session(name: str) -> Any:
    from pyspark.sql import SparkSession

    return SparkSession.builder.appName(f"pravega {name}").getOrCreate()


_EXAMPLES = {
    "maintain": "--root /streams --verify --yes",
    "imports": "--source /mnt/pravega-lts --root /data/streams --spark --yes",
    "retention": "--root /streams --scope trips --yes",
    "truncate": "--root /streams --at 30d --yes",
}

_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--root",
        "url",
        metavar="URI",
        envvar=ROOT_VARIABLE,
        show_envvar=True,
        required=True,
        help="Root of the streams: a folder or an fsspec URL.",
    ),
    click.option("--scope", help="Only streams of this scope."),
    click.option("--stream", help="Only this stream; requires --scope."),
    click.option("--wal", metavar="URI", help="Root of the write-ahead log, if it is not the one that the root names."),
    storage_option("--storage", "the root's"),
    click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of a table."),
    click.option("--wide", is_flag=True, help="Show all columns of tables, however wide."),
    click.option("--traceback", is_flag=True, help="Show the Python traceback of a failure."),
    click.option("--spark", "on_cluster", is_flag=True, help="Distribute many streams over a Spark cluster."),
    click.option("--dry-run", is_flag=True, help="Show what would be done; change nothing."),
    yes_option,
)
