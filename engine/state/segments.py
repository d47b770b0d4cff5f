"""A segment's properties, and the extents that are its content. All values are immutable.

Keeps S1: a segment's content is an ordered list of extents, each a byte range of an object: of a chunk, or of a frame's
payload while it is not flushed. Each extent carries the checksums of its bytes. By these a reader also detects that a
frame was deleted and another one created at its address.
"""

from __future__ import annotations

import re
import uuid
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import immutables

from chunkstore.optional_fields import LaterRevisions

EVENT_COUNT = (1 << 127 | 1).to_bytes(16, "big")
"""Core attribute: number of events in the segment (Pravega: Attributes.EVENT_COUNT)."""

CREATION_TIME = (1 << 127).to_bytes(16, "big")
"""Core attribute: when the segment was created, ms since the epoch."""

NULL_VALUE = -(1 << 63)
"""Setting an attribute to this removes it (Pravega: Attributes.NULL_ATTRIBUTE_VALUE)."""


MAX_VALUE = (1 << 63) - 1
"""The greatest value of an attribute."""

MAX_LENGTH = (1 << 61) - 1
"""The greatest length of a segment, bytes: the greatest offset that a stream cut can hold."""


TRANSIENT_ATTRIBUTES = 4
"""The most extended attributes of a transient segment (PDP-43)."""

_TRANSIENT = re.compile(r"(.+)#transient\.[0-9a-f]{32}\.[0-9a-f]{32}", re.DOTALL)


class FrameRef:
    """A frame that holds extents, which share one reference to it. `start` is set when the frame is encoded."""

    __slots__ = ("address", "start")

    def __init__(self, address: int, start: int = -1) -> None:
        self.address = address
        self.start = start  # where the payload begins in the object

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FrameRef) and (other.address, other.start) == (self.address, self.start)

    def __hash__(self) -> int:
        return hash(self.address)

    def __repr__(self) -> str:
        return f"FrameRef({self.address}, {self.start})"


class StoredRef(NamedTuple):
    """The whole content in LTS of a segment that was merged into another one. storage: its name there."""

    storage: str


class Extent(NamedTuple):
    """A byte range of an object. `position` counts from the payload's start in a frame, from 0 elsewhere.

    The object is a frame, a chunk by its name, or the stored part of a merged segment.
    """

    source: FrameRef | StoredRef | str
    position: int
    length: int
    checksums: bytes


class Extents:
    """An ordered list of extents. Versions share their lists: appending to the newest version costs O(1)."""

    __slots__ = ("_count", "_first", "_items", "_starts")

    def __init__(self, starts: list[int] | None = None, items: list[Extent] | None = None) -> None:
        self._starts = starts if starts is not None else []
        self._items = items if items is not None else []
        self._first = 0
        self._count = len(self._items)

    def __len__(self) -> int:
        return self._count - self._first

    def __iter__(self) -> Iterator[tuple[int, Extent]]:
        for index in range(self._first, self._count):
            yield self._starts[index], self._items[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Extents) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def appended(self, offset: int, extents: Sequence[Extent]) -> Extents:
        """This list with `extents` behind it, the first of them at `offset` of the segment."""
        new = Extents.__new__(Extents)
        if len(self._items) == self._count:
            new._starts, new._items, new._first = self._starts, self._items, self._first
        else:  # another version has appended here already
            new._starts, new._items = self._starts[self._first : self._count], self._items[self._first : self._count]
            new._first = 0
        for extent in extents:
            length = extent.length
            if length:
                new._starts.append(offset)
                new._items.append(extent)
                offset += length
        new._count = len(new._items)
        return new

    def truncated(self, offset: int) -> tuple[Extents, list[Extent]]:
        """This list without the extents that end at or before `offset`, and those extents."""
        index = self._index(offset)
        if index < self._count and self._starts[index] + self._items[index].length <= offset:
            index += 1
        dropped = self._items[self._first : index]
        if not dropped:
            return self, []
        if index > len(self._items) // 2:
            return Extents(self._starts[index : self._count], self._items[index : self._count]), dropped
        new = Extents.__new__(Extents)
        new._starts, new._items, new._first, new._count = self._starts, self._items, index, self._count
        return new, dropped

    def replaced(self, offset: int, extents: Sequence[Extent]) -> tuple[Extents, list[Extent]] | None:
        """This list with `extents` instead of those that cover the same range, and those; None if none cover exactly
        that range."""
        end = offset + sum(extent.length for extent in extents)
        first = self._index(offset)
        last = first
        while last < self._count and self._starts[last] < end:
            last += 1
        if first >= last or self._starts[first] != offset:
            return None
        if self._starts[last - 1] + self._items[last - 1].length != end:
            return None
        head = Extents(self._starts[self._first : first], self._items[self._first : first])
        new = head.appended(offset, extents)
        new._starts.extend(self._starts[last : self._count])
        new._items.extend(self._items[last : self._count])
        new._count = len(new._items)
        return new, self._items[first:last]

    def between(self, start: int, end: int) -> list[tuple[int, Extent]]:
        """The extents that overlap `[start, end)`, each with its offset."""
        found = []
        for index in range(self._index(start), self._count):
            offset, extent = self._starts[index], self._items[index]
            if offset >= end:
                break
            if offset + extent.length > start:
                found.append((offset, extent))
        return found

    def _index(self, offset: int) -> int:
        """The index of the extent that contains `offset`, or of the first one."""
        return max(self._first, bisect_right(self._starts, offset, self._first, self._count) - 1)


