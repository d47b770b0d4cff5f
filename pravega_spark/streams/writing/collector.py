"""Collects the rows of a write that one append will commit: frames them, and writes chunks if there are many (S3).

Little data is returned as it is, for the append to carry; of much data the chunks are returned, for the append to
attach. A task of a Spark job collects its rows so, and `StreamManager.write_events` those of a frame. Keeps that the
events of a segment stay in the order of the rows.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from engine.state.attach_fence import creation_time
from pravega_spark.streams.model.events import event_header
from pravega_spark.streams.model.framing import Framed, frame_column, large_rows, payload_of
from pravega_spark.streams.model.index import sparse_records
from pravega_spark.streams.model.names import segment_name
from pravega_spark.streams.writing.chunk_uploads import ChunkUploads
from pravega_spark.streams.writing.digests import Digest
from pravega_spark.streams.writing.route_targets import RouteTarget, RouteTargets
from pravega_spark.streams.writing.segment_outputs import SegmentOutput

if TYPE_CHECKING:
    import pyarrow as pa

    from chunkstore import Store
    from engine.state.segments import Extent

INLINE_BYTES = 256 << 10
"""A Spark task with no more than this puts its data into its commit message."""

CHUNK_BYTES = 8 << 20
CHUNK_BYTES_REMOTE = 32 << 20
"""A chunk is written whenever this much is collected. Small chunks let a disk start early, and leave little to wait for
at the end; storages with slow requests get larger ones."""

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

    def output(self, content: bytes | tuple[Extent, ...]) -> SegmentOutput:
        """The output for the segment, with its content."""
        return SegmentOutput(self.target.stream, self.target.segment_id, content, self.records, self.events)


class Collector:
    """Collects rows by segment, and writes chunks if there are many. For one thread.

    routes: has the segments. digested: whether to compute a digest of each stream's rows, in `digests`.
    """

    def __init__(self, store: Store, scope: str, routes: RouteTargets, digested: bool = False) -> None:
        self._store = store
        self._scope = scope
        self._routes = routes
        self._framed: list[Framed] = []
        self._size = 0
        self._outputs: list[SegmentOutput] = []
        self.digests = defaultdict[str, Digest](Digest) if digested else None
        chunk_bytes = CHUNK_BYTES_REMOTE if self._store.remote else CHUNK_BYTES
        self._collected_bytes = chunk_bytes * (1 if len(routes.targets) == 1 else COLLECTED_CHUNKS)
        self._in_flight = BYTES_IN_FLIGHT // chunk_bytes
        self._uploads = ChunkUploads[list[_Group] | None](self._store, self._in_flight, "chunks")

    @property
    def chunks(self) -> list[str]:
        """The names of all chunks whose upload began."""
        return self._uploads.names

    def add(self, events: pa.Array, targets: np.ndarray | None) -> None:
        """Frame some rows: their events, and the index of each one's target in `routes`; None: 0 for all."""
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
        framed = frame_column(events.slice(first, end - first), own, len(self._routes.targets))
        if self.digests is not None:
            for stream, begin, behind in self._routes.spans():
                self._digest(stream, Digest.of_framed(framed.part(begin, behind)))
        self._framed.append(framed)
        self._size += framed.data.size
        if self._size >= self._collected_bytes:
            self._write_chunks()

    def _digest(self, stream: str, digest: Digest) -> None:
        if self.digests is not None and digest.events:
            self.digests[stream] = Digest.total([self.digests[stream], digest])

    def finish(self, inline_bytes: int | None = None) -> list[SegmentOutput]:
        """The outputs of all rows, in order for each segment; durable unless they are bytes.

        inline_bytes: rows of no more than this in all are returned as bytes; by default INLINE_BYTES.
        """
        if self._uploads.names or self._size > (INLINE_BYTES if inline_bytes is None else inline_bytes):
            self._write_chunks()
        else:
            for group in self._by_segment():
                self._outputs.append(group.output(b"".join(group.buffers)))
        self._take_written(0)
        self._uploads.close()
        return self._outputs

    def created_at(self) -> int | None:
        """The time of the first chunk by the storage's clock, once all are written; None if there is none. A commit
        that comes too late after it is rejected (see `engine.state.attach_fence`)."""
        names = self._uploads.names
        return creation_time(self._store.stat(names[0]).modified) if names else None

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
            groups.append(_Group(self._routes.targets[index], buffers, records, len(lengths)))
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
        target = self._routes.targets[index]
        header = event_header(len(payload))
        parts = [[payload[at : at + LARGE_PART_BYTES]] for at in range(0, len(payload), LARGE_PART_BYTES)]
        parts[0].insert(0, memoryview(header))
        for part in parts:
            self._uploads.send(None, self._name_of(target), [part])
        extents = self._take_written(0)
        self._digest(target.stream, Digest.of_large(extents))
        records = sparse_records(np.array([len(header) + len(payload)]), time_ms=0)
        self._outputs.append(SegmentOutput(target.stream, target.segment_id, extents, records, 1))

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
        """Delete the chunks of a write that failed before its commit."""
        self._uploads.close()
        self._store.delete(self._uploads.names)
