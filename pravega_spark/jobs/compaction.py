"""Merges small chunks on a cluster: Spark's tasks copy the bytes, and the driver plans the merges and commits them.

A task needs access to the storage only. It copies as `defrag` does, with the same checks. A repeated task creates the
same chunk again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from chunkstore import StorageError, open_store
from chunkstore.compaction import CompactionTask, CopyTasks, copy_task
from pravega_spark.jobs.spread import Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def copier_on(spark: SparkSession, target: Target) -> CopyTasks:
    """A function that copies the bytes of merges on the executors, which must reach the root, in one task for each
    merge.

    It raises the first error of a copy when all tasks are done.
    """

    def copies(merges: Sequence[CompactionTask]) -> list[bytes | None]:
        if not merges:
            return []
        results: list[Any] = spark.sparkContext.parallelize(merges, len(merges)).map(partial(_copy, target)).collect()
        for result in results:
            if isinstance(result, Exception):
                raise result
        return results

    return copies


def _copy(target: Target, merge: CompactionTask) -> bytes | StorageError | None:
    """Runs in a task. Returns errors: if raised, they would reach the driver as text in an error of Spark."""
    try:
        store = open_store(target.root, target.storage)
    except StorageError as error:
        return error
    try:
        return copy_task(merge, store)
    except StorageError as error:
        return error
    finally:
        store.close()
