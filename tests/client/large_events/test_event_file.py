"""Events as files, readers that meet large ones, and pointers in functions that Spark runs."""

from __future__ import annotations

import asyncio
import hashlib
import io
import pickle
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from chunkstore import Store
from chunkstore.testing import CountingStore
from engine.errors import DataCorruption
from engine.storage.object_reads import ObjectRange, Stores
from pravega_spark import (
    Event,
    EventFile,
    EventPointer,
    EventTooLarge,
    InvalidEventPointer,
    NoSuchEvent,
    StreamCut,
    StreamManager,
    StreamNotFound,
    fetch_event,
    fetch_event_to_file,
    fetch_events,
)
from pravega_spark.client.event import LazyEvent
from pravega_spark.client.large_events import event_file
from pravega_spark.client.large_events.event_file import EventPayload
from pravega_spark.streams.model.events import event_header
from pravega_spark.streams.stream import Stream
from tests.large_events import MiB, content, put_large, put_small

LARGE = content(21 * MiB + 12345, 3)


@pytest.fixture
def stream(manager: StreamManager) -> Stream:
    return Stream(manager.root, "sc", "one")


@pytest.fixture
def pointer(stream: Stream) -> str:
    """Of a large event between small ones, in chunks of odd sizes."""
    put_small(stream, b"before", b"")
    found = put_large(stream, LARGE[: 5 * MiB + 17], LARGE[5 * MiB + 17 : 13 * MiB], LARGE[13 * MiB :])
    put_small(stream, b"after")
    return found


# --- the file ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flushed", [False, True])
def test_an_event_is_a_file(manager: StreamManager, stream: Stream, pointer: str, flushed: bool) -> None:
    if flushed:
        stream.container.flush()
    with manager.open_event(pointer) as file:
        assert file.size == len(LARGE) and file.readable() and file.seekable() and not file.writable()
        assert file.read(10) == LARGE[:10] and file.tell() == 10
        assert file.read(9 * MiB) == LARGE[10 : 9 * MiB + 10]
        assert file.read() == LARGE[9 * MiB + 10 :]
        assert file.read() == b"" and file.readinto(bytearray(5)) == 0
        assert file.seek(-5, io.SEEK_END) == len(LARGE) - 5 and file.read(100) == LARGE[-5:]
        assert file.seek(100) == 100 and file.seek(20, io.SEEK_CUR) == 120 and file.read(1) == LARGE[120:121]
        assert file.seek(len(LARGE) + 7) == len(LARGE) + 7 and file.read(3) == b"" and file.readall() == b""
        with pytest.raises(ValueError, match="cannot seek to -1"):
            file.seek(-1)
        with pytest.raises(ValueError, match="whence must be 0"):
            file.seek(0, 3)
        with pytest.raises(io.UnsupportedOperation, match="can only be read"):
            file.write(b"x")
        assert repr(file) == f"<EventFile {pointer}>"
    with pytest.raises(ValueError, match=r"this file of event .* is closed"):
        file.read(1)


def test_small_and_empty_events_are_files_too(manager: StreamManager, pointer: str) -> None:
    before, empty, large, after = manager.read_events("sc", "one")
    assert str(large.pointer) == pointer
    for event, payload in ((before, b"before"), (empty, b""), (after, b"after")):
        with manager.open_event(event.pointer) as file:
            assert (file.size, file.read(), file.read(1)) == (len(payload), payload, b"")


def test_what_is_usual_works_with_it(manager: StreamManager, pointer: str) -> None:
    with manager.open_event(EventPointer.from_text(pointer)) as file:
        copy = io.BytesIO()
        shutil.copyfileobj(file, copy)
        assert hashlib.sha256(copy.getbuffer()).digest() == hashlib.sha256(LARGE).digest()
    with io.BufferedReader(manager.open_event(pointer)) as buffered:
        assert buffered.read(3) == LARGE[:3] and buffered.peek(1)[:1] == LARGE[3:4]
        buffered.seek(15 * MiB)
        assert buffered.read(70_000) == LARGE[15 * MiB : 15 * MiB + 70_000]


