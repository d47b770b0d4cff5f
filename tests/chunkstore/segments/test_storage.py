"""Segments: the contract on storages with different abilities, huge ones, what operations cost, system segments."""

from __future__ import annotations

import itertools
import math
import statistics
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from chunkstore import StorageUnavailable, Store, open_store
from chunkstore.checksums import block_checksums
from chunkstore.chunk_names import made_for, new_chunk_name
from chunkstore.errors import InvalidOffset, PutUnknown, StorageFull
from chunkstore.garbage_collector import GarbageCollector
from chunkstore.metadata.garbage_queue import GarbageKind, GarbageTask
from chunkstore.metadata.metadata_records import Record, RecordStatus, StoredSegmentRecord, segment_key
from chunkstore.metadata.store import MemoryMetadataStore, MemoryTable, MetadataTransaction, WithOperations
from chunkstore.port import ObjectInfo
from chunkstore.segments.chunk_list import ChunkList, WrittenChunk
from chunkstore.segments.errors import (
    BadStoredOffset,
    ConcurrentModification,
    SegmentStorageFull,
    SegmentUnsupported,
    StorageNotPrimary,
    StoredSegmentExists,
    StoredSegmentNotFound,
    StoredSegmentTruncated,
)
from chunkstore.segments.segment_reads import ReadConfig, SegmentReads
from chunkstore.segments.storage import NO_ROLLING, ChunkedSegmentStorage, NewChunk, SegmentStorageConfig
from chunkstore.segments.system_changes import Appended, ChunkAdded, SystemChange, Truncated
from chunkstore.testing import CountingStore, FaultStore, SimulatedStore, WrappingStore, fail_at
from chunkstore.testing.contracts import refused
from chunkstore.wrapping import Request
from tests.support import limits
from tests.support.flaky_metadata import FlakyMetadataStore
from tests.support.garbage_queue import StoreGarbageQueue
from tests.support.segment_contracts import DATA, NAME, OTHER, SegmentContract, World, take_over


class TestSimulated(SegmentContract):
    @pytest.fixture(params=[True, False], ids=["appends", "does not append"])
    def chunks(self, request: pytest.FixtureRequest) -> Store:
        return SimulatedStore(can_append=request.param)


class TestLocal(SegmentContract):
    @pytest.fixture(params=[True, False], ids=["appends", "does not append"])
    def chunks(self, tmp_path: Path, request: pytest.FixtureRequest) -> Store:
        store = open_store(str(tmp_path / "root"))
        store.can_append = request.param
        return store


class TestMemory(SegmentContract):
    @pytest.fixture
    def chunks(self) -> Iterator[Store]:
        store = open_store(f"memory://{uuid.uuid4().hex}/root")
        yield store
        store.delete([info.path for info in store.list("")])


# -- sparse fakes


class SparseStore(WrappingStore):
    """Objects below "sparse/<size>/" are there without being stored: byte n is n % 251."""

    def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        if not path.startswith("sparse/"):
            return super().read(path, start, end)
        size = int(path.split("/")[1])
        end = size if end is None else min(end, size)
        return pattern(start, end)

    def stat(self, path: str) -> ObjectInfo:
        if not path.startswith("sparse/"):
            return super().stat(path)
        return ObjectInfo(path, int(path.split("/")[1]), 0.0)

    def _carry_out(self, request: Request, call: Any) -> Any:
        return call()


def is_stored(store: Store, name: str) -> bool:
    return any(info.path == name for info in store.list(""))


def pattern(start: int, end: int) -> bytes:
    return bytes(at % 251 for at in range(start, end))


def sparse(size: int) -> WrittenChunk:
    return WrittenChunk(f"sparse/{size}/{uuid.uuid4()}", size)


@pytest.mark.parametrize("appends", [True, False])
def test_huge_offsets(appends: bool) -> None:
    world = World(SparseStore(SimulatedStore(can_append=appends)))
    segments = world.open()
    segments.create(NAME)
    size = (1 << 40) + 12345
    chunks = [sparse(size) for _ in range(40)]
    segments.attach(NAME, 0, chunks)
    end = 40 * size
    assert segments.write(NAME, end, DATA) == 1000
    assert segments.info(NAME).length == end + 1000
    for number in (0, 1, 7, 39):
        at = number * size
        assert segments.read(NAME, at, 10) == pattern(0, 10)
        assert segments.read(NAME, at + (1 << 40), 200) == pattern(1 << 40, (1 << 40) + 200)
    assert segments.read(NAME, 7 * size - 5, 10) == pattern(size - 5, size) + pattern(0, 5)
    assert segments.read(NAME, end - 5, 1005) == pattern(size - 5, size) + DATA
    assert b"".join(segments.scan(NAME, end - 300, end + 10)) == pattern(size - 300, size) + DATA[:10]
    segments.truncate(NAME, 7 * size)
    segments.truncate(NAME, 8 * size + 3)
    assert segments.read(NAME, 8 * size + 3, 10) == pattern(3, 13)
    error = refused(StoredSegmentTruncated, segments.read, NAME, 8 * size + 2, 10)
    assert (error.offset, error.start_offset) == (8 * size + 2, 8 * size + 3)
    assert refused(BadStoredOffset, segments.write, NAME, end, b"x").expected == end + 1000
    segments.create(OTHER)
    segments.attach(OTHER, 0, [sparse(size)])
    segments.seal(OTHER)
    segments.concat(NAME, end + 1000, OTHER)
    assert segments.read(NAME, end + 1000 + size - 4, 4) == pattern(size - 4, size)
    successor = world.open(2)
    assert successor.write(NAME, end + 1000 + size, b"end") == 3
    assert successor.read(NAME, end + 1000 + size - 1, 4) == pattern(size - 1, size) + b"end"


