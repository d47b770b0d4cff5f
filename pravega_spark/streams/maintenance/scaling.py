"""Automatic scaling: decides by rates when to split or merge segments (Pravega: AutoScaleProcessor, AutoScaleTask;
pravega-facts 5.6).

The index of a segment has its bytes and events at any time, so rates are looked up, not measured. Any writer, or a
job, may decide, and all decide the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from engine.clocks import age
from engine.settings import MAX_SEGMENTS
from pravega_spark.errors import InvalidScale, StreamSealed
from pravega_spark.streams.model.epochs import EpochRecord, StreamSegmentRecord
from pravega_spark.streams.model.policies import ScalingPolicy
from pravega_spark.streams.reading.snapshot import Snapshot
from pravega_spark.streams.stream import Stream

COOL_DOWN = 600_000
"""Milliseconds for which an epoch lasts at least."""

WINDOWS = (2, 5, 10, 20)
"""Minutes over which rates are taken."""

_HOT = ((2, 5), (5, 2), (10, 1))
"""Minutes, and how many times the target the rate over them has to be at least."""

_COLD_AGE = 20 * 60_000
_MERGED = 3
"""Segments that are merged into one, at most."""

_KIB = 1024


class Load(NamedTuple):
    """A segment of the newest epoch: since when it is there (ms), and its rate per second over each window, in the
    unit of the policy."""

    segment: StreamSegmentRecord
    age: float
    rates: tuple[float, ...]

    def over(self, minutes: int) -> float:
        """The rate over one of the windows."""
        return self.rates[WINDOWS.index(minutes)]


class Scaling(NamedTuple):
    """One step: the segments to seal, and the key ranges that replace them."""

    sealed: tuple[int, ...]
    ranges: tuple[tuple[float, float], ...]


def loads(snapshot: Snapshot, now: int) -> list[Load]:
    """The load of each segment of the newest epoch, at `now` (ms since the epoch)."""
    policy, epoch = snapshot.record.scaling, snapshot.record.current
    return [
        Load(
            segment,
            _age(epoch, now),
            tuple(_rate(snapshot, segment.id, policy, now, minutes) for minutes in WINDOWS),
        )
        for segment in epoch.segments
    ]


def _rate(snapshot: Snapshot, segment: int, policy: ScalingPolicy, now: int, minutes: int) -> float:
    size, events = snapshot.segments.growth_since(segment, now - minutes * 60_000)
    return (size / _KIB if policy.kind == "bytes" else events) / (minutes * 60)


def decide(policy: ScalingPolicy, found: Sequence[Load], most: int = MAX_SEGMENTS) -> Scaling | None:
    """The step for these loads, in order of key ranges; None if nothing is to be done. most: maximum number of
    segments."""
    if policy.kind == "fixed":
        return None
    sealed: list[int] = []
    ranges: list[tuple[float, float]] = []
    for load in found:
        parts = min(_splits(policy, load), 1 + max(0, most - len(found) + len(sealed) - len(ranges)))
        if parts > 1:
            sealed.append(load.segment.id)
            ranges += _divided(load.segment, parts)
    spare = len(found) - len(sealed) + len(ranges) - policy.min_segments
    for group in _cold_groups(policy, found, spare):
        sealed += [load.segment.id for load in group]
        ranges.append((group[0].segment.low, group[-1].segment.high))
    return Scaling(tuple(sealed), tuple(sorted(ranges))) if sealed else None


def _splits(policy: ScalingPolicy, load: Load) -> int:
    """Number of segments that a segment is split into; 1: none."""
    target = policy.target_rate
    hot = any(load.over(minutes) > times * target and load.age > minutes * 60_000 for minutes, times in _HOT)
    if not hot or load.age <= COOL_DOWN:
        return 1
    highest = max(load.over(minutes) for minutes, _ in _HOT)
    return min(max(2, int(highest / target)), max(2, policy.scale_factor))


def _divided(segment: StreamSegmentRecord, parts: int) -> list[tuple[float, float]]:
    """Equal parts of a segment's key range. The last one ends exactly where the range ends."""
    width = (segment.high - segment.low) / parts
    bounds = [segment.low + number * width for number in range(parts)] + [segment.high]
    return list(pairwise(bounds))


