"""Merging small chunks on many machines: the bytes are copied by Spark's tasks, the metadata changes at the driver.

Copying needs the storage only, so it can be done anywhere; planning and swapping need the owner of the segments
(`chunkstore.optimiser`). A task that is repeated completes what the first one began.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from chunkstore.optimiser import Merge, OptimiserReport, StorageOptimiser

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def optimise_on_spark(
    spark: SparkSession,
    optimiser: StorageOptimiser,
    segments: Iterable[str],
    root: str,
    storage_options: Mapping[str, Any] | None = None,
) -> OptimiserReport:
    """Plan the merges of `segments` here, copy on the executors, one task for each merge, and swap here.

    `root` and `storage_options` are those of the store in which the chunks are; executors must reach it. Merges whose
    chunks have changed meanwhile are refused, and counted. Raises what planning and swapping raise, and Spark's error
    if a copy failed.
    """
    report = OptimiserReport()
    merges = [merge for segment in segments for merge in optimiser.plan(segment)]
    for merge in _copied(spark, merges, root, dict(storage_options or {})):
        if optimiser.swap(merge):
            report.merges += 1
            report.chunks += len(merge.parts)
            report.bytes += merge.length
        else:
            report.refused += 1
    report.refused += len(merges) - report.merges - report.refused
    return report


def _copied(
    spark: SparkSession, merges: Sequence[Merge], root: str, storage_options: dict[str, Any]
) -> Iterator[Merge]:
    """The merges whose chunks were there to be copied."""
    if not merges:
        return

    def copy_one(merge: Merge) -> bool:
        from chunkstore import open_store
        from chunkstore.chunks import ChunkStorage
        from chunkstore.errors import ChunkNotFound
        from chunkstore.optimiser import copy

        store = open_store(root, storage_options)
        try:
            copy(merge, ChunkStorage(store))
            return True
        except ChunkNotFound:
            return False  # the segment has changed since, so there is nothing to swap
        finally:
            store.close()

    done = spark.sparkContext.parallelize(merges, len(merges)).map(copy_one).collect()
    yield from (merge for merge, copied in zip(merges, done, strict=True) if copied)
