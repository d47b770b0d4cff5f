"""A mutable draft of the next state, which the operations of a transaction change one after the other.

It shares everything unchanged with the state that it was made from, which never changes. The fields are those of
`State`.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.errors import Rejected
from engine.state.segments import MAX_VALUE, Segment
from engine.state.state import State, find_entry, find_segment
from engine.state.tables import Entry, LookupResult, entry_size, is_created, new_table


class StateDraft:
    """The fields of the next state.

    time: of the present transaction, ms. address: of its frame. validating: whether conditions are checked; otherwise
    the transaction was validated before. known: the results of lookups in LTS. sequence: number of the present
    operation.
    """

    __slots__ = (
        "address",
        "checkpoint",
        "chunks",
        "cycle",
        "dropped",
        "extents",
        "flushed",
        "garbage",
        "known",
        "logged_bytes",
        "min_attach_time",
        "segments",
        "sequence",
        "table_bytes",
        "tables",
        "time",
        "transients",
        "unsaved",
        "validating",
    )

    def __init__(
        self, base: State, time: int, address: int, known: Mapping[tuple[str, str], LookupResult] | None
    ) -> None:
        self.time = time
        self.address = address
        self.validating = known is not None
        self.known = known or {}
        self.sequence = base.sequence
        self.checkpoint = base.checkpoint
        self.flushed = base.flushed
        self.logged_bytes = base.logged_bytes
        self.unsaved = base.unsaved.mutate()
        self.segments = base.segments.mutate()
        self.tables = base.tables.mutate()
        self.chunks = base.chunks.mutate()
        self.garbage = base.garbage.mutate()
        self.dropped = base.dropped.mutate()
        self.cycle = base.cycle
        self.transients = base.transients
        self.min_attach_time = base.min_attach_time
        self.extents = base.extents
        self.table_bytes = base.table_bytes

    def finish(self) -> State:
        """The state as it is now."""
        return State(
            self.sequence,
            self.checkpoint,
            self.flushed,
            self.logged_bytes,
            self.unsaved.finish(),
            self.segments.finish(),
            self.tables.finish(),
            self.chunks.finish(),
            self.garbage.finish(),
            self.dropped.finish(),
            self.cycle,
            self.transients,
            self.min_attach_time,
            self.extents,
            self.table_bytes,
        )

    def segment(self, name: str) -> Segment:
        """The segment as it is now. Raises SegmentNotFound, or Unresolved if it may exist without being active."""
        return find_segment(self.segments.get(name), self.tables, name, self.known)

    def keep(self, segment: Segment) -> None:
        """Store a changed segment, and mark it as unsaved."""
        self.store(segment if segment.touched == self.sequence else segment._replace(touched=self.sequence))
        self.unsaved[segment.name] = True

    def store(self, segment: Segment) -> None:
        """Store a segment, and update the totals of bytes in the log and of extents."""
        before = self.segments.put(segment.name, segment)
        if before is None:
            self.logged_bytes += segment.logged
            self.extents += len(segment.extents)
        else:
            self.logged_bytes += segment.logged - before.logged
            self.extents += len(segment.extents) - len(before.extents)
        if self.logged_bytes > MAX_VALUE:
            raise Rejected(f"the log cannot hold {self.logged_bytes} bytes of segments: {MAX_VALUE} is the most")

    def entry(self, table: str, key: str) -> Entry | None:
        """A table's entry as it is now. Raises Unresolved if it may be only in LTS."""
        return find_entry(self.tables.get(table), table, key, self.known)

    def put(self, table: str, key: str, value: bytes | None) -> None:
        """Put a table's entry, or remove it, with the number of the present operation as its version."""
        before, entry = self.tables.get(table) or new_table(table), Entry(value, self.sequence)
        after = self.tables[table] = before.put(key, entry)
        if after is not before and is_created(table, before):
            old = before.recent.get(key)
            self.table_bytes += entry_size(key, entry)
            self.table_bytes -= entry_size(key, old) if old is not None and old.version > before.flushed else 0
