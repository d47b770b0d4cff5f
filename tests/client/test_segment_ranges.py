"""Segment ranges: parts of a stream that any process reads by itself, as columns and with bounded memory."""

from __future__ import annotations

import json
import multiprocessing
import pickle
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from chunkstore.testing import CountingStore
from engine.root import Root
from engine.storage.object_reads import Stores
from pravega_spark import (
    Closed,
    PositionLost,
    SegmentRange,
    StreamManager,
    StreamNotFound,
    StreamRecreated,
    TruncatedData,
)
from pravega_spark.streams.reading.rebuilt_index import CACHE_VARIABLE
from pravega_spark.streams.reading.scan import STEP
from tests.archives import ROLLING, case
from tests.client.groups.reading import numbered, write
from tests.restored import begun, flush, restored

MIB = 1 << 20


def keyed(manager: StreamManager, rounds: int, first: int = 0, stream: str = "four") -> None:
    """Events `key:number` of some hundred bytes, of 20 keys."""
    keys = [f"k{key}" for _ in range(rounds) for key in range(20)]
    events = [f"{key}:{first + place // 20:06}:" + "x" * 300 for place, key in enumerate(keys)]
    with manager.create_writer("sc", stream) as writer:
        writer.write_events(events, keys)


def scaled(manager: StreamManager, *ranges: tuple[float, float]) -> None:
    current = manager.stream_info("sc", "four").segments
    manager.scale_stream("sc", "four", [segment.id for segment in current], ranges)


@pytest.fixture
def grown(manager: StreamManager) -> StreamManager:
    """Stream `four` with events in segments that were split and merged twice."""
    keyed(manager, 100)
    scaled(manager, (0.0, 0.1), (0.1, 0.6), (0.6, 0.7), (0.7, 1.0))
    keyed(manager, 100, 100)
    scaled(manager, (0.0, 0.2), (0.2, 0.3), (0.3, 0.4), (0.4, 0.9), (0.9, 1.0))
    keyed(manager, 100, 200)
    return manager


def in_order(events: Sequence[bytes]) -> bool:
    """Whether the events of each key are in the order of writing."""
    by_key: dict[bytes, list[bytes]] = defaultdict(list)
    for event in events:
        by_key[event.split(b":")[0]].append(event)
    return all(each == sorted(each) for each in by_key.values())


def test_ranges_are_what_a_read_of_the_stream_reads_in_its_order(grown: StreamManager) -> None:
    columns = ["event", "segment_id", "offset", "event_number", "timestamp"]
    ranges = grown.segment_ranges("sc", "four", max_bytes="64KiB")
    assert len(ranges) > 20 and max(each.size for each in ranges) <= 5 / 4 * 65536 + 16384
    read = [grown.read_segment(each).to_arrow(columns) for each in ranges]
    assert pa.concat_tables(read) == grown.to_arrow("sc", "four", columns=columns)
    events = [event for each in ranges for event in grown.read_segment(each)]
    assert [event.data for event in events] == grown.to_arrow("sc", "four")["event"].to_pylist()
    whole = grown.segment_ranges("sc", "four")
    assert [each.segment_id for each in whole] == list(dict.fromkeys(each.segment_id for each in ranges))


def test_ranges_between_two_cuts(grown: StreamManager) -> None:
    middle = grown.next_stream_cut("sc", "four", "earliest", "300KiB")
    parts = [
        *grown.segment_ranges("sc", "four", end=middle, max_bytes=100_000),
        *grown.segment_ranges("sc", "four", middle, max_bytes=100_000),
    ]
    found = [event for each in parts for event in grown.read_segment(each).to_arrow()["event"].to_pylist()]
    assert sorted(found) == sorted(grown.to_arrow("sc", "four")["event"].to_pylist()) and in_order(found)
    assert grown.segment_ranges("sc", "four", "latest") == ()
    with pytest.raises(ValueError, match="segment_ranges: max_bytes must be at least 1, not 0"):
        grown.segment_ranges("sc", "four", max_bytes=0)


@pytest.mark.parametrize("seed", range(5))
def test_ranges_that_share_no_keys_may_be_read_in_any_order(grown: StreamManager, seed: int) -> None:
    """Of those that share keys the earlier one comes first: then each key is in order, and otherwise it is not."""
    left = list(grown.segment_ranges("sc", "four", max_bytes="64KiB"))
    read: list[bytes] = []
    while left:
        ready = [
            each
            for place, each in enumerate(left)
            if not any(one.low < each.high and each.low < one.high for one in left[:place])
        ]
        chosen = random.Random(seed + len(left)).choice(ready)
        left.remove(chosen)
        read += grown.read_segment(chosen).to_arrow()["event"].to_pylist()
    assert len(read) == 6000 and in_order(read)
    backwards = reversed(grown.segment_ranges("sc", "four", max_bytes="64KiB"))
    assert not in_order(
        [event for each in backwards for event in grown.read_segment(each).to_arrow()["event"].to_pylist()]
    )


