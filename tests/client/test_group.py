"""Reader groups over real streams: one event loop, several managers, processes that are killed."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import pickle
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

import pytest

from chunkstore.testing import CountingStore, Request, WrappingStore
from engine.errors import DataCorruption
from engine.operations import PutEntry
from engine.reads import Stores
from engine.root import Root
from pravega_spark import (
    EventPointer,
    InvalidStreamCut,
    StreamCut,
    StreamManager,
    StreamNotFound,
    StreamScalingPolicy,
    TruncatedData,
)
from pravega_spark.client import group_reader
from pravega_spark.client.group import StreamReaderGroup
from pravega_spark.client.group_config import StreamCuts, StreamReaderGroupConfig
from pravega_spark.client.group_entry import GROUPS, GroupNotFound
from pravega_spark.client.group_reader import StreamReader
from pravega_spark.client.group_slices import Slice
from pravega_spark.client.group_state import ReaderOffline, ReaderOnline
from pravega_spark.errors import ScopeNotFound, StreamError
from pravega_spark.streams.stream import Stream
from pravega_spark.streams.subscribers import NotSubscribed, release, subscribe, subscribers

T = TypeVar("T")


class Clock:
    """A clock that only tests move."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty slice comes at once."""
    monkeypatch.setattr(group_reader, "PATIENCE", 0.0)
    monkeypatch.setattr(group_reader, "POLL", 0.005)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def write(manager: StreamManager, stream: str, events: Sequence[str], key: str | None = "key") -> None:
    with manager.create_writer("sc", stream) as writer:
        for event in events:
            writer.write_event(event, key)


def numbered(count: int, start: int = 0) -> list[str]:
    return [str(number) for number in range(start, start + count)]


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def next_slice(reader: StreamReader) -> Slice:
    return run(reader.get_segment_slice_async())


def payloads(events: Iterator[Any]) -> list[str]:
    return [event.data().decode() for event in events]


def drained(reader: StreamReader, empty: int = 1) -> list[str]:
    """All that a reader gets until `empty` slices in turn are empty."""

    async def work() -> list[str]:
        found: list[str] = []
        left = empty
        while left:
            part = await reader.get_segment_slice_async()
            events = payloads(part)
            reader.release_segment(part)
            found += events
            left = empty if events else left - 1
        return found

    return run(work())


def segment_of(manager: StreamManager, stream: str, index: int) -> int:
    return manager.stream_info("sc", stream).segments[index].id


# --- as the original's own tests do ----------------------------------------------------------------------------


def test_write_and_read(manager: StreamManager) -> None:
    write(manager, "one", ["test event", "test event"])
    config = StreamReaderGroupConfig(False, "sc", "one")
    reader = manager.create_reader_group_with_config("rg", "sc", config).create_reader("reader-1")
    assert payloads(next_slice(reader)) == ["test event"] * 2


def test_read_from_the_tail(manager: StreamManager) -> None:
    write(manager, "one", ["test event", "test event"])
    config = StreamReaderGroupConfig(True, "sc", "one")
    group = manager.create_reader_group_with_config("rg", "sc", config)
    reader = group.create_reader("reader-1")
    write(manager, "one", ["at the tail", "at the tail"])
    assert payloads(next_slice(reader)) == ["at the tail"] * 2
    group.reader_offline("reader-1")
    group.reader_offline("reader-1")
    manager.delete_reader_group("rg", "sc")


def test_multiple_readers(manager: StreamManager) -> None:
    manager.create_stream("sc", "two", 2)
    write(manager, "two", ["data"] * 100, key=None)
    group = manager.create_reader_group("rg", "sc", "two")
    first = group.create_reader("r1")
    part = next_slice(first)
    count = len(payloads(part))
    first.release_segment(part)
    first.reader_offline()
    count += len(payloads(next_slice(group.create_reader("r2"))))
    assert count == 100


def test_multiple_readers_and_a_slice_read_in_part(manager: StreamManager) -> None:
    manager.create_stream("sc", "two", 2)
    write(manager, "two", numbered(100), key=None)
    group = manager.create_reader_group("rg", "sc", "two")
    first = group.create_reader("r1")
    part = next_slice(first)
    found = [next(part).data().decode()]
    first.release_segment(part)
    assert list(part) == []
    first.reader_offline()
    second = group.create_reader("r2")
    found += payloads(next_slice(second))
    found += payloads(next_slice(second))
    assert sorted(map(int, found)) == list(range(100))


