"""The state of a container: a pure function of the live frames of its log (W5).

A state is immutable; `State.apply` gives the next one or raises `Rejected` and changes nothing. So several states may
be in use at once: the confirmed one that readers see, and the one behind the frames that are still in flight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import immutables

from engine import operations as ops
from engine.errors import (
    BadAttributeUpdate,
    BadKeyVersion,
    BadOffset,
    ExtentsChanged,
    Rejected,
    SegmentExists,
    SegmentNotFound,
    SegmentNotSealed,
    SegmentSealed,
)
from engine.operations import AttributeUpdate, Operation, Transaction, UpdateKind
from engine.segments import CREATION_TIME, EVENT_COUNT, MAX_VALUE, NULL_VALUE, Extent, Extents, FrameRef, Segment

NOT_EXISTS = -1


class Entry(NamedTuple):
    """A table's entry; the version is the sequence number of the operation that put it."""

    value: bytes
    version: int


Table: TypeAlias = "immutables.Map[str, Entry]"


class State(NamedTuple):
    """Everything a container knows.

    sequence: number of operations applied. checkpoint: address of the last frame with a Checkpoint.
    flushed: address of the last frame that told of flushed data. logged_bytes: bytes in the log and not in tier 2;
    unflushed: the segments that they belong to.
    chunks: how many extents name each chunk. garbage: chunks that no extent names any more, and since when (ms).
    """

    sequence: int
    checkpoint: int
    flushed: int
    logged_bytes: int
    unflushed: immutables.Map[str, bool]
    segments: immutables.Map[str, Segment]
    tables: immutables.Map[str, Table]
    chunks: immutables.Map[str, int]
    garbage: immutables.Map[str, int]

    def segment(self, name: str) -> Segment:
        """The segment of that name, or SegmentNotFound."""
        segment = self.segments.get(name)
        if segment is None:
            raise SegmentNotFound(name)
        return segment

    def entry(self, table: str, key: str) -> Entry | None:
        """A table's entry, or None."""
        entries = self.tables.get(table)
        return entries.get(key) if entries is not None else None

    def logged(self) -> list[Segment]:
        """The segments that have bytes in the write-ahead log."""
        return [self.segments[name] for name in self.unflushed]

    def apply(self, transaction: Transaction, address: int) -> tuple[State, list[Any]]:
        """The state after `transaction` in the frame at `address`, and each operation's result.

        An append's result is the offset of its first byte, a table update's the new version, others' None.
        """
        change = Change(self, transaction.time, address)
        results = [change.apply(operation) for operation in transaction.operations]
        return change.state(), results


EMPTY = State(0, -1, -1, 0, immutables.Map(), immutables.Map(), immutables.Map(), immutables.Map(), immutables.Map())


