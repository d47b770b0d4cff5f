"""`maintain`: all that a root needs from time to time, as the job of that name does it (see `jobs.maintain`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from pravega_spark.cli.arguments import ScopeType, StreamNameType, with_yes
from pravega_spark.cli.session import Refused, Session, pass_session
from pravega_spark.errors import ScopeNotFound, StreamNotFound

if TYPE_CHECKING:
    from rich.progress import Progress

    from pravega_spark.jobs.outcome import Outcome


@click.command()
@click.option("--scope", type=ScopeType(), help="Of streams, only those of this scope.")
@click.option("--stream", metavar="NAME", help="Of streams, only this one, whose scope has to be named too.")
@click.option("--period", type=click.FloatRange(min=0), help="Seconds between two recorded cuts.  [default: 1800]")
@click.option(
    "--orphan-age",
    type=click.FloatRange(min=0),
    help="Seconds for which objects that nothing names are left alone; longer than any job writes.  [default: 86400]",
)
@click.option("--verify", "check", is_flag=True, help="Verify the root at the end.")
@click.option("--dry-run", is_flag=True, help="Tell what would be done, and change nothing.")
@with_yes
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
    """Take care of streams and their root.

    Of streams: retention, scaling, and transactions whose lease has run out. Of the root, whatever streams are named:
    flush, merging of small chunks, garbage, and on request verification; a dry run only looks for garbage. Fails if any
    of this fails, which does not keep the rest from being done. Other processes may use the root meanwhile.
    """
    from pravega_spark.jobs import maintain as job
    from pravega_spark.jobs.outcome import failures
    from pravega_spark.streams.catalog import Catalog

    if stream is not None and scope is None:
        raise click.UsageError("Name the scope of the stream too, with --scope.")
    if stream is not None:
        StreamNameType().convert(f"{scope}/{stream}", None, None)
    if scope is not None and not Catalog(session.root).scope_exists(scope):
        raise ScopeNotFound(scope)
    if scope is not None and stream is not None and not Catalog(session.root).stream(scope, stream).exists():
        raise StreamNotFound(f"{scope}/{stream}")
    with session.output.progress() as bar:
        outcomes = list(
            job.maintain(
                session.root,
                scope,
                stream,
                dry_run=dry_run or not yes,
                period=job.PERIOD if period is None else period,
                orphan_age=job.AGE if orphan_age is None else orphan_age,
                check=check and (yes or dry_run),
                told=_teller(bar),
            )
        )
    session.insist(yes or dry_run, *_lines(outcomes))
    failed = failures(outcomes)
    rows = [_row(outcome) for outcome in outcomes]
    changed = [row for row in rows if row["changed"]]
    counts = {"dry_run": dry_run, "steps": len(rows), "changed": len(changed), "failed": len(failed)}
    session.output.document({"maintain": {**counts, "outcomes": rows}})
    told = [row for row in rows if row["changed"] or row["error"] is not None]
    if told:
        session.output.table(_COLUMNS, told)
    how = "would change" if dry_run else "changed"
    session.output.line(f"{len(rows)} steps, of which {len(changed)} {how} something and {len(failed)} failed")
    if failed:
        raise Refused(f"{len(failed)} of {len(rows)} steps failed, the first: {failed[0].error}")


def _row(outcome: Outcome) -> dict[str, Any]:
    """What is told of an outcome; one of the root has no scope and no stream."""
    return {**outcome._asdict(), "scope": outcome.scope or None, "stream": outcome.stream or None}


def _lines(outcomes: Sequence[Outcome]) -> list[str]:
    """What would be done, for who has not said yes. Retention is told by the cuts that are recorded so far."""
    lines = ["This would flush the root and merge small chunks, record a cut of streams with a retention policy, and:"]
    for outcome in outcomes:
        whose = f"stream {outcome.scope}/{outcome.stream}" if outcome.stream else "the root"
        if outcome.error is not None:
            lines.append(f"  {outcome.action} of {whose} would fail: {outcome.error}")
        elif outcome.changed:
            lines.append(f"  {outcome.action} of {whose}, {outcome.bytes} bytes: {outcome.detail}")
    return lines if len(lines) > 1 else [*lines, "  remove nothing, as far as can be told before that"]


def _teller(bar: Progress | None) -> Callable[[str, int, int], None]:
    if bar is None:
        return lambda what, done, total: None
    task = bar.add_task("", total=None)
    return lambda what, done, total: bar.update(task, description=what, completed=done, total=total or None)


_COLUMNS = {
    "scope": "scope",
    "stream": "stream",
    "action": "step",
    "changed": "changed",
    "bytes": "bytes",
    "detail": "what",
    "error": "error",
}
