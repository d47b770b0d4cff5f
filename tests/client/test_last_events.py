"""The last events of a stream are those that were appended last, in that order, whatever their segments."""

from __future__ import annotations

import multiprocessing
import random
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest

from chunkstore.testing import CountingStore
from engine.root import Root
from engine.state.operations import Payload
from engine.storage.object_reads import Stores
from pravega_spark import Event, StreamManager
from pravega_spark.streams.model.events import event_header
from pravega_spark.streams.model.index import UNKNOWN_APPEND, sparse_records
from pravega_spark.streams.stream import Stream
from pravega_spark.streams.writing.writes import SegmentAppend

KEYS = [f"key {number}" for number in range(50)]


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[StreamManager]:
    with StreamManager(str(tmp_path / "root")) as opened:
        opened.create_scope("sc")
        opened.create_stream("sc", "st", 3)
        yield opened


def last(manager: StreamManager, n: int) -> list[int]:
    return [int(event.data) for event in manager.last_events("sc", "st", n)]


@pytest.mark.parametrize("keyed", [True, False])
def test_one_producers_last_events_are_the_last_that_it_wrote(manager: StreamManager, keyed: bool) -> None:
    """30,000 events over three segments: an append has thousands of them."""
    with manager.create_writer("sc", "st") as writer:
        for number in range(30_000):
            writer.write_event(str(number), f"key {number % 77}" if keyed else None)
    assert {event.segment_id for event in manager.last_events("sc", "st", 100)} == {0, 1, 2}
    for n in (1, 3, 10, 1000, 30_000):
        assert last(manager, n) == list(range(30_000 - n, 30_000))


@pytest.mark.parametrize("size", [10, 2000], ids=["through the log", "in chunks of their own"])
def test_the_events_of_a_column_come_in_its_order(manager: StreamManager, size: int) -> None:
    numbers = [str(number).rjust(size) for number in range(30_000)]
    with manager.create_writer("sc", "st") as writer:
        writer.write_event("-1", "first")
        writer.write_events(numbers, [random.choice(KEYS) for _ in numbers])
        writer.write_event("30000", "last")
    for n in (1, 2, 10, 5000):
        assert last(manager, n) == list(range(30_001 - n, 30_001))


def test_columns_events_and_flushes_of_several_writers_come_in_the_order_of_the_log(manager: StreamManager) -> None:
    chance, number = random.Random(25), 0
    with manager.create_writer("sc", "st") as one, manager.create_writer("sc", "st") as other:
        for round_ in range(120):
            writer = chance.choice((one, other))
            count = chance.choice((1, 1, 2, 30))
            if chance.random() < 0.5:
                events = [str(number + each) for each in range(count)]
                writer.write_events(events, [chance.choice(KEYS) for _ in events])
            else:
                for each in range(count):
                    writer.write_event(str(number + each), chance.choice(KEYS))
            number += count
            writer.flush()
            if round_ % 40 == 20:
                segments = list(manager.stream_info("sc", "st").tail.positions)
                manager.scale_stream("sc", "st", segments[:1], _halves(manager, segments[0]))
    for n in (1, 7, 100, number):
        assert last(manager, n) == list(range(number - n, number))
    assert last(manager, number + 1) == list(range(number))


def _halves(manager: StreamManager, segment: int) -> list[tuple[float, float]]:
    low, high = next((each.low, each.high) for each in manager.stream_info("sc", "st").segments if each.id == segment)
    return [(low, (low + high) / 2), ((low + high) / 2, high)]


def test_a_segment_that_outlives_a_scale_does_not_hide_later_events_of_one_that_does_not(
    manager: StreamManager,
) -> None:
    """It alone has enough events, but they are older ones."""
    by_segment = {event.segment_id: key for key in KEYS for event in _written(manager, "-1", key)}
    for number in range(20):
        _written(manager, str(number), by_segment[0])
    for number in range(20, 25):
        _written(manager, str(number), by_segment[1])
    manager.scale_stream("sc", "st", [1], _halves(manager, 1))
    _written(manager, "25", by_segment[2])
    assert last(manager, 6) == [20, 21, 22, 23, 24, 25]


def _written(manager: StreamManager, event: str, key: str) -> list[Event]:
    with manager.create_writer("sc", "st") as writer:
        writer.write_event(event, key)
    return list(manager.last_events("sc", "st", 1))


def test_the_events_of_a_transaction_come_as_they_were_written_behind_what_was_committed_before(
    manager: StreamManager,
) -> None:
    chance = random.Random(7)
    transaction = manager.create_transaction_writer("sc", "st").begin_txn()
    with manager.create_writer("sc", "st") as writer:
        for number in range(300):
            transaction.write_event(str(1000 + number), chance.choice(KEYS))
            writer.write_event(str(number), chance.choice(KEYS))
    transaction.commit()
    assert last(manager, 400) == [*range(200, 300), *range(1000, 1300)]