class Change:
    """A state in the making: applies the operations of one transaction."""

    def __init__(self, base: State, time: int, address: int) -> None:
        self._time = time
        self._address = address
        self._sequence = base.sequence
        self._checkpoint = base.checkpoint
        self._flush_address = base.flushed
        self._logged_bytes = base.logged_bytes
        self._unflushed = base.unflushed.mutate()
        self._segments = base.segments.mutate()
        self._tables = base.tables
        self._chunks = base.chunks.mutate()
        self._garbage = base.garbage.mutate()

    def state(self) -> State:
        """The state as it is now."""
        return State(
            self._sequence,
            self._checkpoint,
            self._flush_address,
            self._logged_bytes,
            self._unflushed.finish(),
            self._segments.finish(),
            self._tables,
            self._chunks.finish(),
            self._garbage.finish(),
        )

    def segment(self, name: str) -> Segment:
        """The segment as it is now, or SegmentNotFound."""
        segment = self._segments.get(name)
        if segment is None:
            raise SegmentNotFound(name)
        return segment

    def apply(self, operation: Operation) -> Any:
        """Apply one operation; its result, or Rejected."""
        self._sequence += 1
        return _APPLY[type(operation)](self, operation)

    def _keep(self, segment: Segment) -> None:
        """Store a new version of a segment, and keep account of what is not flushed."""
        before = self._segments.get(segment.name)
        self._segments[segment.name] = segment
        self._account(segment.name, before.logged if before is not None else 0, segment.logged)

    def _drop(self, segment: Segment) -> None:
        del self._segments[segment.name]
        self._account(segment.name, segment.logged, 0)

    def _account(self, name: str, before: int, after: int) -> None:
        self._logged_bytes += after - before
        if after and not before:
            self._unflushed[name] = True
        elif before and not after:
            del self._unflushed[name]

    def _create(self, op: ops.CreateSegment) -> None:
        if op.segment in self._segments:
            raise SegmentExists(op.segment)
        created = AttributeUpdate(CREATION_TIME, UpdateKind.NONE, self._time)
        attributes = updated_attributes(op.segment, immutables.Map(), (created, *op.updates))
        self._keep(Segment(op.segment, self._sequence, 0, 0, False, self._time, 0, attributes, Extents()))

    def _append(self, op: ops.Append) -> int:
        segment = self.segment(op.segment)
        if segment.sealed:
            raise SegmentSealed(op.segment)
        attributes = updated_attributes(op.segment, segment.attributes, op.updates)
        if op.offset is not None and op.offset != segment.length:
            raise BadOffset(op.segment, segment.length, op.offset)
        extents: Sequence[Extent] = op.content  # type: ignore[assignment]
        self._refer(extents)
        self._keep(self._extended(segment, extents)._replace(attributes=attributes))
        return segment.length

    def _extended(self, segment: Segment, extents: Sequence[Extent]) -> Segment:
        return segment._replace(
            length=segment.length + sum(extent.length for extent in extents),
            logged=segment.logged + logged_bytes(extents),
            modified=self._time,
            extents=segment.extents.appended(segment.length, extents),
        )

    def _seal(self, op: ops.SealSegment) -> None:
        self._keep(self.segment(op.segment)._replace(sealed=True, modified=self._time))

    def _merge(self, op: ops.MergeSegment) -> int:
        target, source = self.segment(op.target), self.segment(op.source)
        if op.target == op.source:
            raise Rejected(f"segment {op.target!r} cannot be merged into itself")
        if target.sealed:
            raise SegmentSealed(op.target)
        if not source.sealed:
            raise SegmentNotSealed(op.source)
        if source.start_offset:
            raise BadOffset(op.source, "a segment that was never truncated", source.start_offset)
        events = source.attributes.get(EVENT_COUNT, 0)
        update = (AttributeUpdate(EVENT_COUNT, UpdateKind.ACCUMULATE, events),) if events else ()
        attributes = updated_attributes(op.target, target.attributes, update)
        merged = self._extended(target, [extent for _, extent in source.extents])
        self._keep(merged._replace(attributes=attributes))
        self._drop(source)
        return target.length

    def _truncate(self, op: ops.TruncateSegment) -> None:
        segment = self.segment(op.segment)
        if op.offset > segment.length or op.offset < 0:
            raise BadOffset(op.segment, f"0 to {segment.length}", op.offset)
        if op.offset <= segment.start_offset:
            return
        extents, dropped = segment.extents.truncated(op.offset)
        self._release(dropped)
        logged = segment.logged - logged_bytes(dropped)
        self._keep(segment._replace(start_offset=op.offset, extents=extents, logged=logged, modified=self._time))

    def _delete(self, op: ops.DeleteSegment) -> None:
        segment = self.segment(op.segment)
        self._release([extent for _, extent in segment.extents])
        self._drop(segment)

    def _update_attributes(self, op: ops.UpdateAttributes) -> None:
        segment = self.segment(op.segment)
        attributes = updated_attributes(op.segment, segment.attributes, op.updates)
        self._keep(segment._replace(attributes=attributes, modified=self._time))

    def _put_entry(self, op: ops.PutEntry) -> int:
        table: Table = self._tables.get(op.table) or immutables.Map()
        entry = table.get(op.key)
        version = entry.version if entry is not None else NOT_EXISTS
        if op.expected is not None and op.expected != version:
            raise BadKeyVersion(op.table, op.key, op.expected, version)
        if op.value is not None:
            table = table.set(op.key, Entry(op.value, self._sequence))
        elif entry is not None:
            table = table.delete(op.key)
        self._tables = self._tables.set(op.table, table)
        return self._sequence

    def _mark_checkpoint(self, op: ops.Checkpoint) -> None:
        self._checkpoint = self._address

    def _flushed(self, op: ops.Flushed) -> None:
        segment = self.segment(op.segment)
        result = segment.extents.replaced(op.offset, op.extents)
        if result is None or any(extent.flushed for extent in result[1]):
            raise ExtentsChanged(op.segment, op.offset)
        extents, replaced = result
        self._refer(op.extents)
        self._flush_address = self._address
        self._keep(segment._replace(extents=extents, logged=segment.logged - logged_bytes(replaced)))

    def _discard(self, op: ops.Discard) -> None:
        for chunk in op.chunks:
            if chunk not in self._chunks:
                self._garbage[chunk] = self._time

    def _collected(self, op: ops.Collected) -> None:
        for chunk in op.chunks:
            self._garbage.pop(chunk, None)

    def _refer(self, extents: Sequence[Extent]) -> None:
        for source, _, length, _ in extents:
            if isinstance(source, str) and length:
                if source in self._garbage:
                    raise Rejected(f"chunk {source!r} was given up already and cannot be attached any more")
                self._chunks[source] = self._chunks.get(source, 0) + 1

    def _release(self, extents: Sequence[Extent]) -> None:
        """Chunks that no extent names any more become garbage with the very operation that lets them go (G1)."""
        for source, _, _, _ in extents:
            if isinstance(source, str):
                count = self._chunks[source] - 1
                if count:
                    self._chunks[source] = count
                else:
                    del self._chunks[source]
                    self._garbage[source] = self._time


