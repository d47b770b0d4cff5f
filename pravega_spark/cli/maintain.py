"""`maintain`: routine maintenance of a root (see `jobs.maintain`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from pravega_spark.cli.session import Session, pass_session
from pravega_spark.console.arguments import change_options, selected, selection_options
from pravega_spark.console.jobs import MAINTAIN
from pravega_spark.quantities import size_text

if TYPE_CHECKING:
    from pravega_spark.jobs.outcome import JobOutcome


@click.command(help=MAINTAIN.help)
@selection_options
@MAINTAIN.with_options
@change_options
@pass_session
def maintain(
    session: Session, /, scope: str | None, stream: str | None, check: bool, dry_run: bool, yes: bool, **own: Any
) -> None:
    from pravega_spark.jobs import maintain as job
    from pravega_spark.jobs.command import document, show

    scope, stream = selected(scope, stream)
    session.root.check_writable()
    with session.output.progress() as progress:
        outcomes = list(
            job.maintain(
                session.root,
                scope,
                stream,
                dry_run=dry_run or not yes,
                check=check and (yes or dry_run),
                progress=progress,
                **{name: value for name, value in own.items() if value is not None},
            )
        )
    session.confirm(yes or dry_run, *_lines(outcomes))
    session.output.document({"maintain": document(outcomes, dry_run)})
    show(session.output, outcomes, dry_run)


def _lines(outcomes: Sequence[JobOutcome]) -> list[str]:
    """What would be done with --yes, as far as it is known before the flush."""
    lines = ["This would do to the root and its streams:"]
    for outcome in outcomes:
        whose = f"stream {outcome.scope}/{outcome.stream}" if outcome.stream else "the root"
        size = f", {size_text(outcome.bytes)}" if outcome.bytes else ""
        if outcome.error is not None:
            lines.append(f"  {outcome.step} of {whose} would fail: {outcome.error}")
        elif outcome.shown:
            lines.append(f"  {outcome.step} of {whose}{size}: {outcome.detail}")
    return lines
