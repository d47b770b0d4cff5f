"""The last events of a stream, for somebody who looks: notebooks show them as a table.

Of each segment at the end of the stream no more is read than may be among them: its index tells where that begins.
"""

from __future__ import annotations

import codecs
import reprlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple, overload

from pravega_spark.client.reader import Event, each_of
from pravega_spark.quantities import moment_text, size_text
from pravega_spark.segment_ids import segment_label
from pravega_spark.streams.damage import telling_the_rest
from pravega_spark.streams.events import MAX_EVENT_SIZE
from pravega_spark.streams.html_table import html_table
from pravega_spark.streams.made_index import UNKNOWN_TIME
from pravega_spark.streams.scan import ScanSlice, SliceReader, plan_slices
from pravega_spark.streams.snapshot import Snapshot
from pravega_spark.streams.stream import Stream

_SHOWN = 100  # characters of an event


class _Written(NamedTuple):
    """An event, and when it was written (ms since the epoch)."""

    time: int
    event: Event


class LastEvents(Sequence[Event]):
    """Events, oldest first. times: when each was written (ms since the epoch), None where that is not known."""

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
    """An event on one line: its text, or what else it is."""
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
    """The last events of a stream, `n` at most. ValueError for an `n` below 1; StreamNotFound, TruncatedData."""
    if n < 1:
        raise ValueError(f"n must be at least 1, not {n}")
    found: list[_Written] = []
    with telling_the_rest(stream.root, stream.scope, stream.name, []):
        slices = stream.query(lambda snapshot: _planned(snapshot, n))
        for events in SliceReader(stream.root, stream.scope, stream.name, wanted=MAX_EVENT_SIZE).read(slices):
            assert events.times is not None  # which makes them numbered
            times = events.times.tolist()
            found += [_Written(*each) for each in zip(times, each_of(stream, events), strict=True)]
    found.sort(key=lambda each: each.time)  # stable: what was written at one time keeps the order of reading
    last = found[-n:]
    return LastEvents(stream.key, [(each.time if each.time != UNKNOWN_TIME else None, each.event) for each in last])


def _planned(snapshot: Snapshot, n: int) -> list[ScanSlice]:
    """What the last events are among: of each segment `n`, epoch by epoch from the newest, until there are enough."""
    segments, there = snapshot.segments, snapshot.record.history.segments
    ranges: dict[int, tuple[int, int]] = {}
    counted = 0
    for epoch in reversed(snapshot.record.epochs):
        numbers = [each.id for each in epoch.segments if each.id in there and each.id not in ranges]
        segments.load(numbers)
        for number in numbers:
            head, end = segments.segment(number).start_offset, segments.length(number)
            events = segments.events_in(number, head, end)
            start = head if events <= n else segments.offset_of_event(number, head, events - n)
            ranges[number] = start, end
            counted += min(events, n)
        if counted >= n:
            break
    return plan_slices(snapshot, dict(sorted(ranges.items())), 64 << 20, numbered=True)
