"""Whether the counts in a state (bytes, extents, references to chunks) match its segments and tables (S1, G1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from chunkstore import checksums
from engine.admin.checks.findings import Problem
from engine.state.segments import Extents, FrameRef, Segment
from engine.state.state import State
from engine.state.tables import Table, entry_size, is_created

REMEDY = (
    "the container's state contradicts itself: stop writers, keep a copy of _system/containers/, and open the "
    "container from an older checkpoint"
)


def state_problems(state: State) -> Iterator[Problem]:
    """The contradictions within a state."""
    references: Counter[str] = Counter()
    for name, segment in state.segments.items():
        yield from _problems_of(name, _segment_problems(name, segment, state))
        references.update(_chunks_of(segment.extents))
    for name, table in state.tables.items():
        yield from _problems_of(name, _table_problems(table))
        for space in (table.entries, table.pages):
            references.update(_chunks_of(space))
    yield from _problems_of("state", _total_problems(state, references))


def segment_problems(segment: Segment) -> Iterator[str]:
    """The contradictions within a segment, active or not."""
    if not 0 <= segment.stored_start <= segment.start_offset <= segment.storage_length <= segment.length:
        yield (
            f"its offsets contradict each other: start {segment.start_offset} (in LTS {segment.stored_start}), "
            f"LTS up to {segment.storage_length}, length {segment.length}"
        )
    if not segment.storage and segment.storage_length != segment.start_offset:
        yield f"bytes {segment.start_offset} to {segment.storage_length} should be in LTS, but it has no name there"


def extent_problems(extents: Extents, start: int, end: int) -> Iterator[str]:
    """Whether extents cover `start` to `end` without gaps."""
    at = None
    for offset, extent in extents:
        if at not in (offset, None):
            yield f"its extents have a gap or an overlap: one ends at {at}, the next begins at {offset}"
        if at is None and offset > start:
            yield f"its extents begin at {offset}, not {start}"
        if extent.length <= 0 or offset + extent.length <= start:
            yield f"its extent at {offset} has {extent.length} bytes, none of which can be read"
        if extent.checksums and len(extent.checksums) != checksums_of(extent.length):
            yield f"its extent at {offset} has checksums of the wrong length"
        at = offset + extent.length
    if (start if at is None else at) != end:
        yield f"its extents end at {start if at is None else at}, not {end}"


def checksums_of(length: int) -> int:
    """The size of the checksums of so many bytes."""
    return -(-length // checksums.BLOCK) * checksums.WIDTH


def _segment_problems(name: str, segment: Segment, state: State) -> Iterator[str]:
    if segment.name != name:
        yield f"it is stored under this name, but its name is {segment.name!r}"
    yield from segment_problems(segment)
    yield from extent_problems(segment.extents, segment.storage_length, segment.length)
    logged = sum(extent.length for _, extent in segment.extents if isinstance(extent.source, FrameRef))
    if segment.logged != logged:
        yield f"{logged} of its bytes are in frames, but {segment.logged} are counted"
    if segment.length != segment.storage_length and name not in state.unsaved:
        yield "it has bytes that are not in LTS, but is not marked as unsaved"
    if segment.parent != state.transients.get(name, ""):
        yield f"its parent is {segment.parent!r}, but in the list of transients {state.transients.get(name, '')!r}"
    if segment.storage and segment.storage in state.dropped:
        yield f"what LTS holds of it, {segment.storage!r}, is marked as deleted"


def _table_problems(table: Table) -> Iterator[str]:
    yield from extent_problems(table.entries, table.layout.start, table.layout.length)
    yield from extent_problems(table.pages, table.layout.index_start, table.layout.index_length)
    size = sum(entry_size(key, entry) for key, entry in table.recent.items())
    if table.size != size:
        yield f"its entries in memory have {size} bytes, but {table.size} are counted"


def _total_problems(state: State, references: Counter[str]) -> Iterator[str]:
    logged = sum(segment.logged for segment in state.segments.values())
    if state.logged_bytes != logged:
        yield f"{logged} bytes are in frames, but {state.logged_bytes} are counted"
    extents = sum(len(segment.extents) for segment in state.segments.values())
    if state.extents != extents:
        yield f"segments have {extents} extents, but {state.extents} are counted"
    unflushed = sum(table.unflushed() for name, table in state.tables.items() if is_created(name, table))
    if state.table_bytes != unflushed:
        yield f"created tables have {unflushed} bytes that are not in LTS, but {state.table_bytes} are counted"
    for name in set(state.unsaved) - set(state.segments):
        yield f"segment {name!r} is marked as unsaved, but is not active"
    for chunk in set(state.chunks) | set(references):
        if state.chunks.get(chunk, 0) != references[chunk]:
            counted = state.chunks.get(chunk, 0)
            yield f"chunk {chunk!r} is named by {references[chunk]} extents, but {counted} are counted"
    for chunk in set(state.garbage) & set(references):
        yield f"chunk {chunk!r} is both garbage and in use"


def _chunks_of(extents: Extents) -> Iterator[str]:
    return (extent.source for _, extent in extents if isinstance(extent.source, str))


def _problems_of(name: str, problems: Iterator[str]) -> Iterator[Problem]:
    return (Problem(name, problem, REMEDY) for problem in problems)
