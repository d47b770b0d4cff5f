"""`group`: the reader groups of a root, or those that a Pravega left in its long-term storage."""

from __future__ import annotations

import click

from pravega_spark.cli.session import Session, pass_session
from pravega_spark.cli.streams import cut_row
from pravega_spark.console.arguments import ScopeType, StreamName, StreamNameType
from pravega_spark.streams.cuts import positions_text


@click.group()
def group() -> None:
    """List reader groups, and show where they stand."""


@group.command("list")
@click.argument("scope", type=ScopeType(), required=False)
@pass_session
def list_(session: Session, scope: str | None) -> None:
    """List the reader groups of a scope, or of all."""
    manager = session.manager
    rows = [{"group": f"{each}/{name}"} for each, name in session.in_scopes(scope, manager.list_reader_group)]
    session.output.document({"groups": rows})
    session.output.table({"group": "reader group"}, rows)


@group.command()
@click.argument("name", metavar="SCOPE/GROUP", type=StreamNameType("SCOPE/GROUP"))
@pass_session
def describe(session: Session, name: StreamName) -> None:
    """Show where a reader group stands, and its lag.

    For each stream: the stream cut up to which it has read, and how far that is behind the tail. In the long-term
    storage of a Pravega, as far as its state was flushed.
    """
    manager = session.manager
    rows = []
    for cut in manager.reader_group_cuts(name.stream, name.scope):
        rows.append({"stream": f"{cut.scope}/{cut.stream}", "lag": manager.lag(cut)._asdict(), **cut_row(cut)})
        session.output.copied(f"{rows[-1]['stream']}: {positions_text(cut)}, {manager.lag(cut)}", cut.as_text())
    session.output.document({"group": str(name), "streams": rows})
