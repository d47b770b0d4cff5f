"""`verify`: whether everything in a root is there and agrees with itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from engine import verify as verification
from engine.verify import Finding, Report
from pravega_spark.cli.session import Refused, Session, pass_session

if TYPE_CHECKING:
    from rich.progress import Progress


@click.command()
@click.option("--deep", is_flag=True, help="Read all data too, against its checksums, and walk all events.")
@pass_session
def verify(session: Session, deep: bool) -> None:
    """Look at everything in the root: logs, checkpoints, tables, chunks, backups, indices.

    Other processes may use the root meanwhile, and nothing is written. Fails if it finds an error.
    """
    from pravega_spark.streams.verification import check_events  # takes longer to load than all other commands need

    with session.output.progress() as bar:
        report = verification.verify(session.root, _teller(bar), deep, [check_events])
    if session.output.as_json:
        _print_json(report)
    else:
        _print(session, report)
    if report.errors:
        raise Refused(f"{report.errors} errors and {report.warnings} warnings were found")


def _teller(bar: Progress | None) -> Callable[[str, int, int], None] | None:
    if bar is None:
        return None
    task = bar.add_task("", total=None)
    return lambda what, done, total: bar.update(task, description=what, completed=done, total=total or None)


def _print(session: Session, report: Report) -> None:
    output = session.output
    output.table(_COUNTS, [_counts(report, place) for place in range(len(report.containers))], title="looked at")
    output.table(_BALANCE, [balance._asdict() for balance in report.balances], title="bytes")
    orphans = report.orphans
    if orphans is None:
        output.line("Not every container could be looked at whole, so that orphans and bytes cannot be told.")
    elif orphans.number:
        output.line(
            f"{orphans.number} objects with {orphans.bytes} bytes belong to nothing, {orphans.recent} of them younger "
            "than a day, so that a task may be about to attach them:"
        )
        for name in orphans.names:
            output.line(f"  {name}")
    for finding in report.findings:
        row = _finding(finding)
        where = "root" if finding.container is None else f"container {finding.container}"
        output.line(f"{row['severity']}: {where}: {finding.object}: {finding.problem}. To do: {finding.remedy}.")
    what = "looked healthy" if not len(report.findings) else f"{report.errors} errors, {report.warnings} warnings"
    output.line(f"{what}; data was {'read and compared with its checksums' if report.deep else 'not read'}.")


def _print_json(report: Report) -> None:
    """One document, whose findings are printed one after the other: there may be any number."""
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
        "backup": survey.cycle,
    }


_COUNTS = {
    "number": "container",
    "frames": "frames",
    "checkpoints": "checkpoints",
    "segments": "segments",
    "bytes": "bytes",
    "chunks": "chunks",
    "tables": "tables",
    "entries": "entries",
    "backup": "backup",
}

_BALANCE = {
    "container": "container",
    "live": "live",
    "truncated": "truncated",
    "tables": "tables",
    "garbage": "garbage",
    "backups": "backups",
    "surplus": "surplus",
    "total": "total",
    "log": "log",
}
