"""Numbering producers: each number is written once, whatever fails and whichever process writes it (X3)."""

from __future__ import annotations

import multiprocessing
import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest

from chunkstore import StorageUnavailable
from chunkstore.testing import CountingStore, Crashed, FaultStore, SimulatedStore, crash_at, fail_at
from chunkstore.testing.faults import Plan
from engine.errors import BadAttributeUpdate
from engine.root import Root
from engine.settings import Settings
from engine.storage.object_reads import Stores
from pravega_spark import StreamManager, WriteFailed
from pravega_spark.client.writer import EventWriter
from pravega_spark.errors import NumbersLost
from pravega_spark.streams.model.policies import ScalingPolicy
from pravega_spark.streams.stream import Stream
from pravega_spark.streams.writing.event_numbers import MAX_NUMBER, AlreadyWritten, NumberedWrite, NumberUpdate
from tests.client.large_events.simulated import SimulatedRoot, process, stream_of
from tests.client.small_batches import make_batches_small
from tests.streams.test_transactions import check, parts, stream_on
from tests.support.simulation import Simulation

SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[StreamManager]:
    with StreamManager(str(tmp_path / "root")) as opened:
        opened.create_scope("sc")
        opened.create_stream("sc", "st", 3)
        yield opened


def numbers(manager: StreamManager) -> list[int]:
    """All events, in the order of the stream."""
    return [int(event.data) for event in manager.last_events("sc", "st", 100_000)]


def test_a_producer_goes_on_after_its_last_number(manager: StreamManager) -> None:
    with manager.create_writer("sc", "st", producer="p") as writer:
        assert writer.last_number is None
        for number in range(10):
            writer.write_event(str(number), f"key {number}")
        writer.flush()
        assert writer.last_number == 9
        writer.write_events([str(number) for number in range(10, 2000)], [f"key {n}" for n in range(10, 2000)])
    with manager.create_writer("sc", "st", producer="p") as writer:
        assert writer.last_number == 1999
        writer.write_event("2000")
    with manager.create_writer("sc", "st", producer="q") as writer:
        assert writer.last_number is None
    assert numbers(manager) == list(range(2001))


def test_events_with_numbers_that_were_written_are_dropped(manager: StreamManager) -> None:
    """A source that repeats itself, with numbers of its own that have gaps."""
    with manager.create_writer("sc", "st", producer="p") as writer:
        for number in (0, 10, 20, 20, 10, 30):
            writer.write_event(str(number), "key", number=number)
        writer.write_events(["20", "30", "40", "50"], numbers=[20, 30, 40, 50])
        writer.write_events(["40", "50"], numbers=np.array([40, 50], np.uint16))
    with manager.create_writer("sc", "st", producer="p") as writer:
        assert writer.last_number == 50
        writer.write_events(["30", "40", "50", "60"], ["a", "b", "c", "d"], numbers=[30, 40, 50, 60])
        writer.write_event("61")
        writer.flush()
        assert writer.last_number == 61
    assert numbers(manager) == [0, 10, 20, 30, 40, 50, 60, 61]


