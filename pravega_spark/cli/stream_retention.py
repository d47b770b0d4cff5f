"""`stream truncate`, `stream retain` and `stream unsubscribe`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from chunkstore.similarity import suggest
from engine.errors import DataCorruption, did_you_mean
from pravega_spark.cli.session import Session, pass_session
from pravega_spark.cli.stream_values import cut_row, retention_row
from pravega_spark.console.arguments import StreamName, change_options, stream_argument
from pravega_spark.console.jobs import RETENTION, TRUNCATE
from pravega_spark.console.program import Refused
from pravega_spark.quantities import counted, duration_text, moment_text, size_text
from pravega_spark.streams.model.cuts import positions_text
from pravega_spark.streams.model.policies import retention_text
from pravega_spark.streams.reading.stream_position import StreamPosition, cut_to_truncate

if TYPE_CHECKING:
    from pravega_spark.client.manager import StreamManager
    from pravega_spark.streams.maintenance.retention import Retained
    from pravega_spark.streams.model.policies import RetentionPolicy
    from pravega_spark.streams.reading.snapshot import Snapshot


@click.command(help=TRUNCATE.help)
@stream_argument
@TRUNCATE.with_options
@change_options
@pass_session
def truncate(session: Session, name: StreamName, at: StreamPosition, dry_run: bool, yes: bool) -> None:
    from pravega_spark.streams.maintenance.truncation import truncation

    found = session.catalog.stream(*name).query(lambda snapshot: truncation(snapshot, cut_to_truncate(at, snapshot)))
    session.confirm(yes, f"This would delete from stream {name}: {found}.", dry_run=dry_run)
    session.manager.truncate_stream(*name, found.cut)
    gone = {"events": found.events, "bytes": found.bytes}
    session.output.document({"stream": str(name), "truncated": gone, "head": cut_row(found.cut)})
    session.output.line(f"stream {name} was truncated: {found}")


@click.command(help=RETENTION.help)
@stream_argument
@RETENTION.with_options
@change_options
@pass_session
def retain(session: Session, name: StreamName, dry_run: bool, period: float | None, yes: bool) -> None:
    manager = session.manager
    session.root.check_writable()
    policy = session.catalog.stream(*name).snapshot().record.retention
    figures = (
        [] if policy is None else session.catalog.stream(*name).query(lambda it: list(_retention_figures(it, policy)))
    )
    done = _answered(manager, name, manager.retain(*name, period=period, dry_run=True))
    if not dry_run and (done.recorded or done.truncated):
        session.confirm(yes, *figures, *_retained(done, "would be"))
        done = manager.retain(*name, period=period)
    row = {
        "recorded": done.recorded.as_text() if done.recorded is not None else None,
        "truncated": done.truncated.as_text() if done.truncated is not None else None,
        "bytes": done.bytes,
        "why": done.why or None,
    }
    session.output.document(
        {"stream": str(name), "dry_run": dry_run, "retained": row, "retention": retention_row(policy)}
    )
    for line in (*figures, *_retained(done, "would be" if dry_run else "was")):
        session.output.line(line)


def _answered(manager: StreamManager, name: StreamName, done: Retained) -> Retained:
    """The effect of the policy; if no cut is recorded yet, with the effect that recording one now would have."""
    if not done.early:
        return done
    now = manager.retain(*name, period=0, dry_run=True)
    if now.removed is None:
        return done._replace(why=now.why, early=False)
    return done._replace(why=f"with --period 0s it would be {now.removed}; {done.why}")


def _retained(done: Retained, would: str) -> Iterator[str]:
    """The effect of the policy. would: "was", or "would be" for a dry run."""
    what = f"nothing {would} truncated{' yet' if done.early else ''}: {done.why}"
    yield f"{would} truncated: {done.removed}" if done.removed else what
    if done.recorded is not None:
        yield f"a stream cut {would} recorded: {positions_text(done.recorded)}"


def _retention_figures(snapshot: Snapshot, policy: RetentionPolicy) -> Iterator[str]:
    """The figures that retention decides by."""
    from pravega_spark.streams.maintenance.recorded_cuts import RecordedCuts
    from pravega_spark.streams.reading.lag import lag

    behind = lag(snapshot, snapshot.head_cut())
    age = f", the oldest {duration_text(round(behind.seconds))} old" if behind.events else ""
    yield f"stream {snapshot.stream.key} has {counted(behind.events, 'event')}, {size_text(behind.bytes)}{age}"
    yield f"it keeps {retention_text(policy)}"
    times = [recorded.time for recorded, _ in RecordedCuts(snapshot).all()]
    if not times:
        yield "no stream cut is recorded now: maintenance and this command record one each period"
    else:
        since = f"from {moment_text(times[0])} to" if len(times) > 1 else "at"
        yield f"{counted(len(times), 'stream cut')} recorded, {since} {moment_text(times[-1])}"


@click.command()
@stream_argument
@click.argument("subscriber")
@change_options
@pass_session
def unsubscribe(session: Session, name: StreamName, subscriber: str, dry_run: bool, yes: bool) -> None:
    """Remove a subscriber that retention waits for.

    SUBSCRIBER is a query or reader group that does not run any more, as listed by `stream describe`.
    """
    from pravega_spark.streams.maintenance.subscribers import subscriber_names

    behind: object = "its released cut cannot be understood"
    with suppress(DataCorruption):
        behind = session.manager.stream_info(*name).subscribers.get(subscriber, "its released cut is of another stream")
    there = subscriber_names(session.catalog.stream(*name))
    if subscriber not in there:
        similar = did_you_mean(suggest(subscriber, there))
        raise Refused(
            f"{subscriber} is no subscriber of stream {name}, which has {', '.join(there) or 'none'}.{similar}"
        )
    session.confirm(
        yes,
        f"This would remove subscriber {subscriber} of stream {name} ({behind}): retention would not wait for it.",
        dry_run=dry_run,
    )
    session.manager.remove_subscriber(*name, subscriber)
    session.output.document({"stream": str(name), "subscriber": subscriber})
    session.output.line(f"{subscriber} was removed from stream {name}")
