"""The state of a container: a pure function of the live frames of its log (W5).

A state is immutable; `State.apply` gives the next one or raises `Rejected` and changes nothing. So several states may
be in use at once: the confirmed one that readers see, and the one behind the frames that are still in flight.

What tier 2 holds is not in the state, but for where its tables lie. An operation that depends on it is judged by its
writer, who looks it up (Unresolved); what is in the log was judged, and is applied without asking.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

import immutables

from engine import operations as ops
from engine.btree import Root
from engine.errors import (
    BadAttributeUpdate,
    BadKeyVersion,
    BadOffset,
    ChunksGivenUp,
    FlushOvertaken,
    Rejected,
    SegmentExists,
    SegmentNotFound,
    SegmentNotSealed,
    SegmentSealed,
    SegmentTransient,
    Unresolved,
)
from engine.operations import AttributeUpdate, Operation, Transaction, UpdateKind
from engine.segment_map import SegmentMap
from engine.segment_records import decode_segment
from engine.segments import (
    CREATION_TIME,
    EVENT_COUNT,
    MAX_VALUE,
    NULL_VALUE,
    TRANSIENT_ATTRIBUTES,
    Extent,
    Extents,
    FrameRef,
    Segment,
    StoredRef,
    is_core,
)
from engine.table_content import TableLayout
from engine.tables import ATTRIBUTES, METADATA, Entry, Known, Table, attribute_key, new_table

NOT_EXISTS = -1
"""The version of an entry that is not there."""


class Cycle(NamedTuple):
    """The last flush cycle that was begun.

    number: counts cycles. sequence, time: number of the operation that began it, and when (ms). complete: it ended.
    backup: number of the operation that began the last complete cycle (-1: there was none).
    """

    number: int = 0
    sequence: int = 0
    time: int = 0
    complete: bool = True
    backup: int = -1


class Garbage(NamedTuple):
    """Something that may have to be deleted: since when (ms) and which operation, what kind (see `chunkstore.garbage`),
    of which segment."""

    since: int
    sequence: int
    kind: int
    segment: str


_CHUNK = 1  # GarbageKind.CHUNK

ATTRIBUTES_GARBAGE = 16
"""The kind of what a deleted segment left in the table of attributes; its name is what their keys begin with."""


class State(NamedTuple):
    """Everything a container knows without looking into tier 2.

    sequence: number of operations applied. checkpoint: address of the last frame with a Checkpoint.
    flushed: address of the frame that began the last flush cycle. logged_bytes: bytes in the log and not in tier 2.
    segments: those that are active. unsaved: those that tier 2 does not know as they are.
    chunks: how many extents name each chunk. garbage: what may be deleted. dropped: segments in tier 2, by their names
    there, that are deleted and still there. transients: the transient segments, active or not, with their parents.
    swept: chunks that were begun before it (ms since the epoch) and that nothing names are given up for good (G1).
    """

    sequence: int
    checkpoint: int
    flushed: int
    logged_bytes: int
    unsaved: immutables.Map[str, bool]
    segments: SegmentMap
    tables: immutables.Map[str, Table]
    chunks: immutables.Map[str, int]
    garbage: immutables.Map[str, Garbage]
    dropped: immutables.Map[str, bool]
    cycle: Cycle
    transients: immutables.Map[str, str] = immutables.Map()
    swept: int = 0

    def segment(self, name: str) -> Segment:
        """The active segment of that name. Raises SegmentNotFound; Unresolved if it may exist and not be active."""
        return find_segment(self.segments.get(name), self.tables, name, {})

    def entry(self, table: str, key: str) -> Entry | None:
        """A table's entry, or None. Raises Unresolved if it may be in tier 2 only."""
        return find_entry(self.tables.get(table), table, key, {})

    def logged(self) -> Iterator[Segment]:
        """The segments that have bytes that are not in tier 2."""
        return (segment for name in self.unsaved if (segment := self.segments[name]).length > segment.storage_length)

    def is_backed_up(self, garbage: Garbage) -> bool:
        """Whether the last complete flush cycle began before this became garbage, so that its backup may need it
        (F2)."""
        return self.cycle.backup >= 0 and garbage.sequence >= self.cycle.backup

    def apply(
        self, transaction: Transaction, address: int, known: Mapping[tuple[str, str], Known] | None = None
    ) -> tuple[State, list[Any]]:
        """The state after `transaction` in the frame at `address`, and each operation's result.

        An append's result is the offset of its first byte, a table update's the new version, others' None. `known`:
        what was looked up in tier 2; None if the transaction was judged before.
        """
        change = Change(self, transaction.time, address, known)
        results = [change.apply(operation) for operation in transaction.operations]
        return change.state(), results

    def replay(self, transactions: Sequence[Transaction], address: int) -> State:
        """The state after all transactions of the frame at `address`, which were judged before."""
        change = Change(self, 0, address)
        for change.time, operations in transactions:
            for operation in operations:
                change.apply(operation)
        return change.state()


