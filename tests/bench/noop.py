"""The ceilings of Spark's Python data sources: a source and a sink with our schemas that do nothing else, and plain
files: a sink that only keeps the payloads, durably, and a source that only reads such bytes.

Nothing of ours is imported, nor pandas (which `pa.array` of a list does): what a process loads is part of what a job
costs before its first row.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from pravega_spark.source.spark_api.read_limits import SupportsTriggerAvailableNow
from pravega_spark.source.spark_api.stream_writer import StreamArrowWriter

READ_SCHEMA = "event binary, scope string, stream string, segment_id bigint, offset bigint"
SCHEMA = pa.schema(
    [
        ("event", pa.binary()),
        ("scope", pa.string()),
        ("stream", pa.string()),
        ("segment_id", pa.int64()),
        ("offset", pa.int64()),
    ]
)
BATCH_BYTES, BATCH_ROWS = 4 << 20, 10_000  # as our source cuts its batches


def batches(rows: int, size: int) -> Iterator[pa.RecordBatch]:
    """Batches as our source cuts them, made once and given again and again."""
    most = min(BATCH_ROWS, max(1, BATCH_BYTES // (size + 8)), rows)
    bounds = pa.py_buffer((np.arange(most + 1) * size).astype(np.int32))
    columns = [
        pa.Array.from_buffers(pa.binary(), most, [None, bounds, pa.py_buffer(b"x" * size * most)]),
        pa.repeat(pa.scalar("scope"), most),
        pa.repeat(pa.scalar("stream"), most),
        pa.array(np.zeros(most, np.int64)),
        pa.array(np.arange(most) * (size + 8)),
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
    while rows > 0:
        yield batch.slice(0, min(rows, most))
        rows -= most


class NoopSource(DataSource):
    """Options: `rows` and `size` of each of `partitions`."""

    @classmethod
    def name(cls) -> str:
        return "noop_python"

    def schema(self) -> str:
        return READ_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(dict(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _StreamReader(dict(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return _Writer()

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamArrowWriter:
        return _StreamWriter()


class _Reader(DataSourceReader):
    def __init__(self, options: dict[str, str]) -> None:
        self.options = options

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(int(self.options["partitions"]))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return batches(int(self.options["rows"]), int(self.options["size"]))


class _StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """So many `batches`, each with `rows` rows in each of `partitions`."""

    def __init__(self, options: dict[str, str]) -> None:
        self.options = options
        self.reached = 0

    def initialOffset(self) -> dict[str, int]:
        return {"offset": 0}

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, int]:
        """Spark before 4.2 does not tell the start."""
        begin = self.reached if start is None else start["offset"]
        self.reached = min(begin + 1, int(self.options["batches"]))
        return {"offset": self.reached}

    def prepareForTriggerAvailableNow(self) -> None:
        pass

    def partitions(self, start: Any, end: Any) -> list[InputPartition]:
        return [InputPartition(number) for number in range(int(self.options["partitions"]))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return batches(int(self.options["rows"]), int(self.options["size"]))


class _Done(WriterCommitMessage):
    pass


class _Writer(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return _Done()


class _StreamWriter(StreamArrowWriter):
    """Gets rows from Spark 4.0, and Arrow batches from later versions."""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return _Done()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        pass


class Files(DataSource):
    """Option `path`: the folder for the files; to be read, a file with the events of a partition, whose `rows` and
    `size` are options as those of `NoopSource`."""

    @classmethod
    def name(cls) -> str:
        return "files_python"

    def schema(self) -> str:
        return READ_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return _FilesReader(dict(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return _FilesWriter(self.options["path"])


class _FilesReader(_Reader):
    """The batches of `NoopSource`, with bytes that are read from a file, into new memory: neither checksums nor headers
    of events between them, nor anything that may have moved."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        fd = os.open(self.options["path"], os.O_RDONLY)
        try:
            for batch in super().read(partition):
                event = batch.column("event")
                data = bytearray(batch.num_rows * int(self.options["size"]))
                assert os.readv(fd, [data]) == len(data)
                event = pa.Array.from_buffers(
                    pa.binary(), batch.num_rows, [None, event.buffers()[1], pa.py_buffer(data)]
                )
                yield pa.RecordBatch.from_arrays([event, *batch.columns[1:]], schema=SCHEMA)
        finally:
            os.close(fd)


class _FilesWriter(DataSourceArrowWriter):
    """One file a task, written as the rows come, in the pieces that are fastest, and synced: neither routing, framing,
    checksums nor anything atomic."""

    def __init__(self, folder: str) -> None:
        os.makedirs(folder, exist_ok=True)
        self.folder = folder

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        fd = os.open(f"{self.folder}/{uuid.uuid4().hex}", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            for batch in iterator:
                rest = memoryview(batch.column("event").buffers()[2])
                while len(rest):
                    rest = rest[os.write(fd, rest[: 512 << 10]) :]
            os.fdatasync(fd)
        finally:
            os.close(fd)
        return _Done()
