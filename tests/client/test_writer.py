"""The event writer: order, routing, coalescing, backpressure, and that no failure is ever silent."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pytest

from chunkstore.testing import FaultStore, WrappingStore, fail_at
from engine.errors import OutcomeUnknown
from engine.root import Root
from engine.settings import Settings
from engine.state.index_records import RECORD_SIZE
from engine.storage.object_reads import Stores
from pravega_spark import EventWriter, StreamManager, StreamNotFound, StreamSealed, WriteFailed
from pravega_spark.client import writer as writer_module
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.model.events import MAX_EVENT_SIZE
from pravega_spark.streams.model.index import SPACING
from pravega_spark.streams.model.names import index_segment_name
from pravega_spark.streams.model.routing import hash_key
from pravega_spark.streams.stream import Stream
from tests.support import limits
from tests.support.gated import GatedStore

Result = TypeVar("Result")


def stream_through(url: str, wrap: Callable[[Stores], WrappingStore]) -> tuple[Stream, WrappingStore]:
    """Stream `one`, reached through a store that `wrap` makes."""
    root = Root.open(url, settings=Settings(timeout=0.05, maintenance=False))
    store = wrap(root.stores)
    root.stores = Stores(store, store)
    return Stream(root, "sc", "one"), store


@pytest.fixture
def gated(url: str, manager: StreamManager) -> Iterator[tuple[EventWriter, GatedStore]]:
    """A writer to stream `one`, and the gate before its log."""
    stream, gate = stream_through(url, lambda stores: GatedStore(stores.log))
    assert isinstance(gate, GatedStore)
    stream.snapshot()
    with EventWriter(stream) as writer:
        gate.passed = 0
        yield writer, gate
        gate.open.set()
    stream.root.close()


def by_segment(manager: StreamManager, stream: str) -> dict[int, list[str]]:
    found: dict[int, list[str]] = defaultdict(list)
    for event in manager.read_events("sc", stream):
        found[event.segment_id].append(event.data.decode())
    return found


# --- what is written and where --------------------------------------------------------------------------------


def test_events_go_to_the_segment_of_their_key_in_order(manager: StreamManager) -> None:
    """Single events, bytes, lists and Arrow columns, mixed, all take the same way."""
    expected: dict[int, list[str]] = defaultdict(list)
    with manager.create_writer("sc", "four") as writer:
        for number in range(0, 600, 6):
            keys = [f"key-{n % 17}-é" if n % 5 else f"key-{n % 17}" for n in range(number, number + 6)]
            events = [f"event-{n}" for n in range(number, number + 6)]
            writer.write_event(events[0], keys[0])
            writer.write_event_bytes(bytearray(events[1].encode()), keys[1])
            writer.write_events(events[2:4], keys[2:4])
            writer.write_events(pa.chunked_array([events[4:5], events[5:6]]), pa.chunked_array([keys[4:6]]))
            for key, event in zip(keys, events, strict=True):
                expected[int(hash_key(key) * 4)].append(event)
        writer.flush()
        assert writer.durable_events == 600
        assert by_segment(manager, "four") == expected
    assert len(expected) == 4


def test_events_without_a_key_are_spread(manager: StreamManager) -> None:
    with manager.create_writer("sc", "four") as writer:
        for number in range(200):
            writer.write_event(str(number))
        writer.write_events([str(number) for number in range(200, 400)])
        writer.write_events(["keyed"] * 100, ["a", None] * 50)
    found = by_segment(manager, "four")
    assert all(len(events) > 60 for events in found.values())
    numbers = {segment: [int(event) for event in events if event != "keyed"] for segment, events in found.items()}
    assert all(known == sorted(known) for known in numbers.values())
    assert sorted(chain.from_iterable(numbers.values())) == list(range(400))


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.string_view()])
def test_columns_of_all_kinds(manager: StreamManager, kind: pa.DataType) -> None:
    events = ["", "a", "bc" * 3000, "d"] * 3
    column = pa.array(events, pa.string()).cast(kind)
    with manager.create_writer("sc", "one") as writer:
        writer.write_events(column)
        writer.write_events(column.slice(2, 3))
        writer.write_events([])
        writer.write_events([event.encode() for event in events])
    assert by_segment(manager, "one")[0] == [*events, *events[2:5], *events]


@pytest.mark.parametrize("copied", [0, 600, 10_000])
def test_a_column_larger_than_an_append(manager: StreamManager, monkeypatch: pytest.MonkeyPatch, copied: int) -> None:
    monkeypatch.setattr(writer_module, "BATCH_BYTES", 1000)
    monkeypatch.setattr(writer_module, "COPIED_BYTES", copied)
    events = [str(number) * (number % 70) for number in range(500)]
    keys = [f"key-{number % 10}" for number in range(500)]
    expected: dict[int, list[str]] = defaultdict(list)
    for event, key in zip(events, keys, strict=True):
        expected[int(hash_key(key) * 4)].append(event)
    with manager.create_writer("sc", "four") as writer:
        writer.write_event(events[0], keys[0])
        writer.write_events(events[1:300], keys[1:300])
        writer.write_event(events[300], keys[300])
        writer.write_events(events[301:], keys[301:])
    assert by_segment(manager, "four") == expected
    info = manager.stream_info("sc", "four")
    assert info.events == 500 and info.size == sum(map(len, events)) + 8 * 500


def test_an_atomic_write_is_whole_and_contiguous_among_those_of_other_writers(manager: StreamManager) -> None:
    with manager.create_writer("sc", "four") as one, manager.create_writer("sc", "four") as other:
        for number in range(30):
            one.write_events([f"one {number} {event}" for event in range(5)], routing_key="k", atomic=True)
            other.write_event(f"other {number}", "k")
            other.write_events([f"other {number} {event}" for event in range(5)], routing_key="k", atomic=True)
    (found,) = by_segment(manager, "four").values()
    assert len(found) == 30 * 11
    for name in ("one", "other"):
        for number in range(30):
            start = found.index(f"{name} {number} 0")
            assert found[start : start + 5] == [f"{name} {number} {event}" for event in range(5)]


def test_an_atomic_write_has_a_limit(manager: StreamManager) -> None:
    half = bytes(MAX_EVENT_SIZE - 8)
    with manager.create_writer("sc", "one") as writer:
        writer.write_events([half, half], atomic=True)
        with pytest.raises(ValueError, match=r"16777217 bytes .* limit of 16777216 of an atomic write.*transaction"):
            writer.write_events([half, half + b"."], routing_key="k", atomic=True)
        writer.write_events([], routing_key="k", atomic=True)
        with pytest.raises(ValueError, match="routing_keys or routing_key, not both"):
            writer.write_events(["a"], ["k"], routing_key="k")
        with pytest.raises(TypeError, match="routing_key must be a str or None, not 5"):
            writer.write_events(["a"], routing_key=5)  # type: ignore[arg-type]
    assert manager.stream_info("sc", "one").events == 2


def test_the_largest_event_and_one_more_byte(manager: StreamManager) -> None:
    largest = np.arange(MAX_EVENT_SIZE // 4, dtype=np.int32).tobytes()
    with manager.create_writer("sc", "one") as writer:
        writer.write_event_bytes(largest)
        writer.write_events([b"small", largest])
        for write in (writer.write_event_bytes, lambda event: writer.write_events([b"", event])):
            with pytest.raises(ValueError, match="Write size too large: 8388617"):
                write(largest + b".")
        writer.write_event("last")
    read = [event.data for event in manager.read_events("sc", "one")]
    assert read == [largest, b"small", largest, b"last"]


def test_wrong_arguments_write_nothing(manager: StreamManager) -> None:
    with manager.create_writer("sc", "four") as writer:
        with pytest.raises(ValueError, match="null in row 2"):
            writer.write_events(pa.array(["a", "b", None]))
        with pytest.raises(TypeError, match="int64"):
            writer.write_events(pa.array([1, 2]))
        with pytest.raises(ValueError, match="1 routing_keys were given for 2 events"):
            writer.write_events(["a", "b"], ["k"])
        with pytest.raises(TypeError, match="routing_key must hold strings"):
            writer.write_events(["a", "b"], pa.array([1, 2]))
        with pytest.raises(TypeError, match="use write_event_bytes"):
            writer.write_event(b"bytes")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="use write_event for a str"):
            writer.write_event_bytes("text")  # type: ignore[arg-type]
    assert manager.stream_info("sc", "four").events == 0


def test_what_is_written_may_be_changed_afterwards(
    gated: tuple[EventWriter, GatedStore], manager: StreamManager
) -> None:
    writer, gate = gated
    gate.open.clear()
    event = bytearray(b"before")
    writer.write_event_bytes(event)
    event[:] = b"behind"
    gate.open.set()
    writer.flush()
    assert by_segment(manager, "one")[0] == ["before"]


def test_threads_share_a_writer(manager: StreamManager) -> None:
    with manager.create_writer("sc", "four") as writer:

        def work(name: int) -> None:
            for number in range(500):
                writer.write_event(f"{name}:{number}", f"key-{name}")

        threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = list(chain.from_iterable(by_segment(manager, "four").values()))
    for name in range(4):
        assert [event for event in found if event.startswith(f"{name}:")] == [f"{name}:{n}" for n in range(500)]


# --- how it gets there ----------------------------------------------------------------------------------------


def test_what_comes_during_an_append_goes_together(
    gated: tuple[EventWriter, GatedStore], manager: StreamManager
) -> None:
    writer, gate = gated
    gate.open.clear()
    for number in range(2000):
        writer.write_event(str(number))
    writer.write_events([str(number) for number in range(2000, 3000)])
    gate.open.set()
    writer.flush()
    assert gate.passed <= 2
    state = Catalog(manager.root).stream("sc", "one").snapshot()
    spaced = state.size() // SPACING  # besides those there is one at the end of each append
    assert state.state.segment(index_segment_name(state.segments.name_of(0))).length <= (spaced + 2) * RECORD_SIZE
    assert by_segment(manager, "one")[0] == [str(number) for number in range(3000)]


def test_writers_wait_while_too_much_is_queued(
    gated: tuple[EventWriter, GatedStore], manager: StreamManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits.queued_bytes(monkeypatch, 10_000)
    writer, gate = gated
    gate.open.clear()
    given: list[int] = []

    def work() -> None:
        for number in range(50):
            writer.write_event_bytes(b"x" * 1000)
            given.append(number)

    thread = threading.Thread(target=work)
    thread.start()
    deadline = time.monotonic() + 30
    while len(given) < 10 and time.monotonic() < deadline:
        time.sleep(0.01)
    thread.join(0.2)
    assert thread.is_alive() and len(given) == 10
    gate.open.set()
    thread.join(30)
    writer.flush()
    assert len(given) == writer.durable_events == 50


def test_flush_waits_for_what_was_written(gated: tuple[EventWriter, GatedStore], manager: StreamManager) -> None:
    writer, gate = gated
    writer.flush()
    gate.open.clear()
    writer.write_event("x")
    thread = threading.Thread(target=writer.flush)
    thread.start()
    thread.join(0.1)
    assert thread.is_alive() and manager.stream_info("sc", "one").events == 0
    gate.open.set()
    thread.join(30)
    assert not thread.is_alive() and manager.stream_info("sc", "one").events == 1


def test_a_closed_writer_takes_nothing(manager: StreamManager) -> None:
    with manager.create_writer("sc", "one") as writer:
        writer.write_event("x")
    writer.close()
    for write in (writer.write_event, lambda event: writer.write_events([event])):
        with pytest.raises(ValueError, match="this writer of stream sc/one is closed"):
            write("y")
    assert manager.stream_info("sc", "one").events == 1


def test_closing_the_manager_flushes_its_writers(url: str, manager: StreamManager) -> None:
    with StreamManager(url) as second:
        second.create_writer("sc", "one").write_event("x")
    assert by_segment(manager, "one")[0] == ["x"]


# --- failures -------------------------------------------------------------------------------------------------


def failing(url: str, after: int) -> tuple[EventWriter, Stream]:
    """A writer whose storage takes `after` frames and then no more."""
    stream, store = stream_through(url, lambda stores: FaultStore(stores.log, verbs=("put_if_absent",)))
    assert isinstance(store, FaultStore)
    writer = EventWriter(stream)
    store.plan = fail_at(store.passed + after + 1, forever=True)
    return writer, stream


def test_a_failure_is_raised_by_flush_and_everything_after_it(url: str, manager: StreamManager) -> None:
    writer, stream = failing(url, after=1)
    writer.write_event("kept")
    writer.flush()
    writer.write_event("lost")
    with pytest.raises(WriteFailed, match=r"stream sc/one failed: .*no answer.*The last 1 events") as caught:
        writer.flush()
    assert isinstance(caught.value.__cause__, OutcomeUnknown)
    assert caught.value.unconfirmed == 1 and writer.durable_events == 1
    for call in (partial(writer.write_event, "more"), partial(writer.write_events, ["more"]), writer.flush):
        with pytest.raises(WriteFailed):
            call()
    writer.close()  # it has been told
    stream.root.close()
    assert by_segment(manager, "one")[0] == ["kept"]
    copy = pickle.loads(pickle.dumps(caught.value))
    assert str(copy) == str(caught.value) and copy.unconfirmed == 1


def test_what_is_there_after_a_failure_is_what_was_written_first(url: str, manager: StreamManager) -> None:
    writer, stream = failing(url, after=3)
    written = 0
    with pytest.raises(WriteFailed) as caught:
        for written in range(1_000_000):
            writer.write_event(str(written), "key")
            time.sleep(0.0005)
    stream.root.close()
    found = by_segment(manager, "one")[0]
    assert found == [str(number) for number in range(len(found))]
    assert len(found) == writer.durable_events == written - caught.value.unconfirmed


def test_leaving_a_with_statement_raises_the_failure(url: str, manager: StreamManager) -> None:
    writer, stream = failing(url, after=0)
    with pytest.raises(WriteFailed), writer:
        writer.write_event("lost")
    writer, stream = failing(url, after=0)
    with pytest.raises(WriteFailed) as caught, writer:
        writer.write_event("lost")
        raise KeyError("of the program")
    assert isinstance(caught.value.__context__, KeyError)
    writer, stream = failing(url, after=0)
    with pytest.raises(WriteFailed) as first, writer:
        writer.write_event("lost")
        writer.flush()
    assert first.value.__context__ is None  # raised by flush, and not by leaving too
    stream.root.close()


def test_a_waiting_writer_hears_of_the_failure(
    url: str, manager: StreamManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits.queued_bytes(monkeypatch, 100)
    writer, stream = failing(url, after=0)
    with pytest.raises(WriteFailed):
        for _ in range(1000):
            writer.write_event("x" * 50)
    stream.root.close()


def test_closing_the_manager_raises_what_a_writer_failed_with(manager: StreamManager, url: str) -> None:
    second = StreamManager(url)
    writer = second.create_writer("sc", "one")
    manager.seal_stream("sc", "one")
    writer.write_event("too late")
    with pytest.raises(StreamSealed, match="sc/one"):
        second.close()


def test_a_sealed_or_deleted_stream_takes_no_events(manager: StreamManager) -> None:
    writers = [manager.create_writer("sc", "four") for _ in range(2)]
    writers[0].write_event("in time", "k")
    writers[0].flush()
    manager.seal_stream("sc", "four")
    writers[0].write_event("too late", "k")
    with pytest.raises(StreamSealed, match="sc/four"):
        writers[0].flush()
    with pytest.raises(StreamSealed, match="sc/four"):
        manager.create_writer("sc", "four")
    manager.delete_stream("sc", "four")
    writers[1].write_event("too late", "k")
    with pytest.raises(StreamNotFound, match="sc/four"):
        writers[1].close()
    with pytest.raises(StreamNotFound, match="sc/four"):
        manager.create_writer("sc", "four")


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_writer_does_not_hang_in_a_forked_process(manager: StreamManager) -> None:
    writer = manager.create_writer("sc", "one")
    child = os.fork()
    if child == 0:
        try:
            writer.write_event("x")
            writer.flush()
        except RuntimeError as error:
            os._exit(0 if "forked" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.processes
def test_events_that_were_not_flushed_when_the_program_ends_are_reported(tmp_path: Path) -> None:
    program = f"""
