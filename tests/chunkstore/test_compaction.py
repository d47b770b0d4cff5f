"""Compaction: small chunks become one, readers and writers go on, and nothing is lost whenever it stops."""

from __future__ import annotations

import contextlib
import pickle
import random
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from chunkstore import Store, compaction, open_store
from chunkstore.checksums import block_checksums
from chunkstore.compaction import CompactionReport, CompactionTask, Compactor, copy_task
from chunkstore.garbage_collector import GarbageCollector
from chunkstore.metadata.store import MemoryMetadataStore
from chunkstore.pravega.journal import SystemJournal, system_segments
from chunkstore.segments.chunk_list import WrittenChunk
from chunkstore.segments.errors import (
    ConcurrentModification,
    SegmentDamaged,
    StorageNotPrimary,
    StoredSegmentNotFound,
)
from chunkstore.segments.storage import ChunkedSegmentStorage, SegmentStorageConfig
from chunkstore.testing import CountingStore, Crashed, FaultStore, SimulatedStore, crash_at
from chunkstore.testing.faults import When
from tests.support.garbage_queue import StoreGarbageQueue

S = "scope/stream/0"
KIB = 1 << 10
DELAY = 7200.0


class Rig(NamedTuple):
    """A storage and all that belongs to it."""

    store: Store
    chunks: Store
    metadata: MemoryMetadataStore
    garbage: StoreGarbageQueue
    storage: ChunkedSegmentStorage
    compactor: Compactor

    @classmethod
    def over(cls, store: Store, target: int = 100, metadata: MemoryMetadataStore | None = None, epoch: int = 1) -> Rig:
        chunks, garbage = store, StoreGarbageQueue(store, 0)
        metadata = metadata or MemoryMetadataStore()
        # Every write is a chunk, so that there are many.
        storage = ChunkedSegmentStorage(
            chunks, metadata, garbage, epoch, SegmentStorageConfig(appends=False, garbage_delay=DELAY)
        )
        return cls(store, chunks, metadata, garbage, storage, Compactor(storage, chunks, metadata, target))

    def write(self, *pieces: bytes, segment: str = S, rolling: int = 0) -> None:
        if not self.storage.exists(segment):
            self.storage.create(segment, rolling)
        for piece in pieces:
            self.storage.write(segment, self.storage.info(segment).length, piece)

    def lengths(self, segment: str = S) -> list[int]:
        return [placed.chunk.length for placed in self.storage.layout(segment)]

    def content(self, segment: str = S) -> bytes:
        info = self.storage.info(segment)
        return self.storage.read(segment, info.start_offset, info.length - info.start_offset)

    def collect(self, after: float = 86400) -> None:
        GarbageCollector(self.chunks, self.metadata, self.garbage).run_once(time.time() + after)

    def objects(self) -> int:
        return sum(".E-" in found.path for found in self.store.list("scope/"))

    def compact(self, segment: str = S) -> CompactionReport:
        """Its report, an empty one if there was nothing to do."""
        return next(iter(self.compactor.compact([segment])), CompactionReport(segment))

    def run(self, merge: CompactionTask) -> bool:
        """Copy and swap."""
        checksums = copy_task(merge, self.chunks)
        return checksums is not None and self.compactor.swap(merge, checksums)

    def assert_consistent(self) -> None:
        """Every chunk that the metadata names is there, no shorter than it should be, and is what was written."""
        for info in self.storage.list():
            for placed in self.storage.layout(info.name):
                data = self.chunks.read(placed.chunk.name, 0, placed.chunk.length)
                assert len(data) == placed.chunk.length
                assert placed.chunk.checksums in (b"", block_checksums(data))


