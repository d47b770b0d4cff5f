"""Retention: choosing the stream cut that a policy truncates a stream at, and truncating (PDP-19; Pravega:
StreamMetadataTasks.retention).

The tail cut is recorded at most once in a period. A policy is applied to the recorded cuts, so it is exact to one
period. Subscribers hold back events that they have not read, up to the policy's maximum.
"""

from __future__ import annotations

import math
import shlex
from contextlib import suppress
from typing import NamedTuple

from engine.clocks import age
from engine.errors import BadKeyVersion, BadOffset, SegmentExists
from engine.state.operations import CheckEntry, Operation
from pravega_spark.quantities import duration_text, plural, size_text
from pravega_spark.streams.maintenance.recorded_cuts import Recorded, RecordedCuts
from pravega_spark.streams.maintenance.subscribers import positions
from pravega_spark.streams.maintenance.truncation import Truncation, truncation
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.model.epochs import Comparison
from pravega_spark.streams.model.policies import RetentionPolicy
from pravega_spark.streams.model.system_tables import STREAMS
from pravega_spark.streams.reading.snapshot import Snapshot
from pravega_spark.streams.stream import Stream
from pravega_spark.streams.writing import changes

PERIOD = 1800.0
"""Seconds between two recorded cuts (Pravega: controller.retention.frequency.minutes)."""


class Retained(NamedTuple):
    """The effect of a run, or of a dry run: the recorded cut, and the cut of the truncation, if any.

    bytes: number of truncated bytes. why: the reason if nothing was truncated, else empty. early: the last recorded
    cut is younger than the period. removed: what was truncated, if anything.
    """

    recorded: StreamCut | None = None
    truncated: StreamCut | None = None
    bytes: int = 0
    why: str = ""
    early: bool = False
    removed: Truncation | None = None


def due(stream: Stream) -> bool:
    """Whether maintenance is due, by the state known to this process, without a request."""
    return _idle(stream, _known_now(stream), PERIOD) is None


def _known_now(stream: Stream) -> int:
    """The storage's time in ms since the epoch, as far as this process knows."""
    return int(stream.container.storage_clock.known() * 1000)


def _idle(stream: Stream, moment: int, period: float) -> Retained | None:
    """The reason why nothing is due, by the state known to this process; None if something may be."""
    snapshot = stream.snapshot(refresh=False)
    if snapshot.record.retention is None:
        return Retained(why="the stream has no retention policy")
    if snapshot.record.sealed:
        return Retained(why="the stream is sealed")
    last = RecordedCuts(snapshot).last_time
    past = math.inf if last is None else age(last / 1000, moment / 1000, math.inf)
    if 1000 * past >= 1000 * period:
        return None
    passed = duration_text(math.floor(past))
    why = f"the last recorded cut is {passed} old, and cuts are recorded every {duration_text(period)}"
    return Retained(why=why, early=True)


def retain(
    stream: Stream, now: int | None = None, period: float = PERIOD, dry_run: bool = False, *, refresh: bool = True
) -> Retained:
    """Record the tail cut if the last one is `period` seconds old, then truncate as the policy says.

    now: ms since the epoch, by default the storage's time (W13). dry_run: only return the effect. refresh: False to
    decide by the state known to this process whether anything is due, without a request unless it is. Can be
    repeated, and run by several processes at a time. Raises StreamNotFound, StorageError, ClocksDisagree if this
    host's clock and the storage's differ too much, and InvalidStreamCut if a subscriber released a cut within an
    event.
    """
    if not refresh:
        idle = _idle(stream, _known_now(stream) if now is None else now, period)
        if idle is not None:
            return idle
    moment = int(stream.container.storage_clock.agreed("the stream is not truncated") * 1000) if now is None else now
    stream.snapshot()
    idle = _idle(stream, moment, period)
    if idle is not None:
        return idle
    recorded = stream.snapshot(refresh=False).tail_cut() if dry_run else record(stream, moment)
    known = True
    while True:
        with suppress(BadKeyVersion):  # the stream was scaled, or truncated further, meanwhile
            asked_again, known = not known, False
            found = stream.query(
                lambda snapshot: _planned(snapshot, moment, recorded if dry_run else None), asked_again
            )
            if isinstance(found, str):
                return Retained(recorded, why=found)
            removed, operations = found
            if not dry_run:
                stream.container.commit(operations)
            return Retained(recorded, removed.cut, removed.bytes, removed=removed)


def record(stream: Stream, moment: int) -> StreamCut | None:
    """Record the tail cut. None if another process has just done so."""
    snapshot = stream.snapshot(refresh=False)
    cut = snapshot.tail_cut()
    operations = RecordedCuts(snapshot).record(cut.positions, snapshot.bytes_before(cut.positions), moment)
    try:
        # A stream is truncated at recorded cuts only.
        stream.container.commit([CheckEntry(STREAMS, stream.key, snapshot.record.version), *operations], frees=True)
    except (BadKeyVersion, BadOffset, SegmentExists):
        return None
    return cut


