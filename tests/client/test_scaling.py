"""Writers and readers while the stream is scaled: nothing is lost or doubled, and each key keeps its order."""

from __future__ import annotations

import multiprocessing
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pravega_spark import (
    Event,
    InvalidStreamCut,
    StreamCut,
    StreamManager,
    StreamNotFound,
    StreamReaderGroupConfig,
    StreamScalingPolicy,
    StreamSealed,
)
from pravega_spark.errors import InvalidScale
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.model.routing import hash_key
from pravega_spark.streams.stream import Stream

SPAWN = multiprocessing.get_context("spawn")
WRITERS = 3


def scale_to(manager: StreamManager, count: int, stream: str = "one") -> None:
    """Exchange all segments for `count` even ones."""
    sealed = [segment.id for segment in manager.stream_info("sc", stream).segments]
    bounds = [place / count for place in range(count)] + [1.0]
    assert manager.scale_stream("sc", stream, sealed, list(pairwise(bounds))) is True


def by_key(events: Iterable[Event]) -> dict[str, list[int]]:
    """The numbers of the events `key:number` of each key, in the order in which they come."""
    found: dict[str, list[int]] = defaultdict(list)
    for event in events:
        key, number = event.data.decode().split(":")[:2]
        found[key].append(int(number))
    return found


