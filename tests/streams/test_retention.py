"""Retention: what is kept is what the policy says, held against every recorded cut one by one."""

import random
import re
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
import pytest

from chunkstore.testing import CountingStore, SimulatedStore
from engine.root import Root, RootConfig
from engine.settings import Settings
from engine.state.operations import Payload
from engine.storage.object_reads import Stores
from pravega_spark.errors import InvalidStreamCut
from pravega_spark.segment_ids import segment_id
from pravega_spark.streams.maintenance import retention, subscribers
from pravega_spark.streams.maintenance.recorded_cuts import RecordedCuts
from pravega_spark.streams.maintenance.truncation import Truncation
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.model.epochs import Comparison
from pravega_spark.streams.model.framing import frame_column
from pravega_spark.streams.model.index import sparse_records
from pravega_spark.streams.model.policies import RetentionPolicy, ScalingPolicy
from pravega_spark.streams.stream import Stream
from pravega_spark.streams.writing.writes import SegmentAppend

MINUTE = 60_000


def stream_on(store: object) -> Stream:
    root = Root(Stores(store, store), RootConfig("root", containers=1), Settings(maintenance=False, threaded=False))  # type: ignore[arg-type]
    return Stream(root, "sc", "st")


def made(policy: RetentionPolicy | None, segments: int = 2) -> Stream:
    stream = stream_on(SimulatedStore(0))
    stream.create(ScalingPolicy(min_segments=segments), policy)
    return stream


def write(stream: Stream, sizes: Sequence[int]) -> None:
    """An event of so many bytes, its header included, to each of the segments in turn."""
    segments = stream.snapshot().record.current.segments
    parts = []
    for place, segment in enumerate(segments):
        own = [b"." * (size - 8) for size in sizes[place :: len(segments)]]
        if own:
            framed = frame_column(pa.array(own, pa.binary()), None, 1)
            records = sparse_records(framed.lengths, 0)
            parts.append(SegmentAppend(segment.id, Payload(framed.data.to_pybytes()), records, len(own)))
    stream.write(parts)


class Kept(NamedTuple):
    """A recorded cut, as the test remembers it."""

    time: int
    size: int
    cut: StreamCut


def chosen(
    policy: RetentionPolicy, now: int, cuts: Sequence[Kept], slowest: StreamCut | None, stream: Stream
) -> StreamCut | None:
    """The rules of Pravega, step by step over all recorded cuts (facts 5.4)."""
    record, snapshot = stream.snapshot().record, stream.snapshot()

    def order(one: StreamCut, other: StreamCut) -> Comparison:
        return record.history.compare(one.positions, other.positions)

    def retained(cut: Kept) -> int:
        return cuts[-1].size - cut.size if policy.kind == "size" else now - cut.time

    enough = [cut for cut in cuts if retained(cut) >= policy.limit]
    least = enough[-1] if enough else None
    not_too_much = [cut for cut in enough if policy.maximum is not None and retained(cut) <= policy.maximum]
    most = not_too_much[0] if not_too_much else least
    if slowest is None or (least is None and policy.kind == "time"):
        return least.cut if least is not None else None
    before = [cut for cut in cuts if order(slowest, cut.cut) is Comparison.EQUAL_OR_AFTER]
    latest_before = before[-1].cut if before else None
    if policy.kind == "size":
        size = record.passed + record.history.size(record.head_positions(), slowest.positions, snapshot.segments.length)
        left = cuts[-1].size - size
        if left < policy.limit:
            if least is None:
                return None
            return least.cut if order(least.cut, slowest) is Comparison.BEFORE else latest_before
        if policy.maximum is None or left < policy.maximum:
            return slowest
        return most.cut if most is not None and retained(most) < left else slowest
    assert least is not None and most is not None
    if order(least.cut, slowest) is Comparison.BEFORE:
        return least.cut
    if order(least.cut, slowest) is Comparison.OVERLAPS:
        return latest_before
    old = [cut for cut in cuts if policy.maximum is not None and retained(cut) >= policy.maximum]
    if old and order(slowest, old[-1].cut) is Comparison.BEFORE:
        return most.cut
    if old and order(slowest, old[-1].cut) is Comparison.OVERLAPS:
        return old[-1].cut
    return slowest


