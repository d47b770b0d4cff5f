"""Large events as programs write them: whole or not at all, once under a name, in order, and nothing is left of others.

Parts are small here, but where their real size matters; tests/client/test_large_processes.py has the large ones.
"""

from __future__ import annotations

import gc
import hashlib
import io
import os
import pickle
import random
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import wait
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from chunkstore import StorageError, Store
from chunkstore.testing import Crashed, Fault, FaultStore, Request, crash_at, fail_at
from chunkstore.testing.faults import When
from engine.container import Container, Settings
from engine.orphans import find_orphans, give_up
from engine.reads import Stores
from engine.root import Root, RootConfig
from engine.segments import EVENT_COUNT
from engine.testing.simulation import Simulation, audit
from pravega_spark import (
    EventClosed,
    EventExists,
    EventExpired,
    EventPointer,
    EventSegmentSealed,
    EventTaken,
    EventTooLong,
    LargeEvent,
    StreamManager,
    StreamNotFound,
    StreamSealed,
)
from pravega_spark.client import large
from pravega_spark.jobs import maintain
from pravega_spark.jobs.outcome import failures
from pravega_spark.jobs.spread import Target
from pravega_spark.streams.events import MAX_EVENT_SIZE
from pravega_spark.streams.scan import SliceReader, plan_slices
from pravega_spark.streams.stream import Stream
from pravega_spark.streams.uploads import Upload
from tests.client.test_cli import document, run

IDLE = 1000.0
PART = 64
MIB = 1 << 20
GIVEN_UP = 1
"""Requests after which a process without patience gives a frame up."""


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of 64 bytes, of which 16 go into the log."""
    monkeypatch.setattr(large, "PART_BYTES", PART)
    monkeypatch.setattr(large, "INLINE_BYTES", 16)


@pytest.fixture(autouse=True)
def no_threads_are_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Uploads end with their event, also when it is only forgotten."""
    yield
    gc.collect()
    for thread in threading.enumerate():
        if thread.name.startswith("large-event"):
            thread.join(10)
            assert not thread.is_alive()


class SimulatedRoot(Root):
    """A root whose only container is a simulated one: time passes when a test says so."""

    def __init__(self, simulation: Simulation, through: Store | None = None) -> None:
        self._simulation, self._through = simulation, through
        store = through or simulation.store
        super().__init__(Stores(store, store), RootConfig("root", 1, transient_idle_seconds=IDLE), Settings())

    def _start(self, number: int) -> Container:
        return self._simulation.open(through=self._through, transient_idle=IDLE)


@pytest.fixture
def simulation() -> Simulation:
    """With the streams `one` (1 segment) and `four` (4 segments) in scope `sc`."""
    simulation = Simulation()
    with StreamManager.over(SimulatedRoot(simulation)) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "one", 1)
        manager.create_stream("sc", "four", 4)
    return simulation


def process(simulation: Simulation, through: Store | None = None) -> StreamManager:
    """Another process on that root."""
    return StreamManager.over(SimulatedRoot(simulation, through))


def stream_of(manager: StreamManager, name: str = "one") -> Stream:
    return manager._catalog.stream("sc", name)


def payload(manager: StreamManager, pointer: EventPointer) -> bytes:
    """The payload of the event at a pointer, whose header is checked."""
    container = stream_of(manager, pointer.stream).container
    data = container.read(pointer.segment, pointer.offset, pointer.offset + pointer.length)
    assert data[:8] == bytes(4) + (pointer.length - 8).to_bytes(4, "big")
    return data[8:]


def events(manager: StreamManager, name: str = "one") -> list[bytes]:
    """All (small) events, in order of segments; the index must agree with them."""
    stream = stream_of(manager, name)
    snapshot = stream.snapshot()
    slices = plan_slices(snapshot, snapshot.ranges(snapshot.head_cut(), snapshot.tail_cut()), 1 << 30)
    found = [
        bytes(read.data[start + 8 : start + 8 + length])
        for read in SliceReader(stream.root, stream.scope, stream.name).read(slices)
        for start, length in zip(read.starts.tolist(), read.lengths.tolist(), strict=True)
    ]
    assert snapshot.events() == len(found)
    for number in snapshot.record.segment_ids():
        segment = snapshot.segment(number)
        assert snapshot.count_before(number, segment.length) == segment.attributes.get(EVENT_COUNT, 0)
    audit(stream.container.state)
    return found


def transients(manager: StreamManager, name: str = "one") -> list[str]:
    return list(stream_of(manager, name).container.refresh().transients)


def users_chunks(simulation: Simulation) -> int:
    return len(simulation.store.list("sc/"))


