"""Collects a task's rows: routes and frames them, and writes chunks if there are many (S3).

Small data travels in the task's commit message, large data in chunks that the driver's commit attaches.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from engine.state.attach_fence import creation_time
from pravega_spark.roots import open_root
from pravega_spark.source.router import Router, RouteTarget
from pravega_spark.source.task_outputs import TaskMessage, TaskOutput
from pravega_spark.streams.model.events import event_header
from pravega_spark.streams.model.framing import Framed, frame_column, large_rows, payload_of
from pravega_spark.streams.model.index import sparse_records
from pravega_spark.streams.model.names import segment_name
from pravega_spark.streams.writing.chunk_uploads import ChunkUploads
from pravega_spark.streams.writing.digests import Digest

if TYPE_CHECKING:
    import pyarrow as pa

    from engine.state.segments import Extent
    from pravega_spark.source.options import SourceOptions
    from pravega_spark.streams.model.stream_record import Routing
    from pravega_spark.streams.stream import Stream

INLINE_BYTES = 256 << 10
"""A task with no more than this puts its data into its commit message."""

CHUNK_BYTES = 8 << 20
CHUNK_BYTES_REMOTE = 32 << 20
"""A task writes a chunk whenever it has collected this much. Small chunks let a disk start early, and leave little to
wait for at the end; storages with slow requests get larger ones."""

COLLECTED_CHUNKS = 2
"""How many chunks are collected at a time if rows go to several segments."""

OWN_CHUNK_BYTES = 2 << 20
"""A segment with this much gets a chunk of its own. The next flush copies chunks that segments share."""

BYTES_IN_FLIGHT = 32 << 20
"""How much may be in flight while the next chunk is collected."""

LARGE_PART_BYTES = 32 << 20
"""A large event is written in chunks of this size, as some storage clients copy each request's data."""


class _Group(NamedTuple):
    """The collected rows of one segment."""

    target: RouteTarget
    buffers: list[memoryview]
    records: np.ndarray
    events: int

    def size(self) -> int:
        """Bytes of the framed events."""
        return sum(map(len, self.buffers))

    def output(self, content: bytes | tuple[Extent, ...]) -> TaskOutput:
        """The task's output for the segment, with its content."""
        return TaskOutput(self.target.stream, self.target.segment_id, content, self.records, self.events)


