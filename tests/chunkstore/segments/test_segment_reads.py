"""Reads: in parallel, ahead of who reads in sequence, while chunks are replaced and go; and how fast they are."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from chunkstore import Store, open_store
from chunkstore.metadata.store import MemoryMetadataStore
from chunkstore.segments.chunk_list import WrittenChunk
from chunkstore.segments.errors import SegmentDamaged, StoredSegmentTruncated
from chunkstore.segments.segment_reads import ReadConfig, SegmentReads
from chunkstore.segments.storage import ChunkedSegmentStorage
from chunkstore.testing import CountingStore, SimulatedStore, WrappingStore
from chunkstore.testing.contracts import refused
from chunkstore.wrapping import Request
from tests.support.segment_contracts import DATA, NAME, World, take_over

HANDLE = NAME


class WatchedStore(WrappingStore):
    """Counts reads under way, and calls `before_read`."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.before_read: Callable[[], object] = lambda: None
        self.under_way = 0
        self.most = 0
        self.reads = 0
        self._lock = threading.Lock()

    def _carry_out(self, request: Request, call: Any) -> Any:
        if not request.verb.startswith("read"):
            return call()
        with self._lock:
            self.reads += 1
            self.under_way += 1
            self.most = max(self.most, self.under_way)
        try:
            self.before_read()
            return call()
        finally:
            with self._lock:
                self.under_way -= 1


def opened(store: Store, lengths: list[int], config: ReadConfig) -> tuple[World, SegmentReads]:
    """A world with a segment of chunks with these lengths, and reads with nothing in memory."""
    world = World(store)
    world.make(world.open(), NAME, lengths)
    return world, SegmentReads(world.chunks, MemoryMetadataStore(world.table), config)


@pytest.mark.parametrize("lengths", [[100] * 4, [400]], ids=["four chunks", "one large chunk"])
def test_a_range_is_read_in_parallel(lengths: list[int]) -> None:
    store = WatchedStore(SimulatedStore())
    _, reads = opened(store, lengths, ReadConfig(part=100, parallel=4))
    meeting = threading.Barrier(4, timeout=20)  # broken unless four reads are under way at once
    store.before_read = meeting.wait
    assert reads.read(NAME, 0, 400) == DATA[:400]
    assert store.most == 4
    reads.close()


def test_a_sequential_reader_is_read_ahead_for() -> None:
    store = WatchedStore(SimulatedStore())
    _, reads = opened(store, [100, 30, 170, 300], ReadConfig(part=50, parallel=4, ahead=4))
    meeting = threading.Barrier(4, timeout=20)
    store.before_read = meeting.wait
    pieces = reads.scan(NAME, 0, 600)
    assert next(pieces) == DATA[:50]
    assert store.reads == 4  # no more than it may hold
    store.before_read = lambda: None
    assert b"".join(pieces) == DATA[50:600]
    reads.close()


def test_a_reader_that_stops_early_leaves_nothing_behind() -> None:
    store = WatchedStore(SimulatedStore())
    _, reads = opened(store, [1000], ReadConfig(part=10, parallel=1, ahead=20))
    pieces = reads.scan(NAME, 0)
    assert next(pieces) == DATA[:10]
    pieces.close()  # type: ignore[attr-defined]
    reads.close()
    assert store.reads < 1000 // 10


def test_another_executor_may_be_used() -> None:
    with ThreadPoolExecutor(3) as executor:
        world = World(SimulatedStore())
        world.make(world.open(), NAME, [10] * 50)
        reads = SegmentReads(world.chunks, MemoryMetadataStore(world.table), ReadConfig(part=7), executor)
        assert reads.read(NAME, 3, 400) == DATA[3:403]
        assert b"".join(reads.scan(NAME, 3)) == DATA[3:500]
        reads.close()
        assert executor.submit(lambda: 1).result() == 1  # it is not ours to shut down


def test_small_reads_need_no_threads() -> None:
    _, reads = opened(SimulatedStore(), [1000], ReadConfig())
    before = threading.active_count()
    assert reads.read(NAME, 10, 500) == DATA[10:510]
    assert threading.active_count() == before


def test_a_range_is_read_from_the_chunks_that_hold_it() -> None:
    store = CountingStore(SimulatedStore())
    _, reads = opened(store, [10, 20, 30], ReadConfig())
    names = [placed.chunk.name for placed in reads.layout(NAME)]
    for start, length, read in ((5, 40, names), (30, 30, names[2:]), (29, 1, names[1:2]), (60, 0, [])):
        store.reset()
        assert reads.read(NAME, start, length) == DATA[start : start + length]
        assert sorted(path for request in store.requests for path in request.paths) == sorted(read)
    reads.close()


# -- while others change the segment


def replace_all(world: World, segments: ChunkedSegmentStorage) -> None:
    """Put one chunk in the place of all, and collect those."""
    layout = list(segments.layout(NAME))
    (new,) = segments.track_new_chunks(NAME, [0])
    world.chunks.put(new.name, DATA[layout[0].start : layout[-1].end])
    names = [placed.chunk.name for placed in layout]
    length = layout[-1].end - layout[0].start
    segments.replace_chunks(NAME, layout[0].start, names, new, length)
    world.collect()


def test_a_reader_with_old_metadata_survives_that_chunks_are_replaced() -> None:
    world, reads = opened(SimulatedStore(), [10] * 50, ReadConfig(part=10))
    assert reads.read(NAME, 0, 500) == DATA[:500]  # all is in its memory now
    replace_all(world, world.open())
    assert reads.read(NAME, 100, 200) == DATA[100:300]
    replace_all(world, world.open())
    assert reads.read(NAME, 0, 500) == DATA[:500]
    reads.close()


