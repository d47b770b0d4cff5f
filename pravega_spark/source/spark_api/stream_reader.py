"""The reader of a streaming query, as the running Spark calls it.

Before 4.2 Spark asks `latestOffset()` without the position and the limit, and knows no `prepareForTriggerAvailableNow`.
`PositionKeeper` makes up for that. It knows the query's position from what Spark told it, or got from it, last:

- a new query asks for its first batch before anything else, so it is at its initial offset;
- a restarted query first plans the empty range at the end of the last batch in the offset log, also if that batch is
  to be run again (`AcceptsLatestSeenOffset` of `PythonMicroBatchStream`);
- later, each batch begins where the one before has ended.

What such a Spark does not tell is the trigger. `availableNow` and `once` run one batch, which has to end at the tail,
or events that are there would be left unread in silence. So the first batch of a run reads the whole backlog, and
limits hold from the second on, also if the first is one that is run again. Option `limit_first_batch` makes them hold
from the first on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pravega_spark.source.spark_api.read_limits import ReadLimit, ReadWholeBacklog

if TYPE_CHECKING:
    import pyarrow as pa


class LimitedReader(Protocol):
    """A reader with the interface of Spark 4.2: it is told its position and the limit in each poll."""

    def initialOffset(self) -> Any: ...
    def getDefaultReadLimit(self) -> ReadLimit: ...
    def latestOffset(self, start: Any, limit: ReadLimit | ReadWholeBacklog) -> Any: ...
    def partitions(self, start: Any, end: Any) -> list[InputPartition]: ...
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]: ...
    def commit(self, end: Any) -> None: ...
    def stop(self) -> None: ...


class PositionKeeper(DataSourceStreamReader):
    """A `LimitedReader` for Spark 4.0 and 4.1. limit_first_batch: whether limits hold in the first batch of a run.

    reader: the one that it stands for.
    """

    def __init__(self, reader: LimitedReader, limit_first_batch: bool) -> None:
        self.reader = reader
        self._limited = limit_first_batch
        self._position: Any = None

    def initialOffset(self) -> Any:
        return self.reader.initialOffset()

    def latestOffset(self) -> Any:  # type: ignore[override]  # as before 4.2, while the types are those of the newest
        if self._position is None:
            self._position = self.reader.initialOffset()
        limit = self.reader.getDefaultReadLimit() if self._limited else ReadWholeBacklog()
        # Spark may leave out the plan of a batch of which it needs no row, so what it was told is a position too
        self._position = self.reader.latestOffset(self._position, limit)
        self._limited = True
        return self._position

    def partitions(self, start: Any, end: Any) -> Sequence[InputPartition]:
        self._position = end
        self._limited = self._limited or start != end
        return self.reader.partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self.reader.read(partition)

    def commit(self, end: Any) -> None:
        self.reader.commit(end)

    def stop(self) -> None:
        self.reader.stop()


def tells_position() -> bool:
    """Whether this Spark tells a reader its position and limit in each poll."""
    import pyspark.sql.datasource as api

    return hasattr(api.DataSourceStreamReader, "getDefaultReadLimit")
