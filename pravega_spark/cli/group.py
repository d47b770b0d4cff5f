"""`group`: the reader groups of a root, or of the long-term storage of a Pravega."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from chunkstore.errors import fact_of
from chunkstore.similarity import suggest
from engine.errors import DataCorruption, UnknownFormat, did_you_mean
from pravega_spark.cli.session import Session, pass_session
from pravega_spark.cli.stream_values import cut_row
from pravega_spark.console.arguments import PositionType, ScopeType, StreamName, StreamNameType, change_options
from pravega_spark.console.output import Headings, moment
from pravega_spark.console.program import Refused
from pravega_spark.errors import PositionLost
from pravega_spark.quantities import duration_text, moment_text
from pravega_spark.segment_ids import segment_label
from pravega_spark.streams.model.cuts import StreamCut, positions_text
from pravega_spark.streams.reading.stream_position import StreamPosition

if TYPE_CHECKING:
    from pravega_spark.client.groups.group import StreamReaderGroup
    from pravega_spark.client.groups.state import GroupSegment, GroupState
    from pravega_spark.streams.reading.lag import Lag


@click.command("list")
@click.argument("scope", type=ScopeType(), required=False)
@pass_session
def list_(session: Session, scope: str | None) -> None:
    """List the reader groups of a scope, or of all."""
    manager = session.manager
    rows = [{"group": f"{each}/{name}"} for each, name in session.in_scopes(scope, manager.list_reader_group)]
    session.output.document({"groups": rows})
    session.output.table({"group": "reader group"}, rows)


@click.command()
@click.argument("name", metavar="SCOPE/GROUP", type=StreamNameType("SCOPE/GROUP"))
@change_options
@pass_session
def delete(session: Session, name: StreamName, dry_run: bool, yes: bool) -> None:
    """Delete a reader group.

    Its readers go offline, and retention does not wait for it any more. A group whose state cannot be decoded is
    deleted too.
    """
    manager = session.manager
    try:
        stands = "; ".join(f"{cut.scope}/{cut.stream} at {positions_text(cut)}" for cut in _cuts(session, name))
    except UnknownFormat:
        raise
    except DataCorruption as error:
        stands = fact_of(error)
    session.confirm(yes, f"This would delete reader group {name}, which stands at: {stands}.", dry_run=dry_run)
    manager.delete_reader_group(name.stream, name.scope)
    session.output.document({"group": str(name), "deleted": True})
    session.output.line(f"reader group {name} was deleted")


@click.command()
@click.argument("name", metavar="SCOPE/GROUP", type=StreamNameType("SCOPE/GROUP"))
@click.option(
    "--to",
    "places",
    type=PositionType(),
    multiple=True,
    help="Where it continues: a stream cut, repeatable, one for each stream; or one position for all streams.",
)
@click.option("--checkpoint", metavar="NAME", help="A stored checkpoint instead.")
@change_options
@pass_session
def reset(
    session: Session,
    name: StreamName,
    places: tuple[StreamPosition, ...],
    checkpoint: str | None,
    dry_run: bool,
    yes: bool,
) -> None:
    """Make a reader group continue elsewhere.

    By default at its last checkpoint, or where it began if it has none. Online readers stay online. Events after the
    new position are read again; those before it that were not read are not read any more.
    """
    group = _group(session, name)
    planned = group.planned_reset(_reset_target(name, group, places, checkpoint))
    before = group.stream_cuts()
    rows = [{"stream": key, "before": before[key].as_text(), **cut_row(cut)} for key, cut in planned.items()]
    moves = "; ".join(
        f"{key} from {positions_text(before[key])} to {positions_text(cut)}" for key, cut in planned.items()
    )
    session.confirm(yes, f"This would move reader group {name}: {moves}.", dry_run=dry_run)
    group.reset(planned)
    session.output.document({"group": str(name), "streams": rows})
    session.output.line(f"reader group {name} was moved: {moves}")


def _group(session: Session, name: StreamName) -> StreamReaderGroup:
    """A group to change, as it is stored."""
    from pravega_spark.client.groups.group import StreamReaderGroup
    from pravega_spark.client.groups.opening import stored_group

    session.root.check_writable()
    return StreamReaderGroup(stored_group(session.root, name.scope, name.stream))


def _reset_target(
    name: StreamName, group: StreamReaderGroup, places: Sequence[StreamPosition], checkpoint: str | None
) -> Mapping[str, StreamPosition] | StreamPosition | None:
    """What the options say of where to go."""
    if checkpoint is not None:
        if places:
            raise click.UsageError("Give --to or --checkpoint, not both.")
        stored = group.checkpoints()
        if checkpoint not in stored:
            raise Refused(
                f"reader group {name} has no checkpoint {checkpoint!r}, but {', '.join(stored) or 'none'}."
                f"{did_you_mean(suggest(checkpoint, stored))}"
            )
        return stored[checkpoint]
    cuts = {f"{place.scope}/{place.stream}": place for place in places if isinstance(place, StreamCut)}
    if len(places) > 1 and len(cuts) < len(places):
        raise click.UsageError("Give one --to, or a stream cut of a stream of its own in each.")
    return cuts or next(iter(places), None)


@click.command()
@click.argument("name", metavar="SCOPE/GROUP", type=StreamNameType("SCOPE/GROUP"))
@click.argument("reader")
@change_options
@pass_session
def offline(session: Session, name: StreamName, reader: str, dry_run: bool, yes: bool) -> None:
    """Take a reader offline whose process has ended.

    It does not wait for the lease. Other readers continue at its recorded positions. A reader that runs notices within
    seconds, and reads no more.
    """
    from pravega_spark.client.groups.entry import GroupEntry

    group = _group(session, name)
    state = GroupEntry(session.root, str(name)).state()
    if reader not in state.readers:
        there = ", ".join(sorted(state.readers)) or "none"
        similar = did_you_mean(suggest(reader, state.readers))
        raise Refused(f"reader {reader} of reader group {name} is not online; online: {there}.{similar}")
    held = _names(state.readers[reader].positions) or "none"
    session.confirm(
        yes, f"This would take reader {reader} of reader group {name} offline, with segments: {held}.", dry_run=dry_run
    )
    group.reader_offline(reader)
    session.output.document(
        {"group": str(name), "reader": reader, "segments": _segments(state.readers[reader].positions)}
    )
    session.output.line(f"reader {reader} of reader group {name} is offline")


def _cuts(session: Session, name: StreamName) -> list[StreamCut]:
    return session.manager.reader_group_cuts(name.stream, name.scope)


@click.command()
@click.argument("name", metavar="SCOPE/GROUP", type=StreamNameType("SCOPE/GROUP"))
@pass_session
def describe(session: Session, name: StreamName) -> None:
    """Show the position of a reader group, its lag, and its readers.

    For each stream: the stream cut up to which the group has read, and its distance from the tail. For each online
    reader: its segments, and how many signs of life it recorded; if that number does not grow within the lease, the
    reader is dead. In the long-term storage of a Pravega, the last flushed position only.
    """
    from pravega_spark.client.groups.positions import group_state

    manager = session.manager
    rows: list[dict[str, Any]] = []
    state = group_state(session.root, name.scope, name.stream)
    cuts = list(state.cuts()) if state is not None else _cuts(session, name)
    set_back = state.set_back if state is not None else {}
    for cut in cuts:
        key, told = f"{cut.scope}/{cut.stream}", set_back.get(f"{cut.scope}/{cut.stream}")
        try:
            lag: Lag | None = manager.lag(cut)
            behind = str(lag)
        except PositionLost as lost:
            lag, behind = None, f"{lost.fact} When it is opened next, the group continues there"
        more = f"; set back on {moment_text(told.time)}, when a restore had lost what it had read" if told else ""
        row = {"stream": key, "lag": lag._asdict() if lag is not None else None, **cut_row(cut)}
        since, before = (moment(told.time), told.cut.as_text()) if told else (None, None)
        rows.append({**row, "set_back_time": since, "set_back_from": before})
        session.output.copied(f"{key}: {positions_text(cut)}, {behind}{more}", cut.as_text())
    readers = _readers(state) if state is not None else None
    free = _segments(state.unassigned) if state is not None else None
    lease = state.lease if state is not None else None
    waits = _outstanding(state) if state is not None else None
    session.output.document(
        {
            "group": str(name),
            "streams": rows,
            "readers": readers,
            "unassigned": free,
            "lease": lease,
            "outstanding_checkpoints": waits,
        }
    )
    if state is None or readers is None:
        return
    if readers:
        names = {each["reader"]: _names(state.readers[each["reader"]].positions) for each in readers}
        title = f"online readers (lease {duration_text(state.lease)})"
        rows = [{**each, "segments": names[each["reader"]] or "none"} for each in readers]
        session.output.table(_READERS, rows, title=title)
    else:
        session.output.line("no reader is online")
    if state.unassigned:
        session.output.line(f"without a reader: {_names(state.unassigned)}")
    for checkpoint, waiting in (waits or {}).items():
        session.output.line(f"checkpoint {checkpoint}: it waits for {', '.join(waiting)}")
    if state.read_completely:
        session.output.line("everything was read: each stream is sealed, or has an end")


def _outstanding(state: GroupState) -> dict[str, list[str]]:
    """The readers that have not passed a checkpoint, by its name."""
    return {each.name: sorted(each.waiting) for each in state.outstanding.values() if each.name is not None}


def _readers(state: GroupState) -> list[dict[str, Any]]:
    """The online readers, by name."""
    return [
        {"reader": reader, "signs_of_life": held.beat, "segments": _segments(held.positions)}
        for reader, held in sorted(state.readers.items())
    ]


def _segments(positions: Mapping[GroupSegment, int]) -> list[dict[str, Any]]:
    """Segments, with the recorded offsets up to which they were read."""
    return [
        {"stream": each.stream, "id": each.id, "segment": segment_label(each.id), "offset": offset}
        for each, offset in sorted(positions.items())
    ]


def _names(positions: Mapping[GroupSegment, int]) -> str:
    """Segments, for people."""
    return ", ".join(f"{each['stream']}/{each['segment']} at {each['offset']}" for each in _segments(positions))


_READERS: Headings = {
    "reader": "reader",
    "segments": "segments",
    "signs_of_life": "signs of life",
}
