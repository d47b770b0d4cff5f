"""What a snapshot tells of a stream, against brute force: odd sizes, many appends, flushed, truncated, reopened."""

from __future__ import annotations

import random
import uuid
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest

from engine.containers.container import Container
from engine.errors import SegmentSealed
from engine.logs.transaction import Receipt
from engine.root import Root
from engine.settings import Settings
from engine.state.operations import Operation, Payload
from pravega_spark.errors import InvalidStreamCut, StreamNotFound, StreamNotSealed, StreamSealed, TruncatedData
from pravega_spark.segment_ids import segment_label
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.model.events import HEADER_SIZE
from pravega_spark.streams.model.index import sparse_records
from pravega_spark.streams.model.policies import ScalingPolicy
from pravega_spark.streams.reading.scan import SliceReader
from pravega_spark.streams.reading.slices import ScanSlice, plan_slices
from pravega_spark.streams.stream import Stream
from pravega_spark.streams.writing.writes import SegmentAppend, StreamWrite, write_together
from tests.large_events import put_small
from tests.support import limits

SETTINGS = Settings(maintenance=False, threaded=False)
SPACING = 100


class Model:
    """The events of each segment: payloads, where they begin, when they were written, and where index records lie."""

    def __init__(self, segments: int) -> None:
        self.payloads: dict[int, list[bytes]] = {number: [] for number in range(segments)}
        self.times: dict[int, list[int]] = {number: [] for number in range(segments)}
        self.bounds: dict[int, list[int]] = {number: [0] for number in range(segments)}
        self.records: dict[int, list[int]] = {number: [] for number in range(segments)}
        self.head = dict.fromkeys(range(segments), 0)

    def part(self, number: int, payloads: list[bytes], time: int) -> SegmentAppend:
        """Remember events, and return what appends them."""
        for payload in payloads:
            self.payloads[number].append(payload)
            self.times[number].append(time)
            self.bounds[number].append(self.bounds[number][-1] + HEADER_SIZE + len(payload))
        framed = b"".join(bytes(4) + len(payload).to_bytes(4, "big") + payload for payload in payloads)
        records = sparse_records(np.array([HEADER_SIZE + len(payload) for payload in payloads]), time, SPACING)
        start = self.bounds[number][-1] - len(framed)
        self.records[number] += (start + records[:, 0]).tolist()
        return SegmentAppend(number, Payload(framed), records, len(payloads))

    def readable(self, number: int) -> list[int]:
        """Where events begin or end that can be read."""
        return [bound for bound in self.bounds[number] if bound >= self.head[number]]

    def count(self, number: int, offset: int) -> int:
        return self.bounds[number].index(offset)

    def between(self, start: StreamCut, end: StreamCut) -> dict[int, list[bytes]]:
        return {
            number: payloads[self.count(number, start.positions[number]) : self.count(number, end.positions[number])]
            for number, payloads in self.payloads.items()
        }


