"""The time of streams: what Pravega's tests expect (WatermarkingTest, WatermarkWorkflowTest, WatermarkReaderImplTest),
and what must hold of ours: bounds that are true whatever happens, leases by the storage's clock, crashes at any
request."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from chunkstore import StorageError
from chunkstore.testing import Crashed, FaultStore, crash_at, fail_at
from chunkstore.testing.faults import Fault, Plan
from chunkstore.wrapping import Request
from engine.errors import DataCorruption, EngineError
from engine.root import Root
from engine.settings import Settings
from engine.state.operations import PutEntry
from pravega_spark import (
    Closed,
    EventWriter,
    StreamCut,
    StreamManager,
    StreamReaderGroupConfig,
    StreamRecreated,
    TimeWindow,
    TooManyNotingWriters,
)
from pravega_spark.checks import verify_root
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.model.watermarks import MAX_WRITERS, Watermark, thinned
from pravega_spark.streams.stream_time import StreamTime
from tests.client.large_events.simulated import process
from tests.support import limits
from tests.support.simulation import Simulation, audit, small_sizes


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[StreamManager]:
    root = Root.open(str(tmp_path / "root"), settings=Settings(maintenance=False, threaded=False), containers=2)
    with StreamManager.over(root) as opened:
        opened.create_scope("sc")
        opened.create_stream("sc", "one")
        yield opened


def at(manager: StreamManager, place: str | StreamCut = "tail") -> TimeWindow:
    return manager.time_window("sc", "one", place)


def write(writer: EventWriter, *events: str) -> None:
    for event in events:
        writer.write_event(event)
    writer.flush()


# --- writers --------------------------------------------------------------------------------------------------------


def test_a_watermark_waits_for_all_writers(manager: StreamManager) -> None:
    a, b = manager.create_writer("sc", "one"), manager.create_writer("sc", "one")
    assert at(manager) == (None, None)
    write(a, "a")
    assert at(manager) == (None, None), "no time was noted"
    a.note_time(100)
    b.note_time(102)
    assert at(manager, "head") == (None, 100) and at(manager) == (100, None)
    write(b, "b")
    b.note_time(110)
    assert at(manager) == (100, None), "a has not noted a later time"
    write(a, "a")
    a.note_time(105)
    assert at(manager) == (105, None) and at(manager, "head") == (None, 100)
    first = manager.next_stream_cut("sc", "one", "head", 1)
    assert at(manager, StreamCut("sc", "one", {0: 9})) == (100, 110), "as great as any time that was noted before"
    assert first.positions[0] >= 9


def test_a_note_comes_after_all_that_the_writer_has_written(manager: StreamManager) -> None:
    writer = manager.create_writer("sc", "one")
    writer.write_events([b"x" * 992] * 10_000)
    writer.note_time(7)
    info = manager.stream_info("sc", "one")
    assert info.events == 10_000 and at(manager, info.tail) == (7, None) and at(manager, info.head) == (None, 7)
    assert at(manager, StreamCut("sc", "one", {0: 9_999_000})) == (None, 7), "nor has the last event passed it"


def test_a_note_in_an_event_loop(manager: StreamManager, monkeypatch: pytest.MonkeyPatch) -> None:
    limits.queued_bytes(monkeypatch, 4000)

    async def program() -> None:
        async with manager.create_async_writer("sc", "one") as writer:
            written = [asyncio.ensure_future(writer.write_event("x" * 992, "key")) for _ in range(100)]
            await asyncio.sleep(0)
            assert writer.waiting
            await writer.note_time(7)
            assert all(one.done() for one in written)
            with pytest.raises(ValueError, match="timestamp 6 is before 7"):
                await writer.note_time(6)
        with pytest.raises(Closed):
            await writer.note_time(8)

    asyncio.run(program())
    info = manager.stream_info("sc", "one")
    assert info.events == 100 and at(manager, info.tail) == (7, None) and at(manager, info.head) == (None, 7)


def test_the_time_of_a_writer_never_goes_back(manager: StreamManager) -> None:
    writer = manager.create_writer("sc", "one")
    writer.note_time(-5)
    writer.note_time(-5)
    with pytest.raises(ValueError, match=r"note_time: timestamp -6 is before -5, which this writer of stream sc/one"):
        writer.note_time(-6)
    for wrong in (1 << 63, -(1 << 63) - 1):
        with pytest.raises(ValueError, match="timestamp must be a number of 64 bits"):
            writer.note_time(wrong)
    writer.note_time((1 << 63) - 1)
    assert at(manager) == ((1 << 63) - 1, None)


def test_a_writer_that_comes_later_with_an_earlier_time_holds_up_the_next_watermark(manager: StreamManager) -> None:
    a, late = manager.create_writer("sc", "one"), manager.create_writer("sc", "one")
    a.note_time(100)
    write(late, "late")
    late.note_time(50)
    a.note_time(200)
    assert at(manager) == (100, None), "no watermark goes back"
    late.note_time(150)
    assert at(manager) == (150, None)


def test_a_closed_writer_is_not_waited_for(manager: StreamManager) -> None:
    a, b = manager.create_writer("sc", "one"), manager.create_writer("sc", "one")
    a.note_time(100)
    b.note_time(100)
    write(b, "b")
    b.note_time(300)
    assert at(manager) == (100, None)
    a.close()
    assert at(manager) == (300, None), "without another note"
    a.close()
    b.close()
    assert at(manager) == (300, None)
    c = manager.create_writer("sc", "one")
    write(c, "c")
    c.note_time(400)
    assert at(manager) == (400, None)
    assert verify_root(manager.root).errors == 0


def test_a_writer_that_is_dead_is_waited_for_during_its_lease(tmp_path: Path) -> None:
    simulation = Simulation()
    manager = process(simulation)
    manager.create_scope("sc")
    manager.create_stream("sc", "one")
    dead, alive = manager.create_writer("sc", "one"), manager.create_writer("sc", "one")
    dead.note_time(100, lease="100s")
    alive.note_time(150, lease=1000)
    simulation.advance(90)
    alive.note_time(160)
    assert at(manager) == (100, None)
    simulation.advance(20)
    assert at(manager) == (100, None), "nobody has noted a time since"
    alive.note_time(160)
    assert at(manager) == (160, None), "the same time again is enough"
    dead.note_time(120)  # it was not dead
    alive.note_time(200)
    assert at(manager) == (160, None)
    dead.note_time(180)
    assert at(manager) == (180, None)
    audit(manager.root.container(0).state)


def test_a_producer_that_restarts_is_the_same_writer(manager: StreamManager) -> None:
    other = manager.create_writer("sc", "one")
    other.note_time(10)
    manager.create_writer("sc", "one", producer="p").note_time(10)
    other.note_time(100)
    assert at(manager) == (10, None)
    again = manager.create_writer("sc", "one", producer="p")
    again.note_time(60)
    assert at(manager) == (60, None)


def test_a_transaction_notes_the_time_of_its_writer(manager: StreamManager) -> None:
    writer, transactions = manager.create_writer("sc", "one"), manager.create_transaction_writer("sc", "one")
    writer.note_time(10)
    first, second, third = (transactions.begin_txn() for _ in range(3))
    for transaction in (first, second, third):
        transaction.write_event("event")
    second.commit(timestamp=20)
    writer.note_time(100)
    assert at(manager) == (20, None) and manager.stream_info("sc", "one").events == 1
    first.commit(15)
    assert at(manager) == (20, None), "a time that goes back changes nothing"
    third.commit_timestamp(90)
    assert at(manager) == (90, None) and manager.stream_info("sc", "one").events == 3
    with pytest.raises(ValueError, match="timestamp must be a number of 64 bits"):
        transactions.begin_txn().commit(1 << 63)
    transactions.begin_txn().commit()
    assert at(manager) == (90, None)


def test_too_many_writers_that_note_time(manager: StreamManager) -> None:
    stream = Catalog(manager.root).stream("sc", "one")
    time = StreamTime(stream, stream.snapshot().record.id)
    with manager.create_writer("sc", "one") as writer:
        writer.note_time(1)
        for number in range(MAX_WRITERS - 1):
            time.note(f"writer {number}", 1, 1000.0)
        writer.note_time(2)
        with manager.create_writer("sc", "one") as another:
            with pytest.raises(TooManyNotingWriters, match="1000 writers note time"):
                another.note_time(2)
            time.leave("writer 7")
            another.note_time(2)


# --- places ---------------------------------------------------------------------------------------------------------


def test_windows_across_a_scale_and_a_truncation(manager: StreamManager) -> None:
    writer = manager.create_writer("sc", "one")
    write(writer, "a")
    writer.note_time(10)
    before = manager.stream_info("sc", "one").tail
    manager.scale_stream("sc", "one", [0], [(0.0, 0.5), (0.5, 1.0)])
    after = manager.stream_info("sc", "one").tail
    low, high = sorted(after.positions)
    for number in range(20):
        writer.write_event(f"event {number}", routing_key=str(number))
    writer.note_time(20)
    tail = manager.stream_info("sc", "one").tail
    assert at(manager, "head") == (None, 10)
    assert at(manager, before) == at(manager, after) == (10, 20)
    assert at(manager, tail) == (20, None)
    mixed = StreamCut("sc", "one", {low: tail.positions[low], high: 0})
    assert at(manager, mixed) == (10, 20), "one of the segments has not reached the watermark"
    for number in range(20):
        writer.write_event(f"event {number}", routing_key=str(number))
    writer.note_time(25)
    tail = manager.stream_info("sc", "one").tail
    mixed = StreamCut("sc", "one", {low: tail.positions[low], high: 0})
    assert at(manager, mixed) == (10, 25), "nor has it if the other one is beyond it"
    manager.truncate_stream("sc", "one", tail)
    write(writer, "b")
    writer.note_time(30)
    assert at(manager, "head") == (25, 30) and at(manager) == (30, None)


def test_watermarks_before_the_head_are_dropped(manager: StreamManager) -> None:
    writer = manager.create_writer("sc", "one")
    container = Catalog(manager.root).stream("sc", "one").container
    sizes = []
    for number in range(40):
        write(writer, "event")
        writer.note_time(number)
        if number % 10 == 9:
            manager.truncate_stream("sc", "one", "tail")
        entry = container.entries("_system/times", ["sc/one/watermarks"], container.refresh())["sc/one/watermarks"]
        assert entry is not None and entry.value is not None
        sizes.append(len(entry.value))
    assert sizes[9] > 3 * sizes[0] and max(sizes) < sizes[9] * 3 // 2
    assert at(manager, "head") == (39, None)


def test_few_watermarks_are_kept_of_what_is_long_ago() -> None:
    kept: tuple[Watermark, ...] = ()
    for number in range(10_000):
        kept = thinned((*kept, Watermark(number, number, {0: number})), lambda some: 650 * len(some))
    times = [each.lower for each in kept]
    assert len(kept) <= 101 and times[0] == 0 and times == sorted(set(times))
    assert times[-40:] == list(range(10_000 - 40, 10_000)), "the last ones are all there"
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert gaps[0] > gaps[len(gaps) // 2] >= gaps[-1] == 1


def test_another_stream_of_the_name_has_another_time(manager: StreamManager) -> None:
    kept = manager.create_writer("sc", "one")
    kept.note_time(100)
    manager.seal_stream("sc", "one")
    kept.note_time(110)  # its time goes on
    assert at(manager) == (110, None)
    manager.delete_stream("sc", "one")
    manager.create_stream("sc", "one")
    assert at(manager) == (None, None)
    with pytest.raises(StreamRecreated):
        kept.note_time(120)
    kept.close()
    assert at(manager) == (None, None) and verify_root(manager.root).errors == 0


@pytest.mark.parametrize("kind", ["marks", "watermarks"])
def test_damaged_times_are_named(manager: StreamManager, kind: str) -> None:
    writer = manager.create_writer("sc", "one")
    writer.note_time(1)
    container = Catalog(manager.root).stream("sc", "one").container
    for damage in (b"no times", b"", b"\x92\x01\x05"):
        container.commit([PutEntry("_system/times", f"sc/one/{kind}", damage)])
        with pytest.raises(DataCorruption, match=f"the {kind} of stream sc/one"):
            writer.note_time(2)
        (finding,) = verify_root(manager.root).findings
        assert f"the {kind} of stream sc/one" in str(finding)
    container.commit([PutEntry("_system/times", f"sc/one/{kind}", None)])
    assert list(manager.read_events("sc", "one")) == []


# --- readers --------------------------------------------------------------------------------------------------------


def test_the_window_of_a_reader_moves_with_its_group(manager: StreamManager) -> None:
    manager.create_stream("sc", "silent")
    with manager.create_writer("sc", "one") as writer:
        for number in range(1, 7):
            write(writer, str(number * 10))
            writer.note_time(number * 10)
    group = manager.create_reader_group_with_config("rg", "sc", StreamReaderGroupConfig(False, "sc", "one", "silent"))
    reader = group.create_reader("reader", slice_events=2)
    windows: list[TimeWindow] = []
    while (read := reader.read_next_event(0.1)).event is not None:
        reader.record()
        windows.append(reader.get_current_time_window("one"))
        time = int(read.event.data)
        lower, upper = windows[-1].lower_time_bound, windows[-1].upper_time_bound
        assert lower is None or lower <= time
        assert upper is None or upper >= time
    assert windows[0].is_near_head_of_stream and windows[-1].is_near_tail_of_stream
    lowers = [window.lower_time_bound or 0 for window in windows]
    assert lowers == sorted(lowers) and lowers[-1] >= 40
    reader.record()
    assert reader.get_current_time_window("sc/one") == (60, None)
    assert reader.get_current_time_window("silent") == (None, None)
    with pytest.raises(ValueError, match="stream 'two' is not one of the group, which reads sc/one, sc/silent"):
        reader.get_current_time_window("two")


def test_the_lower_bound_is_that_of_the_segment_that_is_furthest_behind(manager: StreamManager) -> None:
    manager.create_stream("sc", "two", 2)
    with manager.create_writer("sc", "two") as writer:
        for number in range(1, 5):
            for key in range(8):
                writer.write_event(str(number), routing_key=str(key))
            writer.note_time(number)
    reader = manager.create_reader_group("rg", "sc", "two").create_reader("reader")
    first, second = reader.get_segment_slice(), reader.get_segment_slice()
    assert {event.data for event in first} == {event.data for event in second} == {b"1", b"2", b"3", b"4"}
    reader.release_segment(first)
    reader.record()
    assert reader.get_current_time_window("two") == (None, None), "nothing of the second one is recorded"
    reader.release_segment(second)
    reader.record()
    assert reader.get_current_time_window("two") == (4, None)


def test_the_end_of_a_sealed_stream(manager: StreamManager) -> None:
    writer = manager.create_writer("sc", "one")
    write(writer, "a")
    writer.note_time(5)
    manager.seal_stream("sc", "one")
    reader = manager.create_reader_group("rg", "sc", "one").create_reader("reader")
    while not reader.read_next_event(0.1).is_read_completed:
        pass
    assert reader.get_current_time_window("one") == (5, None)


# --- whatever happens -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_no_event_is_earlier_than_the_lower_bound_of_a_place_before_it(manager: StreamManager, seed: int) -> None:
    rng = random.Random(seed)
    writers = [manager.create_writer("sc", "one") for _ in range(3)]
    clocks = [rng.randrange(10) for _ in writers]
    for writer in writers:
        writer.note_time(0)  # a writer is waited for from its first note on
    written: list[int] = []  # the times of the events, in order
    highest = 0
    places: list[tuple[StreamCut, int, int, int | None]] = []  # how many events were there, the highest note, the bound
    for _ in range(60):
        who, step = rng.randrange(3), rng.random()
        clocks[who] += rng.randrange(4)
        if step < 0.5:
            writers[who].write_event(str(clocks[who]), routing_key=str(rng.randrange(5)))
            writers[who].flush()
            written.append(clocks[who])
        elif step < 0.85:
            writers[who].note_time(clocks[who])
            highest = max(highest, clocks[who])
        elif step < 0.9:
            writers[who].close()
            writers[who] = manager.create_writer("sc", "one")
            clocks[who] = max(clocks[who], highest)
            writers[who].note_time(clocks[who])
            highest = max(highest, clocks[who])
        elif step < 0.95:
            segment = rng.choice(manager.stream_info("sc", "one").segments)
            middle = (segment.low + segment.high) / 2
            manager.scale_stream("sc", "one", [segment.id], [(segment.low, middle), (middle, segment.high)])
        elif places:
            manager.truncate_stream("sc", "one", places[-1][0])
        tail = manager.stream_info("sc", "one").tail
        places.append((tail, len(written), highest, at(manager, tail)[0]))
    for number, (cut, events, noted, bound) in enumerate(places):
        lower, upper = at(manager, cut)
        for known in (bound, lower):
            assert known is None or all(time >= known for time in written[events:]), (number, known)
        assert upper is None or upper >= noted
        assert lower is None or bound is None or lower >= bound
    bounds = [bound or 0 for _, _, _, bound in places]
    assert bounds == sorted(bounds)
    assert places[-1][3] is not None
    assert verify_root(manager.root).errors == 0


def test_notes_of_several_processes_at_once() -> None:
    """The mark of another process comes between what a process knows of the marks, and its own note."""
    simulation = Simulation()
    first = process(simulation)
    first.create_scope("sc")
    first.create_stream("sc", "one")
    ahead, behind = process(simulation), process(simulation)
    one, other = ahead.create_writer("sc", "one"), behind.create_writer("sc", "one")
    one.note_time(1)
    other.note_time(1)
    through = FaultStore(simulation.store)
    late = process(simulation, through)
    third = late.create_writer("sc", "one")
    third.note_time(1)
    done: list[int] = []

    def meanwhile(number: int, request: Request) -> Fault | None:
        if request.verb == "put_if_absent" and not done:
            done.append(number)
            one.note_time(50)
            other.note_time(60)
        return None

    through.plan = meanwhile
    third.note_time(100)
    assert done and at(first) == (50, None)


def run(plan: Plan | None) -> tuple[Simulation, int, int, bool]:
    """Times that are noted by two writers, and a transaction, up to the first failure: how many were acknowledged."""
    simulation = Simulation()
    first = process(simulation)
    first.create_scope("sc")
    first.create_stream("sc", "one")
    through = FaultStore(simulation.store)
    manager = process(simulation, through)
    through.plan, through.passed = plan or (lambda number, request: None), 0
    done = 0
    try:
        a, b = manager.create_writer("sc", "one"), manager.create_writer("sc", "one")
        transactions = manager.create_transaction_writer("sc", "one")
        a.note_time(1)
        done += 1
        b.note_time(3)
        done += 1
        a.note_time(2)
        done += 1
        manager.root.container(0).flush()
        done += 1
        transaction = transactions.begin_txn()
        transaction.commit(9)
        done += 1
        a.note_time(8)
        done += 1
        b.close()
        done += 1
    except (Crashed, EngineError, StorageError):
        return simulation, done, through.passed, True
    return simulation, done, through.passed, False


LOWER = [None, 1, 1, 2, 2, 2, 3, 8]
"""The lower bound at the tail after so many steps."""


@pytest.mark.parametrize("kind", ["crash before", "crash after", "failure before", "failure after"])
def test_a_note_that_is_interrupted_is_made_or_not(kind: str) -> None:
    what, _, when = kind.partition(" ")
    fault = crash_at if what == "crash" else fail_at
    with small_sizes():
        _, done, requests, failed = run(None)
        assert done == len(LOWER) - 1 and not failed
        for number in range(1, requests + 1, 3):
            simulation, done, _, failed = run(fault(number, when))  # type: ignore[arg-type]
            newcomer = process(simulation)
            found = at(newcomer)[0]
            assert found in {LOWER[done], LOWER[min(done + failed, len(LOWER) - 1)]}, f"request {number}, step {done}"
            audit(newcomer.root.container(0).state)
            newcomer.root.container(0).flush()
            assert at(newcomer)[0] == found
            assert verify_root(newcomer.root, deep=True).errors == 0
