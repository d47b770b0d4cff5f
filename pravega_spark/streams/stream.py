"""A stream of an open root: creating, changing and deleting it, and the one way to append events.

Keeps X1 (all of a stream lies in one container, so every change of it is one atomic append) and X3 (a producer's
state is updated in the same append as its events; a replay changes nothing).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from engine.errors import BadKeyVersion, DataCorruption, UnknownFormat
from engine.state.operations import CheckEntry, CreateSegment, Operation, PutEntry
from engine.state.state import NOT_EXISTS
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.model.names import segment_name
from pravega_spark.streams.model.policies import ONE_SEGMENT, RetentionPolicy, ScalingPolicy
from pravega_spark.streams.model.stream_record import (
    UNCHANGED,
    Generation,
    Routing,
    StreamRecord,
    StreamUpdate,
    Unchanged,
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
from pravega_spark.streams.writing.event_numbers import NumberedWrite, last_number
from pravega_spark.streams.writing.event_order import Interleaving
from pravega_spark.streams.writing.producer_state import ProducerUpdate, ProducerWrite, has_producers
from pravega_spark.streams.writing.writable_stream import WritableStream
from pravega_spark.streams.writing.writes import SegmentAppend, StreamWrite, write_together

if TYPE_CHECKING:
    from pravega_spark.streams.values.value_format import ValueFormat

UNREACHABLE_NUMBER = 1 << 24
"""A segment number that no stream reaches: a new stream starts here if the numbers of a deleted one are unknown."""


class Unreadable(NamedTuple):
    """A damaged record of a stream, and the operations that remove it."""

    error: DataCorruption
    removal: list[Operation]


class Stream(WritableStream):
    """A stream by name, whether it exists or not. For the arguments see StreamView."""

    # --- its changes ----------------------------------------------------------------------------------------------

    def create(
        self,
        scaling: ScalingPolicy | None = None,
        retention: RetentionPolicy | None = None,
        tags: Sequence[str] = (),
        keep_scope: Callable[[], None] = lambda: None,
    ) -> bool:
        """Create the stream, in one append. False if it exists already, whatever its policies.

        keep_scope: raises ScopeNotFound unless the scope exists, and prevents its deletion (see `scopes`).
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
                PutEntry(NUMBERS, self.key, numbers, version),  # unchanged, as a condition: no number is used twice
                CreateSegment(self.writers),
                *changes.creations(segment_name(self.scope, self.name, segment.id) for segment in epoch.segments),
            ]
            with suppress(BadKeyVersion):  # another process created, or created and deleted it meanwhile
                self.container.commit(operations)
                return True

    def _first_number(self, numbers: bytes | None, count: int) -> int:
        """The first segment number of a new stream. numbers: the entry of a deleted stream of its name.

        In a restored root it follows a random gap, as a lost stream may have had this name (P4).
        """
        first = decode_number(numbers, self.key) if numbers else 0
        return changes.after_gap(self.key, first, count) if self.continues_a_copy else first

    def seal(self) -> None:
        """Seal the stream: it accepts no more events. Sealing it again changes nothing."""
        self._change(changes.seal)

    def update(
        self,
        scaling: ScalingPolicy | Unchanged | None = UNCHANGED,
        retention: RetentionPolicy | Unchanged | None = UNCHANGED,
        tags: Sequence[str] | Unchanged | None = UNCHANGED,
    ) -> None:
        """Change policies and tags of the stream; None: the defaults of a new stream.

        Omitted ones are unchanged. A scaling policy also scales the stream to its number of segments (see
        `changes.update`). Raises StreamSealed, TooManySegments.
        """
        policy = ONE_SEGMENT if scaling is None else scaling
        labels = tags if isinstance(tags, Unchanged) else checked_tags(tags or ())
        self.update_by(lambda _: StreamUpdate(policy, retention, labels))

    def update_by(self, choose: Callable[[StreamRecord], StreamUpdate]) -> None:
        """Change policies and tags by what the stream has.

        choose: gets the record, and is called again if another process changes the stream meanwhile. Raises
        StreamSealed, and what `choose` raises.
        """
        self._change(lambda snapshot: changes.update(snapshot, choose))

    def planned_update(self, choose: Callable[[StreamRecord], StreamUpdate]) -> StreamRecord:
        """The record that `update_by` would make now, for a dry run. Raises as it does."""
        record = self.query(lambda snapshot: changes.update(snapshot, choose)).record
        assert record is not None
        return record

    def set_value_format(self, format: ValueFormat | None) -> None:
        """Keep with the stream how its events hold values; None: no longer. Its events stay as they are.

        Raises StreamSealed, ValueFormatFixed, InvalidValueSchema for a field with the name of a column of a read.
        """
        from pravega_spark.streams.values.value_format import stored_values

        self.update_by(
            lambda record: StreamUpdate(
                UNCHANGED, UNCHANGED, UNCHANGED, None if format is None else stored_values(format, record, self.key)
            )
        )

    def scale(
        self,
        segments_to_seal: Sequence[int],
        new_key_ranges: Sequence[tuple[float, float]],
        expected_epoch: int | None = None,
    ) -> None:
        """Seal segments of the current epoch, and open new ones for their keys, in one append.

        new_key_ranges: (low, high] for each new segment; together exactly the ranges of the sealed segments.
        expected_epoch: fail if the stream was scaled since that epoch. Raises InvalidScale, StreamSealed.
        """
        self._change(lambda snapshot: changes.scale(snapshot, segments_to_seal, new_key_ranges, expected_epoch))

    def truncate(self, cut: StreamCut) -> None:
        """Make `cut` the head of the stream: events before it cannot be read any more. Idempotent.

        Raises InvalidStreamCut, StreamSealed.
        """
        self._change(lambda snapshot: changes.truncate(snapshot, cut))

    def delete(self) -> None:
        """Delete the stream and its data, also if its record is damaged. Raises StreamNotSealed; UnknownFormat if a
        newer version wrote the record."""
        while (unreadable := self.unreadable()) is not None:
            with suppress(BadKeyVersion):
                self.container.commit(unreadable.removal)
                return
        self._commit_change(changes.delete)

    def unreadable(self) -> Unreadable | None:
        """The damaged record of the stream, if it is damaged. Raises UnknownFormat if a newer version wrote it."""
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
            far = PutEntry(NUMBERS, self.key, encode_number(UNREACHABLE_NUMBER), numbers.version)
            return Unreadable(error, [CheckEntry(STREAMS, self.key, NOT_EXISTS), far])

    def _change(self, change: Callable[[Snapshot], StreamChange]) -> None:
        self._commit_change(lambda snapshot: change(snapshot).committed(self.key))

    # --- writing -----------------------------------------------------------------------------------------------

    def write(
        self,
        parts: Sequence[SegmentAppend],
        producer: ProducerWrite | NumberedWrite | None = None,
        planned: Routing | None = None,
        interleaving: Interleaving | None = None,
    ) -> bool:
        """Append to all segments, all or nothing, durable on return. False if the write was committed before.

        producer: makes the write idempotent (X3). planned: the routing that chose the segments. If the stream was
        scaled since, events go to the segments that own their keys now, after all events written before; without it,
        SegmentSealed or SegmentNotFound is raised. interleaving: of the events across segments; not with `planned`.
        Raises as `write_together`.
        """
        write = StreamWrite(self, [(planned, parts)], producer, interleaving)
        write_together([write])
        return write.new

    def last_number(self, producer: str) -> int | None:
        """The number of a producer's last event in the stream, now. None if there is none."""
        self.container.refresh()
        return last_number(self, producer)

    def report_replay(self, write: ProducerWrite) -> None:
        """For a write without events, which is not made: log if it was committed before, as far as this process knows.

        Raises ReplayChanged if it was committed with other data and the policy is to fail.
        """
        update = ProducerUpdate(self, write)
        if update.is_committed():
            update.resolved()

    def is_committed(self, write: ProducerWrite | None) -> bool:
        """Whether a producer's write, or a later one of that producer, is committed now; None: any write of any
        producer."""
        self.container.refresh()
        if write is None:
            return has_producers(self.container, self.writers)
        return ProducerUpdate(self, write).is_committed()
