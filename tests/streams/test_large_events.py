"""Large events among small ones: found by the index, left out or read by scans, counted when ranges are divided."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from chunkstore.testing import CountingStore
from engine.root import Root
from engine.settings import Settings
from engine.state.index_records import RECORD_SIZE
from engine.storage.object_reads import ObjectRange, Stores
from pravega_spark.errors import InvalidStreamCut
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.model.events import HEADER_SIZE, InvalidEvent, event_header
from pravega_spark.streams.model.index import WIDEST_GAP
from pravega_spark.streams.model.policies import ScalingPolicy
from pravega_spark.streams.reading import indexed_segments, object_ranges, scan
from pravega_spark.streams.reading.large_events import (
    HEADER_COST,
    NONE_LEFT_OUT,
    SkippedEvent,
    find_skipped_events,
    gaps,
)
from pravega_spark.streams.reading.scan import SliceReader
from pravega_spark.streams.reading.slices import Events, plan_slices
from pravega_spark.streams.stream import Stream
from tests.large_events import MiB, content, put_large, put_small
from tests.support import limits

LARGE = 9 * MiB
BLOCK = MiB


@pytest.fixture
def stream() -> Iterator[Stream]:
    with Root.open(f"memory://{uuid.uuid4()}", settings=Settings(maintenance=False, threaded=False)) as root:
        stream = Stream(root, "s", "t")
        stream.create(ScalingPolicy(min_segments=2))
        yield stream


def scanned(stream: Stream, wanted: int | None = None, target: int = 1 << 30, numbered: bool = False) -> list[Events]:
    """What a scan of the first segment gives, with data that stays."""
    snapshot = stream.snapshot()
    ranges = {0: (snapshot.segments.segment(0).start_offset, snapshot.segments.length(0))}
    reader = SliceReader(stream.root, "s", "t", wanted=wanted)
    planned = plan_slices(snapshot, ranges, target, numbered=numbered)
    return [found._replace(data=memoryview(bytes(found.data))) for found in reader.read(planned)]


def listed(found: list[Events]) -> list[tuple[int, int, bytes | None]]:
    """Offset, length and payload of each event; None for one that was left out."""
    events = []
    for some in found:
        for start, length in zip(some.starts.tolist(), some.lengths.tolist(), strict=True):
            begin = start + HEADER_SIZE
            payload = bytes(some.data[begin : begin + length]) if len(some.data) else None
            assert payload is None or len(payload) == length
            events.append((some.offset + start, length, payload))
    return events


def mixed(stream: Stream) -> list[bytes]:
    """Small events, and large ones: between them, next to each other, and at the end."""
    payloads = [b"a" * 100] * 50, [content(LARGE, 1)], [b"b" * 20_000, b""], [content(LARGE + 5, 2)], [content(LARGE)]
    for some in payloads:
        if len(some[0]) >= LARGE:
            put_large(stream, some[0][: 5 * MiB], some[0][5 * MiB :])
        else:
            put_small(stream, *some)
    return [payload for some in payloads for payload in some]


# --- scans -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flushed", [False, True])
def test_all_are_read_in_order(stream: Stream, flushed: bool) -> None:
    payloads = mixed(stream)
    if flushed:
        stream.container.flush()
    found = scanned(stream)
    assert [payload for _, _, payload in listed(found)] == payloads
    assert [some.large for some in found] == [False, True, False, True, True]


@pytest.mark.parametrize("flushed", [False, True])
def test_of_what_is_not_wanted_only_the_headers_are_read(
    stream: Stream, flushed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    payloads = mixed(stream)
    if flushed:
        stream.container.flush()
    counting = CountingStore(stream.root.stores.chunks)
    stores = Stores(stream.root.stores.log, counting)
    monkeypatch.setattr(stream.root, "stores", stores)
    found = scanned(stream, wanted=LARGE)
    left_out = [payload if len(payload) <= LARGE else None for payload in payloads]
    assert [payload for _, _, payload in listed(found)] == left_out
    all_of_it = counting.bytes_read
    assert all_of_it >= 2 * LARGE
    found = scanned(stream, wanted=LARGE - 1)
    assert [payload for _, _, payload in listed(found)] == [p if len(p) < LARGE else None for p in payloads]
    assert [some.lengths.tolist() for some in found if some.large] == [[LARGE], [LARGE + 5], [LARGE]]
    assert counting.bytes_read - all_of_it <= 3 * BLOCK + 100_000


def test_a_large_event_is_not_fetched_before_its_turn(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of them would be twice the memory."""
    mixed(stream)
    fetched: list[int] = []
    whole = object_ranges.fetch_whole

    def spy(stores: Stores, found: tuple[ObjectRange, ...]) -> list[memoryview]:
        fetched.append(sum(piece.taken for piece in found))
        return whole(stores, found)

    monkeypatch.setattr(scan, "fetch_whole", spy)
    snapshot = stream.snapshot()
    events = SliceReader(stream.root, "s", "t").read(
        plan_slices(snapshot, {0: (0, snapshot.segments.length(0))}, 1 << 30)
    )
    counts = [len(fetched) for _ in events]
    assert counts == [0, 1, 1, 2, 3]


