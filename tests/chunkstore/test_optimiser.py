"""The optimiser: small chunks become one, readers and writers go on, and nothing is lost whenever it stops."""

from __future__ import annotations

import contextlib
import pickle
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from chunkstore import InvalidOffset, Store, Unsupported, open_store
from chunkstore.backup import verify
from chunkstore.chunk_list import WrittenChunk
from chunkstore.chunks import ChunkHandle, ChunkStorage
from chunkstore.garbage import GarbageCollector, StoreGarbageQueue
from chunkstore.journal import SystemJournal, system_segments
from chunkstore.metadata_store import MemoryMetadataStore
from chunkstore.optimiser import Merge, OptimiserConfig, StorageOptimiser, copy
from chunkstore.segment_errors import (
    ConcurrentModification,
    SegmentDamaged,
    SegmentNotFound,
    StorageNotPrimary,
)
from chunkstore.segments import ChunkedSegmentStorage, SegmentHandle, SegmentStorageConfig
from chunkstore.testing import CountingStore, Crashed, FaultStore, SimulatedStore, WrappingStore, crash_at, fail_at

S = "scope/stream/0"
KIB = 1 << 10


class Joining(WrappingStore):
    """A storage that joins objects by itself, as buckets do, if they have at least `smallest` bytes."""

    smallest = 0

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.can_concat = True
        self.joined = 0

    def _carry_out(self, request, call):  # type: ignore[no-untyped-def]
        return call()

    def concat(self, path: str, sources) -> None:  # type: ignore[no-untyped-def]
        parts = [self.inner.read(source) for source in sources]
        if min(map(len, parts)) < self.smallest:
            raise Unsupported(f"parts of {path} are too small")
        self.joined += 1
        self.inner.put(path, b"".join(parts))


class Rig(NamedTuple):
    """A storage and all that belongs to it."""

    store: Store
    chunks: ChunkStorage
    metadata: MemoryMetadataStore
    garbage: StoreGarbageQueue
    storage: ChunkedSegmentStorage
    optimiser: StorageOptimiser

    @classmethod
    def over(
        cls, store: Store, config: OptimiserConfig, metadata: MemoryMetadataStore | None = None, epoch: int = 1
    ) -> Rig:
        chunks, garbage = ChunkStorage(store), StoreGarbageQueue(store, 0)
        metadata = metadata or MemoryMetadataStore()
        # Every write is a chunk, so that there are many.
        storage = ChunkedSegmentStorage(chunks, metadata, garbage, epoch, SegmentStorageConfig(appends=False))
        return cls(
            store, chunks, metadata, garbage, storage, StorageOptimiser(storage, chunks, metadata, garbage, config)
        )

    def write(self, *pieces: bytes, segment: str = S, rolling: int = 0) -> SegmentHandle:
        known = self.storage.exists(segment)
        handle = self.storage.open_write(segment) if known else self.storage.create(segment, rolling)
        for piece in pieces:
            self.storage.write(handle, self.storage.info(segment).length, piece)
        return handle

    def lengths(self, segment: str = S) -> list[int]:
        return [placed.chunk.length for placed in self.storage.layout(segment)]

    def content(self, segment: str = S) -> bytes:
        info = self.storage.info(segment)
        return self.storage.read(self.storage.open_read(segment), info.start_offset, info.length - info.start_offset)

    def collect(self, after: float = 86400) -> None:
        GarbageCollector(self.chunks, self.metadata, self.garbage).run_once(time.time() + after)

    def objects(self) -> int:
        return sum(".E-" in found.path for found in self.store.list("scope/"))


SMALL = OptimiserConfig(target=100)


