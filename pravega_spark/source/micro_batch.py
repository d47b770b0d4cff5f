"""The micro-batch read: offsets are stream cuts (see `offset`), so that a checkpoint of the original's can be read on.

A poll that finds nothing new reads one object. Limits by bytes or events are kept from the first trigger on; data that
was truncated under the query is an error that names it. A batch ends where the stream was scaled: the segments that
follow are left to the next batch, limit or not. So the events of a key come in their order from batch to batch, and
those of one batch lie in one segment, in the order of their offsets.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from pravega_spark.source.failures import for_users
from pravega_spark.source.offset import cut_of, progress_of
from pravega_spark.source.opening import open_stream, resolve_cut
from pravega_spark.source.option_table import CUT_KEYWORDS
from pravega_spark.source.options import SourceOptions
from pravega_spark.source.partitions import plan_partitions, read_partition
from pravega_spark.streams.cuts import StreamCut
from pravega_spark.streams.epochs import Comparison
from pravega_spark.streams.lag import AT_TAIL, lag
from pravega_spark.streams.snapshot import Snapshot
from pravega_spark.streams.stream import Stream

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)


class MicroBatchReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows a stream for a streaming query. Lives in one process of the driver for the whole query.

    columns: those to read, and whether each may be null; None: all that the options say.
    """

    def __init__(self, options: SourceOptions, columns: Mapping[str, bool] | None = None) -> None:
        options.streaming_cuts()
        self._options = options
        self._columns = columns
        self._opened: Stream | None = None
        self._initial: str | None = None
        self._first: StreamCut | None = None
        self._pinned: StreamCut | None = None
        self._newest: dict[str, Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}  # what is open stays in its process

    def _stream(self) -> Stream:
        if self._opened is None:
            self._opened = open_stream(self._options, "follow")
        return self._opened

    @for_users
    def initialOffset(self) -> str:  # type: ignore[override]
        if self._first is None:  # Spark asks twice, and has to get the same answer
            self._first = self._stream().query(self._begin)
        return self._first.as_text()

    def _begin(self, snapshot: Snapshot) -> StreamCut:
        """Where a new query starts."""
        if self._options.starting_timestamp is not None:
            cut, place = snapshot.cut_at(self._options.starting_timestamp), "starting_timestamp"
        else:
            place, _ = self._options.streaming_cuts()
            cut = resolve_cut(snapshot, place, snapshot.head_cut())
        self._tell_start(snapshot, cut, place if place in (*CUT_KEYWORDS, "starting_timestamp") else "a given cut")
        return cut

    def _tell_start(self, snapshot: Snapshot, cut: StreamCut, place: str) -> None:
        """Log where a new query starts and what lies before that; as a warning where nobody asked to leave it out."""
        head = snapshot.head_cut()
        if snapshot.record.history.compare(cut.positions, head.positions) is not Comparison.EQUAL_OR_AFTER:
            return  # in front of the head: what is missing is told when it is to be read
        events, size = snapshot.events_between(head, cut), snapshot.size_between(head, cut)
        left_out = f"and does not read the {events} events ({size} bytes) before it" if events else "at the first event"
        unasked = self._options.start_stream_cut is None and self._options.starting_timestamp is None and events > 0
        how = " as by default: set option 'start_stream_cut' to 'earliest' to read them too" if unasked else ""
        level = logging.WARNING if unasked else logging.INFO
        told = "A new query on stream %s starts at %s (%s) %s%s."
        logger.log(level, told, snapshot.stream.key, place, cut, left_out, how)

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        return self._second_limit()

    def _second_limit(self) -> ReadLimit:
        """The limit by events; Spark knows of one limit only, so it is kept here when there is one by bytes too."""
        if self._options.max_events_per_trigger is not None:
            return ReadMaxRows(self._options.max_events_per_trigger)
        return ReadAllAvailable()

    @for_users
    def latestOffset(self, start: Any, limit: ReadLimit) -> str:  # type: ignore[override]
        """`start` itself where nothing is new: Spark compares offsets as text, and a cut has several."""
        return self._stream().query(lambda snapshot: self._latest(snapshot, start, limit))

    def _latest(self, snapshot: Snapshot, start: Any, limit: ReadLimit) -> str:
        tail, begin = self._pinned or snapshot.tail_cut(), cut_of(start)
        reached = begin
        if tail.positions != begin.positions:
            tail = self._end(snapshot, tail)
            reached = self._reached(snapshot, begin, tail, limit)
        at_tail = reached.positions == tail.positions
        self._newest = progress_of(reached, tail, AT_TAIL if at_tail else lag(snapshot, reached, tail))
        return str(start) if reached.positions == begin.positions else reached.as_text()

    def _reached(self, snapshot: Snapshot, begin: StreamCut, tail: StreamCut, limit: ReadLimit) -> StreamCut:
        """Where the next batch ends."""
        snapshot.available(snapshot.ranges(begin, tail), self._options.fail_on_data_loss)
        reached = snapshot.up_to_scale(begin, tail)
        if isinstance(limit, ReadMaxBytes):
            reached = snapshot.next_cut(begin, reached, max_bytes=limit.max_bytes)
            limit = self._second_limit()
        if isinstance(limit, ReadMaxRows):
            reached = snapshot.next_cut(begin, reached, max_events=limit.max_rows)
        return reached

    def _end(self, snapshot: Snapshot, tail: StreamCut) -> StreamCut:
        """The tail, or where the query is to end."""
        if self._options.ending_timestamp is not None:
            return snapshot.earlier(tail, snapshot.cut_at(self._options.ending_timestamp))
        _, end = self._options.streaming_cuts()
        return tail if end in ("unbounded", "latest") else snapshot.earlier(tail, resolve_cut(snapshot, end, tail))

    @for_users
    def prepareForTriggerAvailableNow(self) -> None:
        self._pinned = self._stream().snapshot().tail_cut()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """What the progress shows as the latest offset: Spark has no other place for a lag of a Python source."""
        return self._newest

    @for_users
    def partitions(self, start: Any, end: Any) -> list[InputPartition]:
        begin, finish = cut_of(start), cut_of(end)
        stream = self._stream()
        snapshot = stream.snapshot(refresh=False)
        if not snapshot.has(finish):
            snapshot = stream.snapshot()  # a restarted query plans its last batch again before it looks for news
        return list(plan_partitions(self._options, snapshot, begin, finish, self._columns))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self._options, partition, self._columns)

    def commit(self, end: Any) -> None:
        """Nothing is held for a query: retention goes on under it."""

    def stop(self) -> None:
        """The process ends with the query, and nothing needs to be closed."""