@pytest.fixture(params=["appending", "putting"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return open_store(str(tmp_path)) if request.param == "appending" else SimulatedStore(can_append=False)


@pytest.fixture
def rig(store: Store) -> Rig:
    return Rig.over(store)


def small_pieces(count: int, seed: int = 0, longest: int = 20) -> list[bytes]:
    chance = random.Random(seed)
    return [chance.randbytes(chance.randint(1, longest)) for _ in range(count)]


def test_small_chunks_become_large_ones(rig: Rig) -> None:
    pieces = small_pieces(100)
    rig.write(*pieces)
    report = rig.compact()
    lengths = rig.lengths()
    assert rig.content() == b"".join(pieces)
    assert all(80 < length <= 100 for length in lengths[:-2])
    assert report.merges >= len(lengths) - 2 and not report.refused
    assert report.bytes == sum(lengths) - len(pieces[-1])
    assert report.chunks == 99
    rig.assert_consistent()
    rig.collect()
    assert rig.objects() == len(lengths)
    assert rig.content() == b"".join(pieces)
    rig.write(b"and more")
    assert rig.content() == b"".join(pieces) + b"and more"


def test_what_is_merged_is_not_merged_again(rig: Rig) -> None:
    rig.write(*small_pieces(100))
    rig.compact()
    assert rig.compactor.plan(S) == []


def test_every_byte_is_copied_a_few_times_only(rig: Rig) -> None:
    """Chunks come in one by one, and compaction runs after each."""
    copied = 0
    for _ in range(200):
        rig.write(b"x")
        copied += rig.compact().bytes
    assert copied <= 200 * 8
    assert len(rig.lengths()) < 15


def test_the_rolling_length_is_a_limit(rig: Rig) -> None:
    rig.write(*[b"x" * 4] * 20, rolling=10)
    rig.compact()
    assert rig.lengths() == [8] * 9 + [4, 4]


def test_the_last_chunk_is_left_until_the_segment_is_sealed(rig: Rig) -> None:
    rig.write(b"a", b"b")
    assert rig.compactor.plan(S) == []
    rig.storage.seal(S)
    rig.compact()
    assert rig.lengths() == [2]


def test_truncated_chunks_are_left_alone(rig: Rig) -> None:
    pieces = small_pieces(50)
    rig.write(*pieces)
    data = b"".join(pieces)
    rig.storage.truncate(S, 123)
    rig.compact()
    assert rig.content() == data[123:]
    rig.storage.truncate(S, len(data))
    assert rig.compactor.plan(S) == []


def test_only_what_counts_of_a_chunk_is_copied(rig: Rig) -> None:
    """A zombie's bytes behind the length in the metadata."""
    rig.write(b"one", b"two", b"three", b"end")
    for placed in list(rig.storage.layout(S))[:2]:
        rig.store.put(placed.chunk.name, rig.store.read(placed.chunk.name) + b"zombie")
    rig.compact()
    assert rig.lengths() == [11, 3]
    assert rig.content() == b"onetwothreeend"


def test_what_nobody_has_or_nobody_may_merge(store: Store) -> None:
    rig = Rig.over(store)
    with pytest.raises(StoredSegmentNotFound):
        rig.compactor.plan(S)
    journal = SystemJournal(store, 0, 1, rig.garbage)
    journal.boot(rig.metadata)
    storage = ChunkedSegmentStorage(
        rig.chunks, rig.metadata, rig.garbage, 1, SegmentStorageConfig(appends=False), journal=journal.record
    )
    segment = system_segments(0)[0]
    for at in range(10):
        storage.write(segment, at, b"x")
    assert list(Compactor(storage, rig.chunks, rig.metadata, 100).compact([segment])) == []


def test_long_chunks_stay(rig: Rig) -> None:
    rig.write(*[b"a" * 2, b"b" * 2, b"c" * 60, b"d" * 2, b"e" * 30, b"f" * 30, b"g" * 2, b"end"])
    rig.compact()
    assert rig.lengths() == [4, 60, 64, 3], "longer than half the target stays"


def test_a_merge_has_a_bounded_number_of_parts(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "PARTS", 7)
    rig = Rig.over(store, 1000)
    rig.write(*[b"x"] * 50)
    rig.compact()
    assert rig.lengths() == [7] * 7 + [1]


@pytest.mark.parametrize(
    ("damage", "problem"), [(b"o", "ends before"), (b"onE", "fails its checksums"), (None, "missing")]
)
def test_what_is_damaged_is_not_merged(rig: Rig, damage: bytes | None, problem: str) -> None:
    """A merge would carry the damage into a chunk that nobody has another copy of, and give it checksums that fit."""
    rig.write(b"one", b"two", b"end")
    chunk = next(rig.storage.layout(S)).chunk.name
    rig.store.put(chunk, damage) if damage is not None else rig.store.delete([chunk])
    with pytest.raises(SegmentDamaged, match=problem) as raised:
        rig.compact()
    assert raised.value.segment == S and chunk in str(raised.value)
    assert rig.lengths() == [3, 3, 3]


def test_what_was_written_elsewhere_without_checksums_gets_some(rig: Rig) -> None:
    rig.storage.create(S)
    for number in range(3):
        rig.store.put(f"attached/{number}", b"data")
    rig.storage.attach(S, 0, [WrittenChunk(f"attached/{number}", 4) for number in range(3)])
    rig.compact()
    first, last = rig.storage.layout(S)
    assert (first.chunk.checksums, last.chunk.checksums) == (block_checksums(b"datadata"), b"")


def test_segments_are_merged_together(rig: Rig) -> None:
    """As many merges as are wanted at a time are copied by one call, in any order; each segment has its own report."""
    segments = [f"scope/stream/{number}" for number in range(5)]
    for segment in segments:
        rig.write(*[b"x" * 10] * 21, segment=segment)
    calls = []

    def copies(merges: Sequence[CompactionTask]) -> list[bytes | None]:
        calls.append(len(merges))
        done = {merge: copy_task(merge, rig.chunks) for merge in reversed(merges)}
        return [done[merge] for merge in merges]

    reports = list(rig.compactor.compact([*segments, "scope/stream/none"], copies, together=3))
    assert calls == [4, 4, 2]
    assert reports == [CompactionReport(segment, 2, 20, 200) for segment in segments]
    assert list(rig.compactor.compact(segments, copies)) == []


def test_a_merge_that_came_too_late_is_planned_again(rig: Rig) -> None:
    rig.write(*[b"x" * 10] * 41)
    now = time.time()
    rig.storage.clock = lambda: now

    def copies(merges: Sequence[CompactionTask]) -> Iterator[bytes | None]:
        nonlocal now
        for merge in merges:
            now += 0.6 * DELAY / 2
            yield copy_task(merge, rig.chunks)

    [report] = rig.compactor.compact([S], copies)
    assert (report.merges, report.refused) == (4, 0)
    assert rig.lengths() == [100] * 4 + [10]


# -- who else is there


def test_merges_are_copied_elsewhere_and_swapped_here(rig: Rig) -> None:
    pieces = small_pieces(60)
    rig.write(*pieces)
    merges = rig.compactor.plan(S)
    sent, checksums = pickle.dumps(merges), list[bytes]()
    for merge in pickle.loads(sent):
        checksums.append(copy_task(merge, rig.store) or b"")
        assert copy_task(merge, rig.store) == checksums[-1], "a task that was repeated"
    assert all(map(rig.compactor.swap, merges, checksums))
    assert not any(map(rig.compactor.swap, merges, checksums)), "swapped already"
    rig.assert_consistent()
    assert rig.content() == b"".join(pieces)


def test_a_swap_that_comes_too_late_is_refused(rig: Rig) -> None:
    data = b"".join(small_pieces(30))
    rig.write(*small_pieces(30))
    merges = rig.compactor.plan(S)
    checksums = [copy_task(merge, rig.chunks) or b"" for merge in merges]
    rig.compact()  # somebody else was quicker
    assert not any(map(rig.compactor.swap, merges, checksums))
    assert rig.content() == data
    merges = rig.compactor.plan(S) or merges
    rig.storage.truncate(S, len(data) - 1)
    assert not any(rig.run(merge) for merge in merges)
    rig.storage.delete(S)
    rig.collect()
    assert not any(rig.run(merge) for merge in merges)
    rig.collect(after=10 * 86400)
    assert rig.objects() == 0


def test_a_new_chunk_that_may_be_collected_is_not_swapped_in(store: Store) -> None:
    rig = Rig.over(store)
    now = time.time()
    rig.storage.clock = lambda: now
    rig.write(*small_pieces(30))
    data = rig.content()
    (slow, of_slow), (slower, of_slower) = (
        (merge, copy_task(merge, rig.chunks) or b"") for merge in rig.compactor.plan(S)[:2]
    )
    now += DELAY / 2 - 1
    rig.collect(DELAY / 2 - 1)
    assert rig.compactor.swap(slow, of_slow)
    now += 2
    assert not rig.compactor.swap(slower, of_slower)
    rig.collect()
    assert rig.content() == data


def test_any_instance_may_merge(rig: Rig) -> None:
    """No byte of the segment changes, so who owns it does not matter; and it is not taken from its owner."""
    pieces = small_pieces(30)
    rig.write(*pieces)
    merge, *_ = rig.compactor.plan(S)
    owner = Rig.over(rig.store, 100, MemoryMetadataStore(rig.metadata.table), epoch=2)
    owner.write(b"owner")
    assert not rig.run(merge), "it knew an older record"
    assert rig.compact().merges
    with pytest.raises(StorageNotPrimary, match="epoch 2"):
        rig.storage.write(S, owner.storage.info(S).length, b"overtaken")
    with contextlib.suppress(ConcurrentModification):
        owner.write(b" goes on")
    assert owner.content().startswith(b"".join(pieces) + b"owner")
    owner.assert_consistent()


def test_two_compactors_at_once(rig: Rig) -> None:
    pieces = small_pieces(200)
    rig.write(*pieces)
    threads = [threading.Thread(target=rig.compact) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert rig.content() == b"".join(pieces)
    rig.assert_consistent()
    rig.collect()
    assert rig.content() == b"".join(pieces)
    assert rig.objects() == len(rig.lengths())


# -- crashes and faults


@pytest.mark.parametrize("when", ["before", "partway", "after"])
def test_a_crash_at_every_request(store: Store, when: When) -> None:
    """Nothing is lost, and nothing is left when the collector has been there."""
    pieces = small_pieces(12)

    def prepared() -> tuple[FaultStore, Rig]:
        faulty = FaultStore(SimulatedStore(can_append=store.can_append))
        rig = Rig.over(faulty, 60)
        rig.write(*pieces)
        return faulty, rig

    for number in range(1, 1000):
        faulty, rig = prepared()
        faulty.plan = crash_at(faulty.passed + number, when)
        with contextlib.suppress(Crashed):
            rig.compact()
        left = Rig.over(faulty.inner, 60, MemoryMetadataStore(rig.metadata.table), epoch=2)
        assert left.content() == b"".join(pieces)
        left.collect()
        left.collect(2 * 86400)
        assert left.content() == b"".join(pieces)
        assert left.objects() == len(left.lengths())
        if not faulty.crashed:
            break
    assert number > 8


# -- many chunks, readers and a writer


def numbered(number: int, size: int) -> bytes:
    return (b"%08d" % number * (size // 8 + 1))[:size]


def readers(
    rig: Rig, size: int, stop: threading.Event, count: int
) -> Iterator[tuple[threading.Thread, list[int], list[str]]]:
    """Threads that read anywhere in the segment, each with its count of reads and what was wrong."""
    for seed in range(count):
        reads, wrong = [0], list[str]()

        def read(seed: int = seed, reads: list[int] = reads, wrong: list[str] = wrong) -> None:
            chance = random.Random(seed)
            try:
                while not stop.is_set():
                    length = rig.storage.info(S).length
                    start = chance.randrange(length)
                    end = min(length, start + chance.choice([1, size, 20 * size]))
                    data = rig.storage.read(S, start, end - start)
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
    rig = Rig.over(counting, target)
    rig.storage.create(S)
    names = [WrittenChunk(f"attached/{number}", size) for number in range(count)]
    for number, (name, _, _) in enumerate(names):
        store.put(name, numbered(number, size))
    rig.storage.attach(S, 0, names)
    appended = count
    stop = threading.Event()

    def write() -> None:
        nonlocal appended
        while not stop.is_set():
            with contextlib.suppress(ConcurrentModification):  # the collector says so when it met the segment's record
                rig.storage.write(S, appended * size, numbered(appended, size))
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
        merges = rig.compactor.plan(S)
        report = [rig.run(merge) for merge in merges]
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
    rig.assert_consistent()
    assert not store.list("attached/")
    made = sum(counting.count(verb, merge.target) for merge in merges for verb in ("stat", "put", "append"))
    return {"chunks": len(lengths), "merges": len(merges), "requests that made them": made}


def test_defragmentation_while_others_read_and_write(tmp_path: Path) -> None:
    took = defragment(open_store(str(tmp_path)), 600, 64, 4 * KIB)
    assert took["merges"] == 10
    assert took["requests that made them"] == 2 * took["merges"]


@pytest.mark.long
@pytest.mark.timeout(900)  # 10,000 objects are made and deleted, each of which is synced
def test_defragmentation_of_ten_thousand_chunks(tmp_path: Path) -> None:
    took = defragment(open_store(str(tmp_path)), 10_000, KIB, 512 * KIB)
    assert took["merges"] == 20
    # Looked whether its name is free, and put: two for each, besides a read of each part.
    assert took["requests that made them"] == 2 * took["merges"]


def test_the_requests_of_a_merge(store: Store) -> None:
    counting = CountingStore(store)
    rig = Rig.over(counting, 64 * KIB)
    rig.write(*[b"x" * KIB] * 65)
    counting.reset()
    [merge] = rig.compactor.plan(S)
    assert dict(counting.counts) == {"put": 1}, "the new chunk is queued as garbage"
    counting.reset()
    assert rig.run(merge)
    assert counting.bytes_read == merge.length
    assert dict(counting.counts) == {"read": 64, "stat": 1, "put": 2}, "the new chunk, and the old ones as garbage"


def test_a_merge_is_a_plain_value() -> None:
    merge = CompactionTask(S, 5, (), "target", 1.0)
    assert pickle.loads(pickle.dumps(merge)) == merge
    assert merge.length == 0
