"""What a streaming query has before it in one stream, and how far into it the next batch goes.

A batch ends where the stream was scaled: the segments that follow are left to the next batch, limit or not. So the
events of a key come in their order from batch to batch, and those of one batch lie in one segment, in the order of
their offsets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pravega_spark.source.opening import resolve_cut
from pravega_spark.source.options import SourceOptions
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.reading.snapshot import Snapshot


class Ahead(NamedTuple):
    """Where a query is in a stream, how far the next batch may go at most, and where the stream, or the query, ends."""

    begin: StreamCut
    reached: StreamCut
    tail: StreamCut

    @property
    def is_new(self) -> bool:
        """Whether there is anything to read."""
        return self.reached.positions != self.begin.positions


def look_ahead(options: SourceOptions, snapshot: Snapshot, begin: StreamCut, pinned: StreamCut | None) -> Ahead:
    """What lies before a query at `begin`. pinned: what counts as the stream's tail. Raises TruncatedData."""
    tail = pinned or snapshot.tail_cut()
    reached = begin
    if tail.positions != begin.positions:
        tail = _end(options, snapshot, tail)
        snapshot.available(snapshot.ranges(begin, tail), options.fail_on_data_loss)
        reached = snapshot.up_to_scale(begin, tail)
    return Ahead(begin, reached, tail)


def _end(options: SourceOptions, snapshot: Snapshot, tail: StreamCut) -> StreamCut:
    """The tail, or where the query is to end."""
    if options.ending_timestamp is not None:
        return snapshot.earlier(tail, snapshot.cut_at(options.ending_timestamp))
    _, end = options.streaming_cuts()
    return tail if end in ("unbounded", "latest") else snapshot.earlier(tail, resolve_cut(snapshot, end, tail))


def amount(snapshot: Snapshot, start: StreamCut, end: StreamCut, *, by_events: bool) -> int:
    """How many events, or bytes, there are to read between two cuts; what was truncated does not count."""
    ranges, _ = snapshot.available(snapshot.ranges(start, end), fail_on_data_loss=False)
    if by_events:
        return sum(snapshot.segments.events_in(number, low, high) for number, (low, high) in ranges.items())
    return sum(high - low for low, high in ranges.values())


def fair_shares(left: Mapping[str, int], limit: int, first: int = 0) -> dict[str, int]:
    """Divide a limit: each gets as much as any other, and what one does not need is the others'.

    What rounding leaves over goes to the one at place `first` and those after it: who lets it go round starves nobody,
    however small the limit is.
    """
    shares = dict.fromkeys(left, 0)
    names: Sequence[str] = list(left)
    names = [*names[first % len(names) :], *names[: first % len(names)]] if names else names
    while limit and (names := [name for name in names if shares[name] < left[name]]):
        each, spare = divmod(limit, len(names))
        for place, name in enumerate(names):
            taken = min(left[name] - shares[name], each + (place < spare))
            shares[name] += taken
            limit -= taken
    return shares