@pytest.fixture
def hold(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Appends of event writers wait until it is set, which it is at first."""
    let = threading.Event()
    let.set()
    write = Stream.write

    def waiting(*arguments: Any, **named: Any) -> bool:
        assert let.wait(60)
        return write(*arguments, **named)

    monkeypatch.setattr(Stream, "write", waiting)
    yield let
    let.set()


# --- writers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("counts", [[3], [4, 2, 6], [2, 1], [1]], ids=str)
@pytest.mark.parametrize("start", [1, 3])
def test_what_is_under_way_is_routed_again(
    manager: StreamManager, hold: threading.Event, start: int, counts: list[int]
) -> None:
    """Single events, columns that are copied and others, with keys and without, queued while the stream is scaled."""
    manager.create_stream("sc", "s", start)
    manager.set_scaling(
        "sc", "s", StreamScalingPolicy.auto_scaling_policy_by_event_rate(10**6, 2, 1)
    )  # allows all counts
    written: list[tuple[str, int]] = []

    def event(key: str) -> str:
        written.append((key, len(written)))
        return f"{key}:{len(written) - 1}:" + "x" * (len(written) % 50)

    with manager.create_writer("sc", "s") as writer:
        writer.write_event(event("a"), "a")
        writer.flush()
        for count in [*counts, 0]:
            hold.clear()
            for number in range(60):
                key = f"key-{number % 7}"
                writer.write_event(event(key), key)
                writer.write_event(event("none"))
                if number % 20 == 0:
                    keys = [f"key-{n % 9}" if n % 3 else None for n in range(30)]
                    column = [event(key or "none") for key in keys]
                    writer.write_events(column, keys)
                    writer.write_events([event("none") for _ in range(5)])
                    writer.write_events(pa.array([event(k) for k in "abc"]), pa.chunked_array([["a"], ["b", "c"]]))
                    large = [event(f"key-{n % 9}") + "y" * 20_000 for n in range(60)]
                    writer.write_events(large, pa.array([f"key-{n % 9}" for n in range(60)]))
            if count:
                scale_to(manager, count, "s")
            hold.set()
        writer.flush()
        assert writer.durable_events == len(written)
    events = list(manager.read_events("sc", "s"))
    assert sorted(number for numbers in by_key(events).values() for number in numbers) == list(range(len(written)))
    for key, numbers in by_key(events).items():
        if key != "none":
            assert numbers == sorted(numbers), key
    in_segments: dict[int, list[int]] = defaultdict(list)
    for each in events:
        in_segments[each.segment_id].append(int(each.data.split(b":")[1]))
    assert all(numbers == sorted(numbers) for numbers in in_segments.values()), "the order of writing, in each segment"
    segments = {s.id: s for epoch in manager.stream_info("sc", "s").epochs for s in epoch.segments}
    for each in events:
        key = each.data.decode().split(":")[0]
        _, low, high = segments[each.segment_id]
        assert key == "none" or low < hash_key(key) <= high


def test_index_and_counts_hold_for_what_was_routed_again(manager: StreamManager, hold: threading.Event) -> None:
    with manager.create_writer("sc", "one") as writer:
        hold.clear()
        writer.write_events([f"{number % 10}:{number}" for number in range(5000)], [str(n % 10) for n in range(5000)])
        scale_to(manager, 3)
        hold.set()
    snapshot = Catalog(manager.root).stream("sc", "one").snapshot()
    assert snapshot.events() == 5000
    cut, tail, seen = snapshot.head_cut(), snapshot.tail_cut(), 0
    while cut != tail:
        following = snapshot.next_cut(cut, tail, max_events=700)
        seen += len(list(manager.read_events("sc", "one", cut, following)))
        assert seen == min(5000, -(-seen // 700) * 700)
        cut = following


def test_a_writer_whose_segments_were_deleted_goes_on(manager: StreamManager) -> None:
    """The stream was scaled and truncated since the writer was made: its segments are gone altogether."""
    with manager.create_writer("sc", "one") as writer:
        writer.write_event("a:0", "a")
        writer.flush()
        scale_to(manager, 2)
        manager.truncate_stream("sc", "one", manager.stream_info("sc", "one").tail)
        writer.write_event("a:1", "a")
    assert by_key(manager.read_events("sc", "one")) == {"a": [1]}


def test_a_stream_that_is_sealed_or_another_one_takes_nothing(manager: StreamManager) -> None:
    writer = manager.create_writer("sc", "one")
    scale_to(manager, 2)
    manager.seal_stream("sc", "one")
    writer.write_event("x", "x")
    with pytest.raises(StreamSealed, match="sc/one"):
        writer.flush()
    writer.close()
    writer = manager.create_writer("sc", "four")
    manager.seal_stream("sc", "four")
    manager.delete_stream("sc", "four")
    time.sleep(0.002)  # so that the new stream has another time
    manager.create_stream("sc", "four", 4)
    writer.write_event("x", "x")
    with pytest.raises(StreamNotFound, match="sc/four"):
        writer.flush()
    writer.close()
    assert list(manager.read_events("sc", "four")) == []


def test_a_key_that_is_no_text_is_refused_at_once(manager: StreamManager) -> None:
    with manager.create_writer("sc", "one") as writer:
        with pytest.raises(TypeError, match="routing_key must be a str or None, not 5"):
            writer.write_event("x", 5)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="1 routing_keys were given for 2 events"):
            writer.write_events(["x", "y"], ["a"])
    assert list(manager.read_events("sc", "one")) == []


# --- the manager -------------------------------------------------------------------------------------------------


def test_scale_and_update(manager: StreamManager) -> None:
    scale_to(manager, 4)
    info = manager.stream_info("sc", "one")
    assert len(info.segments) == 4 and [epoch.epoch for epoch in info.epochs] == [0, 1]
    with pytest.raises(InvalidScale, match="sc/one"):
        manager.scale_stream("sc", "one", [0], [(0.0, 1.0)])
    policy = StreamScalingPolicy.fixed_scaling_policy(4)
    assert manager.update_stream_with_policy("sc", "one", policy, None, ["tag"]) is True
    assert manager.get_stream_tags("sc", "one") == ["tag"]
    with pytest.raises(InvalidScale, match="requires at least 4"):
        scale_to(manager, 3)


# --- readers -----------------------------------------------------------------------------------------------------


def test_tail_follows_scales(manager: StreamManager) -> None:
    events = manager.tail("sc", "one", poll_interval=0.001)
    with manager.create_writer("sc", "one") as writer:
        number = 0
        for count in (4, 2, 6, 1):
            for key in "abcdefgh":
                for _ in range(5):
                    writer.write_event(f"{key}:{number}", key)
                    number += 1
            writer.flush()
            scale_to(manager, count)
    manager.seal_stream("sc", "one")
    found = by_key(events)
    assert sorted(n for numbers in found.values() for n in numbers) == list(range(number))
    assert all(numbers == sorted(numbers) for numbers in found.values())


def write(root: str, name: int, count: int, together: Any) -> int:
    with StreamManager(root) as manager, manager.create_writer("sc", "st") as writer:
        together.wait(60)
        for number in range(count):
            key = f"{name}.{number % 20}"
            if number % 50:
                writer.write_event(f"{key}:{number}:" + "x" * (number % 80), key)
            else:
                writer.write_events([f"{key}:{number}:"], [key])
            if number % 100 == 0:
                time.sleep(0.002)
            if number % 700 == 0:
                writer.flush()
        writer.flush()
        return writer.durable_events


def follow(root: str, together: Any) -> dict[str, list[int]]:
    with StreamManager(root) as manager:
        events = manager.tail("sc", "st", poll_interval=0.01)
        together.wait(60)
        return dict(by_key(events))


def report(reports: Any, role: str, work: Callable[..., Any], *arguments: Any) -> None:
    try:
        reports.put((role, work(*arguments)))
    except BaseException:
        reports.put(("failure", traceback.format_exc()))


@pytest.mark.processes
@pytest.mark.parametrize(
    "count",
    [
        pytest.param(1500, id="1500 events each"),
        pytest.param(50_000, id="50000 events each", marks=[pytest.mark.long, pytest.mark.timeout(600)]),
    ],
)
def test_three_write_while_the_stream_is_scaled(tmp_path: Path, count: int) -> None:
    """1 -> 4 -> 2 -> 6 segments under three processes that write, and one that follows."""
    root = str(tmp_path)
    with StreamManager(root) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "st", 1)
        reports, together = SPAWN.Queue(), SPAWN.Barrier(WRITERS + 2)
        roles: list[tuple[Any, ...]] = [("writer", write, root, name, count, together) for name in range(WRITERS)]
        roles.append(("follower", follow, root, together))
        processes = [SPAWN.Process(target=report, args=(reports, *role), daemon=True) for role in roles]
        found: dict[str, list[Any]] = defaultdict(list)
        try:
            for process in processes:
                process.start()
            together.wait(60)
            for step, segments in enumerate((4, 2, 6), 1):
                while manager.stream_info("sc", "st").events < WRITERS * count * step // 5:
                    time.sleep(0.005)
                scale_to(manager, segments, "st")
            for _ in range(WRITERS):
                role, what = reports.get(timeout=500)
                assert role == "writer", what
                found[role].append(what)
            manager.seal_stream("sc", "st")
            role, followed = reports.get(timeout=100)
            assert role == "follower", followed
        finally:
            for process in processes:
                process.kill()
                process.join()
        assert found["writer"] == [count] * WRITERS
        expected = {f"{name}.{key}": list(range(key, count, 20)) for name in range(WRITERS) for key in range(20)}
        assert by_key(manager.read_events("sc", "st")) == expected
        assert followed == expected
        info = manager.stream_info("sc", "st")
        assert info.events == WRITERS * count and len(info.epochs) == 4
        lengths = np.array(
            [Catalog(manager.root).stream("sc", "st").snapshot().segments.length(s.id) for s in info.segments]
        )
        assert (lengths > 0).all()


# --- cuts after a number of bytes ------------------------------------------------------------------------------------

# The scenarios of Pravega's BatchClientTest.testNextStreamCut… and BatchClientImplTest.


def write_30_bytes(manager: StreamManager, *keys: str) -> None:
    """Events of 30 bytes with their headers, each with an entry of its own in the index."""
    with manager.create_writer("sc", "one") as writer:
        for key in keys:
            writer.write_event("x" * 22, key)
            writer.flush()


LOW, HIGH = "c", "a"


def halved(manager: StreamManager) -> tuple[int, int]:
    """The ids of the two segments that replace that of the stream; keys LOW and HIGH are in the one and the other."""
    scale_to(manager, 2)
    low, high = (segment.id for segment in manager.stream_info("sc", "one").segments)
    assert hash_key(LOW) < 0.5 < hash_key(HIGH)
    return low, high


def next_cut(manager: StreamManager, positions: dict[int, int], size: int = 80) -> dict[int, int]:
    return dict(manager.next_stream_cut("sc", "one", StreamCut("sc", "one", positions), size).positions)


def test_a_next_cut_ends_with_a_segment_that_was_split_and_then_enters_its_successors(manager: StreamManager) -> None:
    write_30_bytes(manager, *[LOW] * 4)
    low, high = halved(manager)
    write_30_bytes(manager, *[LOW, HIGH] * 3)
    assert next_cut(manager, {0: 60}) == {0: 120}
    found = next_cut(manager, {0: 120})
    assert found.keys() == {low, high} and all(40 <= at <= 60 for at in found.values())
    assert next_cut(manager, found, 1 << 60) == {low: 90, high: 90} == next_cut(manager, {low: 90, high: 90})


def test_a_next_cut_enters_a_merged_segment_when_all_of_its_predecessors_were_read(manager: StreamManager) -> None:
    low, high = halved(manager)
    write_30_bytes(manager, *[LOW, HIGH] * 4)
    manager.set_scaling("sc", "one", None)
    merged = manager.stream_info("sc", "one").segments[0].id
    write_30_bytes(manager, *[LOW] * 5)
    assert next_cut(manager, {low: 120, high: 120})[merged] >= 80
    assert next_cut(manager, {low: 30, high: 30}).keys() == {low, high}
    found = next_cut(manager, {low: 120, high: 30})
    assert found.keys() == {low, high} and found[low] == 120 and 90 <= found[high] <= 120
    assert next_cut(manager, {low: 120, high: 30}, 1 << 60) == {low: 120, high: 120}
    cuts = [manager.stream_info("sc", "one").head]
    while cuts[-1] != manager.stream_info("sc", "one").tail:
        cuts.append(manager.next_stream_cut("sc", "one", cuts[-1], 70))
        read = [event.segment_id for event in manager.read_events("sc", "one", cuts[-2], cuts[-1])]
        assert read and not {low, merged} <= set(read) and not {high, merged} <= set(read)
    assert sum(manager.distance("sc", "one", *pair) for pair in pairwise(cuts)) == 13 * 30


def test_a_cut_of_a_java_program_with_a_segment_that_it_has_not_reached_is_taken_everywhere(
    manager: StreamManager,
) -> None:
    low, high = halved(manager)
    write_30_bytes(manager, *[LOW, HIGH] * 4)
    manager.set_scaling("sc", "one", None)
    merged = manager.stream_info("sc", "one").segments[0].id
    write_30_bytes(manager, LOW)
    cut, same = StreamCut("sc", "one", {low: 30, merged: -1}), StreamCut("sc", "one", {low: 30, high: 120})
    text = cut.as_text()
    assert StreamCut.from_text(text) == cut
    assert [event.segment_id for event in manager.read_events("sc", "one", text)] == [low] * 3 + [merged]
    assert {event.segment_id for event in manager.read_events("sc", "one", None, cut)} == {low, high}
    assert manager.distance("sc", "one", cut) == manager.lag(text).bytes == 120
    assert manager.next_stream_cut("sc", "one", cut, 1 << 60).positions == {low: 120, high: 120}
    assert [part.start for part in manager.segment_ranges("sc", "one", cut)] == [30, 0]
    group = manager.create_reader_group("rg", "sc", "one", stream_cut=cut)
    assert group.get_streamcut().stream_cut == same and group.unread_bytes() == 120
    config = StreamReaderGroupConfig(False, "sc", "one", end=cut)
    ending = manager.create_reader_group_with_config("ending", "sc", config)
    assert ending.unread_bytes() == 150
    manager.create_reader_group_with_config("ending", "sc", config)
    ending.reset("earliest")
    group.reset(text)
    assert group.get_streamcut().stream_cut == same
    manager.truncate_stream("sc", "one", cut)
    assert manager.stream_info("sc", "one").head == same
    with pytest.raises(InvalidStreamCut):
        manager.distance("sc", "one", StreamCut("sc", "one", {low: -1}))
