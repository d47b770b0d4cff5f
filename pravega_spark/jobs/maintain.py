"""The maintenance job: all that a root needs from time to time. `python -m pravega_spark.jobs.maintain --root URI`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import click

from chunkstore import StorageError
from chunkstore.orphans import ImplausibleSweep
from engine import orphans
from engine.checks.findings import Severity
from engine.defragmentation import defragment
from engine.errors import EngineError
from engine.orphans import AGE
from engine.root import Root
from engine.verify import verify
from pravega_spark.jobs import work
from pravega_spark.jobs.command import job
from pravega_spark.jobs.outcome import Outcome
from pravega_spark.jobs.spread import Target, Told, names, over_named, over_streams, silent
from pravega_spark.roots import open_root
from pravega_spark.streams.names import owner_of
from pravega_spark.streams.retention import PERIOD
from pravega_spark.streams.stream import Stream
from pravega_spark.streams.verification import check_events

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TARGET = 64 << 20
"""Bytes of a chunk that others are merged into."""


def run(
    target: Target,
    *,
    dry_run: bool = False,
    period: float = PERIOD,
    orphan_age: float = AGE,
    check: bool = False,
    spark: SparkSession | None = None,
) -> list[Outcome]:
    """Take care of streams and their root: retention, scaling, transactions, flush, optimiser, garbage, verify.

    Named streams get their retention, scaling and transactions; the rest is about the whole root. Orphans are looked
    for, and nothing is flushed, merged or deleted, in a dry run. check: verify the root at the end, too. orphan_age:
    seconds for which objects that nothing names are left alone; a job that takes longer from its first chunk to its
    commit is refused (ChunksGivenUp).
    """
    outcomes = over_streams(target, partial(_streams, dry_run=dry_run, period=period), spark)
    root = open_root(target.root, target.storage, target.wal)
    return outcomes + list(_root(root, dry_run, orphan_age, check, silent))


def maintain(
    root: Root,
    scope: str | None = None,
    stream: str | None = None,
    *,
    dry_run: bool = False,
    period: float = PERIOD,
    orphan_age: float = AGE,
    check: bool = False,
    told: Told = silent,
) -> Iterator[Outcome]:
    """The same for a root that is open, step by step. A stream is named with its scope."""
    work_on = partial(_streams, dry_run=dry_run, period=period)
    yield from over_named(root, names(root, scope, stream), work_on, missing=stream is not None, told=told)
    yield from _root(root, dry_run, orphan_age, check, told)


def _streams(stream: Stream, dry_run: bool, period: float) -> Iterator[Outcome]:
    yield from work.retain(stream, dry_run, period)
    yield from work.scale(stream, dry_run)
    yield from work.expire(stream, dry_run)


def _root(root: Root, dry_run: bool, orphan_age: float, check: bool, told: Told) -> Iterator[Outcome]:
    actions = [("garbage", partial(_garbage, root, dry_run, orphan_age))]
    if not dry_run:
        actions = [("flush", partial(_flush, root)), ("optimiser", partial(_optimise, root)), *actions]
    if check:
        actions.append(("verify", partial(_verify, root)))
    for name, action in actions:
        told(name, 0, 0)
        try:
            yield action()
        except (EngineError, StorageError, ImplausibleSweep) as error:
            yield Outcome("", "", name, error=str(error))


def _flush(root: Root) -> Outcome:
    for number in range(root.config.containers):
        root.container(number).flush()
        root.container(number).truncate_log()
    return Outcome("", "", "flush", True, 0, f"{root.config.containers} containers")


def _optimise(root: Root) -> Outcome:
    if not root.config.garbage_delay_seconds:
        return Outcome("", "", "optimiser", detail="this root keeps garbage for no time at all")
    found = [one for number in range(root.config.containers) for one in defragment(root.container(number), "", TARGET)]
    chunks, merges = sum(one.chunks for one in found), sum(one.merges for one in found)
    return Outcome("", "", "optimiser", bool(merges), 0, f"{chunks} chunks became {merges}" if merges else "")


def _garbage(root: Root, dry_run: bool, orphan_age: float) -> Outcome:
    sweep = orphans.find_orphans(root, partial(owner_of, count=root.config.containers), orphan_age)
    orphans.check_plausible(root, sweep)
    containers = [root.container(number) for number in range(root.config.containers)]
    deleted, idle = 0, sum(len(container.idle_transients()) for container in containers)
    if not dry_run:
        idle = sum(len(container.expire_transients()) for container in containers)
        orphans.give_up(root, sweep)
        deleted = sum(container.collect_garbage() for container in containers)
    detail = f"{len(sweep.orphans)} orphans, {deleted} objects deleted"
    detail += f", {idle} idle uploads of large events given up" if idle else ""
    return Outcome("", "", "garbage", bool(sweep.orphans or deleted or idle), sweep.bytes, detail)


def _verify(root: Root) -> Outcome:
    report = verify(root, content_checks=[check_events])
    wrong = [finding for finding in report.findings if finding.severity is Severity.ERROR]
    if not wrong:
        return Outcome("", "", "verify")
    first = f"{wrong[0].object}: {wrong[0].problem}"
    return Outcome("", "", "verify", error=f"{len(wrong)} errors, the first: {first}; see pravega-spark verify")


main = job("maintain")(run)
main.params += [
    click.Option(["--period"], type=click.FloatRange(min=0), default=PERIOD, show_default=True, help="Seconds."),
    click.Option(
        ["--orphan-age"],
        type=click.FloatRange(min=0),
        default=AGE,
        show_default=True,
        help="Seconds for which objects that nothing names are left alone; longer than any job writes.",
    ),
    click.Option(["--verify", "check"], is_flag=True, help="Verify the root at the end."),
]

if __name__ == "__main__":
    main()
