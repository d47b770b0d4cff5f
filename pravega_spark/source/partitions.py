"""Input partitions: plans which slices each task reads, and reads them."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql.datasource import InputPartition

from pravega_spark.roots import open_root
from pravega_spark.source.columns import TIME_COLUMNS, as_insertable, read_columns, with_window
from pravega_spark.source.failures import for_users
from pravega_spark.source.split_planner import SplitPlanner, split_count
from pravega_spark.streams.reading.event_columns import NUMBERED, EventColumns
from pravega_spark.streams.reading.large_events import NONE_LEFT_OUT, SkippedEvent, find_skipped_events
from pravega_spark.streams.reading.scan import SliceReader
from pravega_spark.streams.reading.slices import ScanSlice, plan_slice
from pravega_spark.streams.stream_time import time_window

if TYPE_CHECKING:
    import pyarrow as pa

    from pravega_spark.source.options import SourceOptions
    from pravega_spark.streams.model.cuts import StreamCut
    from pravega_spark.streams.model.watermarks import TimeWindow
    from pravega_spark.streams.reading.bounds import Bounds
    from pravega_spark.streams.reading.snapshot import Snapshot
    from pravega_spark.streams.values.columns import ValueColumns

logger = logging.getLogger(__name__)

LEAST_BYTES = 4 << 20
"""Minimum size of a partition, because each task costs time to start. Option `min_partitions` overrides it."""


Slice = tuple[str, ScanSlice]
"""The name of a stream, and a slice of one of its segments."""


class StreamRange(NamedTuple):
    """The range between two cuts of one stream. options: those of a read of this stream alone."""

    options: SourceOptions
    snapshot: Snapshot
    start: StreamCut
    end: StreamCut


class SlicePartition(InputPartition):
    """The slices that one task reads, one after the other, and the stream of each. windows: of time, by stream."""

    def __init__(self, slices: Sequence[Slice], windows: Mapping[str, TimeWindow]) -> None:
        super().__init__(None)
        self.streams = tuple(stream for stream, _ in slices)
        self.slices = tuple(part for _, part in slices)
        self.windows = {stream: windows[stream] for stream in self.streams if stream in windows}

    def by_stream(self) -> Iterator[tuple[str, list[ScanSlice]]]:
        """The slices of each stream in turn."""
        for stream, pairs in groupby(zip(self.streams, self.slices, strict=True), lambda pair: pair[0]):
            yield stream, [part for _, part in pairs]

    def __repr__(self) -> str:
        return f"SlicePartition({[(part.segment_id, part.start, part.end) for part in self.slices]})"


def plan_streams(
    ranges: Sequence[StreamRange], columns: Mapping[str, bool] | None = None, bounds: Bounds | None = None
) -> list[SlicePartition]:
    """The partitions of a read of some streams; columns: None for those of the options. bounds: of the wanted events.

    Partitions have about the same size, as far as event boundaries allow it. Small segments, also of several streams,
    share a partition, and large segments are cut. Raises TruncatedData, InvalidStreamCut.
    """
    if not ranges:
        return []
    options = ranges[0].options
    reads = [_StreamRead(each, bounds) for each in ranges]
    wanted = _columns(options, columns)
    numbered = not NUMBERED.isdisjoint(wanted)
    windows = {} if TIME_COLUMNS.keys().isdisjoint(wanted) else dict(map(_window, ranges))
    total = sum(read.total for read in reads)
    planner = SplitPlanner[Slice](total, _partition_count(options, total))
    for read in reads:
        read.divide(planner, numbered)
    return [SlicePartition(slices, windows) for slices in planner.splits()]


def _window(wanted: StreamRange) -> tuple[str, TimeWindow]:
    """The bounds of time in a range, for its stream."""
    return wanted.snapshot.stream.name, time_window(wanted.snapshot, wanted.start, wanted.end)


def _partition_count(options: SourceOptions, total: int) -> int:
    """The number of partitions for `total` bytes."""
    least = options.min_partitions or min(2 * (os.cpu_count() or 1), split_count(total, LEAST_BYTES))
    return max(1, least, -(-total // options.max_bytes_per_partition))


class _StreamRead:
    """The ranges of one stream that can be read. total: their bytes, without large events that are left out."""

    def __init__(self, wanted: StreamRange, bounds: Bounds | None) -> None:
        options, self._snapshot = wanted.options, wanted.snapshot
        ranges = self._snapshot.ranges(wanted.start, wanted.end)
        self._ranges, losses = self._snapshot.available(ranges, options.fail_on_data_loss)
        for loss in losses:
            logger.warning("%s It is skipped, as option 'fail_on_data_loss' is false.", loss.fact)
        if bounds is not None:
            self._ranges = bounds.narrowed(self._snapshot, self._ranges)
        self._left_out: dict[int, SkippedEvent] = {}
        if options.large_events == "reference":
            for number, (low, high) in self._ranges.items():
                found = find_skipped_events(self._snapshot.segments, number, low, high, options.max_event_bytes)
                self._left_out[number] = found
        self.total = sum(self._size(number, *bounds) for number, bounds in self._ranges.items())

    def _size(self, number: int, start: int, end: int) -> int:
        return self._left_out.get(number, NONE_LEFT_OUT).size(start, end)

    def divide(self, planner: SplitPlanner[Slice], numbered: bool) -> None:
        """Add slices of all ranges to the splits, in order."""
        snapshot, name = self._snapshot, self._snapshot.stream.name
        for number, (start, end) in self._ranges.items():
            while start < end:
                bound = self._bound(number, start, end, planner)
                size = self._size(number, start, bound)
                if planner.is_over(size):
                    planner.close()  # the slice is planned again, for the next split
                else:
                    planner.add((name, plan_slice(snapshot, number, start, bound, numbered)), size)
                    start = bound

    def _bound(self, number: int, start: int, end: int, planner: SplitPlanner[Slice]) -> int:
        """The end of the next slice of a range: an index record, which is an event boundary, or the range's end."""
        if planner.takes(self._size(number, start, end)) or not self._snapshot.segments.is_indexed(number):
            return end
        left_out = self._left_out.get(number, NONE_LEFT_OUT)
        record = self._snapshot.segments.index(number).locate_offset(left_out.behind(start, planner.room))
        return end if record is None else min(record.offset, end)


def _columns(options: SourceOptions, columns: Mapping[str, bool] | None) -> Mapping[str, bool]:
    """The columns of a read, and whether each may be null: the given ones, or those of its options."""
    return dict.fromkeys(read_columns(options), True) if columns is None else columns


@for_users
def read_partition(
    options: SourceOptions,
    partition: InputPartition,
    columns: Mapping[str, bool] | None = None,
    values: ValueColumns | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of a partition; columns: None for those of the options. values: those that are decoded from events."""
    if not isinstance(partition, SlicePartition):
        return  # the plan has no partitions, so Spark passes one of its own
    root = open_root(**options.opening)
    wanted = _columns(options, columns)
    stored = {name: nullable for name, nullable in wanted.items() if name not in ("routing_key", *TIME_COLUMNS)}
    seen = {name: nullable for name, nullable in wanted.items() if name != "routing_key"}
    for stream, slices in partition.by_stream():
        made = EventColumns(options.of_stream(stream) if options.is_multi_stream else options, stored, values)
        reader = SliceReader(root, options.scope, stream, options.fail_on_data_loss, made.most_bytes)
        for events in reader.read(slices):
            for batch in made.batches(events):
                rows = with_window(batch, seen, partition.windows[stream]) if len(seen) > len(stored) else batch
                yield as_insertable(rows, wanted) if options.insertable else rows