class Case:
    """A stream in a root of its own, and the model of it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.url = f"memory://{uuid.uuid4()}"
        self.segments = self.random.choice((1, 2, 3))
        self.model = Model(self.segments)
        self.time = 1000
        self.reopen()
        assert self.stream.create(ScalingPolicy(min_segments=self.segments))

    def reopen(self) -> None:
        self.root = Root.open(self.url, settings=SETTINGS, containers=1, grace_seconds=1e-6)
        self.stream = Stream(self.root, "sc", "st")

    def append(self) -> None:
        """One write to some segments, with events from empty to several times the index's spacing."""
        self.time += self.random.choice((0, 1, 10))
        chosen = self.random.sample(range(self.segments), self.random.randint(1, self.segments))
        sizes = self.random.choice(([0, 1, 5], [10, 60], [0, 92, 93, 450], [300]))
        parts = []
        for number in chosen:
            count = self.random.choice((1, 1, 3, 20))
            payloads = [self.random.randbytes(self.random.choice(sizes)) for _ in range(count)]
            parts.append(self.model.part(number, payloads, self.time))
        assert self.stream.write(parts)

    def cut(self, low: StreamCut | None = None) -> StreamCut:
        """Any cut at event boundaries, not before `low`."""
        positions = {}
        for number in range(self.segments):
            first = low.positions[number] if low is not None else 0
            positions[number] = self.random.choice([b for b in self.model.readable(number) if b >= first])
        return StreamCut("sc", "st", positions)

    def truncate(self) -> None:
        cut = self.cut()
        self.stream.truncate(cut)
        self.model.head = dict(cut.positions)


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices that are large enough for the index, read in several steps."""
    limits.scanned_at_a_time(monkeypatch, 500, 200)


def with_a_past(seed: int) -> Case:
    """A stream that has been written, flushed, truncated and reopened in some order."""
    case = Case(seed)
    for _ in range(case.random.randint(0, 12)):
        case.append()
    for _ in range(3):
        step = case.random.choice(("flush", "truncate", "reopen", "append"))
        if step == "flush":
            case.stream.container.flush()
        else:
            getattr(case, step)()
    for _ in range(case.random.randint(0, 6)):
        case.append()
    return case


@pytest.fixture(params=range(8))
def case(request: pytest.FixtureRequest) -> Case:
    """A stream for a test that changes it."""
    return with_a_past(request.param)


@pytest.fixture(params=range(12), scope="module")
def settled(request: pytest.FixtureRequest) -> Case:
    """A stream that tests only look at."""
    return with_a_past(request.param)


def cuts_from(case: Case) -> Iterator[tuple[StreamCut, StreamCut]]:
    """Some pairs of cuts in order, the whole stream first."""
    snapshot = case.stream.snapshot()
    yield snapshot.head_cut(), snapshot.tail_cut()
    for _ in range(5):
        start = case.cut()
        yield start, case.cut(start)


def test_ends_size_and_events(settled: Case) -> None:
    snapshot, model = settled.stream.snapshot(), settled.model
    assert snapshot.head_cut().positions == model.head
    assert snapshot.tail_cut().positions == {number: bounds[-1] for number, bounds in model.bounds.items()}
    assert snapshot.size() == sum(bounds[-1] - model.head[number] for number, bounds in model.bounds.items())
    assert snapshot.events() == sum(len(model.readable(number)) - 1 for number in model.bounds)


def test_count_before_and_index_position(settled: Case) -> None:
    snapshot, model = settled.stream.snapshot(), settled.model
    for number in model.bounds:
        for offset in model.readable(number):
            assert snapshot.segments.count_before(number, offset) == model.count(number, offset)
            expected = sum(record <= offset for record in model.records[number])
            assert snapshot.segments.index_position(number, offset) == expected


def test_next_cut_by_events_is_exact(settled: Case) -> None:
    snapshot, model = settled.stream.snapshot(), settled.model
    for start, end in cuts_from(settled):
        left = {number: len(events) for number, events in model.between(start, end).items()}
        total = sum(left.values())
        for limit in {1, 7, max(total - 1, 1), total + 1}:
            cut = snapshot.next_cut(start, end, max_events=limit)
            taken = {number: len(events) for number, events in model.between(start, cut).items()}
            assert sum(taken.values()) == min(limit, total)
            for number, count in taken.items():
                assert abs(count - left[number] * min(limit, total) / max(total, 1)) <= 1


def test_next_cut_by_bytes_is_the_next_record(settled: Case) -> None:
    snapshot, model = settled.stream.snapshot(), settled.model
    for start, end in cuts_from(settled):
        total = sum(end.positions[number] - offset for number, offset in start.positions.items())
        for limit in (1, 50, 333, 5000, total or 1, total + 1):
            cut = snapshot.next_cut(start, end, max_bytes=limit)
            for number, low in start.positions.items():
                high = end.positions[number]
                reached = cut.positions[number]
                if limit >= total:
                    assert reached == high
                    continue
                share = (high - low) * limit // total  # or one more, of what rounding left over
                records = [record for record in model.records[number] if record < high]
                places = {bisect_left(records, low + part) for part in (max(share, 1), share + 1)}
                assert reached in {[*records, high][place] for place in places}


@pytest.mark.parametrize("limit", [{"max_bytes": 1}, {"max_bytes": 700}, {"max_events": 3}, {"max_events": 13}])
def test_next_cuts_lead_to_the_end(settled: Case, limit: dict[str, int]) -> None:
    snapshot = settled.stream.snapshot()
    cut, end = snapshot.head_cut(), snapshot.tail_cut()
    while cut != end:
        following = snapshot.next_cut(cut, end, **limit)
        assert cut.precedes(following) and cut != following
        cut = following


def test_cut_at_divides_by_time(settled: Case) -> None:
    snapshot, model = settled.stream.snapshot(), settled.model
    for time in range(999, settled.time + 2):
        cut = snapshot.cut_at(time)
        for number, offset in cut.positions.items():
            index = model.count(number, offset)
            assert all(written < time for written in model.times[number][:index] if offset > model.head[number])
            assert all(written >= time for written in model.times[number][index:])


def test_scan_reads_what_lies_between(settled: Case) -> None:
    snapshot = settled.stream.snapshot()
    for start, end in cuts_from(settled):
        for target in (1, 300, 1 << 20):
            planned = plan_slices(snapshot, snapshot.ranges(start, end), target)
            assert collected(settled.stream, planned, start, end) == settled.model.between(start, end)


def collected(
    stream: Stream, planned: list[ScanSlice], start: StreamCut, end: StreamCut, reader: SliceReader | None = None
) -> dict[int, list[bytes]]:
    """The payloads that slices hold, by segment; none may be missing in between."""
    found: dict[int, list[bytes]] = {number: [] for number in start.positions}
    reached = dict(start.positions)
    for events in (reader or SliceReader(stream.root, "sc", "st")).read(planned):
        for begin, length in zip(events.starts.tolist(), events.lengths.tolist(), strict=True):
            assert events.offset + begin == reached[events.segment_id]
            reached[events.segment_id] += HEADER_SIZE + length
            found[events.segment_id].append(bytes(events.data[begin + HEADER_SIZE :][:length]))
    assert reached == dict(end.positions)
    return found


def test_planned_slices_are_found_again_where_they_were_moved(case: Case) -> None:
    for _ in range(10):
        case.append()
    snapshot, container = case.stream.snapshot(), case.stream.container
    start, end = snapshot.head_cut(), snapshot.tail_cut()
    planned = plan_slices(snapshot, snapshot.ranges(start, end), 400)
    container.flush()
    container.checkpoint()
    container.checkpoint()
    container.truncate_log()  # what this one sees is old for the next one
    assert container.truncate_log()
    assert collected(case.stream, planned, start, end) == case.model.between(start, end)


def test_what_is_left_of_a_planned_slice_is_read_where_loss_is_passed_over(case: Case) -> None:
    """It was truncated within, and its objects are gone."""
    for _ in range(10):
        case.append()
    snapshot, container = case.stream.snapshot(), case.stream.container
    start, end = snapshot.head_cut(), snapshot.tail_cut()
    planned = plan_slices(snapshot, snapshot.ranges(start, end), 1 << 30)
    middle = snapshot.next_cut(start, end, max_events=snapshot.events_between(start, end) // 2)
    case.stream.truncate(middle)
    container.flush()
    container.checkpoint()
    container.checkpoint()
    container.truncate_log()  # what this one sees is old for the next one
    assert container.truncate_log()
    reader = SliceReader(case.root, "sc", "st", fail_on_data_loss=False)
    assert collected(case.stream, planned, middle, end, reader) == case.model.between(middle, end)
    with pytest.raises(TruncatedData):
        collected(case.stream, planned, middle, end)


def test_a_range_that_lies_before_the_head_is_empty() -> None:
    case = Case(1)
    cuts = [case.stream.snapshot().tail_cut()]
    for _ in range(2):
        case.append()
        cuts.append(case.stream.snapshot().tail_cut())
    case.stream.truncate(cuts[2])
    later = case.stream.snapshot()
    found, losses = later.available(later.ranges(cuts[0], cuts[1]), fail_on_data_loss=False)
    assert found == {number: (offset, offset) for number, offset in cuts[1].positions.items()} and losses


def test_what_may_go_nowhere_else_is_refused_with_all_that_is_written_with_it() -> None:
    """Of two writes in one append the one says by what it was routed; the other has no keys to go by after a scale."""
    with Root.open(f"memory://{uuid.uuid4()}", settings=SETTINGS, containers=1) as root:
        stream = Stream(root, "sc", "st")
        stream.create(ScalingPolicy(min_segments=1))
        put_small(stream, b"before")
        routing = stream.snapshot().record.routing
        part = Model(1).part(0, [b"event"], 1)
        writes = [StreamWrite(stream, [(planned, [part])]) for planned in (routing, None)]
        stream.scale([0], [(0.0, 1.0)])
        with pytest.raises(SegmentSealed):
            write_together(writes)
        assert stream.snapshot().events() == 1


def test_loss_is_told_of_a_segment_that_ended_nobody_knows_where() -> None:
    """It was deleted by a truncation within its successor."""
    with Root.open(f"memory://{uuid.uuid4()}", settings=SETTINGS, containers=1) as root:
        stream = Stream(root, "sc", "st")
        stream.create(ScalingPolicy(min_segments=1))
        put_small(stream, b"read", b"lost")
        read = StreamCut("sc", "st", {0: HEADER_SIZE + 4})
        stream.scale([0], [(0.0, 1.0)])
        (following,) = stream.snapshot().record.current.segments
        put_small(stream, b"lost", b"kept", segment=following.id)
        stream.truncate(StreamCut("sc", "st", {following.id: HEADER_SIZE + 4}))
        snapshot = stream.snapshot()
        _, losses = snapshot.available(snapshot.ranges(read, snapshot.tail_cut()), fail_on_data_loss=False)
        assert [(loss.segment_id, loss.start) for loss in losses] == [(0, HEADER_SIZE + 4), (following.id, 0)]


def test_a_range_that_was_truncated_is_named(case: Case) -> None:
    case.append()
    snapshot = case.stream.snapshot()
    start, end = snapshot.head_cut(), snapshot.tail_cut()
    case.stream.truncate(end)
    later = case.stream.snapshot()
    with pytest.raises(TruncatedData, match="sc/st, segment"):
        later.available(later.ranges(start, end))
    found, losses = later.available(later.ranges(start, end), fail_on_data_loss=False)
    assert found == {number: (offset, offset) for number, offset in end.positions.items()}
    assert {(loss.segment_id, loss.start, loss.end) for loss in losses} == {
        (number, offset, end.positions[number])
        for number, offset in start.positions.items()
        if offset < end.positions[number]
    }


def test_truncating_twice_changes_nothing_and_going_back_is_refused(case: Case) -> None:
    case.append()
    head, tail = case.stream.snapshot().head_cut(), case.stream.snapshot().tail_cut()
    case.stream.truncate(tail)
    before = case.stream.snapshot()
    case.stream.truncate(tail)
    assert case.stream.snapshot().head_cut() == before.head_cut() == tail
    with pytest.raises(InvalidStreamCut, match="behind previous truncation point"):
        case.stream.truncate(head)


def test_a_stream_made_again_goes_on_with_other_segments() -> None:
    case = Case(1)
    case.append()
    with pytest.raises(StreamNotSealed):
        case.stream.delete()
    case.stream.seal()
    case.stream.seal()
    with pytest.raises(StreamSealed):
        case.stream.truncate(case.stream.snapshot().tail_cut())
    case.stream.delete()
    assert not case.stream.exists()
    with pytest.raises(StreamNotFound):
        case.stream.snapshot()
    assert case.stream.create(ScalingPolicy(min_segments=2))
    assert list(case.stream.snapshot().head_cut().positions) == [case.segments, case.segments + 1]
    assert not case.stream.create()
    names = [name for name in case.stream.snapshot().state.segments if name.startswith("sc/st")]
    assert len(names) == 2 * 2 + 1


def beforehand(stream: Stream, monkeypatch: pytest.MonkeyPatch, rival: Callable[[], object]) -> None:
    """Let `rival` act, once, just before what `stream` commits next: through another process's eyes."""
    commit = Container.commit

    def commit_later(container: Container, operations: Sequence[Operation]) -> Receipt:
        if container is stream.container and rivals:
            rivals.pop()()
        return commit(container, operations)

    rivals = [rival]
    monkeypatch.setattr(Container, "commit", commit_later)