def collect(simulation: Simulation) -> None:
    """All that is due when the idle time is over, and the delay of garbage."""
    simulation.advance(1.1 * IDLE)
    container = simulation.open(transient_idle=IDLE)
    container.expire_transients()
    for _ in range(2):
        container.flush()
        simulation.advance(700)
        container.collect_garbage()


def data_of(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


def sweep(simulation: Simulation) -> int:
    """A clean-up that leaves nothing alone, and all that comes of it; how many objects it gave up."""
    simulation.advance(1)
    root = SimulatedRoot(simulation)
    found = find_orphans(root, lambda segment: 0, 0)
    give_up(root, found, 1)
    simulation.advance(700)
    root.container(0).flush()
    root.container(0).collect_garbage()
    left = {info.path for info in simulation.store.list("sc/")} | set(root.container(0).state.garbage)
    assert not left & {orphan.path for orphan in found.orphans}
    return len(found.orphans)


# --- sizes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 100, MAX_EVENT_SIZE])
def test_a_small_event_is_an_ordinary_append(manager: StreamManager, size: int) -> None:
    """Up to 8 MiB: no transient segment and no chunk is ever made."""
    data = data_of(size)
    with manager.begin_event("sc", "one") as event:
        assert event.write(data) == size == event.tell()
        assert not transients(manager)
        pointer = event.commit()
    assert (pointer.offset, pointer.length) == (0, size + 8)
    assert payload(manager, pointer) == data
    assert manager._root.stores.chunks.list("sc/") == []
    assert manager.stream_info("sc", "one").events == 1


def test_an_event_of_more_than_8_mib(manager: StreamManager) -> None:
    """It is uploaded in chunks; the index has a record just before it and just behind it."""
    with manager.create_writer("sc", "one") as writer:
        writer.write_event("before")
    data = data_of(2 * MAX_EVENT_SIZE + 1)
    with manager.begin_event("sc", "one", "key") as event:
        event.write(data[:MAX_EVENT_SIZE])
        assert not transients(manager)
        event.write(data[MAX_EVENT_SIZE:])
        event.flush()
        assert len(transients(manager)) == 1
        pointer = event.commit()
    assert payload(manager, pointer) == data
    with manager.create_writer("sc", "one") as writer:
        writer.write_event("after")
    snapshot = stream_of(manager).snapshot()
    assert snapshot.index(0).records(0, 3)[:, :2].tolist() == [[14, 1], [14 + 8 + len(data), 2], [35 + len(data), 3]]
    assert snapshot.events() == 3 and not transients(manager)
    stream_of(manager).container.flush()
    assert payload(manager, pointer) == data
    with manager.open_event(pointer) as file:
        assert file.read() == data


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("size", [0, 1, PART - 1, PART, PART + 1, 2 * PART, 2 * PART + 16, 2 * PART + 17, 20 * PART])
@pytest.mark.parametrize("flush", [False, True])
def test_any_size(manager: StreamManager, size: int, flush: bool) -> None:
    data, dice = data_of(size), random.Random(size)
    with manager.begin_event("sc", "one") as event:
        while (done := event.tell()) < size:
            assert event.write(data[done : done + dice.randint(0, PART)]) == event.tell() - done
            if flush and dice.random() < 0.3:
                event.flush()
        pointer = event.commit()
    assert payload(manager, pointer) == data and events(manager) == [data]
    assert not transients(manager)


@pytest.mark.usefixtures("small")
def test_one_byte_too_much(manager: StreamManager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large, "MAX_LARGE_EVENT_SIZE", 1000)
    with manager.begin_event("sc", "one") as event:
        event.write(bytes(1000))
        exact = event.commit()
    assert exact.length == 1008
    event = manager.begin_event("sc", "one")
    event.write(bytes(999))
    event.flush()
    with pytest.raises(EventTooLong, match=r"sc/one: with 1001 bytes it would exceed the limit of 1000 bytes\. It was"):
        event.write(b"12")
    assert event.closed and not transients(manager)
    with pytest.raises(EventClosed, match="it was aborted before"):
        event.commit()
    assert len(events(manager)) == 1


# --- being a file ------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small")
def test_it_is_a_binary_file(manager: StreamManager) -> None:
    data = data_of(1000)
    event = manager.begin_event("sc", "one")
    assert isinstance(event, io.RawIOBase) and event.writable() and not event.readable() and not event.seekable()
    shutil.copyfileobj(io.BytesIO(data), event, 37)
    changed = bytearray(data)
    for kind in (memoryview(data), changed, pa.py_buffer(data), memoryview(data).cast("H"), memoryview(data)[::1]):
        assert event.write(kind) == 1000
    changed[:] = bytes(1000)
    assert event.write(memoryview(data)[::2]) == 500
    with pytest.raises(TypeError):
        event.write("text")  # type: ignore[arg-type]
    pointer = event.commit()
    assert payload(manager, pointer) == data * 6 + data[::2] and event.closed

    event = manager.begin_event("sc", "one")
    buffered = io.BufferedWriter(event, 100)
    for byte in data:
        buffered.write(bytes([byte]))
    buffered.flush()
    assert event.tell() == 1000
    event.commit()
    assert events(manager) == [data * 6 + data[::2], data]
    assert buffered.closed and "committed as sc/one/0.#epoch.0:6508-1008" in repr(event)
    with pytest.raises(ValueError, match="closed file"):
        event.flush()


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("end", ["no commit", "exception", "close", "abort", "buffer", "manager"])
def test_without_a_commit_nothing_is_left(simulation: Simulation, end: str) -> None:
    with process(simulation) as manager:
        event = manager.begin_event("sc", "one")
        event.write(bytes(5 * PART))
        event.flush()
        event._upload.ready = lambda: False  # type: ignore[method-assign]  # what is uploaded now is not attached yet
        event.write(bytes(5 * PART))
        assert transients(manager) and users_chunks(simulation) > 5
        if end == "no commit":
            with event:
                pass
        elif end == "exception":
            with pytest.raises(KeyError), event:
                raise KeyError
        elif end == "buffer":
            io.BufferedWriter(event).close()
        elif end != "manager":
            getattr(event, end)()
        else:
            manager.close()
        event.close()
        event.abort()
        assert event.closed
        with pytest.raises(EventClosed, match="Large event of stream sc/one: it was aborted before"):
            event.commit()
    with process(simulation) as manager:
        assert not transients(manager) and events(manager) == []
    simulation.advance(700)
    simulation.open().flush()
    simulation.advance(700)
    simulation.open().collect_garbage()
    assert users_chunks(simulation) == 0


@pytest.mark.usefixtures("small")
def test_a_forgotten_event_goes_when_it_is_idle(simulation: Simulation) -> None:
    with process(simulation) as manager:
        event = manager.begin_event("sc", "one")
        event.write(bytes(5 * PART))
        event.flush()
        del event
        assert len(transients(manager)) == 1
    collect(simulation)
    with process(simulation) as manager:
        assert not transients(manager)
    assert users_chunks(simulation) == 0


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("size", [10, 5 * PART])
def test_two_commits(manager: StreamManager, size: int) -> None:
    event = manager.begin_event("sc", "one")
    event.write(bytes(size))
    pointer = event.commit()
    for again in (event.commit, lambda: event.commit(move=True), event.abort, lambda: event.write(b"more")):
        with pytest.raises(EventClosed, match=f"it was committed as {pointer} before"):
            again()
    event.close()
    assert events(manager) == [bytes(size)]


@pytest.mark.usefixtures("small")
def test_several_at_once(manager: StreamManager) -> None:
    contents = [data_of(30 * PART + number, number) for number in range(8)]
    opened = [manager.begin_event("sc", "four", f"key {number}") for number in range(8)]
    for start in range(0, 31 * PART, 50):
        for event, data in zip(opened, contents, strict=True):
            event.write(data[start : start + 50])
    opened[3].abort()
    pointers = [event.commit() for event in reversed(opened) if not event.closed]
    assert [payload(manager, pointer) for pointer in pointers] == [*contents[:3], *contents[4:]][::-1]
    assert sorted(events(manager, "four")) == sorted([*contents[:3], *contents[4:]])
    assert not transients(manager, "four")


# --- order -------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small")
def test_it_comes_in_the_order_of_commits(manager: StreamManager) -> None:
    with manager.create_writer("sc", "one") as writer:
        writer.write_event("1")
        early, late = writer.begin_event(), writer.begin_event("key")
        early.write(b"5" * 3 * PART)
        late.write(b"3" * 10)
        writer.write_event("2")
        late.commit()
        writer.write_event("4")
        early.commit()
        writer.write_event("6")
    assert [event[:1] for event in events(manager)] == [b"1", b"2", b"3", b"4", b"5", b"6"]


@pytest.mark.usefixtures("small")
def test_a_key_has_one_segment(manager: StreamManager) -> None:
    for number in range(8):
        with manager.create_writer("sc", "four") as writer:
            writer.write_event("small", f"key {number}")
            with writer.begin_event(f"key {number}") as event:
                event.write(bytes(3 * PART * (number % 2)))
                pointer = event.commit()
        container = stream_of(manager, "four").container
        assert container.read(pointer.segment, pointer.offset - 5, pointer.offset) == b"small"


# --- scaling -----------------------------------------------------------------------------------------------------


def scaled(manager: StreamManager, *ranges: tuple[float, float]) -> None:
    """Give the stream `one` segments with these ranges."""
    current = manager.stream_info("sc", "one").segments
    manager.scale_stream("sc", "one", [segment.id for segment in current], ranges)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("merge", [False, True])
def test_a_scale_during_an_upload(manager: StreamManager, merge: bool) -> None:
    """It fails, and says so; on request the event goes where its key is now, and no byte is uploaded again."""
    if merge:
        scaled(manager, (0.0, 0.5), (0.5, 1.0))
    with manager.create_writer("sc", "one") as writer:
        writer.write_event("before", "key")
    event = manager.begin_event("sc", "one", "key")
    data = data_of(5 * PART)
    event.write(data[:200])
    event.flush()
    scaled(manager, *([(0.0, 1.0)] if merge else [(0.0, 0.1), (0.1, 0.9), (0.9, 1.0)]))
    with manager.create_writer("sc", "one") as writer:
        writer.write_event("between", "key")
    event.write(data[200:])
    before = len(manager._root.stores.chunks.list("sc/"))
    for _ in range(2):
        with pytest.raises(
            EventSegmentSealed,
            match=r"its segment sc/one/\d\.#epoch\.\d was sealed, as the stream was scaled\. Nothing is lost: commit",
        ):
            event.commit()
        assert len(events(manager)) == 2 and not event.closed
    pointer = event.commit(move=True)
    assert pointer.segment_id in {segment.id for segment in manager.stream_info("sc", "one").segments}
    assert payload(manager, pointer) == data
    assert len(manager._root.stores.chunks.list("sc/")) <= before + 2
    container = stream_of(manager).container
    assert container.read(pointer.segment, pointer.offset - 7, pointer.offset) == b"between"
    assert events(manager) == [b"before", b"between", data] and not transients(manager)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("size", [10, 3 * PART])
def test_a_scale_before_anything_is_uploaded_changes_nothing(manager: StreamManager, size: int) -> None:
    event = manager.begin_event("sc", "one", "key")
    event.write(bytes(10))
    scaled(manager, (0.0, 0.5), (0.5, 1.0))
    event.write(bytes(size - 10))
    pointer = event.commit()
    assert pointer.segment_id != 0 and events(manager) == [bytes(size)]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("size", [10, 3 * PART])
def test_a_stream_that_is_sealed_or_gone(manager: StreamManager, size: int) -> None:
    sealed, gone = manager.begin_event("sc", "one"), manager.begin_event("sc", "four")
    for event in (sealed, gone):
        event.write(bytes(size))
        if size > PART:
            event.flush()
    manager.seal_stream("sc", "one")
    with pytest.raises(StreamSealed, match="sc/one"):
        sealed.commit(move=True)
    with pytest.raises(StreamSealed, match="sc/one"):
        manager.begin_event("sc", "one")
    manager.seal_stream("sc", "four")
    manager.delete_stream("sc", "four")
    assert not transients(manager, "four"), "they go with the stream"
    with pytest.raises(StreamNotFound, match="sc/four"):
        manager.begin_event("sc", "four")
    manager.create_stream("sc", "four")
    with pytest.raises(StreamNotFound, match="sc/four"):
        gone.commit()
    assert events(manager, "four") == events(manager) == []
    assert not transients(manager)


@pytest.mark.usefixtures("small")
def test_a_truncation_behind_its_segment(manager: StreamManager) -> None:
    event = manager.begin_event("sc", "one")
    event.write(bytes(5 * PART))
    event.flush()
    scaled(manager, (0.0, 0.5), (0.5, 1.0))
    with manager.create_writer("sc", "one") as writer:
        writer.write_event("after")
    manager.truncate_stream("sc", "one", manager.stream_info("sc", "one").tail)
    assert not transients(manager)
    with pytest.raises(EventExpired, match="the stream was truncated behind its segment, so that what was uploaded is"):
        event.commit(move=True)


# --- expiry ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("use", ["commit", "write", "flush"])
def test_a_commit_after_expiry(simulation: Simulation, use: str) -> None:
    with process(simulation) as manager:
        event = manager.begin_event("sc", "one")
        event.write(bytes(5 * PART))
        event.flush()
        simulation.advance(1.1 * IDLE)
        assert simulation.open(transient_idle=IDLE).expire_transients()
        with pytest.raises(EventExpired, match=r"nothing was written to it for 1000 seconds, .*\. Begin it again"):
            if use == "commit":
                event.commit()
            event.write(bytes(5 * PART if use == "write" else 10))
            event.flush()
        assert event.closed and events(manager) == []
        with pytest.raises(EventClosed, match="given up, as writing it had failed"):
            event.commit()


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("use", ["write", "flush"])
def test_an_upload_that_still_writes_never_expires(simulation: Simulation, use: str) -> None:
    """However little it writes, as long as it is used more often than the idle time is long."""
    with process(simulation) as manager:
        event = manager.begin_event("sc", "one")
        event.write(bytes(2 * PART))
        event.flush()
        (name,) = transients(manager)
        for _ in range(20):
            simulation.advance(0.45 * IDLE)
            if use == "write":
                event.write(b"1")
            else:
                event.flush()
            simulation.advance(0.45 * IDLE)
            assert simulation.open(transient_idle=IDLE).expire_transients() == ()
        assert transients(manager) == [name]
        event.commit()
        assert events(manager) == [bytes(2 * PART) + b"1" * 20 * (use == "write")]


@pytest.mark.usefixtures("small")
def test_operators_collect_idle_uploads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = str(tmp_path)
    with Root.open(url, containers=1) as root, StreamManager.over(root) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "one")

        def left() -> str:
            event = manager.begin_event("sc", "one")
            event.write(bytes(5 * PART))
            event.flush()
            (name,) = transients(manager)
            return name

        name = left()
        assert document("segment", "describe", name, root=url)["segment"]["transient_of"] == "sc/one/0.#epoch.0"
        assert name not in str(document("stream", "describe", "sc/one", root=url))
        assert document("gc", "--yes", root=url)["gc"]["expired"] == 0
        with monkeypatch.context() as later:
            later.setattr(Container, "_idle_before", lambda container: int((container.now() + 1) * 1000))
            assert document("gc", "--dry-run", root=url)["gc"]["expired"] == 1
            refused = run("gc", root=url, code=1)
            assert "1 uploads of large events are idle" in refused.stdout and transients(manager) == [name]
            assert document("gc", "--yes", root=url)["gc"]["expired"] == 1
        assert not transients(manager)
        name = left()
        with monkeypatch.context() as later:
            later.setattr(Container, "_idle_before", lambda container: int((container.now() + 1) * 1000))
            (told,) = (one for one in maintain.run(Target(url), dry_run=True) if one.action == "garbage")
            assert told.changed and "1 idle uploads of large events given up" in told.detail
            assert transients(manager) == [name]
            assert not failures(maintain.run(Target(url), check=True))
        assert not transients(manager)


