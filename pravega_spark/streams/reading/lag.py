"""Lag: the distance of a position from the tail of its stream, in bytes, events and time, across scales."""

from __future__ import annotations

import time
from typing import NamedTuple

from pravega_spark.quantities import counted, duration_text, size_text
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.model.index import UNKNOWN_TIME
from pravega_spark.streams.reading.snapshot import Snapshot


class Lag(NamedTuple):
    """The events between a stream cut and the tail.

    bytes: with event headers; events: their number; seconds: the age of the first one, 0.0 if there are none. Event
    times come from the writers' hosts, and are as exact as the index: the first event may be some 16 KiB further.
    truncated: whether events after the cut were truncated; these are not counted.
    """

    bytes: int
    events: int
    seconds: float
    truncated: bool

    def __str__(self) -> str:
        if not self.events:
            return "at the tail" if not self.truncated else "at the tail, after a truncation"
        behind = (
            f"{counted(self.events, 'event')}, {size_text(self.bytes)}, {duration_text(round(self.seconds))} behind"
        )
        return f"{behind}, and what was truncated" if self.truncated else behind


AT_TAIL = Lag(0, 0, 0.0, False)


def lag(snapshot: Snapshot, cut: StreamCut, tail: StreamCut | None = None, now: float | None = None) -> Lag:
    """The lag of a cut of the stream.

    tail: by default that of the stream. now: seconds since the epoch, by default this host's time.

    One index record is read for each segment with unread events. Raises InvalidStreamCut.
    """
    found, losses = snapshot.available(
        snapshot.ranges(snapshot.resolved(cut), tail or snapshot.tail_cut()), fail_on_data_loss=False
    )
    unread = {number: (low, high) for number, (low, high) in found.items() if low < high}
    times = [
        record.time_ms
        for number, (low, _) in unread.items()
        if (record := snapshot.segments.index(number).locate_offset(low + 1)) is not None
        and record.time_ms != UNKNOWN_TIME
    ]
    moment = time.time() if now is None else now
    return Lag(
        sum(high - low for low, high in unread.values()),
        sum(snapshot.segments.events_in(number, low, high) for number, (low, high) in unread.items()),
        max(moment - min(times) / 1000, 0.0) if times else 0.0,
        bool(losses),
    )
