"""What a container promises, on every storage, with threads and without."""

import contextlib
import pickle
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from chunkstore import ObjectNotFound, StorageError, Store, open_store
from chunkstore.metrics import default_metrics
from chunkstore.records import ChunkRecord
from chunkstore.testing import (
    WRITES,
    CountingStore,
    Crashed,
    Fault,
    FaultStore,
    LatencyStore,
    Request,
    SimulatedExecutor,
    crash_at,
)
from chunkstore.testing.s3_server import S3Server
from engine import storage_writer
from engine.chunks import write_chunk
from engine.container import Container, Settings
from engine.errors import (
    BadAttributeUpdate,
    BadKeyVersion,
    BadOffset,
    ContainerOffline,
    NotPrimary,
    OutcomeUnknown,
    Rejected,
    SegmentExists,
    SegmentNotFound,
    SegmentNotSealed,
    SegmentSealed,
    SegmentTruncated,
)
from engine.operations import (
    Append,
    AttributeUpdate,
    CreateSegment,
    DeleteSegment,
    Derived,
    Operation,
    Payload,
    PutEntry,
    SealSegment,
    UpdateAttributes,
    UpdateKind,
)
from engine.reads import Stores, fetch
from engine.recovery import recover
from engine.segments import CREATION_TIME, EVENT_COUNT, MAX_VALUE, NULL_VALUE
from engine.state import ATTRIBUTES_GARBAGE, State
from engine.table_content import ChangesLost
from engine.tables import ATTRIBUTES, attribute_key
from engine.testing.model import contents_of
from engine.testing.simulation import MAX_PAYLOAD, Simulation, audit, small_sizes

W = bytes(15) + b"w"
MIB = 1 << 20


def append(segment: str, data: bytes, offset: int | None = None, *updates: AttributeUpdate) -> Append:
    return Append(segment, Payload(data), offset, updates)


