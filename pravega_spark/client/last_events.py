"""The last events of a stream. Notebooks show them as a table.

They come in the order of the log (X4): index records hold the number of each append, and the stored order of the stream
tells how events of an append to several segments interleave. The ends of the indexes tell which segments have the last
events, and only the ends of these are read. All of a stream lies in one container (X1), so one log orders all of it.
"""

from __future__ import annotations

import codecs
import reprlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, overload

import numpy as np

from engine.errors import SegmentTruncated
from engine.state.index_records import RECORD_SIZE
from pravega_spark.client.event import Event
from pravega_spark.client.reader import events_of
from pravega_spark.quantities import moment_text, size_text
from pravega_spark.segment_ids import segment_epoch, segment_label
from pravega_spark.streams.model.cuts import StreamCut
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


class _Rank(NamedTuple):
    """What orders events: the number of their append. If it is not recorded, they are older than all events with one,
    in the order of their times."""

    append: int
    time: int

    @classmethod
    def of(cls, append: int, time: int) -> _Rank:
        """The rank of events with this append number and time."""
        return cls(append, time if append == UNKNOWN_APPEND else UNKNOWN_TIME)


class _Written(NamedTuple):
    """An event, its append time (ms since the epoch), and its rank."""

    time: int
    rank: _Rank
    event: Event


