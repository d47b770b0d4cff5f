"""The timeline of a stream, for pictures: when its segments began and ended, when their events came, and where cuts and
consumers are in time.

Segments begin and end with epochs, whose creation times are stored. The time of a position within a segment comes
from its index.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import inf
from typing import Literal, NamedTuple

from pravega_spark.errors import InvalidStreamCut
from pravega_spark.segment_ids import segment_epoch
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.model.epochs import EpochRecord, StreamSegmentRecord, overlapping
from pravega_spark.streams.model.index import IndexReader
from pravega_spark.streams.model.policies import RetentionPolicy
from pravega_spark.streams.reading.activity import Growth, Lifetime, activity
from pravega_spark.streams.reading.snapshot import Snapshot
from pravega_spark.streams.reading.stream_position import StreamPosition, cut_at


class SegmentSpan(NamedTuple):
    """A segment from `begun` to `ended` (ms since the epoch). An open segment ends now.

    state: `gone` if all of it is before the head. offsets: of its first readable event, and of its end; None if it is
    gone.
    """

    segment: StreamSegmentRecord
    begun: int
    ended: int
    state: Literal["open", "sealed", "gone"]
    offsets: tuple[int, int] | None = None


class CutPoint(NamedTuple):
    """The position of a cut over some keys: in the segment that began at `begun`, at `time`.

    kind: the first `event` after the cut, the `begin` of the segment, or its `end`: no event follows. `time`: the cut
    was given as this time.
    """

    low: float
    high: float
    begun: int
    time: int
    kind: Literal["event", "begin", "end", "time"] = "event"


class Border(NamedTuple):
    """A split or a merge of segments: when, and their keys."""

    kind: Literal["split", "merge"]
    time: int
    low: float
    high: float


class Timeline(NamedTuple):
    """A stream's segments in time, from its first known epoch to `now`. Times in ms since the epoch.

    epochs: their numbers and creation times. size, events: readable ones. cuts: other than head and tail. ended:
    when the stream was sealed, None if it is open. activity: the readable events by time, by segment id. consumers:
    positions of reader groups and subscribers, by their names.
    """

    stream: str
    epochs: tuple[tuple[int, int], ...]
    spans: tuple[SegmentSpan, ...]
    borders: tuple[Border, ...]
    head: tuple[CutPoint, ...]
    tail: tuple[CutPoint, ...]
    cuts: dict[str, tuple[CutPoint, ...]]
    ended: int | None
    now: int
    size: int
    events: int
    activity: dict[int, tuple[Growth, ...]]
    consumers: dict[str, tuple[CutPoint, ...]]
    retention: RetentionPolicy | None


def timeline(
    snapshot: Snapshot,
    cuts: Mapping[str, StreamPosition],
    now: int | None = None,
    consumers: Mapping[str, StreamCut] | None = None,
) -> Timeline:
    """The timeline of a stream. now: ms since the epoch, by default this host's time.

    Reads index records: two for each position of a cut within a segment, and those of `activity`. Raises
    InvalidStreamCut for a cut of another stream. Positions before the head are left out, as their times are unknown,
    and so are consumers whose positions do not fit the stream.
    """
    known = {name: place if isinstance(place, int) else cut_at(place, snapshot) for name, place in cuts.items()}
    for cut in known.values():
        if isinstance(cut, StreamCut):
            snapshot.check(cut)
    record = snapshot.record
    # Clocks differ: a new epoch of another host may be in the future here. Each gets some width.
    moment = max(int(time.time() * 1000) if now is None else now, record.current.created + 1)
    ended = _sealed_at(snapshot) if record.sealed else None
    snapshot.segments.load(record.segment_ids())
    spans = {span.segment.id: span for span in _spans(snapshot, moment if ended is None else ended)}
    newest = (spans[segment.id] for segment in record.current.segments)
    places = _Places(snapshot, spans)
    return Timeline(
        snapshot.stream.key,
        tuple((epoch.epoch, epoch.created) for epoch in record.epochs),
        tuple(spans.values()),
        tuple(_borders(record.epochs)),
        places.of_head(),
        tuple(sorted(CutPoint(s.segment.low, s.segment.high, s.begun, s.ended, "end") for s in newest)),
        {name: places.of_time(at) if isinstance(at, int) else places.of_cut(at) for name, at in known.items()},
        ended,
        moment if ended is None else max(moment, ended),
        snapshot.size(),
        snapshot.events(),
        activity(snapshot.segments, {number: _lifetime(spans[number]) for number in record.segment_ids()}),
        {name: places.of_cut(cut) for name, cut in (consumers or {}).items() if _fits(snapshot, cut)},
        record.retention,
    )


def _lifetime(span: SegmentSpan) -> Lifetime:
    return Lifetime(span.begun, span.ended, span.segment.high - span.segment.low)


def _fits(snapshot: Snapshot, cut: StreamCut) -> bool:
    try:
        snapshot.check(cut)
    except InvalidStreamCut:
        return False
    return True


def _sealed_at(snapshot: Snapshot) -> int:
    """When the stream was sealed: the last change of its open segments."""
    current = snapshot.record.current
    return max(current.created, *(snapshot.segments.segment(segment.id).modified for segment in current.segments))


def _spans(snapshot: Snapshot, end: int) -> Iterator[SegmentSpan]:
    """All segments that the epochs name, in order of their ids. `end`: of those of the newest epoch."""
    epochs, there = snapshot.record.epochs, snapshot.record.history.segments
    named: dict[int, StreamSegmentRecord] = {}
    last: dict[int, int] = {}
    for place, epoch in enumerate(epochs):
        for segment in epoch.segments:
            named[segment.id] = segment
            last[segment.id] = place
    for number, segment in sorted(named.items()):
        begun = epochs[max(segment_epoch(number) - epochs[0].epoch, 0)].created
        is_last = last[number] + 1 == len(epochs)
        is_open = is_last and not snapshot.record.sealed
        state: Literal["open", "sealed", "gone"] = "open" if is_open else "sealed"
        if number not in there or (not is_open and _is_left(snapshot, number)):
            state = "gone"
        offsets = None if state == "gone" else _offsets(snapshot, number)
        yield SegmentSpan(segment, begun, end if is_last else epochs[last[number] + 1].created, state, offsets)


def _offsets(snapshot: Snapshot, number: int) -> tuple[int, int]:
    head = snapshot.record.head.get(number, 0)
    return max(snapshot.segments.segment(number).start_offset, head), snapshot.segments.length(number)


def _is_left(snapshot: Snapshot, number: int) -> bool:
    """Whether the head lies at the end of a segment, of which nothing can be read any more."""
    return snapshot.record.head.get(number) == snapshot.segments.length(number)


def _borders(epochs: Sequence[EpochRecord]) -> Iterator[Border]:
    """The splits and merges between consecutive epochs, in order of time."""
    for before, after in pairwise(epochs):
        kept = {*before.segments} & {*after.segments}
        for segment in before.segments:
            if segment not in kept and len(overlapping(after.segments, segment)) > 1:
                yield Border("split", after.created, segment.low, segment.high)
        for segment in after.segments:
            if segment not in kept and len(overlapping(before.segments, segment)) > 1:
                yield Border("merge", after.created, segment.low, segment.high)


class _Between(NamedTuple):
    """A position in a segment, after the event of the time `after` and before that of the time `before`: None if no
    event follows."""

    span: SegmentSpan
    after: int
    before: int | None


class _Places:
    """Where cuts are in time: in each segment between two events.

    A cut is drawn as straight as these allow: at the time of the first event after it, in all segments together. Where
    the events beside it leave no choice, it is at one of them.
    """

    def __init__(self, snapshot: Snapshot, spans: Mapping[int, SegmentSpan]) -> None:
        self._snapshot = snapshot
        self._spans = spans
        self._indexes: dict[int, IndexReader] = {}

    def of_head(self) -> tuple[CutPoint, ...]:
        """The head. As long as nothing was truncated, it is where the segments begin."""
        if any(self._snapshot.head_cut().positions.values()):
            return self.of_cut(self._snapshot.head_cut())
        spans = (self._spans[number] for number in self._snapshot.head_cut().positions)
        return tuple(sorted(CutPoint(s.segment.low, s.segment.high, s.begun, s.begun, "begin") for s in spans))

    def of_time(self, moment: int) -> tuple[CutPoint, ...]:
        """A straight line, within the picture."""
        epochs, spans = self._snapshot.record.epochs, self._spans.values()
        time = min(max(moment, epochs[0].created), max(span.ended for span in spans))
        epoch = next(epoch for epoch in reversed(epochs) if epoch.created <= time)
        over = (self._spans[segment.id] for segment in epoch.segments)
        return tuple(sorted(CutPoint(s.segment.low, s.segment.high, s.begun, time, "time") for s in over))

    def of_cut(self, cut: StreamCut) -> tuple[CutPoint, ...]:
        """The positions of a cut, in order of keys, except those before the head."""
        there = self._snapshot.record.history.segments
        known = {number: offset for number, offset in cut.positions.items() if number in there}
        self._snapshot.segments.load(known)
        places = [found for number, offset in known.items() if (found := self._between(number, offset)) is not None]
        line = self._line(places, cut)
        return tuple(sorted(_point(place, line) for place in places))

    def _line(self, places: Sequence[_Between], cut: StreamCut) -> float:
        """The time at which a cut would be straight."""
        following = [place.before for place in places if place.before is not None]
        if following:
            return min(following)
        sealed = [place.span.ended for place in places if place.span.state != "open" and place.after > place.span.begun]
        if sealed:
            return max(sealed)
        is_untouched = cut == self._snapshot.head_cut() and not any(cut.positions.values())
        return -inf if is_untouched else inf

    def _between(self, number: int, offset: int) -> _Between | None:
        """The position of an offset; None if it is before the head."""
        span, stored = self._spans[number], self._snapshot.segments.segment(number)
        if offset < stored.start_offset:
            return None
        if offset == stored.start_offset == stored.length:
            return _Between(span, span.ended if span.state == "gone" and offset else span.begun, None)
        index = self._index(number)
        following = index.locate_offset(offset + 1)
        before = None if following is None else _within(following.time_ms, span)
        if offset == stored.start_offset:
            return _Between(span, span.begun, before)
        reached = index.locate_offset(offset)
        return _Between(span, span.begun if reached is None else _within(reached.time_ms, span), before)

    def _index(self, number: int) -> IndexReader:
        """The index of a segment; its blocks are kept for all cuts."""
        if number not in self._indexes:
            self._indexes[number] = self._snapshot.segments.index(number)
        return self._indexes[number]


def _within(moment: int, span: SegmentSpan) -> int:
    return min(max(moment, span.begun), span.ended)


def _point(place: _Between, line: float) -> CutPoint:
    """A position, as near to a straight line as the events beside it allow."""
    (segment, begun, ended, _, _), after, before = place
    moment = max(after, min(line, ended if before is None else before))
    return CutPoint(segment.low, segment.high, begun, int(moment), "end" if before is None else "event")