@pytest.mark.parametrize("size", [1, 2000], ids=["through the log", "in chunks of their own"])
@pytest.mark.parametrize("columns", [False, True])
def test_two_writers_of_one_producer_write_each_number_once(manager: StreamManager, columns: bool, size: int) -> None:
    """Each of them finds out by the rejected append what the other one has written."""

    def write(writer: EventWriter, first: int, end: int) -> None:
        events = [str(number).rjust(size) for number in range(first, end)]
        if columns:
            writer.write_events(events, numbers=range(first, end))
        else:
            for number, event in zip(range(first, end), events, strict=True):
                writer.write_event(event, number=number)
        writer.flush()

    many = 3000 if size > 1 else 300
    with (
        manager.create_writer("sc", "st", producer="p") as one,
        manager.create_writer("sc", "st", producer="p") as other,
    ):
        write(one, 0, many)
        write(other, 0, many // 2)  # all of them are there
        write(one, many, many + 10)
        write(other, many // 2, 2 * many)  # the first ones are
        write(one, many + 10, 2 * many + 5)
        assert one.last_number == 2 * many + 4
    assert numbers(manager) == list(range(2 * many + 5))


def test_numbers_outlast_a_scale_a_flush_and_a_backup(manager: StreamManager, tmp_path: Path) -> None:
    with manager.create_writer("sc", "st", producer="p") as writer:
        writer.write_events(list(map(str, range(100))))
        writer.flush()
        manager.backup(str(tmp_path / "copy"))
        manager.scale_stream("sc", "st", [0], [(0.0, 0.1), (0.1, 1 / 3)])
        writer.write_events(list(map(str, range(100, 200))))
    Stream(manager.root, "sc", "st").container.flush()
    with manager.create_writer("sc", "st", producer="p") as writer:
        assert writer.last_number == 199
        writer.write_events(list(map(str, range(150, 250))), numbers=range(150, 250))
    assert numbers(manager) == list(range(250))
    StreamManager.restore(str(tmp_path / "copy"), str(tmp_path / "restored"))
    with (
        StreamManager(str(tmp_path / "restored")) as restored,
        restored.create_writer("sc", "st", producer="p") as writer,
    ):
        assert writer.last_number == 99
        writer.write_event("100")
        writer.flush()
        assert numbers(restored) == list(range(101))


def test_a_stream_that_was_created_again_lost_the_numbers(manager: StreamManager) -> None:
    writer = manager.create_writer("sc", "st", producer="p")
    writer.write_event("0")
    writer.flush()
    manager.seal_stream("sc", "st")
    manager.delete_stream("sc", "st")
    manager.create_stream("sc", "st", 3)
    writer.write_event("1")
    with pytest.raises(WriteFailed, match="event 0 of producer 'p' was acknowledged, and none of its events is in"):
        writer.flush()


def test_what_is_wrong(manager: StreamManager) -> None:
    with manager.create_writer("sc", "st") as plain:
        calls: list[Callable[[], object]] = [
            lambda: plain.last_number,
            lambda: plain.write_event("a", number=1),
            lambda: plain.write_events(["a"], numbers=[1]),
        ]
        for call in calls:
            with pytest.raises(ValueError, match=r"no producer id, so its events have no numbers: .*producer=…"):
                call()
    with manager.create_writer("sc", "st", producer="p") as writer:
        with pytest.raises(TypeError, match="number must be an int, not '7'"):
            writer.write_event("a", number="7")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="number must be from 0 to 9223372036854775807, not -1"):
            writer.write_event("a", number=-1)
        with pytest.raises(ValueError, match=r"numbers must be 2 numbers, one for each event, not \[1\]"):
            writer.write_events(["a", "b"], numbers=[1])
        with pytest.raises(ValueError, match=r"numbers must be 0 or more and ascend, not \[2, 1\]"):
            writer.write_events(["a", "b"], numbers=[2, 1])
        with pytest.raises(TypeError, match="numbers must be integers"):
            writer.write_events(["a"], numbers=["1"])  # type: ignore[list-item]
        with pytest.raises(ValueError, match="producer 'p' numbers its events, and large events have names"):
            writer.begin_event()
    with pytest.raises(ValueError, match="half of a surrogate"):
        manager.create_writer("sc", "st", producer="\ud800")
    assert numbers(manager) == []


def test_numbers_cost_no_request_of_their_own(tmp_path: Path) -> None:
    root = Root.open(str(tmp_path / "root"), create=True, settings=Settings(maintenance=False))
    counting = CountingStore(root.stores.log)
    root.stores = Stores(counting, counting)
    with StreamManager.over(root) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "st", 3)
        counts = []
        for producer in ("p", None):
            with manager.create_writer("sc", "st", producer=producer) as writer:
                writer.write_event("first", "key")
                writer.flush()
                counting.reset()
                for _ in range(5):
                    writer.write_event("a", "key")
                    writer.flush()
                counts.append(counting.count("put_if_absent"))
        assert counts[0] == counts[1]


# --- what is stored ------------------------------------------------------------------------------------------------


@pytest.fixture
def stream() -> Stream:
    made = stream_on(SimulatedStore(0))
    made.create(ScalingPolicy(min_segments=2))
    return made


def append(stream: Stream, event: str, last: int, before: int | None, producer: str = "p") -> None:
    routing = stream.snapshot().record.routing
    assert stream.write(parts(routing, event), NumberedWrite(producer, last, before), routing)


def test_a_write_applies_to_the_number_that_it_knows(stream: Stream) -> None:
    assert stream.last_number("p") is None
    assert Stream(stream.root, "sc", "missing").last_number("p") is None
    append(stream, "a", 4, None)
    assert stream.last_number("p") == 4
    for last, before in ((4, None), (0, None), (9, 3)):
        with pytest.raises(AlreadyWritten, match="up to number 4 are written already") as written:
            append(stream, "x", last, before)
        assert written.value.last == 4
    append(stream, "b", 9, 4)
    append(stream, "c", 0, None, "q")
    for producer, before, present in (("p", 10, 9), ("r", 3, None)):
        with pytest.raises(NumbersLost) as lost:
            append(stream, "x", 20, before, producer)
        assert f"event {before} of producer {producer!r} was acknowledged" in str(lost.value)
        assert stream.last_number(producer) == present
    append(stream, "d", MAX_NUMBER, 9)
    assert (stream.last_number("p"), stream.last_number("q")) == (MAX_NUMBER, 0)
    with pytest.raises(AlreadyWritten):
        NumberUpdate(stream, NumberedWrite("q", 1, 0)).resolved()
    check(stream, "a", "b", "c", "d")


