"""A stream of an open root: its life, its cuts, and the one way in which events get into it.

Keeps X1 (all of a stream lies in one container, so that every change of it is one atomic append) and X3 (a named
writer's last number is remembered in the same append as its data; a replay changes nothing).
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import NamedTuple, TypeVar

import numpy as np

from engine.container import Container
from engine.errors import (
    BadAttributeUpdate,
    BadKeyVersion,
    OutcomeUnknown,
    Rejected,
    SegmentNotFound,
    SegmentSealed,
    SegmentTruncated,
)
from engine.operations import (
    Append,
    AttributeUpdate,
    CreateSegment,
    Derived,
    Discard,
    Operation,
    Payload,
    PutEntry,
    UpdateAttributes,
    UpdateKind,
)
from engine.pending import Receipt
from engine.root import Root
from engine.segments import EVENT_COUNT, Extent, Segment
from engine.state import NOT_EXISTS, State
from pravega_spark.errors import StreamNotFound
from pravega_spark.streams import changes
from pravega_spark.streams.changes import NUMBERS, STREAMS, Change
from pravega_spark.streams.cuts import StreamCut
from pravega_spark.streams.epochs import SegmentRecord
from pravega_spark.streams.index import RECORD_SIZE, encode_records, rebase, sparse_records
from pravega_spark.streams.names import container_of, index_segment_name, segment_name
from pravega_spark.streams.records import RetentionPolicy, Routing, ScalingPolicy, StreamRecord, first_epoch
from pravega_spark.streams.snapshot import Snapshot

T = TypeVar("T")

_REMEMBERED = 256


class Part(NamedTuple):
    """What a write appends to one segment.

    content: framed events, or extents of chunks that hold them. records: sparse index records relative to the content's
    start (see index.sparse_records). events: how many there are. made: when the first of the chunks was begun (see
    `engine.horizon`).
    """

    segment_id: int
    content: Payload | tuple[Extent, ...]
    records: np.ndarray
    events: int
    made: int = 0


class Stream:
    """A stream by name, whether it exists or not. Cheap to make; knows nothing that could get stale but positions."""

    def __init__(self, root: Root, scope: str, name: str) -> None:
        self.root = root
        self.scope = scope
        self.name = name
        self.key = f"{scope}/{name}"
        self.number = container_of(self.key, root.config.containers)
        self._positions: OrderedDict[tuple[str, int], int] = OrderedDict()
        self._decoded: StreamRecord | None = None

    @property
    def container(self) -> Container:
        """The container that holds all of the stream (X1)."""
        return self.root.container(self.number)

    @property
    def writers(self) -> str:
        """The segment without content whose attributes remember the named writers."""
        return f"{self.key}#writers"

    # --- its life ----------------------------------------------------------------------------------------------

    def snapshot(self, refresh: bool = True) -> Snapshot:
        """The stream as it is now; `refresh=False`: as it was when this process last looked. Raises StreamNotFound."""
        container = self.container
        state = container.refresh() if refresh else container.state
        record = self._record(state)
        if record is None:
            raise StreamNotFound(self.key)
        return Snapshot(self, record, state)

    def look(self, question: Callable[[Snapshot], T], refresh: bool = True) -> T:
        """What `question` finds in the stream as it is now; `refresh=False`: as it was when this process last looked.

        Asked again when what it reads was deleted meanwhile. Raises StreamNotFound.
        """
        while True:
            snapshot = self.snapshot(refresh)
            try:
                return question(snapshot)
            except (SegmentTruncated, SegmentNotFound):
                if self.snapshot().record == snapshot.record:
                    raise

    def exists(self) -> bool:
        """Whether the stream exists now, or did when this process last looked: then nothing is requested."""
        container = self.container
        return self._record(container.state) is not None or self._record(container.refresh()) is not None

    def _record(self, state: State) -> StreamRecord | None:
        entry = self.container.entries(STREAMS, [self.key], state)[self.key]
        if entry is None or not entry.value:
            return None
        known = self._decoded
        if known is None or known.version != entry.version:  # no two entries ever have the same version
            known = self._decoded = StreamRecord.decode(entry.value, entry.version)
        return known

    def create(
        self,
        scaling: ScalingPolicy | None = None,
        retention: RetentionPolicy | None = None,
        tags: Sequence[str] = (),
    ) -> bool:
        """Make the stream, in one append. False when it exists already, whatever its policies are."""
        scaling, now = scaling or ScalingPolicy(), int(time.time() * 1000)
        while True:
            state = self.container.refresh()
            if self._record(state) is not None:
                return False
            entry = self.container.entries(NUMBERS, [self.key], state)[self.key]
            numbers, version = (entry.value, entry.version) if entry is not None else (None, NOT_EXISTS)
            epoch = first_epoch(scaling, now, int.from_bytes(numbers or b"", "big"))
            record = StreamRecord(now, (epoch,), scaling, retention, tuple(tags))
            operations: list[Operation] = [
                PutEntry(STREAMS, self.key, record.encode(), NOT_EXISTS),
                PutEntry(NUMBERS, self.key, numbers, version),  # unchanged: no number is used twice
                CreateSegment(self.writers),
                *changes.creations(segment_name(self.scope, self.name, segment.id) for segment in epoch.segments),
            ]
            with suppress(BadKeyVersion):  # made, or made and deleted, by somebody else meanwhile
                self.container.commit(operations)
                return True

    def seal(self) -> None:
        """Let the stream take no more events. Sealing it again changes nothing."""
        self._change(changes.seal)

    def update(
        self,
        scaling: ScalingPolicy | None = None,
        retention: RetentionPolicy | None = None,
        tags: Sequence[str] = (),
    ) -> None:
        """Give the stream these policies and tags instead of those that it has; by default those of a new stream.

        Raises StreamSealed.
        """
        self._change(lambda snapshot: changes.update(snapshot, scaling or ScalingPolicy(), retention, tags))

    def scale(
        self,
        segments_to_seal: Sequence[int],
        new_key_ranges: Sequence[tuple[float, float]],
        expected_epoch: int | None = None,
    ) -> None:
        """Seal segments of the current epoch, and make new ones that share their keys, in one append.

        new_key_ranges: (low, high] for each new segment; together they are exactly the ranges of the sealed segments.
        expected_epoch: refuse if the stream was scaled since that epoch. Raises InvalidScale, StreamSealed.
        """
        self._change(lambda snapshot: changes.scale(snapshot, segments_to_seal, new_key_ranges, expected_epoch))

    def truncate(self, cut: StreamCut) -> None:
        """Make `cut` the head of the stream; what lies before it can be read no more. Idempotent.

        Raises InvalidStreamCut, StreamSealed.
        """
        self._change(lambda snapshot: changes.truncate(snapshot, cut))

    def delete(self) -> None:
        """Delete the stream and its data. Raises StreamNotSealed."""
        self._insist(changes.delete)

    def _change(self, change: Callable[[Snapshot], Change]) -> None:
        self._insist(lambda snapshot: change(snapshot).committed(self.key))

    def _insist(self, change: Callable[[Snapshot], list[Operation]]) -> None:
        """Carry out a change of the record; when somebody else changed it meanwhile, again on what it is then."""
        while True:
            with suppress(BadKeyVersion):
                operations = self.look(change)
                if operations:
                    self.container.commit(operations)
                return

    # --- writing -----------------------------------------------------------------------------------------------

    def write(
        self, parts: Sequence[Part], writer: tuple[str, int] | None = None, planned: Routing | None = None
    ) -> bool:
        """Append to all segments, all or nothing, durable on return. See `submit`.

        planned: by what the events were routed. If the stream was scaled since, they go where these segments' keys go
        now, after what was written before. Without it, SegmentSealed or SegmentNotFound is raised then.
        Returns False when the named writer's number was there already: nothing was done then. Raises StreamSealed,
        StreamNotFound, ChunksGivenUp, OutcomeUnknown (only without a writer's name), StorageError.
        """
        operations = self.operations(parts, writer)
        while True:
            try:
                self.container.commit(operations)
                return True
            except BadAttributeUpdate as error:
                if writer is None or error.attribute != writer_attribute(writer[0]):
                    raise
                return False
            except OutcomeUnknown:
                if writer is None:
                    raise  # with a name it can be tried again: what is there is not written twice
            except (SegmentSealed, SegmentNotFound, BadKeyVersion):
                if planned is None:
                    raise
                operations = self._rerouted(parts, writer, planned)

    def _rerouted(self, parts: Sequence[Part], writer: tuple[str, int] | None, planned: Routing) -> list[Operation]:
        """The operations of a write that was planned before the stream was scaled."""
        targets, before, after = changes.reroute(self.snapshot(), planned, {part.segment_id for part in parts})
        moved = [part._replace(segment_id=targets[part.segment_id]) for part in parts]
        # A replay is to be known as one first, whatever has become of the stream since.
        return [*_remembering(self.writers, writer), *before, *self.operations(moved), *after]

    def discard(self, chunks: Sequence[str]) -> None:
        """Give up chunks that were written for an append that did not come about, or may not have (G1)."""
        self.container.commit([Discard(tuple(chunks))])

    def submit(self, parts: Sequence[Part]) -> Future[Receipt]:
        """Append to all segments, all or nothing; the future is done when it is durable."""
        return self.container.submit(self.operations(parts))

    def operations(self, parts: Sequence[Part], writer: tuple[str, int] | None = None) -> list[Operation]:
        """The operations of one write: the writer's number, then each segment's index records and events.

        writer: the name of a writer and a number that grows with each of its writes (X3).
        """
        operations = _remembering(self.writers, writer)
        for part in parts:
            operations += append_operations(segment_name(self.scope, self.name, part.segment_id), part)
        return operations

    def remember(self, segment: str, offset: int, records: int) -> None:
        """Keep the number of index records up to an offset, so that a reader that starts there need not search it."""
        self._positions[segment, offset] = records
        while len(self._positions) > _REMEMBERED:
            self._positions.popitem(last=False)

    def remembered(self, segment: str, offset: int) -> int | None:
        """What `remember` was told."""
        return self._positions.get((segment, offset))


def _remembering(writers: str, writer: tuple[str, int] | None) -> list[Operation]:
    """What keeps the number of a named writer in the segment `writers`, and refuses one that is not greater."""
    if writer is None:
        return []
    update = AttributeUpdate(writer_attribute(writer[0]), UpdateKind.REPLACE_IF_GREATER, writer[1])
    return [UpdateAttributes(writers, (update,))]


def writer_attribute(name: str) -> bytes:
    """The attribute that remembers a named writer's last number. Unlike core attributes it begins with a zero bit."""
    digest = bytearray(hashlib.sha256(name.encode()).digest()[:16])
    digest[0] &= 0x7F
    return bytes(digest)


def parts_of(
    contents: Iterable[tuple[int, memoryview, np.ndarray]], segments: Sequence[SegmentRecord], time_ms: int
) -> list[Part]:
    """Framed events, as `Framed.contents` gives them, as a write to `segments` takes them."""
    return [
        Part(segments[index].id, Payload(content), sparse_records(lengths, time_ms), len(lengths))
        for index, content, lengths in contents
    ]


def append_operations(segment: str, part: Part) -> list[Operation]:
    """What appends a part to a segment and its index, the index first."""
    count = AttributeUpdate(EVENT_COUNT, UpdateKind.ACCUMULATE, part.events)
    return [
        Append(index_segment_name(segment), index_content(segment, part.records)),
        Append(segment, part.content, None, (count,), part.made),
    ]


def index_content(segment: str, records: np.ndarray) -> Derived:
    """Index records count from the segment's beginning, so they are made when it is known where the append goes."""

    def make(lookup: object) -> bytes:
        known: Segment = lookup(segment)  # type: ignore[operator]
        return encode_records(rebase(records, known.length, known.attributes.get(EVENT_COUNT, 0)))

    return Derived(len(records) * RECORD_SIZE, make)


__all__ = ["NUMBERS", "STREAMS", "Part", "Rejected", "Snapshot", "Stream"]
