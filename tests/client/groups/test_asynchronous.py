"""Readers in an event loop."""

from __future__ import annotations

import asyncio
import threading

import pytest

from engine.root import Root
from engine.storage.object_reads import Stores
from pravega_spark import StreamManager
from pravega_spark.client.groups.slices import SegmentSlice
from tests.client.groups.reading import next_slice, numbered, payloads, run, share, write
from tests.support.gated import GatedStore

pytestmark = pytest.mark.usefixtures("no_patience")


def gated(url: str) -> tuple[Root, GatedStore]:
    root = Root.open(url)
    gate = GatedStore(root.stores.log, holds=lambda request: True)
    root.stores = Stores(gate, gate)
    return root, gate


def test_storage_never_blocks_the_loop_and_readers_work_at_the_same_time(url: str, manager: StreamManager) -> None:
    write(manager, "four", numbered(100), key=None)
    root, gate = gated(url)
    with StreamManager.over(root) as slow:
        group = slow.create_reader_group("rg", "sc", "four")
        readers = [group.create_reader(f"r{number}") for number in range(4)]
        share(*readers)

        async def work() -> list[SegmentSlice]:
            gate.open.clear()
            tasks = [asyncio.create_task(reader.get_segment_slice_async()) for reader in readers]
            while gate.held < 2:  # a loop that is blocked would never get here
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
            while not gate.held:
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
        found: list[str] = []
        while len(found) < 100:
            for part in await asyncio.gather(*(reader.get_segment_slice_async() for _ in range(3))):
                found += payloads(part)
                reader.release_segment(part)
        return found

    assert sorted(map(int, run(work()))) == list(range(100))


def test_no_thread_before_the_first_slice(manager: StreamManager) -> None:
    others = set(threading.enumerate())  # of readers that nobody has collected yet

    def threads() -> list[str]:
        found = set(threading.enumerate()) - others
        return [thread.name for thread in found if thread.name.startswith("reader-group")]

    group = manager.create_reader_group("rg", "sc", "one")
    reader = group.create_reader("r")
    assert threads() == []
    next_slice(reader)
    assert len(threads()) == 1
    group.close()
    assert threads() == []
