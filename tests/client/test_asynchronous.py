"""Writing and following streams in event loops: what is durable, in which order, and what a cancelled call leaves."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import signal
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Coroutine, Iterator
from contextlib import aclosing, contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import pytest

from chunkstore import StorageUnavailable, Store
from chunkstore.testing import Crashed, FaultStore, Request, WrappingStore, crash_at, fail_at
from engine.root import Root
from engine.settings import Settings
from engine.storage.object_reads import Stores
from pravega_spark import (
    AsyncEventWriter,
    Closed,
    Event,
    MadeBeforeFork,
    StreamManager,
    StreamNotFound,
    StreamSealed,
    TruncatedData,
    WriteFailed,
)
from tests.support import limits
from tests.support.gated import GatedStore

Result = TypeVar("Result")
Through = TypeVar("Through", bound=WrappingStore)

AFTER = 60.0
"""Seconds after which a program is said to hang."""


def run(program: Coroutine[Any, Any, Result]) -> Result:
    """Run a program in an event loop of its own."""
    return asyncio.run(asyncio.wait_for(program, AFTER))


@contextmanager
def through(url: str, wrap: Callable[[Store], Through]) -> Iterator[tuple[StreamManager, Through]]:
    """Another process, so to speak, whose requests go through a store that `wrap` makes."""
    root = Root.open(url, settings=Settings(timeout=0.05, maintenance=False))
    store = wrap(root.stores.log)
    root.stores = Stores(store, store)
    with StreamManager.over(root) as manager:
        yield manager, store


class Requesters(WrappingStore):
    """Records which threads make requests."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.threads: set[int] = set()

    def _carry_out(self, request: Request, call: Callable[[], Result]) -> Result:
        self.threads.add(threading.get_ident())
        return call()


def payloads(manager: StreamManager, stream: str = "one") -> list[str]:
    return [event.data.decode() for event in manager.read_events("sc", stream)]


def started(others: Collection[threading.Thread]) -> list[threading.Thread]:
    """The threads that run, without those that ran before: other tests may have left some."""
    return [each for each in threading.enumerate() if each not in others]


async def until(true: Callable[[], object]) -> None:
    while not true():
        await asyncio.sleep(0.005)


