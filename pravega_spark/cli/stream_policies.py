"""`stream update`: changes the policies, tags and value format of a stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from pravega_spark.cli.session import Session, pass_session
from pravega_spark.cli.stream_values import POLICIES, policies_row, policies_texts, retention_of, retention_options
from pravega_spark.console.arguments import StreamName, dry_run_option, stream_argument
from pravega_spark.quantities import counted

if TYPE_CHECKING:
    from pravega_spark.streams.model.policies import ScalingPolicy
    from pravega_spark.streams.model.stream_record import StreamRecord, StreamUpdate
    from pravega_spark.streams.values.value_format import ValueFormat


@click.command()
@stream_argument
@click.option(
    "--min-segments",
    type=click.IntRange(min=1),
    help="Number of segments of a stream that does not scale automatically, and the minimum of others. Segments are "
    "replaced at once if there are others.",
)
@click.option("--scale-kib", type=click.IntRange(min=1), help="Split a segment above this rate, in KiB per second.")
@click.option(
    "--scale-events", type=click.IntRange(min=1), help="Split a segment above this rate, in events per second."
)
@click.option("--scale-factor", type=click.IntRange(min=2), help="Number of segments that a split makes.")
@click.option("--no-scaling", is_flag=True, help="Do not scale automatically any more: keep the present segments.")
@retention_options
@click.option("--no-retention", is_flag=True, help="Keep everything.")
@click.option("--tag", "tags", multiple=True, help="Tag instead of those that the stream has. Repeatable.")
@click.option("--no-tags", is_flag=True, help="Remove all tags.")
@click.option("--value-format", type=click.Choice(["json", "avro"]), help="How its events hold structured values.")
@click.option("--value-schema", help="Fields of the values: 'id bigint, name string', or for avro its schema as JSON.")
@click.option("--no-value-format", is_flag=True, help="Keep no format of values any more.")
@dry_run_option
@pass_session
def update(
    session: Session, /, name: StreamName, tags: tuple[str, ...], no_tags: bool, dry_run: bool, **given: Any
) -> None:
    """Change policies, tags and value format of a stream. What no option is given for is unchanged.

    A scaling policy that requires another number of segments replaces all segments, in the same step.
    """
    from pravega_spark.streams.model.stream_record import UNCHANGED, StreamUpdate, checked_tags
    from pravega_spark.streams.values.value_format import stored_values

    if not (tags or no_tags or any(given.values())):
        raise click.UsageError("Give at least one option that changes something.")
    if tags and no_tags:
        raise click.UsageError("Give --tag or --no-tags, not both.")
    labels = checked_tags(tags) if tags or no_tags else UNCHANGED
    values = _values(given["value_format"], given["value_schema"], given["no_value_format"])

    def chosen(record: StreamRecord) -> StreamUpdate:
        scaling = _scaling(record, **{key: given[key] for key in _SCALING})
        retention = retention_of(given, record.retention)
        if retention is not None and given["no_retention"]:
            raise click.UsageError("Give only one of --retain-size, --retain-time and --no-retention.")
        stored = None if values is None else stored_values(values, record, str(name))
        return StreamUpdate(
            scaling if scaling is not None else UNCHANGED,
            retention if retention is not None or given["no_retention"] else UNCHANGED,
            labels,
            stored if stored is not None or given["no_value_format"] else UNCHANGED,
        )

    found = session.catalog.stream(*name)
    segments = len(found.snapshot().record.current.segments)
    if dry_run:
        session.confirm(False, *_would(name, segments, found.planned_update(chosen)), dry_run=True)
    found.update_by(chosen)
    record = found.snapshot().record
    now = len(record.current.segments)
    session.output.document({"stream": str(name), **policies_row(record), "segments": now})
    session.output.line(f"stream {name} was updated; its policies and tags are now:")
    session.output.properties(policies_texts(record), POLICIES)
    if now != segments:
        session.output.line(f"it was scaled from {segments} to {counted(now, 'segment')}")


def _would(name: StreamName, segments: int, record: StreamRecord) -> Iterator[str]:
    """What an update would do. segments: their number now. record: of the stream after it."""
    yield f"This would update stream {name}; its policies and tags would be:"
    for what, text in policies_texts(record).items():
        if text is not None:
            yield f"{what}: {text}"
    if (then := len(record.current.segments)) != segments:
        yield f"It would be scaled from {segments} to {counted(then, 'segment')}."


def _values(format: str | None, schema: str | None, none: bool) -> ValueFormat | None:
    """The new format of values, None if none is given."""
    if (format is None) != (schema is None):
        raise click.UsageError("Give --value-format and --value-schema together.")
    if format is None or schema is None:
        return None
    if none:
        raise click.UsageError("Give --value-format or --no-value-format, not both.")
    from pravega_spark.streams.values.value_format import ValueFormat

    try:
        return ValueFormat("avro" if format == "avro" else "json", schema)
    except ValueError as error:
        raise click.UsageError(f"--value-schema: {error}") from None


_SCALING = ("min_segments", "scale_kib", "scale_events", "scale_factor", "no_scaling")


def _scaling(
    record: StreamRecord,
    min_segments: int | None,
    scale_kib: int | None,
    scale_events: int | None,
    scale_factor: int | None,
    no_scaling: bool,
) -> ScalingPolicy | None:
    """The new policy, with the present values for options that are not given; None if none is given."""
    from pravega_spark.streams.model.policies import ScalingPolicy

    if bool(scale_kib) + bool(scale_events) + no_scaling > 1:
        raise click.UsageError("Give only one of --scale-kib, --scale-events and --no-scaling.")
    if not (min_segments or scale_kib or scale_events or scale_factor or no_scaling):
        return None
    now = record.scaling
    least = min_segments or (len(record.current.segments) if no_scaling else now.min_segments)
    if scale_kib:
        return ScalingPolicy("bytes", least, scale_kib, scale_factor or now.scale_factor or 2)
    if scale_events:
        return ScalingPolicy("events", least, scale_events, scale_factor or now.scale_factor or 2)
    if no_scaling or now.kind == "fixed":
        if scale_factor:
            raise click.UsageError("--scale-factor requires --scale-kib or --scale-events: the stream does not scale.")
        return ScalingPolicy.fixed_scaling_policy(least)
    return ScalingPolicy(now.kind, least, now.target_rate, scale_factor or now.scale_factor)
