"""Input partitions: which slices a task reads, and the reading itself."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql.datasource import InputPartition

from pravega_spark.roots import open_root
from pravega_spark.source.columns import read_columns
from pravega_spark.source.even_shares import EvenShares, shares_of
from pravega_spark.source.failures import for_users
from pravega_spark.streams.reading.event_columns import NUMBERED, EventColumns
from pravega_spark.streams.reading.large_events import NONE_LEFT_OUT, SkippedEvent, find_skipped_events
from pravega_spark.streams.reading.scan import SliceReader
from pravega_spark.streams.reading.slices import ScanSlice, plan_slice

if TYPE_CHECKING:
    import pyarrow as pa

    from pravega_spark.source.options import SourceOptions
    from pravega_spark.streams.model.cuts import StreamCut
    from pravega_spark.streams.reading.snapshot import Snapshot

logger = logging.getLogger(__name__)

LEAST_BYTES = 4 << 20
"""A task has to be worth its start: partitions are not made smaller than this unless `min_partitions` asks for it."""


class StreamRange(NamedTuple):
    """What is to be read of one stream: what lies between two cuts of it. options: those of a read of it alone."""

    options: SourceOptions
    snapshot: Snapshot
    start: StreamCut
    end: StreamCut


class SlicePartition(InputPartition):
    """Slices that one task reads, one after the other, and the stream of each."""

    def __init__(self, slices: Sequence[tuple[str, ScanSlice]]) -> None:
        super().__init__(None)
        self.streams = tuple(stream for stream, _ in slices)
        self.slices = tuple(part for _, part in slices)

    def by_stream(self) -> Iterator[tuple[str, list[ScanSlice]]]:
        """The slices of each stream in turn."""
        for stream, pairs in groupby(zip(self.streams, self.slices, strict=True), lambda pair: pair[0]):
            yield stream, [part for _, part in pairs]

    def __repr__(self) -> str:
        return f"SlicePartition({[(part.segment_id, part.start, part.end) for part in self.slices]})"


def plan_streams(ranges: Sequence[StreamRange], columns: Mapping[str, bool] | None = None) -> list[SlicePartition]:
    """The partitions that cover what is to be read of some streams; columns: None for those that the options say.

    They are even, as far as there are event boundaries to cut at, however uneven segments and streams are: small ones
    share partitions, large ones are cut. Raises TruncatedData, InvalidStreamCut.
    """
    if not ranges:
        return []
    options = ranges[0].options
    reads = [_StreamRead(each) for each in ranges]
    numbered = not NUMBERED.isdisjoint(_columns(options, columns))
    total = sum(read.total for read in reads)
    partitions = _Partitions(total, _wanted(options, total))
    for read in reads:
        read.divide(partitions, numbered)
    return partitions.made()


def _wanted(options: SourceOptions, total: int) -> int:
    """Into how many partitions so many bytes are to be cut."""
    least = options.min_partitions or min(2 * (os.cpu_count() or 1), shares_of(total, LEAST_BYTES))
    return max(1, least, -(-total // options.max_bytes_per_partition))


class _StreamRead:
    """What there is to read of one stream. total: its bytes, without large events that are left out."""

    def __init__(self, wanted: StreamRange) -> None:
        options, self._snapshot = wanted.options, wanted.snapshot
        asked = self._snapshot.ranges(wanted.start, wanted.end)
        self._ranges, losses = self._snapshot.available(asked, options.fail_on_data_loss)
        for loss in losses:
            logger.warning("%s It is passed over, as option 'fail_on_data_loss' is false.", loss.fact)
        self._left_out: dict[int, SkippedEvent] = {}
        if options.large_events == "reference":
            for number, (low, high) in self._ranges.items():
                found = find_skipped_events(self._snapshot.segments, number, low, high, options.max_event_bytes)
                self._left_out[number] = found
        self.total = sum(self._size(number, *bounds) for number, bounds in self._ranges.items())

    def _size(self, number: int, start: int, end: int) -> int:
        return self._left_out.get(number, NONE_LEFT_OUT).size(start, end)

    def divide(self, partitions: _Partitions, numbered: bool) -> None:
        """Add all that there is to partitions, in order."""
        snapshot, name = self._snapshot, self._snapshot.stream.name
        for number, (start, end) in self._ranges.items():
            while start < end:
                bound = self._bound(number, start, end, partitions.even)
                size = self._size(number, start, bound)
                if partitions.even.is_over(size):
                    partitions.even.close()  # rather than put it here, begin another one with it or a part of it
                else:
                    partitions.add(name, plan_slice(snapshot, number, start, bound, numbered), size)
                    start = bound

    def _bound(self, number: int, start: int, end: int, even: EvenShares) -> int:
        """Where the next slice of a range ends: at an index record, which is an event boundary, or at its end."""
        if even.takes(self._size(number, start, end)) or not self._snapshot.segments.is_indexed(number):
            return end
        left_out = self._left_out.get(number, NONE_LEFT_OUT)
        record = self._snapshot.segments.index(number).locate_offset(left_out.behind(start, even.room))
        return end if record is None else min(record.offset, end)


class _Partitions:
    """Partitions that are filled one after the other, each with its share."""

    def __init__(self, total: int, count: int) -> None:
        self.even = EvenShares(total, count)
        self._slices: dict[int, list[tuple[str, ScanSlice]]] = {}

    def add(self, stream: str, part: ScanSlice, size: int) -> None:
        """Add the next slice. size: the bytes that are read of it."""
        self._slices.setdefault(self.even.number, []).append((stream, part))
        self.even.take(size)

    def made(self) -> list[SlicePartition]:
        """All of them."""
        return [SlicePartition(slices) for slices in self._slices.values()]


def _columns(options: SourceOptions, columns: Mapping[str, bool] | None) -> Mapping[str, bool]:
    """The columns of a read: the given ones, which may be null or not, or those that its options say."""
    return dict.fromkeys(read_columns(options), True) if columns is None else columns


@for_users
def read_partition(
    options: SourceOptions, partition: InputPartition, columns: Mapping[str, bool] | None = None
) -> Iterator[pa.RecordBatch]:
    """What a task reads; columns: None for those that the options say."""
    if not isinstance(partition, SlicePartition):
        return  # Spark asks for one partition where there is nothing to read
    root = open_root(options.root, options.storage, options.wal, salvage=options.salvage)
    for stream, slices in partition.by_stream():
        made = EventColumns(options.of_stream(stream) if options.several else options, _columns(options, columns))
        reader = SliceReader(root, options.scope, stream, options.fail_on_data_loss, made.most_bytes)
        for events in reader.read(slices):
            yield from made.batches(events)
