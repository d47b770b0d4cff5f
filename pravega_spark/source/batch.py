"""The batch read. Planning resolves both cuts of each stream once."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pravega_spark.quantities import time_text
from pravega_spark.source.failures import for_users
from pravega_spark.source.partitions import StreamRange, plan_streams, read_partition

if TYPE_CHECKING:
    import pyarrow as pa

    from pravega_spark.source.options import SourceOptions
    from pravega_spark.streams.reading.bounds import Bounds
    from pravega_spark.streams.reading.snapshot import Snapshot
    from pravega_spark.streams.values.columns import ValueColumns


logger = logging.getLogger(__name__)

_CLOCKS_DIFFER = 60_000
"""A time is in the future from so many milliseconds ahead of this host's clock on."""


def batch_ranges(options: SourceOptions) -> list[StreamRange]:
    """The range of each stream that a batch read covers. Raises ScopeNotFound, StreamNotFound, InvalidStreamCut."""
    from pravega_spark.source.selection import Selection  # not loaded in tasks, which do not read the log

    return [_range(one, snapshot) for one, snapshot in Selection(options, "read").snapshots()]


def _range(options: SourceOptions, snapshot: Snapshot) -> StreamRange:
    from pravega_spark.source.opening import resolve_cut

    start, end = options.batch_cuts()
    if options.starting_timestamp is not None and options.starting_timestamp > time.time() * 1000 + _CLOCKS_DIFFER:
        logger.warning(
            "Option 'starting_timestamp' (%s) is in the future, so nothing of stream %s is read.",
            time_text(options.starting_timestamp),
            snapshot.stream.key,
        )
    head, tail = snapshot.head_cut(), snapshot.tail_cut()
    if options.starting_timestamp is not None:
        begin = snapshot.cut_at(options.starting_timestamp)
    else:
        begin = resolve_cut(snapshot, start, head)
    if options.ending_timestamp is not None:
        finish = snapshot.cut_at(options.ending_timestamp)
    else:
        finish = resolve_cut(snapshot, end, tail)
    return StreamRange(options, snapshot, begin, finish)


class BatchReader(DataSourceReader):
    """Reads the events between two stream cuts, of one or several streams.

    columns: those to read, and whether each may be null; None: those of the options. values: those that are decoded
    from events.
    """

    def __init__(
        self,
        options: SourceOptions,
        columns: Mapping[str, bool] | None = None,
        values: ValueColumns | None = None,
    ) -> None:
        options.batch_cuts()
        self._options = options
        self._columns = columns
        self._values = values
        self._bounds: Bounds | None = None

    @for_users
    def partitions(self) -> list[InputPartition]:
        return list(plan_streams(batch_ranges(self._options), self._columns, self._bounds))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self._options, partition, self._columns, self._values)
