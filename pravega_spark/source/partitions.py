"""Input partitions: which slices a task reads, and the reading itself."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from pravega_spark.roots import open_root
from pravega_spark.source.event_columns import NUMBERED, EventColumns, schema_of
from pravega_spark.source.failures import for_users
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


class SlicePartition(InputPartition):
    """Slices that one task reads, one after the other."""

    def __init__(self, slices: Sequence[ScanSlice]) -> None:
        super().__init__(None)
        self.slices = tuple(slices)

    def __repr__(self) -> str:
        return f"SlicePartition({[(part.segment_id, part.start, part.end) for part in self.slices]})"


def plan_partitions(
    options: SourceOptions,
    snapshot: Snapshot,
    start: StreamCut,
    end: StreamCut,
    columns: Mapping[str, bool] | None = None,
) -> list[SlicePartition]:
    """The partitions that cover what lies between two cuts; columns: as of `schema_of`.

    Raises TruncatedData, InvalidStreamCut.
    """
    ranges, losses = snapshot.available(snapshot.ranges(start, end), options.fail_on_data_loss)
    for loss in losses:
        logger.warning("%s It is passed over, as option 'fail_on_data_loss' is false.", loss.fact)
    left_out = {}
    if options.large_events == "reference":
        for number, (low, high) in ranges.items():
            left_out[number] = find_left_out(snapshot.segments, number, low, high, options.max_event_bytes)
    total = sum(left_out.get(number, NONE_LEFT_OUT).size(*bounds) for number, bounds in ranges.items())
    wanted = options.min_partitions or 2 * (os.cpu_count() or 1)
    least = 1 if options.min_partitions else LEAST_BYTES
    target = min(options.max_bytes_per_partition, max(least, -(-total // wanted)))
    numbered = not NUMBERED.isdisjoint(schema_of(options, columns).names)
    return _packed(plan_slices(snapshot, ranges, target, left_out, numbered), target, left_out)


def _packed(slices: Sequence[ScanSlice], target: int, left_out: Mapping[int, LeftOut]) -> list[SlicePartition]:
    """Put small slices together until a partition has about `target` bytes."""
    packed: list[list[ScanSlice]] = []
    size = 0
    for part in slices:
        taken = left_out.get(part.segment_id, NONE_LEFT_OUT).size(part.start, part.end)
        if not packed or size + taken > target * 5 // 4:
            packed.append([])
            size = 0
        packed[-1].append(part)
        size += taken
    return [SlicePartition(parts) for parts in packed]


@for_users
def read_partition(
    options: SourceOptions, partition: InputPartition, columns: Mapping[str, bool] | None = None
) -> Iterator[pa.RecordBatch]:
    """What a task reads; columns: as of `schema_of`."""
    if not isinstance(partition, SlicePartition):
        return  # Spark asks for one partition where there is nothing to read
    root = open_root(options.root, options.storage, options.wal, salvage=options.salvage)
    made = EventColumns(options, columns)
    reader = SliceReader(root, options.scope, options.stream, options.fail_on_data_loss, made.most_bytes)
    for events in reader.read(partition.slices):
        yield from made.batches(events)
