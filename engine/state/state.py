"""The state of a container: a pure function of the live frames of its log (W5).

A state is immutable; `changes.change` gives the next one, or raises `Rejected` and changes nothing. So several states
may be in use at once: the confirmed one that readers see, and the one behind the frames that are still in flight.

What LTS holds is not in the state, but for where its tables lie. An operation that depends on it is judged by its
writer, who looks it up (Unresolved); what is in the log was judged, and is applied without asking.
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
"""The version of an entry that is not there."""


class Cycle(NamedTuple):
    """The last flush cycle that was begun.

    number: counts cycles. sequence, time: number of the operation that began it, and when (ms). complete: it ended.
    recovery_point: number of the operation that began the last complete cycle (-1: there was none). alive: when whoever
    runs it was last heard of (ms). given_up: that process stopped before the end; trouble: why, if it had to.
    """

    number: int = 0
    sequence: int = 0
    time: int = 0
    complete: bool = True
    recovery_point: int = -1
    alive: int = 0
    given_up: bool = False
    trouble: str = ""

    def runs(self, number: int) -> bool:
        """Whether this is the cycle of that number, and goes on."""
        return self.number == number and not self.complete and not self.given_up


class GarbageEntry(NamedTuple):
    """Something that may have to be deleted: since when (ms) and which operation, what kind (see `collection.garbage`),
    of which segment."""

    since: int
    sequence: int
    kind: int
    segment: str


EXTENT = 512
"""About how many bytes an extent takes in memory."""

ATTRIBUTES_GARBAGE = 16
"""The kind of what a deleted segment left in the table of attributes; its name is what their keys begin with."""


class State(NamedTuple):
    """Everything a container knows without looking into LTS.

    sequence: number of operations applied. checkpoint: address of the last frame with a Checkpoint.
    flushed: address of the frame that began the last flush cycle. logged_bytes: bytes in the log and not in LTS.
    segments: those that are active. unsaved: those that LTS does not know as they are.
    chunks: how many extents name each chunk. garbage: what may be deleted. dropped: segments in LTS, by their names
    there, that are deleted and still there. transients: the transient segments, active or not, with their parents.
    orphan_horizon: chunks that were begun before it (ms since the epoch) and that nothing names are given up for good
    (G1). extents: how many all segments have that are not in LTS.
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
    orphan_horizon: int = 0
    extents: int = 0

    @property
    def backlog(self) -> int:
        """About how many bytes wait for a flush cycle, in the log, and in memory: tiny appends are mostly extents."""
        return self.logged_bytes + EXTENT * self.extents

    @property
    def awaits_flush(self) -> bool:
        """Whether a flush cycle would take anything out of the state, be it what was deleted, or a table's entries."""
        return bool(self.unsaved or self.dropped) or any(
            table.size > limits.RESIDENT_BYTES for table in self.tables.values()
        )

    def segment(self, name: str) -> Segment:
        """The active segment of that name. Raises SegmentNotFound; Unresolved if it may exist and not be active."""
        return find_segment(self.segments.get(name), self.tables, name, {})

    def entry(self, table: str, key: str) -> Entry | None:
        """A table's entry, or None. Raises Unresolved if it may be in LTS only."""
        return find_entry(self.tables.get(table), table, key, {})

    def logged(self) -> Iterator[Segment]:
        """The segments that have bytes that are not in LTS."""
        return (segment for name in self.unsaved if (segment := self.segments[name]).length > segment.storage_length)

    def is_kept_for_recovery(self, garbage: GarbageEntry) -> bool:
        """Whether this became garbage after the last complete cycle began, whose recovery point may need it (F2)."""
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
    known: Mapping[tuple[str, str], LookupResult],
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