def _planned(snapshot: Snapshot, moment: int, following: StreamCut | None) -> tuple[Truncation, list[Operation]] | str:
    """The truncation, and its operations; or the reason why nothing is truncated.

    following: a cut that is treated as recorded.
    """
    policy = snapshot.record.retention
    if policy is None or snapshot.record.sealed:
        return "the stream is sealed" if snapshot.record.sealed else "the stream has no retention policy"
    plan = _Plan(snapshot, policy, moment, following)
    cut = plan.cut()
    if cut is None or not plan.removes(cut):
        return plan.why()
    change = changes.truncate(snapshot, cut)
    forgotten = plan.recorded.forget(snapshot.bytes_before(cut.positions))
    return truncation(snapshot, cut), [*change.committed(snapshot.stream.key), *forgotten]


class _Plan:
    """The decision for one snapshot: the recorded cuts by what a truncation there would keep, bytes or milliseconds."""

    def __init__(self, snapshot: Snapshot, policy: RetentionPolicy, moment: int, following: StreamCut | None) -> None:
        added = (following, snapshot.bytes_before(following.positions), moment) if following is not None else None
        self.recorded = RecordedCuts(snapshot, added)
        self._snapshot = snapshot
        self._subscribers = positions(snapshot)
        self._policy = policy
        self._by_size = policy.kind == "size"
        self._end = moment
        if self._by_size:
            latest = self.recorded.latest()
            self._end = latest.size if latest is not None else 0
        self._last = self.recorded.last_of_size if self._by_size else self.recorded.last_of_time
        self._first = self.recorded.first_of_size if self._by_size else self.recorded.first_of_time

    def cut(self) -> StreamCut | None:
        """The cut to truncate at, or None."""
        least = self._last(self._end - self._policy.limit)  # the cut that keeps least among those that keep enough
        slowest = self._slowest()
        if slowest is not None and self._by_size:
            return self._by_bytes(least, slowest)
        if least is None:
            return None
        return self._by_age(least, slowest) if slowest is not None else self.recorded.cut(least)

    def removes(self, cut: StreamCut) -> bool:
        """Whether truncating there removes anything, and restores nothing."""
        history, head = self._snapshot.record.history, self._snapshot.record.head_positions()
        if cut.positions == head or history.gone(cut.positions):
            return False
        return history.compare(cut.positions, head) is Comparison.EQUAL_OR_AFTER  # else a truncation was across it

    def why(self) -> str:
        """The reason why nothing is truncated."""
        least = self._last(self._end - self._policy.limit)
        wanted = self.recorded.cut(least) if least is not None else None
        if wanted is not None and not self.removes(wanted):
            return f"nothing lies before the last recorded stream cut that {self._keeps()}"
        until = wanted if wanted is not None else self._snapshot.tail_cut()
        slow = {
            name: found
            for name, found in self._subscribers.items()
            if self._order(found.cut, until) is not Comparison.EQUAL_OR_AFTER
        }
        enough = self._by_size and self._end - self._snapshot.record.passed >= self._policy.limit
        if slow and (enough or wanted is not None):
            waits = f"it waits for {plural('subscriber', len(slow))} {', '.join(slow)}"
            return ". ".join(
                [waits, *(self._unplaced(name, found.problem) for name, found in slow.items() if found.problem)]
            )
        return f"no recorded stream cut {self._keeps()}"

    def _keeps(self) -> str:
        if self._by_size:
            return f"has at least {size_text(self._policy.limit)} after it"
        return f"is at least {duration_text(self._policy.limit / 1000)} old"

    def _unplaced(self, name: str, problem: str) -> str:
        """The notice about a subscriber whose position does not fit the stream."""
        key = self._snapshot.stream.key
        return (
            f"The position of {name} does not fit, so all events are kept: {problem}. If it does not read this stream "
            f"any more, remove it: `pravega-spark stream unsubscribe {key} {shlex.quote(name)} --yes`"
        )

    def _slowest(self) -> StreamCut | None:
        """The earliest position of all subscribers; None without subscribers."""
        slowest = None
        for cut, _ in self._subscribers.values():
            slowest = cut if slowest is None else self._snapshot.earlier(slowest, cut)
        return slowest if slowest is None else self._snapshot.past_head(slowest, self._snapshot.tail_cut())

    def _by_bytes(self, least: Recorded | None, slowest: StreamCut) -> StreamCut | None:
        """A released cut, if no recorded cut keeps enough: its size is known without a record."""
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
        """The cut that keeps most among those that keep enough and not too much; `least` if there is none."""
        if self._policy.maximum is None:
            return least
        found = self._first(self._end - self._policy.maximum)
        return found if found is not None and found.number <= least.number else least

    def _last_before(self, slowest: StreamCut) -> StreamCut | None:
        """The last recorded cut that is not after any subscriber's position."""
        last = self.recorded.last_of_size(self._snapshot.bytes_before(slowest.positions))
        return self.recorded.last_cut(last, lambda cut: self._order(slowest, cut) is Comparison.EQUAL_OR_AFTER)

    def _order(self, one: StreamCut, other: StreamCut) -> Comparison:
        return self._snapshot.record.history.compare(one.positions, other.positions)