class LastEvents(Sequence[Event]):
    """Events, oldest first. times: the append time of each (ms since the epoch), None if not known. end: the tail of
    the stream when they were read, where following it continues."""

    def __init__(self, stream: str, found: Sequence[tuple[int | None, Event]], end: StreamCut) -> None:
        self.stream = stream
        self.end = end
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

    The order is that of the log: exact for what event writers and transactions wrote. Where the order of an append's
    events across segments is not stored (a Spark batch), they come evenly mixed: each at the place that it has among
    the append's events of its own segment, as a fraction. Events whose append is not recorded (imported ones, or of an
    index that was rebuilt from nothing) come before all others, by time, and evenly mixed if they have the same one.

    Raises ValueError for an `n` below 1; StreamNotFound, TruncatedData.
    """
    if n < 1:
        raise ValueError(f"n must be at least 1, not {n}")
    while True:
        # The stored order may be truncated meanwhile, with its events.
        with suppress(SegmentTruncated), with_recovery_advice(stream.root, stream.scope, stream.name, []):
            snapshot, slices = stream.query(lambda snapshot: (snapshot, _planned(snapshot, n)))
            last = _in_order(_read(stream, slices), snapshot, n)
            return LastEvents(stream.key, [(_known(each.time), each.event) for each in last], snapshot.tail_cut())


def _known(time: int) -> int | None:
    return time if time != UNKNOWN_TIME else None


# --- which events -------------------------------------------------------------------------------------------------


def _planned(snapshot: Snapshot, n: int) -> list[ScanSlice]:
    """Slices that contain the last events, `n` of a segment at most.

    Ends of the indexes alone decide how many each segment has, epoch by epoch from the newest, until there are enough:
    no event of a segment is newer than an event of its successors.
    """
    segments, there = snapshot.segments, snapshot.record.history.segments
    newest: dict[int, list[tuple[_Rank, int]]] = {}
    for epoch in reversed(snapshot.record.epochs):
        numbers = [each.id for each in epoch.segments if each.id in there and each.id not in newest]
        segments.load(numbers)
        newest |= {number: _newest(snapshot, number, n) for number in numbers}
        surely_last = (each for number, each in newest.items() if segment_epoch(number) >= epoch.epoch)
        if sum(events for each in surely_last for _, events in each) >= n:
            break
    ranges: dict[int, tuple[int, int]] = {}
    for number, events in sorted(_chosen(newest, n).items()):
        head, end = segments.segment(number).start_offset, segments.length(number)
        before = segments.events_in(number, head, end) - events
        ranges[number] = segments.offset_of_event(number, head, before) if before else head, end
    return plan_slices(snapshot, ranges, 64 << 20, numbered=True)


def _newest(snapshot: Snapshot, number: int, n: int) -> list[tuple[_Rank, int]]:
    """The ranks of the last events of a segment, `n` at most or all, newest first, and how many events each has."""
    segments, index = snapshot.segments, snapshot.segments.index_segment(number)
    head, end = segments.segment(number).start_offset, segments.length(number)
    left = min(n, segments.events_in(number, head, end))
    found: list[tuple[_Rank, int]] = []
    first, behind = index.start_offset // RECORD_SIZE, index.length // RECORD_SIZE
    while left > 0 and behind > first:
        # Nearly every record has an event of its own, and the one before says how many there were before.
        start = max(behind - left - 1, first)
        records = segments.index(number).records(start, behind)
        before = int(records[0, 1]) if start > first else 0
        rows = records[1:] if start > first else records
        counts = np.diff(rows[:, 1], prepend=before)
        for events, (_, _, time, append) in zip(counts[::-1].tolist(), rows[::-1].tolist(), strict=True):
            found.append((_Rank.of(append, time), min(events, left)))
            left -= found[-1][1]
        behind = start + 1 if start > first else first
    return found


def _chosen(newest: Mapping[int, Sequence[tuple[_Rank, int]]], n: int) -> dict[int, int]:
    """How many events of each segment may be among the last `n`: those of the newest ranks that have `n` together."""
    ranks: dict[_Rank, int] = defaultdict(int)
    for each in newest.values():
        for rank, events in each:
            ranks[rank] += events
    missing, oldest = n, None
    for rank in sorted(ranks, reverse=True):
        if missing <= 0:
            break
        oldest, missing = rank, missing - ranks[rank]
    if oldest is None:
        return {}
    counted = {number: sum(events for rank, events in each if rank >= oldest) for number, each in newest.items()}
    return {number: events for number, events in counted.items() if events}


# --- in which order -----------------------------------------------------------------------------------------------


def _read(stream: Stream, slices: Sequence[ScanSlice]) -> list[_Written]:
    found: list[_Written] = []
    # The plan has read the same blocks, to count their events.
    reader = SliceReader(stream.root, stream.scope, stream.name, wanted=MAX_EVENT_SIZE, cache=stream.container.cache)
    for events in reader.read(slices):
        assert events.times is not None and events.appends is not None  # as the slices are numbered
        columns = events.times.tolist(), events.appends.tolist(), events_of(stream, events)
        for time, append, event in zip(*columns, strict=True):
            found.append(_Written(time, _Rank.of(append, time), event))
    return found


def _in_order(found: list[_Written], snapshot: Snapshot, n: int) -> list[_Written]:
    """The last `n` events in the order of their appends. found: events segment by segment."""
    stored = StoredOrder(snapshot)
    ranks: dict[_Rank, dict[int, list[_Written]]] = defaultdict(lambda: defaultdict(list))
    for each in found:
        ranks[each.rank][each.event.segment_id].append(each)
    last: list[list[_Written]] = []
    missing = n
    for rank in sorted(ranks, reverse=True):
        shares = ranks[rank]
        order = stored.of(rank.append) if len(shares) > 1 and rank.append != UNKNOWN_APPEND else None
        last.append(_interleaved(shares, order, missing) if order is not None else _mixed(snapshot, rank, shares))
        missing -= len(last[-1])
        if missing <= 0:
            break
    return [each for written in reversed(last) for each in written][-n:]


def _interleaved(shares: Mapping[int, list[_Written]], interleaving: Interleaving, n: int) -> list[_Written]:
    """The last `n` events of one append in the order of writing. shares: its last events, by segment."""
    left = {number: list(share) for number, share in shares.items()}
    backward: list[_Written] = []
    for place in interleaving.places[::-1]:
        share = left.get(interleaving.segments[place])
        if share:
            backward.append(share.pop())
            if len(backward) == n:
                return backward[::-1]
    rest = [each for share in left.values() for each in share]  # none, unless the order is damaged
    return [*rest, *reversed(backward)]


def _mixed(snapshot: Snapshot, rank: _Rank, shares: Mapping[int, list[_Written]]) -> list[_Written]:
    """The events of one rank evenly mixed. shares: its last events, by segment."""
    if len(shares) == 1:
        (only,) = shares.values()
        return only
    placed: list[tuple[float, int, _Written]] = []
    for number, share in shares.items():
        total = len(share) if rank.append == UNKNOWN_APPEND else _events_of(snapshot, number, rank.append)
        for behind, each in enumerate(reversed(share)):
            placed.append((-(behind + 0.5) / total, number, each))
    return [each for _, _, each in sorted(placed, key=lambda one: one[:2])]


def _events_of(snapshot: Snapshot, number: int, append: int) -> int:
    """Number of events that an append wrote to a segment."""
    segments, index = snapshot.segments, snapshot.segments.index_segment(number)
    reader = segments.index(number)
    first, start = index.start_offset // RECORD_SIZE, reader.position_of_append(append)
    behind = reader.position_of_append(append + 1)
    before = int(reader.records(start - 1, start)[0, 1]) if start > first else 0
    return int(reader.records(behind - 1, behind)[0, 1]) - before
