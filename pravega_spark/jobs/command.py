"""Jobs as programs: their common options, their output, and their exit codes: 0 = done, 1 = failed, 2 = usage error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from pravega_spark.console.arguments import change_options, forms, root_options, selected, selection_options
from pravega_spark.console.jobs import JobDeclaration
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

Run = Callable[..., Sequence[JobOutcome]]
"""A job as a function of a Target, `spark`, `dry_run` and its own options."""


def program(declaration: JobDeclaration, run: Run, *options: click.Option, every: bool = False) -> click.Command:
    """The program of a job. Like all commands, it changes nothing without --yes.

    options: those that only the program has, and not its command. every: see `show`.
    """

    @root_options(required=True)
    @selection_options
    @declaration.with_options
    @click.option("--spark", "on_cluster", is_flag=True, help="Distribute many streams over a Spark cluster.")
    @change_options
    def main(
        url: str,
        wal: str | None,
        storage: dict[str, object],
        as_json: bool,
        wide: bool,
        traceback: bool,  # see Commands
        scope: str | None,
        stream: str | None,
        on_cluster: bool,
        dry_run: bool,
        yes: bool,
        **own: Any,
    ) -> None:
        scope, stream = selected(scope, stream)
        spark = _session(declaration.name) if on_cluster else None
        dry = dry_run or not yes
        given = {name: value for name, value in own.items() if value is not None}
        outcomes = run(Target(url, scope, stream, wal, storage), spark=spark, dry_run=dry, **given)
        output = Output(as_json, wide)
        output.document(document(outcomes, dry))
        show(output, outcomes, dry, every=every)
        if not (yes or dry_run):
            raise NothingChanged()

    command = click.command(declaration.name, help=declaration.help)(main)
    command.params[1:1] = options
    example = f"\b\nExample:\n  python -m pravega_spark.jobs.{declaration.name} {declaration.example}"
    command.epilog = "\n\n".join([*forms(command.params), example])
    return _Program(command)


class _Program(Commands):
    """A job as a program. It has no subcommands, but its failures end as those of commands do."""

    def __init__(self, job: click.Command) -> None:
        super().__init__(
            job.name,
            params=job.params,
            help=job.help,
            epilog=job.epilog,
            callback=job.callback,
            invoke_without_command=True,
            context_settings={"help_option_names": ["-h", "--help"]},
        )
        self.subcommand_metavar = ""


def document(outcomes: Sequence[JobOutcome], dry_run: bool) -> dict[str, Any]:
    """What was done, or would be, as a JSON document. Outcomes of the root have no scope and no stream."""
    rows = [{**each._asdict(), "scope": each.scope or None, "stream": each.stream or None} for each in outcomes]
    changed, failed = sum(each.changed for each in outcomes), len(failures(outcomes))
    return {"dry_run": dry_run, "steps": len(rows), "changed": changed, "failed": failed, "outcomes": rows}


def show(output: Output, outcomes: Sequence[JobOutcome], dry_run: bool = False, *, every: bool = False) -> None:
    """Print what was done, or would be, as a table. Raises Refused if anything failed.

    every: all steps are truncations, and those that change nothing are shown too, with the reason.
    """
    notes = sum(outcome.step == NOTE for outcome in outcomes)
    found = [each for each in outcomes if every or each.shown]
    rows = [_row(outcome) for outcome in found]
    if rows:
        truncated = any(row["head"] for row in rows)
        output.table(_COLUMNS if not every else _TRUNCATIONS if truncated else _REASONS, rows)
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
