"""`stream list` and `stream describe`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from chunkstore.errors import fact_of
from engine.errors import DataCorruption
from pravega_spark.cli.session import Session, pass_session
from pravega_spark.cli.stream_values import (
    POLICIES,
    SEGMENT_COLUMNS,
    cut_row,
    policies_row,
    policies_texts,
    print_cuts,
    segment_row,
)
from pravega_spark.console.arguments import ScopeType, StreamName, stream_argument
from pravega_spark.console.output import Headings, moment, size_column
from pravega_spark.console.program import Refused
from pravega_spark.quantities import counted, moment_text
from pravega_spark.streams.model.names import segment_name

if TYPE_CHECKING:
    from pravega_spark.client.manager import StreamInfo


@click.command("list")
@click.argument("scope", type=ScopeType(), required=False)
@click.option("--tag", help="Only streams with this tag.")
@pass_session
def list_(session: Session, scope: str | None, tag: str | None) -> None:
    """List the streams of SCOPE, or of all scopes."""
    manager = session.manager
    problems: list[DataCorruption] = []
    infos = session.in_scopes(
        scope, lambda each: manager.stream_infos(each, lambda _, error: problems.append(error), tag)
    )
    rows = [_row(StreamName(info.scope, info.stream), info) for _, info in infos]
    unreadable = {"unreadable": [fact_of(error) for error in problems]} if problems else {}
    session.output.document({"streams": rows, **unreadable})
    session.output.table(_LISTED, rows)
    for error in problems:
        session.output.warning(fact_of(error))
    if problems:
        raise Refused(f"{counted(len(problems), 'stream')} cannot be listed")


def _row(name: StreamName, info: StreamInfo) -> dict[str, Any]:
    return {
        "stream": str(name),
        "segments": len(info.segments),
        "events": info.events,
        "bytes": info.size,
        "sealed": info.sealed,
    }


@click.command()
@stream_argument
@pass_session
def describe(session: Session, name: StreamName) -> None:
    """Show everything about a stream."""
    from pravega_spark.streams.writing.transactions import open_transactions

    manager, stream = session.manager, session.catalog.stream(*name)
    info, record = manager.stream_info(*name), stream.snapshot().record
    row = _row(name, info) | {
        "epochs": len(info.epochs),
        "created": moment(record.created),
        **policies_row(record),
        "head": cut_row(info.head),
        "tail": cut_row(info.tail),
        "transactions": [str(each.id) for each in open_transactions(stream.container, f"{name}/")],
        "subscribers": {name: behind._asdict() for name, behind in info.subscribers.items()},
        "unplaced": dict(info.unplaced),
        "current": [
            {**segment_row(segment), "name": segment_name(*name, segment.id), "low": segment.low, "high": segment.high}
            for segment in info.segments
        ],
    }
    if record.unknown:
        row["unknown"] = list(record.unknown)
    session.output.document({"stream": row})
    texts = policies_texts(record) | {"created": moment_text(record.created)}
    session.output.properties(row | texts, _DESCRIBED)
    for transaction in row["transactions"]:
        session.output.line(f"open transaction {transaction}")
    for reader, behind in info.subscribers.items():
        session.output.line(f"subscriber {reader}: {behind}")
    for reader, problem in info.unplaced.items():
        session.output.line(f"the position of {reader} does not fit, so retention keeps all events: {problem}")
    for text in record.unknown:
        session.output.line(f"not known: {text}")
    print_cuts(session, [("head", info.head), ("tail", info.tail)])
    session.output.line("")
    places = [{**each, "tail": info.tail.positions.get(each["id"])} for each in row["current"]]
    session.output.table(
        SEGMENT_COLUMNS, places, title="newest segments, all sealed" if info.sealed else "open segments"
    )


_LISTED: Headings = {
    "stream": "stream",
    "segments": "segments",
    "events": "events",
    "bytes": size_column("size"),
    "sealed": "sealed",
}

_DESCRIBED: Headings = {
    **_LISTED,
    "epochs": "epochs",
    "created": "created",
    **POLICIES,
}