def test_an_error_names_the_one_object_with_the_event(stream: Stream) -> None:
    """Not each of those that were fetched with it."""
    for _ in range(20):
        put_small(stream, b"before")
    put_large(stream, b"damaged", header=b"\0\0\0\1" + (7).to_bytes(4, "big"))
    for _ in range(20):
        put_small(stream, b"after")
    with pytest.raises(InvalidEvent, match="wrong type: 1") as caught:
        scanned(stream)
    [chunk] = [
        info.path for info in stream.root.stores.chunks.list("s/t/") if b"damaged" in _content(stream, info.path)
    ]
    assert str(caught.value).count("s/t/") == 1
    assert f"segment 0.0, in {chunk}: " in str(caught.value)
    assert "/wal/" not in str(caught.value)


def _content(stream: Stream, path: str) -> bytes:
    return stream.root.stores.chunks.read(path)


@pytest.mark.parametrize("wanted", [None, MiB])
def test_a_header_that_the_index_contradicts_is_an_error(stream: Stream, wanted: int | None) -> None:
    put_small(stream, b"x")
    put_large(stream, content(LARGE), header=event_header(LARGE + 1))
    put_small(stream, b"y")
    with pytest.raises(InvalidEvent, match=rf"Event of length {LARGE + 1} runs over the end .* \(event at offset 9\)"):
        scanned(stream, wanted)
    put_large(stream, content(LARGE), segment=1, header=b"\0\0\0\1" + LARGE.to_bytes(4, "big"))
    planned = plan_slices(stream.snapshot(), {1: (0, LARGE + 8)}, 1 << 30)
    with pytest.raises(InvalidEvent, match="wrong type: 1"):
        list(SliceReader(stream.root, "s", "t", wanted=wanted).read(planned))


def test_small_events_between_far_records_are_read(stream: Stream) -> None:
    """An index that is sparser than ours costs memory, not events."""
    put_large(stream, b"a" * 5 * MiB + event_header(5 * MiB) + b"b" * 5 * MiB, header=event_header(5 * MiB))
    for wanted in (None, MiB):
        found = scanned(stream, wanted)
        assert [payload for _, _, payload in listed(found)] == [b"a" * 5 * MiB, b"b" * 5 * MiB]
        assert not found[0].large


def test_numbers_and_times(stream: Stream) -> None:
    for number, time in enumerate((100, 300, 200)):
        put_small(stream, *[b"x" * 3000] * 30, time=time)
        put_large(stream, content(LARGE, number), time=time + 1)
    found = scanned(stream, wanted=MiB, numbered=True)
    numbers = [some.first + at for some in found for at in range(len(some.starts))]
    times = [time for some in found for time in (some.times.tolist() if some.times is not None else ())]
    assert numbers == list(range(93))
    assert times == [100] * 30 + [101] + [300] * 30 + [301] + [200] * 30 + [201]
    plain = scanned(stream, wanted=MiB)
    assert all(some.first == -1 and some.times is None for some in plain)