# --- clean-ups ---------------------------------------------------------------------------------------------------


def held_back(event: LargeEvent, data: bytes) -> None:
    """Write what is uploaded and not attached, as by a program that sleeps then."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(event._upload, "ready", lambda: False)
        event.write(data)
        wait([sent.extents for sent in event._sent])
        event.write(b"")
    assert event._landed and not event._sent


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", [None, "name"])
@pytest.mark.parametrize("attached", [0, 3], ids=["the first part", "a later part"])
@pytest.mark.parametrize("use", ["commit", "flush", "write"])
def test_parts_that_were_given_up(simulation: Simulation, name: str | None, attached: int, use: str) -> None:
    """Nothing of the event comes into the stream. Under a name it goes on behind what was attached, however old."""
    data = data_of(10 * PART)
    with process(simulation) as manager:
        event = manager.begin_event("sc", "one", name=name)
        if attached:
            event.write(data[: attached * PART])
            event.flush()
        held_back(event, data[attached * PART : 6 * PART + 1])
        assert sweep(simulation) > 1
        with pytest.raises(EventExpired, match=r"its chunks were begun at .* given up all .*\. Begin it again"):
            if use == "write":
                event.write(data[6 * PART + 1 : 9 * PART])
            elif use == "flush":
                event.flush()
            event.commit()
        assert event.closed and events(manager) == []
        assert len(transients(manager)) == bool(name and attached)
        again = manager.begin_event("sc", "one", name=name)
        assert again.tell() == (attached * PART if name else 0)
        again.write(data[again.tell() :])
        pointer = again.commit()
        assert payload(manager, pointer) == data and events(manager) == [data]
    collect(simulation)
    with process(simulation) as manager:
        assert payload(manager, pointer) == data and not transients(manager)


@pytest.mark.usefixtures("small")
def test_parts_that_a_clean_up_does_not_concern(simulation: Simulation) -> None:
    """Those that are attached, and those that are younger, whatever it gives up beside them."""
    data = data_of(10 * PART)
    with process(simulation) as manager:
        event, died = manager.begin_event("sc", "one"), manager.begin_event("sc", "one")
        event.write(data[: 4 * PART])
        event.flush()
        held_back(died, data)
        assert sweep(simulation) > 5
        held_back(event, data[4 * PART : 9 * PART])
        assert len(find_orphans(manager._root, lambda segment: 0).orphans) == 0
        event.write(data[9 * PART :])
        pointer = event.commit()
        assert payload(manager, pointer) == data and events(manager) == [data]
        with pytest.raises(EventExpired):
            died.commit()
    assert simulation.open().state.swept > 0


# --- names -------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("scale", [False, True])
def test_an_upload_is_gone_on_with_by_name(simulation: Simulation, scale: bool) -> None:
    data = data_of(10 * PART)
    with process(simulation) as manager:
        event = manager.begin_event("sc", "one", "key", name="x")
        assert event.tell() == 0
        event.write(data[:200])
        event.flush()
        event.write(data[200:230])
        lost = manager.begin_event("sc", "one", name="unnamed elsewhere")
        lost.write(bytes(3 * PART))
        lost.flush()
        manager._writers.clear()  # as if the process had died
    with process(simulation) as manager:
        if scale:
            scaled(manager, (0.0, 0.5), (0.5, 1.0))
        with pytest.raises(ValueError, match="the event 'x' of stream sc/one was begun with another routing key than"):
            manager.begin_event("sc", "one", "other", name="x")
        again = manager.begin_event("sc", "one", *(["key"] if scale else []), name="x")
        assert again.tell() == 200
        again.write(data[200:])
        pointer = again.commit(move=scale)
        assert payload(manager, pointer) == data and events(manager) == [data]
        with pytest.raises(EventExists, match="the event 'x' is in the stream already"):
            manager.begin_event("sc", "one", "key", name="x")
        with manager.begin_event("sc", "four", name="x") as elsewhere:
            assert elsewhere.tell() == 0


@pytest.mark.usefixtures("small")
def test_who_goes_on_fences_who_wrote_before(manager: StreamManager, url: str) -> None:
    first = manager.begin_event("sc", "one", name="x")
    first.write(b"1" * 3 * PART)
    first.flush()
    with StreamManager(url) as other:
        second = other.begin_event("sc", "one", name="x")
        assert second.tell() == 3 * PART
        first.write(b"1" * PART)
        with pytest.raises(EventTaken, match="another process has begun or aborted the event 'x' meanwhile"):
            first.flush()
        assert first.closed
        second.write(b"2" * PART)
        second.commit()
    assert events(manager) == [b"1" * 3 * PART + b"2" * PART]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("size", [10, 3 * PART])
@pytest.mark.parametrize("other_size", [10, 3 * PART])
def test_two_begin_the_same_name(manager: StreamManager, url: str, size: int, other_size: int) -> None:
    """Neither has uploaded anything: who commits first, or uploads first, has it."""
    with StreamManager(url) as other:
        first, second, third = (one.begin_event("sc", "one", name="x") for one in (manager, other, manager))
        second.write(b"2" * other_size)
        if other_size > PART:
            second.flush()
            with pytest.raises(EventTaken, match="another process has begun or aborted the event 'x' meanwhile"):
                third.write(b"3" * size)
                third.commit()
            assert third.closed
        second.commit()
        with pytest.raises(EventExists, match="the event 'x' is in the stream already"):
            first.write(b"1" * size)
            first.commit()
        assert first.closed
        with pytest.raises(EventExists):
            manager.begin_event("sc", "one", name="x")
    assert events(manager) == [b"2" * other_size] and not transients(manager)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("end", ["aborted", "expired"])
def test_a_name_is_free_again(simulation: Simulation, end: str) -> None:
    with process(simulation) as manager:
        event = manager.begin_event("sc", "one", "key", name="x")
        event.write(bytes(3 * PART))
        event.flush()
        if end == "aborted":
            event.abort()
            assert stream_of(manager).container.attributes("sc/one#writers") .keys() <= {b"\x80" + bytes(15)}
        else:
            manager._writers.clear()
            collect(simulation)
    with process(simulation) as manager:
        again = manager.begin_event("sc", "one", "another key", name="x")
        assert again.tell() == 0
        again.write(b"2" * 3 * PART)
        again.flush()
        if end == "expired":
            with pytest.raises(EventTaken, match="'x'"):
                event._upload.stream = stream_of(manager)  # the process had slept
                event.commit()
        again.commit()
        assert events(manager) == [b"2" * 3 * PART]


@pytest.mark.usefixtures("small")
def test_a_failure_leaves_what_has_a_name(simulation: Simulation) -> None:
    store = FaultStore(simulation.store)
    with process(simulation, store) as manager:
        named, unnamed = manager.begin_event("sc", "one", name="x"), manager.begin_event("sc", "one")
        for event in (named, unnamed):
            event.write(b"1" * 2 * PART)
            event.flush()
        store.plan = lambda at, request: Fault("before") if request.verb == "put" else None
        for event in (named, unnamed):
            with pytest.raises(StorageError, match="injected fault"):
                event.write(b"2" * 10 * PART)
                event.commit()
            assert event.closed
        store.plan = None
        assert len(transients(manager)) == 1
        with manager.begin_event("sc", "one", name="x") as again:
            assert again.tell() == 2 * PART
            again.write(b"2")
            again.commit()
        assert events(manager) == [b"1" * 2 * PART + b"2"]


# --- crashes and faults --------------------------------------------------------------------------------------------


def uploaded(manager: StreamManager, name: str | None, size: int) -> LargeEvent:
    event = manager.begin_event("sc", "one", name=name)
    event.write(data_of(size))
    return event


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("size", [50, 5 * PART + 20])
@pytest.mark.parametrize("scale", [False, True])
def test_a_crash_at_every_request_of_the_commit(simulation: Simulation, when: When, size: int, scale: bool) -> None:
    """It is there whole or not at all; with a name another process goes on, without it goes after the idle time."""
    number, crashed, found_whole = 0, True, set()
    while crashed:
        number += 1
        for name in ("x", None):
            own = Simulation()
            with StreamManager.over(SimulatedRoot(own)) as manager:
                manager.create_scope("sc")
                manager.create_stream("sc", "one", 1)
            through = FaultStore(own.store)
            doomed = process(own, through)
            event = uploaded(doomed, name, size)
            if size > PART:
                event.flush()
            if scale:
                scaled(process(own), (0.0, 0.3), (0.3, 1.0))
            start = through.passed
            through.plan = crash_at(start + number, when)
            try:
                event.commit(move=True)
                crashed = False
            except Crashed:
                pass
            with process(own) as manager:
                whole = events(manager) == [data_of(size)]
                assert whole or events(manager) == []
                found_whole.add(whole)
                if name is not None and whole:
                    with pytest.raises(EventExists):
                        manager.begin_event("sc", "one", name=name)
                elif name is not None:
                    again = manager.begin_event("sc", "one", name=name)
                    assert again.tell() == (size if size > PART else 0)
                    again.write(data_of(size)[again.tell() :])
                    again.commit(move=True)
                    assert events(manager) == [data_of(size)]
            collect(own)
            with process(own) as manager:
                assert not transients(manager)
                assert events(manager) in ([], [data_of(size)])
                kept = sum(segment.length for segment in stream_of(manager).container.state.segments.values())
            assert sum(info.size for info in own.store.list("sc/")) == kept, "nothing else is left"
    assert True in found_whole and (False in found_whole or when == "after") and number > 1


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("name", [None, "x"])
def test_a_fault_at_every_request(simulation: Simulation, when: When, name: str | None) -> None:
    """Overcome, or heard of; in either case the event is there whole or not at all, and once."""
    number, heard, more = 0, 0, True
    while more:
        number += 1
        own = Simulation()
        with StreamManager.over(SimulatedRoot(own)) as manager:
            manager.create_scope("sc")
            manager.create_stream("sc", "one", 1)
        through = FaultStore(own.store)
        with process(own, through) as manager:
            stream_of(manager).snapshot()
            last = through.passed + number
            through.plan = fail_at(last, when)
            try:
                event = uploaded(manager, name, 4 * PART + 20)
                pointer = event.commit()
                more, through.plan = through.passed >= last, None
                assert payload(manager, pointer) == data_of(4 * PART + 20)
                assert len(events(manager)) == 1
            except StorageError:
                heard += 1
                through.plan = None
                assert events(manager) == []
    print(f"{number - 1} faults, {heard} heard of")
    assert heard < number and number > 8


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("size", [50, 5 * PART])
@pytest.mark.parametrize("committed", [False, True])
def test_an_unknown_outcome_of_the_commit_is_settled(
    size: int, committed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its frame was, or was not, written before the process gave up: the pointer is told all the same."""
    sought: list[object] = []
    find = Upload._found

    def found(self: Upload, *arguments: Any) -> EventPointer | None:
        sought.append(find(self, *arguments))
        return sought[-1]  # type: ignore[return-value]

    monkeypatch.setattr(Upload, "_found", found)
    own = Simulation(patience=0.0)
    with StreamManager.over(SimulatedRoot(own)) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "one", 1)
    through = FaultStore(own.store, verbs=("put_if_absent",))
    with process(own, through) as manager:
        event = uploaded(manager, "x", size)
        if size > PART:
            event.flush()
        with process(own) as other, other.create_writer("sc", "one") as writer:
            writer.write_event("of others")
        stream_of(manager).snapshot()
        start, when = through.passed, "after" if committed else "before"
        through.plan = lambda at, request: Fault(when) if at <= start + GIVEN_UP else None  # type: ignore[arg-type]
        pointer = event.commit()
        assert payload(manager, pointer) == data_of(size)
        assert events(manager) == [b"of others", data_of(size)]
        assert sought == ([pointer] if committed else []), "the process has given up"


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", [None, "x"])
@pytest.mark.parametrize("attached", [False, True])
@pytest.mark.parametrize("written", [False, True])
def test_an_unknown_outcome_of_an_upload_is_settled(name: str | None, attached: bool, written: bool) -> None:
    """Of the append that makes the transient segment, or of a later one; the stream is scaled before it is known."""
    own = Simulation(patience=0.0)
    with StreamManager.over(SimulatedRoot(own)) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "one", 1)
    through = FaultStore(own.store, verbs=("put_if_absent",))
    with process(own, through) as manager:
        event = manager.begin_event("sc", "one", "key", name=name)
        data = data_of(4 * PART)
        if attached:
            event.write(data[: 2 * PART])
            event.flush()
        start, when = through.passed, "after" if written else "before"
        failed = []

        def plan(at: int, request: Request) -> Fault | None:
            if at > start + GIVEN_UP:
                if not failed and not attached:
                    failed.append(at)
                    scaled(process(own), (0.0, 0.5), (0.5, 1.0))
                return None
            return Fault(when)  # type: ignore[arg-type]

        through.plan = plan
        event.write(data[event.tell() :])
        event.flush()
        assert through.passed > start + GIVEN_UP or written
        assert len(transients(manager)) == 1
        through.plan = None
        pointer = event.commit(move=True)
        assert payload(manager, pointer) == data
        assert events(manager) == [data] and not transients(manager)