# -- what it costs


class CountedMetadata(MemoryMetadataStore):
    """Counts the records that are loaded and stored."""

    def __init__(self, table: MemoryTable) -> None:
        super().__init__(table)
        self.loaded = 0
        self.stored = 0

    def _load(self, keys: Collection[str]) -> dict[str, tuple[int, Record | None]]:
        self.loaded += len(keys)
        return super()._load(keys)

    def _store(
        self, changes: Mapping[str, Record | None], expected: Mapping[str, int], with_operations: WithOperations
    ) -> dict[str, int]:
        self.stored += len(changes)
        return super()._store(changes, expected, with_operations)


def counted(world: World, epoch: int = 1) -> tuple[ChunkedSegmentStorage, CountedMetadata]:
    metadata = CountedMetadata(world.table)
    return ChunkedSegmentStorage(world.chunks, metadata, world.queue, epoch), metadata


def test_without_appends_each_write_is_a_chunk() -> None:
    world = World(SimulatedStore(can_append=True))
    for appends, chunks in ((True, 1), (False, 3)):
        segments = world.open(config=SegmentStorageConfig(appends=appends))
        name = f"scope/{appends}"
        segments.create(name)
        for offset in range(3):
            segments.write(name, offset, b"x")
        assert len(list(segments.layout(name))) == chunks


def test_an_offset_among_100_000_chunks_is_found_with_three_records() -> None:
    world = World(SparseStore(SimulatedStore()))
    segments = world.open()
    segments.create(NAME)
    for start in range(0, 100_000, 10_000):
        segments.attach(NAME, start * 100, [sparse(100) for _ in range(10_000)])
    segments.truncate(NAME, 100 * 1234 + 56)
    for offset in (123_456, 123_500, 5_000_000, 5_000_099, 9_999_899, 9_999_900, 9_999_999):
        cold, metadata = counted(world)
        assert cold.read(NAME, offset, 1) == pattern(offset % 100, offset % 100 + 1)
        assert metadata.loaded <= 3
    cold, metadata = counted(world)
    assert cold.read(NAME, 5_000_050, 100) == pattern(50, 100) + pattern(0, 50)
    assert metadata.loaded <= 4  # the one more chunk


def test_many_merges_leave_few_index_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    limits.chunks_per_index_block(monkeypatch, 100)
    world = World(SparseStore(SimulatedStore()))
    segments = world.open()
    segments.create(NAME)
    for number in range(250):
        segments.create(OTHER)
        segments.attach(OTHER, 0, [sparse(7)])
        segments.seal(OTHER)
        segments.concat(NAME, 7 * number, OTHER)
    with MemoryMetadataStore(world.table).begin() as transaction:
        record = transaction.segment(NAME)
    assert record is not None and len(record.blocks) == 3
    for offset in (0, 350, 700, 701, 250 * 7 - 1):
        cold, metadata = counted(world)
        assert cold.read(NAME, offset, 1) == pattern(offset % 7, offset % 7 + 1)
        assert metadata.loaded <= 3