@pytest.fixture(params=["appending", "putting", "joining", "joining some"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    match request.param:
        case "appending":
            return open_store(str(tmp_path))
        case "putting":
            return SimulatedStore(can_append=False)
        case "joining":
            return Joining(SimulatedStore(can_append=False))
    store = Joining(SimulatedStore(can_append=False))
    store.smallest = 10
    return store


@pytest.fixture
def rig(store: Store) -> Rig:
    return Rig.over(store, SMALL)


def small_pieces(count: int, seed: int = 0, longest: int = 20) -> list[bytes]:
    chance = random.Random(seed)
    return [chance.randbytes(chance.randint(1, longest)) for _ in range(count)]


def test_small_chunks_become_large_ones(rig: Rig) -> None:
    pieces = small_pieces(100)
    rig.write(*pieces)
    report = rig.optimiser.optimise(S)
    lengths = rig.lengths()
    assert rig.content() == b"".join(pieces)
    assert all(80 < length <= 100 for length in lengths[:-2])
    assert report.merges >= len(lengths) - 2
    assert report.bytes == sum(lengths) - len(pieces[-1])
    assert report.chunks == 99
    assert not verify(rig.metadata, rig.chunks).problems
    rig.collect()
    assert rig.objects() == len(lengths)
    assert rig.content() == b"".join(pieces)
    rig.write(b"and more")
    assert rig.content() == b"".join(pieces) + b"and more"


def test_what_is_merged_is_not_merged_again(rig: Rig) -> None:
    rig.write(*small_pieces(100))
    rig.optimiser.optimise(S)
    assert rig.optimiser.plan(S) == []


def test_every_byte_is_copied_a_few_times_only(rig: Rig) -> None:
    """Chunks come in one by one, and the optimiser runs after each."""
    copied = 0
    for _ in range(200):
        rig.write(b"x")
        copied += rig.optimiser.optimise(S).bytes
    assert copied <= 200 * 8
    assert len(rig.lengths()) < 15


def test_the_rolling_length_is_a_limit(rig: Rig) -> None:
    rig.write(*[b"x" * 4] * 20, rolling=10)
    rig.optimiser.optimise(S)
    assert rig.lengths() == [8] * 9 + [4, 4]


def test_rules_of_size(rig: Rig) -> None:
    pieces = [b"a" * 2, b"b" * 2, b"c" * 60, b"d" * 2, b"e" * 30, b"f" * 30, b"g" * 2, b"end"]
    rig.write(*pieces)
    rig.optimiser.optimise(S)
    assert rig.lengths() == [4, 60, 64, 3], "longer than half the target stays"
    config = OptimiserConfig(target=100, chunk_max=3, chunk_min=2)
    other = Rig.over(rig.store, config)
    other.write(b"x", b"y", b"zz", b"zz", b"wwww", b"vv", b"v", b"vv", b"end", segment="scope/stream/1")
    other.optimiser.optimise("scope/stream/1")
    expected = [6, 4, 5, 3] if other.chunks.supports_append else [1, 1, 4, 4, 2, 1, 2, 3]
    assert other.lengths("scope/stream/1") == expected


def test_a_merge_has_a_bounded_number_of_parts(store: Store) -> None:
    rig = Rig.over(store, OptimiserConfig(target=1000, parts=7))
    rig.write(*[b"x"] * 50)
    rig.optimiser.optimise(S)
    assert rig.lengths() == [7] * 7 + [1]


def test_the_last_chunk_is_left_until_the_segment_is_sealed(rig: Rig) -> None:
    handle = rig.write(b"a", b"b")
    assert rig.optimiser.plan(S) == []
    rig.storage.seal(handle)
    rig.optimiser.optimise(S)
    assert rig.lengths() == [2]


def test_truncated_chunks_are_left_alone(rig: Rig) -> None:
    pieces = small_pieces(50)
    handle = rig.write(*pieces)
    data = b"".join(pieces)
    rig.storage.truncate(handle, 123)
    rig.optimiser.optimise(S)
    assert rig.content() == data[123:]
    rig.storage.truncate(handle, len(data))
    assert rig.optimiser.plan(S) == []


def test_only_what_counts_of_a_chunk_is_copied(rig: Rig) -> None:
    """A zombie's bytes behind the length in the metadata."""
    rig.write(b"one", b"two", b"three", b"end")
    for placed in list(rig.storage.layout(S))[:2]:
        rig.store.put(placed.chunk.name, rig.store.read(placed.chunk.name) + b"zombie")
    rig.optimiser.optimise(S)
    assert rig.lengths() == [11, 3]
    assert rig.content() == b"onetwothreeend"


def test_what_nobody_has_or_nobody_may_merge(store: Store) -> None:
    rig = Rig.over(store, SMALL)
    with pytest.raises(SegmentNotFound):
        rig.optimiser.plan(S)
    journal = SystemJournal(store, 0, 1, rig.garbage)
    journal.boot(rig.metadata)
    storage = ChunkedSegmentStorage(
        rig.chunks, rig.metadata, rig.garbage, 1, SegmentStorageConfig(appends=False), journal=journal
    )
    segment = system_segments(0)[0]
    for at in range(10):
        storage.write(storage.open_write(segment), at, b"x")
    assert StorageOptimiser(storage, rig.chunks, rig.metadata, rig.garbage, SMALL).optimise_all("_system/") == {}


def test_a_damaged_chunk_stops_its_merge_and_no_other_segment(rig: Rig) -> None:
    rig.write(b"one", b"two", b"end")
    rig.write(b"one", b"two", b"end", segment="scope/stream/1")
    rig.store.put(next(rig.storage.layout(S)).chunk.name, b"o")
    [merge] = rig.optimiser.plan(S)
    with pytest.raises((SegmentDamaged, InvalidOffset), match=r"ends before|has 1 bytes"):
        rig.optimiser.run(merge)
    assert set(rig.optimiser.optimise_all()) == {"scope/stream/1"}
    assert rig.lengths() == [3, 3, 3]


def test_inline_at_concat(rig: Rig) -> None:
    target = rig.write(*[b"x" * 60] * 3)
    expected = rig.content()
    for number in range(20):
        source = f"{S}#transaction.{number:032x}"
        rig.storage.seal(rig.write(b"%05d" % number, segment=source))
        rig.optimiser.concat(target, rig.storage.info(S).length, source)
        expected += b"%05d" % number
        assert rig.content() == expected
    assert rig.lengths()[:3] == [60] * 3
    assert len(rig.lengths()) < 3 + 8


def test_a_failing_merge_does_not_fail_the_concat(store: Store) -> None:
    faulty = FaultStore(store, verbs=("put", "concat"))
    rig = Rig.over(faulty, SMALL)
    target = rig.write(b"one", b"two")
    source = f"{S}#transaction.{1:032x}"
    rig.storage.seal(rig.write(b"three", b"four", segment=source))
    faulty.plan = fail_at(faulty.passed + 2, forever=True)
    rig.optimiser.concat(target, 6, source)
    faulty.plan = None
    assert rig.content() == b"onetwothreefour"


# -- who else is there


def test_merges_are_copied_elsewhere_and_swapped_here(rig: Rig) -> None:
    pieces = small_pieces(60)
    rig.write(*pieces)
    merges = rig.optimiser.plan(S)
    sent = pickle.dumps(merges)
    for merge in pickle.loads(sent):
        copy(merge, ChunkStorage(rig.store))
        copy(merge, ChunkStorage(rig.store))  # a task that was repeated
    assert all(rig.optimiser.swap(merge) for merge in merges)
    assert not any(rig.optimiser.swap(merge) for merge in merges), "swapped already"
    assert rig.content() == b"".join(pieces)


def test_a_swap_that_comes_too_late_is_refused(rig: Rig) -> None:
    data = b"".join(small_pieces(30))
    handle = rig.write(*small_pieces(30))
    merges = rig.optimiser.plan(S)
    for merge in merges:
        copy(merge, rig.chunks)
    rig.optimiser.optimise(S)  # somebody else was quicker
    assert not any(rig.optimiser.swap(merge) for merge in merges)
    assert rig.content() == data
    merges = rig.optimiser.plan(S) or merges
    rig.storage.truncate(handle, len(data) - 1)
    assert not any(rig.optimiser.run(merge) for merge in merges)
    rig.storage.delete(handle)
    rig.collect()
    assert not any(rig.optimiser.run(merge) for merge in merges)
    rig.collect(after=10 * 86400)
    assert rig.objects() == 0


def test_a_new_chunk_that_may_be_collected_is_not_swapped_in(store: Store) -> None:
    rig = Rig.over(store, SMALL)
    now = time.time()
    rig.storage.clock = lambda: now
    optimiser = rig.optimiser
    rig.write(*small_pieces(30))
    data = rig.content()
    slow, slower = optimiser.plan(S)[:2]
    copy(slow, rig.chunks)
    copy(slower, rig.chunks)
    now += SMALL.merge_time - SMALL.margin - 1
    rig.collect(SMALL.merge_time - SMALL.margin - 1)
    assert optimiser.swap(slow)
    now += 2
    assert not optimiser.swap(slower)
    rig.collect()
    assert rig.content() == data


def test_an_overtaken_instance_swaps_nothing(rig: Rig) -> None:
    pieces = small_pieces(30)
    rig.write(*pieces)
    merge, *_ = rig.optimiser.plan(S)
    copy(merge, rig.chunks)
    owner = Rig.over(rig.store, SMALL, MemoryMetadataStore(rig.metadata.table), epoch=2)
    owner.write(b"owner")
    with pytest.raises(StorageNotPrimary, match="epoch 2"):
        rig.optimiser.swap(merge)
    assert owner.content() == b"".join(pieces) + b"owner"


def test_two_optimisers_at_once(rig: Rig) -> None:
    pieces = small_pieces(200)
    rig.write(*pieces)
    threads = [threading.Thread(target=rig.optimiser.optimise, args=(S,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert rig.content() == b"".join(pieces)
    assert not verify(rig.metadata, rig.chunks).problems
    rig.collect()
    assert rig.content() == b"".join(pieces)
    assert rig.objects() == len(rig.lengths())


# -- crashes and faults


def test_a_crash_at_every_request(store: Store) -> None:
    """Nothing is lost, and nothing is left when the collector has been there."""
    pieces = small_pieces(12)

    def prepared() -> tuple[FaultStore, Rig]:
        inner = SimulatedStore(can_append=store.can_append)
        faulty = FaultStore(Joining(inner) if store.can_concat else inner)
        rig = Rig.over(faulty, OptimiserConfig(target=60, copy_buffer=20))
        rig.write(*pieces)
        return faulty, rig

    for number in range(1, 1000):
        for when in ("before", "partway", "after"):
            faulty, rig = prepared()
            faulty.plan = crash_at(faulty.passed + number, when)  # type: ignore[arg-type]
            with contextlib.suppress(Crashed):
                rig.optimiser.optimise(S)
            left = Rig.over(faulty.inner, SMALL, MemoryMetadataStore(rig.metadata.table), epoch=2)
            assert left.content() == b"".join(pieces)
            left.collect()
            left.collect(2 * 86400)
            assert left.content() == b"".join(pieces)
            assert left.objects() == len(left.lengths())
        if not faulty.crashed:
            break
    assert number > 8


def test_a_copy_that_was_begun_is_completed() -> None:
    store = SimulatedStore()
    rig = Rig.over(store, SMALL)
    rig.write(*small_pieces(20))
    data = rig.content()
    merge, *_ = rig.optimiser.plan(S)
    for length in range(0, merge.length + 1, 7):
        target = merge._replace(target=f"{merge.target}{length}")
        store.put(target.target, data[:length])
        copy(target, rig.chunks, buffer=16)
        assert store.read(target.target) == data[: merge.length]


# -- many chunks, readers and a writer


def numbered(number: int, size: int) -> bytes:
    return (b"%08d" % number * (size // 8 + 1))[:size]


def readers(
    rig: Rig, size: int, stop: threading.Event, count: int
) -> Iterator[tuple[threading.Thread, list[int], list[str]]]:
    """Threads that read anywhere in the segment, each with its count of reads and what was wrong."""
    for seed in range(count):
        reads, wrong = [0], []

        def read(seed: int = seed, reads: list[int] = reads, wrong: list[str] = wrong) -> None:
            chance = random.Random(seed)
            handle = rig.storage.open_read(S)
            try:
                while not stop.is_set():
                    length = rig.storage.info(S).length
                    start = chance.randrange(length)
                    end = min(length, start + chance.choice([1, size, 20 * size]))
                    data = rig.storage.read(handle, start, end - start)
                    first = start // size
                    expected = b"".join(numbered(at, size) for at in range(first, end // size + 1))
                    if data != expected[start - first * size :][: end - start]:
                        wrong.append(f"[{start}, {end})")
                    reads[0] += 1
            except BaseException as error:
                wrong.append(repr(error))
                raise

        yield threading.Thread(target=read), reads, wrong


def defragment(store: Store, count: int, size: int, target: int) -> dict[str, int]:
    """Merge `count` chunks of `size` bytes while four read and one appends; what it took."""
    counting = CountingStore(store)
    rig = Rig.over(counting, OptimiserConfig(target=target))
    handle = rig.storage.create(S)
    names = [WrittenChunk(f"attached/{number}", size) for number in range(count)]
    for number, (name, _, _) in enumerate(names):
        store.put(name, numbered(number, size))
    rig.storage.attach(handle, 0, names)
    appended = count
    stop = threading.Event()

    def write() -> None:
        nonlocal appended
        while not stop.is_set():
            with contextlib.suppress(ConcurrentModification):  # the collector says so when it met the segment's record
                rig.storage.write(handle, appended * size, numbered(appended, size))
                appended += 1
            time.sleep(0.001)

    threads = list(readers(rig, size, stop, 4))
    writer = threading.Thread(target=write)
    for thread in (writer, *(thread for thread, _, _ in threads)):
        thread.start()

    def wait_for_everybody() -> None:
        """Until everybody has read or written something more."""
        before = appended, [reads[0] for _, reads, _ in threads]
        while appended == before[0] or any(
            reads[0] == seen for (_, reads, _), seen in zip(threads, before[1], strict=True)
        ):
            assert not any(wrong for _, _, wrong in threads)
            assert writer.is_alive()
            time.sleep(0.001)

    try:
        wait_for_everybody()
        merges = rig.optimiser.plan(S)
        report = [rig.optimiser.run(merge) for merge in merges]
        wait_for_everybody()
        rig.collect()
        wait_for_everybody()
    finally:
        stop.set()
        for thread in (writer, *(thread for thread, _, _ in threads)):
            thread.join()
    assert all(report)
    assert [wrong for _, _, wrong in threads] == [[], [], [], []]
    lengths = [placed.chunk.length for placed in rig.storage.layout(S) if placed.start < count * size]
    assert all(0.9 * target <= length <= target for length in lengths[:-2])
    assert rig.content() == b"".join(numbered(number, size) for number in range(appended))
    assert not verify(rig.metadata, rig.chunks).problems
    assert not store.list("attached/")
    made = sum(counting.count(verb, merge.target) for merge in merges for verb in ("stat", "put", "append"))
    return {"chunks": len(lengths), "merges": len(merges), "requests that made them": made}


def test_defragmentation_while_others_read_and_write(tmp_path: Path) -> None:
    took = defragment(open_store(str(tmp_path)), 600, 64, 4 * KIB)
    assert took["merges"] == 10
    assert took["requests that made them"] == 3 * took["merges"]


@pytest.mark.long
@pytest.mark.timeout(900)  # 10,000 objects are made and deleted, each of which is synced
def test_defragmentation_of_ten_thousand_chunks(tmp_path: Path) -> None:
    took = defragment(open_store(str(tmp_path)), 10_000, KIB, 512 * KIB)
    assert took["merges"] == 20
    # Looked whether it is there, and whether its name is free, and put: three for each, besides a read of each part.
    assert took["requests that made them"] == 3 * took["merges"]


def test_the_requests_of_a_merge(store: Store) -> None:
    counting = CountingStore(store)
    rig = Rig.over(counting, OptimiserConfig(target=64 * KIB))
    rig.write(*[b"x" * KIB] * 65)
    counting.reset()
    [merge] = rig.optimiser.plan(S)
    assert dict(counting.counts) == {"put": 1}, "the new chunk is queued as garbage"
    counting.reset()
    assert rig.optimiser.run(merge)
    if store.can_concat:
        assert counting.bytes_read == 0
        assert counting.counts["concat"] == 1
    else:
        assert counting.bytes_read == merge.length
        assert dict(counting.counts) == {"read": 64, "stat": 2, "put": 2}, "the new chunk, and the old ones as garbage"


def test_a_merge_is_a_plain_value() -> None:
    merge = Merge(S, 5, (), "target", 1.0)
    assert pickle.loads(pickle.dumps(merge)) == merge
    assert merge.length == 0
    assert ChunkHandle("a", read_only=True).name == "a"
