"""`stream cuts` and `stream lag`."""

from __future__ import annotations

import click

from pravega_spark.cli.session import Session, pass_session
from pravega_spark.cli.stream_values import cut_row, print_cuts
from pravega_spark.console.advice import elsewhere
from pravega_spark.console.arguments import (
    Moment,
    MomentType,
    PositionType,
    StreamName,
    StreamNameType,
    storage_option,
    stream_argument,
)
from pravega_spark.console.output import moment
from pravega_spark.console.program import Refused
from pravega_spark.streams.model.cuts import positions_text
from pravega_spark.streams.reading.stream_position import StreamPosition, cut_at


@click.command()
@stream_argument
@click.option(
    "--at",
    "moments",
    type=MomentType(),
    multiple=True,
    metavar="TIME",
    help="List the cut before the first event written at this time or later. Repeatable.",
)
@pass_session
def cuts(session: Session, name: StreamName, moments: tuple[Moment, ...]) -> None:
    """List the stream cuts of head, tail and given times."""
    manager = session.manager
    info = manager.stream_info(*name)
    found = [(moment(at) or "0", at.ago, manager.stream_cut_at(*name, at)) for at in moments]
    found = [("head", "", info.head), *found, ("tail", "", info.tail)]
    session.output.document({"stream": str(name), "cuts": [{"at": at, **cut_row(cut)} for at, _, cut in found]})
    print_cuts(session, [(f"{ago} ({at})" if ago else at, cut) for at, ago, cut in found])


@click.command()
@stream_argument
@click.option("--checkpoint", metavar="DIR", help="The checkpointLocation of a Spark query that reads the stream.")
@click.option("--group", metavar="[SCOPE/]GROUP", help="A reader group; without a scope, of the stream's.")
@click.option("--from", "place", type=PositionType(), help="Any position instead of a reader.")
@storage_option("--elsewhere", "the checkpoint's")
@pass_session
def lag(
    session: Session,
    name: StreamName,
    checkpoint: str | None,
    group: str | None,
    place: StreamPosition | None,
    options: dict[str, object],
) -> None:
    """Show how far a reader is behind the tail.

    The reader is a Spark query, by its checkpoint, or a reader group; --from takes any position instead.
    """
    from pravega_spark.client.groups.positions import group_cuts
    from pravega_spark.source.checkpoint import query_position

    if sum(found is not None for found in (checkpoint, group, place)) != 1:
        raise click.UsageError("Give one of --checkpoint, --group and --from.")
    manager = session.manager
    if checkpoint is not None:
        with elsewhere(checkpoint, options):
            cut = query_position(checkpoint, *name, options)
    elif place is not None:
        cut = session.catalog.stream(*name).query(lambda snapshot: cut_at(place, snapshot))
    else:
        qualified = str(group) if "/" in str(group) else f"{name.scope}/{group}"
        reader_group: StreamName = StreamNameType("SCOPE/GROUP").convert(qualified, None, None)
        cuts = group_cuts(session.root, *reader_group)
        found = [cut for cut in cuts if (cut.scope, cut.stream) == name]
        if not found:
            there = ", ".join(f"{cut.scope}/{cut.stream}" for cut in cuts)
            raise Refused(f"reader group {reader_group} does not read stream {name}, but {there}")
        cut = found[0]
    behind = manager.lag(cut)
    session.output.document({"stream": str(name), "lag": behind._asdict(), "position": cut_row(cut)})
    session.output.line(f"stream {name}: {behind}")
    session.output.copied(positions_text(cut), cut.as_text())
