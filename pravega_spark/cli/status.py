"""`status`: a root at a glance."""

from __future__ import annotations

import os
import time
from pathlib import Path

import click

from pravega_spark.cli.session import Session, pass_session
from pravega_spark.console.arguments import ScopeType, storage_option
from pravega_spark.console.program import Refused
from pravega_spark.status import RootStatus, root_status
from pravega_spark.status_document import status_document
from pravega_spark.status_texts import text_tables


@click.command()
@click.argument("scope", type=ScopeType(), required=False)
@click.option(
    "--checkpoint",
    "checkpoints",
    metavar="DIR",
    multiple=True,
    help="The checkpointLocation of a Spark query, which is shown as a consumer. Repeatable.",
)
@storage_option("--elsewhere", "the checkpoints'")
@click.option(
    "--watch", type=click.FloatRange(min=0.1), metavar="SECONDS", help="Show it again and again, until interrupted."
)
@click.option(
    "-o",
    "--output",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a file instead: a page (.html), or metrics for Prometheus (.prom). It is replaced as a whole.",
)
@pass_session
def status(
    session: Session,
    scope: str | None,
    checkpoints: tuple[str, ...],
    options: dict[str, object],
    watch: float | None,
    file: Path | None,
) -> None:
    """Show streams, consumers and containers at a glance.

    These are those of SCOPE, or of all scopes. Rates are those of the last minute. Reader groups, subscribers of
    retention, and queries given by --checkpoint are consumers.
    """
    if file is not None and file.suffix not in _FILES:
        raise click.BadParameter(f"{str(file)!r} must end with {' or '.join(_FILES)}", param_hint="--output")
    places = dict.fromkeys(checkpoints, options or None)
    while True:
        found = root_status(session.root, scope, places)
        if file is not None:
            _replace(file, _FILES[file.suffix](found))
        elif session.output.as_json:
            (session.output.document if watch is None else session.output.record)(status_document(found))
        else:
            if watch is not None:
                click.clear()
            _print(session, found)
        if watch is None:
            break
        time.sleep(watch)
    if found.problems:
        raise Refused(f"{len(found.problems)} of the root's parts cannot be read")


def _page(found: RootStatus) -> str:
    from pravega_spark.status_page import status_page

    return status_page(found)


def _metrics(found: RootStatus) -> str:
    from pravega_spark.status_metrics import StatusMetrics

    return StatusMetrics(found).text()


_FILES = {".html": _page, ".prom": _metrics}


def _replace(file: Path, content: str) -> None:
    partial = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        partial.write_text(content)
        partial.replace(file)
    finally:
        partial.unlink(missing_ok=True)


def _print(session: Session, found: RootStatus) -> None:
    for title, headings, rows in text_tables(found):
        named = [dict(zip(headings, row, strict=True)) for row in rows]
        session.output.table({heading: heading for heading in headings}, named, title)
    for problem in found.problems:
        session.output.warning(problem)
