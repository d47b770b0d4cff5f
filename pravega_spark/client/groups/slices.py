"""Slices: consecutive events that a reader of a group returns, and the segments they come from.

A segment has at most one outstanding slice. Its position moves only when the slice is returned, to the end of the last
event that was taken. So a position never passes an event that was not delivered. A slice ends after some time, so that
a slow program holds a segment, and may repeat its events after a crash, for that long only.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterator, KeysView, Mapping
from typing import NamedTuple, Protocol

from pravega_spark.client.event import Event
from pravega_spark.client.groups.state import GroupSegment


class OpenSpan:
    """The part of a segment in an outstanding slice: how far its events were taken, and whether it was returned.

    until: when it ends (seconds of the group's clock), counted from when it was handed out. stop: the slice is to end
    before its next event, as the reader is to pass a checkpoint; stopped: it has ended for that.
    """

    __slots__ = ("end", "expired", "lost", "position", "returned", "start", "stop", "stopped", "until")

    def __init__(self, start: int, end: int) -> None:
        self.start = self.position = start
        self.end = end
        self.until = float("inf")
        self.expired = False
        self.returned = False
        self.lost = False
        self.stop = False
        self.stopped = False


class SliceOwner(Protocol):
    """The reader that slices come from."""

    def keep_lease(self) -> float:
        """Called before each event. The time by the group's clock. Raises ReaderOffline when the reader may not deliver
        any more."""


class SegmentSlice:
    """Consecutive events of a segment: an iterator of Event. Made by a reader; empty if there were no events.

    It ends early after the reader's `slice_time`, and when the reader is to pass a checkpoint: the next slice begins
    with the next event. It also ends early if the group was reset meanwhile, or the segment truncated: these events are
    delivered again, or are gone. Iterating raises ReaderOffline when the reader has lost its segments.

    segment: of the events; None if there are none. checkpoint_name: the checkpoint that the reader has come to; the
    slice has no events then. is_read_completed: the group has read all its streams to their ends, and no event will
    come.
    """

    def __init__(
        self,
        owner: SliceOwner,
        span: OpenSpan,
        events: Iterator[tuple[Event, int]],
        segment: GroupSegment | None = None,
        checkpoint_name: str | None = None,
        is_read_completed: bool = False,
    ) -> None:
        self._owner = owner
        self._span = span
        self.segment = segment
        self.checkpoint_name = checkpoint_name
        self.is_read_completed = is_read_completed
        self._events = events

    @property
    def is_checkpoint(self) -> bool:
        """Whether it is the event of a checkpoint. Its name is in `checkpoint_name`."""
        return self.checkpoint_name is not None

    def __iter__(self) -> SegmentSlice:
        return self

    def __next__(self) -> Event:
        span = self._span
        if span.returned or span.stopped or span.position >= span.end:
            raise StopIteration
        if span.stop:
            span.stopped = True
            raise StopIteration
        span.expired = span.expired or self._owner.keep_lease() >= span.until
        if span.lost or (span.expired and span.position > span.start):
            raise StopIteration
        event, end = next(self._events)
        span.position = end
        return event


def owner_of(slice: SegmentSlice) -> SliceOwner:
    """The reader that a slice comes from."""
    return slice._owner


def span_of(slice: SegmentSlice) -> OpenSpan:
    """The part of its segment that a slice has."""
    return slice._span


LEAST_BYTES = 64 << 10
"""A slice holds no less because earlier ones ended by time."""


class _Out(NamedTuple):
    """An outstanding slice. The program may drop it without returning it."""

    span: OpenSpan
    slice: weakref.ref[SegmentSlice]


class ReaderSegments:
    """A reader's segments. Guarded by the reader's lock.

    positions: the offset up to which each was read, in the order of reading. ready: slices that were made and not
    returned to the program yet. bytes: how much the next slice holds, about: `most`, or less if slices end by time.
    """

    def __init__(self, most: int) -> None:
        self._most = self.bytes = most
        self.positions: dict[GroupSegment, int] = {}
        self.ready: deque[SegmentSlice] = deque()
        self._out: dict[GroupSegment, _Out] = {}

    @property
    def out(self) -> KeysView[GroupSegment]:
        """The segments with an outstanding slice."""
        return self._out.keys()

    @property
    def handed_out(self) -> bool:
        """Whether the program has slices."""
        return any(span.until != float("inf") for span, _ in self._out.values())

    def stop_handed_out(self) -> None:
        """Make the slices that the program has end before their next events."""
        for span, _ in self._out.values():
            span.stop = span.stop or span.until != float("inf")

    def reached(self) -> dict[GroupSegment, int]:
        """The positions after the events that were taken, those of outstanding slices included."""
        taken = {segment: span.position for segment, (span, _) in self._out.items() if segment in self.positions}
        return {**self.positions, **taken}

    def hand_out(self, until: float) -> SegmentSlice:
        """The next slice that is ready, which ends at `until`. Raises IndexError if there is none."""
        made = self.ready.popleft()
        made._span.until = until
        return made

    def waiting(self) -> list[GroupSegment]:
        """The segments without an outstanding slice, in the order of reading."""
        return [segment for segment in self.positions if segment not in self._out]

    def put(self, segment: GroupSegment, made: SegmentSlice) -> None:
        """Add a slice of a segment that is ready."""
        self._out[segment] = _Out(made._span, weakref.ref(made))
        self.ready.append(made)

    def take_back_done(self) -> None:
        """Advance behind slices that were returned or dropped, or whose events were all taken."""
        for segment, (span, held) in list(self._out.items()):
            if span.returned or held() is None or span.position == span.end or span.expired or span.stopped:
                self._take_back(segment)

    def take_back_returned(self) -> None:
        """Advance behind slices that were returned."""
        for segment, (span, _) in list(self._out.items()):
            if span.returned:
                self._take_back(segment)

    def _take_back(self, segment: GroupSegment) -> None:
        """Advance behind the events taken from a slice, and put the segment last."""
        span, _ = self._out.pop(segment)
        span.returned = True
        taken = span.position - span.start
        if span.expired:
            self.bytes = max(2 * taken, min(LEAST_BYTES, self._most))
        elif span.position == span.end:
            self.bytes = min(max(2 * taken, self.bytes), self._most)
        del self.positions[segment]
        self.positions[segment] = span.position

    def adopt(self, positions: Mapping[GroupSegment, int], kept: set[GroupSegment]) -> None:
        """Apply the group's state; slices of segments that the reader lost end."""
        for segment in [one for one in self._out if one not in kept]:
            self._out.pop(segment).span.lost = True
        order = [*(one for one in self.positions if one in positions), *positions]
        self.positions = {segment: positions[segment] for segment in order}

    def lose_all(self) -> None:
        """Drop all segments; all slices end."""
        for span, _ in self._out.values():
            span.lost = True
        self._out.clear()
        self.positions = {}
        self.ready.clear()
