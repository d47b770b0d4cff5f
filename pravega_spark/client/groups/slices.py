"""Slices, by which a reader of a group gives out events, and the segments that it gives them from.

Of a segment one slice at most is out. Where a segment is read on moves only when its slice is taken back: then it is
behind the last event that somebody took. So a position never passes an event that was not given out.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterator, KeysView, Mapping
from typing import NamedTuple, Protocol

from pravega_spark.client.groups.events import EventData
from pravega_spark.client.groups.state import GroupSegment


class OpenSpan:
    """The part of a segment that is out in a slice: how far its events were taken, and what became of it."""

    __slots__ = ("end", "lost", "position", "returned")

    def __init__(self, start: int, end: int) -> None:
        self.position = start
        self.end = end
        self.returned = False
        self.lost = False


class SliceOwner(Protocol):
    """Who gives out slices: one reader."""

    def keep_lease(self) -> None:
        """Called before each event. Raises ReaderOffline when the reader may not give out any more."""


class SegmentSlice:
    """Consecutive events of a segment: an iterator of EventData. Made by a reader; empty when there was nothing.

    It ends early when the group was reset meanwhile, or the segment truncated: those events come again, or are gone.
    Iterating raises ReaderOffline when the reader has lost its segments.
    """

    def __init__(self, owner: SliceOwner, span: OpenSpan, events: Iterator[tuple[EventData, int]]) -> None:
        self.owner = owner
        self.span = span
        self._events = events

    def __iter__(self) -> SegmentSlice:
        return self

    def __next__(self) -> EventData:
        span = self.span
        if span.returned or span.position >= span.end:
            raise StopIteration
        self.owner.keep_lease()
        if span.lost:
            raise StopIteration
        event, end = next(self._events)
        span.position = end
        return event


class _Out(NamedTuple):
    """A slice that is out. Who has it may drop it."""

    span: OpenSpan
    slice: weakref.ref[SegmentSlice]


class ReaderSegments:
    """A reader's segments. Whoever changes it holds the reader's lock.

    positions: up to where each was read, in the order in which they are looked at. ready: slices that were made, and
    not given out yet.
    """

    def __init__(self) -> None:
        self.positions: dict[GroupSegment, int] = {}
        self.ready: deque[SegmentSlice] = deque()
        self._out: dict[GroupSegment, _Out] = {}

    @property
    def out(self) -> KeysView[GroupSegment]:
        """The segments of which a slice is out."""
        return self._out.keys()

    def waiting(self) -> list[GroupSegment]:
        """The segments that may be read on, in the order in which they are looked at."""
        return [segment for segment in self.positions if segment not in self._out]

    def put(self, segment: GroupSegment, made: SegmentSlice) -> None:
        """A slice of a segment is ready."""
        self._out[segment] = _Out(made.span, weakref.ref(made))
        self.ready.append(made)

    def take_back_done(self) -> None:
        """Go on behind the slices that were returned, or dropped, or of which all events were taken."""
        for segment, (span, held) in list(self._out.items()):
            if span.returned or held() is None or span.position == span.end:
                self._take_back(segment)

    def take_back_returned(self) -> None:
        """Go on behind the slices that were returned."""
        for segment, (span, _) in list(self._out.items()):
            if span.returned:
                self._take_back(segment)

    def _take_back(self, segment: GroupSegment) -> None:
        """Go on behind what was taken from a slice, when it is the segment's turn again."""
        span, _ = self._out.pop(segment)
        span.returned = True
        del self.positions[segment]
        self.positions[segment] = span.position

    def adopt(self, positions: Mapping[GroupSegment, int], kept: set[GroupSegment]) -> None:
        """Go by what the group says; slices of segments that the reader did not keep end."""
        for segment in [one for one in self._out if one not in kept]:
            self._out.pop(segment).span.lost = True
        order = [*(one for one in self.positions if one in positions), *positions]
        self.positions = {segment: positions[segment] for segment in order}

    def lose_all(self) -> None:
        """The reader has nothing any more, and all its slices end."""
        for span, _ in self._out.values():
            span.lost = True
        self._out.clear()
        self.positions = {}
        self.ready.clear()
