"""The maintenance job: `python -m pravega_spark.jobs.maintain --root URI`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from chunkstore import StorageFull
from chunkstore.compaction import CopyTasks
from engine.admin import orphans, root_gc
from engine.admin.checks.findings import Severity
from engine.admin.orphans import AGE
from engine.admin.progress import Progress, no_progress
from engine.admin.verify import verify
from engine.root import Root
from engine.writer.compaction import CompactedSegment, compact_segments
from pravega_spark.checks import CONTENT_CHECKS, ENTRY_CHECKS
from pravega_spark.console.jobs import MAINTAIN
from pravega_spark.jobs import work
from pravega_spark.jobs.command import program
from pravega_spark.jobs.compaction import copier_on
from pravega_spark.jobs.outcome import SCALING, VERIFY, JobOutcome, failed
from pravega_spark.jobs.spread import Steps, Target, names, over_named, over_streams
from pravega_spark.quantities import counted
from pravega_spark.roots import open_root
from pravega_spark.streams.maintenance.chunk_ownership import ChunkOwnership
from pravega_spark.streams.maintenance.retention import PERIOD

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TARGET = 64 << 20
"""Bytes of a chunk into which small chunks are merged."""

TOGETHER = 100
"""The number of merges that a cluster gets at a time."""


def run(
    target: Target,
    *,
    dry_run: bool = False,
    period: float = PERIOD,
    orphan_age: float = AGE,
    check: bool = False,
    spark: SparkSession | None = None,
) -> list[JobOutcome]:
    """Run routine maintenance: retention, scaling, transactions, flush, compaction, garbage, verify.

    Retention, scaling and transactions apply to the selected streams, the rest to the whole root. A dry run searches
    for garbage, but flushes, merges and deletes nothing. check: verify the root at the end. orphan_age: minimum age of
    an orphan in seconds; a writer that takes longer from its first chunk to its commit is rejected (ChunksExpired).
    spark: a cluster that processes the streams, if they are many, and copies the bytes of merges.
    """
    outcomes = over_streams(target, _steps(dry_run, period), spark)
    root = open_root(target.root, target.storage, target.wal)
    copies = copier_on(spark, target) if spark is not None else None
    return outcomes + list(_root(root, dry_run, orphan_age, check, no_progress, copies))


def maintain(
    root: Root,
    scope: str | None = None,
    stream: str | None = None,
    *,
    dry_run: bool = False,
    period: float = PERIOD,
    orphan_age: float = AGE,
    check: bool = False,
    progress: Progress = no_progress,
) -> Iterator[JobOutcome]:
    """The same for an open root; yields each outcome as it is known. A stream requires its scope."""
    found, steps = names(root, scope, stream), _steps(dry_run, period)
    yield from over_named(root, found, steps, missing=stream is not None, progress=progress)
    yield from _root(root, dry_run, orphan_age, check, progress)


def _steps(dry_run: bool, period: float) -> Steps:
    """The steps for each stream."""
    return {
        "retention": partial(work.retain, dry_run=dry_run, period=period),
        SCALING: partial(work.scale, dry_run=dry_run),
        "transactions": partial(work.expire, dry_run=dry_run),
    }


def _root(
    root: Root, dry_run: bool, orphan_age: float, check: bool, progress: Progress, copies: CopyTasks | None = None
) -> Iterator[JobOutcome]:
    steps = [
        ("flush", partial(_flush, root, dry_run)),
        ("compaction", partial(_compact, root, dry_run, copies)),
        ("garbage", partial(_garbage, root, dry_run, orphan_age)),
    ]
    if check:
        steps.append((VERIFY, partial(_verify, root)))
    for name, step in steps:
        progress(name, 0, 0)
        try:
            yield step()
        except Exception as error:
            yield failed("", "", name, error)


def _flush(root: Root, dry_run: bool) -> JobOutcome:
    """Flush all containers. The size is that of the data that was only in the log.

    If a storage is full, each container flushes what there is room for (P6). Raises StorageFull then.
    """
    size, full = 0, None
    for container in map(root.container, range(root.config.containers)):
        size += container.refresh().logged_bytes
        if not dry_run:
            try:
                container.flush()
            except StorageFull as error:
                full = error
            container.truncate_log()
    if full is not None:
        raise full
    count = counted(root.config.containers, "container")
    return JobOutcome("", "", "flush", True, size, f"would flush {count}" if dry_run else count)


def _compact(root: Root, dry_run: bool, copies: CopyTasks | None) -> JobOutcome:
    """copies: copies the bytes of merges on a cluster, None without one."""
    if not root.config.garbage_delay_seconds:
        return JobOutcome("", "", "compaction", detail="skipped: the root's garbage delay is 0")
    found: list[CompactedSegment] = []
    for number in range(root.config.containers):
        context, together = root.container(number).flush_context, TOGETHER if copies else 1
        found += compact_segments(context, "", TARGET, copies, together, dry_run=dry_run)
    chunks, merges = sum(one.chunks for one in found), sum(one.merges for one in found)
    did = "would merge" if dry_run else "merged"
    detail = f"{did} {counted(chunks, 'chunk')} into {merges}" if merges else ""
    return JobOutcome("", "", "compaction", bool(merges), 0, detail)


def _garbage(root: Root, dry_run: bool, orphan_age: float) -> JobOutcome:
    found = root_gc.find_garbage(root, ChunkOwnership(root), orphan_age)
    orphans.check_plausible(root, found.sweep)
    sweep, deleted, idle = found.sweep, 0, found.idle
    if not dry_run:
        done = root_gc.collect_garbage(root, found)
        deleted, idle = done.deleted, done.expired
    count = counted(len(sweep.orphans), "orphan")
    detail = f"{count} would be deleted" if dry_run else f"{count}, {counted(deleted, 'object')} deleted"
    detail += f", other roots or backups left alone: {', '.join(sweep.nested)}" if sweep.nested else ""
    detail += f", {counted(idle, 'idle upload')} of large events {'would be ' * dry_run}aborted" if idle else ""
    return JobOutcome("", "", "garbage", bool(sweep.orphans or deleted or idle), sweep.bytes, detail)


def _verify(root: Root) -> JobOutcome:
    report = verify(root, content_checks=CONTENT_CHECKS, entry_checks=ENTRY_CHECKS)
    wrong = [finding for finding in report.findings if finding.severity is Severity.ERROR]
    if not wrong:
        warnings = counted(report.warnings, "warning")
        detail = f"no errors, {warnings}; run `pravega-spark verify` for all" if report.warnings else "healthy"
        return JobOutcome("", "", VERIFY, detail=detail)
    first = f"{wrong[0].object}: {wrong[0].problem}"
    error = f"{counted(len(wrong), 'error')}; first error: {first}; run `pravega-spark verify` for all"
    return JobOutcome("", "", VERIFY, error=error)


main = program(MAINTAIN, run)

if __name__ == "__main__":
    main()
