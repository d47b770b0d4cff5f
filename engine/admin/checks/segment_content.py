"""Reading the content of segments for checks that know its meaning, such as events.

Bytes that cannot be read are reported once, and raise `Unreadable`. Bytes that a flush moved meanwhile are read at
their new place. A segment that was truncated or deleted meanwhile raises `Gone`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias

from chunkstore import ObjectNotFound
from chunkstore.errors import fact_of
from engine.admin.checks.findings import Problem
from engine.containers.container import Container
from engine.errors import DataCorruption
from engine.state.segments import Segment
from engine.state.state import State
from engine.storage.object_reads import ObjectRange, fetch, plan

TRIES = 5
"""The most states that are tried, if each is outdated before the bytes are read."""

WINDOW = 8 << 20
"""Bytes of a segment that are read at once."""


class Unreadable(Exception):
    """Bytes of a segment cannot be read. It was reported already; the check may continue behind them."""


class Gone(Exception):
    """The segment was truncated or deleted while it was checked."""


class ContentReader:
    """Reads segments of one state of a container. note: is called with each problem."""

    def __init__(self, container: Container, state: State, note: Callable[[Problem], None]) -> None:
        self._container = container
        self._state = state
        self._note = note

    def find(self, name: str) -> Segment | None:
        """A segment of that state, active or not."""
        return self._container.activated([name], self._state)[name]

    def read(self, segment: Segment, start: int, end: int) -> bytes:
        """The bytes `[start, end)`, checked. Raises Unreadable, Gone."""
        state, known = self._state, segment
        before: list[ObjectRange] | None = None
        for _ in range(TRIES):
            pieces: list[ObjectRange] | None = None
            try:
                pieces = self._plan(state, known, start, end)
                if pieces != before:
                    return b"".join(fetch(self._container.stores, pieces))
            except (ObjectNotFound, DataCorruption) as error:
                failure = error
            else:
                break  # the newest state names the same pieces
            newer = self._container.refresh()
            if pieces is None and newer is state:
                break
            found = self._container.activated([segment.name], newer)[segment.name]
            if found is None or found.id != segment.id or found.start_offset > start:
                raise Gone
            state, known, before = newer, found, pieces
        if pieces is None:
            self._note(Problem(segment.name, fact_of(failure), "restore the object from a copy"))
            raise Unreadable
        return b"".join(self._one_by_one(segment, pieces))

    def _plan(self, state: State, segment: Segment, start: int, end: int) -> list[ObjectRange]:
        lookups = self._container.lookups
        return plan(
            segment, self._container.number, start, end, lambda name, low, high: lookups.pieces(state, name, low, high)
        )

    def _one_by_one(self, segment: Segment, pieces: Iterable[ObjectRange]) -> Iterator[memoryview]:
        """The bytes of pieces some of which cannot be read, though the newest state names them. Reports each of
        those."""
        failed = False
        for piece in pieces:
            try:
                yield from fetch(self._container.stores, [piece])
            except ObjectNotFound:
                failed = True
                self._note(Problem(piece.path, missing(segment.name), "restore the object from a copy"))
            except DataCorruption as error:
                failed = True
                self._note(
                    Problem(piece.path, f"segment {segment.name!r}: {fact_of(error)}", "restore the object from a copy")
                )
        if failed:
            raise Unreadable


class SegmentView:
    """A segment at one moment, for a check of its content. Offsets in bytes.

    Iterating over `windows` reads all of it, `read` a part. Both raise Unreadable and Gone.
    """

    def __init__(self, reader: ContentReader, segment: Segment) -> None:
        self._reader = reader
        self._segment = segment
        self.windows = Windows(reader, segment)

    @property
    def name(self) -> str:
        """Its name."""
        return self._segment.name

    @property
    def start(self) -> int:
        """The first offset that can be read."""
        return self._segment.start_offset

    @property
    def length(self) -> int:
        """The offset at which it ends."""
        return self._segment.length

    @property
    def attributes(self) -> Mapping[bytes, int]:
        """Its core attributes."""
        return self._segment.attributes

    def read(self, start: int, end: int) -> bytes:
        """These bytes."""
        return self._reader.read(self._segment, start, end)

    def other(self, name: str) -> SegmentView | None:
        """Another segment of the same container; None if it does not exist."""
        found = self._reader.find(name)
        return SegmentView(self._reader, found) if found is not None else None


class Windows:
    """Iterates over all bytes of a segment, WINDOW at a time, with their offsets. After Unreadable it may be
    continued."""

    def __init__(self, reader: ContentReader, segment: Segment) -> None:
        self._reader = reader
        self._segment = segment
        self._next = segment.start_offset

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        return self

    def __next__(self) -> tuple[int, bytes]:
        start = self._next
        if start >= self._segment.length:
            raise StopIteration
        self._next = min(start + WINDOW, self._segment.length)
        return start, self._reader.read(self._segment, start, self._next)

    def drain(self) -> None:
        """Read the rest."""
        while self._next < self._segment.length:
            try:
                next(self)
            except Unreadable:
                continue


ContentCheck: TypeAlias = Callable[[SegmentView, bool], Iterable[Problem]]
"""Checks the content of a segment and returns its problems. The second argument: read all of it (a deep check)."""


def missing(owner: str) -> str:
    """The problem of an object that is missing."""
    return f"the object is missing; {owner!r} needs it"
