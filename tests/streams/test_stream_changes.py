"""Changes of a stream whose container has a new log, and what the records and segments are after each change."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from chunkstore.errors import StorageFull
from chunkstore.testing import SimulatedStore
from engine.containers.container import Container
from engine.errors import BadKeyVersion, SegmentNotFound, SegmentSealed
from engine.root import Root, RootConfig
from engine.settings import Settings
from engine.state.operations import Payload, PutEntry
from engine.state.segments import EVENT_COUNT, Extent
from engine.storage.object_reads import Stores
from pravega_spark.errors import (
    InvalidScale,
    InvalidStreamCut,
    StreamNotFound,
    StreamNotSealed,
    StreamSealed,
    TooManySegments,
)
from pravega_spark.segment_ids import MAX_NUMBER, segment_epoch, segment_id, segment_number
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.model.framing import frame_column
from pravega_spark.streams.model.index import sparse_records
from pravega_spark.streams.model.policies import ScalingPolicy
from pravega_spark.streams.model.stream_record import UNCHANGED, Generation, Routing, StreamUpdate
from pravega_spark.streams.model.system_tables import STREAMS
from pravega_spark.streams.stream import Stream
from pravega_spark.streams.writing import changes, transactions, uploads
from pravega_spark.streams.writing.changes import LEAST_GAP, MOST_GAP, after_gap
from pravega_spark.streams.writing.event_order import Interleaving, StoredOrder
from pravega_spark.streams.writing.producer_state import ProducerWrite
from pravega_spark.streams.writing.writes import SegmentAppend, StreamWrite, write_together
from tests.streams.test_transactions import parts, read


@pytest.fixture
def root() -> Root:
    store = SimulatedStore(0)
    config = RootConfig("root", containers=1, max_segments=6)
    return Root(Stores(store, store), config, Settings(maintenance=False, threaded=False))


@pytest.fixture
def stream(root: Root) -> Stream:
    made = Stream(root, "sc", "st")
    made.create(ScalingPolicy(min_segments=2))
    return made


@pytest.fixture
def restored(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Gives containers another generation, as a restore does."""
    return lambda name: monkeypatch.setattr(Container, "generation", name)


def write(stream: Stream, *events: str) -> None:
    routing = stream.snapshot().record.routing
    stream.write(parts(routing, *events), planned=routing)


def append(segment: int, *events: str) -> SegmentAppend:
    framed = frame_column(pa.array(events), None, 1)
    return SegmentAppend(segment, Payload(framed.data.to_pybytes()), sparse_records(framed.lengths, 0), len(events))


def current(stream: Stream) -> list[int]:
    return [segment.id for segment in stream.snapshot().record.current.segments]


def ranges(stream: Stream, epoch: int = -1) -> list[tuple[float, float]]:
    return [(segment.low, segment.high) for segment in stream.snapshot().record.epochs[epoch].segments]


def open_names(stream: Stream) -> list[str]:
    """All segments of the stream, and of their indexes, that are not sealed."""
    found = stream.container.refresh().segments
    return sorted(name for name, segment in found.items() if name.startswith("sc/st/") and not segment.sealed)


def names_of(segments: list[int]) -> list[str]:
    names = [f"sc/st/{segment_number(each)}.#epoch.{segment_epoch(each)}" for each in segments]
    return sorted([*names, *(f"{name}#index" for name in names)])


# --- generations -------------------------------------------------------------------------------------------------


def test_the_first_write_of_a_generation_replaces_all_segments(stream: Stream, restored: Callable[[str], None]) -> None:
    write(stream, "a", "z")
    first = stream.snapshot().record
    restored("second")
    write(stream, "b", "y")
    now = stream.snapshot().record
    assert ranges(stream) == [(0.0, 0.5), (0.5, 1.0)]
    assert [segment_epoch(each) for each in current(stream)] == [1, 1]
    one, other = map(segment_number, current(stream))
    assert other == one + 1 and 2 + LEAST_GAP <= one < 2 + MOST_GAP
    assert now.generations == (Generation(first.generation.name, 0), Generation("second", 1))
    assert open_names(stream) == names_of(current(stream))
    write(stream, "c")
    assert stream.snapshot().record == now
    assert read(stream) == ["a", "z", "b", "c", "y"]