@pytest.fixture(autouse=True)
def asyncio_complains_of_nothing(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No error of a future or a task that no one awaited."""
    yield
    gc.collect()
    found = [each.getMessage() for each in caplog.records if each.name == "asyncio" and each.levelno > logging.INFO]
    assert found == []


# --- writing -------------------------------------------------------------------------------------------------------


def test_a_write_returns_when_it_is_durable(manager: StreamManager) -> None:
    async def program() -> None:
        async with manager.create_async_writer("sc", "one") as writer:
            for number, write in enumerate((writer.write_event("a", "k"), writer.write_event_bytes(b"b"))):
                await write
                assert writer.durable_events == number + 1 == len(payloads(manager))
            await writer.write_events(["c"], routing_key="k", atomic=True)
            await writer.write_events(["d"])
            assert (writer.durable_events, writer.unconfirmed, writer.waiting) == (4, 0, 0)
            assert payloads(manager) == ["a", "b", "c", "d"]
            await writer.flush()
        with pytest.raises(Closed, match="this writer of stream sc/one is closed"):
            await writer.write_event("e")
        with pytest.raises(Closed):
            await writer.flush()
        await writer.close()

    run(program())
    assert len(payloads(manager)) == 4


def test_no_request_is_made_in_the_thread_of_the_event_loop(url: str, manager: StreamManager) -> None:
    async def program(store: Requesters, other: StreamManager) -> None:
        store.threads.clear()
        async with other, other.create_async_writer("sc", "one", producer="p") as writer:
            async with other.tail_async("sc", "one", poll_interval=0.01) as tail:
                await asyncio.gather(*(writer.write_event(str(number)) for number in range(100)))
                await writer.write_events([str(number) for number in range(100, 200)])
                assert [(await anext(tail)).data.decode() for _ in range(200)] == [str(n) for n in range(200)]
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(anext(tail), 0.1)
            assert writer.last_number == 199
            await writer.flush()
        assert store.threads and threading.get_ident() not in store.threads

    with through(url, Requesters) as (other, store):
        run(program(store, other))


def test_a_manager_that_has_not_opened_its_root_opens_it_in_another_thread(tmp_path: Path) -> None:
    async def program(later: StreamManager) -> None:
        with pytest.raises(StreamNotFound):
            async with later.create_async_writer("sc", "none"):
                pass
        with pytest.raises(StreamNotFound):
            await anext(later.tail_async("sc", "none"))
        for wrong in (later.create_async_writer, later.tail_async):
            with pytest.raises(ValueError, match="a b"):
                wrong("sc", "a b")
        with pytest.raises(ValueError, match="poll_interval"):
            later.tail_async("sc", "one", poll_interval=-1)
        writer = later.create_async_writer("sc", "one")
        with pytest.raises(ValueError, match="is not open: use it in an async with statement"):
            await writer.write_event("x")
        await writer.close()
        with pytest.raises(Closed):
            await writer.open()

    with StreamManager(str(tmp_path / "root")) as later:  # there is no root yet
        with StreamManager(str(tmp_path / "root")) as first:
            first.create_scope("sc")
        run(program(later))


@pytest.mark.parametrize("queued", [64 << 20, 2_000])
def test_events_are_in_the_order_of_the_calls(
    manager: StreamManager, monkeypatch: pytest.MonkeyPatch, queued: int
) -> None:
    """Also those that wait for room, and those that follow them while there is room."""
    limits.queued_bytes(monkeypatch, queued)

    async def program() -> None:
        async with manager.create_async_writer("sc", "one") as writer:
            writes: list[Coroutine[Any, Any, None]] = []
            for number in range(0, 1000, 5):
                writes.append(writer.write_event(f"{number}"))
                writes.append(writer.write_event_bytes(f"{number + 1}".encode()))
                writes.append(writer.write_events([f"{number + 2}", f"{number + 3}"]))
                writes.append(writer.write_event(f"{number + 4}"))
            for first in range(0, len(writes), 200):
                await asyncio.gather(*writes[first : first + 200])

    run(program())
    assert payloads(manager) == [str(number) for number in range(1000)]


def test_a_write_does_not_overtake_those_that_wait(
    url: str, manager: StreamManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits.queued_bytes(monkeypatch, 100)

    async def program(other: StreamManager, gate: GatedStore) -> None:
        async with other.create_async_writer("sc", "one") as writer:
            gate.open.clear()
            first = asyncio.create_task(writer.write_event("1" * 200))
            await until(lambda: writer.unconfirmed)
            second = asyncio.create_task(writer.write_event("2"))
            await until(lambda: writer.waiting)
            gate.open.set()
            while writer.durable_events == 0:  # there is room now, and this loop does not know it yet
                time.sleep(0.001)
            await writer.write_event("3")
            await asyncio.gather(first, second)

    with through(url, GatedStore) as (other, gate):
        run(program(other, gate))
    assert payloads(manager) == ["1" * 200, "2", "3"]


def test_a_full_queue_is_awaited_and_blocks_no_other_coroutine(
    url: str, manager: StreamManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits.queued_bytes(monkeypatch, 10_000)

    async def program(other: StreamManager, gate: GatedStore) -> None:
        async with other.create_async_writer("sc", "one") as writer:
            gate.open.clear()
            content = bytearray(b"x" * 1000)
            tasks = [asyncio.create_task(writer.write_event_bytes(content)) for _ in range(50)]
            flushing = asyncio.create_task(writer.flush())
            await until(lambda: writer.waiting == 41)
            content[:] = b"changed"
            closing = asyncio.create_task(writer.close())
            await asyncio.sleep(0.1)
            assert writer.unconfirmed == 10 and not any(task.done() for task in (*tasks, flushing, closing))
            with pytest.raises(Closed):
                await writer.write_event("too late")
            gate.open.set()
            await asyncio.gather(*tasks, flushing, closing)
            assert (writer.durable_events, writer.unconfirmed, writer.waiting) == (50, 0, 0)

    with through(url, GatedStore) as (other, gate):
        run(program(other, gate))
    assert payloads(manager) == ["x" * 1000] * 50


def test_a_write_that_is_cancelled_while_it_waits_for_room_writes_nothing(
    url: str, manager: StreamManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits.queued_bytes(monkeypatch, 100)

    async def program(other: StreamManager, gate: GatedStore) -> None:
        async with other.create_async_writer("sc", "one") as writer:
            gate.open.clear()
            first = asyncio.create_task(writer.write_event("first" * 100))
            await until(lambda: writer.unconfirmed)
            for _ in range(100):  # as clients do that give up and try again while the storage hangs
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(writer.write_event("never"), 0.001)
                assert (writer.waiting, writer.unconfirmed) == (0, 1)
            waiting = [asyncio.create_task(writer.write_events([f"{n}", f"{n}"], ["k", "k"])) for n in range(10)]
            await until(lambda: writer.waiting == 10)
            for task in waiting[::2]:
                task.cancel()
            gate.open.set()
            await asyncio.gather(*waiting, return_exceptions=True)
            assert [task.cancelled() for task in waiting] == [True, False] * 5
            await first

    with through(url, GatedStore) as (other, gate):
        run(program(other, gate))
    assert payloads(manager) == ["first" * 100, *(each for n in range(1, 10, 2) for each in (f"{n}", f"{n}"))]


def test_a_write_that_is_cancelled_later_is_counted_and_becomes_durable(url: str, manager: StreamManager) -> None:
    async def program(other: StreamManager, gate: GatedStore) -> None:
        async with other.create_async_writer("sc", "one") as writer:
            gate.open.clear()
            tasks = [asyncio.create_task(writer.write_event(f"{number}")) for number in range(10)]
            await until(lambda: writer.unconfirmed == 10)
            for task in tasks[:5]:
                task.cancel()
            await asyncio.wait(tasks[:5])
            assert (writer.unconfirmed, writer.durable_events) == (10, 0)
            gate.open.set()
            await asyncio.gather(*tasks[5:])
            await writer.flush()
            assert (writer.unconfirmed, writer.durable_events) == (0, 10)

    with through(url, GatedStore) as (other, gate):
        run(program(other, gate))
    assert payloads(manager) == [str(number) for number in range(10)]


def test_closing_waits_for_what_was_written_and_blocks_no_other_coroutine(url: str, manager: StreamManager) -> None:
    async def program(other: StreamManager, gate: GatedStore) -> None:
        writer = await other.create_async_writer("sc", "one").open()
        gate.open.clear()
        written = asyncio.create_task(writer.write_event("x"))
        await until(lambda: writer.unconfirmed)
        closing = asyncio.create_task(writer.close())
        await asyncio.sleep(0.1)
        assert not closing.done()
        gate.open.set()
        await closing
        assert writer.durable_events == 1
        await written

    with through(url, GatedStore) as (other, gate):
        run(program(other, gate))


def test_numbered_events_are_written_once(manager: StreamManager) -> None:
    async def program() -> None:
        async with manager.create_async_writer("sc", "one", producer="p") as writer:
            assert writer.last_number is None
            await asyncio.gather(*(writer.write_event(f"{number}", number=number) for number in range(10)))
            await asyncio.gather(*(writer.write_event(f"{number}", number=number) for number in range(5, 15)))
            await writer.write_events(["14", "15"], numbers=[14, 15])
            await writer.write_event("16")
            assert writer.last_number == 16
        async with manager.create_async_writer("sc", "one") as writer:
            with pytest.raises(ValueError, match="no producer id"):
                assert writer.last_number
            with pytest.raises(ValueError, match="no producer id"):
                await writer.write_event("x", number=1)

    run(program())
    assert payloads(manager) == [str(number) for number in range(17)]


class CountingLoop(asyncio.SelectorEventLoop):
    """Counts how often other threads wake it."""

    woken = 0

    def call_soon_threadsafe(self, *arguments: Any, **named: Any) -> asyncio.Handle:  # type: ignore[override]
        self.woken += 1
        return super().call_soon_threadsafe(*arguments, **named)


def test_an_append_wakes_the_loop_once_however_many_coroutines_wait(manager: StreamManager) -> None:
    async def program() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, CountingLoop)
        async with manager.create_async_writer("sc", "one") as writer:
            await writer.write_event("the first, which opens what there is to open")
            first, loop.woken = manager.root.container(0).head.address, 0
            for _ in range(5):
                await asyncio.gather(*(writer.write_event(f"{number}") for number in range(1000)))
            frames = manager.root.container(0).head.address - first
            assert loop.woken <= frames < 500

    loop = CountingLoop()
    try:
        loop.run_until_complete(asyncio.wait_for(program(), AFTER))
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()


# --- loops, processes, signals -------------------------------------------------------------------------------------


def test_a_loop_that_is_closed_before_its_writes_are_durable_harms_nothing(url: str, manager: StreamManager) -> None:
    """Its coroutines are lost; the events are not."""
    with through(url, GatedStore) as (other, gate):
        loop = asyncio.new_event_loop()
        writer = loop.run_until_complete(other.create_async_writer("sc", "one").open())
        gate.open.clear()
        writes = [writer.write_event(f"{number}") for number in range(3)]
        for write in writes:
            assert asyncio.isfuture(first_wait(loop, write))
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
        for write in writes:
            write.close()
        gate.open.set()

        async def elsewhere() -> None:
            with pytest.raises(RuntimeError, match="belongs to another event loop"):
                await writer.write_event("x")
            async with other.create_async_writer("sc", "one") as own:
                await own.write_event("3")

        run(elsewhere())
        while writer.durable_events < 3:
            time.sleep(0.005)
    assert sorted(payloads(manager)) == [str(number) for number in range(4)]  # two writers have no order


def first_wait(loop: asyncio.AbstractEventLoop, write: Coroutine[Any, Any, None]) -> object:
    """What a call waits for first, which has written then."""

    async def step() -> object:
        return write.send(None)

    return loop.run_until_complete(step())


def test_asyncio_run_ends_with_pending_writes(url: str, manager: StreamManager) -> None:
    async def program(other: StreamManager, gate: GatedStore) -> None:
        writer = await other.create_async_writer("sc", "one").open()
        gate.open.clear()
        tasks = [asyncio.create_task(writer.write_event(f"{number}")) for number in range(3)]
        await until(lambda: writer.unconfirmed == 3)
        assert not any(task.done() for task in tasks)

    with through(url, GatedStore) as (other, gate):
        run(program(other, gate))
        gate.open.set()
    assert payloads(manager) == ["0", "1", "2"]


def test_each_thread_has_a_loop_and_a_writer_of_its_own(manager: StreamManager) -> None:
    async def program(name: int) -> None:
        async with manager.create_async_writer("sc", "four") as writer:
            await asyncio.gather(*(writer.write_event(f"{name}:{n}", f"key {name}") for n in range(200)))

    threads = [threading.Thread(target=lambda name=name: run(program(name))) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = payloads(manager, "four")
    for name in range(4):
        assert [each for each in found if each.startswith(f"{name}:")] == [f"{name}:{n}" for n in range(200)]


@pytest.mark.processes
def test_a_fork_is_refused(manager: StreamManager) -> None:
    async def program() -> AsyncEventWriter:
        async with manager.create_async_writer("sc", "one") as writer:
            child = os.fork()
            if child == 0:
                try:
                    writer.write_event("x").send(None)
                except MadeBeforeFork:
                    os._exit(7)
                os._exit(1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
            await writer.write_event("mine")
        return writer

    run(program())
    assert payloads(manager) == ["mine"]


@pytest.mark.parametrize("seed", range(5))
def test_ctrl_c_loses_and_doubles_nothing(manager: StreamManager, seed: int) -> None:
    moments, resolved, begun = random.Random(seed), list[str](), set[str]()

    async def write(writer: AsyncEventWriter, name: int) -> None:
        for number in range(100_000):
            event = f"{name}:{number}"
            begun.add(event)
            await writer.write_event(event, f"{name}")
            resolved.append(event)

    async def program() -> None:
        async with manager.create_async_writer("sc", "four") as writer:
            await asyncio.gather(*(write(writer, name) for name in range(20)))

    timer = threading.Timer(0.05 + moments.random() * 0.1, signal.raise_signal, [signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        run(program())
    timer.join()
    found = Counter(payloads(manager, "four"))
    assert set(found.values()) <= {1} and set(resolved) <= found.keys() <= begun
    with manager.create_writer("sc", "four") as writer:
        writer.write_event("goes on")


# --- failures ------------------------------------------------------------------------------------------------------


def test_every_call_that_waits_gets_the_failure_once(url: str, manager: StreamManager) -> None:
    async def program(other: StreamManager, store: FaultStore) -> None:
        writer = await other.create_async_writer("sc", "one").open()
        await writer.write_event("kept")
        store.plan = fail_at(store.passed + 1, forever=True)
        tasks = [asyncio.create_task(writer.write_event(f"{number}")) for number in range(20)]
        found = await asyncio.gather(*tasks, writer.flush(), return_exceptions=True)
        assert all(isinstance(error, WriteFailed) and error.unconfirmed == 20 for error in found)
        assert len({id(error) for error in found}) == 21
        assert (writer.durable_events, writer.unconfirmed) == (1, 20)
        for call in (writer.write_event("more"), writer.write_events(["more"]), writer.flush()):
            with pytest.raises(WriteFailed):
                await call
        await writer.close()  # it was raised already

    with through(url, lambda inner: FaultStore(inner, verbs=("put_if_absent",))) as (other, store):
        run(program(other, store))


def test_a_failure_that_no_call_raised_is_raised_by_close(url: str, manager: StreamManager) -> None:
    others = set(threading.enumerate())

    async def program(other: StreamManager, store: FaultStore) -> None:
        async with other.create_async_writer("sc", "one") as writer:
            store.plan = fail_at(store.passed + 1, forever=True)
            task = asyncio.create_task(writer.write_event("lost"))
            await until(lambda: writer.unconfirmed)
            task.cancel()
            await until(lambda: not any(each.name.startswith("event-writer ") for each in started(others)))
            await asyncio.sleep(0.01)

    with (
        through(url, lambda inner: FaultStore(inner, verbs=("put_if_absent",))) as (other, store),
        pytest.raises(WriteFailed, match="The last 1 events"),
    ):
        run(program(other, store))


def test_a_write_to_a_sealed_stream_says_so(manager: StreamManager) -> None:
    async def program() -> None:
        async with manager.create_async_writer("sc", "one") as writer:
            await asyncio.to_thread(manager.seal_stream, "sc", "one")
            found = await asyncio.gather(*(writer.write_event(f"{n}") for n in range(3)), return_exceptions=True)
            assert [type(error) for error in found] == [StreamSealed] * 3
        with pytest.raises(StreamSealed):
            await manager.create_async_writer("sc", "one").open()

    run(program())


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # threads that died
def test_every_call_ends_at_whichever_request_the_storage_fails(
    url: str, manager: StreamManager, monkeypatch: pytest.MonkeyPatch, when: Any, crash: bool
) -> None:
    """Or the process, for which other threads than those of the event loop stand. What was awaited is there, once."""
    limits.queued_bytes(monkeypatch, 100)
    ends = (WriteFailed, Crashed, StorageUnavailable)
    numbers = iter(range(1_000_000))

    async def program(other: StreamManager, resolved: list[str]) -> None:
        async def follow() -> None:
            async with aclosing(other.tail_async("sc", "one", poll_interval=0.01)) as tail:
                async for _ in tail:
                    pass

        async def write(writer: AsyncEventWriter, event: str) -> None:
            await writer.write_event(event)
            resolved.append(event)

        tailing = asyncio.create_task(follow())
        with suppress(*ends):
            async with other.create_async_writer("sc", "one") as writer:
                for _ in range(3):
                    events = [f"event {next(numbers)}" for _ in range(20)]
                    found = await asyncio.gather(*(write(writer, each) for each in events), return_exceptions=True)
                    assert all(error is None or isinstance(error, ends) for error in found)
        tailing.cancel()
        with suppress(asyncio.CancelledError, *ends):
            await tailing

    def life(at: int | None) -> int:
        resolved: list[str] = []
        with through(url, FaultStore) as (other, store):
            before = store.passed
            if at is not None:
                store.plan = crash_at(before + at, when) if crash else fail_at(before + at, when, forever=True)
            run(program(other, resolved))
            passed, store.plan, store.crashed = store.passed - before, None, False
        found = Counter(payloads(manager))
        assert all(found[each] == 1 for each in resolved) and set(found.values()) <= {1}
        return passed

    for at in range(1, life(None) + 1, 2):
        life(at)


# --- following -----------------------------------------------------------------------------------------------------


async def take(tail: Any, count: int) -> list[str]:
    return [(await anext(tail)).data.decode() for _ in range(count)]


def test_a_tail_returns_what_is_written_after_it_began_and_ends_with_the_stream(manager: StreamManager) -> None:
    async def program() -> list[str]:
        with manager.create_writer("sc", "one") as writer:
            writer.write_event("before")
            writer.flush()
            async with manager.tail_async("sc", "one") as tail:
                writer.write_events([f"{number}" for number in range(10)])
                writer.flush()
                manager.seal_stream("sc", "one")
                found = [event.data.decode() async for event in tail]
                with pytest.raises(StopAsyncIteration):
                    await anext(tail)
        earlier = manager.tail_async("sc", "one", start="earliest")
        assert [event.data.decode() async for event in earlier] == ["before", *found]
        return found

    assert run(program()) == [str(number) for number in range(10)]


def test_a_tail_serves_loops_and_event_loops(manager: StreamManager) -> None:
    """It begins where the call found the position, whoever iterates."""

    async def program() -> list[str]:
        tail = manager.tail("sc", "one")
        await asyncio.to_thread(write)
        return [event.data.decode() async for event in tail]

    def write() -> None:
        with manager.create_writer("sc", "one") as writer:
            writer.write_events(["a", "b"])
        manager.seal_stream("sc", "one")

    assert run(program()) == ["a", "b"]
    assert [event.data.decode() for event in manager.tail("sc", "one", "earliest")] == ["a", "b"]


def test_a_tail_reads_much_in_rounds(manager: StreamManager) -> None:
    """Of bounded memory, whatever is there: what was truncated meanwhile is not in memory."""
    numbers = [f"{number:06}{'x' * 1000}" for number in range(5000)]
    with manager.create_writer("sc", "four") as writer:
        writer.write_events(numbers, [f"key {number % 9}" for number in range(5000)])

    async def program() -> tuple[list[str], list[str]]:
        tail = manager.tail_async("sc", "four", "earliest")
        found = await take(manager.tail_async("sc", "four", "earliest"), 5000)
        some = await take(tail, 1)
        manager.truncate_stream("sc", "four", "latest")
        with pytest.raises(TruncatedData):
            while True:
                some += await take(tail, 1)
        return found, some

    found, some = run(program())
    assert sorted(found) == numbers and 500 < len(some) < 1500
    for key in range(9):
        of_key = [each for each in found if int(each[:6]) % 9 == key]
        assert of_key == sorted(of_key)


def test_a_tail_that_is_cancelled_all_the_time_loses_no_event(manager: StreamManager) -> None:
    moments = random.Random(1)

    async def write() -> None:
        async with manager.create_async_writer("sc", "one") as writer:
            for number in range(0, 200, 4):
                await writer.write_events([f"{each}" for each in range(number, number + 4)])
        await asyncio.to_thread(manager.seal_stream, "sc", "one")

    async def program() -> list[str]:
        found = []
        async with manager.tail_async("sc", "one", "earliest", poll_interval=0.001) as tail:
            writing = asyncio.create_task(write())
            with suppress(StopAsyncIteration):
                while True:
                    with suppress(asyncio.TimeoutError):
                        found.append((await asyncio.wait_for(anext(tail), moments.random() * 0.003)).data.decode())
            await writing
        return found

    assert run(program()) == [str(number) for number in range(200)]


def test_another_tail_continues_at_the_position_of_one(manager: StreamManager) -> None:
    """Behind the last event that it returned; around a scale it may return some again."""
    written = [f"{number}" for number in range(60)]

    def write(first: int) -> None:
        with manager.create_writer("sc", "four") as writer:
            writer.write_events(written[first : first + 20], [f"key {n % 7}" for n in range(first, first + 20)])

    async def all_of(start: Any) -> list[str]:
        async with manager.tail_async("sc", "four", start) as tail:
            return [event.data.decode() async for event in tail]

    async def program() -> None:
        async with manager.tail_async("sc", "four") as tail:
            write(0)
            seen = await take(tail, 13)
            between = tail.position
            seen += await take(tail, 7)
            write(20)
            at_scale = tail.position
            segments = [segment.id for segment in manager.stream_info("sc", "four").segments]
            manager.scale_stream("sc", "four", segments[:2], [(0.0, 0.1), (0.1, 0.5)])
            write(40)
            manager.seal_stream("sc", "four")
            places = [(list(seen), tail.position)]
            async for event in tail:
                seen.append(event.data.decode())
                places.append((list(seen), tail.position))
        assert sorted(seen) == sorted(written)
        assert Counter(seen[:13] + await all_of(between)) == Counter(written)
        assert Counter(seen[:20] + await all_of(at_scale)) == Counter(written)
        for before, place in places:
            assert set(before) | set(await all_of(place)) == set(written)
        assert await all_of(tail.position) == []

    run(program())
    with pytest.raises(ValueError, match="has not begun"):
        assert manager.tail_async("sc", "four").position


def test_what_ends_a_tail_that_waits(url: str, manager: StreamManager) -> None:
    async def waits(tail: Any) -> asyncio.Task[Event]:
        task = asyncio.create_task(anext(tail))
        done, _ = await asyncio.wait([task], timeout=0.05)
        assert not done
        return task

    async def program() -> None:
        stop = threading.Event()
        stopped = await waits(manager.tail_async("sc", "one", poll_interval="1h", stop=stop))
        called = await waits(manager.tail_async("sc", "one", poll_interval=0.01, stop=stop.is_set))
        cancelled = await waits(manager.tail_async("sc", "one", poll_interval="1h"))
        stop.set()
        cancelled.cancel()
        closed = manager.tail_async("sc", "one", poll_interval="1h")
        closing = await waits(closed)
        await closed.aclose()
        other = await asyncio.to_thread(StreamManager, url)
        async with other:
            left = await waits(other.tail_async("sc", "one", poll_interval="1h"))
        for task in (stopped, called, closing):
            with pytest.raises(StopAsyncIteration):
                await task
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        with pytest.raises(Closed, match="this manager"):
            await left
        with pytest.raises(Closed):
            other.tail_async("sc", "one")

    run(program())


def test_tails_that_wait_hold_no_thread(manager: StreamManager) -> None:
    async def program() -> None:
        before = threading.active_count()
        async with manager.create_async_writer("sc", "one") as writer:
            tails = [manager.tail_async("sc", "one", "earliest", poll_interval=0.5) for _ in range(200)]
            tasks = [asyncio.create_task(anext(tail)) for tail in tails]
            await asyncio.sleep(0.2)
            assert threading.active_count() - before <= (os.cpu_count() or 1) + 6  # the pool of asyncio, and a writer
            await writer.write_event("x")
            assert {event.data for event in await asyncio.gather(*tasks)} == {b"x"}

    run(program())


def test_a_tail_whose_poll_fails_can_be_continued(url: str, manager: StreamManager) -> None:
    async def program(other: StreamManager, store: FaultStore) -> None:
        async with other.tail_async("sc", "one", poll_interval=0.01) as tail:
            with manager.create_writer("sc", "one") as writer:
                writer.write_event("x")
            store.plan = fail_at(store.passed + 1, forever=True)
            for _ in range(2):
                with pytest.raises(StorageUnavailable):
                    await anext(tail)
            store.plan = None
            assert await take(tail, 1) == ["x"]

    with through(url, FaultStore) as (other, store):
        run(program(other, store))


# --- all together --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(3, 60))])
def test_whatever_tasks_do_what_they_awaited_is_there_once_and_in_order(
    manager: StreamManager, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Random writes, columns, cancellations and timeouts from many tasks, while the stream is scaled and followed."""
    choice = random.Random(seed)
    limits.queued_bytes(monkeypatch, choice.choice([200, 2_000, 64 << 20]))
    calls: dict[str, list[list[str]]] = defaultdict(list)  # by key, in their order
    resolved: list[list[str]] = []
    followed: list[str] = []

    async def write(writer: AsyncEventWriter, key: str, events: list[str]) -> None:
        calls[key].append(events)
        if len(events) == 1:
            await writer.write_event(events[0], key)
        else:
            await writer.write_events(events, [key] * len(events))
        resolved.append(events)

    async def worker(writer: AsyncEventWriter, name: int) -> None:
        for number in range(30):
            size = choice.choice([1, 1, 1, 5])
            events = [f"{name}:{number}:{each}" for each in range(size)]
            tasks = [asyncio.create_task(write(writer, f"key {name % 4}", events))]
            if choice.random() < 0.3:
                await asyncio.sleep(choice.choice([0, 0.001]))
                tasks[0].cancel()
            await asyncio.wait(tasks, timeout=choice.choice([0.0005, None]))
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            for task in tasks:
                assert task.cancelled() or task.exception() is None

    async def scale() -> None:
        for turn in range(4):
            await asyncio.sleep(choice.random() * 0.05)
            segments = [each.id for each in manager.stream_info("sc", "one").segments]
            bounds = [0.0, choice.uniform(0.1, 0.9), 1.0] if turn % 2 else [0.0, 0.3, 0.6, 1.0]
            ranges = list(pairwise(bounds))
            await asyncio.to_thread(manager.scale_stream, "sc", "one", segments, ranges)

    async def follow() -> None:
        tail = manager.tail_async("sc", "one", "earliest", poll_interval=0.005)
        followed.extend([event.data.decode() async for event in tail])

    async def program() -> None:
        following = asyncio.create_task(follow())
        async with manager.create_async_writer("sc", "one") as writer:
            await asyncio.gather(scale(), *(worker(writer, name) for name in range(12)))
            await writer.flush()
            assert (writer.unconfirmed, writer.waiting) == (0, 0)
            assert writer.durable_events == manager.stream_info("sc", "one").events
        await asyncio.to_thread(manager.seal_stream, "sc", "one")
        await following

    run(program())
    found = payloads(manager)
    assert len(found) == len(set(found)) and sorted(found) == sorted(followed)
    there, at = set(found), {event: place for place, event in enumerate(found)}
    assert there.issuperset(event for events in resolved for event in events)
    for written in calls.values():
        for events in written:
            assert there.issuperset(events) or there.isdisjoint(events)
        places = [at[event] for events in written for event in events if event in there]
        assert places == sorted(places)
    assert there <= {event for written in calls.values() for events in written for event in events}
