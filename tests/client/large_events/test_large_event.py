"""Large events as programs write them: whole or not at all, and in order.

Parts are small here, but where their real size matters; tests/client/large_events/test_large_processes.py has the large
ones.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import random
import shutil
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from pravega_spark import EventClosed, EventExists, EventExpired, EventTooLong, StreamManager
from pravega_spark.client.large_events import large_event as large
from pravega_spark.streams.model.events import MAX_EVENT_SIZE
from tests.client.large_events.simulated import PART, collect, data_of, events, payload, process, stream_of, transients
from tests.support.simulation import Simulation

pytestmark = pytest.mark.usefixtures("no_threads_are_left")

MIB = 1 << 20


def users_chunks(simulation: Simulation) -> int:
    return len(simulation.store.list("sc/"))


# --- sizes -----------------------------------------------------------------------------------------------------------


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
    assert manager.root.stores.chunks.list("sc/") == []
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
    assert snapshot.segments.index(0).records(0, 3)[:, :2].tolist() == [
        [14, 1],
        [14 + 8 + len(data), 2],
        [35 + len(data), 3],
    ]
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
    with pytest.raises(EventTooLong, match=r"sc/one: 1001 bytes exceed the limit of 1000 bytes\. It was"):
        event.write(b"12")
    assert event.closed and not transients(manager)
    with pytest.raises(EventClosed, match="it was aborted before"):
        event.commit()
    assert len(events(manager)) == 1


# --- being a file ----------------------------------------------------------------------------------------------------


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
    with pytest.raises(ValueError, match="is closed"):
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


# --- order -----------------------------------------------------------------------------------------------------------


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


# --- what is refused -------------------------------------------------------------------------------------------------


def test_transactions_take_no_large_events(manager: StreamManager) -> None:
    much = bytes(MAX_EVENT_SIZE + 1)
    with manager.create_transaction_writer("sc", "one").begin_txn() as transaction:
        for write in (partial(transaction.write_event_bytes, much), partial(transaction.write_events, [b"", much])):
            with pytest.raises(ValueError, match=r"8388609 bytes, more than .*; transactions take no large"):
                write()
        transaction.write_event("small")
    with manager.create_writer("sc", "one") as writer:
        for write in (partial(writer.write_event_bytes, much), partial(writer.write_events, [b"", much])):
            with pytest.raises(ValueError, match=r"limit of 8388608: split it, or write it with begin_event"):
                write()
    assert events(manager) == [b"small"]


@pytest.mark.parametrize(
    "error",
    [EventTooLong("sc/st", 5, 4), EventClosed("sc/st", "x"), EventExpired("sc/st", "y"), EventExists("sc/st", "s")],
)
def test_errors_travel(error: Exception) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and str(again) == str(error) and "sc/st" in str(again)


# --- the real sizes --------------------------------------------------------------------------------------------------


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
        with pytest.raises(EventTooLong, match="1073741825 bytes exceed the limit of 1073741824 bytes"):
            event.write(b"1")
        assert not transients(manager)
        assert manager.stream_info("sc", "one").events == 1