def test_a_scale_of_a_generation_replaces_the_other_segments_too(
    stream: Stream, restored: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    restored("second")
    monkeypatch.setattr(changes, "time", SimpleNamespace(time=lambda: 5e9))
    stream.scale([0], [(0.25, 0.5), (0.0, 0.25)], expected_epoch=0)
    now = stream.snapshot().record
    assert now.current.created == 5_000_000_000_000
    assert ranges(stream) == [(0.0, 0.25), (0.25, 0.5), (0.5, 1.0)]
    assert len(now.epochs) == 2 and now.generations[1:] == (Generation("second", 1),)
    assert min(map(segment_number, current(stream))) >= 2 + LEAST_GAP
    assert open_names(stream) == names_of(current(stream))


def test_a_sealed_stream_begins_no_generation(stream: Stream, restored: Callable[[str], None]) -> None:
    stream.seal()
    before = stream.snapshot().record
    stream.seal()
    restored("second")
    stream.begin_generation()
    with pytest.raises(StreamSealed):
        write(stream, "a")
    assert stream.snapshot().record == before


def test_a_truncation_drops_generations_whose_epochs_are_gone(stream: Stream, restored: Callable[[str], None]) -> None:
    tails = []
    for name in ("second", "third"):
        write(stream, "a", "z")
        tails.append(stream.snapshot().tail_cut())
        restored(name)
    stream.scale([stream.snapshot().record.current.segments[0].id], [(0.0, 0.5)])
    stream.scale([stream.snapshot().record.current.segments[0].id], [(0.0, 0.5)])
    found = []
    for cut in (*tails, stream.snapshot().tail_cut()):
        stream.truncate(cut)
        record = stream.snapshot().record
        found.append([(each.name, each.epoch) for each in record.generations[-2:]])
        assert len(record.generations) <= len(record.epochs)
    assert found == [[("second", 1), ("third", 2)], [("second", 1), ("third", 2)], [("third", 2)]]


def test_a_write_planned_before_a_restore_uses_no_number_again(stream: Stream, restored: Callable[[str], None]) -> None:
    """Lost segments may have had the numbers (P4), so both of its epochs have new ones. In a generation they do not."""
    planned = stream.snapshot().record.routing
    restored("second")
    stream.scale([0], [(0.0, 0.25), (0.25, 0.5)])
    before = set(stream.snapshot().record.segment_ids())
    numbers = {segment_number(each) for each in before}
    stream.write(parts(planned, "a", "z"), planned=planned)
    record = stream.snapshot().record
    assert [(epoch.epoch, epoch.reference) for epoch in record.epochs] == [(0, 0), (1, 1), (2, 2), (3, 3)]
    made = [segment for epoch in record.epochs[2:] for segment in epoch.segments]
    assert {segment_number(segment.id) for segment in made} & numbers == set()
    assert len({segment_number(segment.id) for segment in made}) == len(made)
    assert ranges(stream, 2) == [(0.0, 0.5), (0.5, 1.0)]
    assert ranges(stream) == [(0.0, 0.25), (0.25, 0.5), (0.5, 1.0)]
    assert open_names(stream) == names_of(current(stream))
    routing = record.routing
    stream.scale([current(stream)[0]], [(0.0, 0.125), (0.125, 0.25)])
    stream.write(parts(routing, "a"), planned=routing)
    again = stream.snapshot().record.epochs
    assert [epoch.reference for epoch in again[4:]] == [4, 3, 4]
    assert [segment_number(s.id) for s in again[5].segments] == [segment_number(s.id) for s in again[3].segments]


def test_numbers_follow_a_random_gap_until_they_are_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {after_gap("sc/st", 5, 1) for _ in range(20)}
    assert len(found) > 1 and all(5 + LEAST_GAP <= each < 5 + MOST_GAP for each in found)
    monkeypatch.setattr(os, "urandom", bytes)
    last = MAX_NUMBER - LEAST_GAP - 3
    assert after_gap("sc/st", last, 3) == last + LEAST_GAP
    with pytest.raises(InvalidScale, match="are used up"):
        after_gap("sc/st", last, 4)
    monkeypatch.setattr(os, "urandom", lambda count: (MOST_GAP - LEAST_GAP - 1).to_bytes(count, "big"))
    assert after_gap("sc/st", 0, 1) == MOST_GAP - 1


# --- policies, seals and deletions ------------------------------------------------------------------------------


def test_an_update_of_a_policy_with_enough_segments_scales_nothing(stream: Stream) -> None:
    rate = ScalingPolicy.auto_scaling_policy_by_event_rate
    for policy, segments in ((rate(1, 2, 2), 2), (rate(1, 2, 1), 2), (ScalingPolicy(min_segments=2), 2)):
        stream.update(policy)
        assert (len(current(stream)), len(stream.snapshot().record.epochs)) == (segments, 1)
    stream.update(ScalingPolicy(min_segments=3))
    assert open_names(stream) == names_of(current(stream))
    assert len(current(stream)) == 3
    record = stream.planned_update(lambda _: StreamUpdate(UNCHANGED, UNCHANGED, ("a",)))
    assert (record.tags, record.scaling) == (("a",), ScalingPolicy(min_segments=3))
    assert stream.snapshot().record.tags == ()


def test_a_sealed_stream_is_not_changed(stream: Stream) -> None:
    write(stream, "a", "z")
    stream.seal()
    before = stream.snapshot().record
    assert open_names(stream) == []
    calls: list[Callable[[], None]] = [
        lambda: stream.update(tags=["a"]),
        lambda: stream.scale([0], [(0.0, 0.5)]),
        lambda: stream.truncate(StreamCut("sc", "st", {0: 9, 1: 9})),
    ]
    for call in calls:
        with pytest.raises(StreamSealed, match="sc/st"):
            call()
    assert stream.snapshot().record == before


def test_a_stream_has_no_more_segments_than_its_root_allows(stream: Stream) -> None:
    """Nor does it get a policy that would let it begin with more."""
    with pytest.raises(TooManySegments):
        stream.update(ScalingPolicy(min_segments=7))
    bounds = [number / 6 for number in range(7)]
    with pytest.raises(TooManySegments):
        stream.scale([0, 1], [*pairwise([*bounds[:6], 0.9, 1.0])])
    assert len(stream.snapshot().record.epochs) == 1
    stream.scale([0, 1], [*pairwise([*bounds[:6], 1.0])])
    stream.update(ScalingPolicy(min_segments=6))
    assert len(current(stream)) == 6


def test_a_scale_leaves_at_least_the_minimum_of_segments(stream: Stream) -> None:
    with pytest.raises(InvalidScale, match="requires at least 2"):
        stream.scale([0, 1], [(0.0, 1.0)])
    stream.scale([0, 1], [(0.0, 0.9), (0.9, 1.0)])
    assert ranges(stream) == [(0.0, 0.9), (0.9, 1.0)]


def test_a_deleted_stream_leaves_nothing(root: Root, stream: Stream) -> None:
    neighbour = Stream(root, "sc", "st2")
    neighbour.create(ScalingPolicy(min_segments=2))
    write(neighbour, "n")
    write(stream, "a", "z")
    stream.write([append(0, "b"), append(1, "y")], ProducerWrite("job", 1), interleaving=mixed(0, 1))
    stream.scale([0], [(0.0, 0.5)])
    upload = uploads.begin(stream, "key", "large")
    upload.attach(Payload(b"12345"))
    upload.settle()
    with pytest.raises(StreamNotSealed):
        stream.delete()
    stream.seal()
    stream.delete()
    left = stream.container.refresh().segments
    assert [name for name in left if name.startswith("sc/st") and not name.startswith("sc/st2")] == []
    assert read(neighbour) == ["n"]
    stream.create()
    assert current(stream) == [3]
    with pytest.raises(StreamNotSealed):
        neighbour.delete()


def test_a_stream_with_a_damaged_record_is_deleted_whatever_it_was(root: Root, stream: Stream) -> None:
    """Its next namesake continues after the highest number of its segments."""
    neighbour = Stream(root, "sc", "st2")
    neighbour.create(ScalingPolicy(min_segments=2))
    write(neighbour, "n")
    stream.write([append(0, "b"), append(1, "y")], interleaving=mixed(0, 1))
    transactions.begin(stream)
    stream.scale([0], [(0.0, 0.25), (0.25, 0.5)])
    stream.container.commit([PutEntry(STREAMS, "sc/st", b"\xc1", stream.snapshot().record.version)])
    stream.delete()
    left = stream.container.refresh().segments
    assert [name for name in left if name.startswith("sc/st") and not name.startswith("sc/st2")] == []
    stream.create(ScalingPolicy(min_segments=2))
    assert current(stream) == [4, 5]
    assert list(transactions.transactions(stream)) == []
    assert (read(stream), read(neighbour)) == ([], ["n"])


# --- events of earlier epochs -----------------------------------------------------------------------------------


def test_parts_of_several_routings_keep_their_order(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each that follows one with an epoch of its own gets one, too, whatever its segments."""
    first = stream.snapshot().record.routing
    stream.scale([0], [(0.0, 0.25), (0.25, 0.5)])
    second = stream.snapshot().record.routing
    stream.scale([segment.id for segment in second.segments[:2]], [(0.0, 0.3), (0.3, 0.5)])
    third = stream.snapshot().record.routing
    monkeypatch.setattr(changes, "time", SimpleNamespace(time=lambda: 1.0))
    planned = enumerate((first, second, third))
    write = StreamWrite(stream, [(each, parts(each, f"a{number}", f"z{number}")) for number, each in planned])
    write_together([write])
    record = stream.snapshot().record
    assert [(epoch.epoch, epoch.reference) for epoch in record.epochs[3:]] == [(3, 0), (4, 1), (5, 2), (6, 2)]
    created = record.epochs[2].created
    assert [epoch.created for epoch in record.epochs[3:]] == [created + each for each in (1, 2, 3, 4)]
    events = read(stream)
    assert sorted(events) == ["a0", "a1", "a2", "z0", "z1", "z2"]
    assert [event[1] for event in events] == ["0", "0", "1", "1", "2", "2"]
    assert open_names(stream) == names_of(current(stream))


def test_a_part_without_events_asks_for_no_epoch(stream: Stream) -> None:
    planned = stream.snapshot().record.routing
    stream.scale([0], [(0.0, 0.25), (0.25, 0.5)])
    stream.write(parts(planned, "z"), planned=planned)
    assert len(stream.snapshot().record.epochs) == 2
    assert read(stream) == ["z"]


def test_a_write_planned_for_a_deleted_stream_goes_to_no_other(stream: Stream) -> None:
    planned = stream.snapshot().record.routing
    stream.seal()
    with pytest.raises(StreamSealed):
        stream.write(parts(planned, "a"), planned=planned)
    stream.delete()
    for create in (False, True):
        if create:
            stream.create(ScalingPolicy(min_segments=2))
        with pytest.raises(StreamNotFound):
            stream.write(parts(planned, "a"), planned=planned)
    assert read(stream) == []


def test_without_a_routing_a_write_goes_to_its_segments_or_nowhere(stream: Stream) -> None:
    routing = stream.snapshot().record.routing
    stream.scale([0], [(0.0, 0.5)])
    for wrong, error in ((0, SegmentSealed), (77, SegmentNotFound)):
        with pytest.raises(error):
            stream.write([append(wrong, "a")])
    with pytest.raises(SegmentSealed):  # although another part has a routing
        write_together([StreamWrite(stream, [(routing, parts(routing, "z")), (None, [append(0, "a")])])])
    assert read(stream) == []


# --- writes to several streams -----------------------------------------------------------------------------------


@pytest.fixture
def other(root: Root) -> Stream:
    made = Stream(root, "sc", "other")
    made.create(ScalingPolicy(min_segments=1))
    return made


def planned_write(stream: Stream, number: int | None, *events: str, routing: Routing | None = None) -> StreamWrite:
    planned = routing or stream.snapshot().record.routing
    producer = ProducerWrite("job", number) if number is not None else None
    return StreamWrite(stream, [(planned, parts(planned, *events))], producer)


def test_of_writes_together_those_that_are_committed_are_left_out(stream: Stream, other: Stream) -> None:
    write_together([planned_write(stream, 1, "a")])
    again, new = planned_write(stream, 1, "a"), planned_write(other, 1, "b")
    write_together([again, new])
    assert (again.new, new.new) == (False, True)
    both = [planned_write(stream, 1, "a"), planned_write(other, 1, "b")]
    write_together(both)
    assert [each.new for each in both] == [False, False]
    assert (read(stream), read(other)) == (["a"], ["b"])


def test_writes_together_are_routed_again_if_one_of_the_streams_was_scaled(stream: Stream, other: Stream) -> None:
    old = other.snapshot().record.routing
    other.scale([0], [(0.0, 0.5), (0.5, 1.0)])
    write_together([planned_write(stream, None, "a", "z"), planned_write(other, None, "b", routing=old)])
    assert (read(stream), read(other)) == (["a", "z"], ["b"])
    other.seal()
    with pytest.raises(StreamSealed, match="sc/other"):
        write_together([planned_write(stream, None, "c"), planned_write(other, None, "d", routing=old)])
    assert read(stream) == ["a", "z"]


def test_a_full_storage_takes_no_event(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(container: Container) -> None:
        raise StorageFull("full")

    monkeypatch.setattr(Container, "check_room", full)
    with pytest.raises(StorageFull):
        write(stream, "a")
    assert read(stream) == []


def test_events_are_counted_and_measured(stream: Stream) -> None:
    write(stream, "a", "bb", "z")
    counts = [stream.container.info(f"sc/st/{n}.#epoch.0").attributes[EVENT_COUNT] for n in (0, 1)]
    assert counts == [2, 1]
    assert append(0, "a", "bb").size == 9 + 10
    extents = (Extent("chunk", 0, 7, b""), Extent("chunk", 7, 5, b""))
    assert SegmentAppend(0, extents, np.empty((0, 4), np.int64), 1).size == 12


# --- the order of events, and what a truncation leaves of it ----------------------------------------------------


def mixed(*segments: int) -> Interleaving:
    """An event of each segment, the last one first."""
    return Interleaving(segments, np.arange(len(segments))[::-1].astype(np.uint8))


def ordered(stream: Stream, *segments: int) -> int:
    """Write an event to each segment, the last one first. Returns the number of the append."""
    stream.write([append(each, "x") for each in segments], interleaving=mixed(*segments))
    known = stream.snapshot().segments
    record = known.index(segments[0]).locate_offset(known.length(segments[0]))
    assert record is not None
    return record.append


def test_a_truncation_leaves_the_order_of_all_events_after_it(stream: Stream) -> None:
    appends = [ordered(stream, 0, 1), ordered(stream, 0, 1)]
    stream.scale([0], [(0.0, 0.25), (0.25, 0.5)])
    stream.scale([current(stream)[0]], [(0.0, 0.25)])  # no event is written between
    low, high = (each for each in current(stream) if each != 1)
    appends += [ordered(stream, low, high), ordered(stream, 1, high)]

    def left() -> list[int]:
        order = StoredOrder(stream.snapshot())
        return [place for place, number in enumerate(appends) if order.of(number) is not None]

    assert left() == [0, 1, 2, 3]
    found = []
    for cut in ({0: 9, 1: 0}, {0: 9, 1: 9}, {0: 18, 1: 18}, {low: 9, high: 9, 1: 18}, {low: 9, high: 18, 1: 27}):
        stream.truncate(StreamCut("sc", "st", cut))
        found.append(left())
    assert found == [[0, 1, 2, 3], [1, 2, 3], [2, 3], [3], []]
    assert not StoredOrder(stream.snapshot()).has_entries
    with pytest.raises(InvalidStreamCut, match="behind previous truncation point"):
        stream.truncate(StreamCut("sc", "st", {low: 9, high: 9, 1: 18}))


def test_a_truncation_cuts_segments_and_their_indexes_at_the_same_event(stream: Stream) -> None:
    for event in ("a", "b", "z"):
        write(stream, event)
    stream.truncate(StreamCut("sc", "st", {0: 9, 1: 0}))
    state = stream.container.refresh().segments
    starts = {name: state[name].start_offset for name in names_of([0, 1])}
    record = state["sc/st/0.#epoch.0#index"].length // 2
    assert starts == dict(zip(names_of([0, 1]), (9, record, 0, 0), strict=True))
    assert stream.snapshot().record.passed == 9
    assert stream.snapshot().events() == 2
    stream.truncate(stream.snapshot().tail_cut())
    assert stream.snapshot().record.passed == 27
    assert read(stream) == []


def test_a_change_of_another_version_of_the_record_is_refused(stream: Stream) -> None:
    change = changes.seal(stream.snapshot()).committed("sc/st")
    stream.update(tags=["a"])
    with pytest.raises(BadKeyVersion):
        stream.container.commit(change)
    assert not stream.snapshot().record.sealed
    assert segment_id(0, 0) in current(stream)