EMPTY = State(
    0,
    -1,
    -1,
    0,
    immutables.Map(),
    SegmentMap(),
    immutables.Map(),
    immutables.Map(),
    immutables.Map(),
    immutables.Map(),
    Cycle(),
)


def find_entry(
    table: Table | None, name: str, key: str, known: Mapping[tuple[str, str], Known]
) -> Entry | None:
    """An entry as it is in memory, or was looked up under the present root. Raises Unresolved."""
    if table is None:
        return None
    entry = table.recent.get(key)
    if entry is not None:
        return entry if entry.value is not None else None
    if not table.dropped:
        return None
    found = known.get((name, key))
    if found is None or found.root != table.layout.root:
        raise Unresolved(name, (key,))
    return found.entry


def find_segment(
    segment: Segment | None,
    tables: _Tables,
    name: str,
    known: Mapping[tuple[str, str], Known],
) -> Segment:
    """An active segment. Raises SegmentNotFound, or Unresolved for one that is in the metadata table, or may be."""
    if segment is not None:
        return segment
    if find_entry(tables.get(METADATA), METADATA, name, known) is not None:
        raise Unresolved(METADATA, (name,))
    raise SegmentNotFound(name)


class _Tables(Protocol):
    """Tables by name, of a state or of one in the making."""

    def get(self, name: str, /) -> Table | None: ...