def test_random_reads(manager: StreamManager, pointer: str) -> None:
    chance = random.Random(1)
    with manager.open_event(pointer) as file:
        for _ in range(60):
            if chance.random() < 0.5:
                file.seek(chance.randrange(len(LARGE)))
            at, size = file.tell(), chance.choice([1, 1000, MiB, 3 * MiB])
            assert file.read(size) == LARGE[at : at + size]


def test_little_is_in_memory_and_little_is_read(
    manager: StreamManager, pointer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = manager.open_event(pointer)
    counting = CountingStore(manager.root.stores.chunks)
    monkeypatch.setattr(manager.root, "stores", Stores(manager.root.stores.log, counting))
    file.seek(18 * MiB)
    assert file.read(100) == LARGE[18 * MiB : 18 * MiB + 100]
    assert counting.bytes_read <= 2 * MiB, "a read somewhere fetches nothing but what it needs"
    counting.reset()
    file.seek(0)
    while file.read(100_000):
        assert len(file._flying) <= event_file.AHEAD + 1
    file.close()
    assert counting.bytes_read <= len(LARGE) + 3 * MiB, "nothing is fetched twice"


def test_closing_the_manager_closes_its_files(url: str) -> None:
    with StreamManager(url) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "one")
        file = manager.open_event(put_large(Stream(manager.root, "sc", "one"), LARGE))
        file.read(1)
    assert file.closed


# --- what is not there -------------------------------------------------------------------------------------------


def test_places_of_no_event(manager: StreamManager, stream: Stream, pointer: str) -> None:
    at = EventPointer.from_text(pointer)
    fake = event_header(50) + b"z" * 100
    inside = EventPointer.from_text(put_large(stream, b"x" * MiB + fake + b"y" * 9 * MiB))
    put_small(stream, b"x" * 10 + fake)
    for wrong in (
        EventPointer("sc", "one", 0, at.offset + 1, at.length),
        EventPointer("sc", "one", 0, at.offset, at.length - 1),
        EventPointer("sc", "one", 0, at.offset, 1 << 40),
        EventPointer("sc", "one", 0, 1 << 40, 10),
        EventPointer("sc", "one", 0, inside.offset + 8 + MiB, 58),  # it looks like an event
        EventPointer("sc", "one", 0, inside.offset + inside.length + 18, 58),
    ):
        with pytest.raises(InvalidEventPointer, match=f"{wrong}: no event of this length begins") as caught:
            manager.open_event(wrong)
        assert pickle.loads(pickle.dumps(caught.value)).pointer == str(wrong)
    with pytest.raises(ValueError, match="'sc/one' is not an event pointer"):
        manager.open_event("sc/one")
    with pytest.raises(StreamNotFound):
        manager.open_event("sc/none/0.#epoch.0:0-8")
    with pytest.raises(NoSuchEvent, match=r"sc/one/7.#epoch.0:0-8 does not exist: .* or its segment never"):
        manager.open_event("sc/one/7.#epoch.0:0-8")


def test_a_truncated_event(manager: StreamManager, stream: Stream, pointer: str) -> None:
    """Also while it is read: what is fetched meanwhile may be gone."""
    file = manager.open_event(pointer)
    assert file.read(5) == LARGE[:5]
    large = list(manager.read_events("sc", "one"))[2]
    manager.truncate_stream("sc", "one", stream.snapshot().tail_cut())
    url = manager.root.stores.chunks.root
    for look in (lambda: manager.open_event(pointer), lambda: large.data, lambda: fetch_event(pointer, url)):
        with pytest.raises(NoSuchEvent, match=f"Event {pointer} does not exist") as caught:
            look()
        assert pickle.loads(pickle.dumps(caught.value)).pointer == pointer
    store = manager.root.stores.chunks
    store.delete([info.path for info in store.list("sc/one/")])
    with pytest.raises(NoSuchEvent):
        file.read()
    file.close()