def test_large_events(manager: StreamManager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_reader, "SLICE_BYTES", 300_000)
    events = [str(number) * 50_000 for number in range(10, 40)]
    write(manager, "one", events)
    reader = manager.create_reader_group("rg", "sc", "one").create_reader("reader-1")

    async def work() -> list[list[str]]:
        slices = []
        while sum(map(len, slices)) < len(events):
            part = await reader.get_segment_slice_async()
            slices.append(payloads(part))
            reader.release_segment(part)
        return slices

    slices = run(work())
    assert [event for part in slices for event in part] == events
    assert len(slices) > 6
    assert all(1 < len(part) < 5 for part in slices[:-1])


def test_streamcut_of_a_group(manager: StreamManager) -> None:
    write(manager, "one", ["event1", "event2"])
    cut = manager.create_reader_group("rg", "sc", "one", True).get_streamcut()
    assert cut.get_segment_offset_map() == {0: 28}
    assert cut.to_str() == "StreamCuts: sc/one:0=28"
    assert "StreamCuts: sc/one:0=28" in repr(cut)
    write(manager, "one", ["event3", "event4", "event5"])
    expected = ["event3", "event4", "event5"]
    again = manager.create_reader_group("rg", "sc", "one", False, cut)  # goes on where it is
    assert payloads(next_slice(again.create_reader("reader-1"))) == expected
    other = manager.create_reader_group("other", "sc", "one", False, cut)
    assert drained(other.create_reader("reader-1")) == expected
    third = manager.create_reader_group("third", "sc", "one", stream_cut=cut.stream_cut)
    assert drained(third.create_reader("reader-1")) == expected
    assert isinstance(cut, StreamCuts)


# --- slices --------------------------------------------------------------------------------------------------


def test_an_event_tells_where_it_lies(manager: StreamManager) -> None:
    write(manager, "one", ["first", ""])
    reader = manager.create_reader_group("rg", "sc", "one").create_reader("r")
    first, second = next_slice(reader)
    assert (first.data(), first.scope, first.stream, first.segment_id, first.offset()) == (b"first", "sc", "one", 0, 0)
    assert (second.data(), second.pointer) == (b"", EventPointer("sc", "one", 0, 13, 8))
    assert repr(first) == "EventData(offset 0 data :b'first')"
    assert "'r' of 'sc/rg'" in repr(reader)
    assert "'sc/rg'" in repr(reader.group)


def test_nothing_to_read_gives_an_empty_slice(manager: StreamManager) -> None:
    reader = manager.create_reader_group("rg", "sc", "one").create_reader("r")
    empty = next_slice(reader)
    assert list(empty) == []
    reader.release_segment(empty)
    reader.release_segment(empty)
    write(manager, "one", ["a"])
    assert drained(reader) == ["a"]
    manager.seal_stream("sc", "one")
    assert drained(reader) == []


def test_waits_for_events(manager: StreamManager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_reader, "PATIENCE", 100.0)
    reader = manager.create_reader_group("rg", "sc", "one").create_reader("r")

    async def work() -> list[str]:
        waiting = asyncio.create_task(reader.get_segment_slice_async())
        await asyncio.sleep(0.02)
        assert not waiting.done()
        await asyncio.to_thread(write, manager, "one", ["late"])
        return payloads(await waiting)

    assert run(work()) == ["late"]


def test_while_a_slice_is_out_nothing_more_comes_from_its_segment(manager: StreamManager) -> None:
    write(manager, "one", ["a", "b"])
    reader = manager.create_reader_group("rg", "sc", "one").create_reader("r")
    part = next_slice(reader)
    assert next(part).data() == b"a"
    assert list(next_slice(reader)) == []
    assert next(part).data() == b"b"
    write(manager, "one", ["c"])
    assert payloads(next_slice(reader)) == ["c"]  # all events of the first one were taken


def test_a_dropped_slice_is_returned(manager: StreamManager) -> None:
    write(manager, "one", ["a", "b", "c"])
    reader = manager.create_reader_group("rg", "sc", "one").create_reader("r")
    part = next_slice(reader)
    assert next(part).data() == b"a"
    del part
    gc.collect()
    assert payloads(next_slice(reader)) == ["b", "c"]


def test_what_was_not_released_is_read_again(manager: StreamManager) -> None:
    write(manager, "one", ["a", "b"])
    group = manager.create_reader_group("rg", "sc", "one")
    reader = group.create_reader("r")
    assert payloads(next_slice(reader)) == ["a", "b"]
    reader.reader_offline()
    reader.reader_offline()
    assert drained(group.create_reader("r")) == ["a", "b"]


def test_an_offline_reader_delivers_and_takes_nothing(manager: StreamManager) -> None:
    write(manager, "one", ["a", "b"])
    group = manager.create_reader_group("rg", "sc", "one")
    reader, other = group.create_reader("r"), group.create_reader("other")
    part = next_slice(reader)
    assert next(part).data() == b"a"
    with pytest.raises(ValueError, match="the slice belongs to"):
        other.release_segment(part)
    reader.reader_offline()
    for call in (lambda: next(part), lambda: reader.release_segment(part), lambda: next_slice(reader)):
        with pytest.raises(OSError, match="reader r is offline") as caught:
            call()
        assert isinstance(caught.value, ReaderOffline)
    assert drained(other, 2) == ["a", "b"]