class Change:
    """A state in the making: applies operations. `known` as in `State.apply`.

    After a refusal it is of no use, as a part of what was refused may be in it. time: of the transaction at hand, ms.
    """

    def __init__(
        self, base: State, time: int, address: int, known: Mapping[tuple[str, str], Known] | None = None
    ) -> None:
        self.time = time
        self._address = address
        self._judging = known is not None
        self._known = known or {}
        self._sequence = base.sequence
        self._checkpoint = base.checkpoint
        self._flush_address = base.flushed
        self._logged_bytes = base.logged_bytes
        self._unsaved = base.unsaved.mutate()
        self._segments = base.segments.mutate()
        self._tables = base.tables.mutate()
        self._chunks = base.chunks.mutate()
        self._garbage = base.garbage.mutate()
        self._dropped = base.dropped.mutate()
        self._cycle = base.cycle
        self._transients = base.transients
        self._swept = base.swept

    def state(self) -> State:
        """The state as it is now."""
        return State(
            self._sequence,
            self._checkpoint,
            self._flush_address,
            self._logged_bytes,
            self._unsaved.finish(),
            self._segments.finish(),
            self._tables.finish(),
            self._chunks.finish(),
            self._garbage.finish(),
            self._dropped.finish(),
            self._cycle,
            self._transients,
            self._swept,
        )

    def segment(self, name: str) -> Segment:
        """The segment as it is now. Raises SegmentNotFound; Unresolved if it may exist and not be active."""
        return find_segment(self._segments.get(name), self._tables, name, self._known)

    def apply(self, operation: Operation) -> Any:
        """Apply one operation; its result, or Rejected."""
        self._sequence += 1
        return _APPLY[type(operation)](self, operation)

    # --- segments ------------------------------------------------------------------------------------------------

    def _keep(self, segment: Segment) -> None:
        """Store a new version of a segment, which tier 2 does not know yet."""
        self._store(segment if segment.touched == self._sequence else segment._replace(touched=self._sequence))
        self._unsaved[segment.name] = True

    def _store(self, segment: Segment) -> None:
        before = self._segments.get(segment.name)
        self._segments[segment.name] = segment
        self._logged_bytes += segment.logged - (before.logged if before is not None else 0)

    def _drop(self, segment: Segment) -> None:
        """Let a segment be gone, in memory and in the metadata table."""
        del self._segments[segment.name]
        self._unsaved.pop(segment.name, None)
        self._logged_bytes -= segment.logged
        if segment.saved >= 0 or (segment.id <= self._cycle.sequence and not self._cycle.complete):
            table = self._tables.get(METADATA) or new_table(METADATA)
            self._tables[METADATA] = table.put(segment.name, Entry(None, self._sequence), under_way=True)
        if segment.spilled:
            self._garbage[attribute_key(segment.id, b"")] = self._new_garbage(ATTRIBUTES_GARBAGE, segment.name)
        if segment.parent:
            self._transients = self._transients.delete(segment.name)
        for name, parent in self._transients.items() if self._transients else ():
            if parent == segment.name:
                self._delete_transient(name)

    def _delete_transient(self, name: str, before: int = MAX_VALUE) -> bool:
        """Delete a transient segment if it was appended to before that time (ms), and whether that was done."""
        segment = self._segments.get(name)
        if segment is None and self._judging:
            with suppress(SegmentNotFound):
                self.segment(name)  # one that is not active has to be so first
        if segment is None:  # a recovery knows names of some that were gone when the backup was made
            self._transients = self._transients.delete(name)
        elif segment.modified < before:
            self._remove(segment)
            return True
        return False

    def _create(self, op: ops.CreateSegment) -> None:
        if op.segment in self._segments or (self._judging and self._entry(METADATA, op.segment) is not None):
            raise SegmentExists(op.segment)
        created = AttributeUpdate(CREATION_TIME, UpdateKind.NONE, self.time)
        attributes = updated_attributes(op.segment, immutables.Map(), (created, *op.updates))
        segment = Segment(
            op.segment, self._sequence, 0, 0, False, self.time, 0, attributes, Extents(), parent=op.parent
        )
        if op.parent:
            self._check_parent(segment)
            self._transients = self._transients.set(op.segment, op.parent)
        self._keep(segment)

    def _check_parent(self, segment: Segment) -> None:
        """Refuse a transient segment that could never be merged into its parent, or has too many attributes."""
        parent = self.segment(segment.parent)
        if parent.sealed:
            raise SegmentSealed(parent.name)
        if parent.parent:
            raise SegmentTransient(parent.name, "have transient segments itself")
        _check_few(segment.name, segment.attributes)

    def _append(self, op: ops.Append) -> int:
        segment = self.segment(op.segment)
        if segment.sealed:
            raise SegmentSealed(op.segment)
        attributes = self._updated(segment, op.updates)
        if op.offset is not None and op.offset != segment.length:
            raise BadOffset(op.segment, segment.length, op.offset)
        self._remove_spilled(segment, op.updates)
        extents: Sequence[Extent] = op.content  # type: ignore[assignment]
        self._check_made(op.segment, extents, op.made)
        self._refer(extents)
        self._keep(self._extended(segment, extents, attributes))
        return segment.length

    def _updated(self, segment: Segment, updates: Sequence[AttributeUpdate]) -> immutables.Map[bytes, int]:
        if segment.spilled and self._judging:
            for update in updates:
                if update.attribute not in segment.attributes and not is_core(update.attribute):
                    self._require_absent(segment, update.attribute)
        attributes = updated_attributes(segment.name, segment.attributes, updates)
        if segment.parent and updates:
            _check_few(segment.name, attributes)
        return attributes

    def _remove_spilled(self, segment: Segment, updates: Sequence[AttributeUpdate]) -> None:
        """What is removed from memory must not come back from the table."""
        for update in updates if segment.spilled else ():
            if update.value == NULL_VALUE and not is_core(update.attribute):
                self._put(ATTRIBUTES, attribute_key(segment.id, update.attribute), None)

    def _require_absent(self, segment: Segment, attribute: bytes) -> None:
        """Raise Unresolved unless the table of attributes does not have this one: else it has to be loaded first."""
        key = attribute_key(segment.id, attribute)
        try:
            entry = self._entry(ATTRIBUTES, key)
        except Unresolved as error:
            raise Unresolved(ATTRIBUTES, error.keys, segment.name) from None
        if entry is not None:
            raise Unresolved(ATTRIBUTES, (key,), segment.name)

    def _extended(
        self, segment: Segment, extents: Sequence[Extent], attributes: immutables.Map[bytes, int]
    ) -> Segment:
        length = segment.length
        for extent in extents:
            length += extent.length
        return segment._replace(
            length=length,
            logged=segment.logged + logged_bytes(extents),
            modified=self.time,
            extents=segment.extents.appended(segment.length, extents),
            attributes=attributes,
            touched=self._sequence,
        )

    def _seal(self, op: ops.SealSegment) -> None:
        segment = self.segment(op.segment)
        if segment.parent:
            raise SegmentTransient(op.segment, "be sealed")
        if not segment.sealed:
            self._keep(segment._replace(sealed=True, modified=self.time))

    def _merge(self, op: ops.MergeSegment) -> int:
        target, source = self.segment(op.target), self.segment(op.source)
        if op.target == op.source:
            raise Rejected(f"segment {op.target!r} cannot be merged into itself")
        if target.sealed:
            raise SegmentSealed(op.target)
        if target.parent:
            raise SegmentTransient(op.target, "be merged into")
        if not source.sealed and not source.parent:
            raise SegmentNotSealed(op.source)
        if source.start_offset:
            raise BadOffset(op.source, "a segment that was never truncated", source.start_offset)
        events = source.attributes.get(EVENT_COUNT, 0)
        update = (AttributeUpdate(EVENT_COUNT, UpdateKind.ACCUMULATE, events),) if events else ()
        attributes = updated_attributes(op.target, target.attributes, update)
        header: Sequence[Extent] = op.header  # type: ignore[assignment]
        self._check_made(op.target, header, 0)
        self._refer(header)
        self._keep(self._extended(target, [*header, *content_of(source)], attributes))
        self._drop(source)
        return target.length

    def _truncate(self, op: ops.TruncateSegment) -> None:
        segment = self.segment(op.segment)
        if segment.parent:
            raise SegmentTransient(op.segment, "be truncated")
        if op.offset > segment.length or op.offset < 0:
            raise BadOffset(op.segment, f"0 to {segment.length}", op.offset)
        if op.offset <= segment.start_offset:
            return
        if op.offset > segment.storage_length:
            segment = self._without_storage(segment, op.offset)
        extents, dropped = segment.extents.truncated(op.offset)
        self._release(dropped)
        logged = segment.logged - logged_bytes(dropped)
        self._keep(segment._replace(start_offset=op.offset, extents=extents, logged=logged, modified=self.time))

    def _without_storage(self, segment: Segment, offset: int) -> Segment:
        """All that tier 2 holds is truncated: what comes there next is another segment to it."""
        self._forget_storage(segment)
        return segment._replace(storage="", storage_length=offset, stored_start=0, stored_sealed=False)

    def _forget_storage(self, segment: Segment) -> None:
        if segment.storage:
            self._dropped[segment.storage] = True

    def _delete(self, op: ops.DeleteSegment) -> None:
        self._remove(self.segment(op.segment))

    def _expire(self, op: ops.ExpireSegments) -> tuple[str, ...]:
        return tuple(
            name for name in op.segments if name in self._transients and self._delete_transient(name, op.before)
        )

    def _remove(self, segment: Segment) -> None:
        """Delete a segment with its content."""
        self._release([extent for _, extent in segment.extents])
        self._forget_storage(segment)
        self._drop(segment)

    def _update_attributes(self, op: ops.UpdateAttributes) -> None:
        segment = self.segment(op.segment)
        if segment.parent:
            raise SegmentTransient(op.segment, "have attributes updated without an append")
        attributes = self._updated(segment, op.updates)
        self._remove_spilled(segment, op.updates)
        self._keep(segment._replace(attributes=attributes, modified=self.time))

    def _spill(self, op: ops.SpillAttributes) -> None:
        segment = self.segment(op.segment)
        if segment.parent:
            return  # it has few for ever
        for attribute, value in segment.attributes.items():
            if not is_core(attribute):
                self._put(ATTRIBUTES, attribute_key(segment.id, attribute), value.to_bytes(8, "big", signed=True))
        core = immutables.Map({key: value for key, value in segment.attributes.items() if is_core(key)})
        self._keep(segment._replace(attributes=core, spilled=True))

    def _load(self, op: ops.LoadAttributes) -> None:
        segment = self.segment(op.segment)
        missing = {key: value for key, value in op.values if key not in segment.attributes}
        self._store(segment._replace(attributes=segment.attributes.update(missing)))

    # --- which segments are active --------------------------------------------------------------------------------

    def _map(self, op: ops.MapSegment) -> None:
        if op.segment in self._segments:
            return
        if self._judging:
            entry = self._entry(METADATA, op.segment)
            if entry is None or entry.version != op.version:
                raise Unresolved(METADATA, (op.segment,))
        self._store(decode_segment(op.record, self._sequence))

    def _evict(self, op: ops.EvictSegments) -> None:
        for name in op.segments:
            segment = self._segments.get(name)
            if segment is not None and name not in self._unsaved and segment.saved >= segment.touched:
                del self._segments[name]

    def _save(self, op: ops.SaveSegments) -> None:
        self._check_cycle(op.cycle)
        table = self._tables.get(METADATA) or new_table(METADATA)
        for name, number, record in op.records:
            segment = self._segments.get(name)
            if segment is None or segment.id != number:
                continue
            table = table.put(name, Entry(record, op.sequence))
            self._store(segment._replace(saved=op.sequence))
            if segment.touched <= op.sequence:
                self._unsaved.pop(name, None)
        self._tables[METADATA] = table

    # --- tables --------------------------------------------------------------------------------------------------

    def _entry(self, table: str, key: str) -> Entry | None:
        return find_entry(self._tables.get(table), table, key, self._known)

    def _put(self, table: str, key: str, value: bytes | None) -> None:
        self._tables[table] = (self._tables.get(table) or new_table(table)).put(key, Entry(value, self._sequence))

    def _check_version(self, op: ops.PutEntry | ops.CheckEntry) -> None:
        if op.expected is not None and self._judging:
            entry = self._entry(op.table, op.key)
            version = entry.version if entry is not None else NOT_EXISTS
            if op.expected != version:
                raise BadKeyVersion(op.table, op.key, op.expected, version)

    def _put_entry(self, op: ops.PutEntry) -> int:
        self._check_version(op)
        self._put(op.table, op.key, op.value)
        return self._sequence

    # --- flushing ------------------------------------------------------------------------------------------------

    def _mark_checkpoint(self, op: ops.Checkpoint) -> None:
        self._checkpoint = self._address

    def _begin_cycle(self, op: ops.BeginCycle) -> None:
        if op.number != self._cycle.number + 1:
            raise FlushOvertaken(f"flush cycle {self._cycle.number} was begun meanwhile")
        self._cycle = Cycle(op.number, self._sequence, self.time, False, self._cycle.backup)
        self._flush_address = self._address

    def _end_cycle(self, op: ops.EndCycle) -> None:
        self._check_cycle(op.number)
        self._cycle = self._cycle._replace(complete=True, backup=self._cycle.sequence)

    def _check_cycle(self, number: int) -> None:
        if number != self._cycle.number or self._cycle.complete:
            raise FlushOvertaken(f"flush cycle {number} is over")

    def _flushed(self, op: ops.Flushed) -> None:
        self._check_cycle(op.cycle)
        segment = self.segment(op.segment)
        if segment.storage_length != op.offset or op.end > segment.length or segment.storage not in ("", op.storage):
            raise FlushOvertaken(f"segment {op.segment!r} is in tier 2 up to {segment.storage_length}, not {op.offset}")
        extents, flushed = segment.extents.truncated(op.end)
        self._release(flushed, op.moved)
        self._store(
            segment._replace(
                extents=extents,
                logged=segment.logged - logged_bytes(flushed),
                storage_length=op.end,
                storage=op.storage,
            )
        )

    def _stored(self, op: ops.Stored) -> None:
        self._check_cycle(op.cycle)
        segment = self.segment(op.segment)
        if segment.storage != op.storage:
            raise FlushOvertaken(f"segment {op.segment!r} is called {segment.storage!r} in tier 2, not {op.storage!r}")
        self._store(segment._replace(stored_start=op.start_offset, stored_sealed=op.sealed))

    def _forgotten(self, op: ops.Forgotten) -> None:
        self._check_cycle(op.cycle)
        for storage in op.storages:
            self._dropped.pop(storage, None)

    def _tables_flushed(self, op: ops.TablesFlushed) -> None:
        self._check_cycle(op.cycle)
        for flushed in op.tables:
            self._table_flushed(flushed)

    def _table_flushed(self, op: ops.FlushedTable) -> None:
        table = self._tables[op.table]
        layout = layout_of(op.layout)
        entries = self._grown(table.entries, table.layout.length, op.entries, op.merged_entries, layout.start)
        pages = self._grown(table.pages, table.layout.index_length, op.pages, op.merged_pages, layout.index_start)
        self._tables[op.table] = table._replace(layout=layout, entries=entries, pages=pages).settled(op.upto, op.keep)

    def _grown(
        self,
        extents: Extents,
        end: int,
        added: Sequence[Extent],
        merged: tuple[int, Sequence[Extent]],
        start: int,
    ) -> Extents:
        """A table's byte space with extents merged, others added at its end, and what is before `start` released."""
        self._refer(added)
        if merged[1]:
            result = extents.replaced(*merged)
            if result is None:
                raise FlushOvertaken("a table's extents are not those that were merged")
            self._refer(merged[1])
            self._release(result[1])
            extents = result[0]
        kept, dropped = extents.appended(end, added).truncated(start)
        self._release(dropped)
        return kept

    # --- garbage -------------------------------------------------------------------------------------------------

    def _new_garbage(self, kind: int, segment: str = "") -> Garbage:
        return Garbage(self.time, self._sequence, kind, segment)

    def _queue_garbage(self, op: ops.QueueGarbage) -> None:
        for name, kind, segment in op.tasks:
            self._garbage[name] = self._new_garbage(kind, segment)

    def _discard(self, op: ops.Discard) -> None:
        for chunk in op.chunks:
            if chunk not in self._chunks:
                self._garbage[chunk] = self._new_garbage(_CHUNK)
        self._swept = max(self._swept, op.before)

    def _collected(self, op: ops.Collected) -> None:
        for chunk in op.chunks:
            self._garbage.pop(chunk, None)

    def _check_made(self, segment: str, extents: Sequence[Extent], made: int) -> None:
        """Refuse chunks that a sweep may have given up: collected by now, they would not be known as garbage any more.

        What flush cycles write needs no such check: they are fenced by their numbers, see `engine.orphans`.
        """
        if made < self._swept:
            for source, _, length, _ in extents:
                if isinstance(source, str) and length and source not in self._chunks:
                    raise ChunksGivenUp(segment, made, self._swept)

    def _refer(self, extents: Sequence[Extent]) -> None:
        for source, _, length, _ in extents:
            if isinstance(source, str) and length:
                if source in self._garbage:
                    raise Rejected(f"chunk {source!r} was given up already and cannot be attached any more")
                self._chunks[source] = self._chunks.get(source, 0) + 1

    def _release(self, extents: Sequence[Extent], moved: Collection[str] = ()) -> None:
        """What no extent names any more becomes garbage with the very operation that lets it go (G1), unless tier 2
        has taken it over."""
        for source, _, _, _ in extents:
            if isinstance(source, str):
                count = self._chunks[source] - 1
                if count:
                    self._chunks[source] = count
                    continue
                del self._chunks[source]
                if source not in moved:
                    self._garbage[source] = self._new_garbage(_CHUNK)
            elif isinstance(source, StoredRef) and source.storage not in moved:
                self._dropped[source.storage] = True


