"""`maintain`: routine maintenance of a root (see `jobs.maintain`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from pravega_spark.cli.session import Session, pass_session
from pravega_spark.console.arguments import SecondsType, check_selection, yes_option
from pravega_spark.quantities import size_text

if TYPE_CHECKING:
    from pravega_spark.jobs.outcome import JobOutcome


@click.command()
@click.option("--scope", metavar="NAME", help="Only streams of this scope.")
@click.option("--stream", metavar="NAME", help="Only this stream; requires --scope.")
@click.option("--period", type=SecondsType(), help="Time between two recorded stream cuts.  [default: 30m]")
@click.option(
    "--orphan-age",
    type=SecondsType(),
    help="Minimum age of an orphan. Writers slower than this are rejected at commit.  [default: 1d]",
)
@click.option("--verify", "check", is_flag=True, help="Verify the root at the end.")
@click.option("--dry-run", is_flag=True, help="Show what would be done; change nothing.")
@yes_option
@pass_session
def maintain(
    session: Session,
    scope: str | None,
    stream: str | None,
    period: float | None,
    orphan_age: float | None,
    check: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Run routine maintenance on streams and their root.

    Streams: apply retention and scaling policies, and abort transactions whose lease has expired. Root: flush, merge
    small chunks, collect garbage and, with --verify, verify; the root is maintained whatever streams are selected. A
    dry run neither flushes nor merges. A step that fails does not stop the others, but makes the command fail. Other
    processes may use the root meanwhile.
    """
    from engine.admin.orphans import AGE
    from pravega_spark.jobs import maintain as job
    from pravega_spark.jobs.command import document, show
    from pravega_spark.streams.maintenance.retention import PERIOD

    check_selection(scope, stream)
    session.root.check_writable()
    with session.output.progress() as progress:
        outcomes = list(
            job.maintain(
                session.root,
                scope,
                stream,
                dry_run=dry_run or not yes,
                period=PERIOD if period is None else period,
                orphan_age=AGE if orphan_age is None else orphan_age,
                check=check and (yes or dry_run),
                progress=progress,
            )
        )
    session.confirm(yes or dry_run, *_lines(outcomes))
    session.output.document({"maintain": document(outcomes, dry_run)})
    show(session.output, outcomes, dry_run)


def _lines(outcomes: Sequence[JobOutcome]) -> list[str]:
    """What would be done with --yes, as far as the stream cuts recorded so far show it."""
    lines = ["This would flush the root, merge small chunks, record stream cuts for retention, and:"]
    for outcome in outcomes:
        whose = f"stream {outcome.scope}/{outcome.stream}" if outcome.stream else "the root"
        if outcome.error is not None:
            lines.append(f"  {outcome.step} of {whose} would fail: {outcome.error}")
        elif outcome.changed:
            lines.append(f"  {outcome.step} of {whose}, {size_text(outcome.bytes)}: {outcome.detail}")
    return lines if len(lines) > 1 else [*lines, "  delete nothing, as far as is known before the flush"]
