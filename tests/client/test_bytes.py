"""Byte streams are files: what goes in comes out, nobody's bytes come between, and failures are told."""

from __future__ import annotations

import io
import random
import shutil
import threading
import uuid
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from chunkstore.errors import StorageUnavailable
from engine.containers.container import Container
from engine.errors import OutcomeUnknown, Throttled
from pravega_spark import StreamError, StreamManager, StreamNotFound
from pravega_spark.client import bytes as byte_streams
from pravega_spark.client.bytes import MAX_WRITE, ByteStream, ByteStreamError
from pravega_spark.streams.catalog import Catalog


@pytest.fixture
def stream(manager: StreamManager) -> ByteStream:
    """The bytes of an empty stream."""
    return manager.create_byte_stream("sc", "one")


def opened_again(manager: StreamManager) -> ByteStream:
    return manager.create_byte_stream("sc", "one")


def flush_to_tier_two(manager: StreamManager) -> None:
    manager.root.container(Catalog(manager.root).stream("sc", "b").number).flush()


def test_what_is_written_is_read(stream: ByteStream) -> None:
    assert (stream.current_head_offset(), stream.current_tail_offset(), stream.tell()) == (0, 0, 0)
    assert stream.read(9) == b""
    assert stream.write(b"hello ") == 6 and stream.write(bytearray(b"world")) == 5 and stream.write(b"") == 0
    stream.flush()
    assert stream.current_tail_offset() == 11 and stream.tell() == 0
    buffer = bytearray(7)
    assert stream.readinto(buffer) == 7 and buffer == b"hello w"
    assert stream.readinto(memoryview(buffer)[2:]) == 4 and buffer == b"heorldw"
    assert stream.readinto(buffer) == 0 and stream.tell() == 11
    stream.write(memoryview(b"more"))
    stream.flush()
    assert stream.read() == b"more"


def raw(stream: ByteStream) -> io.RawIOBase:
    """A byte stream as what Python's buffered files are made for."""
    return stream


def test_it_is_a_raw_file(manager: StreamManager, stream: ByteStream) -> None:
    assert isinstance(stream, io.RawIOBase)
    assert stream.readable() and stream.writable() and stream.seekable() and not stream.isatty()
    data = random.Random(1).randbytes(300_000)
    shutil.copyfileobj(io.BytesIO(data), stream)
    stream.flush()
    copied = io.BytesIO()
    shutil.copyfileobj(opened_again(manager), copied)
    assert copied.getvalue() == data
    with io.BufferedReader(raw(opened_again(manager))) as reader:
        assert reader.peek(1)[:5] == data[:5]
        assert reader.seek(1000) == 1000 and reader.read(17) == data[1000:1017]
        assert reader.seek(-9, io.SEEK_END) == len(data) - 9 and reader.read() == data[-9:]
    with io.BufferedWriter(raw(opened_again(manager)), 100) as writer:
        for _ in range(50):
            writer.write(b"twelve bytes")
    assert opened_again(manager).readall() == data + b"twelve bytes" * 50
    stream.seek(len(data))
    assert io.TextIOWrapper(io.BufferedReader(raw(stream))).readlines() == ["twelve bytes" * 50]


@pytest.mark.parametrize(
    ("position", "whence", "found"),
    [(0, 0, 0), (7, 0, 7), (99, 0, 99), (3, 1, 8), (-5, 1, 0), (0, 2, 10), (-10, 2, 0), (5, 2, 15)],
)
def test_seeking(stream: ByteStream, position: int, whence: int, found: int) -> None:
    stream.write(b"0123456789")
    stream.flush()
    assert stream.seek(5) == 5
    assert stream.seek(position, whence) == found == stream.tell()
    assert stream.read(3) == b"0123456789"[found : found + 3]


@pytest.mark.parametrize(("position", "whence"), [(-1, 0), (-6, 1), (-11, 2), (0, 3), (0, -1)])
def test_places_that_cannot_be_sought(stream: ByteStream, position: int, whence: int) -> None:
    stream.write(b"0123456789")
    stream.flush()
    stream.seek(5)
    with pytest.raises(ValueError, match=r"seek to -1|whence must be 0"):
        stream.seek(position, whence)
    assert stream.tell() == 5