def merge(world: World, size: int, chunk_count: int) -> tuple[Counter[str], int, int, float]:
    """What it costs to merge a segment of this size: requests, records loaded and stored, and seconds."""
    segments = world.open()
    segments.create(NAME)
    segments.create(OTHER)
    segments.write(NAME, 0, DATA)
    segments.attach(OTHER, 0, [sparse(size // chunk_count) for _ in range(chunk_count)])
    segments.seal(OTHER)
    cold, metadata = counted(world)
    store = world.chunks
    assert isinstance(store, CountingStore)
    store.reset()
    started = time.perf_counter()
    cold.concat(NAME, 1000, OTHER)
    seconds = time.perf_counter() - started
    assert cold.info(NAME).length == 1000 + size
    cold.delete(NAME)
    counts = store.counts
    counts["put"] -= 1  # of the deletion
    return counts, metadata.loaded, metadata.stored, seconds


def test_a_gigabyte_is_merged_like_a_kilobyte() -> None:
    def world() -> World:
        return World(CountingStore(SparseStore(SimulatedStore())))

    large, small = list[float](), list[float]()
    for _ in range(40):
        one, other = merge(world(), 1 << 30, 8), merge(world(), 1 << 10, 8)
        assert one[:3] == other[:3]
        assert +one[0] == Counter()  # no request at all, to the storage
        large.append(one[3])
        small.append(other[3])
    single = merge(world(), 1 << 30, 1)
    assert single[:3] == one[:3]
    assert min(statistics.median(large) / statistics.median(small), min(large) / min(small)) < 1.2


def test_a_write_to_an_open_chunk_is_one_request() -> None:
    store = CountingStore(SimulatedStore())
    world = World(store)
    segments = world.open()
    segments.create(NAME)
    segments.write(NAME, 0, DATA)
    store.reset()
    for at in range(1000, 2000, 100):
        segments.write(NAME, at, DATA[:100])
    assert store.counts == Counter(append=10)
    segments.create(OTHER, 100)
    segments.write(OTHER, 0, DATA[:100])
    store.reset()
    segments.write(OTHER, 100, DATA[:10])  # the first chunk is full
    assert store.counts == Counter(put=2)  # the new chunk, and the garbage that it would be


# -- failures


@pytest.mark.parametrize("when", ["before", "partway", "after"])
@pytest.mark.parametrize("number", range(1, 5))
def test_a_failed_write_changes_nothing_and_may_be_repeated(number: int, when: Any) -> None:
    store = FaultStore(SimulatedStore(), verbs={"put", "append"})
    world = World(store)
    segments = world.open()
    segments.create(NAME, 600)
    segments.write(NAME, 0, DATA[:100])
    store.passed, store.plan = 0, fail_at(number, when)
    refused(StorageUnavailable, segments.write, NAME, 100, DATA + DATA[:500])
    assert segments.info(NAME).length == 100
    assert segments.write(NAME, 100, DATA + DATA[:500]) == 1500
    assert segments.read(NAME, 0, 1600) == world.content(segments, NAME) == DATA[:100] + DATA + DATA[:500]
    world.collect()
    assert world.stored_chunks() == {placed.chunk.name for placed in segments.layout(NAME)}


@pytest.mark.parametrize("lost", ["fail_before", "fail_after"])
def test_a_commit_of_unknown_outcome_is_seen_in_the_info(lost: str) -> None:
    world = World(SimulatedStore())
    metadata = FlakyMetadataStore(world.table)
    segments = ChunkedSegmentStorage(world.chunks, metadata, world.queue, 1, clock=lambda: world.now)
    segments.create(NAME)
    segments.write(NAME, 0, DATA)
    setattr(metadata, lost, 1.0)
    refused(PutUnknown, segments.write, NAME, 1000, DATA)
    setattr(metadata, lost, 0.0)
    length = segments.info(NAME).length
    assert length == (1000 if lost == "fail_before" else 2000)
    segments.write(NAME, length, b"end")
    assert segments.read(NAME, 0, length + 3) == DATA * (length // 1000) + b"end"
    world.collect()
    assert world.stored_chunks() == {placed.chunk.name for placed in segments.layout(NAME)}


def test_a_chunk_that_lost_bytes_is_not_added_to() -> None:
    world = World(SimulatedStore())
    segments = world.open()
    segments.create(NAME)
    segments.write(NAME, 0, DATA[:100])
    (placed,) = segments.layout(NAME)
    world.chunks.put(placed.chunk.name, DATA[:90])
    assert refused(InvalidOffset, segments.write, NAME, 100, b"x").expected == 90
    segments.write(NAME, 100, DATA[100:200])
    assert segments.read(NAME, 100, 100) == DATA[100:200]
    assert len(list(segments.layout(NAME))) == 2


@pytest.mark.parametrize("damage", ["a request is lost", "the chunk is short", "the segment changes meanwhile"])
def test_a_relocation_that_fails_leaves_the_truncation(damage: str, caplog: pytest.LogCaptureFixture) -> None:
    store = FaultStore(SimulatedStore(), verbs={"read"})
    world = World(store)
    segments = world.open()
    world.make(segments, NAME, [150, 10])
    first = next(segments.layout(NAME)).chunk.name
    match damage:
        case "a request is lost":
            store.plan = fail_at(1)
        case "the chunk is short":
            store.inner.put(first, DATA[:145])
        case _:
            rival = world.open()

            def rival_truncates(_at: int, _request: object) -> None:
                store.verbs = set()  # the rival's own requests have no plan
                rival.truncate(NAME, 141)

            store.plan = rival_truncates
    segments.truncate(NAME, 140)
    assert "is not relocated" in caplog.text
    start = segments.info(NAME).start_offset
    assert start in (140, 141)
    assert segments.read(NAME, 150, 10) == DATA[150:160]
    if damage != "the chunk is short":
        assert segments.read(NAME, start, 10) == DATA[start : start + 10]
    store.plan = None
    world.collect()
    assert world.stored_chunks() == {placed.chunk.name for placed in segments.layout(NAME)}


@pytest.mark.parametrize("damaged", [False, True])
def test_what_is_relocated_is_checked_and_keeps_checksums(damaged: bool, caplog: pytest.LogCaptureFixture) -> None:
    world = World(SimulatedStore())
    segments = world.open()
    segments.create(NAME)
    segments.write(NAME, 0, DATA[:150])
    [whole] = segments.layout(NAME)
    if damaged:
        world.chunks.put(whole.chunk.name, b"?" + DATA[1:150])
    segments.truncate(NAME, 140)
    [left] = segments.layout(NAME)
    if damaged:
        assert left.chunk == whole.chunk and "fails its checksums" in caplog.text
    else:
        assert (left.start, left.chunk.length) == (140, 10)
        assert left.chunk.checksums == block_checksums(DATA[140:150])


def test_a_truncation_to_the_end_has_nothing_to_relocate(caplog: pytest.LogCaptureFixture) -> None:
    segments = World(SimulatedStore()).open()
    segments.create(NAME)
    segments.write(NAME, 0, DATA[:150])
    segments.truncate(NAME, 150)
    assert not caplog.records


@pytest.mark.parametrize("name", [NAME, "_system/containers/metadata_0"])
def test_a_first_chunk_is_not_relocated_where_that_is_off_or_it_is_journaled(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(SimulatedStore())
    config = SegmentStorageConfig(relocate=name != NAME, relocate_min=100)
    segments = ChunkedSegmentStorage(
        world.chunks, MemoryMetadataStore(world.table), world.queue, 1, config, journal=lambda changes: None
    )
    segments.create(name)
    segments.write(name, 0, DATA[:150])
    segments.truncate(name, 140)
    assert [(placed.start, placed.end) for placed in segments.layout(name)] == [(0, 150)]
    assert not caplog.records


def test_a_segment_that_appears_while_it_is_created_is_kept() -> None:
    world = World(SimulatedStore())
    metadata = MemoryMetadataStore(world.table)
    rival = ChunkedSegmentStorage(world.chunks, metadata, world.queue, 1)

    def adopt(name: str) -> bool:
        rival.create(name)
        return False

    slow = ChunkedSegmentStorage(world.chunks, metadata, world.queue, 1, adopter=adopt)
    refused(StoredSegmentExists, slow.create, NAME)
    assert rival.exists(NAME)
    slow.close()


class StoppedQueue(StoreGarbageQueue):
    """Takes garbage once."""

    stopped = False

    def add(self, tasks: Sequence[GarbageTask], transaction: MetadataTransaction | None = None) -> None:
        if self.stopped:
            raise StorageUnavailable("the process stops here")
        self.stopped = True
        super().add(tasks, transaction)


class HookedMetadata(MemoryMetadataStore):
    """Calls `before_change` before each change begins."""

    def __init__(self, table: MemoryTable) -> None:
        super().__init__(table)
        self.before_change: Callable[[], object] = lambda: None

    def begin(self, *keys: str, read_only: bool = False, with_operations: WithOperations = ()) -> MetadataTransaction:
        if not read_only:
            self.before_change()
        return super().begin(*keys, read_only=read_only, with_operations=with_operations)


@pytest.mark.parametrize("start", [30, 55])
def test_a_first_chunk_that_another_truncation_is_about_to_take_out_is_not_relocated(start: int) -> None:
    """A truncation takes out many chunks in parts: between two of them, the first one lies before the start."""
    world = World(SimulatedStore())
    config = SegmentStorageConfig(transaction_batch=2, relocate_min=1)
    metadata = HookedMetadata(world.table)
    segments = ChunkedSegmentStorage(world.chunks, metadata, world.queue, 1, config)
    world.make(segments, NAME, [10] * 10)
    rival = ChunkedSegmentStorage(world.chunks, metadata, StoppedQueue(world.chunks, 0), 1, config)
    changes = itertools.count()

    def let_the_rival_begin() -> None:
        if next(changes) == 1:
            refused(StorageUnavailable, rival.truncate, NAME, start)

    metadata.before_change = let_the_rival_begin
    segments.truncate(NAME, 5)
    assert segments.info(NAME).start_offset == start
    assert segments.read(NAME, start, 100 - start) == DATA[start:100]
    assert next(segments.layout(NAME)).start == 20
    segments.truncate(NAME, start + 1)
    assert next(segments.layout(NAME)).start == start // 10 * 10


class FullStore(WrappingStore):
    """Has no room for chunks."""

    def _carry_out(self, request: Request, call: Any) -> Any:
        if request.verb in ("put", "append") and made_for(request.paths[0]):
            raise StorageFull("no space left")
        return call()


def test_a_full_storage_is_told_with_the_segment() -> None:
    segments = World(FullStore(SimulatedStore())).open()
    segments.create(NAME)
    error = refused(SegmentStorageFull, segments.write, NAME, 0, b"x")
    assert error.segment == NAME and "no space left" in str(error)


def test_an_instance_that_the_log_has_fenced_is_told() -> None:
    world = World(SimulatedStore())
    metadata = FlakyMetadataStore(world.table)
    segments = ChunkedSegmentStorage(world.chunks, metadata, world.queue, 1)
    segments.create(NAME)
    metadata.fence = StorageNotPrimary(NAME, 2, 1)
    refused(StorageNotPrimary, segments.write, NAME, 0, b"x")


def test_two_instances_of_one_epoch_never_mix_their_bytes() -> None:
    world = World(SimulatedStore())
    world.open().create(NAME)

    def write(mark: bytes) -> int:
        segments, written = world.open(), 0
        while written < 30:
            try:
                segments.write(NAME, segments.info(NAME).length, mark * 10)
                written += 1
            except (ConcurrentModification, BadStoredOffset):
                segments._metadata.evict_all()
        return written

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(write, [b"a", b"b"])) == [30, 30]
    segments = world.open()
    content = segments.read(NAME, 0, 600)
    pieces = [content[at : at + 10] for at in range(0, 600, 10)]
    assert Counter(pieces) == {b"a" * 10: 30, b"b" * 10: 30}
    assert world.content(segments, NAME) == content


def test_a_chunk_of_another_instance_of_the_epoch_is_not_added_to() -> None:
    """Each has made a chunk of the segment, and knows the other's by the metadata."""
    world = World(SimulatedStore(can_append=True))
    one, other = MemoryMetadataStore(world.table), MemoryMetadataStore(world.table)
    mine, yours = (ChunkedSegmentStorage(world.chunks, metadata, world.queue, 1) for metadata in (one, other))
    mine.create(NAME)
    mine.write(NAME, 0, b"mine")
    yours.write(NAME, 4, b"yours")
    one.evict_all()
    mine.write(NAME, 9, b"mine")
    assert [placed.chunk.length for placed in mine.layout(NAME)] == [4, 5, 4]


def test_checksums_of_a_chunk_go_on_as_it_is_added_to() -> None:
    world = World(SimulatedStore(can_append=True))
    segments = world.open()
    segments.create(NAME)
    for start in (0, 100, 350):
        segments.write(NAME, start, DATA[start : start + 250 if start else 100])
    (placed,) = segments.layout(NAME)
    assert placed.chunk.checksums == block_checksums(DATA[:600])


def test_who_met_a_list_that_was_changed_sees_the_new_one_next_time() -> None:
    """Its record of the segment is old, and leads to a chunk that another instance has taken out."""
    world = World(SimulatedStore())
    world.make(world.open(), NAME, [100, 100, 100])
    late = ChunkedSegmentStorage(world.chunks, MemoryMetadataStore(world.table), world.queue, 1)
    assert late.info(NAME).start_offset == 0
    world.open().truncate(NAME, 100)
    world.collect()
    refused(ConcurrentModification, late.truncate, NAME, 250)
    late.truncate(NAME, 250)
    assert late.read(NAME, 250, 50) == DATA[250:300]


def test_threads_change_one_segment_one_after_the_other() -> None:
    world = World(SimulatedStore())
    segments = world.open()
    segments.create(NAME)
    lock = threading.Lock()
    ends = iter(range(0, 400, 10))

    def write(_: int) -> None:
        with lock:  # offsets are given in order; the commits of several segments run at once
            segments.write(NAME, next(ends), DATA[:10])
        name = f"scope/{uuid.uuid4()}"
        segments.create(name)
        segments.write(name, 0, DATA)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(40)))
    assert segments.info(NAME).length == 400
    assert all(info.length in (400, 1000) for info in segments.list())
    assert not segments._locks._owners


# -- claims of what others wrote


@pytest.mark.parametrize("unrecorded", [300, 0])
def test_the_length_of_a_legacy_chunk_is_what_is_there(unrecorded: int) -> None:
    """Old versions of the original recorded a chunk's length late; newer ones and we say that we do not."""
    world = World(SimulatedStore())
    segments = world.open()
    segments.create(NAME)
    segments.write(NAME, 0, DATA)
    (placed,) = segments.layout(NAME)
    assert world.metadata is not None
    with world.metadata.begin(segment_key(NAME)) as transaction:
        layout = ChunkList(transaction, transaction.segment(NAME))  # type: ignore[arg-type]
        layout.grow(-unrecorded)
        layout.record = layout.record._replace(status=RecordStatus.ACTIVE)
        layout.save()
        transaction.commit()
    successor = world.open(2)
    take_over(successor, NAME)
    assert successor.info(NAME).length == 1000
    assert successor.read(NAME, 0, 1000) == DATA
    world.chunks.append(placed.chunk.name, 1000, b"of a zombie")
    third = world.open(3)
    take_over(third, NAME)
    assert third.info(NAME).length == 1000


@pytest.mark.parametrize("rolling_length", [NO_ROLLING, 0])
def test_a_segment_without_metadata_may_be_adopted(rolling_length: int) -> None:
    world = World(SimulatedStore())
    donor = world.open()
    metadata = MemoryMetadataStore()
    asked = []

    def adopt(name: str) -> bool:
        asked.append(name)
        if name != NAME:
            return False
        with metadata.begin() as transaction:
            transaction.put(StoredSegmentRecord(NAME, status=RecordStatus.ACTIVE, max_rolling_length=rolling_length))
            transaction.commit()
        return True

    segments = ChunkedSegmentStorage(world.chunks, metadata, world.queue, 5, adopter=adopt)
    assert segments.exists(NAME) and not segments.exists(OTHER)
    assert asked == [NAME, OTHER]
    segments.write(NAME, 0, DATA)
    assert segments.read(NAME, 0, 1000) == DATA
    assert not donor.exists(NAME)


def adopting(adopt: Callable[[ChunkedSegmentStorage, str], None]) -> tuple[ChunkedSegmentStorage, list[str]]:
    """An instance that adopts segments without metadata by `adopt`, and the names of those that it has adopted."""
    world = World(SimulatedStore())
    metadata, adopted = MemoryMetadataStore(world.table), list[str]()
    donor = ChunkedSegmentStorage(world.chunks, metadata, world.queue, 1)

    def adopt_one(name: str) -> bool:
        adopted.append(name)
        adopt(donor, name)
        return True

    return ChunkedSegmentStorage(world.chunks, metadata, world.queue, 1, adopter=adopt_one), adopted


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ("info", ()),
        ("delete", ()),
        ("write", (0, b"x")),
        ("attach", (0, [WrittenChunk("a", 1)])),
        ("seal", ()),
        ("unseal", ()),
        ("truncate", (0,)),
        ("read", (0, 0)),
        ("scan", (0,)),
        ("layout", ()),
    ],
)
def test_each_call_adopts_a_segment_without_metadata(call: str, arguments: tuple[Any, ...]) -> None:
    segments, adopted = adopting(ChunkedSegmentStorage.create)
    result = getattr(segments, call)(NAME, *arguments)
    if call in ("scan", "layout"):
        assert list(result) == []
    assert adopted == [NAME]


