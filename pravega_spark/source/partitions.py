"""Input partitions: which slices a task reads, and the reading itself."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql.datasource import InputPartition

from pravega_spark.roots import open_root
from pravega_spark.source.columns import read_columns
from pravega_spark.source.failures import for_users
from pravega_spark.streams.event_columns import NUMBERED, EventColumns
from pravega_spark.streams.large_events import NONE_LEFT_OUT, LeftOut, find_left_out
from pravega_spark.streams.scan import ScanSlice, SliceReader, plan_slices

if TYPE_CHECKING:
    import pyarrow as pa

    from pravega_spark.source.options import SourceOptions
    from pravega_spark.streams.cuts import StreamCut
    from pravega_spark.streams.snapshot import Snapshot

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

    Small streams share partitions. Raises TruncatedData, InvalidStreamCut.
    """
    if not ranges:
        return []
    options = ranges[0].options
    reads = [_StreamRead(each) for each in ranges]
    wanted = options.min_partitions or 2 * (os.cpu_count() or 1)
    least = 1 if options.min_partitions else LEAST_BYTES
    target = min(options.max_bytes_per_partition, max(least, -(-sum(read.total for read in reads) // wanted)))
    numbered = not NUMBERED.isdisjoint(_columns(options, columns))
    return _packed((item for read in reads for item in read.slices(target, numbered)), target)


class _StreamRead:
    """What there is to read of one stream. total: its bytes, without large events that are left out."""

    def __init__(self, wanted: StreamRange) -> None:
        options, self._snapshot = wanted.options, wanted.snapshot
        asked = self._snapshot.ranges(wanted.start, wanted.end)
        self._ranges, losses = self._snapshot.available(asked, options.fail_on_data_loss)
        for loss in losses:
            logger.warning("%s It is passed over, as option 'fail_on_data_loss' is false.", loss.fact)
        self._left_out: dict[int, LeftOut] = {}
        if options.large_events == "reference":
            for number, (low, high) in self._ranges.items():
                found = find_left_out(self._snapshot.segments, number, low, high, options.max_event_bytes)
                self._left_out[number] = found
        self.total = sum(self._size(number, *bounds) for number, bounds in self._ranges.items())

    def _size(self, number: int, start: int, end: int) -> int:
        return self._left_out.get(number, NONE_LEFT_OUT).size(start, end)

    def slices(self, target: int, numbered: bool) -> Iterator[tuple[str, ScanSlice, int]]:
        """The slices, with the stream's name and how many bytes of each are read."""
        for part in plan_slices(self._snapshot, self._ranges, target, self._left_out, numbered):
            yield self._snapshot.stream.name, part, self._size(part.segment_id, part.start, part.end)


def _columns(options: SourceOptions, columns: Mapping[str, bool] | None) -> Mapping[str, bool]:
    """The columns of a read: the given ones, which may be null or not, or those that its options say."""
    return dict.fromkeys(read_columns(options), True) if columns is None else columns


def _packed(slices: Iterable[tuple[str, ScanSlice, int]], target: int) -> list[SlicePartition]:
    """Put small slices together until a partition has about `target` bytes."""
    packed: list[list[tuple[str, ScanSlice]]] = []
    size = 0
    for stream, part, taken in slices:
        if not packed or size + taken > target * 5 // 4:
            packed.append([])
            size = 0
        packed[-1].append((stream, part))
        size += taken
    return [SlicePartition(parts) for parts in packed]


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