_APPLY: dict[type[Any], Callable[[Change, Any], Any]] = {
    ops.CreateSegment: Change._create,
    ops.Append: Change._append,
    ops.SealSegment: Change._seal,
    ops.MergeSegment: Change._merge,
    ops.TruncateSegment: Change._truncate,
    ops.DeleteSegment: Change._delete,
    ops.ExpireSegments: Change._expire,
    ops.UpdateAttributes: Change._update_attributes,
    ops.SpillAttributes: Change._spill,
    ops.LoadAttributes: Change._load,
    ops.MapSegment: Change._map,
    ops.EvictSegments: Change._evict,
    ops.SaveSegments: Change._save,
    ops.PutEntry: Change._put_entry,
    ops.CheckEntry: Change._check_version,
    ops.Checkpoint: Change._mark_checkpoint,
    ops.BeginCycle: Change._begin_cycle,
    ops.EndCycle: Change._end_cycle,
    ops.Flushed: Change._flushed,
    ops.Stored: Change._stored,
    ops.Forgotten: Change._forgotten,
    ops.TablesFlushed: Change._tables_flushed,
    ops.QueueGarbage: Change._queue_garbage,
    ops.Collected: Change._collected,
    ops.Discard: Change._discard,
}


def layout_of(fields: Sequence[Any]) -> TableLayout:
    """A table's layout from its fields, as an operation or a checkpoint carries them."""
    layout = TableLayout(*fields)
    return layout._replace(root=Root(*layout.root)) if layout.root is not None else layout


def content_of(segment: Segment) -> list[Extent]:
    """All of a segment's content as extents: what tier 2 holds of it as a whole, then its own."""
    extents = [extent for _, extent in segment.extents]
    if segment.storage:
        return [Extent(StoredRef(segment.storage), 0, segment.storage_length, b""), *extents]
    return extents


def _check_few(segment: str, attributes: immutables.Map[bytes, int]) -> None:
    """Refuse more extended attributes than a transient segment may have."""
    extended = sum(not is_core(attribute) for attribute in attributes)
    if extended > TRANSIENT_ATTRIBUTES:
        raise SegmentTransient(segment, f"have {extended} extended attributes, more than {TRANSIENT_ATTRIBUTES}")


def logged_bytes(extents: Sequence[Extent]) -> int:
    """How many bytes of these extents lie in the write-ahead log."""
    logged = 0
    for source, _, length, _ in extents:
        if isinstance(source, FrameRef):
            logged += length
    return logged


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
