"""`group`: the reader groups of a root, or of the long-term storage of a Pravega."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from chunkstore.errors import fact_of
from engine.errors import DataCorruption, UnknownFormat
from pravega_spark.cli.session import Session, pass_session
from pravega_spark.cli.stream_values import cut_row
from pravega_spark.console.arguments import ScopeType, StreamName, StreamNameType, change_options
from pravega_spark.console.output import Headings, moment
from pravega_spark.errors import PositionLost
from pravega_spark.quantities import duration_text, moment_text
from pravega_spark.segment_ids import segment_label
from pravega_spark.streams.model.cuts import StreamCut, positions_text

if TYPE_CHECKING:
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
    session.output.document(
        {"group": str(name), "streams": rows, "readers": readers, "unassigned": free, "lease": lease}
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