def test_a_range_is_small_and_holds_plain_values_only(grown: StreamManager, url: str) -> None:
    for each in grown.segment_ranges("sc", "four"):
        data = pickle.dumps(each)
        assert pickle.loads(data) == each and len(data) < 300
        assert url.encode() not in data and url not in str(each) + repr(each)
        assert SegmentRange(*json.loads(json.dumps(each))) == each
        assert str(each).startswith("sc/four segment ")


def test_a_range_names_its_stream_and_segment_and_where_it_begins_and_ends(grown: StreamManager) -> None:
    ids = {segment.id for epoch in grown.stream_info("sc", "four").epochs for segment in epoch.segments}
    ends: dict[int, int] = defaultdict(int)
    for each in grown.segment_ranges("sc", "four", max_bytes="64KiB"):
        assert (each.scope, each.stream) == ("sc", "four") and each.segment_id in ids
        assert each.start == ends[each.segment_id] < each.end and each.size == each.end - each.start
        first = next(iter(grown.read_segment(each)))
        assert (first.segment_id, first.offset) == (each.segment_id, each.start)
        ends[each.segment_id] = each.end
    assert dict(ends) == {**ends, **grown.stream_info("sc", "four").tail.positions}


def sizes(root: str, part: SegmentRange) -> tuple[int, int]:
    with StreamManager(root) as manager:
        column = manager.read_segment(part).to_arrow(["event"])["event"]
        return len(column), sum(len(event) for event in column.to_pylist())


@pytest.mark.processes
def test_other_processes_read_ranges_with_managers_of_their_own(tmp_path: Path) -> None:
    with StreamManager(str(tmp_path)) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "four", 4)
        keyed(manager, 500)
        ranges = manager.segment_ranges("sc", "four", max_bytes="1MiB")
        whole = manager.to_arrow("sc", "four")["event"].to_pylist()
        with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
            found = list(pool.map(partial(sizes, str(tmp_path)), ranges))
    assert [sum(each) for each in zip(*found, strict=True)] == [len(whole), sum(map(len, whole))]


# --- what a range is not -----------------------------------------------------------------------------------------


def test_a_range_stays_valid_while_its_bytes_move(manager: StreamManager) -> None:
    keyed(manager, 50)
    ranges = manager.segment_ranges("sc", "four")
    before = [manager.read_segment(each).to_arrow() for each in ranges]
    keyed(manager, 50, 50)
    stream = manager.root
    for number in range(stream.config.containers):
        stream.container(number).flush()
    assert [manager.read_segment(each).to_arrow() for each in ranges] == before


def test_a_range_of_a_deleted_stream_reads_no_other_stream(manager: StreamManager) -> None:
    keyed(manager, 10)
    [*_, part] = manager.segment_ranges("sc", "four")
    events = manager.read_segment(part)
    manager.seal_stream("sc", "four")
    manager.delete_stream("sc", "four")
    with pytest.raises(StreamNotFound):
        manager.read_segment(part)
    manager.create_stream("sc", "four", 4)
    keyed(manager, 10)
    with pytest.raises(StreamRecreated, match="get its segment ranges"):
        manager.read_segment(part)
    with pytest.raises(StreamRecreated):
        events.to_arrow()


def test_a_truncated_range_is_an_error(manager: StreamManager) -> None:
    write(manager, "one", numbered(10))
    [part] = manager.segment_ranges("sc", "one")
    manager.truncate_stream("sc", "one", manager.next_stream_cut("sc", "one", "earliest", 1))
    manager.truncate_stream("sc", "one", "latest")
    with pytest.raises(TruncatedData):
        manager.read_segment(part)


def test_a_read_that_began_before_a_truncation_delivers_what_it_was_asked_for(manager: StreamManager, url: str) -> None:
    """As Pravega's BatchClientTest.testBatchClientWithStreamTruncationPostGetSegments, but the reads had begun."""
    write(manager, "one", numbered(10))
    [part] = manager.segment_ranges("sc", "one")
    begun, whole = manager.read_segment(part), manager.read_events("sc", "one")
    with StreamManager(url) as other:
        other.truncate_stream("sc", "one", "latest")
    for events in (begun, whole):
        assert [event.data.decode() for event in events] == numbered(10)
    with pytest.raises(TruncatedData):
        manager.read_segment(part)
    assert list(manager.read_events("sc", "one")) == [] and not manager.segment_ranges("sc", "one", "earliest")


