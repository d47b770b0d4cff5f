"""Runs a job on many streams: in threads of this process, or in parallel on a cluster.

The streams of one container share its log, so they are in one task, and tasks do not compete for a log.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from chunkstore.urls import redact
from engine.admin.progress import Progress, no_progress
from engine.root import Root
from pravega_spark.errors import StreamNotFound
from pravega_spark.jobs.outcome import JobOutcome, failed
from pravega_spark.roots import open_root
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.model.names import container_of
from pravega_spark.streams.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPREAD = 32
"""With fewer streams than this, the cluster is not used."""

AT_ONCE = 16
"""The number of streams that are processed concurrently, so that their commits share frames of the log."""

Steps = Mapping[str, Callable[[Stream], JobOutcome]]
"""What a job does for each stream: its steps by their names, in order. If one raises, the others still run."""


class Target(NamedTuple):
    """The streams of a job: all of a root, all of a scope, or one. Never log or print the storage options."""

    root: str
    scope: str | None = None
    stream: str | None = None
    wal: str | None = None
    storage: Mapping[str, Any] = {}

    def __repr__(self) -> str:
        return f"Target({redact(self.root)!r}, {self.scope!r}, {self.stream!r})"


def check(target: Target) -> None:
    """Raise ValueError for a stream without a scope."""
    if target.stream is not None and target.scope is None:
        raise ValueError(f"stream {target.stream!r} is given without its scope: give scope too")


def names(root: Root, scope: str | None = None, stream: str | None = None) -> list[tuple[str, str]]:
    """Scope and name of each stream of a root or a scope, or of the one named stream.

    Raises ScopeNotFound, StreamNotFound, StorageError.
    """
    catalog = Catalog(root, suggesting=True)
    if scope is not None and stream is not None:
        catalog.stream(scope, stream).snapshot()  # raises StreamNotFound
        return [(scope, stream)]
    if scope is not None:
        catalog.check_scope(scope)
    scopes = catalog.scopes() if scope is None else [scope]
    return [(each, name) for each in scopes for name in catalog.streams(each)]


def over_streams(target: Target, steps: Steps, spark: SparkSession | None = None) -> list[JobOutcome]:
    """Do the steps for each stream of a target. A failure for one stream does not stop the others.

    spark: a cluster over which many streams are distributed. Raises ValueError, and StorageError if the streams cannot
    be listed.
    """
    check(target)
    root = open_root(target.root, target.storage, target.wal)
    found = names(root, target.scope, target.stream)
    if spark is None or len(found) < SPREAD:
        return list(over_named(root, found, steps, missing=target.stream is not None))
    groups: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for scope, name in found:
        groups[container_of(f"{scope}/{name}", root.config.containers)].append((scope, name))
    tasks = spark.sparkContext.parallelize(list(groups.values()), len(groups))
    return [JobOutcome(*outcome) for outcome in tasks.mapPartitions(partial(_done, target, steps)).collect()]


def _done(target: Target, steps: Steps, groups: Iterable[list[tuple[str, str]]]) -> Iterator[JobOutcome]:
    root = open_root(target.root, target.storage, target.wal)
    for group in groups:
        yield from over_named(root, group, steps)


def over_named(
    root: Root,
    found: Sequence[tuple[str, str]],
    steps: Steps,
    *,
    missing: bool = False,
    progress: Progress = no_progress,
) -> Iterator[JobOutcome]:
    """Do the steps for streams of an open root, given by scope and name. Returns the outcomes in the order of `found`.

    Each container is refreshed once before, so no step need refresh it to find that there is nothing to do. Some
    streams are processed at a time. missing: whether a missing stream is a failure; otherwise it was deleted meanwhile.
    """
    numbers = {container_of(f"{scope}/{name}", root.config.containers) for scope, name in found}
    failures = {number: _failure(root, number) for number in numbers}
    one = partial(_worked_on, Catalog(root, suggesting=missing), failures, steps, missing)
    with ThreadPoolExecutor(AT_ONCE if root.settings.threaded else 1, "streams") as threads:
        outcomes = threads.map(one, found)
        for done, (scope, name) in enumerate(found):
            progress(f"stream {scope}/{name}", done, len(found))
            yield from next(outcomes)


def _failure(root: Root, number: int) -> Exception | None:
    """Refresh a container; the error if that fails."""
    try:
        root.container(number).refresh()
    except Exception as error:
        return error
    return None


def _worked_on(
    catalog: Catalog, failures: Mapping[int, Exception | None], steps: Steps, missing: bool, named: tuple[str, str]
) -> list[JobOutcome]:
    stream, outcomes = catalog.stream(*named), []
    if (failure := failures[stream.number]) is not None:
        return [failed(*named, "find", failure)]
    for name, step in steps.items():
        try:
            outcomes.append(step(stream))
        except Exception as error:
            if missing or not isinstance(error, StreamNotFound):  # otherwise it was deleted meanwhile
                outcomes.append(failed(*named, name, error))
    return outcomes