def test_both_segments_of_a_merge_are_adopted() -> None:
    def adopt(donor: ChunkedSegmentStorage, name: str) -> None:
        donor.create(name)
        donor.write(name, 0, DATA[:10])
        if name == OTHER:
            donor.seal(name)

    segments, adopted = adopting(adopt)
    segments.concat(NAME, 10, OTHER)
    assert adopted == [NAME, OTHER]
    assert segments.read(NAME, 0, 20) == DATA[:10] * 2


def test_a_segment_without_metadata_is_adopted_before_its_chunks_are_replaced() -> None:
    segments, adopted = adopting(ChunkedSegmentStorage.create)
    refused(ConcurrentModification, segments.replace_chunks, NAME, 0, ["other"], NewChunk("new", math.inf), 30)
    assert adopted == [NAME]


# -- who may change what


def test_the_creator_of_a_segment_owns_it_from_the_start() -> None:
    world = World(SimulatedStore())
    overtaken = world.open(1)
    world.open(2).create(NAME)
    error = refused(StorageNotPrimary, overtaken.write, NAME, 0, b"of the zombie")
    assert (error.owner_epoch, error.epoch) == (2, 1)


def test_a_change_of_owner_is_noted_until_the_owner_has_made_a_chunk() -> None:
    """In the record's status, which Pravega reads too."""
    world = World(SimulatedStore(can_append=True))
    segments = world.open(1)
    segments.create(NAME)
    segments.write(NAME, 0, DATA[:10])

    def is_noted() -> bool:
        with MemoryMetadataStore(world.table).begin() as transaction:
            record = transaction.segment(NAME)
            assert record is not None
            return bool(record.status & RecordStatus.OWNERSHIP_CHANGED)

    assert not is_noted()
    successor = world.open(2)
    successor.truncate(NAME, 5)
    assert is_noted()
    successor.write(NAME, 10, DATA[10:20])
    assert not is_noted()