def test_a_range_that_a_restored_root_lost_is_an_error(tmp_path: Path) -> None:
    place = begun(tmp_path / "root")
    flush(place)
    with StreamManager(str(place)) as manager:
        [kept] = manager.segment_ranges("sc", "one")
        write(manager, "one", numbered(5, 5))
        [longer] = manager.segment_ranges("sc", "one")
        manager.scale_stream("sc", "one", [longer.segment_id], [(0.0, 0.5), (0.5, 1.0)])
        write(manager, "one", numbered(5, 10))
        [_, later] = manager.segment_ranges("sc", "one")
    with StreamManager(str(restored(place, tmp_path / "copy"))) as manager:
        assert [event.data.decode() for event in manager.read_segment(kept)] == numbered(5)
        for lost in (longer, later):
            with pytest.raises(PositionLost, match="is not a position in stream sc/one any more"):
                manager.read_segment(lost)


def test_a_range_after_the_end_of_its_manager(tmp_path: Path) -> None:
    with StreamManager(str(tmp_path)) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "four")
        keyed(manager, 1)
        [part] = manager.segment_ranges("sc", "four")
        events = manager.read_segment(part)
    with pytest.raises(Closed):
        events.to_arrow()


# --- what it costs -----------------------------------------------------------------------------------------------


@pytest.fixture
def counting(url: str, manager: StreamManager) -> Iterator[tuple[CountingStore, StreamManager]]:
    """Another process, so to speak, whose requests are counted; stream `one` has 96 MiB in chunks."""
    column = pa.array([bytes(64 << 10)] * 256)
    with manager.create_writer("sc", "one") as writer:
        for _ in range(6):
            writer.write_events(column)
    root = Root.open(url)
    store = CountingStore(root.stores.log)
    root.stores = Stores(store, store)
    with StreamManager.over(root) as other:
        yield store, other


def test_ranges_are_planned_without_reading_events(counting: tuple[CountingStore, StreamManager]) -> None:
    store, other = counting
    other.stream_info("sc", "one")
    store.reset()
    ranges = other.segment_ranges("sc", "one", max_bytes="16MiB")
    assert len(ranges) == 6 and store.bytes_read < MIB


def test_bytes_are_requested_as_batches_are_consumed(counting: tuple[CountingStore, StreamManager]) -> None:
    store, other = counting
    events = other.read_events("sc", "one")
    store.reset()
    batches = events.to_batches(["event"])
    assert store.count() == 0
    taken = 0
    for batch in batches:
        taken += batch.nbytes
        assert store.bytes_read <= taken + 3 * STEP * 3 // 2 + MIB, "the step at hand, and the next ones"
    assert taken > 96 * MIB
    store.reset()
    [*_, part] = other.segment_ranges("sc", "one", max_bytes="16MiB")
    assert other.read_segment(part).to_arrow().num_rows > 0
    assert store.bytes_read < part.size + 2 * MIB, "of the other ranges nothing is read"


def resident(field: str) -> int:
    """What the kernel knows of this process's memory, bytes."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) << 10


def peak(root: str, size: int) -> int:
    """The most memory, in bytes, that reading `size` bytes takes above that of an open root."""
    with StreamManager(root) as manager:
        manager.stream_info("sc", "st")
        begun, read = resident("VmRSS:"), 0
        Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from now on
        for batch in manager.read_events("sc", "st").to_batches():
            read += batch.nbytes
        assert read > size
        return resident("VmHWM:") - begun


@pytest.mark.processes
def test_batches_of_any_range_take_bounded_memory(tmp_path: Path) -> None:
    column = pa.array([bytes(10_000)] * 1600)
    with StreamManager(str(tmp_path)) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "st")
        with manager.create_writer("sc", "st") as writer:
            for _ in range(20):
                writer.write_events(column)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        above = pool.submit(peak, str(tmp_path), 300 * MIB).result()
    print(f"{above / MIB:.0f} MiB above")
    assert above < 80 * MIB


@pytest.mark.parametrize("indexed", [False, True])
def test_ranges_of_the_storage_of_a_pravega(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, indexed: bool) -> None:
    """A segment without an index is one range; one that was read has an index, in the user's cache."""
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache") if indexed else "")
    place = case(ROLLING).laid_out(tmp_path / "lts")
    with StreamManager(place) as manager:
        whole = manager.to_arrow("demo", "rides")
        ranges = manager.segment_ranges("demo", "rides", max_bytes="16KiB")
    with StreamManager(place) as other:
        assert pa.concat_tables([other.read_segment(each).to_arrow() for each in ranges]) == whole
    assert whole.num_rows > 0 and (len(ranges) > len({each.segment_id for each in ranges})) is indexed
