"""The last events of a stream. Notebooks show them as a table.

They come in the order of the log: index records hold the number of each append, and the stored order of the stream
tells how events of an append to several segments interleave. Of each of the last segments only the end is read,
which the index locates.
"""

from __future__ import annotations

import codecs
import reprlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, overload

from engine.errors import SegmentTruncated
from pravega_spark.client.reader import Event, events_of
from pravega_spark.quantities import moment_text, size_text
from pravega_spark.segment_ids import segment_epoch, segment_label
from pravega_spark.streams.model.events import MAX_EVENT_SIZE
from pravega_spark.streams.model.html_table import html_table
from pravega_spark.streams.model.index import UNKNOWN_APPEND, UNKNOWN_TIME
from pravega_spark.streams.reading.error_context import with_recovery_advice
from pravega_spark.streams.reading.scan import SliceReader
from pravega_spark.streams.reading.slices import ScanSlice, plan_slices
from pravega_spark.streams.reading.snapshot import Snapshot
from pravega_spark.streams.stream import Stream
from pravega_spark.streams.writing.event_order import Interleaving, StoredOrder

_SHOWN = 100  # characters of an event


class _Written(NamedTuple):
    """An event, its append time (ms since the epoch), and the number of its append."""

    time: int
    append: int
    event: Event


class LastEvents(Sequence[Event]):
    """Events, oldest first. times: the append time of each (ms since the epoch), None if not known."""

    def __init__(self, stream: str, found: Sequence[tuple[int | None, Event]]) -> None:
        self.stream = stream
        self.times = [time for time, _ in found]
        self._events = [event for _, event in found]

    def __len__(self) -> int:
        return len(self._events)

    @overload
    def __getitem__(self, place: int) -> Event: ...
    @overload
    def __getitem__(self, place: slice) -> list[Event]: ...
    def __getitem__(self, place: int | slice) -> Event | list[Event]:
        return self._events[place]

    def __repr__(self) -> str:
        return "\n".join([f"the last {len(self)} events of {self.stream}", *("  ".join(row) for row in self._rows())])

    def _repr_html_(self) -> str:
        columns = ("written", "segment", "offset", "event")
        return html_table(f"the last {len(self)} events of {self.stream}", columns, self._rows(), most=len(self))

    def _rows(self) -> Iterator[tuple[str, str, str, str]]:
        for time, event in zip(self.times, self._events, strict=True):
            written = "" if time is None else moment_text(time)
            yield written, segment_label(event.segment_id), f"{event.offset:,}", _shown(event)


def _shown(event: Event) -> str:
    """An event on one line: its text, or a description."""
    if event.size > MAX_EVENT_SIZE:
        return f"({size_text(event.size)})"
    data = event.data[: 4 * (_SHOWN + 1)]
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(data, final=len(data) == event.size)
    except UnicodeDecodeError:
        return reprlib.repr(data)
    line = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text[: _SHOWN + 1])
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…"


def last_events(stream: Stream, n: int) -> LastEvents:
    """The last events of a stream in the order in which they were appended, `n` at most.

    Raises ValueError for an `n` below 1; StreamNotFound, TruncatedData.
    """
    if n < 1:
        raise ValueError(f"n must be at least 1, not {n}")
    while True:
        # The stored order may be truncated meanwhile, with its events.
        with suppress(SegmentTruncated), with_recovery_advice(stream.root, stream.scope, stream.name, []):
            snapshot, slices = stream.query(lambda snapshot: (snapshot, _planned(snapshot, n)))
            last = _in_order(_read(stream, slices), StoredOrder(snapshot), n)
            return LastEvents(stream.key, [(_known(each.time), each.event) for each in last])


def _known(time: int) -> int | None:
    return time if time != UNKNOWN_TIME else None


def _read(stream: Stream, slices: Sequence[ScanSlice]) -> list[_Written]:
    found: list[_Written] = []
    for events in SliceReader(stream.root, stream.scope, stream.name, wanted=MAX_EVENT_SIZE).read(slices):
        assert events.times is not None and events.appends is not None  # as the slices are numbered
        columns = events.times.tolist(), events.appends.tolist(), events_of(stream, events)
        found += [_Written(*each) for each in zip(*columns, strict=True)]
    return found


def _in_order(found: list[_Written], stored: StoredOrder, n: int) -> list[_Written]:
    """The last `n` events in the order of their appends. found: events segment by segment."""
    appends: dict[int, dict[int, list[_Written]]] = defaultdict(lambda: defaultdict(list))
    for each in found:
        appends[each.append][each.event.segment_id].append(each)
    last: list[list[_Written]] = []
    missing = n
    for append in sorted(appends, reverse=True):
        shares = appends[append]
        order = stored.of(append) if len(shares) > 1 and append != UNKNOWN_APPEND else None
        unordered = [each for share in shares.values() for each in share]
        last.append(_interleaved(shares, order) if order is not None else unordered)
        missing -= len(last[-1])
        if missing <= 0:
            break
    return [each for written in reversed(last) for each in written][-n:]


def _interleaved(shares: Mapping[int, list[_Written]], interleaving: Interleaving) -> list[_Written]:
    """The events of one append in the order of writing. shares: its last events, by segment."""
    left = {number: list(share) for number, share in shares.items()}
    backward: list[_Written] = []
    for place in reversed(interleaving.places.tolist()):
        share = left.get(interleaving.segments[place])
        if share:
            backward.append(share.pop())
    rest = [each for share in left.values() for each in share]  # none, unless the order is damaged
    return [*rest, *reversed(backward)]


def _planned(snapshot: Snapshot, n: int) -> list[ScanSlice]:
    """Slices that contain the last events: of each segment `n`, epoch by epoch from the newest, until there are
    enough.

    No event of a segment is newer than an event of its successors.
    """
    segments, there = snapshot.segments, snapshot.record.history.segments
    ranges: dict[int, tuple[int, int]] = {}
    counted: dict[int, int] = {}
    for epoch in reversed(snapshot.record.epochs):
        numbers = [each.id for each in epoch.segments if each.id in there and each.id not in ranges]
        segments.load(numbers)
        for number in numbers:
            head, end = segments.segment(number).start_offset, segments.length(number)
            events = segments.events_in(number, head, end)
            start = head if events <= n else segments.offset_of_event(number, head, events - n)
            ranges[number] = start, end
            counted[number] = min(events, n)
        if sum(events for number, events in counted.items() if segment_epoch(number) >= epoch.epoch) >= n:
            break
    return plan_slices(snapshot, dict(sorted(ranges.items())), 64 << 20, numbered=True)