def test_truncation(stream: ByteStream, manager: StreamManager) -> None:
    stream.write(b"0123456789")
    stream.truncate(4)  # also what is not flushed yet
    assert (stream.current_head_offset(), stream.current_tail_offset(), stream.tell()) == (4, 10, 0)
    with pytest.raises(ByteStreamError, match="offset 0 was truncated; the head is 4"):
        stream.read(1)
    assert stream.seek(stream.current_head_offset()) == 4 and stream.read() == b"456789"
    for offset in (4, 0, 3):
        stream.truncate(offset)
        assert stream.current_head_offset() == 4
    with pytest.raises(ByteStreamError, match="offsets 4 to 10 and cannot be truncated at 11"):
        stream.truncate(11)
    again = opened_again(manager)
    assert again.tell() == 4 and again.read() == b"456789"
    info = manager.stream_info("sc", "one")
    assert (info.size, info.events, dict(info.head.positions), dict(info.tail.positions)) == (6, 0, {0: 4}, {0: 10})
    assert manager.next_stream_cut("sc", "one", info.head, 1) == info.tail
    stream.truncate(10)
    assert stream.current_head_offset() == 10 and opened_again(manager).read() == b""
    stream.write(b"ab")
    stream.flush()
    assert opened_again(manager).read() == b"ab"


