"""A stream of an open root: its life, its cuts, and the one way in which events get into it.

Keeps X1 (all of a stream lies in one container, so that every change of it is one atomic append) and X3 (a named
writer's last number is remembered in the same append as its data; a replay changes nothing).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import TypeVar

import numpy as np

from engine.errors import (
    BadKeyVersion,
    Rejected,
    SegmentNotFound,
    SegmentTruncated,
)
from engine.logs.pending import Receipt
from engine.root import Root
from engine.state.operations import (
    CreateSegment,
    Discard,
    Operation,
    Payload,
    PutEntry,
)
from engine.state.state import NOT_EXISTS, State
from pravega_spark.errors import StreamNotFound
from pravega_spark.streams import changes
from pravega_spark.streams.changes import NUMBERS, SCOPES, STREAMS, StreamChange
from pravega_spark.streams.cuts import StreamCut
from pravega_spark.streams.digests import Digest
from pravega_spark.streams.epochs import StreamSegmentRecord
from pravega_spark.streams.index import sparse_records
from pravega_spark.streams.indexed_segments import KnownPositions
from pravega_spark.streams.location import StreamLocation
from pravega_spark.streams.named import NamedWrite, remembers_any
from pravega_spark.streams.names import segment_name
from pravega_spark.streams.policies import ONE_SEGMENT, OnChangedReplay, RetentionPolicy, ScalingPolicy
from pravega_spark.streams.similar import has_key, similar_keys
from pravega_spark.streams.snapshot import Snapshot
from pravega_spark.streams.stream_record import (
    KEPT,
    Kept,
    Routing,
    StreamRecord,
    check_segments,
    checked_tags,
    decode_number,
    first_epoch,
)
from pravega_spark.streams.writes import Parts, SegmentAppend, StreamWrite, stream_operations, write_together

T = TypeVar("T")


class Stream(StreamLocation):
    """A stream by name, whether it exists or not. Cheap to make; knows nothing that could get stale but positions.

    suggesting: whether StreamNotFound says if the scope is missing, and which names are similar, which takes a look at
    all containers.
    """

    def __init__(self, root: Root, scope: str, name: str, suggesting: bool = False) -> None:
        super().__init__(root, scope, name)
        self._suggesting = suggesting
        self._known = KnownPositions()
        self._decoded: StreamRecord | None = None

    # --- its life ----------------------------------------------------------------------------------------------

    def snapshot(self, refresh: bool = True) -> Snapshot:
        """The stream as it is now; `refresh=False`: as it was when this process last looked. Raises StreamNotFound."""
        container = self.container
        state = container.refresh() if refresh else container.state
        record = self._record(state)
        if record is None:
            raise self._not_found()
        return Snapshot(self, record, state, self._known)

    def _not_found(self) -> StreamNotFound:
        """The error for a stream that does not exist, and of which maybe the scope does not either."""
        if not self._suggesting:
            return StreamNotFound(self.key)
        if not has_key(self.root, SCOPES, self.scope):
            return StreamNotFound(self.key, similar_keys(self.root, SCOPES, self.scope), without_scope=True)
        return StreamNotFound(self.key, similar_keys(self.root, STREAMS, self.key))

    def query(self, question: Callable[[Snapshot], T], refresh: bool = True) -> T:
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
            known = self._decoded = StreamRecord.decode(entry.value, entry.version, self.key)
        return known

    def create(
        self,
        scaling: ScalingPolicy | None = None,
        retention: RetentionPolicy | None = None,
        tags: Sequence[str] = (),
    ) -> bool:
        """Make the stream, in one append. False when it exists already, whatever its policies are."""
        scaling, now = scaling or ONE_SEGMENT, int(time.time() * 1000)
        check_segments(self.key, scaling.min_segments, self.root.config.max_segments)
        tags = checked_tags(tags)
        while True:
            state = self.container.refresh()
            if self._record(state) is not None:
                return False
            entry = self.container.entries(NUMBERS, [self.key], state)[self.key]
            numbers, version = (entry.value, entry.version) if entry is not None else (None, NOT_EXISTS)
            epoch = first_epoch(scaling, now, decode_number(numbers, self.key) if numbers else 0)
            record = StreamRecord(now, (epoch,), scaling, retention, tags)
            operations: list[Operation] = [
                PutEntry(STREAMS, self.key, record.checked(self.key), NOT_EXISTS),
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
        """Delete the stream and its data. Raises StreamNotSealed."""
        self._commit_change(changes.delete)

    def _change(self, change: Callable[[Snapshot], StreamChange]) -> None:
        self._commit_change(lambda snapshot: change(snapshot).committed(self.key))

    def _commit_change(self, change: Callable[[Snapshot], list[Operation]]) -> None:
        """Carry out a change of the record; when somebody else changed it meanwhile, again on what it is then."""
        while True:
            with suppress(BadKeyVersion):
                operations = self.query(change)
                if operations:
                    self.container.commit(operations)
                return

    # --- writing -----------------------------------------------------------------------------------------------

    def write(
        self,
        parts: Sequence[SegmentAppend],
        writer: tuple[str, int] | None = None,
        planned: Routing | None = None,
        *,
        digest: Digest | None = None,
        on_changed_replay: OnChangedReplay = "skip",
    ) -> bool:
        """Append to all segments, all or nothing, durable on return. See `submit`.

        writer: the name of a writer and a number that grows with each of its writes (X3). digest: of what is written,
        if there is a writer; without one its events and bytes only are remembered. on_changed_replay: what to do where
        the number is there already, and not known to be with the same data.
        planned: by what the events were routed. If the stream was scaled since, they go where these segments' keys go
        now, after what was written before. Without it, SegmentSealed or SegmentNotFound is raised then.
        Returns False when the named writer's number was there already, and nothing was done. Raises StreamSealed,
        StreamNotFound, ReplayChanged, ChunksGivenUp, StorageError; OutcomeUnknown, with a writer's name only after
        trying again for some minutes.
        """
        write = self.to_write([(planned, parts)], writer, digest=digest, on_changed_replay=on_changed_replay)
        write_together([write])
        return write.new

    def to_write(
        self,
        parts: Parts,
        writer: tuple[str, int] | None = None,
        *,
        digest: Digest | None = None,
        on_changed_replay: OnChangedReplay = "skip",
    ) -> StreamWrite:
        """What `write` appends, as one of those that `write_together` appends; parts: by what they were routed."""
        return StreamWrite(self, self.snapshot, parts, writer, digest, on_changed_replay)

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

    def discard(self, chunks: Sequence[str]) -> None:
        """Give up chunks that were written for an append that did not come about, or may not have (G1)."""
        self.container.commit([Discard(tuple(chunks))])

    def submit(self, parts: Sequence[SegmentAppend]) -> Future[Receipt]:
        """Append to all segments, all or nothing; the future is done when it is durable."""
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


__all__ = ["NUMBERS", "STREAMS", "Rejected", "SegmentAppend", "Snapshot", "Stream"]
