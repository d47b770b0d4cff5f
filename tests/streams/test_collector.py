"""Collected rows: to which segments they go, what becomes of them, and the appends that commit them."""

from __future__ import annotations

import math
import time

import numpy as np
import pyarrow as pa
import pytest

from chunkstore import Store
from chunkstore.chunk_names import made_for
from chunkstore.testing import SimulatedStore
from engine.state.index_records import THIS_APPEND
from engine.state.operations import Payload
from engine.state.segments import Extent
from pravega_spark.streams.model.epochs import StreamSegmentRecord
from pravega_spark.streams.model.events import MAX_EVENT_SIZE, event_header
from pravega_spark.streams.model.framing import frame_column
from pravega_spark.streams.model.routing import even_ranges, hash_key
from pravega_spark.streams.model.stream_record import Routing
from pravega_spark.streams.writing.collector import Collector
from pravega_spark.streams.writing.digests import Digest
from pravega_spark.streams.writing.route_targets import RouteTarget, RouteTargets, StreamTargets
from pravega_spark.streams.writing.segment_outputs import SegmentOutput, appends_of
from tests.support import limits


def routing(segments: int, first: int = 0) -> Routing:
    ranges = enumerate(even_ranges(segments), first)
    return Routing(b"x" * 16, 0, tuple(StreamSegmentRecord(number, low, high) for number, (low, high) in ranges))


def routes_to(*segments: int) -> RouteTargets:
    """To streams a, b and so on of so many segments, each in a container of its own."""
    routes = RouteTargets()
    for container, (stream, count) in enumerate(zip("abc", segments, strict=False)):
        routes.add(stream, routing(count), container)
    return routes


# --- targets ------------------------------------------------------------------------------------------------------


def test_the_targets_of_streams_lie_side_by_side() -> None:
    routes = RouteTargets()
    assert routes.known("a") is None
    one, other = routing(2), routing(1, first=7)
    assert routes.add("a", one, 3) == StreamTargets(0, [0.5, 1.0]) == routes.known("a")
    assert routes.add("b", other, 4) == StreamTargets(2, [1.0]) == routes.known("b")
    assert routes.targets == [RouteTarget("a", 0, 3), RouteTarget("a", 1, 3), RouteTarget("b", 7, 4)]
    assert routes.planned == {"a": one, "b": other}
    assert routes.spans() == [("a", 0, 2), ("b", 2, 3)]


def test_rows_go_to_the_segments_of_their_keys() -> None:
    routes = routes_to(4)
    keys = [f"key {number}" for number in range(100)]
    found = routes.find_in_one(pa.array(keys), 100)
    assert found is not None
    assert found.tolist() == [math.ceil(4 * hash_key(key)) - 1 for key in keys]
    assert set(found.tolist()) == {0, 1, 2, 3}
    without = routes.find_in_one(None, 1000)
    assert without is not None and set(without.tolist()) == {0, 1, 2, 3}
    assert routes_to(1).find_in_one(pa.array(keys), 100) is None


# --- the collector ------------------------------------------------------------------------------------------------


@pytest.fixture
def store() -> Store:
    return SimulatedStore()


def rows(first: int, count: int) -> list[bytes]:
    return [f"event {number}".encode() for number in range(first, first + count)]


def framed(events: list[bytes]) -> bytes:
    return b"".join(event_header(len(event)) + event for event in events)


def content(store: Store, output: SegmentOutput) -> bytes:
    if isinstance(output.content, bytes):
        return output.content
    pieces = []
    for source, position, length, _ in output.content:
        assert isinstance(source, str)
        pieces.append(store.read(source, position, position + length))
    return b"".join(pieces)


def by_segment(store: Store, outputs: list[SegmentOutput]) -> dict[tuple[str, int], bytes]:
    found: dict[tuple[str, int], bytes] = {}
    for output in outputs:
        key = output.stream, output.segment_id
        found[key] = found.get(key, b"") + content(store, output)
        assert output.records[-1, :2].tolist() == [len(content(store, output)), output.events]
        assert set(output.records[:, 3].tolist()) == {THIS_APPEND}
    return found


def objects(store: Store) -> list[str]:
    return [info.path for info in store.list("")]


