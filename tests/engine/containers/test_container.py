"""A container on every storage: segments in the log and in LTS, one or many processes."""

import pickle
import struct
import threading
from collections import Counter
from collections.abc import Callable

import pytest

from chunkstore import Store
from chunkstore.metrics import default_metrics
from chunkstore.testing import CountingStore
from engine.containers.container import Container
from engine.errors import (
    BadAttributeUpdate,
    BadOffset,
    ContainerOffline,
    InvalidOperation,
    NotPrimary,
    Rejected,
    SegmentExists,
    SegmentNotFound,
    SegmentNotSealed,
    SegmentSealed,
    SegmentTruncated,
)
from engine.settings import Settings
from engine.state.index_records import RECORD_SIZE, THIS_APPEND, IndexRecords
from engine.state.operations import (
    Append,
    AttributeUpdate,
    CreateSegment,
    DeleteSegment,
    Operation,
    PutEntry,
    SealSegment,
    UpdateAttributes,
    UpdateKind,
)
from engine.state.segments import CREATION_TIME, MAX_VALUE, NULL_VALUE
from engine.state.state import State
from engine.storage.chunk_writer import write_chunk
from engine.storage.object_reads import Stores, fetch
from tests.engine.containers.segments import (
    MIB,
    RARE,
    S3,
    USUAL,
    Opener,
    append,
    chunks_in,
    chunks_of,
    content,
    pattern,
)
from tests.support.container_model import contents_of
from tests.support.simulation import BEHIND, Simulation, audit

W = bytes(15) + b"w"


def assert_equal(left: State, right: State) -> None:
    for field in State._fields:
        assert getattr(left, field) == getattr(right, field), field


# --- on every storage ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", [*USUAL, *RARE, pytest.param(S3, marks=pytest.mark.server)])  # on all, always
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
    with pytest.raises(SegmentSealed):
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
    frames = len(store.list("_system/containers/0/wal/"))
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
    assert len(store.list("_system/containers/0/wal/")) == frames, "a refusal leaves no trace"


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


def test_index_records_are_made_from_the_state_that_it_is_appended_to(opened: Opener) -> None:
    one, two = opened(), opened()
    one.commit([CreateSegment("s/a"), CreateSegment("s/a#index")])
    index = IndexRecords("s/a", bytes(RECORD_SIZE))
    for number in range(4):
        (one, two)[number % 2].commit([append("s/a", bytes(number)), Append("s/a#index", index)])
    expected = b"".join(struct.pack(">4q", length, 0, 0, 0) for length in (0, 1, 3, 6))
    assert content(one, "s/a#index") == content(two, "s/a#index") == expected


def test_the_numbers_of_appends_are_in_the_order_of_the_log(opened: Opener) -> None:
    """Whatever their segments, whoever appends, and also among those of one frame."""
    one, two = opened(), opened()
    names = ("s/a", "s/b")
    one.commit([CreateSegment(name + suffix) for name in names for suffix in ("", "#index")])
    index = struct.pack(">4q", 1, 1, 0, THIS_APPEND)
    told: list[int] = []
    for container in (one, two, one):
        appends = [
            [
                Append(f"{names[number % 2]}#index", IndexRecords(names[number % 2], index)),
                append(names[number % 2], b"x"),
            ]
            for number in range(40)
        ]
        receipts = [future.result() for future in [container.submit(operations) for operations in appends]]
        told += [receipt.address for receipt in receipts]
    assert len(set(told)) < len(told) or not one.settings.threaded, "several came in one frame"
    numbers = [[record[3] for record in struct.iter_unpack(">4q", content(two, f"{name}#index"))] for name in names]
    together = [number for pair in zip(*numbers, strict=True) for number in pair]
    assert len(together) == 120 and together == sorted(set(together))


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
    with pytest.raises(Rejected, match="is garbage"):
        container.commit([CreateSegment("s/late"), Append("s/late", (extents[0],))])
    audit(other.state)


def test_an_attached_chunk_goes_to_long_term_storage_as_it_is_unless_it_is_shared(opened: Opener, store: Store) -> None:
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
    with pytest.raises(Rejected, match="is garbage"):
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
    frames = len(store.list("_system/containers/0/wal/"))
    assert container.append("s/a", data) == 6
    assert len(store.list("_system/containers/0/wal/")) == frames + 2
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
    containers = [opened(maintenance=True, checkpoint_frames=3, flush_bytes=300), opened()]
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
    container = opened(maintenance=True, checkpoint_frames=4, flush_bytes=1000)
    container.create_segment("s/a")
    for number in range(40):
        container.append("s/a", b"%03d," % number * 25)
    container.wait_for_upkeep()
    chunks = chunks_in(store)
    assert sum(len(store.read(name)) for name in chunks) >= 2000
    assert set(chunks_of(container)) <= set(chunks)
    assert set(container.refresh().chunks) <= {info.path for info in store.list("")}
    assert store.list("_system/containers/0/checkpoints/")
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
    again = Container(Stores(counting, counting), 0, Settings(threaded=False, maintenance=False))
    frames = {path for request in counting.requests for path in request.paths if "/wal/" in path}
    assert len(frames) <= 8 + BEHIND
    assert_equal(again.state, container.refresh())


def test_a_checkpoint_is_there_when_the_call_returns(opened: Opener, store: Store) -> None:
    container = opened()
    container.create_segment("s/a")
    for number in range(1, 31):
        container.checkpoint()
        assert len(store.list("_system/containers/0/checkpoints/")) == number


@pytest.mark.parametrize("name", ["", "/s/a", "s//a", "s/../../a", "s/a\0", "s/\udcff", "s/" + 820 * "a"])
def test_names_that_chunks_cannot_have_are_refused_at_once(name: str) -> None:
    """Later nobody could flush the segment."""
    container = Simulation().open()
    with pytest.raises(ValueError, match=r"path|surrogate"):
        container.create_segment(name)
    with pytest.raises(ValueError, match=r"path|surrogate"):
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
        with pytest.raises((BadAttributeUpdate, InvalidOperation), match="64 bits"):
            container.update_attributes("s/a", [update])
    container.checkpoint()
    assert container.info("s/a").attributes[W] == MAX_VALUE


# --- storage that fails ----------------------------------------------------------------------------------------------


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
