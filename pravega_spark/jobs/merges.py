"""Merging small chunks on many machines: Spark's tasks copy the bytes, and the driver plans and swaps.

A task needs the storage only. It does what `defrag` does by itself, with the same checks; a task that is repeated makes
the same chunk again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from chunkstore import StorageError, open_store
from chunkstore.chunk_storage import ChunkStorage
from chunkstore.compaction import CompactionTask, CopyTasks, copy_task
from pravega_spark.jobs.spread import Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def copies_on(spark: SparkSession, target: Target) -> CopyTasks:
    """Copies merges on the executors, which must reach the root: one task for each merge.

    What is returned raises the first error of a copy when all are done.
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
    """A task. Errors are returned: raised, they would reach the driver as text within one of Spark's."""
    try:
        store = open_store(target.root, target.storage)
    except StorageError as error:
        return error
    try:
        return copy_task(merge, ChunkStorage(store))
    except StorageError as error:
        return error
    finally:
        store.close()
