"""`stream scale`: replaces segments of a stream."""

from __future__ import annotations

import click

from pravega_spark.cli.session import Session, pass_session
from pravega_spark.cli.stream_values import SEGMENT_COLUMNS, segment_row
from pravega_spark.console.arguments import SegmentIdType, StreamName, stream_argument
from pravega_spark.quantities import counted


@click.command()
@stream_argument
@click.option(
    "--segments", type=click.IntRange(min=1), help="Replace all segments by this many, with equal key ranges."
)
@click.option(
    "--seal",
    "sealed",
    type=SegmentIdType(),
    multiple=True,
    metavar="SEGMENT",
    help="Segment to replace: 2.1 (segment 2 of epoch 1), or its id. Repeatable.",
)
@click.option(
    "--range",
    "ranges",
    type=(click.FloatRange(0, 1), click.FloatRange(0, 1)),
    multiple=True,
    metavar="LOW HIGH",
    help="Key range (0 to 1) of a new segment. Repeatable.",
)
@pass_session
def scale(
    session: Session,
    name: StreamName,
    segments: int | None,
    sealed: tuple[int, ...],
    ranges: tuple[tuple[float, float], ...],
) -> None:
    """Replace segments by new ones that cover the same keys.

    Replace all of them with --segments, or those given by --seal with those described by --range.
    """
    from pravega_spark.streams.model.routing import even_ranges
    from pravega_spark.streams.model.stream_record import check_segments

    if (segments is None) == (not (sealed and ranges)) or (segments is not None and (sealed or ranges)):
        raise click.UsageError("Give either --segments, or --seal and --range, each once or more.")
    manager = session.manager
    before = manager.stream_info(*name)
    old = [segment.id for segment in before.segments] if segments is not None else list(sealed)
    check_segments(str(name), segments or len(ranges), session.root.config.max_segments)
    new = even_ranges(segments) if segments is not None else list(ranges)
    manager.scale_stream(*name, old, new)
    now = manager.stream_info(*name)
    rows = [{**segment_row(segment), "low": segment.low, "high": segment.high} for segment in now.segments]
    session.output.document({"stream": str(name), "sealed": old, "epoch": now.epochs[-1].epoch, "current": rows})
    session.output.line(
        f"stream {name} was scaled from {len(before.segments)} to {counted(len(now.segments), 'segment')}"
    )
    session.output.table({key: column for key, column in SEGMENT_COLUMNS.items() if key in rows[0]}, rows)
