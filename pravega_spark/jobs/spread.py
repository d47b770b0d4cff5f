"""Work on many streams: one after the other in this process, or all containers at the same time on a cluster.

Streams of one container share its log, so they are one task: tasks do not get in each other's way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from chunkstore import StorageError
from engine.errors import EngineError
from pravega_spark.errors import StreamError, StreamNotFound
from pravega_spark.jobs.outcome import Outcome
from pravega_spark.roots import open_root
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.names import container_of
from pravega_spark.streams.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPREAD = 32
"""With fewer streams than this the cluster is not asked."""

Work = Callable[[Stream], Iterator[Outcome]]


class Target(NamedTuple):
    """The streams that a job is about: all of a root, of a scope, or one. Storage options are not to be shown."""

    root: str
    scope: str | None = None
    stream: str | None = None
    wal: str | None = None
    storage: Mapping[str, Any] = {}

    def __repr__(self) -> str:
        return f"Target({self.root!r}, {self.scope!r}, {self.stream!r})"


def check(target: Target) -> None:
    """Raise ValueError for a stream without a scope."""
    if target.stream is not None and target.scope is None:
        raise ValueError(f"stream {target.stream!r} is named without a scope: name its scope too")


def names(target: Target) -> list[tuple[str, str]]:
    """Scope and name of each stream of the target. Raises ValueError, StorageError."""
    check(target)
    catalog = Catalog(open_root(target.root, target.storage, target.wal))
    if target.scope is not None and target.stream is not None:
        return [(target.scope, target.stream)]
    scopes = catalog.scopes() if target.scope is None else [target.scope]
    return [(scope, name) for scope in scopes for name in catalog.streams(scope)]


def over_streams(target: Target, work: Work, spark: SparkSession | None = None) -> list[Outcome]:
    """Do something to each stream. What fails for one of them does not keep the others from it.

    With `spark`, many streams are spread over its cluster. Raises ValueError, StorageError if none can be found.
    """
    found = names(target)
    count = open_root(target.root, target.storage, target.wal).config.containers
    groups: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for scope, name in found:
        groups[container_of(f"{scope}/{name}", count)].append((scope, name))
    here = partial(_done, target, work)
    if spark is None or len(found) < SPREAD:
        return list(here(groups.values()))
    tasks = spark.sparkContext.parallelize(list(groups.values()), len(groups))
    return [Outcome(*outcome) for outcome in tasks.mapPartitions(here).collect()]


def _done(target: Target, work: Work, groups: Iterable[list[tuple[str, str]]]) -> Iterator[Outcome]:
    catalog = Catalog(open_root(target.root, target.storage, target.wal))
    for group in groups:
        for scope, name in group:
            try:
                yield from work(catalog.stream(scope, name))
            except StreamNotFound as error:
                if target.stream is not None:
                    yield Outcome(scope, name, "find", error=str(error))  # else it was deleted meanwhile
            except (StreamError, EngineError, StorageError, ValueError) as error:
                yield Outcome(scope, name, "find", error=str(error))
