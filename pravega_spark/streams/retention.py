"""Retention: which stream cut a policy truncates a stream at, and the truncation there (PDP-19; Pravega:
StreamMetadataTasks.retention).

At most once in a period the tail cut is recorded. A policy is held against the recorded cuts, so what it keeps is right
to one period. Subscribers hold back what they have not read, up to the policy's maximum.
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import NamedTuple

from engine.clocks import age
from engine.errors import BadKeyVersion, BadOffset, SegmentExists
from engine.state.operations import CheckEntry, Operation
from pravega_spark.errors import InvalidStreamCut
from pravega_spark.streams import changes
from pravega_spark.streams.changes import STREAMS
from pravega_spark.streams.cuts import StreamCut
from pravega_spark.streams.epochs import Comparison
from pravega_spark.streams.policies import RetentionPolicy
from pravega_spark.streams.recorded_cuts import Recorded, RecordedCuts
from pravega_spark.streams.snapshot import Snapshot
from pravega_spark.streams.stream import Stream
from pravega_spark.streams.subscribers import subscribers

PERIOD = 1800.0
"""Seconds between two recorded cuts (Pravega: controller.retention.frequency.minutes)."""


class Retained(NamedTuple):
    """What a run did: the cut that it recorded, and the one that it truncated at, if any; bytes: how many went."""

    recorded: StreamCut | None = None
    truncated: StreamCut | None = None
    bytes: int = 0


NOTHING = Retained()


def due(stream: Stream, now: int | None = None, period: float = PERIOD) -> bool:
    """Whether there is something to do, as far as this process knows: nothing is requested."""
    snapshot = stream.snapshot(refresh=False)
    if snapshot.record.retention is None or snapshot.record.sealed:
        return False
    last = RecordedCuts(snapshot).last_time
    moment = int(stream.container.storage_clock.known() * 1000) if now is None else now
    return last is None or 1000 * age(last / 1000, moment / 1000, math.inf) >= 1000 * period


def retain(
    stream: Stream, now: int | None = None, period: float = PERIOD, dry_run: bool = False, *, refresh: bool = True
) -> Retained:
    """Record the tail cut if the last one is `period` seconds old, and then truncate where the policy says.

    now: ms since the epoch, by default the storage's time (W13). dry_run: only tell what would be truncated, with the
    cuts recorded so far, and where one is due by the size that it would record. refresh: False if what this process
    knows of the stream is to say whether anything is due; then nothing is requested unless it is. May be repeated, and
    run by several processes at a time. Raises StreamNotFound, StorageError, ClocksDisagree if this host's clock and the
    storage's are too far apart, and InvalidStreamCut if a subscriber has released a cut within an event.
    """
    recorded = None
    if not refresh and not dry_run and not due(stream, now, period):
        return NOTHING
    moment = int(stream.container.storage_clock.agreed("the stream is not truncated") * 1000) if now is None else now
    stream.snapshot()
    to_record = due(stream, moment, period)
    if not dry_run:
        if not to_record:
            return NOTHING
        recorded = record(stream, moment)
    known = True
    while True:
        with suppress(BadKeyVersion):  # the stream was scaled, or truncated further, meanwhile
            asked_again, known = not known, False
            found = stream.query(lambda snapshot: _planned(snapshot, moment, dry_run and to_record), asked_again)
            if found is None:
                return Retained(recorded)
            cut, size, operations = found
            if not dry_run:
                stream.container.commit(operations)
            return Retained(recorded, cut, size)


def record(stream: Stream, moment: int) -> StreamCut | None:
    """Record the tail cut. None if somebody else has just done so."""
    snapshot = stream.snapshot(refresh=False)
    cut = snapshot.tail_cut()
    operations = RecordedCuts(snapshot).record(cut.positions, snapshot.bytes_before(cut.positions), moment)
    try:
        stream.container.commit([CheckEntry(STREAMS, stream.key, snapshot.record.version), *operations])
    except (BadKeyVersion, BadOffset, SegmentExists):
        return None
    return cut


def _planned(snapshot: Snapshot, moment: int, as_recorded: bool) -> tuple[StreamCut, int, list[Operation]] | None:
    """Where to truncate, how many bytes go, and the operations; None if there is nothing to do.

    as_recorded: as if the tail cut had just been recorded.
    """
    policy = snapshot.record.retention
    if policy is None or snapshot.record.sealed:
        return None
    plan = _Plan(snapshot, policy, moment, as_recorded)
    cut = plan.cut()
    if cut is None:
        return None
    history, head = snapshot.record.history, snapshot.record.head_positions()
    if cut.positions == head or history.gone(cut.positions):
        return None
    if history.compare(cut.positions, head) is not Comparison.EQUAL_OR_AFTER:
        return None  # it intersects with the truncation that was before
    change = changes.truncate(snapshot, cut)
    passed = snapshot.bytes_before(cut.positions)
    forgotten = plan.recorded.forget(passed)
    return cut, passed - snapshot.record.passed, [*change.committed(snapshot.stream.key), *forgotten]


class _Plan:
    """The decision for one snapshot: the recorded cuts by what truncating there would keep, bytes or milliseconds."""

    def __init__(self, snapshot: Snapshot, policy: RetentionPolicy, moment: int, as_recorded: bool) -> None:
        self.recorded = RecordedCuts(snapshot)
        self._snapshot = snapshot
        self._policy = policy
        self._by_size = policy.kind == "size"
        self._end = moment
        if self._by_size and as_recorded:
            self._end = snapshot.bytes_before(snapshot.tail_cut().positions)
        elif self._by_size:
            latest = self.recorded.latest()
            self._end = latest.size if latest is not None else 0
        self._last = self.recorded.last_of_size if self._by_size else self.recorded.last_of_time
        self._first = self.recorded.first_of_size if self._by_size else self.recorded.first_of_time

    def cut(self) -> StreamCut | None:
        """Where to truncate, or None."""
        least = self._last(self._end - self._policy.limit)  # keeps the least of those that keep enough
        slowest = self._slowest()
        if slowest is not None and self._by_size:
            return self._by_bytes(least, slowest)
        if least is None:
            return None
        return self._by_age(least, slowest) if slowest is not None else self.recorded.cut(least)

    def _slowest(self) -> StreamCut | None:
        """The cut before all that some subscriber has not read yet; None without subscribers."""
        cuts = [cut for cut in subscribers(self._snapshot.stream).values() if self._is_valid(cut)]
        slowest = None
        for cut in cuts:
            slowest = cut if slowest is None else self._snapshot.earlier(slowest, cut)
        return slowest if slowest is None else self._snapshot.past_head(slowest, self._snapshot.tail_cut())

    def _is_valid(self, cut: StreamCut) -> bool:
        with suppress(InvalidStreamCut):
            self._snapshot.check(cut)
            return True
        return False

    def _by_bytes(self, least: Recorded | None, slowest: StreamCut) -> StreamCut | None:
        """Where no recorded cut keeps enough, what was released may: its size is known without one."""
        retained = self._end - self._snapshot.bytes_before(slowest.positions)
        if retained < self._policy.limit:
            cut = self.recorded.cut(least) if least is not None else None
            return cut if cut is None or self._order(cut, slowest) is Comparison.BEFORE else self._last_before(slowest)
        if least is None or self._policy.maximum is None or retained < self._policy.maximum:
            return slowest
        most = self._most(least)
        return self.recorded.cut(most) if self._end - most.size < retained else slowest

    def _by_age(self, least: Recorded, slowest: StreamCut) -> StreamCut | None:
        cut = self.recorded.cut(least)
        order = self._order(cut, slowest)
        if order is Comparison.BEFORE:
            return cut
        if order is Comparison.OVERLAPS:
            return self._last_before(slowest)
        too_old = self._last(self._end - self._policy.maximum) if self._policy.maximum is not None else None
        if too_old is not None:
            late = self._order(slowest, self.recorded.cut(too_old))
            if late is Comparison.BEFORE:
                return self.recorded.cut(self._most(least))
            if late is Comparison.OVERLAPS:
                return self.recorded.cut(too_old)
        return slowest

    def _most(self, least: Recorded) -> Recorded:
        """The cut that keeps the most of those that keep enough and not too much; `least` if there is none."""
        if self._policy.maximum is None:
            return least
        found = self._first(self._end - self._policy.maximum)
        return found if found is not None and found.number <= least.number else least

    def _last_before(self, slowest: StreamCut) -> StreamCut | None:
        """The last recorded cut that no subscriber still needs anything before."""
        last = self.recorded.last_of_size(self._snapshot.bytes_before(slowest.positions))
        return self.recorded.last_cut(last, lambda cut: self._order(slowest, cut) is Comparison.EQUAL_OR_AFTER)

    def _order(self, one: StreamCut, other: StreamCut) -> Comparison:
        return self._snapshot.record.history.compare(one.positions, other.positions)
