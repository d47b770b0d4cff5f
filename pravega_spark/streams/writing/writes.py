"""Writes to streams of one container, all in one atomic append (X1), each with the name and number of its writer (X3).

The one loop in which an append is refused, and tried again on what the streams are by then: a replay changes nothing,
and what was planned before a stream was scaled goes where its keys go now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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
from pravega_spark.streams.model.index import encode_records
from pravega_spark.streams.model.names import index_segment_name, segment_name
from pravega_spark.streams.model.policies import OnChangedReplay
from pravega_spark.streams.writing import changes
from pravega_spark.streams.writing.digests import Digest
from pravega_spark.streams.writing.event_order import Mix, keeping, order_segments
from pravega_spark.streams.writing.outcome_retry import OutcomeRetry
from pravega_spark.streams.writing.producer_state import NamedWrite

if TYPE_CHECKING:
    from pravega_spark.streams.model.stream_record import Routing
    from pravega_spark.streams.reading.location import StreamLocation
    from pravega_spark.streams.reading.snapshot import Snapshot

_SAFE = "It is committed completely or not at all. Writing it again with the same name and number is safe"


class SegmentAppend(NamedTuple):
    """What a write appends to one segment.

    content: framed events, or extents of chunks that hold them. records: sparse index records relative to the content's
    start (see index.sparse_records). events: how many there are. created_at: when the first of the chunks was begun
    (see `engine.state.attach_fence`).
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
"""What a write appends, in order, and by what each part of it was routed; None: to the named segments, or nowhere."""


class StreamWrite:
    """A write to one stream: its parts, and what is remembered of it. `Stream.to_write` makes it.

    snapshot: gives the stream as it is now. writer: the name of a writer and a number that grows with each of its
    writes. digest: of what is written, if there is a writer; without one its events and bytes only are remembered.
    on_changed_replay: what to do where the number is there already, and not known to be with the same data.
    accept_lost: whether the writer goes on though a restore or a recovery lost writes of it. mix: how its events were
    mixed, if that is known and the segments are named. new: whether it is to be written, or was written, and not found
    to be there.
    """

    def __init__(
        self,
        stream: StreamLocation,
        snapshot: Callable[[bool], Snapshot],
        parts: Parts,
        writer: tuple[str, int] | None = None,
        digest: Digest | None = None,
        on_changed_replay: OnChangedReplay = "skip",
        accept_lost: bool = False,
        mix: Mix | None = None,
    ) -> None:
        self.stream = stream
        self._snapshot = snapshot
        self.new = True
        self._parts = parts
        self._policy = on_changed_replay
        self._accept_lost = accept_lost
        self._mix = mix
        self._written = [part for _, some in parts for part in some]
        self._before: list[Operation] = []
        self._after: list[Operation] = []
        self.named: NamedWrite | None = None
        self._remembering: list[Operation] = []
        if writer is not None:
            self.named = self._named(*writer, digest or _figures(self._written))
            self._remembering = self.named.remembering()

    def _named(self, name: str, number: int, digest: Digest) -> NamedWrite:
        with suppress(StreamNotFound):  # which the append will find too
            generation = self._snapshot(False).record.generation.epoch
            return NamedWrite(self.stream.writers, name, number, digest, generation)
        return NamedWrite(self.stream.writers, name, number, digest)

    @property
    def planned(self) -> bool:
        """Whether it may go elsewhere if the stream was scaled."""
        return all(routing is not None for routing, _ in self._parts)

    def operations(self) -> list[Operation]:
        """What remembers it goes first: a replay is to be known as one, whatever has become of the stream."""
        appends = stream_operations(self.stream, self._written)
        kept = keeping(self.stream.container, self.stream.key, self._mix)
        return [*self._remembering, *self._before, *appends, *kept, *self._after]

    def is_of_order(self, error: SegmentNotFound | SegmentExists) -> bool:
        """Whether an append was refused because the segment that keeps the order is, or is not, there by now."""
        return error.segment in order_segments(self.stream.key)

    def is_refused(self, error: BadAttributeUpdate) -> bool:
        """Whether an append was refused because of what is remembered of this write's writer.

        Then it is made anew, or is found not to be new. Raises ReplayChanged, WritesLost.
        """
        if self.named is None or not self.named.is_refused(error):
            return False
        found = self.named.found(self.stream.container)
        if found is None or found.number < self.named.number:
            self._remembering = self.named.continuing(self.stream.key, found, self._accept_lost)
        elif self.named.judge(self.stream.key, found, self._policy):
            self._remembering = self.named.replacing(found)
        else:
            self.new = False
        return True

    def reroute(self) -> None:
        """Let it go where its segments' keys go now, after what was written before.

        Raises StreamSealed, StreamNotFound.
        """
        routed = [(routing, parts) for routing, parts in self._parts if routing is not None]
        used = [(routing, {part.segment_id for part in parts}) for routing, parts in routed]
        targets, self._before, self._after = changes.reroute(self._snapshot(True), used)
        self._written = [
            part._replace(segment_id=target[part.segment_id])
            for (_, parts), target in zip(routed, targets, strict=True)
            for part in parts
        ]


def write_together(writes: Sequence[StreamWrite]) -> None:
    """Append to streams of one container, all or nothing, durable on return; what is there already is left out.

    Raises StreamSealed, StreamNotFound, ReplayChanged, WritesLost, ChunksExpired, StorageError; SegmentSealed or
    SegmentNotFound for what may go nowhere else; OutcomeUnknown, where all writers have names only after trying again
    for some minutes.
    """
    pending = list(writes)
    container = pending[0].stream.container
    known = all(write.named is not None for write in pending)
    keys = ", ".join(write.stream.key for write in pending)
    what = f"stream{'s' * (len(pending) > 1)} {keys}: it is unknown whether {pending[0].named} was committed"
    retry = OutcomeRetry(container, what, _SAFE)
    while pending:
        try:
            container.commit([operation for write in pending for operation in write.operations()])
            return
        except BadAttributeUpdate as error:
            if not any(write.is_refused(error) for write in pending):
                raise
            pending = [write for write in pending if write.new]
        except OutcomeUnknown as error:
            if not known:
                raise
            retry.again(error)  # with names it can be tried again: what is there is not written twice
        except (SegmentExists, SegmentSealed, SegmentNotFound, BadKeyVersion) as error:
            if isinstance(error, SegmentExists | SegmentNotFound) and any(each.is_of_order(error) for each in pending):
                continue
            if not all(write.planned for write in pending):
                raise
            for write in pending:
                write.reroute()


def _figures(parts: Iterable[SegmentAppend]) -> Digest:
    """The digest of what nobody has made one of: the figures that the parts tell."""
    return Digest.total(Digest(part.events, part.size) for part in parts)


def stream_operations(stream: StreamLocation, parts: Sequence[SegmentAppend]) -> list[Operation]:
    """What appends parts to a stream: each segment's index records and events."""
    operations: list[Operation] = []
    for part in parts:
        operations += append_operations(segment_name(stream.scope, stream.name, part.segment_id), part)
    return operations


def append_operations(segment: str, part: SegmentAppend) -> list[Operation]:
    """What appends a part to a segment and its index, the index first."""
    count = AttributeUpdate(EVENT_COUNT, UpdateKind.ACCUMULATE, part.events)
    return [
        Append(index_segment_name(segment), index_content(segment, part.records)),
        Append(segment, part.content, None, (count,), part.created_at),
    ]


def index_content(segment: str, records: np.ndarray) -> IndexRecords:
    """What goes to the index with an append to `segment`: its records, which count from where the append begins."""
    return IndexRecords(segment, encode_records(records))