class Segment(NamedTuple):
    """A segment's properties (Pravega: SegmentMetadata). Offsets in bytes, times in milliseconds since the epoch.

    id: the sequence number of the operation that created it; no other segment ever has it. storage_length: the content
    before it is in LTS, in the segment `storage` (empty: there is none). stored_start, stored_sealed: start offset and
    seal as recorded in LTS. extents: the content from `storage_length` on, which is never below `start_offset`. logged:
    how many bytes are in the write-ahead log. touched, saved: sequence numbers of the last operation that changed it,
    and of the state that the container's metadata table has. attributes: core attributes, and extended ones; if
    `spilled`, the table of attributes has more extended ones. parent: the segment that a transient segment was created
    for; empty for all others. A transient segment (PDP-43) takes appends until it is merged without being sealed. It
    cannot be truncated, is deleted with its parent, and expires. later: what a newer version added to its entry (W19).
    """

    name: str
    id: int
    start_offset: int
    length: int
    sealed: bool
    modified: int
    logged: int
    attributes: immutables.Map[bytes, int]
    extents: Extents
    storage_length: int = 0
    storage: str = ""
    stored_start: int = 0
    stored_sealed: bool = False
    touched: int = 0
    saved: int = -1
    spilled: bool = False
    parent: str = ""
    later: LaterRevisions = ()


def logged_bytes(extents: Sequence[Extent]) -> int:
    """How many bytes of these extents are in the write-ahead log."""
    logged = 0
    for source, _, length, _ in extents:
        if isinstance(source, FrameRef):
            logged += length
    return logged


def storage_name(segment: str, number: int, start: int) -> str:
    """The name in LTS of the segment with this id, if its content there begins at `start`. Never used twice."""
    return f"{segment}.{number}.{start}" if start else f"{segment}.{number}"


def transient_name(parent: str, writer: uuid.UUID, number: uuid.UUID) -> str:
    """The name of a transient segment that a writer creates for `parent` (Pravega:
    NameUtils.getTransientNameFromId)."""
    return f"{parent}#transient.{writer.hex}.{number.hex}"


def parent_in(name: str) -> str | None:
    """The parent in the name of a transient segment; None for other names."""
    match = _TRANSIENT.fullmatch(name)
    return match[1] if match else None


def is_core(attribute: bytes) -> bool:
    """Whether an attribute is a core attribute, which always stays in memory with its segment (Pravega:
    Attributes.isCoreAttribute)."""
    return attribute[:8] == CREATION_TIME[:8]