def test_few_rows_are_returned_as_they_are(store: Store) -> None:
    collector = Collector(store, "sc", routes_to(2))
    first, second = rows(0, 10), rows(10, 3)
    collector.add(pa.array(first), np.array([0, 1] * 5))
    collector.add(pa.array([], pa.binary()), np.array([], np.int64))
    collector.add(pa.array(second), np.array([1, 1, 0]))
    outputs = collector.finish()
    assert [output.segment_id for output in outputs] == [0, 1]
    assert [output.events for output in outputs] == [6, 7]
    assert by_segment(store, outputs) == {
        ("a", 0): framed([*first[::2], second[2]]),
        ("a", 1): framed([*first[1::2], *second[:2]]),
    }
    assert all(isinstance(output.content, bytes) for output in outputs)
    assert objects(store) == collector.chunks == []
    assert collector.created_at() is None and collector.digests is None


def test_without_targets_all_rows_go_to_the_first(store: Store) -> None:
    collector = Collector(store, "sc", routes_to(1))
    collector.add(pa.array(rows(0, 4)), None)
    assert by_segment(store, collector.finish()) == {("a", 0): framed(rows(0, 4))}


@pytest.mark.parametrize("excess", [0, 1])
@pytest.mark.parametrize("given", [False, True])
def test_more_than_is_returned_as_it_is_goes_to_a_chunk(
    store: Store, excess: int, given: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = rows(0, 9)
    most = len(framed(events)) - excess
    limits.inline_bytes(monkeypatch, 1 << 20 if given else most)
    collector = Collector(store, "sc", routes_to(1))
    collector.add(pa.array(events), None)
    [output] = collector.finish(most if given else None)
    assert isinstance(output.content, bytes) is not bool(excess)
    assert content(store, output) == framed(events)
    assert objects(store) == collector.chunks
    assert len(collector.chunks) == excess
    if excess:
        assert made_for(collector.chunks[0]) == "sc/a/0.#epoch.0"
        assert collector.created_at() == int(store.stat(collector.chunks[0]).modified * 1000)


def test_segments_of_one_container_share_a_chunk_unless_they_are_large(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits.own_chunk_bytes(monkeypatch, len(framed(rows(0, 10))))
    collector = Collector(store, "sc", routes_to(3, 2))
    targets = [0] * 10 + [1, 2, 3, 4, 4]
    events = rows(0, 10) + rows(0, 5)
    collector.add(pa.array(events), np.array(targets))
    outputs = collector.finish(0)
    chunk_of = {
        (output.stream, output.segment_id): extent.source
        for output in outputs
        for extent in output.content
        if isinstance(extent, Extent)
    }
    assert chunk_of["a", 1] == chunk_of["a", 2]
    assert chunk_of["b", 0] == chunk_of["b", 1]
    assert len(set(chunk_of.values())) == 3 == len(objects(store))
    assert by_segment(store, outputs) == {
        ("a", 0): framed(events[:10]),
        ("a", 1): framed([events[10]]),
        ("a", 2): framed([events[11]]),
        ("b", 0): framed([events[12]]),
        ("b", 1): framed(events[13:]),
    }


@pytest.mark.parametrize(("segments", "chunks"), [(1, 4), (2, 2)])
def test_chunks_are_written_as_they_fill(
    store: Store, segments: int, chunks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chunk for one segment, and twice as much at a time for several."""
    limits.chunk_bytes(monkeypatch, len(framed(rows(10, 20))))
    collector = Collector(store, "sc", routes_to(segments))
    for batch in range(8):
        collector.add(pa.array(rows(10 + batch * 10, 10)), np.full(10, segments - 1))
        assert len(collector.chunks) == (batch + 1) * chunks // 8
    outputs = collector.finish()
    assert by_segment(store, outputs) == {("a", segments - 1): framed(rows(10, 80))}
    assert len(objects(store)) == len(outputs) == chunks
    assert [output.events for output in outputs] == [80 // chunks] * chunks


def test_a_storage_with_slow_requests_gets_larger_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    limits.chunk_bytes(monkeypatch, 1)
    for remote, chunks in ((False, 1), (True, 0)):
        collector = Collector(SimulatedStore(remote=remote), "sc", routes_to(1))
        collector.add(pa.array(rows(0, 10)), None)
        assert len(collector.chunks) == chunks
        collector.finish()


def test_what_is_left_goes_to_a_chunk_if_there_is_one(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a segment has one kind of content."""
    limits.chunk_bytes(monkeypatch, len(framed(rows(10, 20))))
    collector = Collector(store, "sc", routes_to(1))
    collector.add(pa.array(rows(10, 20)), None)
    collector.add(pa.array(rows(30, 1)), None)
    outputs = collector.finish()
    assert not any(isinstance(output.content, bytes) for output in outputs)
    assert by_segment(store, outputs) == {("a", 0): framed(rows(10, 21))}


def test_a_large_event_has_chunks_of_its_own_in_the_order_of_the_rows(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits.large_part_bytes(monkeypatch, MAX_EVENT_SIZE // 2)
    large = bytes(range(256)) * (MAX_EVENT_SIZE // 256) + b"end"
    events = [b"before", large, b"between", large[1:], b"after"]
    collector = Collector(store, "sc", routes_to(1, 2), digested=True)
    collector.add(pa.array(events, pa.binary()), np.array([0, 2, 2, 2, 2]))
    outputs = collector.finish()
    assert by_segment(store, outputs) == {("a", 0): framed(events[:1]), ("b", 1): framed(events[1:])}
    of_large = [output for output in outputs if output.events == 1 and output.records[0, 0] > MAX_EVENT_SIZE]
    assert [len(output.content) for output in of_large] == [3, 3]
    chunks = [extent.source for output in of_large for extent in output.content if isinstance(extent, Extent)]
    assert len(set(chunks)) == 6
    assert [made_for(str(chunk)) for chunk in chunks] == ["sc/b/1.#epoch.0"] * 6
    assert collector.digests is not None
    small = Digest.of_framed(frame_column(pa.array([b"between", b"after"]), None, 1))
    extents = [[extent for extent in output.content if isinstance(extent, Extent)] for output in of_large]
    assert collector.digests["b"] == Digest.total([small, *map(Digest.of_large, extents)])
    assert collector.digests["b"][:2] == (4, len(framed(events[1:])))
    plain = Collector(store, "sc", routes_to(1))
    plain.add(pa.array([large], pa.binary()), None)
    assert [output.events for output in plain.finish()] == [1]
    assert plain.digests is None


def test_each_stream_has_a_digest_of_its_rows(store: Store) -> None:
    collector = Collector(store, "sc", routes_to(2, 1, 1), digested=True)
    for first in (0, 10):
        collector.add(pa.array(rows(first, 10)), np.array([0, 2, 1, 1, 2, 0, 0, 1, 2, 2]))
    collector.finish()
    at_b = [first + number for first in (0, 10) for number in (1, 4, 8, 9)]
    events = {"b": [f"event {number}".encode() for number in at_b]}
    events["a"] = [event for event in rows(0, 20) if event not in events["b"]]
    assert collector.digests == {
        stream: Digest.of_framed(frame_column(pa.array(some), None, 1)) for stream, some in events.items()
    }


def test_a_write_that_failed_leaves_no_chunk(store: Store) -> None:
    collector = Collector(store, "sc", routes_to(2))
    collector.add(pa.array(rows(0, 10)), np.array([0, 1] * 5))
    assert collector.finish(0)
    assert objects(store)
    collector.drop()
    assert not objects(store)


# --- their appends ------------------------------------------------------------------------------------------------


def output(segment: int, content: bytes | tuple[Extent, ...], *ends: tuple[int, int]) -> SegmentOutput:
    """records: offset and count of each."""
    records = np.array([[offset, count, 0, THIS_APPEND] for offset, count in ends])
    return SegmentOutput("a", segment, content, records, ends[-1][1])


def test_outputs_of_one_kind_become_one_append_for_each_segment() -> None:
    one, other = (Extent(name, 0, 10, b"") for name in ("one", "other"))
    outputs = [
        output(5, b"fives", (5, 1)),
        output(3, b"threethree", (5, 1), (10, 2)),
        output(3, b"third", (5, 1)),
        output(3, (one,), (10, 2)),
        output(3, (other, one), (10, 1), (20, 3)),
        output(3, b"last", (4, 1)),
    ]
    before = int(time.time() * 1000)
    appends = appends_of(outputs, 77)
    after = int(time.time() * 1000)
    contents = [each.content.data if isinstance(each.content, Payload) else each.content for each in appends]
    assert contents == [b"threethreethird", (one, other, one), b"last", b"fives"]
    assert [(each.segment_id, each.events) for each in appends] == [(3, 3), (3, 5), (3, 1), (5, 1)]
    assert [each.records[:, :2].tolist() for each in appends] == [
        [[5, 1], [10, 2], [15, 3]],
        [[10, 2], [20, 3], [30, 5]],
        [[4, 1]],
        [[5, 1]],
    ]
    assert all(each.created_at == 77 for each in appends)
    rows = np.concatenate([each.records for each in appends])
    assert set(rows[:, 3].tolist()) == {THIS_APPEND}
    assert all(before <= at <= after for at in rows[:, 2].tolist())
    assert appends_of([], 0) == []
