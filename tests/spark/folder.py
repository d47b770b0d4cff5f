"""Streams in a folder of a test's own, as Spark sees them and as the test's process does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StringType, StructType

from engine.root import Root
from pravega_spark.source.options import SourceOptions
from pravega_spark.source.sink import BatchWriter
from pravega_spark.source.spark_api.stream_reader import tells_position
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.stream import Stream

EVENTS_WITH_KEYS = StructType().add("event", StringType()).add("routing_key", StringType())


class Folder:
    """A root of streams. Everything lies in scope `s`, in stream `t` where none is named.

    root: opened by this process, before Spark does. path: for checkpoints and other files of the test.
    """

    def __init__(self, spark: SparkSession, path: Path, **agreed: Any) -> None:
        self.spark = spark
        self.path = path
        self.url = str(path / "streams")
        self.root = Root.open(self.url, **agreed)

    def options(self, stream: str = "t", **more: object) -> dict[str, Any]:
        """The options of a program that uses the stream."""
        return {"controller": self.url, "scope": "s", "stream": stream, **more}

    def parsed(self, stream: str = "t", **more: object) -> SourceOptions:
        """The same as readers and writers get them."""
        return SourceOptions.parse({name: str(value) for name, value in self.options(stream, **more).items()})

    def stream(self, name: str = "t") -> Stream:
        """The stream for this process's own use."""
        return Catalog(self.root).stream("s", name)

    def rows(self, *events: Any, keys: Any = None, partitions: int = 1) -> DataFrame:
        """Events, in this order, as a DataFrame to write. keys: a routing key for each; without, there is no column."""
        kind = "binary" if isinstance(events[0] if events else "", bytes) else "string"
        if keys is None:
            frame = self.spark.createDataFrame([(event,) for event in events], f"event {kind}")
        else:
            pairs = list(zip(events, keys, strict=True))
            frame = self.spark.createDataFrame(pairs, f"event {kind}, routing_key string")
        return frame.coalesce(1) if partitions == 1 else frame.repartition(partitions)

    def append(self, frame: DataFrame, stream: str = "t", **more: object) -> None:
        """Write a DataFrame."""
        frame.write.format("pravega").options(**self.options(stream, **more)).mode("append").save()

    def put(self, *events: str, stream: str = "t", **more: object) -> None:
        """Append events, each its own routing key, without the ado of a Spark job."""
        writer = BatchWriter(self.parsed(stream, **more), EVENTS_WITH_KEYS)
        rows = pa.RecordBatch.from_pydict({"event": events, "routing_key": events})
        writer.commit([writer.write(iter([rows]))])

    def frame(self, stream: str = "t", **more: object) -> DataFrame:
        """The stream as a DataFrame."""
        return self.spark.read.format("pravega").options(**self.options(stream, **more)).load()

    def follow(self, stream: str = "t", **more: object) -> DataFrame:
        """The stream as a streaming DataFrame. Limits hold in the first batch, with every version of Spark."""
        if not tells_position():
            more = {"limit_first_batch": True, **more}
        return self.spark.readStream.format("pravega").options(**self.options(stream, **more)).load()

    def events(self, stream: str = "t", **more: object) -> list[str]:
        """All events of the stream, those of a segment in their order."""
        return self.texts(self.frame(stream, **more))

    def drain(self, frame: DataFrame, sink: str = "sink", **more: object) -> list[int]:
        """Run a query that copies all there is to another stream. Returns how many rows each of its batches had."""
        writer = frame.selectExpr("cast(event AS string) AS event", "cast(event AS string) AS routing_key").writeStream
        writer = writer.format("pravega").options(**self.options(sink, **more))
        query = read_all(writer.option("checkpointLocation", self.checkpoint()))
        return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]

    def checkpoint(self, name: str = "checkpoint") -> str:
        """Where a query keeps its state."""
        return str(self.path / name)

    @staticmethod
    def texts(frame: DataFrame) -> list[str]:
        """The events of a DataFrame that was read, those of a segment in their order."""
        rows = frame.select("event", "segment_id", "offset").collect()
        return [bytes(row.event).decode() for row in sorted(rows, key=lambda row: (row.segment_id, row.offset))]


def read_all(writer: DataStreamWriter) -> StreamingQuery:
    """Run a query until it has read what there is, in as many batches as its limits require.

    The trigger availableNow does so where Spark knows that a source in Python takes it; before, it runs one batch.
    """
    if tells_position():
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return query
    query = writer.start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    return query
