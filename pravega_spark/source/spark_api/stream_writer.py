"""The writer of a streaming query, as the running Spark calls it.

`StreamArrowWriter` is the base of a writer that gets Arrow batches: Spark's own since 4.1. Spark 4.0 hands rows to any
streaming writer, made from batches that it has got itself; `RowGatherer` makes batches of them again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, StructType

if TYPE_CHECKING:
    import pyarrow as pa

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as StreamArrowWriter
except ImportError:  # 4.0
    if not TYPE_CHECKING:
        StreamArrowWriter = DataSourceStreamWriter

ROWS = 1_000
"""Rows of a batch that is gathered. They are in memory already, as Spark makes rows of a whole batch of its own."""

Messages = Sequence[WriterCommitMessage | None]


class BatchesWriter(Protocol):
    """A writer with the interface of Spark 4.1: its tasks get Arrow batches."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage: ...
    def commit(self, messages: Messages, batchId: int) -> None: ...
    def abort(self, messages: Messages, batchId: int) -> None: ...


class RowGatherer(DataSourceStreamWriter):
    """A `BatchesWriter` for Spark 4.0. columns: those of the schema that are kept, of strings or of bytes; None: all,
    of whatever type."""

    def __init__(self, writer: BatchesWriter, schema: StructType, columns: Sequence[str] | None) -> None:
        self._writer = writer
        self._schema = schema if columns is None else None
        self._kept = [
            (place, field.name, isinstance(field.dataType, BinaryType))
            for place, field in enumerate(schema.fields)
            if columns is None or field.name in columns
        ]

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self._writer.write(self._gathered(iterator))

    def _gathered(self, rows: Iterator[Any]) -> Iterator[pa.RecordBatch]:
        from itertools import islice

        while some := list(islice(rows, ROWS)):
            yield from self._batches(some)

    def _batches(self, rows: list[Any]) -> list[pa.RecordBatch]:
        import pyarrow as pa

        if self._schema is not None:  # Spark has made the rows of Arrow batches; this is its own inverse of that
            from pyspark.sql.conversion import LocalDataToArrowConversion

            made: list[pa.RecordBatch] = LocalDataToArrowConversion.convert(rows, self._schema, False).to_batches()
            return made
        types = [pa.binary() if is_binary else pa.string() for _, _, is_binary in self._kept]
        columns = list(zip(*rows, strict=True))
        arrays = [pa.array(columns[place], kind) for (place, _, _), kind in zip(self._kept, types, strict=True)]
        return [pa.RecordBatch.from_arrays(arrays, names=[name for _, name, _ in self._kept])]

    def commit(self, messages: Messages, batchId: int) -> None:
        self._writer.commit(messages, batchId)

    def abort(self, messages: Messages, batchId: int) -> None:
        self._writer.abort(messages, batchId)


def gets_batches() -> bool:
    """Whether this Spark hands Arrow batches to a streaming writer."""
    return StreamArrowWriter is not DataSourceStreamWriter


__all__ = ["RowGatherer", "StreamArrowWriter", "gets_batches"]
