"""Writes to streams of one container, all in one atomic append (X1). A write may be idempotent (X3).

Owns the one loop that retries a rejected append against the current state of the streams: a replay changes nothing, and
events that were routed before a stream was scaled go to the segments that own their keys now.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from engine.errors import (
    BadAttributeUpdate,
    BadKeyVersion,
    OutcomeUnknown,
    SegmentExists,
    SegmentNotFound,
    SegmentSealed,
)
from engine.state.index_records import IndexRecords
from engine.state.operations import Append, AttributeUpdate, Operation, Payload, UpdateKind
from engine.state.segments import EVENT_COUNT, Extent
from pravega_spark.errors import StreamNotFound
from pravega_spark.streams.model.index import encode_records, sparse_records
from pravega_spark.streams.model.names import index_segment_name, segment_name
from pravega_spark.streams.writing import changes
from pravega_spark.streams.writing.digests import Digest
from pravega_spark.streams.writing.event_numbers import NumberedWrite, NumberUpdate
from pravega_spark.streams.writing.event_order import Interleaving, order_operations, order_segments
from pravega_spark.streams.writing.outcome_retry import OutcomeRetry
from pravega_spark.streams.writing.producer_state import ProducerUpdate, ProducerWrite
from pravega_spark.streams.writing.writable_stream import WritableStream

if TYPE_CHECKING:
    from pravega_spark.streams.model.epochs import StreamSegmentRecord
    from pravega_spark.streams.model.stream_record import Routing

_SAFE = "It is committed completely or not at all. Writing it again with the same name and number is safe"


class SegmentAppend(NamedTuple):
    """What a write appends to one segment.

    content: framed events, or extents of chunks that hold them. records: sparse index records relative to the content's
    start (see index.sparse_records). events: their number. created_at: when the upload of the first chunk began (see
    `engine.state.attach_fence`).
    """

    segment_id: int
    content: Payload | tuple[Extent, ...]
    records: np.ndarray
    events: int
    created_at: int = 0

    @property
    def size(self) -> int:
        """Bytes of the events, with their headers."""
        return len(self.content) if isinstance(self.content, Payload) else sum(each.length for each in self.content)


Parts = Sequence[tuple["Routing | None", Sequence[SegmentAppend]]]
"""What a write appends, in order, each with the routing that chose its segments. None: these segments, or an error."""


class StreamWrite:
    """A write to one stream. `write_together` commits it, with writes to other streams of the container.

    producer: makes it idempotent. interleaving: of its events across segments, if that is known and no part has a
    routing. new: False once the write was found to be committed already.
    """

    def __init__(
        self,
        stream: WritableStream,
        parts: Parts,
        producer: ProducerWrite | NumberedWrite | None = None,
        interleaving: Interleaving | None = None,
    ) -> None:
        self.stream = stream
        self.new = True
        self._parts = parts
        self.producer = producer
        self._interleaving = interleaving
        self._routed = [part for _, some in parts for part in some]
        self._before: list[Operation] = []
        self._after: list[Operation] = []
        self._update: ProducerUpdate | NumberUpdate | None = None
        self._update_operations: list[Operation] = []

    def begin(self) -> None:
        """Begin a generation of the stream if its container has a new one, and prepare the producer's update."""
        self.stream.begin_generation()
        if self.producer is None:
            return
        if isinstance(self.producer, NumberedWrite):
            self._update = NumberUpdate(self.stream, self.producer)
        else:
            self._update = self._replayable(self.producer)
        self._update_operations = self._update.advance()

    def _replayable(self, write: ProducerWrite) -> ProducerUpdate:
        """The update of the producer's state, with the digest of the events."""
        digest = write.digest
        if digest is None:
            digest = Digest.total(Digest(part.events, part.size) for part in self._routed)
        generation = 0
        with suppress(StreamNotFound):  # the append raises it too
            generation = self.stream.snapshot(refresh=False).record.generation.epoch
        return ProducerUpdate(self.stream, write._replace(digest=digest), generation)

    @property
    def has_routing(self) -> bool:
        """Whether it can be rerouted if the stream was scaled."""
        return all(routing is not None for routing, _ in self._parts)

    def operations(self) -> list[Operation]:
        """The producer's update comes first: a replay is recognised even if the stream was scaled or sealed since."""
        appends: list[Operation] = []
        for part in self._routed:
            appends += append_operations(segment_name(self.stream.scope, self.stream.name, part.segment_id), part)
        order = order_operations(self.stream.container, self.stream.key, self._interleaving)
        return [*self._update_operations, *self._before, *appends, *order, *self._after]

    def is_of_order(self, error: SegmentNotFound | SegmentExists) -> bool:
        """Whether an append was rejected because the segment of the stream's order was created or deleted meanwhile."""
        return error.segment in order_segments(self.stream.key)

    def resolve_rejection(self, error: BadAttributeUpdate) -> bool:
        """Whether an append was rejected because of this producer's state.

        If so, the update is prepared again for that state, or `new` becomes False. Raises ReplayChanged, WritesLost;
        AlreadyWritten, NumbersLost.
        """
        if self._update is None or not self._update.is_rejected_by(error):
            return False
        operations = self._update.resolved()
        if operations is None:
            self.new = False
        else:
            self._update_operations = operations
        return True

    def reroute(self) -> None:
        """Send its events to the segments that own their keys now, after all events written before.

        Raises StreamSealed, StreamNotFound.
        """
        routed = [(routing, parts) for routing, parts in self._parts if routing is not None]
        used = [(routing, {part.segment_id for part in parts}) for routing, parts in routed]
        targets, self._before, self._after = changes.reroute(self.stream.snapshot(), used)
        self._routed = [
            part._replace(segment_id=target[part.segment_id])
            for (_, parts), target in zip(routed, targets, strict=True)
            for part in parts
        ]


