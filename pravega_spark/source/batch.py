"""The batch read: both stream cuts are resolved once, at planning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pravega_spark.source.failures import for_users
from pravega_spark.source.partitions import plan_partitions, read_partition

if TYPE_CHECKING:
    import pyarrow as pa

    from pravega_spark.source.options import SourceOptions


class BatchReader(DataSourceReader):
    """Reads what lies between two stream cuts.

    columns: those to read, and whether each may be null; None: all that the options say.
    """

    def __init__(self, options: SourceOptions, columns: Mapping[str, bool] | None = None) -> None:
        options.batch_cuts()
        self._options = options
        self._columns = columns

    @for_users
    def partitions(self) -> list[InputPartition]:
        from pravega_spark.source.opening import current_snapshot, resolve_cut  # the tasks need not look at the log

        snapshot = current_snapshot(self._options, "read")
        start, end = self._options.batch_cuts()
        head, tail = snapshot.head_cut(), snapshot.tail_cut()
        if self._options.starting_timestamp is not None:
            begin = snapshot.cut_at(self._options.starting_timestamp)
        else:
            begin = resolve_cut(snapshot, start, head)
        if self._options.ending_timestamp is not None:
            finish = snapshot.cut_at(self._options.ending_timestamp)
        else:
            finish = resolve_cut(snapshot, end, tail)
        return list(plan_partitions(self._options, snapshot, begin, finish, self._columns))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self._options, partition, self._columns)