def test_changes_are_made_again_when_another_process_was_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    case, other = Case(1), Case(1)
    other.url = case.url
    other.reopen()
    case.append()
    tail = case.stream.snapshot().tail_cut()
    beforehand(case.stream, monkeypatch, lambda: other.stream.truncate(tail))
    case.stream.seal()
    assert other.stream.snapshot().record.sealed
    assert other.stream.snapshot().head_cut() == tail
    beforehand(case.stream, monkeypatch, other.stream.delete)
    with pytest.raises(StreamNotFound):
        case.stream.delete()


def test_no_segment_number_is_used_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes make a stream; between the look and the append of one, the other makes and deletes it."""
    case, other = Case(1), Case(1)
    other.url = case.url
    other.reopen()
    case.stream.seal()
    case.stream.delete()

    def make_and_delete() -> None:
        assert other.stream.create()
        other.stream.seal()
        other.stream.delete()

    beforehand(case.stream, monkeypatch, make_and_delete)
    assert case.stream.create()
    assert list(case.stream.snapshot().head_cut().positions) == [case.segments + 1]


def test_truncating_inside_an_event_is_refused(case: Case) -> None:
    case.append()
    snapshot, model = case.stream.snapshot(), case.model
    number = max(model.bounds, key=lambda number: model.bounds[number][-1] - model.head[number])
    offsets = range(model.head[number], model.bounds[number][-1] + 1)
    for offset in {*case.random.choices(offsets, k=20), *case.random.choices(model.readable(number), k=10)}:
        assert snapshot.segments.is_boundary(number, offset) == (offset in model.bounds[number])
    positions = {**snapshot.tail_cut().positions, number: model.bounds[number][-1] - 1}
    with pytest.raises(InvalidStreamCut, match=f"no event of segment {segment_label(number)} begins"):
        case.stream.truncate(StreamCut("sc", "st", positions))