@pytest.mark.parametrize("seed", [*range(8), *(pytest.param(n, marks=pytest.mark.long) for n in range(8, 200))])
@pytest.mark.parametrize("kind", ["size", "time"])
def test_truncates_where_the_rules_say(kind: str, seed: int) -> None:
    chance = random.Random(seed)
    limit = chance.choice([0, 300, 1000, 3000]) if kind == "size" else chance.choice([0, 10, 40, 100]) * MINUTE
    maximum = chance.choice([None, limit, 2 * limit, 3 * limit])
    policy = RetentionPolicy(kind, limit, maximum)  # type: ignore[arg-type]
    stream, now = made(policy), 10**12
    names = ["one", "two"][: chance.randint(0, 2)]
    cuts: list[Kept] = []
    last = 0
    for name in names:
        subscribers.subscribe(stream, name, stream.snapshot().head_cut())
    for _ in range(30):
        now += chance.choice([1, 29, 30, 31, 100]) * MINUTE
        write(stream, [chance.randint(8, 300) for _ in range(chance.randint(0, 4))])
        if chance.random() < 0.15:
            scale(stream, chance)
        for name in names:
            if chance.random() < 0.4:
                advance(stream, name, chance)
        snapshot, head = stream.snapshot(), stream.snapshot().head_cut()
        record = snapshot.record
        size = record.passed + record.history.size(
            head.positions, snapshot.tail_cut().positions, snapshot.segments.length
        )
        is_due = now - last >= 1000 * retention.PERIOD
        if is_due:
            last = now
            cuts.append(Kept(now, size, snapshot.tail_cut()))
        cut = chosen(policy, now, cuts, slowest_of(stream, names), stream) if is_due else None
        behind = cut is not None and record.history.compare(cut.positions, head.positions) is Comparison.EQUAL_OR_AFTER
        expected = cut if behind and cut != head else None
        done = retention.retain(stream, now)
        assert done.truncated == expected
        assert done.recorded == (snapshot.tail_cut() if is_due else None)
        if expected is not None:
            record = stream.snapshot().record
            assert stream.snapshot().head_cut() == expected
            cuts = [kept for kept in cuts if kept.size > record.passed]
        assert stream.snapshot().record.passed == (size - stream.snapshot().size())
        again = retention.retain(stream, now)
        assert again.early and (again.recorded, again.truncated) == (None, None)


@pytest.mark.parametrize("seed", [*range(12), *(pytest.param(n, marks=pytest.mark.long) for n in range(12, 200))])
def test_a_dry_run_tells_what_the_run_then_does(seed: int) -> None:
    """In every state that there may be: cut, bytes, what is recorded, and why nothing goes."""
    chance = random.Random(seed)
    stream, now, seen = made(None), 10**12, set()
    for name in ["one", "two"][: chance.randint(0, 2)]:
        subscribers.subscribe(stream, name, stream.snapshot().head_cut())
    for turn in range(40):
        if turn % 8 == 0:
            kind = chance.choice(["size", "time"])
            limit = chance.choice([0, 100, 1000]) if kind == "size" else chance.choice([0, 10, 100]) * MINUTE
            stream.update(retention=RetentionPolicy(kind, limit, chance.choice([None, limit, 2 * limit])))  # type: ignore[arg-type]
        now += chance.choice([0, 1, 10_000, 29 * MINUTE, 31 * MINUTE, 100 * MINUTE])
        write(stream, [chance.randint(8, 300) for _ in range(chance.choice([0, 0, 1, 4]))])
        if chance.random() < 0.15:
            scale(stream, chance)
        if chance.random() < 0.05:
            retention.record(stream, now + 10**10)  # by a clock that was wrong
        for name in subscribers.subscribers(stream):
            if chance.random() < 0.4:
                advance(stream, name, chance)
        if turn == 39 and chance.random() < 0.5:
            stream.seal()
        period, before = chance.choice([0.0, 5.0, retention.PERIOD]), stream.snapshot().record
        told = retention.retain(stream, now, period, dry_run=True)
        assert stream.snapshot().record == before
        done = retention.retain(stream, now, period)
        assert told == done
        assert bool(done.why) == (done.truncated is None), done
        assert not done.early or (done.recorded is None and "give" not in done.why)
        seen.add(re.sub(r"[0-9]+.*", "", done.why))
    assert len(seen) > 1


