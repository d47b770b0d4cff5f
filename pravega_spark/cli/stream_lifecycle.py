"""`stream create`, `stream seal` and `stream delete`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from chunkstore.errors import fact_of
from pravega_spark.cli.session import Session, pass_session
from pravega_spark.cli.stream_values import retention_of, retention_options
from pravega_spark.console.advice import with_root_options
from pravega_spark.console.arguments import StreamName, change_options, stream_argument
from pravega_spark.errors import StreamNotSealed
from pravega_spark.quantities import counted, size_text
from pravega_spark.streams.model.policies import not_applied

if TYPE_CHECKING:
    from pravega_spark.streams.model.policies import RetentionPolicy, ScalingPolicy
    from pravega_spark.streams.model.stream_record import StreamRecord


@click.command()
@stream_argument
@click.option(
    "--segments", type=click.IntRange(min=1), default=1, show_default=True, help="Initial number of segments."
)
@click.option("--scale-kib", type=click.IntRange(min=1), help="Split a segment above this rate, in KiB per second.")
@click.option(
    "--scale-events", type=click.IntRange(min=1), help="Split a segment above this rate, in events per second."
)
@click.option(
    "--scale-factor",
    type=click.IntRange(min=2),
    default=2,
    show_default=True,
    help="Number of segments that a split makes.",
)
@retention_options
@click.option("--tag", "tags", multiple=True, help="Tag of the stream. Repeatable.")
@pass_session
def create(
    session: Session,
    /,
    name: StreamName,
    segments: int,
    scale_kib: int | None,
    scale_events: int | None,
    scale_factor: int,
    tags: tuple[str, ...],
    **retain: int | None,
) -> None:
    """Create a stream in an existing scope.

    An existing stream is not changed. Options that differ from it are listed, with the command that changes them.
    """
    scaling = _scaling(segments, scale_kib, scale_events, scale_factor)
    retention = retention_of(retain)
    manager = session.manager
    created = manager.create_stream_with_policy(*name, scaling, retention, tags)
    ignored: list[str] = []
    if not created:
        record = session.catalog.stream(*name).snapshot().record
        ignored = list(_not_applied(name, record, scaling, retention, tags))
    session.output.document({"stream": str(name), "created": created, "not_applied": ignored})
    session.output.line(f"stream {name} was created" if created else f"stream {name} exists already")
    for line in ignored:
        session.output.warning(line)


def _scaling(segments: int, kib: int | None, events: int | None, factor: int) -> ScalingPolicy:
    from pravega_spark.streams.model.policies import ScalingPolicy

    if kib is not None and events is not None:
        raise click.UsageError("Give --scale-kib or --scale-events, not both.")
    if kib is not None:
        return ScalingPolicy.auto_scaling_policy_by_data_rate(kib, factor, segments)
    if events is not None:
        return ScalingPolicy.auto_scaling_policy_by_event_rate(events, factor, segments)
    return ScalingPolicy.fixed_scaling_policy(segments)


def _not_applied(
    name: StreamName,
    record: StreamRecord,
    scaling: ScalingPolicy,
    retention: RetentionPolicy | None,
    tags: tuple[str, ...],
) -> Iterator[str]:
    """The given options that differ from an existing stream, each with the command that changes it."""
    context = click.get_current_context()

    def given(*options: str) -> bool:
        return any(context.get_parameter_source(each) is ParameterSource.COMMANDLINE for each in options)

    segments, update = len(record.current.segments), with_root_options(f"`pravega-spark stream update {name}`")
    if given("segments") and scaling.min_segments != segments:
        how = with_root_options(f"`pravega-spark stream scale {name} --segments {scaling.min_segments}`")
        yield f"not applied: --segments {scaling.min_segments}. It has {segments}: {how} replaces them"
    scaled = scaling if given("scale_kib", "scale_events", "scale_factor") else None
    for fact in not_applied(scaled, retention, (record.scaling, record.retention)):
        yield f"not applied: {fact}. {update} changes it"
    if tags and tags != tuple(record.tags):
        yield f"not applied: its tags are: {', '.join(record.tags) or 'none'}. {update} changes them"


@click.command()
@stream_argument
@change_options
@pass_session
def seal(session: Session, name: StreamName, dry_run: bool, yes: bool) -> None:
    """Seal a stream: it can be read, but never written again."""
    manager = session.manager
    info = manager.stream_info(*name)
    if not info.sealed:
        session.confirm(
            yes,
            f"This would seal stream {name} ({counted(info.events, 'event')}) permanently: it could still be read "
            "and deleted, but not written, scaled or truncated.",
            dry_run=dry_run,
        )
        manager.seal_stream(*name)
    session.output.document({"stream": str(name), "sealed": True, "before": info.sealed})
    session.output.line(f"stream {name} was sealed" if not info.sealed else f"stream {name} is sealed already")


@click.command()
@stream_argument
@change_options
@click.option("--seal", "seal_first", is_flag=True, help="Seal the stream first, if it is not sealed.")
@pass_session
def delete(session: Session, name: StreamName, dry_run: bool, yes: bool, seal_first: bool) -> None:
    """Delete a sealed stream with all its data."""
    manager = session.manager
    if (unreadable := session.catalog.stream(*name).unreadable()) is not None:
        session.confirm(
            yes,
            f"This would delete stream {name} with all its data, whose record cannot be decoded: "
            f"{fact_of(unreadable.error)}",
            dry_run=dry_run,
        )
        manager.delete_stream(*name)
        session.output.document({"stream": str(name), "deleted": {}})
        session.output.line(f"stream {name} was deleted: its content is unknown")
        return
    info = manager.stream_info(*name)
    if not (info.sealed or seal_first):
        raise StreamNotSealed(str(name))
    segments = session.catalog.stream(*name).snapshot().record.segment_ids()
    gone = {"events": info.events, "bytes": info.size, "segments": len(segments)}
    session.confirm(yes, f"This would delete stream {name}: {_counted(gone)}.", dry_run=dry_run)
    if not info.sealed:
        manager.seal_stream(*name)
    manager.delete_stream(*name)
    session.output.document({"stream": str(name), "deleted": gone})
    session.output.line(f"stream {name} was deleted: {_counted(gone)}")


def _counted(gone: dict[str, int]) -> str:
    return ", ".join(
        size_text(count) if what == "bytes" else counted(count, what.removesuffix("s")) for what, count in gone.items()
    )