class RecordingQueue(StoreGarbageQueue):
    """Remembers what is queued."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, 0)
        self.tasks: list[GarbageTask] = []

    def add(self, tasks: Sequence[GarbageTask], transaction: MetadataTransaction | None = None) -> None:
        self.tasks += tasks
        super().add(tasks, transaction)

    def taken(self) -> list[GarbageKind]:
        """The kinds of the tasks since the last call."""
        tasks, self.tasks = self.tasks, []
        return [task.kind for task in tasks]


def test_garbage_is_queued_with_the_segment_whose_commit_decides() -> None:
    """However many chunks are taken out, they are one piece of garbage."""
    world = World(SimulatedStore())
    queue = RecordingQueue(world.chunks)
    config = SegmentStorageConfig(appends=False, relocate_min=100)
    segments = ChunkedSegmentStorage(
        world.chunks, MemoryMetadataStore(world.table), queue, 1, config, clock=lambda: world.now
    )
    segments.create(NAME)
    for start, end in ((0, 150), (150, 160), (160, 170)):
        segments.write(NAME, start, DATA[start:end])
    tasks = queue.tasks[:]
    assert queue.taken() == [GarbageKind.NEW_CHUNK] * 3
    segments.truncate(NAME, 140)  # the rest of the first chunk is copied
    tasks += queue.tasks
    assert queue.taken() == [GarbageKind.NEW_CHUNK, GarbageKind.SEGMENT]
    segments.truncate(NAME, 165)  # takes out two chunks
    tasks += queue.tasks
    assert queue.taken() == [GarbageKind.SEGMENT]
    segments.delete(NAME)
    tasks += queue.tasks
    assert queue.taken() == [GarbageKind.SEGMENT]
    assert {(task.segment, task.due) for task in tasks} == {(NAME, world.now + config.garbage_delay)}


def test_a_deleted_segment_cannot_be_opened_by_the_name_that_it_has_now() -> None:
    world = World(SimulatedStore())
    segments = world.open()
    world.make(segments, NAME, [10, 20])
    names = [placed.chunk.name for placed in segments.layout(NAME)]
    segments.delete(NAME)
    assert world.metadata is not None
    [gone] = [record.name for _, record in world.metadata.records() if isinstance(record, StoredSegmentRecord)]
    (new,) = segments.track_new_chunks(gone, [0])
    for name in (gone, NAME):
        for call in (
            partial(segments.info, name),
            partial(segments.write, name, 30, b"x"),
            partial(segments.read, name, 0, 30),
            partial(segments.replace_chunks, name, 0, names, new, 30),
        ):
            assert refused(StoredSegmentNotFound, call).segment == name
        assert not segments.exists(name)


@pytest.mark.parametrize("epoch", [1, 2])
def test_a_write_to_a_segment_that_was_deleted_meanwhile_is_refused(epoch: int) -> None:
    world = World(SimulatedStore())
    world.open().create(NAME)
    late = ChunkedSegmentStorage(world.chunks, MemoryMetadataStore(world.table), world.queue, 1)
    assert late.info(NAME).length == 0
    world.open(epoch).delete(NAME)
    assert refused(ConcurrentModification, late.write, NAME, 0, b"x").segment == NAME
    refused(StoredSegmentNotFound, late.write, NAME, 0, b"x")


class ClaimedQueue(StoreGarbageQueue):
    """A collector has claimed every new chunk."""

    def waits(self, name: str) -> bool:
        return False


@pytest.mark.parametrize("reason", ["it is in time", "the deadline has come", "a collector has claimed it"])
def test_a_copy_is_put_in_place_only_before_a_collector_may_delete_it(reason: str) -> None:
    world = World(SimulatedStore())
    world.make(world.open(), NAME, [10, 20])
    queue = (ClaimedQueue if reason == "a collector has claimed it" else StoreGarbageQueue)(world.chunks, 0)
    segments = ChunkedSegmentStorage(world.chunks, MemoryMetadataStore(world.table), queue, 1, clock=lambda: world.now)
    names = [placed.chunk.name for placed in segments.layout(NAME)]
    (new,) = segments.track_new_chunks(NAME, [0])
    assert new.deadline == world.now + segments.config.garbage_delay / 2 == world.now + 30
    world.chunks.put(new.name, DATA[:30])
    if reason == "the deadline has come":
        world.now = new.deadline
    replace = partial(segments.replace_chunks, NAME, 0, names, new, 30)
    if reason == "it is in time":
        replace()
    else:
        refused(ConcurrentModification, replace)
    left = [placed.chunk.name for placed in segments.layout(NAME)]
    assert left == ([new.name] if reason == "it is in time" else names)


# -- what an instance goes on with


def test_the_last_chunk_of_a_merged_segment_is_added_to() -> None:
    segments = World(SimulatedStore(can_append=True)).open()
    segments.create(NAME)
    segments.write(NAME, 0, DATA[:10])
    end = 10
    for merged in (DATA[10:30], b""):  # an empty one leaves the last chunk as it was
        segments.create(OTHER)
        segments.write(OTHER, 0, merged)
        segments.seal(OTHER)
        segments.concat(NAME, end, OTHER)
        end += len(merged)
        segments.write(NAME, end, DATA[end : end + 5])
        end += 5
    assert [placed.chunk.length for placed in segments.layout(NAME)] == [10, 30]
    assert segments.read(NAME, 0, 40) == DATA[:40]


def test_writes_to_several_segments_in_turn_stay_in_their_chunks() -> None:
    segments = World(SimulatedStore(can_append=True)).open()
    for name in (NAME, OTHER):
        segments.create(name)
    for at in range(3):
        for name in (NAME, OTHER):
            segments.write(name, at, DATA[at : at + 1])
    assert [len(list(segments.layout(name))) for name in (NAME, OTHER)] == [1, 1]


def test_pieces_of_any_length_are_cut_where_a_chunk_is_full() -> None:
    world = World(SimulatedStore(can_append=True))
    segments = world.open()
    segments.create(NAME, 64)
    at = 0
    for lengths in ([3, 61], [10, 54, 1], [0, 100, 27], [63, 1, 63, 2], [200, 1, 1]):
        pieces = [DATA[at + sum(lengths[:number]) :][:length] for number, length in enumerate(lengths)]
        assert segments.write(NAME, at, pieces) == sum(lengths)
        at += sum(lengths)
    assert [placed.chunk.length for placed in segments.layout(NAME)] == [64] * (at // 64) + [at % 64]
    assert segments.read(NAME, 0, at) == world.content(segments, NAME) == DATA[:at]


def test_the_last_chunk_is_added_to_after_others_were_replaced() -> None:
    world = World(SimulatedStore(can_append=True))
    segments = world.open()
    world.make(segments, NAME, [10, 20])
    segments.write(NAME, 30, DATA[30:40])
    names = [placed.chunk.name for placed in segments.layout(NAME)][:2]
    (new,) = segments.track_new_chunks(NAME, [0])
    world.chunks.put(new.name, DATA[:30])
    segments.replace_chunks(NAME, 0, names, new, 30)
    segments.write(NAME, 40, DATA[40:50])
    assert [placed.chunk.length for placed in segments.layout(NAME)] == [30, 20]
    assert segments.read(NAME, 0, 50) == DATA[:50]


def test_each_change_notes_when_it_was() -> None:
    world = World(SimulatedStore())
    segments = world.open()
    segments.create(NAME)
    world.now += 5
    segments.write(NAME, 0, b"x")
    assert segments.info(NAME).last_modified == int(world.now * 1000)


def test_reads_go_through_those_that_are_given_and_end_with_the_storage() -> None:
    store = CountingStore(SimulatedStore())
    metadata = MemoryMetadataStore()
    reads = SegmentReads(store, metadata, ReadConfig(part=100, parallel=1))
    segments = ChunkedSegmentStorage(store, metadata, StoreGarbageQueue(store, 0), 1, reads=reads)
    segments.create(NAME)
    segments.write(NAME, 0, DATA[:300])
    store.reset()
    before = set(threading.enumerate())
    assert segments.read(NAME, 0, 300) == DATA[:300]
    assert store.counts == Counter(read=3)
    assert set(threading.enumerate()) - before
    segments.close()
    assert not set(threading.enumerate()) - before


# -- system segments


class Journal:
    """Remembers what it was told, and may fail."""

    def __init__(self) -> None:
        self.records: list[SystemChange] = []
        self.failing = False

    def record(self, changes: Sequence[SystemChange]) -> None:
        if self.failing:
            raise StorageUnavailable("the journal is not there")
        self.records += changes


SYSTEM = "_system/containers/metadata_0"


def test_system_segments_are_pinned_and_journaled() -> None:
    world = World(SimulatedStore())
    journal = Journal()
    metadata = MemoryMetadataStore(world.table)
    segments = ChunkedSegmentStorage(
        world.chunks, metadata, world.queue, 1, journal=journal.record, clock=lambda: world.now
    )
    segments.create(SYSTEM, 600)
    segments.write(SYSTEM, 0, DATA[:500])
    segments.write(SYSTEM, 500, DATA[500:800])
    first, second = (placed.chunk.name for placed in segments.layout(SYSTEM))
    assert journal.records == [
        ChunkAdded(SYSTEM, first, None, 0),
        Appended(SYSTEM, first, 0, 500),
        Appended(SYSTEM, first, 500, 100),
        ChunkAdded(SYSTEM, second, first, 600),
        Appended(SYSTEM, second, 0, 200),
    ]
    assert not world.table.rows
    del journal.records[:]
    segments.truncate(SYSTEM, 650)
    segments.truncate(SYSTEM, 800)
    assert journal.records == [
        Truncated(SYSTEM, 650, second, 600),
        Truncated(SYSTEM, 800, None, 800),
    ]
    kept = GarbageCollector(world.chunks, metadata, world.queue).run_once(world.now + 61)
    assert kept.retried == 4 and is_stored(world.chunks, first)  # nobody could make a snapshot
    snapshots: list[int] = []
    options: dict[str, Any] = {"snapshot": lambda: snapshots.append(1)}
    GarbageCollector(world.chunks, metadata, world.queue, **options).run_once(world.now + 122)
    assert not is_stored(world.chunks, first) and not is_stored(world.chunks, second) and snapshots
    attach = partial(segments.attach, SYSTEM, 800, [WrittenChunk("a", 1)])
    for call in (partial(segments.seal, SYSTEM), partial(segments.delete, SYSTEM), attach):
        assert refused(SegmentUnsupported, call).segment == SYSTEM
    segments.create(NAME)
    refused(SegmentUnsupported, segments.concat, SYSTEM, 800, NAME)
    segments.write(SYSTEM, 800, DATA[:10])
    [last] = segments.layout(SYSTEM)
    (new,) = segments.track_new_chunks(SYSTEM, [800])
    refused(SegmentUnsupported, segments.replace_chunks, SYSTEM, 800, [last.chunk.name], new, 10)


def test_only_system_segments_are_journaled_and_only_with_a_journal() -> None:
    world = World(SimulatedStore())
    journal = Journal()
    config = SegmentStorageConfig(system_rolling_length=100)
    for sink, is_system, name in ((journal.record, True, NAME), (None, False, SYSTEM)):
        segments = ChunkedSegmentStorage(
            world.chunks, MemoryMetadataStore(world.table), world.queue, 1, config, journal=sink
        )
        segments.create(name)
        segments.write(name, 0, DATA[:250])
        segments.truncate(name, 120)
        segments.seal(name)
        assert segments.info(name).sealed and not journal.records
        assert [placed.chunk.length for placed in segments.layout(name)] == [250]
        assert segment_key(name) in world.table.rows
        if is_system:
            segments.create(SYSTEM)
            segments.write(SYSTEM, 0, DATA[:250])
            assert [placed.chunk.length for placed in segments.layout(SYSTEM)] == [100, 100, 50]
            first, second, third = (placed.chunk.name for placed in segments.layout(SYSTEM))
            assert [change for change in journal.records if isinstance(change, ChunkAdded)] == [
                ChunkAdded(SYSTEM, first, None, 0),
                ChunkAdded(SYSTEM, second, first, 100),
                ChunkAdded(SYSTEM, third, second, 200),
            ]
            del journal.records[:]


def test_changes_of_system_segments_have_one_order() -> None:
    """While the journal records one, no other system segment changes; other segments may."""
    world = World(SimulatedStore())

    def record(_changes: Sequence[SystemChange]) -> None:
        segments.write(NAME, segments.info(NAME).length, b"x")
        with pytest.raises(RuntimeError):
            segments.seal("_system/other")

    segments = ChunkedSegmentStorage(world.chunks, MemoryMetadataStore(), world.queue, 1, journal=record)
    for name in (NAME, SYSTEM):
        segments.create(name)
    segments.write(SYSTEM, 0, b"y")
    assert segments.info(NAME).length == 1


def test_what_the_journal_did_not_take_did_not_happen() -> None:
    world = World(SimulatedStore())
    journal = Journal()
    segments = ChunkedSegmentStorage(world.chunks, MemoryMetadataStore(), world.queue, 1, journal=journal.record)
    segments.create(SYSTEM)
    segments.write(SYSTEM, 0, DATA[:100])
    journal.failing = True
    refused(StorageUnavailable, segments.write, SYSTEM, 100, DATA[100:200])
    refused(StorageUnavailable, segments.truncate, SYSTEM, 50)
    assert (segments.info(SYSTEM).length, segments.info(SYSTEM).start_offset) == (100, 0)
    journal.failing = False
    segments.write(SYSTEM, 100, DATA[100:200])
    first, second = (placed.chunk.name for placed in segments.layout(SYSTEM))
    assert journal.records[-2:] == [ChunkAdded(SYSTEM, second, first, 100), Appended(SYSTEM, second, 0, 100)]
    assert segments.read(SYSTEM, 0, 200) == DATA[:200]


# -- names


def test_only_names_of_chunks_are_recognised() -> None:
    name = new_chunk_name("a/b.E-1-O-2", 3, 4)
    assert made_for(name) == "a/b.E-1-O-2"
    for other in ("a/b$offset.0", "a/b$header", name + "x", name[:-1], "pravega.json", f"x{name}/y"):
        assert made_for(other) is None


# -- what happens in the same step


class StoreWithCompanions(MemoryMetadataStore):
    """Keeps what went with each change of records: the number of those, and its with_operations."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[tuple[int, list[str]]] = []

    def _store(
        self, changes: Mapping[str, Record | None], expected: Mapping[str, int], with_operations: WithOperations
    ) -> dict[str, int]:
        versions = super()._store(changes, expected, ())
        self.done.append((len(changes), list(with_operations)))
        return versions

    def taken(self) -> list[tuple[bool, list[str]]]:
        """Of each change since the last call: whether it changed records, and what went with it."""
        taken, self.done = self.done, []
        return [(bool(changes), with_operations) for changes, with_operations in taken]


