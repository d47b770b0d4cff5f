"""A streaming query from stream `in` to stream `out` that stops dead where the test wants to kill it.

Environment: PUMP_ROOT, PUMP_CHECKPOINT; PUMP_STOP, a place and a batch as in "commit 3", where the query touches the
file PUMP_MARK and waits to be killed; PUMP_FAIL, a batch of which the first attempt of each task fails half-way.
Without a place to stop the query ends when it has copied what there is.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from pravega_spark.source.provider import PravegaDataSource
from pravega_spark.source.sink import WRITE_COLUMNS, StreamWriter
from pravega_spark.source.spark_api.stream_writer import RowGatherer, gets_batches
from pravega_spark.source.task_outputs import TaskMessage
from pravega_spark.streams.writing import collector

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage


def stop(place: str, batch: object) -> None:
    """Wait for the end if this is the place."""
    if os.environ.get("PUMP_STOP") == f"{place} {batch}":
        Path(os.environ["PUMP_MARK"]).touch()
        time.sleep(600)


class Pump(PravegaDataSource):
    """The product's source and sink, with places to stop in the sink."""

    @classmethod
    def name(cls) -> str:
        return "pump"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        writer = StoppingWriter(self._options(), schema)
        return writer if gets_batches() else RowGatherer(writer, schema, WRITE_COLUMNS)


class StoppingWriter(StreamWriter):
    """Every other task writes chunks of a few rows, whatever it has; the others put their rows into the message."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        context = TaskContext.get()
        assert context is not None
        batch = str(context.getLocalProperty("streaming.sql.batchId"))
        stop("task", batch)
        if context.partitionId() % 2:
            collector.INLINE_BYTES, collector.CHUNK_BYTES = 0, 100
        else:
            collector.INLINE_BYTES, collector.CHUNK_BYTES = 1 << 20, 1 << 20
        fails = os.environ.get("PUMP_FAIL") == batch and context.attemptNumber() == 0
        return super().write(self._row_by_row(iterator, batch, fails))

    def _row_by_row(self, iterator: Iterator[pa.RecordBatch], batch: str, fails: bool) -> Iterator[pa.RecordBatch]:
        for rows in iterator:
            half = rows.num_rows // 2
            yield rows.slice(0, half)
            stop("middle", batch)
            if fails:
                raise RuntimeError("this attempt fails")
            yield rows.slice(half)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        super().commit(messages, batchId)
        stop("commit", batchId)


def main() -> None:
    spark = SparkSession.builder.master("local[2,4]").appName("pump").getOrCreate()
    spark.dataSource.register(Pump)
    options = {"controller": os.environ["PUMP_ROOT"], "scope": "s"}
    source = spark.readStream.format("pravega").options(**options, stream="in", start_stream_cut="earliest")
    source = source.options(approx_bytes_per_trigger=2_000, limit_first_batch=True, min_partitions=4)
    rows = source.load().selectExpr("event", "split_part(cast(event AS string), '/', 1) AS routing_key")
    query = rows.writeStream.format("pump").options(**options, stream="out", default_num_segments=3)
    query = query.option("checkpointLocation", os.environ["PUMP_CHECKPOINT"])
    if "PUMP_STOP" in os.environ:
        query.trigger(processingTime="10 milliseconds").start().awaitTermination()
    else:
        started = query.start()
        started.processAllAvailable()
        started.stop()


if __name__ == "__main__":
    from pump import main as run  # type: ignore[import-not-found]  # the name under which Spark's workers find the classes

    run()