def test_the_order_outlasts_flushes_truncations_and_other_processes(tmp_path: Path) -> None:
    chance, root = random.Random(3), str(tmp_path / "root")
    with StreamManager(root) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "st", 4)
        with manager.create_writer("sc", "st") as writer:
            for number in range(3000):
                writer.write_event(str(number).rjust(500), chance.choice(KEYS))
                if number % 500 == 0:
                    writer.flush()
        manager.backup(str(tmp_path / "copy"))
        for kept in (2000, 1000, 500):
            info = manager.stream_info("sc", "st")
            fewer = info.size * (info.events - kept) // info.events
            manager.truncate_stream("sc", "st", manager.next_stream_cut("sc", "st", info.head, fewer))
            left = manager.stream_info("sc", "st").events
            assert 100 < left <= kept
            assert last(manager, left) == sorted(last(manager, left))
            assert last(manager, 100) == list(range(2900, 3000))
        manager.truncate_stream("sc", "st", "latest")
        assert last(manager, 5) == []
        with manager.create_writer("sc", "st") as writer:
            for number in range(100):
                writer.write_event(str(number), chance.choice(KEYS))
        assert last(manager, 100) == list(range(100))
    with StreamManager(root) as manager:
        assert last(manager, 100) == list(range(100))
    StreamManager.restore(str(tmp_path / "copy"), str(tmp_path / "restored"))
    with StreamManager(str(tmp_path / "restored")) as manager:
        assert last(manager, 3000) == list(range(3000))


# --- columns in transactions --------------------------------------------------------------------------------------


def columns(first: int, count: int) -> tuple[list[str], list[str]]:
    """Events of these numbers, and their keys. The last one goes to another segment than the last in order of ids."""
    numbers = range(first, first + count)
    return list(map(str, numbers)), [KEYS[number * 7 % len(KEYS)] for number in numbers]


def test_the_columns_of_a_transaction_come_in_their_order(manager: StreamManager) -> None:
    """Columns, single events, and columns again, in the order of the calls."""
    writer, written = manager.create_transaction_writer("sc", "st"), 0
    for _ in range(3):
        with writer.begin_txn() as transaction:
            for _ in range(3):
                transaction.write_events(*columns(written, 300))
                for number in range(written + 300, written + 310):
                    transaction.write_event(str(number), KEYS[number % 50])
                written += 310
    assert {event.segment_id for event in manager.last_events("sc", "st", 20)} == {0, 1, 2}
    for n in (1, 3, 100, 1000, written):
        assert last(manager, n) == list(range(written - n, written))


def test_a_column_of_several_appends_in_a_transaction_comes_in_its_order(manager: StreamManager) -> None:
    numbers = [str(number).rjust(2000) for number in range(6000)]
    with manager.create_transaction_writer("sc", "st").begin_txn() as transaction:
        transaction.write_events(numbers, [random.choice(KEYS) for _ in numbers])
    assert last(manager, 5000) == list(range(1000, 6000))


def test_the_columns_of_a_transaction_come_in_their_order_after_a_scale(manager: StreamManager) -> None:
    transaction = manager.create_transaction_writer("sc", "st").begin_txn()
    transaction.write_events(*columns(0, 300))
    manager.scale_stream("sc", "st", [1], _halves(manager, 1))
    transaction.write_events(*columns(300, 300))
    transaction.commit()
    for n in (1, 7, 100, 600):
        assert last(manager, n) == list(range(600 - n, 600))


def test_the_order_of_a_transaction_outlasts_a_flush_and_its_process(tmp_path: Path) -> None:
    root = str(tmp_path / "root")
    with StreamManager(root) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "st", 4)
        for first in range(0, 1000, 100):
            with manager.create_transaction_writer("sc", "st").begin_txn() as transaction:
                transaction.write_events(*columns(first, 100))
        Stream(manager.root, "sc", "st").container.flush()
        assert last(manager, 250) == list(range(750, 1000))
    with StreamManager(root) as manager:
        assert last(manager, 250) == list(range(750, 1000))
        with manager.create_writer("sc", "st") as writer:
            writer.write_events(*columns(1000, 30))
        assert last(manager, 50) == list(range(980, 1030))


def _produce(root: str, committed: Connection) -> None:
    with StreamManager(root) as manager:
        for first in range(0, 1 << 30, 100):
            with manager.create_transaction_writer("sc", "st").begin_txn() as transaction:
                transaction.write_events(*columns(first, 100))
            committed.send(first + 99)