def test_a_sequential_reader_survives_that_chunks_are_replaced() -> None:
    world, reads = opened(SimulatedStore(), [10] * 50, ReadConfig(part=10, ahead=2))
    pieces = reads.scan(NAME, 0)
    read = next(pieces)
    replace_all(world, world.open())
    assert read + b"".join(pieces) == DATA[:500]
    reads.close()


def test_a_reader_is_told_of_truncation_and_not_of_a_missing_chunk() -> None:
    world, reads = opened(SimulatedStore(), [10] * 50, ReadConfig(part=10))
    assert reads.read(NAME, 0, 500) == DATA[:500]
    segments = world.open()
    segments.truncate(NAME, 105)
    world.collect()
    error = refused(StoredSegmentTruncated, reads.read, NAME, 0, 200)
    assert (error.offset, error.start_offset) == (0, 105)
    assert reads.read(NAME, 105, 100) == DATA[105:205]
    reads.close()


def test_a_chunk_that_stays_away_is_damage() -> None:
    world, reads = opened(SimulatedStore(), [10] * 3, ReadConfig())
    (_, middle, _) = reads.layout(NAME)
    world.chunks.delete([middle.chunk.name])
    assert middle.chunk.name in str(refused(SegmentDamaged, reads.read, NAME, 0, 30))
    assert reads.read(NAME, 20, 10) == DATA[20:30]
    reads.close()


def test_readers_are_right_while_chunks_are_replaced_truncated_and_written() -> None:
    world = World(SimulatedStore())
    segments = world.open()
    segments.create(NAME)
    done = threading.Event()
    failures: list[object] = []

    def read_on() -> None:
        metadata = MemoryMetadataStore(world.table)
        reads = SegmentReads(world.chunks, metadata, ReadConfig(part=30))
        for turn in itertools.count():
            if done.is_set():
                break
            if turn % 10 == 0:
                metadata.evict_all()  # learns of what is new
            try:
                info = next(world_info(metadata))
                start = info[0] + turn % 50
                data = b"".join(reads.scan(NAME, start)) if turn % 2 else reads.read(NAME, start, info[1] - start)
            except StoredSegmentTruncated:
                continue
            except BaseException as error:
                failures.append(error)
                raise
            if data != repeated(start, start + len(data)):
                failures.append((start, data))
        reads.close()

    def world_info(metadata: MemoryMetadataStore) -> Iterator[tuple[int, int]]:
        with metadata.begin(read_only=True) as transaction:
            record = transaction.segment(NAME)
            assert record is not None
            yield record.start_offset, record.length

    segments.write(NAME, 0, repeated(0, 1000))
    readers = [threading.Thread(target=read_on) for _ in range(3)]
    for reader in readers:
        reader.start()
    end, start = 1000, 0
    for turn in range(60):
        writer = world.open(turn + 2)  # each write a chunk of its own
        take_over(writer, NAME)
        end += writer.write(NAME, end, repeated(end, end + 100))
        if turn % 5 == 4:
            layout = list(writer.layout(NAME))
            (new,) = writer.track_new_chunks(NAME, [layout[0].start])
            world.chunks.put(new.name, repeated(layout[0].start, layout[-2].end))
            names = [placed.chunk.name for placed in layout[:-1]]
            length = layout[-2].end - layout[0].start
            writer.replace_chunks(NAME, layout[0].start, names, new, length)
        if turn % 7 == 6:
            start += 120
            writer.truncate(NAME, start)
        world.collect()
    done.set()
    for reader in readers:
        reader.join()
    assert not failures
    assert world.content(writer, NAME) == repeated(start, end)


def repeated(start: int, end: int) -> bytes:
    return bytes(at * 7 % 251 for at in range(start, end))


# -- how fast


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_sequential_read_is_nearly_as_fast_as_the_files(tmp_path: Path) -> None:
    """1 GiB in 64 chunks, against reading the same files with the same number of threads and the same sizes."""
    size, count = 16 << 20, 64
    store = open_store(str(tmp_path))
    world = World(store)
    segments = world.open()
    segments.create(NAME)
    content = os.urandom(1 << 20) * 16
    chunks = []
    for number in range(count):
        name = f"scope/stream/chunk{number:03d}"
        store.put(name, content)
        chunks.append(WrittenChunk(name, size))
    segments.attach(NAME, 0, chunks)
    config = ReadConfig()
    reads = SegmentReads(world.chunks, MemoryMetadataStore(world.table), config)

    def through_segments() -> int:
        return sum(len(piece) for piece in reads.scan(NAME, 0))

    def directly() -> int:
        total = 0
        under_way: deque[Any] = deque()
        with ThreadPoolExecutor(config.parallel) as executor:
            for chunk in chunks:
                for at in range(0, size, config.part):
                    under_way.append(executor.submit(read_file, str(tmp_path / chunk.name), at, config.part))
                    if len(under_way) == config.ahead:
                        total += len(under_way.popleft().result())
            return total + sum(len(future.result()) for future in under_way)

    ratios = []
    for _ in range(5):
        seconds = []
        for read in (directly, through_segments):
            started = time.perf_counter()
            assert read() == size * count
            seconds.append(time.perf_counter() - started)
        ratios.append(seconds[0] / seconds[1])
    reads.close()
    assert max(ratios) >= 0.8, ratios


def read_file(path: str, start: int, length: int) -> bytes:
    with open(path, "rb", buffering=0) as file:
        file.seek(start)
        return file.read(length)


def test_a_scan_costs_one_request_for_each_part() -> None:
    store = CountingStore(SimulatedStore())
    _, reads = opened(store, [100] * 8, ReadConfig(part=60))
    store.reset()
    assert b"".join(reads.scan(NAME, 0)) == DATA[:800]
    assert store.counts == {"read": 16}
    reads.close()