@pytest.mark.parametrize("seed", range(3))
def test_numbers_and_times_of_any_range(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against brute force: ranges between any two events, after truncation, in small slices and steps."""
    chance = random.Random(seed)
    limits.scanned_at_a_time(monkeypatch, 500, chance.choice([0, 5000]))
    monkeypatch.setattr(scan, "WIDEST_GAP", 20_000)
    monkeypatch.setattr(indexed_segments, "WIDEST_GAP", 20_000)
    with Root.open(f"memory://{uuid.uuid4()}", settings=Settings(maintenance=False, threaded=False)) as root:
        stream = Stream(root, "s", "t")
        stream.create()
        bounds, times, sizes = [0], [], []
        for time in range(25):
            if chance.random() < 0.3:
                some = [chance.randrange(20_001, 50_000)]
                put_large(stream, content(some[0]), time=time)
            else:
                some = [chance.randrange(300) for _ in range(chance.randrange(1, 40))]
                put_small(stream, *[content(size) for size in some], time=time)
            if chance.random() < 0.2:
                root.container(stream.number).flush()
            times += [time] * len(some)
            sizes += some
        for size in sizes:
            bounds.append(bounds[-1] + HEADER_SIZE + size)
        head = 0
        for _ in range(12):
            if chance.random() < 0.3:
                head = chance.randrange(head, len(sizes))
                stream.truncate(StreamCut("s", "t", {0: bounds[head]}))
            first, end = sorted(chance.sample(range(head, len(bounds)), 2))
            snapshot = stream.snapshot()
            planned = plan_slices(snapshot, {0: (bounds[first], bounds[end])}, 20_000, numbered=True)
            seen = []
            for events in SliceReader(root, "s", "t", wanted=chance.choice([None, 30_000])).read(planned):
                assert events.times is not None
                for at, (start, time) in enumerate(zip(events.starts.tolist(), events.times.tolist(), strict=True)):
                    seen.append((events.first + at, events.offset + start, time))
            assert seen == [(number, bounds[number], times[number]) for number in range(first, end)]


# --- dividing ----------------------------------------------------------------------------------------------------


def test_what_is_left_out_counts_next_to_nothing() -> None:
    left_out = SkippedEvent(np.array([1000, 500 * MiB]), np.array([1000 + 300 * MiB, 900 * MiB]))
    assert left_out.size(0, 1000) == 1000
    assert left_out.size(1000, 1000 + 300 * MiB) == HEADER_COST
    assert left_out.size(0, 1000 * MiB) == 300 * MiB + 2 * HEADER_COST
    assert left_out.behind(0, 1000) == 1000
    assert 1000 < left_out.behind(0, 1500) <= 1000 + HEADER_COST
    assert left_out.behind(0, 1000 + HEADER_COST + 7) == 1000 + 300 * MiB + 7
    assert left_out.behind(1000 + 300 * MiB, 5) == 1000 + 300 * MiB + 5
    assert (NONE_LEFT_OUT.size(3, 10), NONE_LEFT_OUT.behind(3, 7)) == (7, 10)


@given(st.lists(st.tuples(st.integers(0, 5 * MiB), st.integers(2 * MiB, 99 * MiB)), max_size=8), st.data())
@settings(max_examples=60, deadline=None)
def test_behind_is_the_inverse_of_size(parts: list[tuple[int, int]], data: st.DataObject) -> None:
    starts, ends, at = [], [], 0
    for between, size in parts:
        starts.append(at + between)
        at = starts[-1] + size
        ends.append(at)
    left_out = SkippedEvent(np.array(starts, np.int64), np.array(ends, np.int64))
    low = data.draw(st.sampled_from([0, *ends]))
    reached = left_out.behind(low, data.draw(st.integers(1, 50 * MiB)))
    inside = [(start, end) for start, end in zip(starts, ends, strict=True) if start < reached < end]
    if not inside:
        assert left_out.behind(low, left_out.size(low, reached)) == reached
    else:
        assert reached <= inside[0][0] + HEADER_COST


def test_the_large_ones_are_found(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    limits.least_sought(monkeypatch, 5000)
    bounds = []
    chance = random.Random(5)
    for number in range(40):
        put_small(stream, *[b"x" * chance.randrange(200)] * 20)
        if number % 7 == 3:
            start = stream.snapshot().segments.length(0)
            put_large(stream, content(chance.randrange(6000, 30_000)))
            bounds.append((start, stream.snapshot().segments.length(0)))
    snapshot = stream.snapshot()
    for limit in (0, 7000, 15_000):
        found = find_skipped_events(snapshot.segments, 0, 0, snapshot.segments.length(0), limit)
        wanted = [(low, high) for low, high in bounds if high - low - HEADER_SIZE > limit]
        assert list(zip(found.starts.tolist(), found.ends.tolist(), strict=True)) == wanted
    found = find_skipped_events(snapshot.segments, 0, bounds[1][1], bounds[3][0], 0)
    assert list(zip(found.starts.tolist(), found.ends.tolist(), strict=True)) == [bounds[2]]
    assert find_skipped_events(snapshot.segments, 1, 0, 0, 100).starts.tolist() == []


def test_sizes_without_what_is_left_out() -> None:
    at = 1000 * 1000 + LARGE + 8
    ends = np.arange(1, 5) * at
    left_out = SkippedEvent(ends - LARGE - 8, ends)
    assert left_out.size(0, 4 * at) == 4 * (1000 * 1000 + HEADER_COST)
    assert left_out.size(at, 2 * at) == 1000 * 1000 + HEADER_COST
    assert left_out.behind(0, 1000) == 1000
    assert left_out.behind(0, 1000 * 1000 + HEADER_COST + 1000) == at + 1000


def test_gaps() -> None:
    boundaries = np.array([10, 20, 50, 60, 90, 120])
    assert list(gaps(boundaries, 5, 120, 25)) == [
        (5, 20, False),
        (20, 50, True),
        (50, 60, False),
        (60, 90, True),
        (90, 120, True),
    ]
    assert list(gaps(boundaries, 5, 120, 40)) == [(5, 120, False)]
    assert list(gaps(np.empty(0, np.int64), 5, 50, 40)) == [(5, 50, True)]


# --- places ------------------------------------------------------------------------------------------------------


def test_limits_by_bytes_stop_before_a_large_event(stream: Stream) -> None:
    put_small(stream, *[b"x" * 992] * 100)
    put_large(stream, content(LARGE))
    put_small(stream, *[b"y" * 992] * 100)
    snapshot = stream.snapshot()
    cut, tail, offsets = snapshot.head_cut(), snapshot.tail_cut(), []
    while cut != tail:
        cut = snapshot.next_cut(cut, tail, max_bytes=110_000)
        offsets.append(cut.positions[0])
    assert offsets == [100_000, 100_000 + LARGE + 8, 200_000 + LARGE + 8]


def test_at_least_one_event_goes_and_no_more_large_ones(stream: Stream) -> None:
    for segment in (0, 1):
        for _ in range(2):
            put_large(stream, content(LARGE), segment=segment)
    snapshot = stream.snapshot()
    cut, tail, taken = snapshot.head_cut(), snapshot.tail_cut(), []
    while cut != tail:
        following = snapshot.next_cut(cut, tail, max_bytes=1)
        taken.append(snapshot.size_between(cut, following))
        cut = following
    assert taken == [LARGE + 8] * 4


def test_what_was_taken_before_a_scale_is_enough(stream: Stream) -> None:
    """A large event that begins the next stage is not forced upon a batch that has something."""
    put_small(stream, b"x" * 992, segment=0)
    put_small(stream, b"x" * 992, segment=1)
    stream.scale([0, 1], [(0.0, 0.3), (0.3, 1.0)])
    segment, _ = stream.snapshot().record.current.segments
    put_large(stream, content(LARGE), segment=segment.id)
    snapshot = stream.snapshot()
    head, tail = snapshot.head_cut(), snapshot.tail_cut()
    first = snapshot.next_cut(head, tail, max_bytes=5000)
    assert snapshot.size_between(head, first) == 2000
    assert snapshot.next_cut(first, tail, max_bytes=5000) == tail


def test_limits_by_events_count_large_ones_without_reading_them(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_small(stream, *[b"x" * 992] * 100)
    put_large(stream, content(LARGE))
    put_small(stream, *[b"y" * 992] * 10)
    snapshot = stream.snapshot()
    head, tail = snapshot.head_cut(), snapshot.tail_cut()
    at = [snapshot.next_cut(head, tail, max_events=number).positions[0] for number in (99, 100, 101, 102)]
    assert at == [99_000, 100_000, 100_000 + LARGE + 8, 101_000 + LARGE + 8]
    counting = CountingStore(stream.root.stores.chunks)
    monkeypatch.setattr(stream.container, "stores", Stores(stream.root.stores.log, counting))
    assert snapshot.events_between(head, tail) == 111
    assert snapshot.segments.is_boundary(0, 100_000) and snapshot.segments.is_boundary(0, 100_000 + LARGE + 8)
    assert not snapshot.segments.is_boundary(0, 100_001) and not snapshot.segments.is_boundary(0, 100_000 + 5 * MiB)
    with pytest.raises(InvalidStreamCut, match=r"no event of segment 0\.0 begins at offset 200000"):
        snapshot.check_boundaries(StreamCut("s", "t", {0: 200_000, 1: 0}))
    assert counting.bytes_read <= BLOCK


# --- pieces ------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(0, 3 * BLOCK), st.integers(1, 20 * BLOCK)), min_size=1, max_size=5),
    st.integers(2 * BLOCK, 9 * BLOCK),
)
@settings(max_examples=60, deadline=None)
def test_windows(parts: list[tuple[int, int]], size: int) -> None:
    """All of it once, in order, no window larger than asked for, no block in two of them."""
    whole = [ObjectRange(False, str(n), 0, skip + taken, b"", skip, taken) for n, (skip, taken) in enumerate(parts)]
    found = list(object_ranges.windows(whole, size))
    flat = [piece for window in found for piece in window]
    assert sum(piece.taken for piece in flat) == sum(taken for _, taken in parts)
    places = {str(n): skip for n, (skip, _) in enumerate(parts)}
    for window in found:
        assert 0 < sum(piece.taken for piece in window) <= size
    for piece, following in zip(flat, [*flat[1:], None], strict=True):
        assert piece.skip == places[piece.path] and piece.taken > 0
        places[piece.path] += piece.taken
        if following is not None and following.path == piece.path:
            assert places[piece.path] % BLOCK == 0
    assert object_ranges.between(whole, 0, 1 << 40) == whole
    middle = object_ranges.between(whole, 5, sum(taken for _, taken in parts) - 5)
    assert sum(piece.taken for piece in middle) == max(sum(taken for _, taken in parts) - 10, 0)


def test_the_index_has_what_is_relied_on(stream: Stream) -> None:
    """A record exactly before and exactly after each large event."""
    mixed(stream)
    snapshot = stream.snapshot()
    index = snapshot.segments.index_segment(0)
    offsets = snapshot.segments.index(0).records(0, index.length // RECORD_SIZE)[:, 0].tolist()
    for offset, length, _ in listed(scanned(stream)):
        if length + HEADER_SIZE > WIDEST_GAP:
            assert {offset, offset + HEADER_SIZE + length} <= {0, *offsets}


@pytest.mark.parametrize("stray", [1, 7])
def test_a_slice_without_an_index_ends_with_a_whole_event(stream: Stream, stray: int) -> None:
    """What is less than a header is not passed over in silence."""
    put_small(stream, b"first", b"second")
    end = HEADER_SIZE + len(b"first") + stray
    (whole,) = plan_slices(stream.snapshot(), {0: (0, stream.snapshot().segments.length(0))}, 1 << 30)
    pieces = tuple(object_ranges.between(whole.pieces, 0, end))
    part = whole._replace(end=end, pieces=pieces, records=(), indexed=False)
    with pytest.raises(InvalidEvent, match=rf"runs over the end .*\(event at offset {end - stray}\)"):
        list(SliceReader(stream.root, "s", "t").read([part]))