@pytest.mark.processes
def test_a_killed_producers_last_event_is_the_last_of_what_it_committed(tmp_path: Path) -> None:
    root = str(tmp_path / "root")
    with StreamManager(root) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "st", 4)
        spawn = multiprocessing.get_context("spawn")
        receiver, sender = spawn.Pipe(duplex=False)
        producer = spawn.Process(target=_produce, args=(root, sender))
        producer.start()
        acknowledged = [receiver.recv() for _ in range(8)][-1]
        producer.kill()
        producer.join()
        while receiver.poll():
            acknowledged = receiver.recv()
        found = last(manager, 250)
        assert found[-1] in (acknowledged, acknowledged + 100)  # the last one may be committed and not acknowledged
        assert found == list(range(found[-1] - 249, found[-1] + 1))


# --- appends whose order is not stored ----------------------------------------------------------------------------


def _append(manager: StreamManager, shares: dict[int, list[int]], change: Callable[[np.ndarray], None]) -> None:
    """Append numbers to segments, in one append without a stored order, as a job of Spark does."""
    parts = []
    for segment, numbers in shares.items():
        events = [str(number).encode() for number in numbers]
        records = sparse_records(np.array([8 + len(event) for event in events]), 1)
        change(records)
        content = b"".join(event_header(len(event)) + event for event in events)
        parts.append(SegmentAppend(segment, Payload(content), records, len(events)))
    Stream(manager.root, "sc", "st").write(parts)


def _routed(chance: random.Random, numbers: range) -> dict[int, list[int]]:
    """Numbers by segment: half of them in segment 0, a third in segment 1."""
    shares: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for number in numbers:
        shares[chance.choice((0, 0, 0, 1, 1, 2))].append(number)
    return shares


def test_an_append_without_a_stored_order_is_mixed_evenly(manager: StreamManager) -> None:
    """The last of it are from all segments, by their shares, and each segment's are in order."""
    shares = _routed(random.Random(5), range(60_000))
    _append(manager, shares, lambda records: None)
    found = manager.last_events("sc", "st", 300)
    by_segment = Counter(event.segment_id for event in found)
    assert all(abs(by_segment[segment] - 300 * share / 6) < 10 for segment, share in ((0, 3), (1, 2), (2, 1)))
    for segment, numbers in shares.items():
        mine = [int(event.data) for event in found if event.segment_id == segment]
        assert mine == numbers[-len(mine) :]
    assert min(last(manager, 300)) > 59_000
    with manager.create_writer("sc", "st") as writer:
        writer.write_event("60000")
    assert last(manager, 3)[-1] == 60_000 and sorted(last(manager, 60_001)) == list(range(60_001))


def test_events_of_unrecorded_appends_come_by_time_before_all_others(manager: StreamManager) -> None:
    def unrecorded(time: int) -> Callable[[np.ndarray], None]:
        def change(records: np.ndarray) -> None:
            records[:, 2:] = time, UNKNOWN_APPEND

        return change

    _append(manager, {0: [20, 21]}, unrecorded(2000))
    _append(manager, {1: [10, 11], 2: [12, 13]}, unrecorded(1000))
    with manager.create_writer("sc", "st") as writer:
        writer.write_event("30")
    assert last(manager, 3) == [20, 21, 30]
    assert last(manager, 7) == [10, 12, 11, 13, 20, 21, 30]


# --- what it costs ------------------------------------------------------------------------------------------------


def test_it_reads_the_ends_of_the_segments_that_have_the_last_events(tmp_path: Path) -> None:
    """Of 16 segments with 8 MB, in LTS: the ends of all indexes, and the data of one segment."""
    url = str(tmp_path / "root")
    with StreamManager(url) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "st", 16)
        with manager.create_writer("sc", "st") as writer:
            writer.write_events([str(number).rjust(1000) for number in range(8000)])
            writer.flush()
            for number in range(8000, 8005):
                writer.write_event(str(number), "key")
        Stream(manager.root, "sc", "st").container.flush()
    root = Root.open(url)
    counting = CountingStore(root.stores.log)
    root.stores = Stores(counting, counting)
    with StreamManager.over(root) as manager:
        manager.stream_info("sc", "st")
        counting.reset()
        assert last(manager, 5) == list(range(8000, 8005))
        assert counting.bytes_read < 1 << 20 and len(counting.requests) <= 3 + 16 + 6
        counting.reset()
        assert last(manager, 105) == list(range(7900, 8005))
        assert len(counting.requests) <= 3 + 2 * 16 and counting.bytes_read < 16 << 19  # one block of each segment
