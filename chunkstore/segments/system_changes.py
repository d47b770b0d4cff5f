"""What changes in a system segment, for the journal that knows its layout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias


class ChunkAdded(NamedTuple):
    """`new_chunk` begins at `offset` of the segment, which is where `old_chunk`, the last so far, ends."""

    segment: str
    new_chunk: str
    old_chunk: str | None
    offset: int


class Truncated(NamedTuple):
    """The segment begins at `offset`, in `first_chunk`, which begins at `first_chunk_start`; None: no chunk is left."""

    segment: str
    offset: int
    first_chunk: str | None
    first_chunk_start: int


class Appended(NamedTuple):
    """`length` bytes were added at `offset` of the chunk, the last of its segment."""

    segment: str
    chunk: str
    offset: int
    length: int


SystemChange: TypeAlias = ChunkAdded | Truncated | Appended

JournalSink: TypeAlias = Callable[[Sequence[SystemChange]], None]
"""Records changes before they count, all of them or none."""