def test_why_nothing_is_truncated() -> None:
    stream, now = made(None, segments=1), 10**12

    def why(period: float = 0.0) -> str:
        told, done = (retention.retain(stream, now, period, dry_run=dry) for dry in (True, False))
        assert told == done and done.truncated is None
        return done.why

    assert why() == "the stream has no retention policy"
    stream.update(retention=RetentionPolicy.by_time(3_600_000))
    assert why(retention.PERIOD) == "no recorded stream cut is at least 1 h old"
    now += 4000
    assert why(retention.PERIOD) == "the last recorded cut is 4 s old, and cuts are recorded every 30 min"
    now += 3_600_000
    assert why() == "nothing lies before the last recorded stream cut that is at least 1 h old"
    stream.update(retention=RetentionPolicy.by_size(1024))
    write(stream, [50])
    assert why() == "no recorded stream cut has at least 1 KiB after it"
    subscribers.subscribe(stream, "query:b", stream.snapshot().head_cut())
    assert why() == "no recorded stream cut has at least 1 KiB after it", "whatever is released"
    write(stream, [2000])
    retention.record(stream, now)
    subscribers.subscribe(stream, "ahead", stream.snapshot().tail_cut())
    assert why() == "it waits for subscriber query:b"
    subscribers.subscribe(stream, "a", stream.snapshot().head_cut())
    assert why() == "it waits for subscribers a, query:b"
    stream.seal()
    assert why() == "the stream is sealed"


def slowest_of(stream: Stream, names: Sequence[str]) -> StreamCut | None:
    found = list(subscribers.subscribers(stream).values())
    if not names:
        return None
    snapshot = stream.snapshot()
    slowest = found[0]
    for cut in found[1:]:
        slowest = snapshot.earlier(slowest, cut)
    return snapshot.past_head(slowest, snapshot.tail_cut())


def advance(stream: Stream, name: str, chance: random.Random) -> None:
    """A subscriber releases a cut somewhere behind the last one."""
    snapshot = stream.snapshot()
    last = snapshot.past_head(subscribers.subscribers(stream)[name], snapshot.tail_cut())
    cut = snapshot.next_cut(last, snapshot.tail_cut(), max_events=chance.randint(1, 6))
    if snapshot.record.history.compare(cut.positions, last.positions) is Comparison.EQUAL_OR_AFTER:
        subscribers.release(stream, name, cut)


def scale(stream: Stream, chance: random.Random) -> None:
    segments = stream.snapshot().record.current.segments
    if len(segments) == 2:
        split = segments[chance.randint(0, 1)]
        middle = (split.low + split.high) / 2
        stream.scale([split.id], [(split.low, middle), (middle, split.high)])
    else:
        stream.scale([segment.id for segment in segments], [(0.0, 0.3), (0.3, 1.0)])


def test_nothing_to_do_costs_one_read() -> None:
    store = CountingStore(SimulatedStore(0))
    stream = stream_on(store)
    stream.create(ScalingPolicy(), RetentionPolicy.by_size(100))
    write(stream, [50, 60])
    assert retention.retain(stream, 10**12).recorded is not None
    store.reset()
    assert retention.retain(stream, 10**12 + MINUTE).early
    assert sum(store.counts.values()) <= 2


@pytest.mark.parametrize("maximum", [None, 50, 1000])
def test_what_was_released_is_truncated_though_no_recorded_cut_keeps_enough(maximum: int | None) -> None:
    """By size, where a subscriber's release keeps the minimum (Pravega: getTruncationStreamCutBySizeLimit)."""
    stream = made(RetentionPolicy.by_size(50, maximum), segments=1)
    subscribers.subscribe(stream, "one", stream.snapshot().head_cut())
    write(stream, [30] * 4)
    subscribers.release(stream, "one", StreamCut("sc", "st", {0: 60}))
    done = retention.retain(stream, 10**12)
    assert done.recorded == StreamCut("sc", "st", {0: 120}), "the only cut, which keeps nothing"
    assert done.truncated == stream.snapshot().head_cut() == StreamCut("sc", "st", {0: 60})
    subscribers.release(stream, "one", StreamCut("sc", "st", {0: 90}))
    assert retention.retain(stream, 10**12 + 31 * MINUTE).truncated is None, "it keeps less than the minimum"


