"""Admission control of a streaming query: how much of its backlog the next micro-batch reads, and whether it waits.

A batch ends where a stream was scaled: the successor segments are left to the next batch, whatever the limits are. So
the events of a key keep their order from batch to batch, and within a batch they lie in one segment, in the order of
their offsets. Only a first batch that reads the whole backlog (see `spark_api.stream_reader`) goes on across scalings:
its partitions are in the order of epochs.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import NamedTuple

from pravega_spark.source.opening import resolve_cut
from pravega_spark.source.options import SourceOptions
from pravega_spark.source.spark_api.read_limits import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    ReadWholeBacklog,
)
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.reading.limits import allocate
from pravega_spark.streams.reading.snapshot import Snapshot

logger = logging.getLogger(__name__)


class Backlog(NamedTuple):
    """What a query has not read of one stream yet.

    begin: the query's position. end: where the next batch ends at the latest. tail: where the stream, or the query,
    ends.
    """

    snapshot: Snapshot
    begin: StreamCut
    end: StreamCut
    tail: StreamCut

    @property
    def is_empty(self) -> bool:
        """Whether the next batch has nothing to read."""
        return self.end.positions == self.begin.positions

    def amount(self, end: StreamCut, *, by_events: bool) -> int:
        """Number of events, or bytes, from the query's position to a cut, without those that were truncated."""
        ranges, _ = self.snapshot.available(self.snapshot.ranges(self.begin, end), fail_on_data_loss=False)
        if by_events:
            return sum(self.snapshot.segments.events_in(number, low, high) for number, (low, high) in ranges.items())
        return sum(high - low for low, high in ranges.values())

    def limited(self, limit: int, *, by_events: bool) -> Backlog:
        """The same for a batch that reads no more than a number of events or bytes."""
        which = "max_events" if by_events else "max_bytes"
        return self._replace(end=self.snapshot.next_cut(self.begin, self.end, **{which: limit}))


def backlog_of(
    options: SourceOptions, snapshot: Snapshot, begin: StreamCut, pinned: StreamCut | None, *, whole: bool = False
) -> Backlog:
    """The backlog of a query at `begin`. pinned: what counts as the stream's tail. whole: whether the next batch may
    go on across scalings. Raises TruncatedData."""
    tail = pinned or snapshot.tail_cut()
    end = begin
    if tail.positions != begin.positions:
        tail = _end(options, snapshot, tail)
        snapshot.available(snapshot.ranges(begin, tail), options.fail_on_data_loss)
        end = tail if whole else snapshot.up_to_scale(begin, tail)
    return Backlog(snapshot, begin, end, tail)


def _end(options: SourceOptions, snapshot: Snapshot, tail: StreamCut) -> StreamCut:
    """The tail, or the end that the options give the query."""
    if options.ending_timestamp is not None:
        return snapshot.earlier(tail, snapshot.cut_at(options.ending_timestamp))
    _, end = options.streaming_cuts()
    return tail if end in ("unbounded", "latest") else snapshot.earlier(tail, resolve_cut(snapshot, end, tail))


class AdmissionControl:
    """Applies the batch limits of a query: the maximum that a batch reads, and the minimum that it waits for."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._batches = 0
        self._waiting_since: float | None = None

    def default_limit(self) -> ReadLimit:
        """The limit that Spark passes to each poll."""
        if self._options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        return self._limit_by_events()

    def _limit_by_events(self) -> ReadLimit:
        """The limit by events. Spark keeps one limit only, so this one is applied here if there is one by bytes too."""
        if self._options.max_events_per_trigger is not None:
            return ReadMaxRows(self._options.max_events_per_trigger)
        if self._options.min_events_per_trigger is not None or self._options.min_bytes_per_trigger is not None:
            return ReadMinRows(self._options.min_events_per_trigger or 1)
        return ReadAllAvailable()

    def admit(
        self, backlogs: Mapping[str, Backlog], limit: ReadLimit | ReadWholeBacklog, *, wait: bool
    ) -> dict[str, StreamCut]:
        """The end of the next batch in each stream with a backlog; empty while the batch waits for more.

        wait: whether it may wait at all. Of several streams each gets its share of a limit.
        """
        due = {name: each for name, each in backlogs.items() if not each.is_empty}
        if self._waits(due, wait and not isinstance(limit, ReadAllAvailable | ReadWholeBacklog)):
            return {}
        if isinstance(limit, ReadWholeBacklog):
            self._report_limits(due)
        if isinstance(limit, ReadMaxBytes):
            due = self._limited(due, limit.max_bytes, by_events=False)
            limit = self._limit_by_events()
        if isinstance(limit, ReadMaxRows):
            due = self._limited(due, limit.max_rows, by_events=True)
        return {name: each.end for name, each in due.items()}

    def _report_limits(self, backlogs: Mapping[str, Backlog]) -> None:
        """Log which limits of the options a batch that reads the whole backlog exceeds."""
        maxima = (
            ("max_events_per_trigger", self._options.max_events_per_trigger, True),
            ("max_bytes_per_trigger", self._options.max_bytes_per_trigger, False),
        )
        for name, most, by_events in maxima:
            amount = sum(each.amount(each.end, by_events=by_events) for each in backlogs.values()) if most else 0
            if most is not None and amount > most:
                logger.warning(
                    "The first batch of this run reads the whole backlog, %s %s, in spite of option '%s' (%s): this "
                    "Spark does not tell a source whether the trigger is availableNow, which would end after "
                    "this batch. If it is not, set option 'limit_first_batch' to true.",
                    f"{amount:,}",
                    "events" if by_events else "bytes",
                    name,
                    most,
                )

    def _waits(self, backlogs: Mapping[str, Backlog], allowed: bool) -> bool:
        """Whether the backlog is below the minimum of a batch, and has not waited for `max_trigger_delay` yet."""
        if not backlogs or not allowed:
            self._waiting_since = None
            return False
        now = time.monotonic()
        since = now if self._waiting_since is None else self._waiting_since
        waits = (now - since) * 1000 < self._options.max_trigger_delay and self._is_below_minimum(backlogs)
        self._waiting_since = since if waits else None
        return waits

    def _is_below_minimum(self, backlogs: Mapping[str, Backlog]) -> bool:
        minima = ((True, self._options.min_events_per_trigger), (False, self._options.min_bytes_per_trigger))
        return any(
            least is not None and sum(each.amount(each.tail, by_events=by_events) for each in backlogs.values()) < least
            for by_events, least in minima
        )

    def _limited(self, backlogs: dict[str, Backlog], limit: int, *, by_events: bool) -> dict[str, Backlog]:
        """The backlogs, each shortened to its share of a limit; without those that get no share of it."""
        if len(backlogs) <= 1:
            return {name: each.limited(limit, by_events=by_events) for name, each in backlogs.items()}
        amounts = {name: each.amount(each.end, by_events=by_events) for name, each in backlogs.items()}
        shares = allocate(limit, amounts, self._batches)
        self._batches += 1
        return {
            name: each if shares[name] == amounts[name] else each.limited(shares[name], by_events=by_events)
            for name, each in backlogs.items()
            if shares[name] or not amounts[name]
        }