class Collector:
    """Collects a task's rows by segment, and writes chunks if there are many.

    planned: the routing of the rows; None if each names its stream. digested: whether to compute a digest of each
    stream's rows. refuse_sealed: called for a sealed stream that rows name (see Router).
    """

    def __init__(
        self,
        options: SourceOptions,
        planned: Routing | None,
        digested: bool = False,
        refuse_sealed: Callable[[Stream], None] | None = None,
    ) -> None:
        self._store = open_root(options.root, options.storage, options.wal).stores.chunks
        self._scope = options.scope
        self._router = Router(options, planned, refuse_sealed)
        self._framed: list[Framed] = []
        self._size = 0
        self._outputs: list[TaskOutput] = []
        self._digests = defaultdict[str, Digest](Digest) if digested else None
        chunk_bytes = CHUNK_BYTES_REMOTE if self._store.remote else CHUNK_BYTES
        one = planned is not None and len(planned.segments) == 1
        self._collected_bytes = chunk_bytes * (1 if one else COLLECTED_CHUNKS)
        self._in_flight = BYTES_IN_FLIGHT // chunk_bytes
        self._uploads = ChunkUploads[list[_Group] | None](self._store, self._in_flight, "chunks")

    def add(self, batch: pa.RecordBatch) -> None:
        """Route and frame the rows of a batch."""
        events = batch.column("event")
        if events.null_count:  # the row's number would not help, as Spark cuts rows into tasks and batches freely
            raise ValueError(
                f"Column 'event' is null in {events.null_count} of the {len(events)} rows that a task got at once: "
                'filter out such rows with where("event is not null"), or give them an empty event.'
            )
        targets = self._router.find(batch)
        first = 0
        for row in large_rows(events):
            self._add_small(events, targets, first, row)
            self._write_large(0 if targets is None else int(targets[row]), payload_of(events, row))
            first = row + 1
        self._add_small(events, targets, first, len(events))

    def _add_small(self, events: pa.Array, targets: np.ndarray | None, first: int, end: int) -> None:
        """Frame some rows of a column, none of which is large."""
        if first == end:
            return
        own = None if targets is None else targets[first:end]
        framed = frame_column(events.slice(first, end - first), own, len(self._router.targets))
        if self._digests is not None:
            for stream, begin, behind in self._router.spans():
                self._digest(stream, Digest.of_framed(framed.part(begin, behind)))
        self._framed.append(framed)
        self._size += framed.data.size
        if self._size >= self._collected_bytes:
            self._write_chunks()

    def _digest(self, stream: str, digest: Digest) -> None:
        if self._digests is not None and digest.events:
            self._digests[stream] = Digest.total([self._digests[stream], digest])

    def finish(self, query_id: str | None) -> TaskMessage:
        """The message to the driver: the outputs of all rows, durable unless they are inline."""
        if self._uploads.names or self._size > INLINE_BYTES:
            self._write_chunks()
        else:
            for group in self._by_segment():
                self._outputs.append(group.output(b"".join(group.buffers)))
        self._take_written(0)
        self._uploads.close()
        created_at = None
        if self._uploads.names:
            created_at = creation_time(self._store.stat(self._uploads.names[0]).modified)
        digests = dict(self._digests) if self._digests is not None else None
        return TaskMessage(self._outputs, query_id, self._router.planned, created_at, digests)

    def _by_segment(self) -> list[_Group]:
        found: dict[int, list[Framed]] = defaultdict(list)
        for framed in self._framed:
            for index in framed.segments():
                found[index].append(framed)
        groups = []
        for index, some in sorted(found.items()):
            lengths = np.concatenate([framed.segment_lengths(index) for framed in some])
            buffers = [memoryview(framed.segment_data(index)) for framed in some]
            records = sparse_records(lengths, time_ms=0)
            groups.append(_Group(self._router.targets[index], buffers, records, len(lengths)))
        return groups

    def _write_chunks(self) -> None:
        """Start to write all collected rows.

        A segment with many of them gets a chunk of its own, which a flush adopts as it is. The other segments of a
        container share a chunk; not those of several containers, as one container alone decides when it is garbage.
        """
        groups = self._by_segment()
        self._framed, self._size = [], 0
        large = [group for group in groups if group.size() >= OWN_CHUNK_BYTES]
        small: dict[int, list[_Group]] = defaultdict(list)
        for group in groups:
            if group.size() < OWN_CHUNK_BYTES:
                small[group.target.container].append(group)
        for together in [*([group] for group in large), *small.values()]:
            self._uploads.send(together, self._name_of(together[0].target), [group.buffers for group in together])
            self._take_written(self._in_flight)

    def _name_of(self, target: RouteTarget) -> str:
        return segment_name(self._scope, target.stream, target.segment_id)

    def _write_large(self, index: int, payload: memoryview) -> None:
        """Write a large event from Arrow's memory into chunks of its own, after all rows that were collected before
        it."""
        if self._framed:
            self._write_chunks()
        target = self._router.targets[index]
        header = event_header(len(payload))
        parts = [[payload[at : at + LARGE_PART_BYTES]] for at in range(0, len(payload), LARGE_PART_BYTES)]
        parts[0].insert(0, memoryview(header))
        for part in parts:
            self._uploads.send(None, self._name_of(target), [part])
        extents = self._take_written(0)
        self._digest(target.stream, Digest.of_large(extents))
        records = sparse_records(np.array([len(header) + len(payload)]), time_ms=0)
        self._outputs.append(TaskOutput(target.stream, target.segment_id, extents, records, 1))

    def _take_written(self, most: int) -> tuple[Extent, ...]:
        """Wait until at most `most` chunks are in flight. Returns the extents of those that hold a large event."""
        large: list[Extent] = []
        for groups, extents in self._uploads.written(most):
            if groups is None:
                large += extents
                continue
            for group, extent in zip(groups, extents, strict=True):
                self._outputs.append(group.output((extent,)))
        return tuple(large)

    def drop(self) -> None:
        """Delete the chunks of a task that failed."""
        self._uploads.close()
        self._store.delete(self._uploads.names)
