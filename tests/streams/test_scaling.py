"""Streams that are scaled: what is written before, between and after is there once, and in order for each key."""

from __future__ import annotations

import random
import re
import time
import uuid
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from chunkstore import Store
from chunkstore.testing import Crashed, FaultStore, SimulatedStore, crash_at
from engine.errors import SegmentSealed
from engine.root import Root, RootConfig
from engine.settings import Settings
from engine.state.operations import Payload
from engine.storage.object_reads import Stores
from pravega_spark.client.event import Event
from pravega_spark.client.reader import read_events
from pravega_spark.errors import (
    InvalidScale,
    InvalidStreamCut,
    StreamNotFound,
    StreamSealed,
    TruncatedData,
)
from pravega_spark.segment_ids import segment_id, segment_label
from pravega_spark.streams import stream as stream_module
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.model.index import sparse_records
from pravega_spark.streams.model.policies import ScalingPolicy
from pravega_spark.streams.model.routing import even_ranges, hash_key
from pravega_spark.streams.model.stream_record import Routing
from pravega_spark.streams.reading import snapshot as snapshot_module
from pravega_spark.streams.reading.snapshot import Snapshot
from pravega_spark.streams.stream import Stream
from pravega_spark.streams.writing import changes
from pravega_spark.streams.writing.producer_state import ProducerWrite
from pravega_spark.streams.writing.writes import SegmentAppend
from tests.support import limits

SETTINGS = Settings(maintenance=False, threaded=False)
KEYS = [f"key-{number}" for number in range(12)]
PLACES = {key: hash_key(key) for key in KEYS}


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices that are large enough for the index, read in several steps."""
    limits.scanned_at_a_time(monkeypatch, 500, 200)


# --- writing, scaling, reading -----------------------------------------------------------------------------------


def parts_for(planned: Routing, events: Sequence[tuple[str, str]], time_ms: int = 0) -> list[SegmentAppend]:
    """Events, each with its key, routed as `planned`."""
    bounds = [segment.high for segment in planned.segments]
    shares: dict[int, list[bytes]] = defaultdict(list)
    for key, event in events:
        shares[planned.segments[bisect_left(bounds, PLACES[key])].id].append(event.encode())
    parts = []
    for number, payloads in sorted(shares.items()):
        framed = b"".join(bytes(4) + len(payload).to_bytes(4, "big") + payload for payload in payloads)
        records = sparse_records(np.array([8 + len(payload) for payload in payloads]), time_ms, 60)
        parts.append(SegmentAppend(number, Payload(framed), records, len(payloads)))
    return parts


def ranges_of(count: int, low: float = 0.0, high: float = 1.0) -> list[tuple[float, float]]:
    bounds = [low + (high - low) * place / count for place in range(count)] + [high]
    return list(pairwise(bounds))


def scale_to(stream: Stream, count: int) -> None:
    """Exchange all segments for `count` even ones."""
    stream.scale([segment.id for segment in stream.snapshot().record.current.segments], ranges_of(count))


def key_of(event: Event) -> str:
    return event.data.decode().partition(":")[0]


def number_of(event: Event) -> int:
    return int(event.data.decode().split(":")[1])


def by_key(events: Iterable[Event]) -> dict[str, list[int]]:
    """The numbers of each key's events, in the order in which they were read."""
    found: dict[str, list[int]] = defaultdict(list)
    for event in events:
        found[key_of(event)].append(number_of(event))
    return dict(found)


