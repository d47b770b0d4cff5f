"""A stream of an open root: its life, its cuts, and the one way in which events get into it.

Keeps X1 (all of a stream lies in one container, so that every change of it is one atomic append) and X3 (a named
writer's last number is remembered in the same append as its data; a replay changes nothing).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import NamedTuple, TypeVar

import numpy as np

from engine.errors import (
    BadKeyVersion,
    DataCorruption,
    UnknownFormat,
)
from engine.logs.transaction import Receipt
from engine.state.operations import (
    CheckEntry,
    CreateSegment,
    Operation,
    Payload,
    PutEntry,
)
from engine.state.state import NOT_EXISTS
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.model.epochs import StreamSegmentRecord
from pravega_spark.streams.model.index import sparse_records
from pravega_spark.streams.model.names import segment_name
from pravega_spark.streams.model.policies import ONE_SEGMENT, OnChangedReplay, RetentionPolicy, ScalingPolicy
from pravega_spark.streams.model.stream_record import (
    KEPT,
    Generation,
    Kept,
    Routing,
    StreamRecord,
    check_segments,
    checked_tags,
    decode_number,
    encode_number,
    first_epoch,
    new_id,
)
from pravega_spark.streams.model.system_tables import NUMBERS, STREAMS
from pravega_spark.streams.reading.snapshot import Snapshot
from pravega_spark.streams.scopes import unless_deleted
from pravega_spark.streams.writing import changes
from pravega_spark.streams.writing.changes import StreamChange
from pravega_spark.streams.writing.digests import Digest
from pravega_spark.streams.writing.event_order import Mix
from pravega_spark.streams.writing.producer_state import NamedWrite, remembers_any
from pravega_spark.streams.writing.writable_stream import WritableStream
from pravega_spark.streams.writing.writes import Parts, SegmentAppend, StreamWrite, stream_operations, write_together

T = TypeVar("T")

FAR = 1 << 24
"""A segment number that no stream comes to: where one goes on of whose last life nobody knows the numbers."""


class Unreadable(NamedTuple):
    """What cannot be understood of a stream, and the operations that remove it."""

    error: DataCorruption
    removal: list[Operation]


class Stream(WritableStream):
    """A stream by name, whether it exists or not: its life, and writes to it. For the arguments see StreamView."""

    # --- its life ----------------------------------------------------------------------------------------------

    def create(
        self,
        scaling: ScalingPolicy | None = None,
        retention: RetentionPolicy | None = None,
        tags: Sequence[str] = (),
        keep_scope: Callable[[], None] = lambda: None,
    ) -> bool:
        """Make the stream, in one append. False when it exists already, whatever its policies are.

        keep_scope: raises ScopeNotFound unless the scope exists, and stays (see `scopes`).
        """
        scaling, now = scaling or ONE_SEGMENT, int(time.time() * 1000)
        check_segments(self.key, scaling.min_segments, self.root.config.max_segments)
        tags = checked_tags(tags)
        while True:
            state = self.container.refresh()
            if self._record(state) is not None:
                return False
            condition = unless_deleted(self.container, state)
            keep_scope()
            entry = self.container.entries(NUMBERS, [self.key], state)[self.key]
            numbers, version = (entry.value, entry.version) if entry is not None else (None, NOT_EXISTS)
            first = self._first_number(numbers, scaling.min_segments)
            epoch, generations = first_epoch(scaling, now, first), (Generation(self.container.generation, 0),)
            record = StreamRecord(
                new_id(), now, (epoch,), scaling, retention, tags, first_number=first, generations=generations
            )
            operations: list[Operation] = [
                condition,
                PutEntry(STREAMS, self.key, record.checked(self.key), NOT_EXISTS),
                PutEntry(NUMBERS, self.key, numbers, version),  # unchanged: no number is used twice
                CreateSegment(self.writers),
                *changes.creations(segment_name(self.scope, self.name, segment.id) for segment in epoch.segments),
            ]
            with suppress(BadKeyVersion):  # made, or made and deleted, by somebody else meanwhile
                self.container.commit(operations)
                return True

    def _first_number(self, numbers: bytes | None, count: int) -> int:
        """Where the segment numbers of a new stream begin; numbers: the entry of a deleted stream of its name.

        Where a copy was restored it is behind a gap: a lost stream may have had this name (P4).
        """
        first = decode_number(numbers, self.key) if numbers else 0
        return changes.after_gap(self.key, first, count) if self.continues_a_copy else first

    def seal(self) -> None:
        """Let the stream take no more events. Sealing it again changes nothing."""
        self._change(changes.seal)

    def update(
        self,
        scaling: ScalingPolicy | Kept | None = KEPT,
        retention: RetentionPolicy | Kept | None = KEPT,
        tags: Sequence[str] | Kept | None = KEPT,
    ) -> None:
        """Give the stream these policies and tags instead of those that it has; None: those of a new stream.

        What is left out is kept. Raises StreamSealed.
        """
        policy = ONE_SEGMENT if scaling is None else scaling
        labels = tags if isinstance(tags, Kept) else checked_tags(tags or ())
        self._change(lambda snapshot: changes.update(snapshot, policy, retention, labels))

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
        """Delete the stream and its data. Raises StreamNotSealed. What is kept of it and cannot be understood keeps
        nobody from that, unless a newer version wrote it (UnknownFormat)."""
        while (unreadable := self.unreadable()) is not None:
            with suppress(BadKeyVersion):
                self.container.commit(unreadable.removal)
                return
        self._commit_change(changes.delete)

    def unreadable(self) -> Unreadable | None:
        """What is kept of the stream and cannot be understood, if so. Raises UnknownFormat for what a newer version
        wrote."""
        container = self.container
        state = container.refresh()
        try:
            record = self._record(state)
        except UnknownFormat:
            raise
        except DataCorruption as error:
            entry = container.entries(STREAMS, [self.key], state)[self.key]
            assert entry is not None
            return Unreadable(error, changes.delete_unreadable(self, state, entry.version))
        numbers = container.entries(NUMBERS, [self.key], state)[self.key] if record is None else None
        if numbers is None or numbers.value is None:
            return None
        try:
            decode_number(numbers.value, self.key)
            return None
        except UnknownFormat:
            raise
        except DataCorruption as error:
            far = PutEntry(NUMBERS, self.key, encode_number(FAR), numbers.version)
            return Unreadable(error, [CheckEntry(STREAMS, self.key, NOT_EXISTS), far])

    def _change(self, change: Callable[[Snapshot], StreamChange]) -> None:
        self._commit_change(lambda snapshot: change(snapshot).committed(self.key))

    # --- writing -----------------------------------------------------------------------------------------------

    def write(
        self,
        parts: Sequence[SegmentAppend],
        writer: tuple[str, int] | None = None,
        planned: Routing | None = None,
        *,
        digest: Digest | None = None,
        on_changed_replay: OnChangedReplay = "skip",
        accept_lost: bool = False,
        mix: Mix | None = None,
    ) -> bool:
        """Append to all segments, all or nothing, durable on return. See `submit`.

        writer: the name of a writer and a number that grows with each of its writes (X3). digest: of what is written,
        if there is a writer; without one its events and bytes only are remembered. on_changed_replay: what to do where
        the number is there already, and not known to be with the same data. accept_lost: whether the writer goes on
        though a restore or a recovery lost writes of it.
        planned: by what the events were routed. If the stream was scaled since, they go where these segments' keys go
        now, after what was written before. Without it, SegmentSealed or SegmentNotFound is raised then.
        mix: how the events of the segments were mixed, where that is known; not with `planned`.
        Returns False when the named writer's number was there already, and nothing was done. Raises StreamSealed,
        StreamNotFound, ReplayChanged, WritesLost, ChunksGivenUp, StorageError; OutcomeUnknown, with a writer's name
        only after trying again for some minutes.
        """
        write = self.to_write(
            [(planned, parts)],
            writer,
            digest=digest,
            on_changed_replay=on_changed_replay,
            accept_lost=accept_lost,
            mix=mix,
        )
        write_together([write])
        return write.new

    def to_write(
        self,
        parts: Parts,
        writer: tuple[str, int] | None = None,
        *,
        digest: Digest | None = None,
        on_changed_replay: OnChangedReplay = "skip",
        accept_lost: bool = False,
        mix: Mix | None = None,
    ) -> StreamWrite:
        """What `write` appends, as one of those that `write_together` appends; parts: by what they were routed.

        Begins a generation of the stream if need be.
        """
        self.begin_generation()
        return StreamWrite(self, self.snapshot, parts, writer, digest, on_changed_replay, accept_lost, mix)

    def recall(self, writer: tuple[str, int], digest: Digest, on_changed_replay: OnChangedReplay) -> None:
        """Tell of a write that is not to be made whether it was made before, as far as this process knows.

        Raises ReplayChanged, if it was made with other data and that is to be an error.
        """
        named = NamedWrite(self.writers, *writer, digest)
        found = named.found(self.container)
        if found is not None and found.number >= named.number:
            named.judge(self.key, found, on_changed_replay)

    def remembers(self, writer: tuple[str, int] | None) -> bool:
        """Whether the write of this name and number, or a later one of that name, was made; None: one of any name.

        As it is now.
        """
        self.container.refresh()
        if writer is None:
            return remembers_any(self.container, self.writers)
        found = NamedWrite(self.writers, *writer, Digest()).found(self.container)
        return found is not None and found.number >= writer[1]

    def submit(self, parts: Sequence[SegmentAppend]) -> Future[Receipt]:
        """Append to all segments, all or nothing; the future is done when it is durable."""
        self.begin_generation()
        return self.container.submit(self.operations(parts))

    def operations(self, parts: Sequence[SegmentAppend]) -> list[Operation]:
        """The operations of one write: each segment's index records and events."""
        return stream_operations(self, parts)


def parts_of(
    contents: Iterable[tuple[int, memoryview, np.ndarray]], segments: Sequence[StreamSegmentRecord], time_ms: int
) -> list[SegmentAppend]:
    """Framed events, as `Framed.contents` gives them, as a write to `segments` takes them."""
    return [
        SegmentAppend(segments[index].id, Payload(content), sparse_records(lengths, time_ms), len(lengths))
        for index, content, lengths in contents
    ]