import time
from chunkstore.testing import LatencyStore
from engine.storage.object_reads import Stores
from pravega_spark import StreamManager
manager = StreamManager({str(tmp_path)!r})
manager.create_scope("sc")
manager.create_stream("sc", "one")
store = LatencyStore(manager.root.stores.log, 0.3)
manager.root.stores = Stores(store, store)
manager.root.containers.close()
writer = manager.create_writer("sc", "one")
writer.write_event("sent at once")
time.sleep(0.1)
writer.write_event("collected meanwhile")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "EventWriter('sc/one') was not flushed or closed: its last" in done.stderr


def test_a_flush_does_not_wait_for_a_thread_that_is_not_appending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another caller's append has ended before this one comes to wait, and the thread looks after the stream."""
    url, busy, over, begun, go = (
        str(tmp_path),
        threading.Event(),
        threading.Event(),
        threading.Event(),
        threading.Event(),
    )
    write, wait_for = Stream.write, EventWriter._wait_for

    def upkeep(stream: Stream) -> None:
        busy.set()
        assert over.wait(60)

    with StreamManager(url, create=True) as manager, ThreadPoolExecutor(2) as pool:
        manager.create_scope("sc")
        manager.create_stream("sc", "one", 1)
        monkeypatch.setattr(writer_module, "after_commit", upkeep)
        with manager.create_writer("sc", "one") as writer:
            writer.write_event("first")
            writer.flush()
            assert busy.wait(60)

            def slow(*arguments: Any, **named: Any) -> bool:
                begun.set()
                assert go.wait(60)
                return write(*arguments, **named)

            def late(each: EventWriter, target: int) -> None:
                go.set()
                other.result(60)
                wait_for(each, target)

            monkeypatch.setattr(Stream, "write", slow)
            monkeypatch.setattr(EventWriter, "_wait_for", late)
            writer.write_event("of the other caller")
            other = pool.submit(writer.flush)
            assert begun.wait(60)
            writer.write_event("mine")
            mine = pool.submit(writer.flush)
            try:
                mine.result(10)
            finally:
                over.set()
        assert [event.data for event in manager.read_events("sc", "one")] == [b"first", b"of the other caller", b"mine"]