def test_a_scale_between_two_writes_changes_no_number(stream: Stream) -> None:
    routing = stream.snapshot().record.routing
    append(stream, "a", 0, None)
    stream.scale([0], [(0.0, 0.25), (0.25, 0.5)])
    stream.write(parts(routing, "b"), NumberedWrite("p", 1, 0), routing)
    with pytest.raises(AlreadyWritten):
        stream.write(parts(routing, "b"), NumberedWrite("p", 1, 0), routing)
    assert stream.last_number("p") == 1
    check(stream, "a", "b")


def test_a_numbers_attribute_never_changes(stream: Stream) -> None:
    """It is stored: else a later version would know no producer."""
    append(stream, "a", 4, None)
    attribute = bytes.fromhex("29c3d93552ca5e56235785711dbcde30")
    assert stream.container.attributes(stream.writers)[attribute] == 4
    update = NumberUpdate(stream, NumberedWrite("p", 5, 4))
    assert update.is_rejected_by(BadAttributeUpdate(stream.writers, attribute, 4, ""))
    assert not update.is_rejected_by(BadAttributeUpdate(stream.writers, attribute[::-1], 4, ""))
    assert not update.is_rejected_by(BadAttributeUpdate("sc/other#writers", attribute, 4, ""))
    assert str(NumberedWrite("p", 5, 4)) == "the write of producer 'p' up to its event 5"


# --- crashes -------------------------------------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    make_batches_small(monkeypatch)


def _attempt(manager: StreamManager) -> None:
    """Write what is missing of the numbers up to 60."""
    writer = EventWriter(stream_of(manager), "p")
    done = -1 if writer.last_number is None else writer.last_number
    for first in range(done + 1, 60, 20):
        left = range(first, min(first + 20, 60))
        writer.write_events([str(number).rjust(60) for number in left], [f"key {number % 7}" for number in left])
        writer.write_event("again", number=left[0])
        writer.flush()
    writer.close()


@pytest.mark.usefixtures("small")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # threads that died
@pytest.mark.parametrize("fault", [crash_at, fail_at], ids=["crash", "failure"])
@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.long)])
def test_after_a_fault_at_any_request_each_number_is_there_once(fault: Callable[[int], Plan], step: int) -> None:
    point = 0
    while True:
        simulation = Simulation(attach_bytes=600)
        with StreamManager.over(SimulatedRoot(simulation)) as manager:
            manager.create_scope("sc")
            manager.create_stream("sc", "one", 2)
        through = FaultStore(simulation.store)
        failing = process(simulation, through)
        through.passed = 0
        through.plan = fault(point)
        with suppress(Crashed, WriteFailed, StorageUnavailable):  # the last of an opening
            _attempt(failing)
        other = process(simulation, simulation.store)
        _attempt(other)
        found = sorted(int(event.data) for event in other.read_events("sc", "one"))
        assert found == list(range(60)), point
        if through.passed <= point:
            return
        point += step


# --- kills ---------------------------------------------------------------------------------------------------------

TOTAL = 3000


def _produce(root: str, acknowledged: Connection) -> None:
    """Write numbers up to TOTAL, and report those that are durable."""
    chance = random.Random()
    with StreamManager(root) as manager, manager.create_writer("sc", "st", producer="p") as writer:
        done = -1 if writer.last_number is None else writer.last_number
        acknowledged.send(done)
        number = done + 1
        while number < TOTAL:
            count = chance.randint(1, 40)
            left = range(number, min(number + count, TOTAL))
            if chance.random() < 0.5:
                writer.write_events(list(map(str, left)), [f"key {each % 11}" for each in left])
            else:
                for each in left:
                    writer.write_event(str(each), f"key {each % 11}")
            number = left[-1] + 1
            if chance.random() < 0.5:
                writer.flush()
                acknowledged.send(writer.last_number)
            time.sleep(0.002)
        writer.flush()
        acknowledged.send(writer.last_number)


@pytest.mark.processes
@pytest.mark.timeout(400)
@pytest.mark.parametrize("rounds", [2, pytest.param(20, marks=[pytest.mark.long, pytest.mark.timeout(900)])])
def test_a_producer_that_is_killed_again_and_again_writes_each_number_once(tmp_path: Path, rounds: int) -> None:
    """SIGKILL at random moments. What was acknowledged is there, and nothing is there twice."""
    root, chance = str(tmp_path / "root"), random.Random(rounds)
    with StreamManager(root) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "st", 4)
    durable = -1
    for each in range(rounds + 1):
        receiver, sender = SPAWN.Pipe(duplex=False)
        producer = SPAWN.Process(target=_produce, args=(root, sender))
        producer.start()
        sender.close()
        resumed = receiver.recv()
        assert resumed >= durable
        durable = resumed
        if each < rounds:
            receiver.poll(chance.random() / 3)  # a random moment
            producer.kill()
        try:
            while True:
                durable = max(durable, receiver.recv())
        except EOFError:
            producer.join()
    assert durable == TOTAL - 1
    with StreamManager(root) as manager:
        assert numbers(manager) == list(range(TOTAL))
