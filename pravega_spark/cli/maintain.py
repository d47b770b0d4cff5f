"""`maintain`: routine maintenance of a root (see `jobs.maintain`)."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from pravega_spark.cli.session import Session, pass_session
from pravega_spark.console.arguments import SecondsType, change_options, selected, selection_options
from pravega_spark.console.jobs import MAINTAIN
from pravega_spark.quantities import duration_text, size_text

if TYPE_CHECKING:
    from pravega_spark.jobs.outcome import JobOutcome


@click.command(help=MAINTAIN.help)
@selection_options
@MAINTAIN.with_options
@click.option(
    "--watch",
    type=SecondsType(min_open=True),
    help="Look again and again, and maintain what needs it, until interrupted. Of several such processes one does it.",
)
@change_options
@pass_session
def maintain(
    session: Session,
    /,
    scope: str | None,
    stream: str | None,
    check: bool,
    watch: float | None,
    dry_run: bool,
    yes: bool,
    **own: Any,
) -> None:
    from pravega_spark.jobs import maintain as job
    from pravega_spark.jobs.command import document, show

    scope, stream = selected(scope, stream)
    session.root.check_writable()
    if watch is not None:
        if scope is not None or check or dry_run or not yes or any(value is not None for value in own.values()):
            raise click.UsageError("Give --watch with --yes, and no other option of this command.")
        _watch(session, watch)
        return
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


def _watch(session: Session, every: float) -> None:
    """Maintain the root until the user interrupts."""
    from pravega_spark.jobs.maintenance_service import MaintenanceService

    place = session.root.stores.chunks.root
    with suppress(KeyboardInterrupt), MaintenanceService(session.root, every=every):
        session.output.line(f"maintaining {place}, with a look every {duration_text(every)}")
        if session.output.as_json:
            session.output.record({"watching": place, "seconds": every})
        threading.Event().wait()


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