def _cold_groups(policy: ScalingPolicy, found: Sequence[Load], spare: int) -> Iterator[list[Load]]:
    """Neighbours to merge, so that at most `spare` segments are removed."""
    group: list[Load] = []
    for load in [*found, None]:
        if load is not None and _is_cold(policy, load) and len(group) < min(_MERGED, spare + 1):
            group.append(load)
            continue
        if len(group) > 1:
            yield group
            spare -= len(group) - 1
        group = [load] if load is not None and _is_cold(policy, load) else []


def _is_cold(policy: ScalingPolicy, load: Load) -> bool:
    target = policy.target_rate
    slow = all(load.over(minutes) < target for minutes, _ in _HOT) and load.over(20) < target / 2
    return slow and load.age > _COLD_AGE


def _age(epoch: EpochRecord, now: int) -> float:
    """The age of an epoch (ms); infinite if a host whose clock was ahead began it (W13)."""
    return 1000 * age(epoch.created / 1000, now / 1000, math.inf)


def planned(stream: Stream, now: int | None = None, *, refresh: bool = True) -> Scaling | None:
    """The due step of a stream, at `now` (ms since the epoch). refresh: False to decide by the state known to this
    process whether the policy may require one, without a request unless it may. Raises StreamNotFound, StorageError."""
    clock = stream.container.storage_clock
    if not refresh and _is_idle(stream, int(clock.known() * 1000) if now is None else now):
        return None
    moment = int(clock.agreed("the stream is not scaled") * 1000) if now is None else now
    stream.snapshot()
    if _is_idle(stream, moment):
        return None
    most = stream.root.config.max_segments
    return stream.query(lambda snapshot: decide(snapshot.record.scaling, loads(snapshot, moment), most), refresh=False)


def _is_idle(stream: Stream, moment: int) -> bool:
    """Whether no load would scale the stream at a moment, as this process knows it."""
    record = stream.snapshot(refresh=False).record
    return record.sealed or record.scaling.kind == "fixed" or _age(record.current, moment) <= COOL_DOWN


class Overload(NamedTuple):
    """A segment with more than the policy allows: its rate per second over this many minutes, in the policy's unit."""

    segment: StreamSegmentRecord
    minutes: int
    rate: float


class TooYoung(NamedTuple):
    """Overloaded segments of an epoch that is too young for a step. judged_at: when it will be old enough (ms since the
    epoch)."""

    policy: ScalingPolicy
    overloaded: tuple[Overload, ...]
    judged_at: int


def too_young(stream: Stream, now: int | None = None) -> TooYoung | None:
    """The segments that would be split if their epoch were old enough, at `now` (ms since the epoch); None if there are
    none, as this process knows the stream. For reports only. Raises StreamNotFound, StorageError."""
    record = stream.snapshot(refresh=False).record
    policy, epoch = record.scaling, record.current
    if record.sealed or policy.kind == "fixed":
        return None
    moment = int(stream.container.storage_clock.reported() * 1000) if now is None else now
    if _age(epoch, moment) > COOL_DOWN:
        return None
    found = stream.query(lambda snapshot: loads(snapshot, moment), refresh=False)
    overloaded = tuple(one for load in found if (one := _overload(policy, load)) is not None)
    return TooYoung(policy, overloaded, epoch.created + COOL_DOWN) if overloaded else None


def _overload(policy: ScalingPolicy, load: Load) -> Overload | None:
    """By the first window in which a segment takes too much; None if it does in none."""
    for minutes, times in _HOT:
        if load.over(minutes) > times * policy.target_rate:
            return Overload(load.segment, minutes, load.over(minutes))
    return None


def scale(stream: Stream, now: int | None = None, *, refresh: bool = True) -> Scaling | None:
    """Scale a stream if its policy and its loads require it. Returns the step. refresh: as `planned`. Raises
    StreamNotFound, StorageError."""
    epoch = stream.snapshot(refresh=refresh).record.current.epoch
    found = planned(stream, now, refresh=refresh)
    if found is None:
        return None
    try:
        stream.scale(found.sealed, found.ranges, expected_epoch=epoch)
    except (InvalidScale, StreamSealed):
        return None  # another process was faster
    return found
