"""Segments shared among the readers of a group."""

from __future__ import annotations

import time

import pytest

from chunkstore.testing import CountingStore
from engine.root import Root
from engine.storage.object_reads import Stores
from pravega_spark import StreamManager
from pravega_spark.client.groups.config import StreamReaderGroupConfig
from pravega_spark.client.groups.reader import StreamReader
from pravega_spark.client.groups.state import ReaderOnline
from tests.client.groups.reading import (
    Clock,
    drained,
    grouped,
    next_slice,
    numbered,
    payloads,
    segments_held,
    stored,
    write,
)

pytestmark = pytest.mark.usefixtures("no_patience")


def test_segments_are_shared_and_given_up(manager: StreamManager) -> None:
    group = manager.create_reader_group("rg", "sc", "four")
    readers = [group.create_reader("a")]
    assert segments_held(group) == {"a": 4}
    readers.append(group.create_reader("b"))
    for _ in range(2):
        for reader in readers:
            next_slice(reader)
    assert segments_held(group) == {"a": 2, "b": 2}
    readers[0].reader_offline()
    next_slice(readers[1])
    assert segments_held(group) == {"b": 4}
    assert group.online_readers() == ["b"]


def test_readers_that_join_get_their_share_at_their_first_reads(
    manager: StreamManager, roots: tuple[Root, Root], clock: Clock
) -> None:
    """Three readers join one after the other, over six segments. Each of them reads once in three seconds."""
    manager.create_stream("sc", "six", 6)
    write(manager, "six", numbered(600), key=None)
    groups = [grouped(root, clock, "six") for root in (*roots, roots[0])]
    readers: list[StreamReader] = []
    for name, group in zip("abc", groups, strict=True):
        readers.append(group.create_reader(name, slice_events=5))
        for _ in range(2):
            clock.now += 3
            for reader in readers:
                reader.release_segment(next_slice(reader))
        assert sorted(segments_held(group).values()) == [6 // len(readers)] * len(readers)
    readers[0].reader_offline()
    for _ in range(2):
        clock.now += 3
        for reader in readers[1:]:
            reader.release_segment(next_slice(reader))
    assert segments_held(groups[1]) == {"b": 3, "c": 3}


def test_a_reader_that_works_on_a_slice_releases_its_other_segments(manager: StreamManager) -> None:
    """It takes no call for that, and is no sign of life. It looks for other readers three times in a lease."""
    write(manager, "four", numbered(100), key=None)
    config = StreamReaderGroupConfig(False, "sc", "four", lease=6)
    group = manager.create_reader_group_with_config("rg", "sc", config)
    busy = group.create_reader("busy")
    part = next_slice(busy)
    next(part)
    beat = stored(manager.root).readers["busy"].beat
    group.create_reader("joined")
    end = time.monotonic() + 60
    while segments_held(group)["busy"] > 2:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert stored(manager.root).readers["busy"].beat == beat
    assert len(payloads(part)) > 5  # its slice is not among those that it released


def test_what_is_given_up_goes_on_where_it_was(manager: StreamManager) -> None:
    write(manager, "four", numbered(100), key=None)
    group = manager.create_reader_group("rg", "sc", "four")
    first = group.create_reader("a")
    part = next_slice(first)
    found = [next(part).data().decode()]
    first.release_segment(part)
    second = group.create_reader("b")
    for _ in range(4):
        found += drained(second)
        found += drained(first)
    assert sorted(map(int, found)) == list(range(100))


def test_a_name_can_be_online_once(manager: StreamManager) -> None:
    group = manager.create_reader_group("rg", "sc", "one")
    group.create_reader("r")
    with pytest.raises(ReaderOnline, match=r"reader_offline\('r'\)"):
        group.create_reader("r")
    group.reader_offline("r")
    group.create_reader("r")


def test_several_streams(manager: StreamManager) -> None:
    write(manager, "one", numbered(10))
    write(manager, "four", numbered(10, 10))
    config = StreamReaderGroupConfig(False, "sc", "one", "four", "one")
    group = manager.create_reader_group_with_config("rg", "sc", config)
    assert sorted(map(int, drained(group.create_reader("r")))) == list(range(20))
    assert list(group.stream_cuts()) == ["sc/one", "sc/four"]
    assert group.get_streamcut().stream_cut == manager.stream_info("sc", "one").tail
    assert group.stream_cuts()["sc/four"] == manager.stream_info("sc", "four").tail


def test_a_group_outlives_its_processes(url: str, manager: StreamManager) -> None:
    write(manager, "one", ["a", "b", "c"])
    with StreamManager(url) as first:
        reader = first.create_reader_group("rg", "sc", "one").create_reader("r")
        part = next_slice(reader)
        assert next(part).data() == b"a"
        reader.release_segment(part)
    with StreamManager(url) as second:  # closing the first one took its reader offline
        group = second.create_reader_group("rg", "sc", "one")
        assert group.online_readers() == []
        assert drained(group.create_reader("r")) == ["b", "c"]


def test_an_idle_look_is_cheap(url: str, manager: StreamManager) -> None:
    write(manager, "one", ["a"])
    root = Root.open(url)
    counting = CountingStore(root.stores.log)
    root.stores = Stores(counting, counting)
    with StreamManager.over(root) as other:
        reader = other.create_reader_group("rg", "sc", "one").create_reader("r")
        drained(reader, 2)
        counting.reset()
        next_slice(reader)
        assert [len(request.paths) for request in counting.requests] == [1, 1]  # of the stream, and of the group