def write_together(writes: Sequence[StreamWrite]) -> None:
    """Append to streams of one container, all or nothing, durable on return. Writes that are committed already are left
    out.

    Raises StreamSealed, StreamNotFound, ReplayChanged, WritesLost, ChunksExpired, StorageError; for numbered events
    AlreadyWritten and NumbersLost; SegmentSealed or SegmentNotFound for parts without a routing. Raises OutcomeUnknown
    at once if a write is not idempotent, otherwise after retrying for some minutes.
    """
    container = writes[0].stream.container
    container.check_room()
    for write in writes:
        write.begin()
    pending = list(writes)
    idempotent = all(write.producer is not None for write in pending)
    keys = ", ".join(write.stream.key for write in pending)
    what = f"stream{'s' * (len(pending) > 1)} {keys}: it is unknown whether {pending[0].producer} was committed"
    retry = OutcomeRetry(container, what, _SAFE)
    while pending:
        try:
            container.commit([operation for write in pending for operation in write.operations()])
            return
        except BadAttributeUpdate as error:
            if not any(write.resolve_rejection(error) for write in pending):
                raise
            pending = [write for write in pending if write.new]
        except OutcomeUnknown as error:
            if not idempotent:
                raise
            retry.wait_or_raise(error)  # a repeated write is recognised
        except (SegmentExists, SegmentSealed, SegmentNotFound, BadKeyVersion) as error:
            if isinstance(error, SegmentExists | SegmentNotFound) and any(each.is_of_order(error) for each in pending):
                continue
            if not all(write.has_routing for write in pending):
                raise
            for write in pending:
                write.reroute()


def append_operations(segment: str, part: SegmentAppend, offset: int | None = None) -> list[Operation]:
    """The operations that append a part to a segment and its index, the index first.

    offset: they are rejected with BadOffset unless the segment ends there.
    """
    count = AttributeUpdate(EVENT_COUNT, UpdateKind.ACCUMULATE, part.events)
    return [
        index_append(segment, part.records),
        Append(segment, part.content, offset, (count,), part.created_at),
    ]


def index_append(segment: str, records: np.ndarray) -> Append:
    """The operation that appends to the index of `segment`. Offsets in the records count from the append's start."""
    return Append(index_segment_name(segment), IndexRecords(segment, encode_records(records)))


def segment_appends(
    contents: Iterable[tuple[int, memoryview, np.ndarray]], segments: Sequence[StreamSegmentRecord], time_ms: int
) -> list[SegmentAppend]:
    """Framed events, as `Framed.contents` gives them, as appends to `segments`."""
    return [
        SegmentAppend(segments[index].id, Payload(content), sparse_records(lengths, time_ms), len(lengths))
        for index, content, lengths in contents
    ]