def test_a_recorded_cut_that_a_truncation_was_across_is_passed_over() -> None:
    """It lies behind the head in one segment and before it in the other."""
    stream, now = made(RetentionPolicy("time", 10 * MINUTE)), 10**12
    write(stream, [100, 100])
    assert retention.retain(stream, now).recorded == StreamCut("sc", "st", {0: 100, 1: 100})
    write(stream, [100, 100])
    across = StreamCut("sc", "st", {0: 200, 1: 0})
    stream.truncate(across)
    assert retention.retain(stream, now + 40 * MINUTE).truncated is None
    assert stream.snapshot().head_cut() == across


def test_cuts_of_the_original_with_segments_that_are_not_reached_hold_back_what_lies_behind_them() -> None:
    """StreamMetadataTasksTest.consumptionBasedRetentionWithScale: two subscribers, who have read segments 1 and 2 as a
    whole or in part, but not segment 4, which is merged with these to segment 5."""
    stream, now = made(RetentionPolicy("size", 0, 1000), segments=3), 10**12
    stream.update(ScalingPolicy.auto_scaling_policy_by_event_rate(10**6, 2, 1))
    write(stream, [8] * 6)
    thirds = [place / 3 for place in range(3)] + [1.0]
    for name in ("one", "two"):
        subscribers.subscribe(stream, name, stream.snapshot().head_cut())
    stream.scale([0], [(0.0, 1 / 6), (1 / 6, thirds[1])])
    stream.scale([1, 2, segment_id(4, 1)], [(1 / 6, 1.0)])
    stream.scale([segment_id(3, 1), segment_id(5, 2)], [(0.0, 1.0)])
    write(stream, [8])
    five = segment_id(5, 2)
    subscribers.release(stream, "one", StreamCut("sc", "st", {0: 8, five: -1}))
    subscribers.release(stream, "two", StreamCut("sc", "st", {0: 8, 2: 8, five: -1}))
    assert retention.retain(stream, now).truncated == StreamCut("sc", "st", {0: 8, 1: 16, 2: 8})
    with pytest.raises(InvalidStreamCut):
        subscribers.release(stream, "one", StreamCut("sc", "st", {0: 8, segment_id(9, 9): -1}))


def test_what_a_subscriber_needs_in_one_segment_stays_though_it_is_further_in_another() -> None:
    stream, now = made(RetentionPolicy("size", 750)), 10**12
    write(stream, [100, 100])
    assert retention.retain(stream, now).recorded == StreamCut("sc", "st", {0: 100, 1: 100})
    write(stream, [100] * 8)
    subscribers.subscribe(stream, "slow", StreamCut("sc", "st", {0: 300, 1: 0}))
    done = retention.retain(stream, now + 40 * MINUTE)
    assert done.recorded is not None and done.truncated is None
    assert stream.snapshot().head_cut() == StreamCut("sc", "st", {0: 0, 1: 0})


def test_the_last_recorded_cut_that_nobody_needs_anything_before_is_taken() -> None:
    """The one that is old enough is further than the subscriber in one segment, and not as far in the other."""
    stream, now = made(RetentionPolicy("time", 10 * MINUTE)), 10**12
    cuts = []
    for sizes in ([100, 100], [100, 100, 8, 100]):
        write(stream, sizes)
        now += 40 * MINUTE
        cuts.append(retention.retain(stream, now).recorded)
        if len(cuts) == 1:
            subscribers.subscribe(stream, "slow", stream.snapshot().head_cut())
    assert cuts[1] == StreamCut("sc", "st", {0: 208, 1: 300})
    write(stream, [100, 100])
    subscribers.release(stream, "slow", StreamCut("sc", "st", {0: 308, 1: 100}))
    assert retention.retain(stream, now + 40 * MINUTE).truncated == cuts[0] == StreamCut("sc", "st", {0: 100, 1: 100})


def test_of_two_processes_that_record_at_once_one_does() -> None:
    store = SimulatedStore(0)
    one, other = stream_on(store), stream_on(store)
    one.create(ScalingPolicy(min_segments=1), RetentionPolicy("time", MINUTE))
    assert retention.record(one, 10**12) is not None
    other.snapshot()
    assert retention.record(one, 10**12 + MINUTE) is not None
    assert retention.record(other, 10**12 + MINUTE) is None
    assert [found.time for found, _ in RecordedCuts(other.snapshot()).all()] == [10**12, 10**12 + MINUTE]