def pattern(count: int) -> bytes:
    """Bytes that are different everywhere."""
    return b"".join(number.to_bytes(4, "big") for number in range(count // 4 + 1))[:count]


def content(container: Container, segment: str) -> bytes:
    info = container.info(segment)
    return container.read(segment, info.start_offset, info.length)


def chunks_in(store: Store) -> list[str]:
    """The chunks of users' segments."""
    return [info.path for info in store.list("") if not info.path.startswith(("containers/", "_system/"))]


def chunks_of(container: Container) -> list[str]:
    """The chunks that the container knows, in tier 2 and in the log."""
    records = [record.name for _, record in container.records.records() if isinstance(record, ChunkRecord)]
    return sorted(records + [name for name in container.state.chunks if not name.startswith("_system/")])


def assert_equal(left: State, right: State) -> None:
    for field in State._fields:
        assert getattr(left, field) == getattr(right, field), field


# --- on every storage -----------------------------------------------------------------------------------------


BACKENDS = ("memory, threads", "memory, inline", "folder, threads", "folder, inline", "s3, threads")


@pytest.fixture(params=[*BACKENDS[:-1], pytest.param(BACKENDS[-1], marks=pytest.mark.long)])
def backend(request: pytest.FixtureRequest) -> str:
    """Where the objects are, and whether the containers use threads."""
    return str(request.param)


@pytest.fixture
def store(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if backend.startswith("memory"):
        opened = open_store(f"memory://{uuid.uuid4().hex}")
    elif backend.startswith("folder"):
        opened = open_store(str(tmp_path))
    else:
        server: S3Server = request.getfixturevalue("s3_server")
        opened = open_store(server.make_bucket(), server.storage_options())
    yield opened
    opened.close()


Opener = Callable[..., Container]


@pytest.fixture
def opened(backend: str, store: Store) -> Iterator[Opener]:
    """Opens the same container again and again, as other processes would."""
    containers: list[Container] = []

    def opener(exclusive: bool = False, **settings: Any) -> Container:
        chosen = {"upkeep": False, "threaded": backend.endswith("threads"), **settings}
        containers.append(Container(Stores(store, store), 0, Settings(**chosen), exclusive=exclusive))
        return containers[-1]

    yield opener
    for container in containers:
        container.close()


@pytest.mark.parametrize("backend", BACKENDS)  # this one also on S3, always
def test_operations_and_their_results(opened: Opener) -> None:
    container = opened()
    container.create_segment("s/a", [AttributeUpdate(W, UpdateKind.NONE, 7)])
    assert container.append("s/a", b"first") == 0
    assert container.append("s/a", b"second", offset=5) == 5
    assert container.append("s/a", memoryview(bytearray(b"third"))) == 11
    info = container.info("s/a")
    assert (info.name, info.start_offset, info.length, info.sealed) == ("s/a", 0, 16, False)
    assert info.attributes[W] == 7 and info.attributes[CREATION_TIME] > 1_600_000_000_000
    assert container.read("s/a", 0, 16) == b"firstsecondthird"
    assert container.read("s/a", 3, 8) == b"stsec"
    assert container.read("s/a", 4, 4) == b""
    container.truncate("s/a", 7)
    assert container.read("s/a", 7, 16) == b"condthird"
    container.seal("s/a")
    assert container.info("s/a").sealed
    container.update_attributes("s/a", [AttributeUpdate(W, UpdateKind.REPLACE_IF_EQUALS, 8, 7)])
    container.create_segment("s/b")
    container.append("s/b", b"source")
    container.seal("s/b")
    container.create_segment("s/c")
    container.append("s/c", b"target")
    assert container.merge("s/c", "s/b") == 6
    assert content(container, "s/c") == b"targetsource"
    container.delete("s/a")
    assert set(container.refresh().segments) == {"s/c"}
    again = opened()
    assert_equal(again.state, container.refresh())
    assert content(again, "s/c") == b"targetsource"


def test_refusals(opened: Opener) -> None:
    container = opened()
    for name in ("s/a", "s/open", "s/sealed", "s/cut"):
        container.create_segment(name)
        container.append(name, b"123")
    container.truncate("s/cut", 2)
    container.seal("s/sealed")
    container.seal("s/cut")
    before = contents_of(container)
    refused: list[tuple[type[Exception], Callable[[], object]]] = [
        (SegmentExists, lambda: container.create_segment("s/a")),
        (SegmentNotFound, lambda: container.append("s/none", b"")),
        (SegmentSealed, lambda: container.append("s/sealed", b"x")),
        (BadOffset, lambda: container.append("s/a", b"x", offset=2)),
        (BadAttributeUpdate, lambda: container.append("s/a", b"x", 2, [AttributeUpdate(W, UpdateKind(4), 1, 5)])),
        (SegmentNotFound, lambda: container.seal("s/none")),
        (SegmentNotSealed, lambda: container.merge("s/a", "s/open")),
        (SegmentNotFound, lambda: container.merge("s/a", "s/none")),
        (BadOffset, lambda: container.merge("s/a", "s/cut")),
        (Rejected, lambda: container.merge("s/a", "s/a")),
        (BadOffset, lambda: container.truncate("s/a", 4)),
        (SegmentNotFound, lambda: container.truncate("s/none", 0)),
        (SegmentNotFound, lambda: container.delete("s/none")),
        (SegmentNotFound, lambda: container.update_attributes("s/none", [])),
        (SegmentNotFound, lambda: container.info("s/none")),
        (SegmentNotFound, lambda: container.read("s/none", 0, 0)),
        (SegmentTruncated, lambda: container.read("s/cut", 1, 3)),
        (BadOffset, lambda: container.read("s/a", 0, 4)),
        (BadOffset, lambda: container.read("s/a", 2, 1)),
    ]
    for error, attempt in refused:
        with pytest.raises(error):
            attempt()
    for process in (container, opened()):
        assert contents_of(process) == before
    assert container.append("s/a", b"4") == 3


def test_transactions_are_all_or_nothing(opened: Opener, store: Store) -> None:
    container, other = opened(), opened()
    container.commit([CreateSegment("s/a"), CreateSegment("s/b"), append("s/a", b"1"), append("s/b", b"2")])
    receipt = container.commit([append("s/a", b"34"), append("s/b", b"5", 1), append("s/a", b"6"), SealSegment("s/b")])
    assert receipt.results == [1, 1, 3, None]
    frames = len(store.list("containers/0/wal/"))
    before = contents_of(container)
    with pytest.raises(SegmentSealed):
        container.commit(
            [
                append("s/a", b"7"),
                PutEntry("t", "k", b"v"),
                CreateSegment("s/c"),
                DeleteSegment("s/a"),
                append("s/b", b"8"),
            ]
        )
    assert contents_of(container) == contents_of(other) == before
    assert len(store.list("containers/0/wal/")) == frames, "a refusal leaves no trace"


def test_a_writers_number_makes_replays_harmless(opened: Opener) -> None:
    """What the sink does: its batch number, its data and its table entry are one transaction (X3)."""
    container, other = opened(), opened()
    container.commit([CreateSegment("s/a"), CreateSegment("s/b")])

    def batch(number: int) -> list[Operation]:
        update = AttributeUpdate(W, UpdateKind.REPLACE_IF_GREATER, number)
        return [UpdateAttributes("s/a", (update,)), append("s/a", b"%d," % number), append("s/b", b"%d;" % number)]

    container.commit(batch(1))
    other.commit(batch(2))
    for process in (container, other, opened()):
        for number in (1, 2):
            with pytest.raises(BadAttributeUpdate) as error:
                process.commit(batch(number))
            assert error.value.previous == 2
    container.commit(batch(3))
    assert (content(other, "s/a"), content(other, "s/b")) == (b"1,2,3,", b"1;2;3;")


def test_two_processes_see_each_other(opened: Opener) -> None:
    """Nothing is refused because of what a process does not know yet, nor accepted because of what is no more (W5)."""
    one, two = opened(), opened()
    one.create_segment("s/a")
    assert two.append("s/a", b"12") == 0
    assert one.append("s/a", b"34", offset=2) == 2
    assert two.append("s/a", b"56", offset=4) == 4
    with pytest.raises(BadOffset) as offset:
        one.append("s/a", b"", offset=4)
    assert offset.value.expected == 6
    assert one.read("s/a", 0, 6) == two.read("s/a", 0, 6) == b"123456"
    two.delete("s/a")
    with pytest.raises(SegmentNotFound):
        one.append("s/a", b"x")
    two.create_segment("s/a")
    assert one.append("s/a", b"x") == 0
    with pytest.raises(SegmentExists):
        one.create_segment("s/a")


def test_derived_content_is_made_from_the_state_that_it_is_appended_to(opened: Opener) -> None:
    one, two = opened(), opened()
    one.commit([CreateSegment("s/a"), CreateSegment("s/a#index")])
    index = Derived(20, lambda lookup: b"%d," % lookup("s/a").length)
    for number in range(4):
        (one, two)[number % 2].commit([append("s/a", bytes(number)), Append("s/a#index", index)])
    assert content(one, "s/a#index") == content(two, "s/a#index") == b"0,1,3,6,"


def test_chunks_hold_the_users_bytes_and_nothing_else(opened: Opener, store: Store) -> None:
    container = opened()
    for name in ("s/a", "s/b"):
        container.create_segment(name)
        for number in range(5):
            container.append(name, b"%s-%d," % (name.encode(), number))
    length = sum(container.info(name).length for name in ("s/a", "s/b"))
    assert container.flush() == length
    assert container.flush() == 0
    chunks = chunks_in(store)
    assert [name.partition(".E-")[0] for name in chunks] == [container.info(name).storage for name in ("s/a", "s/b")]
    assert [store.read(name) for name in chunks] == [content(container, "s/a"), content(container, "s/b")]
    for number in range(3):
        assert container.info("s/a").storage_length == container.info("s/a").length
        container.append("s/a", b"more")
        for process in (container, opened()):
            assert content(process, "s/a").endswith(b"s/a-4," + b"more" * (number + 1))
        assert container.flush() == 4
        assert chunks_of(container) == chunks_in(store), "and nothing else is there"
        assert sum(len(store.read(name)) for name in chunks_in(store)) == length + 4 * (number + 1)
    assert content(opened(), "s/a").endswith(b"s/a-4,moremoremore")


def test_merged_segments_read_the_same_before_and_after_flushing(opened: Opener) -> None:
    container, other = opened(), opened()
    container.commit([CreateSegment(name) for name in ("s/a", "s/b", "s/c", "s/d", "s/e")])
    for name in ("s/c", "s/b", "s/a", "s/d"):
        container.append(name, name.encode() * 3)
    expected = container.read("s/a", 0, 9)
    for name, flush in (("s/b", False), ("s/c", True), ("s/d", False), ("s/e", True)):
        expected += content(container, name)
        container.seal(name)
        container.merge("s/a", name)
        for process in (container, other, opened()):
            assert content(process, "s/a") == expected
        if flush:
            container.flush()
            for process in (container, other, opened()):
                assert content(process, "s/a") == expected
        assert container.append("s/a", b"+") == len(expected)
        expected += b"+"
    assert content(opened(), "s/a") == expected == b"s/as/as/as/bs/bs/b+s/cs/cs/c+s/ds/ds/d++"
    audit(container.refresh())


@pytest.mark.parametrize("flushed", [False, True])
def test_truncation_in_the_middle_of_extents(opened: Opener, flushed: bool) -> None:
    container, reader = opened(), opened()
    container.create_segment("s/a")
    for number in range(4):
        container.append("s/a", b"%d" % number * 5)
    if flushed:
        container.flush()
    for offset in (1, 4, 5, 12, 12, 3):
        container.truncate("s/a", offset)
        info = reader.info("s/a")
        assert (info.start_offset, info.length) == (max(offset, info.start_offset), 20)
        assert reader.read("s/a", info.start_offset, 20) == b"00000111112222233333"[info.start_offset :]
        with pytest.raises(SegmentTruncated) as error:
            reader.read("s/a", info.start_offset - 1, 20)
        assert error.value.start_offset == info.start_offset
    container.flush()
    assert content(opened(), "s/a") == b"22233333"
    container.truncate("s/a", 20)
    assert container.append("s/a", b"end") == 20
    assert content(reader, "s/a") == content(opened(), "s/a") == b"end"


def test_attached_ranges_of_one_chunk(opened: Opener, store: Store) -> None:
    """A task costs one object and not one per segment, and nothing until it is committed (S3)."""
    container, other = opened(), opened()
    container.commit([CreateSegment(name) for name in ("s/a", "s/b", "s/c")])
    container.append("s/b", b"inline,")
    parts = [[b"for a,", b"and a,"], [b"for b,"], [], [b"for c,"], [b"a again"]]
    extents = write_chunk(store, "s/chunk", parts)
    assert [extent.length for extent in extents] == [12, 6, 6, 7]
    targets = ["s/a", "s/b", "s/c", "s/a"]
    receipt = container.commit([Append(name, (extent,)) for name, extent in zip(targets, extents, strict=True)])
    assert receipt.results == [0, 7, 0, 12]
    assert container.refresh().logged_bytes == 7
    for process in (container, other, opened()):
        assert content(process, "s/a") == b"for a,and a,a again"
        assert content(process, "s/b") == b"inline,for b,"
        assert content(process, "s/c") == b"for c,"
    assert chunks_in(store) == ["s/chunk"]
    container.truncate("s/a", 12)
    container.delete("s/b")
    container.seal("s/c")
    container.merge("s/a", "s/c")
    assert "s/chunk" not in other.refresh().garbage
    container.truncate("s/a", 19)
    assert other.refresh().chunks["s/chunk"] == 1
    assert content(other, "s/a") == b"for c,"
    container.delete("s/a")
    assert "s/chunk" in other.refresh().garbage
    assert store.read("s/chunk", 0, 5) == b"for a", "garbage outlives the readers that know it"
    with pytest.raises(Rejected, match="given up"):
        container.commit([CreateSegment("s/late"), Append("s/late", (extents[0],))])
    audit(other.state)


def test_an_attached_chunk_goes_to_tier_two_as_it_is_unless_it_is_shared(opened: Opener, store: Store) -> None:
    container, other = opened(), opened()
    container.commit([CreateSegment(name) for name in ("s/a", "s/b")])
    shared = write_chunk(store, "s/shared", [[b"for a,"], [b"for b,"]])
    (own,) = write_chunk(store, "s/own", [[b"for a only,"]])
    container.append("s/a", b"inline,")
    container.commit([Append("s/a", (own,)), Append("s/a", (shared[0],)), Append("s/b", (shared[1],))])
    assert container.flush() == 7 + 11 + 12
    for process in (container, other, opened()):
        assert content(process, "s/a") == b"inline,for a only,for a,"
        assert content(process, "s/b") == b"for b,"
    assert "s/own" in chunks_of(container) and "s/shared" not in chunks_of(container)
    assert set(container.state.garbage) & {"s/own", "s/shared"} == {"s/shared"}
    assert {piece.path for piece in container.plan("s/a", 7, 18)} == {"s/own"}
    assert sorted(store.read(name) for name in set(chunks_in(store)) - {"s/shared"}) == [
        b"for a only,",
        b"for a,",
        b"for b,",
        b"inline,",
    ]
    with pytest.raises(Rejected, match="given up"):
        container.commit([Append("s/a", (shared[1],))])
    assert store.read("s/shared") == b"for a,for b,", "garbage outlives the readers that know it"
    audit(container.state)


def test_a_plan_is_carried_out_by_a_process_that_knows_the_stores_only(opened: Opener, store: Store) -> None:
    container = opened()
    container.create_segment("s/a")
    container.append("s/a", b"flushed")
    container.flush()
    container.append("s/a", b" and not")
    container.commit([Append("s/a", tuple(write_chunk(store, "s/chunk", [[b" and attached"]])))])
    pieces = pickle.loads(pickle.dumps(container.plan("s/a", 3, 25)))
    assert [piece.logged for piece in pieces] == [False, True, False]
    assert b"".join(fetch(Stores(store, store), pieces)) == b"shed and not and attac"
    for size in (3, 1000):
        room = bytearray(size)
        parts = fetch(Stores(store, store), pieces, room)
        assert b"".join(parts) == b"shed and not and attac"
        reused = size == 1000 and not store.remote
        assert [part.obj is room for part in parts] == [reused] * 3, "what does not fit is read elsewhere"


def test_appends_larger_than_a_frame(opened: Opener, store: Store) -> None:
    container = opened()
    container.commit([CreateSegment("s/a"), CreateSegment("s/b")])
    container.append("s/a", b"before")
    data = pattern(9 * MIB + 12345)
    frames = len(store.list("containers/0/wal/"))
    assert container.append("s/a", data) == 6
    assert len(store.list("containers/0/wal/")) == frames + 2
    assert container.append("s/a", b"after") == 6 + len(data)
    for process in (container, opened()):
        assert content(process, "s/a") == b"before" + data + b"after"
        for start, end in ((0, 10), (8 * MIB - 3, 8 * MIB + 40), (len(data) - 1, len(data) + 11), (MIB, 3 * MIB + 1)):
            assert process.read("s/a", start, end) == (b"before" + data + b"after")[start:end]
    assert container.flush() == len(data) + 11
    assert content(opened(), "s/a") == b"before" + data + b"after"


def test_who_holds_a_container_exclusively_goes_offline_when_overtaken(opened: Opener) -> None:
    primary = opened(exclusive=True)
    primary.create_segment("s/a")
    primary.append("s/a", b"1")
    other = opened()
    assert other.append("s/a", b"2") == 1
    with pytest.raises(NotPrimary, match="another process"):
        primary.append("s/a", b"3")
    assert primary.offline
    with pytest.raises(ContainerOffline):
        primary.append("s/a", b"3")
    with pytest.raises(NotPrimary):
        primary.refresh()
    primary.close()
    again = opened(exclusive=True)
    assert again.append("s/a", b"3") == 2
    with pytest.raises(NotPrimary):
        opened(exclusive=True)
        again.append("s/a", b"4")
    assert content(other, "s/a") == b"123"
    assert other.append("s/a", b"4") == 3, "who shares it goes on"


def test_a_primary_does_not_refuse_by_a_state_that_is_not_the_logs(opened: Opener) -> None:
    primary = opened(exclusive=True)
    opened().create_segment("s/a")
    with pytest.raises(NotPrimary):
        primary.append("s/a", b"")
    assert primary.offline


def test_a_closed_container_takes_nothing(opened: Opener) -> None:
    with opened() as container:
        container.create_segment("s/a")
        futures = [container.submit([append("s/a", b"%d" % number)]) for number in range(10)]
    assert [future.result().results for future in futures] == [[number] for number in range(10)]
    with pytest.raises(ContainerOffline, match="open it again"):
        container.append("s/a", b"")
    assert content(opened(), "s/a") == b"0123456789"


def test_many_threads_of_two_processes(opened: Opener) -> None:
    """Every event is there once, each thread's in its order, at the offset that its writer was told."""
    containers = [opened(upkeep=True, checkpoint_frames=3, flush_bytes=300), opened()]
    containers[0].create_segment("s/a")
    offsets: dict[bytes, int] = {}

    def work(writer: int) -> None:
        for number in range(12):
            event = b"<%d:%02d>" % (writer, number)
            offsets[event] = containers[writer % 2].append("s/a", event)

    threads = [threading.Thread(target=work, args=(writer,)) for writer in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(offsets) == 72
    data = content(opened(), "s/a")
    assert len(data) == 72 * 6
    assert all(data[offset : offset + 6] == event for event, offset in offsets.items())
    for writer in range(6):
        own = [offsets[b"<%d:%02d>" % (writer, number)] for number in range(12)]
        assert own == sorted(own)
    for container in containers:
        assert content(container, "s/a") == data
        audit(container.state)


def test_upkeep_is_set_off_by_appends(opened: Opener, store: Store) -> None:
    """Nobody asks for it, and still the root stays such that opening is quick and the data is in chunks."""
    container = opened(upkeep=True, checkpoint_frames=4, flush_bytes=1000)
    container.create_segment("s/a")
    for number in range(40):
        container.append("s/a", b"%03d," % number * 25)
    container.wait_for_upkeep()
    chunks = chunks_in(store)
    assert sum(len(store.read(name)) for name in chunks) >= 2000
    assert set(chunks_of(container)) <= set(chunks)
    assert set(container.refresh().chunks) <= {info.path for info in store.list("")}
    assert store.list("containers/0/checkpoints/")
    again = opened()
    assert_equal(again.state, container.refresh())
    assert content(again, "s/a") == b"".join(b"%03d," % number * 25 for number in range(40))


def test_checkpoints_shorten_the_way_to_the_state(opened: Opener, store: Store) -> None:
    container = opened()
    container.create_segment("s/a")
    for _ in range(20):
        container.append("s/a", b"x")
    container.checkpoint()
    container.append("s/a", b"y")
    counting = CountingStore(store)
    again = Container(Stores(counting, counting), 0, Settings(threaded=False, upkeep=False))
    frames = {path for request in counting.requests for path in request.paths if "/wal/" in path}
    assert len(frames) <= 8
    assert_equal(again.state, container.refresh())


def test_a_checkpoint_is_there_when_the_call_returns(opened: Opener, store: Store) -> None:
    container = opened()
    container.create_segment("s/a")
    for number in range(1, 31):
        container.checkpoint()
        assert len(store.list("containers/0/checkpoints/")) == number


@pytest.mark.parametrize("name", ["", "/s/a", "s//a", "s/../../a", "s/a\0", "s/\udcff", "s/" + 820 * "a"])
def test_names_that_chunks_cannot_have_are_refused_at_once(name: str) -> None:
    """Later nobody could flush the segment."""
    container = Simulation().open()
    with pytest.raises(ValueError, match="path"):
        container.create_segment(name)
    with pytest.raises(ValueError, match="path"):
        container.commit([CreateSegment("s/a"), CreateSegment(name)])
    assert not container.refresh().segments and not container.offline


def test_values_of_more_than_64_bits_are_refused() -> None:
    """They could not be written to the log, or not to a checkpoint."""
    container = Simulation().open()
    container.create_segment("s/a", [AttributeUpdate(W, UpdateKind.REPLACE, MAX_VALUE)])
    for update in (
        AttributeUpdate(W, UpdateKind.ACCUMULATE, 1),
        AttributeUpdate(W, UpdateKind.REPLACE, MAX_VALUE + 1),
        AttributeUpdate(W, UpdateKind.REPLACE, NULL_VALUE - 1),
    ):
        with pytest.raises(BadAttributeUpdate, match="64 bits"):
            container.update_attributes("s/a", [update])
    container.checkpoint()
    assert container.info("s/a").attributes[W] == MAX_VALUE


@pytest.fixture
def small() -> Iterator[None]:
    with small_sizes():
        yield


# --- tables ---------------------------------------------------------------------------------------------------


@pytest.fixture(params=["resident", "large"])
def tables_of_size(request: pytest.FixtureRequest) -> Iterator[str]:
    """Whether tables, those of the container's metadata included, are kept in memory whole."""
    with small_sizes() if request.param == "large" else contextlib.nullcontext():
        yield request.param


def entries_of(container: Container, table: str, prefix: str = "") -> dict[str, bytes | None]:
    """A table's entries as a scan shows them, each once."""
    found = list(container.scan_entries(table, prefix))
    assert len(dict(found)) == len(found), "an entry was met twice"
    assert all(container.entry(table, key) == entry for key, entry in found)
    return {key: entry.value for key, entry in found}


def test_versions_of_entries(opened: Opener, tables_of_size: str) -> None:
    container, other = opened(), opened()
    versions = container.put_entries("t", {"k": b"1", "l": b"2"})
    assert list(versions) == ["k", "l"] and versions["k"] < versions["l"]
    assert container.entry("t", "k") == (b"1", versions["k"])
    assert container.entry("t", "none") is None and container.entry("none", "k") is None
    for number, flushed in enumerate((False, True, True)):
        if flushed:
            container.flush()
        with pytest.raises(BadKeyVersion) as error:
            other.put_entries("t", {"k": b"x"}, {"k": versions["k"] - 1})
        assert (error.value.key, error.value.actual) == ("k", versions["k"])
        before = versions["k"]
        versions |= other.put_entries("t", {"k": b"new %d" % number}, {"k": versions["k"]})
        assert versions["k"] > before, "a version is never given twice"
        container.refresh()
        assert container.entries("t", ["k", "l", "none"]) == {
            "k": (b"new %d" % number, versions["k"]),
            "l": (b"2", versions["l"]),
            "none": None,
        }
    container.flush()
    assert opened().entry("t", "k") == (b"new 2", versions["k"])


def test_entries_that_must_be_absent(opened: Opener, tables_of_size: str) -> None:
    container, other = opened(), opened()
    container.put_entries("t", {"k": b"1"}, {"k": -1})
    for flushed in (False, True):
        if flushed:
            container.flush()
        for process in (container, other, opened()):
            with pytest.raises(BadKeyVersion):
                process.put_entries("t", {"k": b"2"}, {"k": -1})
            with pytest.raises(BadKeyVersion):
                process.put_entries("t", {"new": b"2"}, {"k": -1})
            process.put_entries("t", {"checked": b"2"}, {"none": -1, "other": -1})
    container.put_entries("t", {"k": None})
    assert other.refresh() and other.entry("t", "k") is None
    for flushed in (False, True):
        if flushed:
            container.flush()
        with pytest.raises(BadKeyVersion):
            container.put_entries("t", {"k": b"2"}, {"k": 1})
        other.put_entries("t", {"k": b"3"}, {"k": -1})
        other.put_entries("t", {"k": None})
    assert entries_of(opened(), "t") == {"checked": b"2"}


def test_batches_of_entries_are_all_or_nothing(opened: Opener, tables_of_size: str) -> None:
    container = opened()
    versions = container.put_entries("t", {"a": b"1", "b": b"2" * 60})
    container.flush()
    before = contents_of(container)
    batch = {"a": b"x", "new": b"x", "b": None}
    for expected in ({"a": versions["b"]}, {"new": 0}, {"b": -1}, {"a": versions["a"], "none": 1}, {"none": 0}):
        with pytest.raises(BadKeyVersion):
            container.put_entries("t", batch, expected)
        for process in (container, opened()):
            assert contents_of(process) == before
    container.put_entries("t", batch, {"a": versions["a"], "b": versions["b"], "new": -1, "none": -1})
    for process in (container, opened()):
        assert contents_of(process)[1] == {"t": {"a": b"x", "new": b"x"}}


@pytest.mark.parametrize(
    ("key", "value"), [("k" * 8193, b""), ("é" * 4097, b""), ("k", bytes(1 << 20))], ids=["key", "bytes", "value"]
)
def test_keys_and_values_that_are_too_long_are_refused_at_once(key: str, value: bytes) -> None:
    container = Simulation().open()
    with pytest.raises(ValueError, match="are possible at most"):
        container.put_entries("t", {"fits": b"", key: value})
    assert entries_of(container, "t") == {}


def test_scans_with_a_prefix(opened: Opener, tables_of_size: str) -> None:
    container = opened()
    expected = {}
    for number in range(6):
        changes = {f"{letter}/{number}": b"%d" % number * 9 for letter in "abé"}
        container.put_entries("t", {**changes, "a": None, "a/0": None if number == 4 else b"%d" % number})
        expected |= changes | {"a/0": b"%d" % number}
        if number % 2:
            container.flush()
    expected["a/0"] = b"5"
    for process in (container, opened()):
        for prefix in ("", "a", "a/", "a/0", "é", "b/5", "c", "a/00"):
            wanted = {key: value for key, value in expected.items() if key.startswith(prefix)}
            assert entries_of(process, "t", prefix) == wanted
        assert entries_of(process, "none") == {}


@pytest.mark.parametrize("polls", [1, 3], ids=["often", "now and then"])
def test_who_follows_the_changes_of_a_table_has_the_table(polls: int, tables_of_size: str) -> None:
    """Across flushes, merges of extents and compaction, each change is met in order, and none is missed."""
    simulation = Simulation()
    container, follower = simulation.open(), simulation.open()
    table: dict[str, bytes | None] = {}
    versions: dict[str, int] = {}
    position, lost = 0, 0
    for number in range(60):
        keys = [f"k{(number * 7 + i) % 20}" for i in range(5)]
        values = [None if (number + i) % 5 == 0 else b"%d" % number * 20 for i in range(5)]
        container.put_entries("t", dict(zip(keys, values, strict=True)))
        if number % 4 == 3:
            container.flush()
        if number % polls:
            continue
        follower.refresh()
        try:
            found = follower.changed_entries("t", position)
        except ChangesLost:
            table, versions, lost = {}, {}, lost + 1
            found = follower.changed_entries("t")
        assert [entry.version for _, entry in found.entries] == sorted(entry.version for _, entry in found.entries)
        for key, entry in found.entries:
            if entry.version > versions.get(key, -1):
                table[key], versions[key] = entry.value, entry.version
        position = found.position
        assert {key: value for key, value in table.items() if value is not None} == entries_of(follower, "t")
    layout = container.state.tables["t"].layout
    assert layout.start > 0, "the table was compacted"
    assert position > 0 and lost < 10
    with pytest.raises(ChangesLost):
        follower.changed_entries("t", 1)
    everything = follower.changed_entries("t").entries
    assert {key: entry.value for key, entry in everything if entry.value} == entries_of(follower, "t")
    assert container.changed_entries("none") == ((), 0)


def test_changes_that_are_flushed_come_no_more(opened: Opener) -> None:
    container = opened()
    container.put_entries("t", {"a": b"1", "b": b"2"})
    first = container.changed_entries("t")
    assert [key for key, _ in first.entries] == ["a", "b"] and first.position == 0
    container.flush()
    flushed = container.changed_entries("t", first.position)
    assert [key for key, _ in flushed.entries] == ["a", "b"] and flushed.position > 0
    assert container.changed_entries("t", flushed.position) == ((), flushed.position)
    container.put_entries("t", {"a": None, "c": b"3"})
    assert [(key, entry.value) for key, entry in container.changed_entries("t", flushed.position).entries] == [
        ("a", None),
        ("c", b"3"),
    ]
    container.flush()
    again = container.changed_entries("t", flushed.position)
    assert [(key, entry.value) for key, entry in again.entries] == [("a", None), ("c", b"3")]
    assert opened().changed_entries("t", again.position) == ((), again.position)


# --- attributes that do not fit into memory -------------------------------------------------------------------


def attribute(number: int) -> bytes:
    return number.to_bytes(16, "big")


def test_attributes_that_spilled_are_found_and_changed(opened: Opener, tables_of_size: str) -> None:
    container, other = opened(), opened()
    container.commit([CreateSegment("s/a"), CreateSegment("s/b")])
    own = storage_writer.CACHED_ATTRIBUTES
    count = own + 50
    updates = [AttributeUpdate(attribute(number), UpdateKind.REPLACE, number) for number in range(1, count)]
    container.update_attributes("s/a", [*updates, AttributeUpdate(EVENT_COUNT, UpdateKind.ACCUMULATE, 2)])
    container.update_attributes("s/b", [AttributeUpdate(attribute(1), UpdateKind.REPLACE, -1)])
    container.flush()
    expected = {attribute(number): number for number in range(1, count)} | {EVENT_COUNT: 2}
    assert container.info("s/a").spilled and set(container.info("s/a").attributes) == {CREATION_TIME, EVENT_COUNT}
    assert container.info("s/b").spilled == (own == 0)

    def check() -> None:
        for process in (container, other, opened()):
            found = process.attributes("s/a")
            assert found.pop(CREATION_TIME) > 0
            assert found == expected
            asked = [attribute(number) for number in (1, 2, 3, 4, 5, count)] + [EVENT_COUNT]
            assert process.attributes("s/a", asked) == {key: expected[key] for key in asked if key in expected}
            assert process.attributes("s/b", [attribute(1), attribute(2)]) == {attribute(1): -1}
            with pytest.raises(SegmentNotFound):
                process.attributes("s/none")

    check()
    for number, update in enumerate(
        (
            AttributeUpdate(attribute(1), UpdateKind.REPLACE_IF_EQUALS, 11, 1),
            AttributeUpdate(attribute(2), UpdateKind.ACCUMULATE, 20),
            AttributeUpdate(attribute(3), UpdateKind.REPLACE, NULL_VALUE),
            AttributeUpdate(attribute(4), UpdateKind.REPLACE_IF_GREATER, 44),
        ),
        start=1,
    ):
        (container, other)[number % 2].append("s/a", b"x", None, [update])
        expected[attribute(number)] = 11 * number
    del expected[attribute(3)]
    check()
    for update in (
        AttributeUpdate(attribute(1), UpdateKind.NONE, 0),
        AttributeUpdate(attribute(5), UpdateKind.REPLACE_IF_GREATER, 5),
        AttributeUpdate(attribute(3), UpdateKind.REPLACE_IF_EQUALS, 0, 3),
    ):
        with pytest.raises(BadAttributeUpdate):
            other.update_attributes("s/a", [update])
    container.flush()
    check()
    other.update_attributes("s/a", [AttributeUpdate(attribute(3), UpdateKind.NONE, 7)])
    expected[attribute(3)] = 7
    check()
    assert content(opened(), "s/a") == b"xxxx"


@pytest.mark.usefixtures("small")
def test_what_a_deleted_segment_left_in_the_table_of_attributes_is_removed() -> None:
    simulation = Simulation(garbage_delay=100.0)
    container = simulation.open()
    for name in ("s/a", "s/b"):
        container.create_segment(name, [AttributeUpdate(attribute(n), UpdateKind.REPLACE, n) for n in (1, 2)])
    container.flush()
    assert len(entries_of(container, ATTRIBUTES)) == 4
    container.delete("s/a")
    simulation.advance(101)
    container.collect_garbage()
    prefix = attribute_key(container.info("s/b").id, b"")
    assert set(entries_of(container, ATTRIBUTES)) == set(entries_of(container, ATTRIBUTES, prefix))
    assert container.attributes("s/b", [attribute(1), attribute(2)]) == {attribute(1): 1, attribute(2): 2}
    assert not any(garbage.kind == ATTRIBUTES_GARBAGE for garbage in container.state.garbage.values())


# --- many segments --------------------------------------------------------------------------------------------


def test_many_segments_are_looked_up_and_deleted_together(opened: Opener, tables_of_size: str) -> None:
    """Most of them are not active."""
    container = opened(active_segments=4)
    names = [f"s/{number}" for number in range(30)]
    container.commit([operation for name in names for operation in (CreateSegment(name), append(name, name.encode()))])
    container.flush()
    assert len(container.state.segments) <= 4
    for process in (container, opened()):
        infos = process.infos([*names, "s/none"])
        assert list(infos) == [*names, "s/none"] and infos["s/none"] is None
        assert [info and (info.name, info.length) for info in infos.values()] == [
            *((name, len(name)) for name in names),
            None,
        ]
        assert [content(process, name) for name in names] == [name.encode() for name in names]
        assert len(process.state.segments) <= 4, "looking is no use of it"
    before = contents_of(container)
    with pytest.raises(SegmentNotFound, match="s/none"):
        container.delete("s/1", "s/2", "s/none", "s/3")
    with pytest.raises(SegmentExists):
        container.create_segment("s/7")
    assert contents_of(container) == before
    container.delete(*names[:20])
    container.append("s/25", b"more", 4)
    container.create_segment("s/3")
    for flushed in (False, True):
        if flushed:
            container.flush()
        for process in (container, opened()):
            infos = process.infos(names)
            assert {name for name, info in infos.items() if info is not None} == {"s/3", *names[20:]}
            assert content(process, "s/25") == b"s/25more" and content(process, "s/3") == b""
    audit(container.refresh())


# --- merges with a header (PDP-43) ----------------------------------------------------------------------------


@pytest.mark.parametrize("flushed", ["", "source", "target", "both"])
def test_a_merge_puts_the_header_before_the_content(opened: Opener, flushed: str, tables_of_size: str) -> None:
    container, other = opened(), opened()
    count = AttributeUpdate(EVENT_COUNT, UpdateKind.ACCUMULATE, 1)
    container.commit([CreateSegment("s/a", (count,)), CreateSegment("s/b", (count,)), CreateSegment("s/empty")])
    container.commit([append("s/a", b"before,") if flushed in ("target", "both") else append("s/b", b"large ")])
    container.commit([append("s/b", b"large ") if flushed in ("source", "both") else append("s/a", b"before,")])
    if flushed:
        container.flush()
    container.append("s/b", pattern(700))
    container.seal("s/b")
    with pytest.raises(SegmentNotFound):
        container.merge("s/a", "s/none", b"<header>")
    length, expected = container.info("s/a").length, content(container, "s/a") + b"<header>" + content(container, "s/b")
    assert other.merge("s/a", "s/b", b"<header>") == length
    assert other.append("s/a", b",after") == len(expected)
    expected += b",after"
    for flush in (False, True, True):
        if flush:
            container.flush()
        for process in (container, other, opened()):
            assert content(process, "s/a") == expected
            assert process.read("s/a", length + 3, length + 20) == expected[length + 3 : length + 20]
            assert process.attributes("s/a", [EVENT_COUNT]) == {EVENT_COUNT: 2}
            with pytest.raises(SegmentNotFound):
                process.info("s/b")
    container.seal("s/empty")
    assert container.merge("s/a", "s/empty", memoryview(b"alone")) == len(expected)
    assert content(opened(), "s/a") == expected + b"alone"
    audit(container.refresh())


@pytest.mark.usefixtures("small")
def test_a_header_larger_than_a_frame() -> None:
    simulation = Simulation()
    container = simulation.open()
    container.commit([CreateSegment("s/a"), CreateSegment("s/b"), append("s/b", b"content"), SealSegment("s/b")])
    container.merge("s/a", "s/b", pattern(3 * MAX_PAYLOAD))
    for _ in range(2):
        assert content(simulation.open(), "s/a") == pattern(3 * MAX_PAYLOAD) + b"content"
        container.flush()


@pytest.mark.usefixtures("small")
def test_a_header_is_there_once_after_a_lost_race() -> None:
    simulation = Simulation()
    other = simulation.open()
    other.commit([CreateSegment("s/a"), CreateSegment("s/b"), append("s/b", b"content"), SealSegment("s/b")])

    def overtake(number: int, request: Request) -> None:
        if number == 1:
            other.append("s/a", b"first,")

    container = simulation.open(through=FaultStore(simulation.store, overtake, verbs={"put_if_absent"}))
    assert container.merge("s/a", "s/b", b"<header>") == 6
    assert content(other, "s/a") == content(simulation.open(), "s/a") == b"first,<header>content"


# --- what requests it costs -----------------------------------------------------------------------------------


def counted(**settings: Any) -> tuple[Simulation, CountingStore, Container]:
    simulation = Simulation(**settings)
    counting = CountingStore(simulation.store)
    container = simulation.open(through=counting)
    container.create_segment("s/a")
    counting.reset()
    return simulation, counting, container


def test_an_append_is_one_put() -> None:
    _, counting, container = counted()
    for number in range(1, 11):
        container.append("s/a", b"x")
        assert counting.counts == {"put_if_absent": number}
    container.commit([CreateSegment("s/b"), append("s/b", b"1"), PutEntry("t", "k", b""), append("s/a", b"2")])
    assert counting.counts == {"put_if_absent": 11}


def test_an_idle_refresh_is_one_read() -> None:
    _, counting, container = counted()
    for number in range(1, 6):
        container.refresh()
        container.info("s/a")
        assert counting.counts == {"read_ranges": 2 * number}
    assert counting.bytes_read == counting.bytes_written == 0


def test_reading_what_is_known_is_one_request() -> None:
    _, counting, container = counted()
    for _ in range(5):
        container.append("s/a", b"x" * 100)
    container.flush()
    counting.reset()
    container.read("s/a", 0, 500)
    assert counting.counts == {"read_ranges": 1}


def test_a_refusal_is_one_read() -> None:
    _, counting, container = counted()
    with pytest.raises(BadOffset):
        container.append("s/a", b"x", offset=7)
    assert counting.counts == {"read_ranges": 1}


def test_being_overtaken_costs_a_put_and_a_read() -> None:
    simulation, counting, container = counted()
    simulation.open().append("s/a", b"x")
    assert container.append("s/a", b"y") == 1
    assert counting.counts == {"put_if_absent": 2, "read_ranges": 1}


def test_a_checkpoint_every_few_frames() -> None:
    _, counting, container = counted(upkeep=True, checkpoint_frames=8)
    for _ in range(80):
        container.append("s/a", b"x")
    assert counting.count("put_if_absent", "containers/0/wal/") == 80
    assert 9 <= counting.count("put_if_absent", "containers/0/checkpoints/") <= 10
    assert counting.count() == counting.count("put_if_absent")


def test_opening_an_empty_root_writes_nothing() -> None:
    simulation = Simulation()
    counting = CountingStore(simulation.store)
    simulation.open(through=counting)
    assert not {*WRITES} & {*counting.counts}
    assert counting.count() <= 4


def test_operations_that_are_submitted_together_leave_together() -> None:
    """While a frame is on its way, what is submitted waits for the next one (group commit)."""
    simulation = Simulation()
    counting = CountingStore(LatencyStore(simulation.store, 0.02))
    with Container(Stores(counting, counting), 0, Settings(upkeep=False, linger=0.01)) as container:
        container.create_segment("s/a")
        counting.reset()
        futures = [container.submit([append("s/a", b"%03d" % number)]) for number in range(300)]
        assert [future.result().results for future in futures] == [[3 * number] for number in range(300)]
        assert counting.count("put_if_absent") < 60
        assert content(container, "s/a") == b"".join(b"%03d" % number for number in range(300))


def under_way(container: Container) -> Future[Any]:
    """An append to s/a whose frame is on its way by now."""
    future = container.submit([append("s/a", b"")])
    while not container._processor.log.flights:
        time.sleep(0.001)
    return future


def test_plain_appends_that_leave_together_are_one_operation() -> None:
    """Each gets its own offset, in the order of submission; the state and the frame get one extent for all of them."""
    store = LatencyStore(Simulation().store, 0.02)
    with Container(Stores(store, store), 0, Settings(upkeep=False)) as container:
        container.commit([CreateSegment("s/a"), CreateSegment("s/b")])
        first = under_way(container)
        sizes = [0, 3, 70_000, 1, 0, MIB, 5]
        futures = []
        for number, size in enumerate(sizes):
            futures.append(container.submit([append("s/a", bytes([number]) * size)]))
            futures.append(container.submit([append("s/b", bytes([number]))]))
        conditional = container.submit([append("s/a", b"behind them", sum(sizes))])
        futures.append(container.submit([append("s/a", b"last")]))
        assert first.result().address + 1 == conditional.result().address
        offsets = [future.result().results for future in futures]
        assert offsets[0:-1:2] == [[sum(sizes[:number])] for number in range(len(sizes))]
        assert offsets[1:-1:2] == [[number] for number in range(len(sizes))]
        assert offsets[-1] == [sum(sizes) + 11]
        whole = b"".join(bytes([number]) * size for number, size in enumerate(sizes))
        assert content(container, "s/a") == whole + b"behind them" + b"last"
        assert len(container.info("s/a").extents) == 3
        assert len(container.info("s/b").extents) == 1
    with Container(Stores(store, store), 0, Settings(upkeep=False)) as reopened:
        assert content(reopened, "s/a") == whole + b"behind them" + b"last"


def test_the_next_frame_leaves_before_anybody_is_told_of_the_last_one() -> None:
    """Who is told goes on working, and takes the time that the processor would need to send."""
    store = LatencyStore(Simulation().store, 0.05)
    with Container(Stores(store, store), 0, Settings(upkeep=False, linger=10)) as container:
        container.create_segment("s/a")
        address = container.head.address
        flying: list[int] = []
        first = under_way(container)
        first.add_done_callback(lambda _: flying.append(len(container._processor.log.flights)))
        second = container.submit([append("s/a", b"second")])
        assert first.result().address == address + 1
        assert second.result().address == address + 2
        assert flying == [1]


def test_what_was_submitted_stays_as_it_was() -> None:
    """A large payload is written piece by piece, maybe twice at one address (W2): the caller's memory is his own."""
    store = LatencyStore(Simulation().store, 0.05)
    with Container(Stores(store, store), 0, Settings(upkeep=False)) as container:
        container.create_segment("s/a")
        data = bytearray(b"a" * (1 << 20))
        future = container.submit_append("s/a", data)
        data[:] = b"b" * len(data)
        future.result()
        assert container.read("s/a", 0, len(data)) == b"a" * len(data)


def test_what_is_refused_is_not_written() -> None:
    """Though it was queued, validated and laid out together with what is accepted."""
    counting = CountingStore(LatencyStore(Simulation().store, 0.02))
    with Container(Stores(counting, counting), 0, Settings(upkeep=False)) as container:
        container.create_segment("s/a")
        counting.reset()
        futures = [
            container.submit([append("s/a", b"%04d" % number * 2000, offset=-1 if number % 5 else None)])
            for number in range(100)
        ]
        for number, future in enumerate(futures):
            if number % 5:
                assert isinstance(future.exception(), BadOffset)
            else:
                assert future.result().results == [number // 5 * 8000]
        assert counting.bytes_written < 1.5 * 20 * 8000
        assert content(container, "s/a") == b"".join(b"%04d" % number * 2000 for number in range(0, 100, 5))


# --- appends that span frames (W4) ----------------------------------------------------------------------------


def spanning(simulation: Simulation, plan: Callable[[int, Request], Any]) -> Container:
    """A process with several frames in flight, whose puts of frames are subject to `plan`."""
    through = FaultStore(simulation.store, plan, verbs={"put_if_absent"})
    return simulation.open(through=through, executor=SimulatedExecutor(3))


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("piece", range(1, 6))
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_between_pieces_leaves_nothing(piece: int, when: Any) -> None:
    simulation = Simulation()
    simulation.open().commit([CreateSegment("s/a"), CreateSegment("s/b"), append("s/a", b"before")])
    crashing = spanning(simulation, crash_at(piece, when))
    operations = [append("s/a", pattern(4 * MAX_PAYLOAD)), append("s/b", b"short"), PutEntry("t", "k", b"v")]
    with pytest.raises(Crashed):
        crashing.commit(operations)
    reopened = simulation.open()
    done = content(reopened, "s/b") == b"short"
    assert content(reopened, "s/a") == b"before" + (pattern(4 * MAX_PAYLOAD) if done else b"")
    assert (reopened.state.entry("t", "k") is not None) == done
    if not done:
        assert reopened.append("s/a", b"after") == 6
        reopened.commit(operations)
        assert content(simulation.open(), "s/a") == b"beforeafter" + pattern(4 * MAX_PAYLOAD)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("piece", range(1, 6))
def test_another_writer_between_pieces_voids_them_and_the_payload_goes_to_a_chunk(piece: int) -> None:
    simulation = Simulation()
    other = simulation.open()
    other.commit([CreateSegment("s/a"), CreateSegment("s/b")])

    def overtake(number: int, request: Request) -> None:
        if number == piece:
            other.append("s/a", b"first")

    container = spanning(simulation, overtake)
    data = pattern(4 * MAX_PAYLOAD)
    receipt = container.commit([append("s/a", data), append("s/b", b""), append("s/b", data[::-1])])
    assert receipt.results == [5, 0, 0]
    for process in (container, other, simulation.open()):
        assert content(process, "s/a") == b"first" + data
        assert content(process, "s/b") == data[::-1]
        audit(process.state)
    chunks = chunks_in(simulation.store)
    assert len(chunks) == 1
    assert simulation.store.read(chunks[0]) == data + data[::-1]
    assert dict(other.state.chunks) == {chunks[0]: 2}


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("storage_fails", [False, True])
def test_a_large_append_that_is_refused_in_the_end_leaves_no_chunk(storage_fails: bool) -> None:
    """Nor does it keep anybody waiting when the storage is not there to delete the chunk."""
    simulation = Simulation()
    other = simulation.open()
    other.create_segment("s/a")

    def overtake(number: int, request: Request) -> Fault | None:
        if request.verb == "put":  # the chunk, after a race was lost
            other.seal("s/a")
        if request.verb == "delete" and storage_fails:
            return Fault("before")
        if number == 2:
            other.append("s/a", b"first")
        return None

    through = FaultStore(simulation.store, overtake, verbs={"put", "put_if_absent", "delete"})
    container = simulation.open(through=through, executor=SimulatedExecutor(3))
    with pytest.raises(SegmentSealed):
        container.append("s/a", pattern(3 * MAX_PAYLOAD))
    assert len(chunks_in(simulation.store)) == storage_fails
    assert content(simulation.open(), "s/a") == b"first"


@pytest.mark.usefixtures("small")
def test_large_derived_content_is_made_anew_after_a_lost_race() -> None:
    """It depends on the state, so it cannot go to a chunk beforehand."""
    simulation = Simulation()
    other = simulation.open()
    other.commit([CreateSegment("s/a"), CreateSegment("s/b")])

    def overtake(number: int, request: Request) -> None:
        if number == 2:
            other.append("s/a", b"first")

    container = spanning(simulation, overtake)
    derived = Derived(4 * MAX_PAYLOAD, lambda lookup: b"%d," % lookup("s/a").length * MAX_PAYLOAD)
    container.commit([Append("s/b", derived)])
    assert content(other, "s/b") == b"5," * MAX_PAYLOAD


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("lost", range(1, 5))
def test_pieces_behind_a_lost_one_never_come_to_life(lost: int) -> None:
    """They name it as their predecessor, by writer and address. The next frame there must be another writer's."""
    simulation = Simulation(patience=1.0)
    simulation.open().create_segment("s/a")
    path: list[str] = []

    def lose(number: int, request: Request) -> Fault | None:
        if number == lost:
            path.append(request.paths[0])
        return Fault("before") if request.paths[0] in path else None

    container = spanning(simulation, lose)
    with pytest.raises(OutcomeUnknown):
        container.append("s/a", pattern(4 * MAX_PAYLOAD))
    path.clear()
    for number in range(8):
        assert container.append("s/a", b"%d" % number) == number
    assert content(container, "s/a") == content(simulation.open(), "s/a") == b"01234567"


@pytest.mark.usefixtures("small")
def test_a_large_append_is_refused_before_its_pieces_are_sent() -> None:
    _, counting, container = counted()
    with pytest.raises(BadOffset):
        container.append("s/a", pattern(5 * MAX_PAYLOAD), offset=1)
    assert counting.counts == {"read_ranges": 1}


# --- objects that move or vanish under a reader ---------------------------------------------------------------


def moved(simulation: Simulation) -> Container:
    """A process that read the log some time ago; since then all was flushed, and the frames were deleted."""
    writer = simulation.open()
    writer.create_segment("s/a")
    for number in range(5):
        writer.append("s/a", b"%d" % number * 10)
    reader = simulation.open()
    writer.flush()
    writer.checkpoint()
    simulation.advance(700)
    assert writer.truncate_log() > 5
    assert len(simulation.store.list("containers/0/wal/")) == 1
    return reader


def test_a_reader_whose_objects_have_moved_looks_the_range_up_again() -> None:
    simulation = Simulation()
    reader = moved(simulation)
    pieces = reader.plan("s/a", 5, 45)
    with pytest.raises(ObjectNotFound):
        fetch(reader.stores, pieces)
    assert reader.read("s/a", 5, 45) == b"0000011111111112222222222333333333344444"
    assert all(not piece.logged for piece in reader.plan("s/a", 5, 45))


def test_a_reader_whose_data_was_truncated_or_deleted_is_told() -> None:
    simulation = Simulation()
    reader = moved(simulation)
    simulation.open().truncate("s/a", 7)
    with pytest.raises(SegmentTruncated) as error:
        reader.read("s/a", 5, 45)
    assert error.value.start_offset == 7
    reader = moved(other := Simulation())
    other.open().delete("s/a")
    with pytest.raises(SegmentNotFound):
        reader.read("s/a", 5, 45)


def test_a_writer_that_slept_starts_over() -> None:
    """Its frame would land at an address whose frames were deleted: nobody would ever see it (W7)."""
    simulation = Simulation()
    sleeper = moved(simulation)
    assert sleeper.append("s/a", b"awake") == 50
    assert content(simulation.open(), "s/a")[50:] == b"awake"
    assert content(sleeper, "s/a")[50:] == b"awake"


def test_a_sleeper_does_not_think_the_log_ended_where_it_was_deleted() -> None:
    simulation = Simulation()
    sleeper = moved(simulation)
    simulation.open().append("s/a", b"new")
    assert sleeper.info("s/a").length == 53


def test_a_primary_that_slept_is_not_the_primary_any_more() -> None:
    simulation = Simulation()
    primary = simulation.open(exclusive=True)
    moved(simulation)
    with pytest.raises(NotPrimary):
        primary.refresh()
    assert primary.offline


def test_garbage_is_deleted_after_the_delay_and_a_later_cycle_and_only_then() -> None:
    """The first flush marks what was deleted; its backup is good until the second one is complete (F2)."""
    simulation = Simulation(garbage_delay=1000.0)
    container, other = simulation.open(), simulation.open()
    for name in ("s/a", "s/b"):
        container.create_segment(name)
        container.append(name, name.encode())
    container.flush()
    container.delete("s/a")
    doomed, kept = chunks_in(simulation.store)
    assert doomed.startswith("s/a.")

    def is_kept() -> bool:
        other.collect_garbage()
        return chunks_in(simulation.store) == [doomed, kept]

    simulation.advance(2000)
    assert is_kept(), "tier 2 knows it still"
    container.flush()
    assert is_kept()
    simulation.advance(2000)
    assert is_kept(), "the last backup names it"
    container.flush()
    assert is_kept(), "only now its chunks are looked for"
    assert chunks_of(other) == [kept]
    container.flush()
    simulation.advance(999)
    assert is_kept(), "a reader may be at it"
    simulation.advance(2)
    assert other.collect_garbage() > 0
    assert chunks_in(simulation.store) == [kept]
    assert container.collect_garbage() == 0
    assert content(container, "s/b") == b"s/b"


def test_an_attached_chunk_that_was_let_go_is_deleted_after_the_delay() -> None:
    simulation = Simulation(garbage_delay=1000.0)
    container = simulation.open()
    container.create_segment("s/a")
    container.flush()
    container.commit([Append("s/a", tuple(write_chunk(simulation.store, "s/chunk", [[b"1"], [b"2"]])))])
    container.truncate("s/a", 1)
    simulation.advance(1001)
    container.flush()
    container.collect_garbage()
    assert "s/chunk" in chunks_in(simulation.store), "it was copied just now"
    container.flush()
    simulation.advance(999)
    container.collect_garbage()
    assert "s/chunk" in chunks_in(simulation.store)
    simulation.advance(2)
    container.collect_garbage()
    assert chunks_in(simulation.store) == chunks_of(container) != []
    assert content(simulation.open(), "s/a") == b"2"


def test_the_log_keeps_what_is_not_flushed_even_below_a_boundary() -> None:
    """Also where a merge has put older frames behind younger ones."""
    simulation = Simulation()
    container = simulation.open()
    container.commit([CreateSegment("s/old"), CreateSegment("s/young")])
    container.append("s/old", b"old")
    container.append("s/young", b"young")
    container.seal("s/old")
    container.merge("s/young", "s/old")
    for _ in range(2):
        container.checkpoint()
        simulation.advance(700)
        container.truncate_log()
    assert content(simulation.open(), "s/young") == b"youngold"
    container.flush()
    container.checkpoint()
    simulation.advance(700)
    assert container.truncate_log() > 0
    assert len(simulation.store.list("containers/0/wal/")) == 1
    assert content(simulation.open(), "s/young") == b"youngold"


def test_the_log_is_not_truncated_before_its_boundary_is_old_by_the_stores_clock() -> None:
    simulation = Simulation()
    container = simulation.open()
    container.create_segment("s/a")
    container.checkpoint()
    simulation.store.now += 599
    assert container.truncate_log() == 0
    simulation.store.now += 2
    assert container.truncate_log() == 1


def test_of_two_who_flush_the_same_one_has_nothing_to_do() -> None:
    simulation = Simulation()
    one = simulation.open()
    one.commit([CreateSegment("s/a"), CreateSegment("s/b"), append("s/a", b"a"), append("s/b", b"b")])

    def meanwhile(number: int, request: Request) -> None:
        if number == 1:
            one.append("s/b", b"more")
            assert one.flush() == 6

    two = simulation.open(through=FaultStore(simulation.store, meanwhile, verbs={"put"}))
    assert two.flush() == 0
    assert set(chunks_of(one)) < set(chunks_in(simulation.store))
    for process in (one, two, simulation.open()):
        assert content(process, "s/a") + content(process, "s/b") == b"abmore"
        assert process.state.cycle.complete


@pytest.mark.parametrize("meanwhile", ["flush", "truncate"])
def test_the_loser_of_a_race_deletes_its_chunks(meanwhile: str) -> None:
    simulation = Simulation(garbage_delay=100.0)
    one = simulation.open()
    one.commit([CreateSegment("s/a"), append("s/a", b"12345")])

    def overtake(number: int, request: Request) -> None:
        if number == 1:
            one.flush() if meanwhile == "flush" else one.truncate("s/a", 3)

    two = simulation.open(through=FaultStore(simulation.store, overtake, verbs={"put"}))
    two.flush()
    for _ in range(3):
        simulation.advance(101)
        one.flush()
        one.collect_garbage()
    assert chunks_in(simulation.store) == chunks_of(one)
    assert content(one, "s/a") == (b"12345" if meanwhile == "flush" else b"45")


@pytest.mark.parametrize("what", ["merge", "delete", "truncate"])
def test_a_backup_is_what_the_container_was_when_its_cycle_began(what: str) -> None:
    """Or what it was at the beginning of a later one, which then is the one that is complete."""
    simulation = Simulation()
    other = simulation.open()
    for name in ("s/a", "s/b"):
        other.commit([CreateSegment(name), append(name, b"flushed")])
    other.seal("s/b")
    other.flush()
    other.commit([append("s/a", b",more"), PutEntry("t", "k", b"v")])
    before = contents_of(other)
    acts: dict[str, Callable[[], object]] = {
        "merge": lambda: other.merge("s/a", "s/b"),
        "delete": lambda: other.delete("s/b"),
        "truncate": lambda: (other.append("s/a", b",and more"), other.truncate("s/a", 15)),
    }

    def meanwhile(number: int, request: Request) -> None:
        if number == 2:  # the segments are in tier 2; now the tables
            assert request.paths[0].startswith("_system/")
            acts[what]()

    simulation.open(through=FaultStore(simulation.store, meanwhile, verbs={"put"})).flush()
    after = contents_of(other)
    assert after != before
    simulation.store.delete([info.path for info in simulation.store.list("containers/")])
    recover(Stores(simulation.store, simulation.store), 0)
    assert contents_of(simulation.open()) in (before, after)


def test_what_is_truncated_or_deleted_while_it_is_flushed() -> None:
    simulation = Simulation()
    other = simulation.open()
    other.commit([CreateSegment("s/a"), CreateSegment("s/b"), append("s/b", b"b")])
    for _ in range(3):
        other.append("s/a", b"12345")

    def meanwhile(number: int, request: Request) -> None:
        if number == 1:
            other.truncate("s/a", 7)
            other.delete("s/b")

    two = simulation.open(through=FaultStore(simulation.store, meanwhile, verbs={"put"}))
    assert two.flush() >= 8
    assert two.refresh().cycle.complete and not two.state.unsaved
    assert content(other, "s/a") == content(simulation.open(), "s/a") == b"34512345"
    assert b"".join(simulation.store.read(path) for path in chunks_of(two)) == b"34512345"


# --- storage that fails ---------------------------------------------------------------------------------------


def test_when_the_storage_is_silent_for_too_long_the_caller_is_told_and_the_container_goes_on() -> None:
    simulation = Simulation()
    container = simulation.open(patience=5.0)
    container.create_segment("s/a")
    simulation.store.fail_before = 1.0
    with pytest.raises(OutcomeUnknown, match=r"wal/0{19}1: the storage gave no answer"):
        container.append("s/a", b"unknown")
    with pytest.raises(StorageError):
        container.refresh()
    simulation.store.fail_before = 0.0
    assert not container.offline
    assert container.append("s/a", b"known") == 0
    assert content(simulation.open(), "s/a") == b"known"


@pytest.mark.parametrize("seed", range(30))
def test_on_bad_storage_every_append_is_there_once_or_was_reported(seed: int) -> None:
    """Requests get lost, responses get lost, and lost requests arrive late, for two processes at once."""
    simulation = Simulation(seed, patience=2.0)
    simulation.open().create_segment("s/a")
    containers = [simulation.open(), simulation.open()]
    store = simulation.store
    store.fail_before = store.fail_after = store.conflict = store.late = 0.15
    acknowledged: dict[int, bytes] = {}
    unknown, refused = set(), set()
    for number in range(60):
        event, container = b"<%02d>" % number, containers[number % 2]
        try:
            acknowledged[container.append("s/a", event)] = event
        except OutcomeUnknown:
            unknown.add(event)
        except StorageError:
            refused.add(event)
        with contextlib.suppress(OutcomeUnknown, StorageError):
            if number % 10 == 0:
                container.flush()
            elif number % 10 == 5:
                container.checkpoint()
    store.fail_before = store.fail_after = store.conflict = store.late = 0.0
    store.arrive()
    data = content(simulation.open(), "s/a")
    found = Counter(data[start : start + 4] for start in range(0, len(data), 4))
    assert set(found.values()) == {1}
    assert all(data[offset : offset + 4] == event for offset, event in acknowledged.items())
    assert not refused & set(found)
    assert set(found) <= {*acknowledged.values(), *unknown}
    assert len(acknowledged) > 30
    for container in containers:
        assert content(container, "s/a") == data
        audit(container.state)


def test_what_a_container_does_is_measured(opened: Opener) -> None:
    def measured() -> Counter[tuple[str, str]]:
        found: Counter[tuple[str, str]] = Counter()
        for family in default_metrics().registry.collect():
            for sample in family.samples:
                if sample.name.endswith(("seconds_count", "bytes_total", "failures_total")):
                    found[sample.name.removeprefix("pravega_"), sample.labels["operation"]] += int(sample.value)
        return found

    container = opened()
    container.create_segment("s/a")
    before = measured()
    container.append("s/a", b"123")
    container.flush()
    assert container.read("s/a", 0, 3) == b"123"
    with pytest.raises(Rejected):
        container.append("s/b", b"123")
    gained = measured() - before
    assert gained["container_bytes_total", "commit"] == gained["container_bytes_total", "flush"] == 3
    assert gained["container_bytes_total", "read"] == 3
    assert gained["container_failures_total", "commit"] == 1
    assert gained["log_seconds_count", "put_frame"] >= 2
    assert gained["log_bytes_total", "put_frame"] > 200
