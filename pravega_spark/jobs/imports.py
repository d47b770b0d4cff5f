"""The import job: `python -m pravega_spark.jobs.imports --source URI --root URI`.

On a cluster, executors import the segments, one task for each: they read, check and write the bytes, and store their
progress. The driver plans, and creates each stream by one append. A repeated task continues where the previous one
stopped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from chunkstore import StorageError, open_store
from engine.errors import RootNotFound
from pravega_spark.console.advice import elsewhere
from pravega_spark.console.jobs import IMPORT
from pravega_spark.jobs.command import program
from pravega_spark.jobs.outcome import NOTE, JobOutcome
from pravega_spark.jobs.spread import Target, check
from pravega_spark.quantities import counted, size_text
from pravega_spark.roots import open_root, opened_root
from pravega_spark.streams.pravega_lts.imports import (
    Bring,
    Brought,
    Import,
    ImportedStream,
    ImportReport,
    SegmentTask,
    bring_segment,
)
from pravega_spark.streams.pravega_lts.table_import import ImportedTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(
    target: Target,
    *,
    source: str,
    copied: bool = False,
    byte_streams: Sequence[object] = (),
    source_options: Mapping[str, Any] | None = None,
    salvage: bool = False,
    unrecorded: bool = False,
    dry_run: bool = False,
    spark: SparkSession | None = None,
) -> list[JobOutcome]:
    """Import the selected streams of the long-term storage `source`, whose filesystem gets `source_options`.

    copied: copy the data; otherwise it is hard-linked, which requires folders on one filesystem. byte_streams: streams,
    as "scope/stream", whose bytes are not events. salvage, unrecorded: see `Import`. The root is created if its folder
    or bucket is empty. spark: a cluster whose executors reach both storages. Raises ValueError, StorageError.
    """
    check(target)
    name = target.scope if target.stream is None else f"{target.scope}/{target.stream}"
    with elsewhere(source, source_options) as store:
        names, byte_names = [] if name is None else [name], [str(each) for each in byte_streams]
        found = Import(store, names, byte_names, copied, salvage=salvage, unrecorded=unrecorded)
    if dry_run:
        return _outcomes(_report(found, target))
    root = open_root(target.root, target.storage, target.wal, create=True)
    brought = _on(spark, target, source, source_options or {}) if spark is not None else None
    return _outcomes(found.run(root, brought))


def _report(found: Import, target: Target) -> ImportReport:
    try:
        with opened_root(target.root, target.storage, wal=target.wal, create=True, empty=True, dry_run=True) as root:
            return found.report(root)
    except RootNotFound as missing:
        return found.report(None, missing.root)


def _on(spark: SparkSession, target: Target, source: str, options: Mapping[str, Any]) -> Bring:
    """A function that imports segments on the executors."""

    def brought(tasks: Sequence[SegmentTask]) -> list[Brought]:
        if not tasks:
            return []
        spread = spark.sparkContext.parallelize(tasks, len(tasks))
        found: list[Brought] = spread.map(partial(_brought, target, source, options)).collect()
        return found

    return brought


def _brought(target: Target, source: str, options: Mapping[str, Any], task: SegmentTask) -> Brought:
    """Runs in a task. Returns errors: if raised, they would reach the driver as text in an error of Spark."""
    try:
        stores = open_store(source, options), open_store(target.root, target.storage)
    except StorageError as error:
        return error
    try:
        return bring_segment(*stores, task)
    finally:
        for store in stores:
            store.close()


def _outcomes(report: ImportReport) -> list[JobOutcome]:
    """The outcome of each stream, then notes on what is not imported, and on what is not known of the whole storage."""
    notes = [JobOutcome("", "", NOTE, detail=f"not imported: {what}") for what in report.left_out]
    notes += [
        JobOutcome(each.scope, each.stream, NOTE, detail=what)
        for each in report.streams
        for what in (*each.not_imported, *each.recovered)
    ]
    notes += [JobOutcome("", "", NOTE, detail=f"not known: {what}") for what in report.unknown]
    notes += [JobOutcome(scope, "", NOTE, detail="the scope has no streams") for scope in report.empty_scopes]
    return [*map(_outcome, report.streams), *map(_table_outcome, report.tables), *notes]


def _outcome(each: ImportedStream) -> JobOutcome:
    changes = each.outcome in ("new", "imported")
    detail = f"{each.outcome}: {counted(each.segments, 'segment')}, {size_text(each.bytes)}"
    if each.transactions:
        detail += f", without {counted(len(each.transactions), 'open transaction')}"
    size = each.bytes if changes else 0
    return JobOutcome(each.scope, each.stream, "import", changes, size, detail, each.problem)


def _table_outcome(each: ImportedTable) -> JobOutcome:
    changes = each.outcome in ("new", "imported")
    detail = f"{each.outcome}: key-value table, {counted(each.entries, 'key')}, {size_text(each.bytes)}"
    return JobOutcome(each.scope, each.table, "import", changes, each.bytes, detail, each.problem)


_SOURCE = click.Option(
    ["--source"],
    metavar="URI",
    required=True,
    help="The folder or bucket that the segment stores wrote to; stop them first.",
)

_ARCHIVE = [
    click.Option(["--salvage"], is_flag=True, help="Import the sound part of damaged streams."),
    click.Option(["--unrecorded"], is_flag=True, help="Also import events that a killed server did not record."),
]

main = program(IMPORT, run, _SOURCE, *_ARCHIVE)

if __name__ == "__main__":
    main()