def test_slices_of_a_backlog_come_in_turn_from_all_segments(
    manager: StreamManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_reader, "SLICE_BYTES", 20_000)
    write(manager, "four", ["x" * 100] * 4000, key=None)
    reader = manager.create_reader_group("rg", "sc", "four").create_reader("r")

    async def work() -> list[int]:
        return [next(await reader.get_segment_slice_async()).segment_id for _ in range(8)]

    found = run(work())
    assert sorted(found[:4]) == [0, 1, 2, 3]
    assert found[4:] == found[:4]


def share(*readers: StreamReader) -> None:
    """Let all readers look at the group until each has its share, and has read nothing."""
    for _ in range(3):
        for reader in readers:
            reader._member.look()
    state = readers[0].group.entry.state()
    assert set(segments_held(readers[0].group).values()) == {len(state.positions()) // len(readers)}


# --- asynchronous --------------------------------------------------------------------------------------------


class Gate(WrappingStore):
    """A store whose requests wait while it is closed."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.open = threading.Event()
        self.open.set()
        self.waiting = 0

    def _carry_out(self, request: Request, call: Callable[[], Any]) -> Any:
        self.waiting += not self.open.is_set()
        assert self.open.wait(60), "the event loop did not go on"
        return call()


def gated(url: str) -> tuple[Root, Gate]:
    root = Root.open(url)
    gate = Gate(root.stores.log)
    root.stores = Stores(gate, gate)
    return root, gate


def test_storage_never_blocks_the_loop_and_readers_work_at_the_same_time(url: str, manager: StreamManager) -> None:
    write(manager, "four", numbered(100), key=None)
    root, gate = gated(url)
    with StreamManager.over(root) as slow:
        group = slow.create_reader_group("rg", "sc", "four")
        readers = [group.create_reader(f"r{number}") for number in range(4)]
        share(*readers)

        async def work() -> list[Slice]:
            gate.open.clear()
            tasks = [asyncio.create_task(reader.get_segment_slice_async()) for reader in readers]
            while gate.waiting < 2:  # a loop that is blocked would never get here
                await asyncio.sleep(0.005)
            assert not any(task.done() for task in tasks)
            gate.open.set()
            return await asyncio.gather(*tasks)

        found = [payloads(part) for part in run(work())]
    assert sum(map(len, found)) == 100
    assert all(found)


def test_a_cancelled_call_loses_nothing(url: str, manager: StreamManager) -> None:
    write(manager, "one", ["a", "b"])
    root, gate = gated(url)
    with StreamManager.over(root) as slow:
        reader = slow.create_reader_group("rg", "sc", "one").create_reader("r")

        async def work() -> list[str]:
            gate.open.clear()
            task = asyncio.create_task(reader.get_segment_slice_async())
            while not gate.waiting:
                await asyncio.sleep(0.005)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            gate.open.set()
            return payloads(await reader.get_segment_slice_async())

        assert run(work()) == ["a", "b"]


def test_two_calls_of_one_reader_at_a_time(manager: StreamManager) -> None:
    write(manager, "four", numbered(100), key=None)
    reader = manager.create_reader_group("rg", "sc", "four").create_reader("r")

    async def work() -> list[str]:
        found = []
        while len(found) < 100:
            for part in await asyncio.gather(*(reader.get_segment_slice_async() for _ in range(3))):
                found += payloads(part)
                reader.release_segment(part)
        return found

    assert sorted(map(int, run(work()))) == list(range(100))


def test_no_thread_before_the_first_slice(manager: StreamManager) -> None:
    def threads() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name.startswith("reader-group")]

    group = manager.create_reader_group("rg", "sc", "one")
    reader = group.create_reader("r")
    assert threads() == []
    next_slice(reader)
    assert len(threads()) == 1
    group.close()
    assert threads() == []


# --- sharing -------------------------------------------------------------------------------------------------


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


def segments_held(group: StreamReaderGroup) -> dict[str, int]:
    return {name: len(reader.positions) for name, reader in group.entry.state().readers.items()}


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


# --- leases --------------------------------------------------------------------------------------------------


def grouped(root: Root, clock: Clock, stream: str = "one", lease: float = 60.0, **config: Any) -> StreamReaderGroup:
    settings = StreamReaderGroupConfig(False, "sc", stream, lease=lease, **config)
    return StreamReaderGroup.create(root, "sc", "rg", settings, clock)


@pytest.fixture
def roots(url: str, manager: StreamManager) -> Iterator[tuple[Root, Root]]:
    """Two processes, so to speak."""
    with Root.open(url) as one, Root.open(url) as other:
        yield one, other


def test_a_zombie_delivers_nothing_after_its_segments_were_taken(
    manager: StreamManager, roots: tuple[Root, Root], clock: Clock
) -> None:
    write(manager, "one", ["a", "b", "c"])
    zombie = grouped(roots[0], clock).create_reader("zombie")
    part = next_slice(zombie)
    assert next(part).data() == b"a"
    other = grouped(roots[1], clock).create_reader("other")
    assert list(next_slice(other)) == []  # from now on it knows the last beat of the zombie
    clock.now += 59.9
    assert list(next_slice(other)) == []
    clock.now += 0.1
    assert drained(other, 2) == ["a", "b", "c"]
    for _ in range(2):
        with pytest.raises(ReaderOffline):
            next(part)
    with pytest.raises(ReaderOffline):
        zombie.release_segment(part)
    with pytest.raises(ReaderOffline):
        next_slice(zombie)
    zombie.reader_offline()
    other.reader_offline()
    assert grouped(roots[0], clock).stream_cuts()["sc/one"] == manager.stream_info("sc", "one").tail


def test_who_is_slow_but_alive_keeps_its_segments(
    manager: StreamManager, roots: tuple[Root, Root], clock: Clock
) -> None:
    write(manager, "one", numbered(9))
    slow = grouped(roots[0], clock).create_reader("slow")
    other = grouped(roots[1], clock).create_reader("other")
    part, found = next_slice(slow), []
    for event in part:
        found.append(event.data().decode())
        clock.now += 45  # more than two thirds of the lease
        assert list(next_slice(other)) == []
    assert found == numbered(9)
    slow.release_segment(part)
    slow.reader_offline()


def test_who_waits_for_events_keeps_its_segments(
    manager: StreamManager, roots: tuple[Root, Root], clock: Clock
) -> None:
    idle = grouped(roots[0], clock).create_reader("idle")
    other = grouped(roots[1], clock).create_reader("other")
    for _ in range(9):
        clock.now += 30  # half of the lease
        assert list(next_slice(idle)) == list(next_slice(other)) == []
    write(manager, "one", ["a"])
    assert (drained(other), drained(idle)) == ([], ["a"])


def test_a_lease_is_kept_in_the_background(manager: StreamManager, roots: tuple[Root, Root], clock: Clock) -> None:
    write(manager, "one", numbered(3))
    slow = grouped(roots[0], clock)
    reader = slow.create_reader("slow")
    beat = slow.entry.state().readers["slow"].beat
    part = next_slice(reader)
    clock.now += 20  # a third of the lease
    next(part)
    slow.pool().shutdown()
    assert slow.entry.state().readers["slow"].beat == beat + 1


def test_released_positions_are_recorded_within_seconds(
    manager: StreamManager, roots: tuple[Root, Root], clock: Clock
) -> None:
    write(manager, "one", ["a", "b"])
    group = grouped(roots[0], clock)
    reader = group.create_reader("r")
    part = next_slice(reader)
    next(part)
    reader.release_segment(part)
    assert list(group.entry.state().positions().values()) == [0]
    clock.now += 3
    assert next(next_slice(reader)).data() == b"b"
    assert list(group.entry.state().positions().values()) == [9]
    write(manager, "one", ["c"])
    part = next_slice(reader)
    assert payloads(part) == ["c"]
    clock.now += 3
    reader.release_segment(part)  # long after the last time: at once, by a thread
    group.pool().shutdown()
    assert list(group.entry.state().positions().values()) == [27]


def test_an_operator_takes_a_reader_offline(manager: StreamManager, roots: tuple[Root, Root], clock: Clock) -> None:
    write(manager, "one", ["a", "b"])
    gone = grouped(roots[0], clock).create_reader("gone")
    part = next_slice(gone)
    next(part)
    group = grouped(roots[1], clock)
    group.reader_offline("gone")
    assert drained(group.create_reader("r")) == ["a", "b"]
    clock.now += 3
    with pytest.raises(ReaderOffline):
        next_slice(gone)
    with pytest.raises(ReaderOffline):
        next(part)


def follow(url: str, name: str, report: Connection, count: int) -> None:
    """Read, and report each event, its slice's release, and that it goes on; until killed or everything is read."""

    async def work() -> None:
        manager = StreamManager(url)
        config = StreamReaderGroupConfig(False, "sc", "st", lease=1.0)
        reader = manager.create_reader_group_with_config("rg", "sc", config).create_reader(name)
        report.send(("online", name))
        while True:
            part = await reader.get_segment_slice_async()
            report.send(("events", payloads(part)))
            reader.release_segment(part)

    run(work())


def test_a_killed_reader_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spawn = multiprocessing.get_context("spawn")
    monkeypatch.setattr(group_reader, "SLICE_BYTES", 2000)
    url, count = str(tmp_path), 2000
    with StreamManager(url) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "st", 4)
        write(manager, "st", numbered(count // 2), key=None)
        mine, theirs = spawn.Pipe(duplex=False)
        victim = spawn.Process(target=follow, args=(url, "victim", theirs, count), daemon=True)
        victim.start()
        theirs.close()
        try:
            assert mine.poll(60)
            assert mine.recv() == ("online", "victim")
            config = StreamReaderGroupConfig(False, "sc", "st", lease=1.0)
            group = manager.create_reader_group_with_config("rg", "sc", config)
            reader = group.create_reader("mine")
            found = Counter[str]()

            def hear() -> None:
                while mine.poll():
                    found.update(mine.recv()[1])

            while sum(found.values()) < count // 4:
                hear()
                found.update(drained(reader))
            victim.kill()  # while it may have a slice, and released ones that it has not recorded
            victim.join()
            with suppress(EOFError):
                hear()
            write(manager, "st", numbered(count - count // 2, count // 2), key=None)
            while len(found) < count:
                found.update(drained(reader))
        finally:
            victim.kill()
            victim.join()
        assert set(found) == set(numbered(count))
        assert group.online_readers() == ["mine"]
        assert group.unread_bytes() == 0


def test_a_forked_process_refuses(manager: StreamManager) -> None:
    write(manager, "one", ["a", "b"])
    group = manager.create_reader_group("rg", "sc", "one")
    reader = group.create_reader("r")
    part = next_slice(reader)
    context = multiprocessing.get_context("fork")
    mine, theirs = context.Pipe(duplex=False)

    def work() -> None:
        told = []
        calls = (
            lambda: next(part),
            lambda: next_slice(reader),
            lambda: reader.release_segment(part),
            reader.reader_offline,
            lambda: group.create_reader("x"),
            group.stream_cuts,
        )
        for call in calls:
            try:
                call()
            except RuntimeError as error:
                told.append("before the process forked" in str(error))
        group.close()
        theirs.send(told)
        os._exit(0)

    process = context.Process(target=work)
    process.start()
    assert mine.poll(60)
    assert mine.recv() == [True] * 6
    process.join()
    assert payloads(part) == ["a", "b"]


# --- scaling and truncation ----------------------------------------------------------------------------------


def halves(manager: StreamManager, stream: str) -> None:
    """Split every segment."""
    segments = manager.stream_info("sc", stream).segments
    ranges = [(one.low, (one.low + one.high) / 2) for one in segments]
    ranges += [((one.low + one.high) / 2, one.high) for one in segments]
    manager.scale_stream("sc", stream, [one.id for one in segments], sorted(ranges))


def whole(manager: StreamManager, stream: str) -> None:
    """Merge all segments into one."""
    manager.scale_stream("sc", stream, [one.id for one in manager.stream_info("sc", stream).segments], [(0.0, 1.0)])


def create_two(manager: StreamManager) -> None:
    """A stream of two segments that may be merged."""
    manager.create_stream("sc", "two", 2)
    manager.update_stream_with_policy("sc", "two", StreamScalingPolicy.fixed_scaling_policy(1))


def write_keyed(manager: StreamManager, stream: str, start: int, count: int) -> None:
    with manager.create_writer("sc", stream) as writer:
        for number in range(start, start + count):
            writer.write_event(f"{number % 10}:{number}", str(number % 10))


def test_keys_keep_their_order_across_scaling_and_readers(manager: StreamManager) -> None:
    group = manager.create_reader_group("rg", "sc", "one")
    readers = [group.create_reader(name) for name in "abc"]
    expected = 600
    found: list[str] = []

    async def read(reader: StreamReader) -> None:
        while len(found) < expected:
            part = await reader.get_segment_slice_async()
            found.extend(payloads(part))
            reader.release_segment(part)

    def work() -> None:
        for step, change in enumerate((halves, halves, whole, halves, whole, None)):
            write_keyed(manager, "one", step * 100, 100)
            if change is not None:
                change(manager, "one")

    async def everybody() -> None:
        await asyncio.gather(asyncio.to_thread(work), *map(read, readers))

    run(everybody())
    assert len(found) == expected
    for key in range(10):
        numbers = [int(text.split(":")[1]) for text in found if text.startswith(f"{key}:")]
        assert numbers == list(range(key, expected, 10))
    for reader in readers:
        reader.reader_offline()
    assert group.stream_cuts()["sc/one"] == manager.stream_info("sc", "one").tail
    assert group.unread_bytes() == 0


def test_a_merged_segment_waits_for_the_slower_reader(manager: StreamManager) -> None:
    create_two(manager)
    write(manager, "two", numbered(40), key=None)
    group = manager.create_reader_group("rg", "sc", "two")
    fast, slow = group.create_reader("fast"), group.create_reader("slow")
    share(fast, slow)
    late = next_slice(slow)
    whole(manager, "two")
    write(manager, "two", ["after"])
    early = drained(fast, 3)
    cut = group.stream_cuts()["sc/two"]
    behind = [event.data.decode() for event in manager.read_events("sc", "two", cut)]
    assert behind[-1] == "after"
    assert sorted(map(int, early + behind[:-1])) == list(range(40))
    assert sum(len(text) + 8 for text in behind) == group.unread_bytes()
    assert payloads(late) == behind[:-1]
    slow.release_segment(late)
    assert drained(slow, 2) + drained(fast, 2) == ["after"]


def test_what_was_truncated_is_an_error_once(manager: StreamManager) -> None:
    write(manager, "one", ["a", "b"])
    reader = manager.create_reader_group("rg", "sc", "one").create_reader("r")
    part = next_slice(reader)
    next(part)
    reader.release_segment(part)
    manager.truncate_stream("sc", "one", manager.stream_info("sc", "one").tail)
    write(manager, "one", ["c"])
    with pytest.raises(TruncatedData, match="sc/one, segment 0: the data between offsets 9 and 18"):
        next_slice(reader)
    assert drained(reader) == ["c"]


def test_whole_segments_may_be_truncated(manager: StreamManager) -> None:
    create_two(manager)
    write(manager, "two", numbered(40), key=None)
    group = manager.create_reader_group("rg", "sc", "two")
    readers = group.create_reader("a"), group.create_reader("b")
    share(*readers)
    whole(manager, "two")
    halves(manager, "two")
    write(manager, "two", ["lost"])
    tail = manager.stream_info("sc", "two").tail
    write(manager, "two", numbered(40, 100), key=None)
    manager.truncate_stream("sc", "two", tail)
    losses = []
    for _ in range(2):
        with pytest.raises(TruncatedData, match="the data from offset 0 on has been truncated") as caught:
            next_slice(readers[0])  # tells of both, one after the other
        losses.append((caught.value.segment_id, caught.value.start))
    assert losses == [(0, 0), (1, 0)]
    found = drained(readers[0], 2) + drained(readers[1], 2) + drained(readers[0], 2)
    assert sorted(map(int, found)) == list(range(100, 140))
    assert group.unread_bytes() == 0


def test_nothing_is_lost_for_who_had_read_everything(manager: StreamManager) -> None:
    write(manager, "one", ["a"])
    group = manager.create_reader_group("rg", "sc", "one")
    reader = group.create_reader("r")
    assert drained(reader) == ["a"]
    halves(manager, "one")
    manager.truncate_stream("sc", "one", manager.stream_info("sc", "one").tail)
    write(manager, "one", ["b"])
    assert drained(reader) == ["b"]


def test_a_deleted_stream(manager: StreamManager) -> None:
    reader = manager.create_reader_group("rg", "sc", "one").create_reader("r")
    manager.seal_stream("sc", "one")
    manager.delete_stream("sc", "one")
    with pytest.raises(StreamNotFound, match="sc/one"):
        next_slice(reader)
    manager.create_stream("sc", "one", 1)
    write(manager, "one", ["new"])
    with pytest.raises(TruncatedData):
        next_slice(reader)
    assert drained(reader) == ["new"]


# --- cuts ----------------------------------------------------------------------------------------------------


def test_checkpoints_and_resets(url: str, manager: StreamManager) -> None:
    write(manager, "four", numbered(30), key=None)
    group = manager.create_reader_group("rg", "sc", "four")
    reader = group.create_reader("r")
    first = payloads(next_slice(reader))
    reader.release_segment(next_slice(reader))
    cuts = group.checkpoint("then")
    rest = drained(reader)
    assert sorted(map(int, first + rest)) == list(range(30))
    assert group.unread_bytes() == 0
    with StreamManager(url) as other:
        again = other.create_reader_group("rg", "sc", "four")
        assert again.checkpoints() == {"then": cuts}
        held = next_slice(reader)
        again.reset(again.checkpoints()["then"])
        assert again.stream_cuts() == cuts
        assert again.unread_bytes() == sum(len(text) + 8 for text in rest)
    assert list(held) == []
    assert sorted(drained(reader, 2)) == sorted(rest)
    group.reset(manager.stream_info("sc", "four").tail)
    assert drained(reader, 2) == []


def test_slices_of_before_a_reset_end(manager: StreamManager) -> None:
    write(manager, "one", ["a", "b", "c"])
    group = manager.create_reader_group("rg", "sc", "one")
    reader = group.create_reader("r")
    start = group.stream_cuts()["sc/one"]
    part = next_slice(reader)
    assert next(part).data() == b"a"
    group.reset(start)
    next_slice(reader)  # looks at the group, as there is nothing else to read
    assert list(part) == []
    reader.release_segment(part)
    assert drained(reader) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("positions", "problem"),
    [
        ({0: 5}, "no event of segment 0 begins at offset 5"),
        ({0: 1000}, "has offsets 0 to 18, not 1000"),
        ({1: 0}, "stream cut sc/one:1=0"),
        ({}, "none of its segments has the keys"),
    ],
    ids=["inside an event", "behind the end", "another segment", "nothing"],
)
def test_a_group_begins_at_cuts_only(manager: StreamManager, positions: dict[int, int], problem: str) -> None:
    write(manager, "one", ["a", "b"])
    cut = StreamCut("sc", "one", positions)
    with pytest.raises(InvalidStreamCut, match=problem):
        manager.create_reader_group("rg", "sc", "one", stream_cut=cut)
    group = manager.create_reader_group("rg", "sc", "one")
    with pytest.raises(InvalidStreamCut, match=problem):
        group.reset(cut)
    with pytest.raises(InvalidStreamCut, match="does not read sc/four"):
        group.reset(manager.stream_info("sc", "four").head)


def test_a_group_does_not_begin_before_the_head(manager: StreamManager) -> None:
    write(manager, "one", ["a"])
    head = manager.stream_info("sc", "one").head
    halves(manager, "one")
    manager.truncate_stream("sc", "one", manager.stream_info("sc", "one").tail)
    with pytest.raises(InvalidStreamCut, match="segment 0 of sc/one has been truncated away; begin at the head"):
        manager.create_reader_group("rg", "sc", "one", stream_cut=head)


# --- groups --------------------------------------------------------------------------------------------------


def test_groups_are_made_once_and_deleted(manager: StreamManager) -> None:
    group = manager.create_reader_group("rg", "sc", "one")
    reader = group.create_reader("r")
    with pytest.raises(StreamError, match="reader group sc/rg exists already, with streams sc/one"):
        manager.create_reader_group("rg", "sc", "four")
    for changed in ({"retention": "manual"}, {"lease": 1.0}):
        with pytest.raises(StreamError, match="exists already"):
            config = StreamReaderGroupConfig(False, "sc", "one", **changed)  # type: ignore[arg-type]
            manager.create_reader_group_with_config("rg", "sc", config)
    manager.delete_reader_group("rg", "sc")
    with pytest.raises(ReaderOffline):
        next_slice(reader)
    calls = (
        lambda: manager.delete_reader_group("rg", "sc"),
        lambda: group.create_reader("x"),
        lambda: group.reader_offline("r"),
        group.stream_cuts,
    )
    for call in calls:
        with pytest.raises(GroupNotFound, match="Reader group does not exist: sc/rg"):
            call()
    manager.create_reader_group("rg", "sc", "four").create_reader("r")


def test_what_cannot_be_a_group(manager: StreamManager) -> None:
    with pytest.raises(ValueError, match="No Pravega Streams present in the ReaderGroupConfiguration"):
        StreamReaderGroupConfig(False, "sc")
    with pytest.raises(ValueError, match="lease must be a number of seconds above 0, not 0"):
        StreamReaderGroupConfig(False, "sc", "one", lease=0)
    with pytest.raises(ValueError, match="retention is"):
        StreamReaderGroupConfig(False, "sc", "one", retention="all")  # type: ignore[arg-type]
    with pytest.raises(InvalidStreamCut, match="a stream cut of sc/four was given"):
        StreamReaderGroupConfig(False, "sc", "one", start=[StreamCut("sc", "four", {0: 0})])
    with pytest.raises(ValueError, match="'a b' cannot be the name of a reader group"):
        manager.create_reader_group("a b", "sc", "one")
    with pytest.raises(ScopeNotFound):
        manager.create_reader_group("rg", "none", "one")
    with pytest.raises(StreamNotFound):
        manager.create_reader_group("rg", "sc", "none")
    config = StreamReaderGroupConfig(True, "sc", "one", "four")
    assert config.to_str() == "ReaderGroupConfig: sc/one, sc/four from tail, retention none"
    assert config.to_str() in repr(config)


def test_a_damaged_state_is_an_error(manager: StreamManager) -> None:
    group = manager.create_reader_group("rg", "sc", "one")
    reader = group.create_reader("r")
    group.entry._container.commit([PutEntry(GROUPS, "sc/rg", b"\x00")])
    with pytest.raises(DataCorruption, match="reader group sc/rg: its state cannot be read"):
        next_slice(reader)
    with pytest.raises(DataCorruption):
        manager.create_reader_group("rg", "sc", "one")
    group.entry._container.commit([PutEntry(GROUPS, "sc/rg", None)])


@pytest.mark.parametrize(
    "error",
    [ReaderOffline("r"), ReaderOnline("r"), GroupNotFound("sc/rg"), NotSubscribed("sc/st", "rg")],
    ids=lambda error: type(error).__name__,
)
def test_errors_travel(error: Exception) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


# --- retention -----------------------------------------------------------------------------------------------


def test_a_group_without_retention_subscribes_to_nothing(manager: StreamManager, roots: tuple[Root, Root]) -> None:
    group = manager.create_reader_group("rg", "sc", "one")
    assert subscribers(Stream(roots[0], "sc", "one")) == {}
    with pytest.raises(ValueError, match="has retention 'none', not 'manual'"):
        group.update_retention_stream_cut(manager.stream_info("sc", "one").tail)


def test_manual_retention(manager: StreamManager, roots: tuple[Root, Root]) -> None:
    write(manager, "one", ["a", "b"])
    stream = Stream(roots[0], "sc", "one")
    config = StreamReaderGroupConfig(False, "sc", "one", "four", retention="manual")
    group = manager.create_reader_group_with_config("rg", "sc", config)
    start, end = manager.stream_info("sc", "one").head, manager.stream_info("sc", "one").tail
    assert subscribers(stream) == {"rg": start}
    drained(group.create_reader("r"))
    group.checkpoint("c")
    assert subscribers(stream) == {"rg": start}
    group.update_retention_stream_cut(end)
    group.update_retention_stream_cut(end)
    assert subscribers(stream) == {"rg": end}
    manager.create_reader_group_with_config("rg", "sc", config)
    assert subscribers(stream) == {"rg": end}
    with pytest.raises(InvalidStreamCut, match="is behind"):
        group.update_retention_stream_cut(start)
    with pytest.raises(InvalidStreamCut, match="does not read sc/other"):
        group.update_retention_stream_cut(StreamCut("sc", "other", {0: 0}))
    assert list(subscribers(Stream(roots[0], "sc", "four"))) == ["rg"]
    manager.delete_reader_group("rg", "sc")
    assert subscribers(stream) == subscribers(Stream(roots[0], "sc", "four")) == {}


def test_automatic_retention(manager: StreamManager, roots: tuple[Root, Root], clock: Clock) -> None:
    write(manager, "one", ["a", "b"])
    stream = Stream(roots[1], "sc", "one")
    start = manager.stream_info("sc", "one").head
    group = grouped(roots[0], clock, retention="automatic")
    reader = group.create_reader("r")
    drained(reader)
    assert subscribers(stream) == {"rg": start}
    clock.now += 30
    drained(reader, 2)
    end = manager.stream_info("sc", "one").tail
    assert subscribers(stream) == {"rg": end}
    group.reset(start)
    assert subscribers(stream) == {"rg": start}
    drained(reader, 2)
    group.checkpoint("c")
    assert subscribers(stream) == {"rg": end}


def test_groups_of_other_scopes_are_other_subscribers(manager: StreamManager, roots: tuple[Root, Root]) -> None:
    manager.create_scope("other")
    config = StreamReaderGroupConfig(False, "sc", "one", retention="manual")
    for scope in ("sc", "other"):
        manager.create_reader_group_with_config("rg", scope, config)
    assert list(subscribers(Stream(roots[0], "sc", "one"))) == ["other/rg", "rg"]
    manager.delete_reader_group("rg", "other")
    assert list(subscribers(Stream(roots[0], "sc", "one"))) == ["rg"]


def test_released_cuts_only_move_forward_across_scaling(manager: StreamManager, roots: tuple[Root, Root]) -> None:
    write(manager, "one", ["a", "b"])
    stream = Stream(roots[0], "sc", "one")
    cuts = [manager.stream_info("sc", "one").head, manager.stream_info("sc", "one").tail]
    halves(manager, "one")
    cuts.append(manager.stream_info("sc", "one").tail)
    with pytest.raises(NotSubscribed, match="stream sc/one has no subscriber s"):
        release(stream, "s", cuts[0])
    subscribe(stream, "s", cuts[0])
    for index, cut in enumerate(cuts):
        release(stream, "s", cut)
        assert subscribers(stream) == {"s": cut}
        for before in cuts[:index]:
            with pytest.raises(InvalidStreamCut):
                release(stream, "s", before)
    subscribe(stream, "s", cuts[0])
    assert subscribers(stream) == {"s": cuts[2]}
    subscribe(stream, "s", cuts[0], anew=True)
    assert subscribers(stream) == {"s": cuts[0]}
    with pytest.raises(InvalidStreamCut):
        release(stream, "s", StreamCut("sc", "one", {7: 0}))
