"""`import`: imports streams from the long-term storage of a Pravega (see `pravega_lts.imports`)."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from chunkstore.urls import redact
from engine.errors import RootNotFound
from engine.root import Root
from pravega_spark.cli.session import Session, pass_session
from pravega_spark.console.advice import elsewhere
from pravega_spark.console.arguments import change_options
from pravega_spark.console.jobs import IMPORT
from pravega_spark.console.output import Column, Headings, Output, size_column
from pravega_spark.console.program import NothingChanged, Refused
from pravega_spark.errors import ScopeNotFound, StreamNotFound
from pravega_spark.quantities import counted

if TYPE_CHECKING:
    from pravega_spark.streams.pravega_lts.imports import ImportReport


_ARGUMENTS = """\
SOURCE is the folder or bucket that the segment stores wrote to; stop them first. All scopes are imported, unless scopes
or streams are named."""


@click.command("import", help=f"{inspect.cleandoc(IMPORT.help)}\n\n{_ARGUMENTS}")
@click.argument("source")
@click.argument("names", metavar="[SCOPE[/STREAM]]...", nargs=-1)
@IMPORT.with_options
@change_options
@pass_session
def import_(
    session: Session,
    source: str,
    names: tuple[str, ...],
    copied: bool,
    byte_streams: tuple[Any, ...],
    source_options: dict[str, object],
    dry_run: bool,
    yes: bool,
) -> None:
    """Import streams from the long-term storage of a Pravega.

    SOURCE is the folder or bucket that the segment stores wrote to; stop them first. All scopes are imported, or the
    named scopes and streams. Policies, tags, epochs, segment ids, offsets and stream cuts stay the same. The root is
    created if it does not exist. SOURCE is never changed, whatever happens to the root.

    Without --copy the data is hard-linked, so SOURCE and the root must be folders on one filesystem; otherwise give
    --copy. Either way every event is checked. Repeat the command if it was interrupted: it continues.
    """
    from pravega_spark.streams.pravega_lts.imports import Import  # slow to import, and most commands do not need it

    root, place = _find_root(session)
    try:
        with elsewhere(source, source_options) as store:
            byte_names = [str(name) for name in byte_streams]
            found = Import(store, names, byte_names, copied, salvage=session.salvage, unrecorded=session.unrecorded)
    except (ScopeNotFound, StreamNotFound) as error:
        raise Refused(f"{redact(source)} has not what is named. {error.fact}") from None
    report = found.report(root, place)
    if dry_run or not yes:
        show(session.output, report, "would be imported")
        if not dry_run:
            session.output.warning(f"{_counts(report, 'new')} would be imported into {session.url}")
            raise NothingChanged()
    else:
        with session.output.progress() as progress:
            session.dry_run = False
            report = found.run(session.root, progress=progress)
        show(session.output, report, "imported")
    if report.failed:
        verb, first = "cannot be" if dry_run else "were not", report.failed[0]
        raise Refused(f"{len(report.failed)} of {_counts(report)} {verb} imported; first error: {first.problem}")


def _find_root(session: Session) -> tuple[Root | None, str]:
    """The root; or None, and the location where it would be created. Raises the errors of creating it."""
    session.new_root = session.dry_run = True
    try:
        session.root.check_writable()
        return session.root, ""
    except RootNotFound as missing:
        return None, missing.root


def show(output: Output, report: ImportReport, done: str) -> None:
    """Print what was imported, or would be, and what was left out."""
    streams, tables = ([each._asdict() for each in found] for found in (report.streams, report.tables))
    output.document({"import": {**report._asdict(), "streams": streams, "tables": tables}})
    output.table(_COLUMNS, [_row(each) for each in report.streams], title=report.source)
    for line in _lines(report):
        output.warning(line)
    for scope in report.empty_scopes:
        output.line(f"scope {scope}, which has no streams, {done}")
    for table in report.tables:
        output.line(f"key-value table {table.scope}/{table.table}: {table.outcome}")
    count = sum(each.outcome in ("new", "imported") for each in report.streams)
    output.line(f"{count} of {counted(len(report.streams), 'stream')} {done}")


def _counts(report: ImportReport, outcome: str = "") -> str:
    """How many streams have an outcome, or any; and how many key-value tables, if one of those failed."""
    streams, tables = (
        sum(outcome in ("", each.outcome) for each in found) for found in (report.streams, report.tables)
    )
    failed = any(each.problem is not None for each in report.tables)
    more = f" and {counted(tables, 'key-value table')}" if failed else ""
    return f"{counted(streams, 'stream')}{more}"


def _row(each: Any) -> dict[str, Any]:
    return {**each._asdict(), "name": f"{each.scope}/{each.stream}", "open": len(each.transactions)}


def _lines(report: ImportReport) -> Sequence[str]:
    """Warnings: data that is not imported, and information that is missing."""
    lines = [each.problem for each in report.failed if each.problem is not None]
    for each in report.streams:
        name = f"{each.scope}/{each.stream}"
        lines += [f"{name}: {what}" for what in each.unknown]
        if each.transactions:
            lines.append(f"{name}: open transactions are not imported: {', '.join(each.transactions)}")
        lines += [f"{name}: {what}" for what in each.not_imported]
        lines += [f"{name}: {what}" for what in each.recovered]
    return [*lines, *(f"not imported: {what}" for what in report.left_out), *report.unknown]


_COLUMNS: Headings = {
    "name": "stream",
    "outcome": "outcome",
    "segments": "segments",
    "chunks": Column("chunks", wide=True),
    "bytes": size_column("size"),
    "events": "events",
    "open": Column("open transactions", wide=True),
}