def test_a_moved_event_is_found(manager: StreamManager, stream: Stream, pointer: str) -> None:
    """It lies no longer where it was when the file was opened."""
    sizes = [min(4 * MiB, len(LARGE) - start) for start in range(0, len(LARGE), 4 * MiB)]
    pieces = [ObjectRange(False, f"moved/{number}", 0, size, b"", 0, size) for number, size in enumerate(sizes)]
    with EventFile(EventPayload(stream, EventPointer.from_text(pointer), pieces)) as file:
        assert file.read(5) == LARGE[:5]
        file.seek(12 * MiB)
        assert file.read() == LARGE[12 * MiB :]


def damaged(store: Store, change: Callable[[bytearray], None]) -> None:
    """Change the largest chunk."""
    path = max(store.list("sc/one/"), key=lambda info: info.size).path
    data = bytearray(store.read(path))
    change(data)
    store.put(path, bytes(data))


def test_damage_is_never_delivered(manager: StreamManager, stream: Stream, pointer: str) -> None:
    def flip(data: bytearray) -> None:
        data[3 * MiB] ^= 1

    damaged(manager.root.stores.chunks, flip)
    with manager.open_event(pointer) as file:
        with pytest.raises(DataCorruption, match="do not match their checksums"):
            while file.read(MiB):
                pass
        assert 13 * MiB <= file.tell() + 4 * MiB and file.tell() <= 16 * MiB
        with pytest.raises(DataCorruption):
            file.read()
        at = file.tell()
        damaged(manager.root.stores.chunks, flip)  # which mends it
        assert file.read() == LARGE[at:], "what failed is tried again"
        assert file.seek(0) == 0 and file.read(5 * MiB) == LARGE[: 5 * MiB]


def test_a_lost_object_is_named(manager: StreamManager, stream: Stream, pointer: str) -> None:
    store = manager.root.stores.chunks
    largest = max(store.list("sc/one/"), key=lambda info: info.size)
    file = manager.open_event(pointer)
    store.delete([largest.path])
    with pytest.raises(DataCorruption, match=f"event {pointer}: .*{largest.path} does not exist.*Restore the object"):
        file.read()
    file.close()


# --- readers -----------------------------------------------------------------------------------------------------


def test_readers_fetch_a_large_event_when_asked(
    manager: StreamManager, pointer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting = CountingStore(manager.root.stores.chunks)
    monkeypatch.setattr(manager.root, "stores", Stores(manager.root.stores.log, counting))
    _, _, large, after = events = list(manager.read_events("sc", "one"))
    assert counting.bytes_read <= 2 * MiB
    assert [event.size for event in events] == [6, 0, len(LARGE), 5]
    assert isinstance(large, LazyEvent) and str(large.pointer) == pointer and large.offset == 22
    assert after.data == b"after" and after.get_event(limit=5) == b"after"
    with pytest.raises(EventTooLarge, match=r"has 5 bytes, more than the limit of 4"):
        after.get_event(4)
    with pytest.raises(EventTooLarge, match=rf"{pointer} has {len(LARGE)} bytes, .*open_event\(pointer\)") as caught:
        large.get_event(limit=MiB)
    assert counting.bytes_read <= 2 * MiB
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.pointer, again.size, again.limit) == (pointer, len(LARGE), MiB)
    assert large.get_event(limit=len(LARGE)) == LARGE and large.data == LARGE
    with large.open() as file:
        assert file.read(7) == LARGE[:7]
    first, *_ = large
    assert not isinstance(first, bytes) and "storage" not in repr(large), "never an empty payload by mistake"
    with pytest.raises(TypeError):
        len(first)  # type: ignore[arg-type]