def test_truncated_by_somebody_else_at_the_same_time(
    manager: StreamManager, stream: ByteStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.write(b"0123456789")
    stream.flush()
    other, stale = opened_again(manager), stream._now()
    other.truncate(7)
    now, looks = ByteStream._now, iter([stale])
    monkeypatch.setattr(ByteStream, "_now", lambda self: next(looks, None) or now(self))
    stream.truncate(5)
    assert stream.current_head_offset() == 7


def test_large_writes_are_taken_in_part(stream: ByteStream, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_WRITE == 8 << 20
    monkeypatch.setattr(byte_streams, "MAX_WRITE", 10)
    monkeypatch.setattr(byte_streams, "MAX_READ", 4)
    assert stream.write(b"0123456789abc") == 10
    stream.flush()
    assert stream.read(8) == b"0123" and stream.readall() == b"456789"


def test_writes_do_not_wait_and_are_one_append_each(stream: ByteStream, monkeypatch: pytest.MonkeyPatch) -> None:
    submitted: list[Future[Any]] = []
    submit = Container.submit

    def noted(container: Container, operations: Any) -> Future[Any]:
        submitted.append(submit(container, operations))
        return submitted[-1]

    monkeypatch.setattr(Container, "submit", noted)
    buffer = bytearray(b"ab")
    for number in range(50):
        buffer[:] = b"%02d" % number  # which the write before must not see
        stream.write(buffer)
        assert sum(not future.done() for future in submitted) <= byte_streams.MAX_WAITING
    stream.flush()
    assert len(submitted) == 50
    assert stream.readall() == b"".join(b"%02d" % number for number in range(50))


def test_everything_is_there_after_reopening(tmp_path: Path) -> None:
    with StreamManager(tmp_path) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "b", 1)
        kept = manager.create_byte_stream("sc", "b")
        kept.write(b"not flushed, but closed with the manager")
    assert kept.closed
    with StreamManager(tmp_path) as manager, manager.create_byte_stream("sc", "b") as stream:
        assert stream.read() == b"not flushed, but closed with the manager"
        stream.write(b"!")
        flush_to_tier_two(manager)
        stream.truncate(5)
        flush_to_tier_two(manager)
    with StreamManager(tmp_path) as manager, manager.create_byte_stream("sc", "b") as stream:
        assert stream.read() == b"lushed, but closed with the manager!"


# --- what is refused ------------------------------------------------------------------------------------------------


def test_streams_that_are_no_byte_streams(manager: StreamManager) -> None:
    with pytest.raises(ByteStreamError, match="sc/four has 4 segments, but a byte stream has one"):
        manager.create_byte_stream("sc", "four")
    with pytest.raises(StreamNotFound, match="sc/none"):
        manager.create_byte_stream("sc", "none")
    with manager.create_writer("sc", "one") as writer:
        writer.write_event("")
    for truncated in (False, True):
        if truncated:
            manager.truncate_stream("sc", "one", manager.stream_info("sc", "one").tail)
        with pytest.raises(OSError, match="sc/one has events") as raised:
            manager.create_byte_stream("sc", "one")
        assert isinstance(raised.value, StreamError)


@pytest.mark.parametrize("how", ["bytes", "events"])
def test_somebody_else_writes(manager: StreamManager, stream: ByteStream, how: str) -> None:
    stream.write(b"mine")
    stream.flush()
    if how == "bytes":
        with manager.create_byte_stream("sc", "one") as other:
            other.write(b"theirs")
    else:
        with manager.create_writer("sc", "one") as writer:
            writer.write_event("theirs")
    length = manager.stream_info("sc", "one").size
    stream.write(b"between")
    for call in (stream.flush, stream.flush, lambda: stream.write(b"x"), lambda: stream.truncate(1)):
        with pytest.raises(ByteStreamError, match="another writer has appended to it"):
            call()
    stream.close()
    assert stream.closed and manager.stream_info("sc", "one").size == length


def test_a_failure_that_nobody_heard_of_is_raised_when_it_is_closed(manager: StreamManager, stream: ByteStream) -> None:
    with manager.create_byte_stream("sc", "one") as other:
        other.write(b"theirs")
    stream.write(b"lost")
    with pytest.raises(ByteStreamError, match="another writer"):
        stream.close()
    assert stream.closed
    stream.close()


def test_a_sealed_byte_stream_is_read_only(manager: StreamManager, stream: ByteStream) -> None:
    stream.write(b"kept")
    stream.flush()
    manager.seal_stream("sc", "one")
    again = manager.create_byte_stream("sc", "one")
    assert again.read() == b"kept"
    with pytest.raises(ByteStreamError, match="sealed"):
        again.truncate(2)
    for late in (stream, again):
        late.write(b"late")
        with pytest.raises(ByteStreamError, match="sealed: it can be read"):
            late.flush()


def test_a_deleted_byte_stream(manager: StreamManager, stream: ByteStream) -> None:
    manager.seal_stream("sc", "one")
    manager.delete_stream("sc", "one")
    tail, head = stream.current_tail_offset, stream.current_head_offset
    for call in (lambda: stream.read(1), tail, lambda: stream.seek(0, 2), head):
        with pytest.raises(ByteStreamError, match="sc/one was deleted"):
            call()
    stream.write(b"x")
    with pytest.raises(ByteStreamError, match="was deleted"):
        stream.flush()
    manager.create_stream("sc", "one")
    with pytest.raises(ByteStreamError, match="was deleted"):
        stream.current_tail_offset()


@pytest.mark.parametrize("call", ["read", "write", "flush", "seek", "tell", "truncate", "current_head_offset"])
def test_a_closed_one_takes_nothing(stream: ByteStream, call: str) -> None:
    stream.close()
    arguments = {"read": (1,), "write": (b"x",), "seek": (0,), "truncate": (0,)}.get(call, ())
    with pytest.raises(ValueError, match="closed"):
        getattr(stream, call)(*arguments)


@pytest.mark.parametrize("bad", ["text", 5, None], ids=str)
def test_only_bytes_are_written(stream: ByteStream, bad: Any) -> None:
    with pytest.raises(TypeError):
        stream.write(bad)
    stream.write(b"fine")
    stream.flush()
    assert stream.current_tail_offset() == 4


@pytest.mark.parametrize("late", [False, True], ids=["at once", "later"])
@pytest.mark.parametrize(
    ("error", "raised"),
    [(OutcomeUnknown("no answer"), ByteStreamError), (StorageUnavailable("away"), StorageUnavailable)],
    ids=["outcome unknown", "storage"],
)
def test_failures_of_the_storage(
    stream: ByteStream, monkeypatch: pytest.MonkeyPatch, error: Exception, raised: type[Exception], late: bool
) -> None:
    def failing(container: Container, operations: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_exception(error)
        return future

    monkeypatch.setattr(Container, "submit", failing)
    for _ in range(byte_streams.MAX_WAITING if late else 1):
        stream.write(b"x")
    with pytest.raises(raised, match=str(error)):
        stream.write(b"x") if late else stream.flush()
    monkeypatch.undo()
    with pytest.raises(raised, match=str(error)):
        stream.write(b"x")
    stream.close()


def test_too_much_that_waits_may_be_tried_again(stream: ByteStream, monkeypatch: pytest.MonkeyPatch) -> None:
    def throttled(container: Container, operations: Any) -> Future[Any]:
        raise Throttled(1, 2, "no space")

    with monkeypatch.context() as patch:
        patch.setattr(Container, "submit", throttled)
        with pytest.raises(ByteStreamError, match="try again when"):
            stream.write(b"x")
    stream.write(b"y")
    stream.flush()
    assert stream.read() == b"y"


# --- against a model ------------------------------------------------------------------------------------------------


class Files(RuleBasedStateMachine):
    """Three byte streams of one stream, in two processes' worth of roots, against one string of bytes."""

    def __init__(self) -> None:
        super().__init__()
        url = f"memory://{uuid.uuid4()}"
        self.managers = [StreamManager(url), StreamManager(url)]
        self.managers[0].create_scope("sc")
        self.managers[0].create_stream("sc", "b", 1)
        self.writer = self.managers[0].create_byte_stream("sc", "b")
        self.readers = [manager.create_byte_stream("sc", "b") for manager in self.managers]
        self.data, self.pending, self.head = b"", b"", 0
        self.places = [0, 0]

    def teardown(self) -> None:
        for manager in self.managers:
            manager.close()

    @rule(data=st.binary(max_size=40))
    def write(self, data: bytes) -> None:
        assert self.writer.write(data) == len(data)
        self.pending += data

    @rule()
    def flush(self) -> None:
        self.writer.flush()
        self.data, self.pending = self.data + self.pending, b""

    @rule(number=st.integers(0, 1), size=st.integers(1, 50))
    def read(self, number: int, size: int) -> None:
        reader, place = self.readers[number], self.places[number]
        if place < self.head and place < len(self.data):
            with pytest.raises(ByteStreamError, match="was truncated"):
                reader.read(size)
            return
        found = reader.read(size) or b""
        whole = self.data + self.pending  # some of which may be durable without a flush
        assert found == whole[place : place + len(found)]
        assert place + len(found) >= min(place + size, len(self.data)) or place >= len(self.data)
        self.places[number] = place + len(found)

    @rule(number=st.integers(0, 1), place=st.integers(0, 100))
    def seek(self, number: int, place: int) -> None:
        self.places[number] = self.readers[number].seek(place)

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        self.flush()
        offset = round(share * len(self.data))
        self.writer.truncate(offset)
        self.head = max(self.head, offset)

    @rule()
    def bring_to_tier_two(self) -> None:
        flush_to_tier_two(self.managers[1])

    @invariant()
    def head_and_tail(self) -> None:
        reader = self.readers[1]
        assert reader.current_head_offset() == self.head
        assert len(self.data) <= reader.current_tail_offset() <= len(self.data + self.pending)


TestFiles = Files.TestCase
TestFiles.settings = settings(
    max_examples=10, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)


def test_skip_and_available_end_at_the_tail(manager: StreamManager) -> None:
    """Pravega's ByteStreamReaderTest.testSkip."""
    with manager.create_byte_stream("sc", "one") as stream:
        stream.write(bytes(range(5)))
        stream.flush()
        assert (stream.skip(1), stream.tell(), stream.read(2), stream.tell()) == (1, 1, b"\x01\x02", 3)
        assert (stream.skip(10), stream.tell(), stream.read(1), stream.available()) == (2, 5, b"", 0)
        stream.seek(0)
        assert stream.available() == 5
        stream.seek(9)
        assert (stream.available(), stream.skip(3), stream.tell()) == (0, 0, 9)
        with pytest.raises(ValueError, match="count must be 0 or more, not -1"):
            stream.skip(-1)


def test_a_reader_waits_for_data_and_for_the_seal(manager: StreamManager) -> None:
    """Pravega's ByteStreamTest.readWriteTest, where a read waits."""
    reader = manager.create_byte_stream("sc", "one")
    assert reader.wait_for_data(timeout=0) is False and reader.wait_for_data("1ms", poll_interval=0.0001) is False
    found: list[bytes] = []

    def follow() -> None:
        while reader.wait_for_data(poll_interval=0.001):
            found.append(reader.read(4))

    thread = threading.Thread(target=follow)
    thread.start()
    with manager.create_byte_stream("sc", "one") as writer:
        writer.write(b"0123456789")
        writer.flush()
        writer.write(b"the rest")
        writer.seal()
        with pytest.raises(ByteStreamError, match="is sealed"):
            writer.write(b"more")
            writer.flush()
    thread.join(60)
    assert not thread.is_alive() and b"".join(found) == b"0123456789the rest"
    assert reader.read(1) == b"" and reader.wait_for_data() is False
