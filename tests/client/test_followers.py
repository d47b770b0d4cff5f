"""What many followers of one stream request, and when they see what is new."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from chunkstore.testing import CountingStore
from engine.root import Root
from engine.storage.object_reads import Stores
from pravega_spark import StreamManager
from pravega_spark.client.groups.reader import POLL
from pravega_spark.client.groups.slices import SegmentSlice
from tests.support.gated import GatedStore


@pytest.fixture
def counting(url: str, manager: StreamManager) -> Iterator[tuple[CountingStore, StreamManager]]:
    """Another process, so to speak, whose requests are counted."""
    root = Root.open(url)
    counting = CountingStore(root.stores.log)
    root.stores = Stores(counting, counting)
    with StreamManager.over(root) as other:
        yield counting, other


def write(manager: StreamManager, stream: str, event: str) -> None:
    with manager.create_writer("sc", stream) as writer:
        writer.write_event(event, "key")


def test_tails_of_one_process_share_looks(counting: tuple[CountingStore, StreamManager]) -> None:
    store, other = counting
    stop, latency = threading.Event(), 0.05
    tails = [other.tail("sc", "one", poll_interval=latency, stop=stop) for _ in range(10)]
    threads = [threading.Thread(target=list, args=[events]) for events in tails]
    store.reset()
    begun = time.monotonic()
    for thread in threads:
        thread.start()
    while store.count() < 8:
        time.sleep(0.01)
    stop.set()
    for thread in threads:
        thread.join()
    assert store.count() <= (time.monotonic() - begun) / latency + 3


def test_tails_of_one_process_all_get_what_another_writes(
    counting: tuple[CountingStore, StreamManager], manager: StreamManager
) -> None:
    store, other = counting
    tails = [other.tail("sc", "one", poll_interval=1000.0) for _ in range(5)]
    write(manager, "one", "x")
    store.reset()
    other.stream_info("sc", "one")  # which shows the frame to the process, and so to all of its followers
    looked = store.count()
    assert [next(events).data for events in tails] == [b"x"] * 5
    assert store.count() - looked == 1  # of the bytes, for all of them


def test_tails_that_read_the_same_at_the_same_time_request_it_once(url: str, manager: StreamManager) -> None:
    root = Root.open(url)
    gate = GatedStore(root.stores.log, lambda request: request.verb == "read_ranges")
    store = CountingStore(gate)
    root.stores = Stores(store, store)
    with StreamManager.over(root) as other:
        tails = [other.tail("sc", "one", poll_interval=1000.0) for _ in range(10)]
        write(manager, "one", "x")
        other.stream_info("sc", "one")
        store.reset()
        gate.open.clear()
        with ThreadPoolExecutor(len(tails)) as pool:
            events = pool.map(next, tails)
            assert gate.reached.wait(60)
            time.sleep(0.2)  # for the others to come to the same
            gate.open.set()
            assert [event.data for event in events] == [b"x"] * len(tails)
        assert store.count() == 1


def test_readers_of_a_group_that_wait_share_looks(counting: tuple[CountingStore, StreamManager]) -> None:
    store, other = counting
    group = other.create_reader_group("rg", "sc", "four")
    readers = [group.create_reader(str(number)) for number in range(4)]

    async def wait() -> list[SegmentSlice]:
        return await asyncio.gather(*(reader.get_segment_slice_async() for reader in readers))

    asyncio.run(wait())  # each gets its share of the segments
    store.reset()
    begun = time.monotonic()
    assert [list(part) for part in asyncio.run(wait())] == [[]] * 4
    elapsed = time.monotonic() - begun
    for reader in readers:
        reader.reader_offline()
    assert store.count() <= 12 * len(readers) + elapsed / POLL + 3


def test_a_reader_that_waits_follows_a_scale(
    counting: tuple[CountingStore, StreamManager], manager: StreamManager
) -> None:
    """In the call that waits, not in the next one."""
    _, other = counting
    group = other.create_reader_group("rg", "sc", "one")
    reader = group.create_reader("a")

    def scale() -> None:
        time.sleep(0.1)
        segments = [one.id for one in manager.stream_info("sc", "one").segments]
        manager.scale_stream("sc", "one", segments, [(0.0, 0.5), (0.5, 1.0)])
        write(manager, "one", "behind")

    async def wait() -> list[bytes]:
        loop, begun = asyncio.get_running_loop(), time.monotonic()
        loop.time = lambda: begun + (time.monotonic() - begun) / 5  # type: ignore[method-assign]  # patience for 5 s
        part, _ = await asyncio.gather(reader.get_segment_slice_async(), asyncio.to_thread(scale))
        return [event.data() for event in part]

    assert asyncio.run(wait()) == [b"behind"]
    reader.reader_offline()
