"""The import job: `python -m pravega_spark.jobs.imports --source URI --root URI`.

With a cluster, executors bring the segments, one task for each: they read, check and write their bytes, and keep how
far they are. The driver plans, and lets each stream appear by one append. A task that is repeated goes on where the
other one was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from chunkstore import StorageError, open_store
from engine.errors import RootNotFound
from pravega_spark.console.arguments import storage_option
from pravega_spark.jobs.command import job
from pravega_spark.jobs.outcome import NOTE, JobOutcome
from pravega_spark.jobs.spread import Target, check
from pravega_spark.quantities import counted, size_text
from pravega_spark.roots import open_root, opened_root
from pravega_spark.storage_options import open_checked
from pravega_spark.streams.pravega_lts.imports import (
    Bring,
    Brought,
    Import,
    ImportedStream,
    ImportReport,
    SegmentTask,
    bring_segment,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(
    target: Target,
    *,
    source: str,
    copied: bool = False,
    source_options: Mapping[str, Any] | None = None,
    dry_run: bool = False,
    spark: SparkSession | None = None,
) -> list[JobOutcome]:
    """Import the selected streams of the long-term storage `source`, whose filesystem gets `source_options`.

    copied: copy the data; else it is linked, which moves no byte and takes folders on one filesystem. The root is
    created if its place is empty. spark: a cluster whose executors reach both places. Raises ValueError, StorageError.
    """
    check(target)
    store = open_checked(source, source_options)
    name = target.scope if target.stream is None else f"{target.scope}/{target.stream}"
    found = Import(store, [] if name is None else [name], copied=copied)
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
    """Brings segments on the executors."""

    def brought(tasks: Sequence[SegmentTask]) -> list[Brought]:
        if not tasks:
            return []
        spread = spark.sparkContext.parallelize(tasks, len(tasks))
        found: list[Brought] = spread.map(partial(_brought, target, source, options)).collect()
        return found

    return brought


def _brought(target: Target, source: str, options: Mapping[str, Any], task: SegmentTask) -> Brought:
    """A task. Errors are returned: raised, they would reach the driver as text within one of Spark's."""
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
    """What became of each stream, then what does not come, and what is not known, of the whole storage."""
    told = [JobOutcome("", "", NOTE, detail=f"left out: {what}") for what in report.left_out]
    told += [JobOutcome("", "", NOTE, detail=f"not known: {what}") for what in report.unknown]
    told += [JobOutcome(scope, "", NOTE, detail="the scope comes, and has no streams") for scope in report.empty_scopes]
    return [*map(_outcome, report.streams), *told]


def _outcome(each: ImportedStream) -> JobOutcome:
    changes = each.outcome in ("new", "imported")
    detail = f"{each.outcome}: {counted(each.segments, 'segment')}, {size_text(each.bytes)}"
    if each.transactions:
        detail += f", left out {counted(len(each.transactions), 'transaction')}, not committed"
    size = each.bytes if changes else 0
    return JobOutcome(each.scope, each.stream, "import", changes, size, detail, each.problem)


main = job(
    "imports",
    """Import streams of a Pravega cluster from its long-term storage.

    Policies, tags, epochs, segment ids, offsets and stream cuts stay the same. The root is created if its place is
    empty. The source is left as it is. Repeat the program if it was interrupted: it goes on where it was.
    """,
)(run)
main.params += [
    click.Option(
        ["--source"],
        metavar="URI",
        required=True,
        help="The folder or bucket that the segment stores wrote to; stop them first.",
    ),
    click.Option(["--copy", "copied"], is_flag=True, help="Copy the data, to any place. Without it no byte moves."),
]
storage_option("--elsewhere", "the source's", "source_options")(main)

if __name__ == "__main__":
    main()