def test_followers_and_groups_too(manager: StreamManager, stream: Stream, pointer: str) -> None:
    manager.seal_stream("sc", "one")
    tailed = list(manager.tail("sc", "one", StreamCut("sc", "one", {0: 0})))
    assert [event.get_event() for event in tailed] == [b"before", b"", LARGE, b"after"]
    reader = manager.create_reader_group("rg", "sc", "one").create_reader("r")
    events: list[Event] = []
    while len(events) < 4:
        part = asyncio.run(reader.get_segment_slice_async())
        events += list(part)
        reader.release_segment(part)
    before, _, large, after = events
    assert isinstance(large, LazyEvent) and str(large.pointer) == pointer and large.size == len(LARGE)
    assert (before.get_event(limit=6), after.data()) == (b"before", b"after")
    with pytest.raises(EventTooLarge, match=f"{pointer} has"):
        large.get_event(limit=MiB)
    with pytest.raises(EventTooLarge):
        before.get_event(limit=5)
    assert large.data() == LARGE and large.value == LARGE
    assert repr(large) == f"Event(offset 22 data: {len(LARGE)} bytes, not read)"
    with large.open() as file:
        assert file.read(7) == LARGE[:7]


# --- without a manager -------------------------------------------------------------------------------------------


def test_fetching_by_pointers(manager: StreamManager, url: str, pointer: str, tmp_path: Path) -> None:
    small = str(next(iter(manager.read_events("sc", "one"))).pointer)
    assert fetch_event(small, url) == b"before"
    assert fetch_event(EventPointer.from_text(pointer), url) == LARGE
    assert fetch_event(pointer, url, 6 * MiB, 6 * MiB + 9) == LARGE[6 * MiB : 6 * MiB + 9]
    assert fetch_event(pointer, url, len(LARGE) - 3) == LARGE[-3:]
    assert fetch_event(pointer, url, len(LARGE) - 3, 1 << 40) == LARGE[-3:]
    assert fetch_event(pointer, url, 1 << 40) == b"" == fetch_event(pointer, url, 5, 5)
    for start, end in ((-1, None), (5, 4)):
        with pytest.raises(ValueError, match="the range of an event"):
            fetch_event(pointer, url, start, end)
    copy = tmp_path / "copy"
    copy.write_bytes(b"old")
    assert fetch_event_to_file(pointer, url, copy) == len(LARGE)
    assert copy.read_bytes() == LARGE
    wrong = pointer.replace(":22-", ":21-")
    with pytest.raises(InvalidEventPointer):
        fetch_event_to_file(wrong, url, copy)
    assert [path.name for path in tmp_path.iterdir()] == ["copy"] and copy.read_bytes() == LARGE


def test_a_copy_that_fails_leaves_nothing(manager: StreamManager, url: str, pointer: str, tmp_path: Path) -> None:
    def cut(data: bytearray) -> None:
        data[MiB] ^= 1

    damaged(manager.root.stores.chunks, cut)
    with pytest.raises(DataCorruption):
        fetch_event_to_file(pointer, url, tmp_path / "copy")
    assert list(tmp_path.iterdir()) == []


def test_fetching_a_column(manager: StreamManager, url: str, pointer: str) -> None:
    small = str(next(iter(manager.read_events("sc", "one"))).pointer)
    arrow = fetch_events(pa.array([small, None, pointer]), url, 2, 6)
    assert arrow.type == pa.binary() and arrow.to_pylist() == [b"fore", None, LARGE[2:6]]
    assert fetch_events(pa.chunked_array([[small], [None]]), url).to_pylist() == [b"before", None]
    assert fetch_events(pa.array([], pa.string()), url).to_pylist() == []
    series = pd.Series([small, None, np.nan, pointer], index=[5, 6, 7, 8], name="event", dtype=object)
    found = fetch_events(series, url, end=3)
    assert found.tolist() == [b"bef", None, None, LARGE[:3]]
    assert found.index.tolist() == [5, 6, 7, 8] and found.name == "event" and found.dtype == object
    with pytest.raises(pa.ArrowException):
        fetch_events(pd.Series([1, 2]), url)
    with pytest.raises(InvalidEventPointer):
        fetch_events(pa.array([small, pointer.replace(":22-", ":21-")]), url)