def test_each_change_hands_on_its_companions() -> None:
    chunks, metadata = SimulatedStore(can_append=True), StoreWithCompanions()
    queue = StoreGarbageQueue(chunks, 0)
    config = SegmentStorageConfig(relocate_min=100)
    segments = ChunkedSegmentStorage(chunks, metadata, queue, 1, config)
    segments.create(NAME, with_operations=["create"])
    assert metadata.taken() == [(True, ["create"])]
    segments.create(OTHER)
    chunks.put("attached", b"attached")
    metadata.taken()
    segments.write(NAME, 0, DATA, with_operations=["write"])
    segments.attach(NAME, 1000, [WrittenChunk("attached", 8)], with_operations=["attach"])
    segments.write(OTHER, 0, DATA, with_operations=["source"])
    segments.seal(OTHER, with_operations=["seal"])
    segments.concat(NAME, 1008, OTHER, with_operations=["concat"])
    assert metadata.taken() == [(True, [name]) for name in ("write", "attach", "source", "seal", "concat")]
    segments.truncate(NAME, 10, with_operations=["truncate"])
    assert metadata.taken() == [(True, ["truncate"])]
    segments.truncate(NAME, 900, with_operations=["relocate"])  # which copies the rest of the first chunk
    assert metadata.taken() == [(True, ["relocate"])] * 2
    segments.delete(NAME, with_operations=["delete"])
    assert metadata.taken() == [(True, ["delete"])]


def test_companions_of_a_change_that_has_nothing_to_change_happen() -> None:
    metadata = StoreWithCompanions()
    chunks = SimulatedStore()
    segments = ChunkedSegmentStorage(chunks, metadata, StoreGarbageQueue(chunks, 0), 1)
    segments.create(NAME, start_offset=7)
    metadata.taken()
    segments.truncate(NAME, 5, with_operations=["truncate"])
    segments.write(NAME, 7, b"", with_operations=["write"])
    segments.attach(NAME, 7, [], with_operations=["attach"])
    assert metadata.taken() == [(False, ["truncate"]), (False, ["write"]), (False, ["attach"])]
    segments.truncate(NAME, 5)
    segments.truncate(NAME, 7)
    segments.write(NAME, 7, b"")
    segments.attach(NAME, 7, [])
    assert metadata.taken() == []
