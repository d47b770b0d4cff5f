"""The timeline of a stream, for pictures: when its segments began and ended, and where cuts are in time.

Segments begin and end with epochs, whose creation times are stored. The time of a position within a segment comes
from its index.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

from pravega_spark.segment_ids import segment_epoch
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.model.epochs import EpochRecord, StreamSegmentRecord, overlapping
from pravega_spark.streams.reading.snapshot import Snapshot


class SegmentSpan(NamedTuple):
    """A segment from `begun` to `ended` (ms since the epoch). An open segment ends now.

    state: `gone` if all of it is before the head.
    """

    segment: StreamSegmentRecord
    begun: int
    ended: int
    state: Literal["open", "sealed", "gone"]


class CutPoint(NamedTuple):
    """The position of a cut over some keys: in the segment that began at `begun`, at `time`.

    kind: the first `event` after the cut, the `begin` of the segment, or its `end`: no event follows.
    """

    low: float
    high: float
    begun: int
    time: int
    kind: Literal["event", "begin", "end"] = "event"


class Border(NamedTuple):
    """A split or a merge of segments: when, and their keys."""

    kind: Literal["split", "merge"]
    time: int
    low: float
    high: float


class Timeline(NamedTuple):
    """A stream's segments in time, from its first known epoch to `now`. Times in ms since the epoch.

    epochs: their numbers and creation times. size, events: readable ones. cuts: other than head and tail. ended:
    when the stream was sealed, None if it is open.
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


def timeline(snapshot: Snapshot, cuts: Mapping[str, StreamCut], now: int | None = None) -> Timeline:
    """The timeline of a stream. now: ms since the epoch, by default this host's time.

    Reads one index record for each position of a cut within a segment. Raises InvalidStreamCut for a cut of another
    stream. Positions before the head are left out, as their times are unknown.
    """
    for cut in cuts.values():
        snapshot.check(cut)
    record = snapshot.record
    # Clocks differ: a new epoch of another host may be in the future here. Each gets some width.
    moment = max(int(time.time() * 1000) if now is None else now, record.current.created + 1)
    ended = _sealed_at(snapshot) if record.sealed else None
    spans = {span.segment.id: span for span in _spans(snapshot, moment if ended is None else ended)}
    newest = (spans[segment.id] for segment in record.current.segments)
    return Timeline(
        snapshot.stream.key,
        tuple((epoch.epoch, epoch.created) for epoch in record.epochs),
        tuple(spans.values()),
        tuple(_borders(record.epochs)),
        _places(snapshot, spans, snapshot.head_cut(), of_head=True),
        tuple(sorted(CutPoint(s.segment.low, s.segment.high, s.begun, s.ended, "end") for s in newest)),
        {name: _places(snapshot, spans, cut) for name, cut in cuts.items()},
        ended,
        moment if ended is None else max(moment, ended),
        snapshot.size(),
        snapshot.events(),
    )


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
        state: Literal["open", "sealed", "gone"] = "open" if is_open else "sealed" if number in there else "gone"
        yield SegmentSpan(segment, begun, end if is_last else epochs[last[number] + 1].created, state)


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


def _places(
    snapshot: Snapshot, spans: Mapping[int, SegmentSpan], cut: StreamCut, *, of_head: bool = False
) -> tuple[CutPoint, ...]:
    """The positions of a cut, in order of keys, except those before the head.

    of_head: for the head, a segment without truncated events is shown from its creation. In a segment without
    events, a cut is shown at its time in other segments, or at an end if there is none.
    """
    there = snapshot.record.history.segments
    known = {number: offset for number, offset in cut.positions.items() if number in there}
    snapshot.segments.load(known)
    found, empty = [], []
    for number, offset in known.items():
        segment, begun, ended, _ = spans[number]
        stored = snapshot.segments.segment(number)
        if of_head and not offset:
            found.append(CutPoint(segment.low, segment.high, begun, begun, "begin"))
        elif offset == stored.start_offset == stored.length:
            empty.append(spans[number])
        elif offset >= stored.start_offset:
            moment = _time_at(snapshot, number, offset)
            time = ended if moment is None else min(max(moment, begun), ended)
            found.append(CutPoint(segment.low, segment.high, begun, time, "end" if moment is None else "event"))
    at_head = cut == snapshot.head_cut()
    for segment, begun, ended, _ in empty:
        moment = min((point.time for point in found), default=begun if at_head else ended)
        found.append(CutPoint(segment.low, segment.high, begun, min(max(moment, begun), ended), "end"))
    return tuple(sorted(found))


def _time_at(snapshot: Snapshot, number: int, offset: int) -> int | None:
    """The time of the first event after an offset of a segment; None if there is none."""
    record = snapshot.segments.index(number).locate_offset(offset + 1)
    return None if record is None else record.time_ms