_APPLY: dict[type[Any], Callable[[Change, Any], Any]] = {
    ops.CreateSegment: Change._create,
    ops.Append: Change._append,
    ops.SealSegment: Change._seal,
    ops.MergeSegment: Change._merge,
    ops.TruncateSegment: Change._truncate,
    ops.DeleteSegment: Change._delete,
    ops.UpdateAttributes: Change._update_attributes,
    ops.PutEntry: Change._put_entry,
    ops.Checkpoint: Change._mark_checkpoint,
    ops.Flushed: Change._flushed,
    ops.Collected: Change._collected,
    ops.Discard: Change._discard,
}


def logged_bytes(extents: Sequence[Extent]) -> int:
    """How many bytes of these extents lie in the write-ahead log."""
    return sum(extent.length for extent in extents if isinstance(extent.source, FrameRef))


def updated_attributes(
    segment: str, attributes: immutables.Map[bytes, int], updates: Sequence[AttributeUpdate]
) -> immutables.Map[bytes, int]:
    """The attributes after all of `updates`; BadAttributeUpdate when a condition does not hold."""
    for attribute, kind, value, comparison in updates:
        present = attributes.get(attribute)
        if kind is UpdateKind.NONE and present is not None:
            raise BadAttributeUpdate(segment, attribute, present, "it may be set only once")
        if kind is UpdateKind.REPLACE_IF_GREATER and present is not None and value <= present:
            raise BadAttributeUpdate(segment, attribute, present, f"it may only be replaced by more, not by {value}")
        if kind is UpdateKind.REPLACE_IF_EQUALS and present != (None if comparison == NULL_VALUE else comparison):
            raise BadAttributeUpdate(segment, attribute, present, f"it must be {comparison}")
        if kind is UpdateKind.ACCUMULATE:
            value += present or 0
        if not NULL_VALUE <= value <= MAX_VALUE:
            raise BadAttributeUpdate(segment, attribute, present, f"it must fit into 64 bits, and {value} does not")
        if value != NULL_VALUE:
            attributes = attributes.set(attribute, value)
        elif present is not None:
            attributes = attributes.delete(attribute)
    return attributes