class Case:
    """A stream that is written, scaled and truncated at random, and what each key's readable events are."""

    def __init__(self, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.random = random.Random(seed)
        self.url = f"memory://{uuid.uuid4()}"
        self.now = 1_000_000
        monkeypatch.setattr(snapshot_module, "CLOCKS_DIFFER", 15)
        skew = self.random.choice((-15, 0, 0, 15))
        for module in (changes, stream_module):  # the clock of who scales, which may differ from those of writers
            monkeypatch.setattr(module, "time", SimpleNamespace(time=lambda: (self.now + skew) / 1000))
        self.reopen()
        assert self.stream.create(ScalingPolicy(min_segments=self.random.choice((1, 3))))
        self.stream.update(ScalingPolicy.auto_scaling_policy_by_event_rate(10**6, 2, 1))  # may get down to one segment
        self.written: dict[str, int] = dict.fromkeys(KEYS, 0)
        self.times: dict[tuple[str, int], int] = {}
        self.read: dict[str, int] = dict.fromkeys(KEYS, 0)
        self.plans = [self.stream.snapshot().record.routing]
        self.batch = 0

    def reopen(self) -> None:
        self.root = Root.open(self.url, settings=SETTINGS, containers=1)
        self.stream = Stream(self.root, "sc", "st")

    def events(self) -> list[tuple[str, str]]:
        """The next events of some keys."""
        found = []
        for key in self.random.choices(KEYS, k=self.random.choice((1, 4, 20))):
            text = f"{key}:{self.written[key]}:" + "x" * self.random.choice((0, 0, 5, 90))
            self.times[key, self.written[key]] = self.now
            self.written[key] += 1
            found.append((key, text))
        return found

    def append(self) -> None:
        """A write that was routed by the present epoch, or by one of the last."""
        self.now += self.random.choice((0, 1, 10))
        planned = self.random.choice(self.plans[-4:])
        producer = None
        if self.random.random() < 0.5:
            self.batch += 1
            producer = ProducerWrite("w", self.batch)
        parts = parts_for(planned, self.events(), self.now)
        assert self.stream.write(parts, producer, planned)
        if producer is not None and self.random.random() < 0.5:
            again = self.random.choice(self.plans[-4:])
            assert not self.stream.write(parts_for(again, [(KEYS[0], "again:0:")]), producer, again)

    def scale(self) -> None:
        segments = self.stream.snapshot().record.current.segments
        sealed = self.random.sample(segments, self.random.randint(1, min(3, len(segments))))
        ranges: list[tuple[float, float]] = []
        for low, high in changes.joined_ranges((segment.low, segment.high) for segment in sealed):
            ranges += ranges_of(self.random.choice((1, 1, 2, 3) if len(segments) < 6 else (1,)), low, high)
        self.random.shuffle(ranges)
        self.now += self.random.choice((0, 5))
        self.stream.scale([segment.id for segment in sealed], ranges)
        self.plans.append(self.stream.snapshot().record.routing)

    def flush(self) -> None:
        self.stream.container.flush()

    def all(self, start: StreamCut | None = None, end: StreamCut | None = None) -> list[Event]:
        return list(read_events(self.stream, start or "head", end or "tail"))

    def cut(self) -> StreamCut:
        """Any cut at event boundaries: as far as some number of events leads, and a little back in some segments."""
        snapshot = self.stream.snapshot()
        head, events = snapshot.head_cut(), self.all()
        reached = snapshot.next_cut(head, snapshot.tail_cut(), max_events=self.random.randint(0, len(events) + 1))
        bounds: dict[int, list[int]] = defaultdict(list)
        for event in events:
            bounds[event.segment_id].append(event.offset)
        positions = dict(reached.positions)
        for number, at in positions.items():
            earlier = [offset for offset in bounds[number] if offset < at]
            if earlier and self.random.random() < 0.3:
                positions[number] = self.random.choice(earlier)
        return StreamCut("sc", "st", positions)

    def truncate(self) -> None:
        cut = self.cut()
        before = by_key(self.all(end=cut))
        self.stream.truncate(cut)
        for key, numbers in before.items():
            self.read[key] += len(numbers)

    def check(self) -> None:
        """Of each key all events from the first that was not truncated on, in order."""
        expected = {k: list(range(self.read[k], n)) for k, n in self.written.items() if n > self.read[k]}
        assert by_key(self.all()) == expected


STEPS = ("append", "append", "append", "scale", "truncate", "flush", "reopen")


def with_a_past(seed: int, steps: int, monkeypatch: pytest.MonkeyPatch) -> Case:
    case = Case(seed, monkeypatch)
    for _ in range(steps):
        getattr(case, case.random.choice(STEPS))()
    return case


@pytest.mark.parametrize(
    ("seeds", "steps"),
    [
        pytest.param(range(2), 25, id="usual"),
        pytest.param(range(2, 5), 25, id="more", marks=pytest.mark.long),
        pytest.param(range(100, 160), 50, id="many", marks=[pytest.mark.long, pytest.mark.timeout(1200)]),
    ],
)
def test_every_key_is_read_in_its_order(seeds: range, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in seeds:
        case = with_a_past(seed, steps, monkeypatch)
        case.check()
        check_cuts(case)


def check_cuts(case: Case) -> None:
    """Whatever cut there is divides the stream in two; counts and sizes are right; limits are kept."""
    snapshot = case.stream.snapshot()
    head, tail, whole = snapshot.head_cut(), snapshot.tail_cut(), case.all()
    current = {segment.id for segment in snapshot.record.current.segments}
    for number in snapshot.record.segment_ids():
        sealed = snapshot.segments.segment(number).sealed, snapshot.segments.index_segment(number).sealed
        assert sealed == (number not in current,) * 2
    assert snapshot.events() == snapshot.events_between(head, tail) == len(whole)
    assert snapshot.size() == snapshot.size_between(head, tail) == sum(8 + len(event.data) for event in whole)
    for _ in range(4):
        cut = case.cut()
        snapshot.check(cut)
        first, rest = case.all(end=cut), case.all(cut)
        assert sorted(first + rest) == sorted(whole)
        joined = by_key(first + rest)
        assert all(numbers == sorted(numbers) for numbers in joined.values())
        assert snapshot.events_between(head, cut) == len(first)
        assert snapshot.size_between(cut, tail) == sum(8 + len(event.data) for event in rest)
        if cut.positions:
            assert snapshot.earlier(cut, tail) == cut and snapshot.past_head(cut, tail) == cut
    for limit in (1, 7, 50):
        check_walk(case, snapshot, max_events=limit)
    for limit in (1, 100, 1000):
        check_walk(case, snapshot, max_bytes=limit)
    check_batches(case, snapshot)
    for timestamp in {case.now + change for change in (-25, -10, -3, -1, 0, 1)} | {0}:
        cut = snapshot.cut_at(timestamp)
        snapshot.check(cut)
        assert all(case.times[key_of(event), number_of(event)] < timestamp for event in case.all(end=cut))
        assert all(case.times[key_of(event), number_of(event)] >= timestamp for event in case.all(cut))


def check_walk(case: Case, snapshot: Snapshot, **limit: int) -> None:
    cut, tail, seen = snapshot.head_cut(), snapshot.tail_cut(), 0
    whole = snapshot.events()
    while cut != tail:
        following = snapshot.next_cut(cut, tail, **limit)
        assert following != cut
        if "max_events" in limit:
            taken = snapshot.events_between(cut, following)
            assert taken == min(limit["max_events"], whole - seen)
            seen += taken
        cut = following


def check_batches(case: Case, snapshot: Snapshot) -> None:
    """As a micro-batch reader takes them: no batch has a key's events in two segments."""
    cut, tail, found = snapshot.head_cut(), snapshot.tail_cut(), []
    while cut != tail:
        following = snapshot.up_to_scale(cut, tail)
        events = case.all(cut, following)
        homes: dict[str, set[int]] = defaultdict(set)
        for event in events:
            homes[key_of(event)].add(event.segment_id)
        assert all(len(segments) == 1 for segments in homes.values())
        assert events or following == tail, "no batch is empty but the last"
        case.random.shuffle(events)
        found += sorted(events, key=lambda event: (event.segment_id, event.offset))
        cut = following
    assert by_key(found) == by_key(case.all())


# --- scaling -----------------------------------------------------------------------------------------------------


def stream_of(segments: int) -> Stream:
    root = Root.open(f"memory://{uuid.uuid4()}", settings=SETTINGS, containers=1)
    stream = Stream(root, "sc", "st")
    assert stream.create(ScalingPolicy(min_segments=segments))
    return stream


def put(stream: Stream, first: int, end: int, planned: Routing | None = None) -> None:
    """Append events `key:number:` of all keys."""
    planned = planned or stream.snapshot().record.routing
    for number in range(first, end):
        assert stream.write(parts_for(planned, [(key, f"{key}:{number}:") for key in KEYS]), None, planned)


def test_a_scale_makes_an_epoch() -> None:
    stream = stream_of(2)
    put(stream, 0, 2)
    before = int(time.time() * 1000)
    stream.scale([1], [(0.75, 1.0), (0.5, 0.75)], expected_epoch=0)
    snapshot = stream.snapshot()
    epoch = snapshot.record.current
    assert (epoch.epoch, epoch.reference, len(snapshot.record.epochs)) == (1, 1, 2)
    assert epoch.segments == ((0, 0.0, 0.5), (segment_id(3, 1), 0.5, 0.75), (segment_id(2, 1), 0.75, 1.0))
    assert epoch.created >= before and epoch.created > snapshot.record.epochs[0].created
    assert snapshot.segments.segment(1).sealed and snapshot.segments.index_segment(1).sealed
    assert not snapshot.segments.segment(0).sealed and not snapshot.segments.index_segment(0).sealed
    assert snapshot.segments.length(1) > 0 == snapshot.segments.length(segment_id(2, 1))
    assert list(snapshot.tail_cut().positions) == [0, segment_id(2, 1), segment_id(3, 1)]
    assert list(snapshot.head_cut().positions) == [0, 1]


def test_epochs_never_go_back_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = stream_of(1)
    monkeypatch.setattr(changes, "time", SimpleNamespace(time=lambda: 5.0))
    for count in (2, 1, 2):
        scale_to(stream, count)
    created = [epoch.created for epoch in stream.snapshot().record.epochs]
    assert created == [created[0] + place for place in range(4)]


@pytest.mark.parametrize(
    ("sealed", "ranges", "told"),
    [
        ([], [(0.0, 0.5)], "give at least one segment"),
        ([0], [], "give at least one segment"),
        ([0, 0], [(0.0, 0.5)], "contains a segment twice"),
        ([7], [(0.0, 0.5)], r"segment 7\.0 is not open; the open segments are 0\.0"),
        ([0], [(0.0, 0.25), (0.3, 0.5)], "the new key ranges cover"),
        ([0], [(0.0, 0.25), (0.2, 0.5)], "overlap"),
        ([0], [(0.0, 0.6)], "the new key ranges cover"),
        ([0], [(0.0, 0.5), (0.5, 1.0)], "the new key ranges cover"),
        ([0], [(0.5, 0.0)], "is not a key range"),
        ([0], [(-0.5, 0.5)], "is not a key range"),
        ([0], [(0.0, float("nan"))], "is not a key range"),
        ([0, 1], [(0.0, 1.0)], "requires at least 2"),
    ],
    ids=str,
)
def test_scales_that_are_refused(sealed: list[int], ranges: list[tuple[float, float]], told: str) -> None:
    stream = stream_of(2)
    with pytest.raises(InvalidScale, match=told) as caught:
        stream.scale(sealed, ranges)
    assert "sc/st" in str(caught.value)
    assert len(stream.snapshot().record.epochs) == 1


def test_a_scale_of_another_epoch_is_refused() -> None:
    stream = stream_of(1)
    scale_to(stream, 2)
    with pytest.raises(InvalidScale, match="the current epoch is 1, not 0"):
        stream.scale([segment_id(1, 1)], ranges_of(2, 0.0, 0.5), expected_epoch=0)


def test_what_is_sealed_is_not_scaled_or_updated() -> None:
    stream = stream_of(1)
    scale_to(stream, 2)
    put(stream, 0, 1)
    stream.seal()
    for change in (partial(scale_to, stream, 1), stream.update, partial(put, stream, 1, 2)):
        with pytest.raises(StreamSealed, match="sc/st"):
            change()
    snapshot = stream.snapshot()
    assert all(snapshot.segments.index_segment(segment.id).sealed for segment in snapshot.record.current.segments)


def test_update() -> None:
    stream = stream_of(3)
    stream.update(ScalingPolicy(min_segments=2), tags=["a", "b"])
    record = stream.snapshot().record
    assert (record.scaling.min_segments, record.tags, record.retention) == (2, ("a", "b"), None)
    stream.update(None, None, ())
    assert stream.snapshot().record.scaling == ScalingPolicy()


def test_an_update_of_the_scaling_policy_scales() -> None:
    """The steps of Pravega's StreamMetadataTasksTest.updateStreamSegmentCount…: 3, 2, then 3, 3, and 7."""
    stream = stream_of(2)

    def segments(policy: ScalingPolicy) -> list[tuple[float, float]]:
        stream.update(policy)
        record = stream.snapshot().record
        assert record.scaling == policy
        return [(segment.low, segment.high) for segment in record.current.segments]

    assert segments(ScalingPolicy.fixed_scaling_policy(3)) == even_ranges(3)
    assert segments(ScalingPolicy.fixed_scaling_policy(2)) == even_ranges(2)
    assert segments(ScalingPolicy.auto_scaling_policy_by_event_rate(1, 2, 3)) == even_ranges(3)
    assert segments(ScalingPolicy.auto_scaling_policy_by_event_rate(1, 2, 1)) == even_ranges(3)
    assert segments(ScalingPolicy.auto_scaling_policy_by_event_rate(1, 2, 7)) == even_ranges(7)
    epochs = stream.snapshot().record.epochs
    assert [len(epoch.segments) for epoch in epochs] == [2, 3, 2, 3, 7]
    stream.update(retention=None, tags=["a"])
    assert stream.snapshot().record.epochs == epochs


def test_a_scaled_stream_made_again_goes_on_with_other_numbers() -> None:
    stream = stream_of(2)
    scale_to(stream, 3)
    put(stream, 0, 1)
    planned = stream.snapshot().record.routing
    stream.truncate(stream.snapshot().tail_cut())
    stream.seal()
    stream.delete()
    assert not [name for name in stream.container.refresh().segments if name.startswith("sc/st")]
    stream.create()
    assert list(stream.snapshot().head_cut().positions) == [5]
    with pytest.raises(StreamNotFound, match="sc/st"):
        put(stream, 0, 1, planned)
    assert by_key(read_events(stream)) == {}


def test_a_record_without_room_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = stream_of(1)
    monkeypatch.setattr(changes, "MAX_VALUE", 500)
    with pytest.raises(InvalidScale, match="Truncate the stream"):
        for _ in range(100):
            scale_to(stream, 1)
    assert len(stream.snapshot().record.epochs) > 5
    stream.truncate(stream.snapshot().tail_cut())
    assert len(stream.snapshot().record.epochs) == 1
    scale_to(stream, 1)


# --- truncating --------------------------------------------------------------------------------------------------


def three_epochs() -> Stream:
    """1 -> 3 -> 2 segments, with events in all of them."""
    stream = stream_of(1)
    put(stream, 0, 2)
    scale_to(stream, 3)
    put(stream, 2, 4)
    stream.scale([s.id for s in stream.snapshot().record.current.segments[:2]], [(0.0, 2 / 3)])
    put(stream, 4, 5)
    return stream


def test_truncating_deletes_what_lies_wholly_before() -> None:
    stream = three_epochs()
    snapshot = stream.snapshot()
    head, tail = snapshot.head_cut(), snapshot.tail_cut()
    upper = segment_id(3, 1)
    mixed = StreamCut(
        "sc", "st", {segment_id(1, 1): 0, segment_id(2, 1): snapshot.segments.length(segment_id(2, 1)), upper: 0}
    )
    stream.truncate(mixed)
    state = stream.container.state.segments
    assert "sc/st/0.#epoch.0" not in state and "sc/st/0.#epoch.0#index" not in state
    assert state["sc/st/1.#epoch.1"].start_offset == 0
    assert state["sc/st/2.#epoch.1"].start_offset == state["sc/st/2.#epoch.1"].length > 0
    assert state["sc/st/2.#epoch.1#index"].start_offset == state["sc/st/2.#epoch.1#index"].length
    assert [epoch.epoch for epoch in stream.snapshot().record.epochs] == [1, 2]
    with pytest.raises(InvalidStreamCut, match="behind previous truncation point"):
        stream.truncate(head)
    before = stream.snapshot().record
    stream.truncate(mixed)
    assert stream.snapshot().record == before, "a truncation at the head changes nothing"
    stream.truncate(tail)
    assert stream.snapshot().record.segment_ids() == sorted(tail.positions)
    for old in (head, mixed):
        with pytest.raises(InvalidStreamCut, match="behind previous truncation point"):
            stream.truncate(old)
    names = [name for name in stream.container.state.segments if name.startswith("sc/st/")]
    assert len(names) == 4 and len(stream.snapshot().record.epochs) == 1


@pytest.mark.parametrize("positions", [{0: 5}, {0: 10_000}, {0: -1}, {1: 0}, {0: 0, segment_id(1, 1): 0}], ids=str)
def test_truncating_at_what_is_no_cut(positions: dict[int, int]) -> None:
    stream = three_epochs()
    with pytest.raises(InvalidStreamCut, match="sc/st"):
        stream.truncate(StreamCut("sc", "st", positions))
    assert by_key(read_events(stream)) == {key: list(range(5)) for key in KEYS}


def truncated_at(stream: Stream, boundaries: Sequence[tuple[int, int]]) -> StreamCut:
    """The least cut behind the beginnings of these events: segments and offsets."""
    history = stream.snapshot().record.history
    positions = stream.snapshot().head_cut().positions
    for number, offset in boundaries:
        least = dict(positions)
        wanted = {number}
        while not wanted <= least.keys():
            for each in sorted(least):
                followers = {segment.id for segment in history.successors(each)}
                group = {segment.id for f in followers for segment in history.predecessors(f)}
                if followers and each < max(wanted) and group <= least.keys():
                    least = {n: at for n, at in least.items() if n not in group} | dict.fromkeys(followers, 0)
                    break
        positions = history.later(positions, {n: (offset if n == number else at) for n, at in least.items()})
    return StreamCut("sc", "st", positions)


@pytest.mark.parametrize("order", ["forwards", "shuffled"])
def test_truncating_at_every_event(order: str) -> None:
    """Three epochs; at each event, in order or not: what is read afterwards is what lies behind it."""
    stream = three_epochs()
    url = stream.root.stores.chunks.root
    events = list(read_events(stream))
    chosen = list(events)
    if order == "shuffled":
        random.Random(5).shuffle(chosen)
    everything = by_key(events)
    refused = 0
    for event in chosen:
        history = stream.snapshot().record.history
        if event.segment_id not in history.segments:
            refused += 1
            continue
        cut = truncated_at(stream, [(event.segment_id, event.offset)])
        expected = [e for e in events if is_behind(history, cut, e)]
        stream.truncate(cut)
        stream = Stream(Root.open(url, settings=SETTINGS), "sc", "st")
        left = list(read_events(stream))
        assert left == expected
        for key, numbers in by_key(left).items():
            assert numbers == everything[key][len(everything[key]) - len(numbers) :]
        assert stream.snapshot().head_cut() == cut
        assert stream.snapshot().events() == len(left)
    assert (refused > 0) == (order == "shuffled")


def is_behind(history: object, cut: StreamCut, event: Event) -> bool:
    """Whether an event lies behind a cut."""
    segments, positions = history.segments, cut.positions  # type: ignore[attr-defined]
    if event.segment_id not in segments:
        return False
    if event.segment_id in positions:
        return event.offset >= positions[event.segment_id]
    return event.segment_id not in history.before(positions)  # type: ignore[attr-defined]


# --- cuts of which something is gone -----------------------------------------------------------------------------


def test_what_was_lost_is_named() -> None:
    """Reading from a cut whose segments were deleted: an error that names one, or what is left."""
    stream = three_epochs()
    snapshot = stream.snapshot()
    head, tail, old = snapshot.head_cut(), snapshot.tail_cut(), StreamCut("sc", "st", {0: 15})
    stream.truncate(StreamCut("sc", "st", dict.fromkeys(tail.positions, 0)))
    with pytest.raises(
        TruncatedData, match=r"sc/st, segment 0\.0: the data from offset 0 on has been truncated"
    ) as caught:
        read_events(stream, head)
    assert (caught.value.segment_id, caught.value.start, caught.value.end) == (0, 0, None)
    with pytest.raises(TruncatedData, match=r"segment 0\.0: the data between offsets 0 and 15"):
        read_events(stream, head, old)
    later = stream.snapshot()
    ranges, losses = later.available(later.ranges(old, tail), fail_on_data_loss=False)
    assert ranges == {number: (0, tail.positions[number]) for number in tail.positions}
    assert [(loss.segment_id, loss.start, loss.end) for loss in losses] == [(0, 15, None)]
    assert later.past_head(old, tail) == later.head_cut()
    with pytest.raises(InvalidStreamCut, match="must precede"):
        read_events(stream, tail, old)


def test_who_had_read_all_that_was_deleted_has_lost_nothing() -> None:
    stream = three_epochs()
    end = stream.snapshot().tail_cut()
    scale_to(stream, 2)
    scale_to(stream, 2)
    tail = stream.snapshot().tail_cut()
    stream.truncate(stream.snapshot().up_to_scale(end, tail))
    assert stream.snapshot().head_cut() == tail, "the segments between are empty"
    assert list(read_events(stream, end)) == [], "nothing was in them"

    put(stream, 5, 6)
    end = stream.snapshot().tail_cut()
    one, other = sorted(end.positions)
    scale_to(stream, 3)
    tail = stream.snapshot().tail_cut()
    stream.truncate(tail)
    assert list(read_events(stream, end)) == []
    put(stream, 6, 7)
    assert by_key(read_events(stream, end)) == {key: [6] for key in KEYS}
    with pytest.raises(TruncatedData):
        read_events(stream, StreamCut("sc", "st", {one: 0, other: end.positions[other]}))
    first = min(tail.positions)
    stream.truncate(StreamCut("sc", "st", {**tail.positions, first: stream.snapshot().segments.length(first)}))
    with pytest.raises(TruncatedData, match=re.escape(f"segment {segment_label(one)}:")):
        read_events(stream, end)


# --- writes that were planned before a scale ---------------------------------------------------------------------


def test_a_merged_segment_takes_what_was_meant_for_its_parts() -> None:
    stream = stream_of(4)
    stream.update(ScalingPolicy.auto_scaling_policy_by_event_rate(1, 2, 1))  # which allows one segment
    planned = stream.snapshot().record.routing
    put(stream, 0, 1)
    scale_to(stream, 1)
    put(stream, 1, 2)
    put(stream, 2, 3, planned)
    assert by_key(read_events(stream)) == {key: [0, 1, 2] for key in KEYS}
    assert stream.snapshot().record.current.epoch == 1, "no epoch was made for it"


def test_a_split_segment_gets_two_epochs_for_what_was_meant_for_it() -> None:
    stream = stream_of(2)
    planned = stream.snapshot().record.routing
    put(stream, 0, 1)
    scale_to(stream, 3)
    put(stream, 1, 2)
    others = stream.snapshot().record.routing
    put(stream, 2, 3, planned)
    record = stream.snapshot().record
    assert [(epoch.epoch, epoch.reference) for epoch in record.epochs] == [(0, 0), (1, 1), (2, 0), (3, 1)]
    assert [segment[1:] for segment in record.epochs[2].segments] == [segment[1:] for segment in planned.segments]
    assert [segment.id for segment in record.current.segments] == [segment_id(n, 3) for n in (2, 3, 4)]
    put(stream, 3, 4, others)
    assert stream.snapshot().record.current.epoch == 3, "who was planned for the same ranges needs no epochs"
    put(stream, 4, 5, planned)
    assert stream.snapshot().record.current.epoch == 5
    assert by_key(read_events(stream)) == {key: list(range(5)) for key in KEYS}
    again = Stream(Root.open(stream.root.stores.chunks.root, settings=SETTINGS), "sc", "st")
    assert again.snapshot().record == stream.snapshot().record


def test_without_a_plan_the_caller_hears_of_it() -> None:
    stream = stream_of(1)
    parts = parts_for(stream.snapshot().record.routing, [(KEYS[0], "x:0:")])
    scale_to(stream, 2)
    with pytest.raises(SegmentSealed):
        stream.write(parts)


def test_a_replay_is_known_whatever_became_of_the_stream() -> None:
    """Of each batch of a named writer, planned by any epoch and repeated by any other, the first counts (X3)."""
    stream = stream_of(2)
    plans = []
    for batch in range(6):
        plans.append(stream.snapshot().record.routing)
        scale_to(stream, 2 + batch % 3)
        for place, planned in enumerate([plans[0], *plans]):
            events = [(key, f"{key}:{batch}:") for key in KEYS]
            assert stream.write(parts_for(planned, events), ProducerWrite("query", batch), planned) == (place == 0)
    stream.seal()
    assert not stream.write(parts_for(plans[0], [(KEYS[0], "again:0:")]), ProducerWrite("query", 5), plans[0])
    assert by_key(read_events(stream)) == {key: list(range(6)) for key in KEYS}


# --- crashes -----------------------------------------------------------------------------------------------------


def root_on(store: Store) -> Root:
    return Root(Stores(store, store), RootConfig("root", containers=1), Settings(maintenance=False, threaded=False))


Step = Callable[[Stream], object]


def workload() -> list[Step]:
    """Scales, truncations and writes that were planned before, each of which has to happen once, wholly."""
    plans: list[Routing] = []

    def write(number: int, plan: int) -> Step:
        def step(stream: Stream) -> None:
            while len(plans) <= plan:
                plans.append(stream.snapshot().record.routing)
            stream.write(
                parts_for(plans[plan], [(key, f"{key}:{number}:") for key in KEYS]),
                ProducerWrite("w", number),
                plans[plan],
            )

        return step

    def scale(epoch: int, count: int) -> Step:
        def step(stream: Stream) -> None:
            if stream.snapshot().record.current.epoch == epoch:
                scale_to(stream, count)

        return step

    def truncate(events: int) -> Step:
        def step(stream: Stream) -> None:
            snapshot = stream.snapshot()
            goal = snapshot.next_cut(snapshot.head_cut(), snapshot.tail_cut(), max_events=snapshot.events() - events)
            if snapshot.events() > events:
                stream.truncate(goal)

        return step

    def flush(stream: Stream) -> None:
        stream.container.flush()

    return [
        lambda stream: stream.create(ScalingPolicy(min_segments=1)),
        write(0, 0),
        scale(0, 3),
        write(1, 1),
        flush,
        write(2, 0),
        truncate(18),
        scale(3, 2),
        write(3, 2),
        flush,
        truncate(5),
        write(4, 1),
        scale(6, 1),
        truncate(3),
        write(5, 0),
        lambda stream: stream.snapshot().record.sealed or stream.seal(),
    ]


def go_on(stream: Stream, steps: Sequence[Step], done: list[int]) -> None:
    while done[0] < len(steps):
        steps[done[0]](stream)
        done[0] += 1


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(37, id="every 37th"),
        pytest.param(1, id="all", marks=[pytest.mark.long, pytest.mark.timeout(1200)]),
    ],
)
def test_a_crash_at_any_request(step: int) -> None:
    """The step under way happened wholly or not at all; done again by another process, the stream is as ever."""
    whole = FaultStore(SimulatedStore(0))
    go_on(Stream(root_on(whole), "sc", "st"), workload(), [0])
    expected = outcome(Stream(root_on(whole.inner), "sc", "st"))
    read = expected[0]
    assert sum(map(len, read.values())) == 15 and all(numbers == [4, 5][-len(numbers) :] for numbers in read.values())
    points = [(number, when) for number in range(1, whole.passed + 1) for when in ("before", "after")]
    for number, when in points[::step]:
        inner, done, steps = SimulatedStore(0), [0], workload()
        crashing = FaultStore(inner, crash_at(number, when))  # type: ignore[arg-type]
        with pytest.raises(Crashed):
            go_on(Stream(root_on(crashing), "sc", "st"), steps, done)
        go_on(Stream(root_on(inner), "sc", "st"), steps, done)
        found = outcome(Stream(root_on(inner), "sc", "st"))
        assert found == expected, f"crash {when} request {number}, in step {done[0]}"
    assert len(points[::step]) > 60 // step


def outcome(stream: Stream) -> tuple[dict[str, list[int]], object]:
    """What is there after all: each key's events, the segments of the stream, and how they follow each other."""
    snapshot = stream.snapshot()
    record = snapshot.record
    names = sorted(name for name in snapshot.state.segments if name.startswith("sc/st"))
    epochs = [(epoch.epoch, epoch.reference, epoch.segments) for epoch in record.epochs]
    return by_key(read_events(stream)), (names, epochs, record.head, record.sealed, snapshot.tail_cut())
