"""The last events of a stream are those that were appended last, in that order, whatever their segments."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from pravega_spark import Event, StreamManager

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
