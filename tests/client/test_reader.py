"""Reading without Spark: ranges between cuts, and following the tail."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from chunkstore.testing import CountingStore
from engine.root import Root
from engine.storage.object_reads import Stores
from pravega_spark import Event, EventPointer, InvalidStreamCut, StreamCut, StreamManager, TruncatedData
from pravega_spark.client.reader import begin_following, follow
from pravega_spark.streams.stream import Stream


def write(manager: StreamManager, stream: str, *events: str) -> None:
    with manager.create_writer("sc", stream) as writer:
        for event in events:
            writer.write_event(event, "key")


def payloads(events: Iterator[Event]) -> list[str]:
    return [event.data.decode() for event in events]


def test_events_tell_where_they_lie(manager: StreamManager) -> None:
    write(manager, "one", "first", "", "third")
    first, second, third = manager.read_events("sc", "one")
    assert (first.data, first.segment_id, first.offset) == (b"first", 0, 0)
    assert (second.data, second.offset, third.offset) == (b"", 13, 21)
    assert third.pointer == EventPointer("sc", "one", 0, 21, 13)
    assert str(third.pointer) == "sc/one/0.#epoch.0:21-13"


def test_ranges_between_cuts(manager: StreamManager) -> None:
    write(manager, "one", "a", "b")
    middle = manager.stream_info("sc", "one").tail
    write(manager, "one", "c")
    end = manager.stream_info("sc", "one").tail
    write(manager, "one", "d")
    assert payloads(manager.read_events("sc", "one")) == ["a", "b", "c", "d"]
    assert payloads(manager.read_events("sc", "one", middle)) == ["c", "d"]
    assert payloads(manager.read_events("sc", "one", end=middle)) == ["a", "b"]
    assert payloads(manager.read_events("sc", "one", middle, end)) == ["c"]
    assert payloads(manager.read_events("sc", "one", StreamCut.from_text("UNBOUNDED"), end)) == ["a", "b", "c"]
    with pytest.raises(InvalidStreamCut, match=r"^the end lies before the start: .*startStreamCut should be <="):
        manager.read_events("sc", "one", end, middle)
    manager.truncate_stream("sc", "one", end)
    with pytest.raises(InvalidStreamCut, match="which is the head of the stream: what came before was truncated"):
        manager.read_events("sc", "one", end=middle)


def test_a_range_is_looked_up_when_it_is_asked_for(manager: StreamManager) -> None:
    write(manager, "one", "before")
    events = manager.read_events("sc", "one")
    write(manager, "one", "after")
    assert payloads(events) == ["before"]


def test_reading_behind_a_truncation_is_an_error(manager: StreamManager) -> None:
    head = manager.stream_info("sc", "one").head
    write(manager, "one", "lost")
    manager.truncate_stream("sc", "one", manager.stream_info("sc", "one").tail)
    assert payloads(manager.read_events("sc", "one")) == []
    with pytest.raises(TruncatedData, match=r"sc/one, segment 0\.0: the data between offsets 0 and 12"):
        manager.read_events("sc", "one", head)
    with pytest.raises(TruncatedData):
        next(manager.tail("sc", "one", head))


def test_tail_starts_where_the_stream_ends_and_ends_with_it(manager: StreamManager) -> None:
    write(manager, "four", "before")
    events = manager.tail("sc", "four", poll_interval=0.001)
    write(manager, "four", "a", "b")
    assert [next(events).data, next(events).data] == [b"a", b"b"]
    write(manager, "four", "c")
    manager.seal_stream("sc", "four")
    assert payloads(events) == ["c"]


def test_tail_from_a_cut(manager: StreamManager) -> None:
    write(manager, "one", "a", "b")
    head = manager.stream_info("sc", "one").head
    manager.seal_stream("sc", "one")
    assert payloads(manager.tail("sc", "one", head)) == ["a", "b"]
    assert payloads(manager.tail("sc", "one")) == []


def test_tail_follows_a_writer_of_another_thread(manager: StreamManager) -> None:
    expected = [str(number) for number in range(3000)]
    events = manager.tail("sc", "one", poll_interval=0.001)

    def work() -> None:
        write(manager, "one", *expected)
        manager.seal_stream("sc", "one")

    thread = threading.Thread(target=work)
    thread.start()
    assert payloads(events) == expected
    thread.join()


@pytest.mark.parametrize("kind", ["event", "callable"])
def test_tail_stops_when_told(manager: StreamManager, kind: str) -> None:
    told = threading.Event()
    events = manager.tail("sc", "one", poll_interval=10_000, stop=told if kind == "event" else told.is_set)
    write(manager, "one", "last")
    assert next(events).data == b"last"
    if kind == "event":  # it wakes the wait for the next look
        threading.Timer(0.05, told.set).start()
    else:
        told.set()
    assert payloads(events) == [], "it does not wait for its next look"


def test_an_idle_look_reads_one_object(url: str, manager: StreamManager) -> None:
    write(manager, "one", "x")
    root = Root.open(url)
    counting = CountingStore(root.stores.log)
    root.stores = Stores(counting, counting)
    looks = iter([False] * 6 + [True])
    follower = begin_following(Stream(root, "sc", "one"), "tail", 0.0, lambda: None)
    events = follow(follower, stop=lambda: next(looks))
    counting.reset()
    assert list(events) == []
    assert len(counting.requests) == 6
    assert all(len(request.paths) == 1 for request in counting.requests)
    root.close()
