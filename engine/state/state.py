"""The state of a container: a function of the live frames of its log (W5).

A state is immutable. Applying a transaction (`changes.apply`) returns the next state, or raises `Rejected`. So several
states may be in use at once: the confirmed one that readers see, and the one behind the frames in flight.

The state holds the location of the tables in LTS, not their content. An operation that depends on that content raises
`Unresolved`; its writer looks the content up and validates the operation again. Operations in the log were validated,
and are applied without looking anything up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

import immutables

from engine.errors import SegmentNotFound, Unresolved
from engine.state import tables as limits
from engine.state.segment_map import SegmentMap
from engine.state.segments import Segment
from engine.state.tables import METADATA, Entry, LookupResult, Table

NOT_EXISTS = -1
"""The version of an entry that does not exist."""


class Cycle(NamedTuple):
    """The last flush cycle that was begun.

    number: counts cycles. sequence, time: number and time (ms) of the operation that began it. complete: it ended.
    recovery_point: number of the operation that began the last complete cycle (-1: there is none). alive: time of its
    last step (ms). aborted: its process stopped before the end. error: why, if it failed.
    """

    number: int = 0
    sequence: int = 0
    time: int = 0
    complete: bool = True
    recovery_point: int = -1
    alive: int = 0
    aborted: bool = False
    error: str = ""

    def runs(self, number: int) -> bool:
        """Whether this is the cycle of that number, and it is neither complete nor aborted."""
        return self.number == number and not self.complete and not self.aborted


class GarbageEntry(NamedTuple):
    """An object, or a deleted segment's attributes, to be deleted unless something names it. since, sequence: time (ms)
    and number of the operation that queued it. kind: a `GarbageKind`, or ATTRIBUTES_GARBAGE. segment: whose it was."""

    since: int
    sequence: int
    kind: int
    segment: str


EXTENT = 512
"""Approximate size of an extent in memory, bytes."""

ATTRIBUTES_GARBAGE = 16
"""The kind of a deleted segment's entries in the table of attributes. The garbage's name is the prefix of their
keys."""


class State(NamedTuple):
    """Everything that a container knows without reading LTS.

    sequence: number of operations applied. checkpoint: address of the last frame with a Checkpoint.
    flushed: address of the frame that began the last flush cycle. logged_bytes: bytes in the log and not in LTS.
    segments: the active ones. unsaved: those with changes that LTS does not have.
    chunks: how many extents name each chunk. garbage: what may be deleted. dropped: the names in LTS of segments that
    were deleted but are still there. transients: the transient segments, active or not, with their parents.
    min_attach_time: chunks that were created before it (ms since the epoch) can no longer be attached (G1).
    extents: the number of extents of all segments. table_bytes: of the entries of created tables that are not in LTS.
    """

    sequence: int
    checkpoint: int
    flushed: int
    logged_bytes: int
    unsaved: immutables.Map[str, bool]
    segments: SegmentMap
    tables: immutables.Map[str, Table]
    chunks: immutables.Map[str, int]
    garbage: immutables.Map[str, GarbageEntry]
    dropped: immutables.Map[str, bool]
    cycle: Cycle
    transients: immutables.Map[str, str] = immutables.Map()
    min_attach_time: int = 0
    extents: int = 0
    table_bytes: int = 0

    @property
    def backlog(self) -> int:
        """Approximate bytes that wait for a flush cycle, in the log and in memory: of tiny appends, extents are the
        most."""
        return self.logged_bytes + EXTENT * self.extents + self.table_bytes

    @property
    def awaits_flush(self) -> bool:
        """Whether a flush cycle would remove anything from the state."""
        return bool(self.unsaved or self.dropped or self.table_bytes) or any(
            table.size > limits.RESIDENT_BYTES for table in self.tables.values()
        )

    def segment(self, name: str) -> Segment:
        """The active segment of that name. Raises SegmentNotFound; Unresolved if it may exist and not be active."""
        return find_segment(self.segments.get(name), self.tables, name, {})

    def entry(self, table: str, key: str) -> Entry | None:
        """A table's entry, or None. Raises Unresolved if it may be in LTS only."""
        return find_entry(self.tables.get(table), table, key, {})

    def logged(self) -> Iterator[Segment]:
        """The segments with bytes that are not in LTS."""
        return (segment for name in self.unsaved if (segment := self.segments[name]).length > segment.storage_length)

    def is_kept_for_recovery(self, garbage: GarbageEntry) -> bool:
        """Whether this became garbage after the last complete cycle began, so that its recovery point may need it
        (F2)."""
        return self.cycle.recovery_point >= 0 and garbage.sequence >= self.cycle.recovery_point


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


def find_entry(table: Table | None, name: str, key: str, known: Mapping[tuple[str, str], LookupResult]) -> Entry | None:
    """An entry in memory, or as it was looked up under the table's present root. Raises Unresolved."""
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
    known: Mapping[tuple[str, str], LookupResult],
) -> Segment:
    """An active segment. Raises SegmentNotFound, or Unresolved if it is, or may be, in the metadata table."""
    if segment is not None:
        return segment
    if find_entry(tables.get(METADATA), METADATA, name, known) is not None:
        raise Unresolved(METADATA, (name,))
    raise SegmentNotFound(name)


class _Tables(Protocol):
    """Tables by name, of a state or of a draft."""

    def get(self, name: str, /) -> Table | None: ...