def test_times_of_recorded_cuts_never_descend() -> None:
    """Clocks of hosts differ a little, and they are searched by their times."""
    stream, now = made(RetentionPolicy("time", MINUTE)), 10**12
    for moment in (now, now - 1000, now + 1000):
        write(stream, [100])
        retention.record(stream, moment)
        stream.snapshot()
    assert [found.time for found, _ in RecordedCuts(stream.snapshot()).all()] == [now, now, now + 1000]


def test_a_stream_without_a_policy_keeps_everything() -> None:
    stream = made(None)
    write(stream, [50, 60])
    assert retention.retain(stream, 10**12) == retention.Retained(why="the stream has no retention policy")
    assert not retention.due(stream)


def test_a_dry_run_changes_nothing() -> None:
    stream = made(RetentionPolicy.by_size(0))
    write(stream, [50, 60])
    before, tail = stream.snapshot().record, stream.snapshot().tail_cut()
    told = retention.retain(stream, 10**12, dry_run=True)
    removed = Truncation(StreamCut("sc", "st", {0: 0, 1: 0}), tail, 2, 110)
    assert told == retention.Retained(tail, tail, 110, removed=removed)
    assert stream.snapshot().record == before and RecordedCuts(stream.snapshot()).latest() is None
    retention.record(stream, 10**12)
    assert retention.retain(stream, 10**12, dry_run=True).early
    assert retention.retain(stream, 10**12 + 31 * MINUTE) == told


def test_a_dry_run_tells_what_is_truncated_when_a_cut_is_due() -> None:
    """By the size that the run records then, not by that of the last recorded cut."""
    stream = made(RetentionPolicy.by_size(100))
    write(stream, [50, 60])
    retention.record(stream, 10**12)
    write(stream, [100])
    later = 10**12 + 31 * MINUTE
    told = retention.retain(stream, later, dry_run=True)
    done = retention.retain(stream, later)
    assert told.bytes == done.bytes == 110 and told.truncated == done.truncated


def test_what_is_forgotten_is_gone() -> None:
    stream, now = made(RetentionPolicy.by_size(200)), 10**12
    for _ in range(20):
        now += 30 * MINUTE
        write(stream, [50, 50])
        retention.retain(stream, now)
    recorded = RecordedCuts(stream.snapshot())
    assert recorded.latest() is not None
    assert len(list(recorded.all())) == 2
    assert stream.snapshot().size() == 200


def test_a_cut_within_an_event_is_refused_and_told() -> None:
    stream = made(RetentionPolicy.by_size(0), segments=1)
    write(stream, [50, 60])
    subscribers.subscribe(stream, "one", stream.snapshot().head_cut())
    within = StreamCut("sc", "st", {0: 20})
    with pytest.raises(InvalidStreamCut, match=r"no event of segment 0\.0 begins at offset 20"):
        subscribers.release(stream, "one", within)
    subscribers.subscribe(stream, "two", within)  # from the beginning, where nothing is checked
    subscribers.release(stream, "one", stream.snapshot().tail_cut())
    stream.update(ScalingPolicy(), RetentionPolicy.by_time(0))
    with pytest.raises(InvalidStreamCut, match=r"no event of segment 0\.0 begins at offset 20"):
        retention.retain(stream, 10**15)


def test_cuts_are_searched_and_not_walked_through() -> None:
    stream, now = made(None, segments=1), 10**12
    for _ in range(200):
        write(stream, [50])
        now += MINUTE
        retention.record(stream, now)
    recorded, asked = RecordedCuts(stream.snapshot()), []

    def before_half(cut: StreamCut) -> bool:
        asked.append(cut)
        return cut.positions[0] <= 5000

    found = recorded.last_cut(recorded.latest(), before_half)
    assert found is not None and found.positions == {0: 5000} and len(asked) <= 8
    assert recorded.last_cut(recorded.latest(), lambda cut: False) is None
    assert recorded.last_cut(None, before_half) is None


def test_policies_that_make_no_sense_are_refused() -> None:
    for limit, maximum in ((-1, None), (10, 9)):
        with pytest.raises(ValueError, match="size_in_bytes"):
            RetentionPolicy.by_size(limit, maximum)
