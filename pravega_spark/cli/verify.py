"""`verify`: checks that a root is complete and consistent."""

from __future__ import annotations

import json
from typing import Any

import click

from engine.admin.verify import Finding, Report
from pravega_spark.cli.session import Session, pass_session
from pravega_spark.console.output import Column, Headings, id_column, size_column
from pravega_spark.console.program import Refused
from pravega_spark.quantities import counted, size_text


@click.command()
@click.option("--deep", is_flag=True, help="Also read all data, compare it with its checksums, and check all events.")
@pass_session
def verify(session: Session, deep: bool) -> None:
    """Check that the root is complete and consistent.

    Logs, checkpoints, tables, chunks, recovery points and indexes are checked. Nothing is written, and other
    processes may use the root meanwhile. Fails if it finds an error.
    """
    from pravega_spark.checks import verify_root  # slow to import, and most commands do not need it

    with session.output.progress() as progress:
        report = verify_root(session.root, progress, deep)
    session.reported = True
    if session.output.as_json:
        _print_json(report)
    else:
        _print(session, report)
    if report.errors:
        raise Refused(f"found {counted(report.errors, 'error')} and {counted(report.warnings, 'warning')}")


def _print(session: Session, report: Report) -> None:
    output = session.output
    output.table(_COUNTS, [_counts(report, place) for place in range(len(report.containers))], title="checked")
    if report.ours:
        output.table(_BALANCE, [balance._asdict() for balance in report.balances], title="storage")
    orphans = report.orphans
    if not report.ours:
        output.line("This is the long-term storage of a Pravega, which is only read; orphans are not searched.")
    elif orphans is None:
        output.line("Orphans and bytes are unknown, because not every container could be read completely.")
    elif orphans.number:
        output.line(
            f"{counted(orphans.number, 'unreferenced object')} ({size_text(orphans.bytes)}), {orphans.recent} of them "
            "younger than a day and possibly about to be attached by a task:"
        )
        for name in orphans.names:
            output.line(f"  {name}")
    for finding in report.findings:
        row = _finding(finding)
        where = "root" if finding.container is None else f"container {finding.container}"
        output.line(f"{row['severity']}: {where}: {finding.object}: {finding.problem}. Remedy: {finding.remedy}.")
    healthy = not report.errors + report.warnings
    what = "healthy" if healthy else f"{counted(report.errors, 'error')}, {counted(report.warnings, 'warning')}"
    output.line(f"{what}; data was {_how(report)}.")


def _how(report: Report) -> str:
    if not report.deep:
        return "not read: --deep reads it and looks for damage"
    return "compared with its checksums" if report.ours else "read: all events are whole; there are no checksums"


def _print_json(report: Report) -> None:
    """One document. Its findings are printed one by one, as there may be any number."""
    orphans = report.orphans
    head = {
        "healthy": not report.errors,
        "deep": report.deep,
        "errors": report.errors,
        "warnings": report.warnings,
        "containers": [_counts(report, place) for place in range(len(report.containers))],
        "balances": [balance._asdict() for balance in report.balances],
        "orphans": {**orphans._asdict(), "names": list(orphans.names)} if orphans is not None else None,
    }
    click.echo('{"verify": ' + json.dumps(head, indent=2)[:-2] + ',\n  "findings": [', nl=False)
    separator = "\n    "
    for finding in report.findings:
        click.echo(separator + json.dumps(_finding(finding)), nl=False)
        separator = ",\n    "
    click.echo("]}}")


def _finding(finding: Finding) -> dict[str, Any]:
    return {**finding._asdict(), "severity": finding.severity.value}


def _counts(report: Report, place: int) -> dict[str, int]:
    survey, log = report.containers[place]
    return {
        "number": survey.container,
        "sequence": survey.sequence,
        "frames": log.live,
        "void_frames": log.void,
        "checkpoints": log.checkpoints,
        "segments": survey.segments,
        "bytes": survey.bytes,
        "chunks": survey.chunks,
        "tables": survey.tables,
        "entries": survey.entries,
        "recovery_point": survey.cycle,
    }


_COUNTS: Headings = {
    "number": id_column("container"),
    "segments": "segments",
    "bytes": size_column("size"),
    "chunks": "chunks",
    "entries": "table entries",
    "frames": "frames",
    "checkpoints": Column("checkpoints", wide=True),
    "tables": Column("tables", wide=True),
    "recovery_point": id_column("recovery point", wide=True),
}

_BALANCE: Headings = {
    "container": id_column("container"),
    "live": size_column("live"),
    "truncated": size_column("truncated"),
    "garbage": size_column("garbage"),
    "tables": size_column("tables", wide=True),
    "recovery_points": size_column("recovery points", wide=True),
    "surplus": size_column("surplus", wide=True),
    "total": size_column("total"),
    "log": size_column("log"),
}
