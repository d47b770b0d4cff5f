"""Input partitions: which slices a task reads, and the reading itself."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from pravega_spark.roots import open_root
from pravega_spark.source.columns import Columns
from pravega_spark.source.options import SourceOptions
from pravega_spark.streams.cuts import StreamCut
from pravega_spark.streams.scan import Slice, SliceReader, plan_slices
from pravega_spark.streams.snapshot import Snapshot

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

LEAST_BYTES = 4 << 20
"""A task has to be worth its start: partitions are not made smaller than this unless `min_partitions` asks for it."""


class SlicePartition(InputPartition):
    """Slices that one task reads, one after the other."""

    def __init__(self, slices: Sequence[Slice]) -> None:
        super().__init__(None)
        self.slices = tuple(slices)

    def __repr__(self) -> str:
        return f"SlicePartition({[(part.segment_id, part.start, part.end) for part in self.slices]})"


def plan_partitions(
    options: SourceOptions, snapshot: Snapshot, start: StreamCut, end: StreamCut
) -> list[SlicePartition]:
    """The partitions that cover what lies between two cuts. Raises TruncatedData, InvalidStreamCut."""
    ranges, losses = snapshot.available(snapshot.ranges(start, end), options.fail_on_data_loss)
    for loss in losses:
        logger.warning("fail_on_data_loss is false, so this is only logged: %s", loss)
    total = sum(high - low for low, high in ranges.values())
    wanted = options.min_partitions or 2 * (os.cpu_count() or 1)
    least = 1 if options.min_partitions else LEAST_BYTES
    target = min(options.max_bytes_per_partition, max(least, -(-total // wanted)))
    return _packed(plan_slices(snapshot, ranges, target), target)


def _packed(slices: Sequence[Slice], target: int) -> list[SlicePartition]:
    """Put small slices together until a partition has about `target` bytes."""
    packed: list[list[Slice]] = []
    size = 0
    for part in slices:
        if not packed or size + part.end - part.start > target * 5 // 4:
            packed.append([])
            size = 0
        packed[-1].append(part)
        size += part.end - part.start
    return [SlicePartition(parts) for parts in packed]


def read_partition(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """What a task reads."""
    if not isinstance(partition, SlicePartition):
        return  # Spark asks for one partition where there is nothing to read
    root = open_root(options.root, options.storage, options.wal)
    reader = SliceReader(root, options.scope, options.stream, options.fail_on_data_loss)
    columns = Columns(options)
    for events in reader.read(partition.slices):
        yield from columns.batches(events)