# --- what is refused ---------------------------------------------------------------------------------------------


def test_transactions_take_no_large_events(manager: StreamManager) -> None:
    much = bytes(MAX_EVENT_SIZE + 1)
    with manager.create_transaction_writer("sc", "one").begin_txn() as transaction:
        for write in (
            lambda: transaction.write_event_bytes(much),
            lambda: transaction.write_events([b"", much]),
        ):
            with pytest.raises(ValueError, match=r"Write size too large: 8388617\. .*; a transaction takes no large"):
                write()
        transaction.write_event("small")
    with manager.create_writer("sc", "one") as writer:
        for write in (lambda: writer.write_event_bytes(much), lambda: writer.write_events([b"", much])):
            with pytest.raises(ValueError, match=r"8388608 bytes: split it, or write it with begin_event"):
                write()
    assert events(manager) == [b"small"]


@pytest.mark.parametrize(
    "error",
    [EventTooLong("sc/st", 5, 4), EventClosed("sc/st", "x"), EventExpired("sc/st", "y"), EventExists("sc/st", "s")],
)
def test_errors_travel(error: Exception) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and str(again) == str(error) and "sc/st" in str(again)


# --- the real sizes ----------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.timeout(300)
def test_exactly_1_gib_and_one_byte_more(tmp_path: Path) -> None:
    block = os.urandom(MIB)
    expected = hashlib.sha256()
    with StreamManager(str(tmp_path)) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "one")
        with manager.begin_event("sc", "one") as event:
            for _ in range(1024):
                event.write(block)
                expected.update(block)
            pointer = event.commit()
        assert pointer.length == (1 << 30) + 8
        found = hashlib.sha256()
        container = stream_of(manager).container
        for start in range(pointer.offset + 8, pointer.offset + pointer.length, 16 * MIB):
            found.update(container.read(pointer.segment, start, start + 16 * MIB))
        assert found.digest() == expected.digest()
        event = manager.begin_event("sc", "one")
        for _ in range(1024):
            event.write(block)
        with pytest.raises(EventTooLong, match="with 1073741825 bytes it would exceed the limit of 1073741824 bytes"):
            event.write(b"1")
        assert not transients(manager)
        assert manager.stream_info("sc", "one").events == 1
