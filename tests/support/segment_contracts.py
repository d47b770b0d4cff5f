"""What segments must do over any chunk storage, as test methods: subclass it and give it a `chunks` fixture.

class TestMySegments(SegmentContract):
    @pytest.fixture
    def chunks(self): return MyStore(…)
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from chunkstore import Store
from chunkstore.chunk_names import new_chunk_name
from chunkstore.garbage_collector import GarbageCollector
from chunkstore.metadata.store import MemoryMetadataStore, MemoryTable
from chunkstore.segments.chunk_list import WrittenChunk
from chunkstore.segments.errors import (
    BadStoredOffset,
    ChunkInUse,
    ConcurrentModification,
    SegmentDamaged,
    SegmentError,
    SegmentUnsupported,
    StorageNotPrimary,
    StoredSegmentExists,
    StoredSegmentNotFound,
    StoredSegmentNotSealed,
    StoredSegmentSealed,
    StoredSegmentTruncated,
)
from chunkstore.segments.segment_reads import ReadConfig, SegmentReads
from chunkstore.segments.storage import ChunkedSegmentStorage, NewChunk, SegmentStorageConfig
from chunkstore.testing.contracts import BAD_PATHS, refused
from tests.support.garbage_queue import StoreGarbageQueue

NAME = "scope/stream/0.#epoch.0"
OTHER = "scope/stream/1.#epoch.0"
DATA = bytes(range(250)) * 4
SMALL = SegmentStorageConfig(relocate_min=100, relocate_max=200)


@dataclass
class World:
    """One storage with its metadata, for several instances that take over from one another. `now` is the time."""

    chunks: Store
    table: MemoryTable = field(default_factory=MemoryTable)
    now: float = 1_000_000_000.0
    metadata: MemoryMetadataStore | None = None

    def open(self, epoch: int = 1, config: SegmentStorageConfig = SMALL) -> ChunkedSegmentStorage:
        """An instance of its own, with nothing in memory."""
        metadata = self.metadata = MemoryMetadataStore(self.table)
        reads = SegmentReads(self.chunks, metadata, ReadConfig(part=64))
        return ChunkedSegmentStorage(
            self.chunks, metadata, self.queue, epoch, config, reads=reads, clock=lambda: self.now
        )

    @property
    def queue(self) -> StoreGarbageQueue:
        return StoreGarbageQueue(self.chunks, 0)

    def collect(self) -> None:
        """Collect all garbage, as the process of the last instance."""
        self.now += 61
        metadata = self.metadata or MemoryMetadataStore(self.table)
        for _ in range(2):
            report = GarbageCollector(self.chunks, metadata, self.queue).run_once(self.now)
            assert not report.retried and not report.failed

    def stored_chunks(self) -> set[str]:
        return {info.path for info in self.chunks.list("scope/")}

    def content(self, segments: ChunkedSegmentStorage, name: str) -> bytes:
        """The segment's bytes, put together from its chunks' objects at the lengths that the metadata says."""
        start = segments.info(name).start_offset
        layout = list(segments.layout(name))
        pieces = [self.chunks.read(p.chunk.name, 0, p.chunk.length) for p in layout]
        return b"".join(pieces)[start - layout[0].start :] if layout else b""

    def make(self, segments: ChunkedSegmentStorage, name: str, lengths: Sequence[int]) -> None:
        """A segment of chunks with these lengths, with the beginning of DATA in it."""
        segments.create(name)
        at = 0
        for length in lengths:
            chunk = new_chunk_name(name, 0, at)
            self.chunks.put(chunk, DATA[at : at + length])
            segments.attach(name, at, [WrittenChunk(chunk, length)])
            at += length


def take_over(segments: ChunkedSegmentStorage, name: str) -> None:
    """Let this instance's epoch own a segment, by a change that changes nothing else."""
    (segments.seal if segments.info(name).sealed else segments.unseal)(name)


class SegmentContract:
    """The contract. What the storage supports is taken from what it says of itself."""

    @pytest.fixture
    def world(self, chunks: Store) -> World:
        return World(chunks)

    @pytest.fixture
    def segments(self, world: World) -> ChunkedSegmentStorage:
        return world.open()

    # -- existence

    def test_a_new_segment_is_empty(self, world: World, segments: ChunkedSegmentStorage) -> None:
        assert not segments.exists(NAME)
        segments.create(NAME)
        assert segments.exists(NAME)
        info = segments.info(NAME)
        assert (info.name, info.length, info.start_offset, info.sealed) == (NAME, 0, 0, False)
        assert info.last_modified == int(world.now * 1000)
        assert segments.read(NAME, 0, 0) == b""
        assert list(segments.layout(NAME)) == []
        assert not world.stored_chunks()

    def test_a_name_is_taken_once(self, segments: ChunkedSegmentStorage) -> None:
        segments.create(NAME)
        assert refused(StoredSegmentExists, segments.create, NAME).segment == NAME

    def test_names_and_rolling_lengths_are_checked(self, segments: ChunkedSegmentStorage) -> None:
        for name in BAD_PATHS:
            refused(ValueError, segments.create, name)
        refused(ValueError, segments.create, "a" * 880)  # its chunks' names are longer
        refused(ValueError, segments.create, NAME, -1)
        assert list(segments.list()) == []

    def test_listing(self, segments: ChunkedSegmentStorage) -> None:
        for name in (NAME, OTHER, "other/stream/0"):
            segments.create(name)
        segments.create("scope/gone")
        segments.delete("scope/gone")
        assert {info.name for info in segments.list()} == {NAME, OTHER, "other/stream/0"}
        assert {info.name for info in segments.list("scope/")} == {NAME, OTHER}

    def test_what_does_not_exist(self, segments: ChunkedSegmentStorage) -> None:
        calls: list[tuple[Any, ...]] = [
            (segments.info, NAME),
            (segments.write, NAME, 0, b"x"),
            (segments.attach, NAME, 0, [WrittenChunk("chunk", 1)]),
            (segments.read, NAME, 0, 0),
            (segments.seal, NAME),
            (segments.unseal, NAME),
            (segments.truncate, NAME, 0),
            (segments.delete, NAME),
            (lambda: list(segments.layout(NAME)),),
            (lambda: list(segments.scan(NAME, 0)),),
        ]
        for call in calls:
            assert refused(StoredSegmentNotFound, *call).segment == NAME
        segments.create(NAME)
        segments.delete(NAME)
        for call in calls:
            assert refused(StoredSegmentNotFound, *call).segment == NAME

    # -- writing and reading

    def test_written_bytes_are_read(self, world: World, segments: ChunkedSegmentStorage) -> None:
        segments.create(NAME)
        assert segments.write(NAME, 0, DATA[:100]) == 100
        assert (
            segments.write(NAME, 100, [DATA[100:150], b"", bytearray(DATA[150:151]), memoryview(DATA)[151:]])
            == 849 + 51
        )
        assert segments.write(NAME, 1000, b"") == 0
        assert segments.info(NAME).length == 1000
        for offset, length in [(0, 1000), (0, 0), (1000, 0), (99, 2), (500, 1), (150, 700)]:
            expected = DATA[offset : offset + length]
            assert segments.read(NAME, offset, length) == expected
            assert b"".join(segments.scan(NAME, offset, offset + length)) == expected
        assert b"".join(segments.scan(NAME, 1)) == DATA[1:]
        assert world.content(segments, NAME) == DATA

    def test_chunks_roll_over(self, world: World, segments: ChunkedSegmentStorage) -> None:
        segments.create(NAME, 64)
        at = 0
        for length in (1, 63, 64, 65, 10, 200, 53, 1):
            segments.write(NAME, at, DATA[at : at + length])
            at += length
        layout = list(segments.layout(NAME))
        assert all(placed.chunk.length <= 64 for placed in layout)
        assert [placed.start for placed in layout][1:] == [placed.end for placed in layout][:-1]
        if world.chunks.can_append:
            assert [placed.chunk.length for placed in layout] == [64] * 7 + [9]
        assert world.content(segments, NAME) == segments.read(NAME, 0, at) == DATA[:at]

    def test_one_write_is_one_chunk_without_appends(self, world: World) -> None:
        segments = world.open(config=SegmentStorageConfig(appends=False))
        segments.create(NAME)
        for at in range(5):
            segments.write(NAME, at, DATA[at : at + 1])
        assert [placed.chunk.length for placed in segments.layout(NAME)] == [1] * 5
        assert world.content(segments, NAME) == DATA[:5]

    def test_bad_offsets_of_writes(self, segments: ChunkedSegmentStorage) -> None:
        segments.create(NAME)
        segments.write(NAME, 0, DATA[:10])
        for offset in (-1, 0, 9, 11, 1 << 50):
            for data in (b"x", b""):
                error = refused(BadStoredOffset, segments.write, NAME, offset, data)
                assert (error.segment, error.expected, error.given) == (NAME, 10, offset)
                assert NAME in str(error) and str(offset) in str(error) and "10" in str(error)
        assert segments.write(NAME, 10, b"x") == 1

    def test_bad_offsets_of_reads(self, segments: ChunkedSegmentStorage) -> None:
        segments.create(NAME)
        segments.write(NAME, 0, DATA[:10])
        for offset, length in [(-1, 1), (-5, 20), (0, 11), (10, 1), (11, 0), (3, -1), (1 << 50, 1)]:
            error = refused(BadStoredOffset, segments.read, NAME, offset, length)
            assert error.segment == NAME and error.given in (offset, offset + length)
            refused(BadStoredOffset, lambda at=offset, size=length: list(segments.scan(NAME, at, at + size)))
        segments.truncate(NAME, 4)
        error = refused(StoredSegmentTruncated, segments.read, NAME, 3, 2)
        assert (error.segment, error.offset, error.start_offset) == (NAME, 3, 4)
        assert NAME in str(error) and "3" in str(error) and "4" in str(error)
        assert segments.read(NAME, 4, 6) == DATA[4:10]

    def test_errors_survive_pickling(self, segments: ChunkedSegmentStorage) -> None:
        segments.create(NAME)
        error = refused(BadStoredOffset, segments.write, NAME, 5, b"x")
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))

    # -- sealing

    def test_a_sealed_segment_does_not_grow(self, segments: ChunkedSegmentStorage) -> None:
        segments.create(NAME)
        segments.create(OTHER)
        segments.write(NAME, 0, DATA[:10])
        segments.seal(NAME)
        segments.seal(NAME)
        assert segments.info(NAME).sealed
        calls: list[tuple[Any, ...]] = [
            (segments.write, NAME, 10, b"x"),
            (segments.write, NAME, 3, b"x"),
            (segments.attach, NAME, 10, [WrittenChunk("chunk", 1)]),
            (segments.concat, NAME, 10, OTHER),
        ]
        for call in calls:
            assert refused(StoredSegmentSealed, *call).segment == NAME
        segments.truncate(NAME, 5)
        assert segments.read(NAME, 5, 5) == DATA[5:10]
        segments.unseal(NAME)
        assert not segments.info(NAME).sealed
        segments.write(NAME, 10, b"x")
        assert segments.read(NAME, 9, 2) == DATA[9:10] + b"x"

    # -- concat

    def test_concat_moves_no_bytes(self, world: World, segments: ChunkedSegmentStorage) -> None:
        segments.create(NAME)
        segments.create(OTHER, 20)
        segments.write(NAME, 0, DATA[:30])
        segments.write(OTHER, 0, DATA[30:100])
        segments.seal(OTHER)
        stored = world.stored_chunks()
        segments.concat(NAME, 30, OTHER)
        assert world.stored_chunks() == stored
        assert not segments.exists(OTHER)
        assert segments.read(NAME, 0, 100) == DATA[:100]
        segments.write(NAME, 100, DATA[100:120])
        assert world.content(segments, NAME) == DATA[:120]
        world.collect()
        assert segments.read(NAME, 25, 90) == DATA[25:115]
        segments.create(OTHER)

    @pytest.mark.parametrize("lengths", [(0, 0), (0, 5), (5, 0), (5, 5)])
    @pytest.mark.parametrize("truncated", [False, True])
    def test_concat_of_empty_segments(
        self, world: World, segments: ChunkedSegmentStorage, lengths: tuple[int, int], truncated: bool
    ) -> None:
        first, second = lengths
        segments.create(NAME)
        segments.create(OTHER)
        segments.write(NAME, 0, DATA[:first])
        segments.write(OTHER, 0, DATA[first : first + second])
        start = first if truncated else 0
        segments.truncate(NAME, start)
        segments.seal(OTHER)
        segments.concat(NAME, first, OTHER)
        segments.write(NAME, first + second, b"end")
        assert segments.info(NAME).length == first + second + 3
        assert segments.read(NAME, start, first + second + 3 - start) == DATA[start : first + second] + b"end"
        assert world.content(segments, NAME).endswith(b"end")

    def test_what_cannot_be_merged(self, segments: ChunkedSegmentStorage) -> None:
        segments.create(NAME)
        segments.create(OTHER)
        segments.write(OTHER, 0, DATA[:10])
        assert refused(StoredSegmentNotSealed, segments.concat, NAME, 0, OTHER).segment == OTHER
        segments.seal(OTHER)
        assert refused(BadStoredOffset, segments.concat, NAME, 1, OTHER).expected == 0
        assert refused(StoredSegmentNotFound, segments.concat, NAME, 0, "no/segment").segment == "no/segment"
        refused(SegmentUnsupported, segments.concat, NAME, 0, NAME)
        segments.truncate(OTHER, 1)
        assert refused(SegmentUnsupported, segments.concat, NAME, 0, OTHER).segment == OTHER
        assert segments.info(NAME).length == 0
        assert segments.read(OTHER, 1, 9) == DATA[1:10]

    # -- attach

    def test_attached_chunks_are_the_end(self, world: World, segments: ChunkedSegmentStorage) -> None:
        segments.create(NAME)
        segments.write(NAME, 0, DATA[:10])
        names = [new_chunk_name(NAME, 0, 10) for _ in range(2)]
        world.chunks.put(names[0], DATA[10:30])
        world.chunks.put(names[1], DATA[30:60] + b"what does not count")
        assert segments.attach(NAME, 10, [WrittenChunk(names[0], 20), WrittenChunk(names[1], 30)]) == 50
        segments.write(NAME, 60, DATA[60:70])
        assert segments.read(NAME, 0, 70) == world.content(segments, NAME) == DATA[:70]
        assert world.chunks.stat(names[1]).size == 30 + 19  # nobody has added to it

    def test_what_cannot_be_attached(self, world: World, segments: ChunkedSegmentStorage) -> None:
        world.make(segments, NAME, [10])
        used = next(segments.layout(NAME)).chunk.name
        segments.create(OTHER)
        a, again = WrittenChunk("a", 1), WrittenChunk(used, 10)
        for chunks in ([again], [a, again], [a, a]):
            assert refused(ChunkInUse, segments.attach, OTHER, 0, chunks).segment == OTHER
        assert refused(ChunkInUse, segments.attach, NAME, 10, [WrittenChunk(used, 10)]).chunk == used
        refused(BadStoredOffset, segments.attach, OTHER, 1, [WrittenChunk("a", 1)])
        for name, length in [("a", 0), ("a", -1), ("../a", 1)]:
            refused(ValueError, segments.attach, OTHER, 0, [WrittenChunk(name, length)])
        assert segments.attach(OTHER, 0, []) == 0
        assert segments.info(OTHER).length == 0

    # -- truncation

    @pytest.mark.parametrize("sealed", [False, True])
    def test_truncation_at_every_offset(self, world: World, segments: ChunkedSegmentStorage, sealed: bool) -> None:
        lengths = [3, 1, 4, 1, 5]
        total = sum(lengths)
        for offset in range(total + 1):
            name = f"scope/{offset}"
            world.make(segments, name, lengths)
            if sealed:
                segments.seal(name)
            segments.truncate(name, offset)
            assert segments.info(name).start_offset == offset
            assert segments.read(name, offset, total - offset) == DATA[offset:total]
            assert world.content(segments, name) == DATA[offset:total]
            assert all(placed.end > offset for placed in segments.layout(name))
            for before in range(offset):
                refused(StoredSegmentTruncated, segments.read, name, before, 1)
            segments.unseal(name)
            segments.write(name, total, b"end")
            assert segments.read(name, offset, total + 3 - offset) == DATA[offset:total] + b"end"
        world.collect()
        live = {placed.chunk.name for info in segments.list() for placed in segments.layout(info.name)}
        assert world.stored_chunks() == live

    def test_truncation_step_by_step(self, world: World, segments: ChunkedSegmentStorage) -> None:
        world.make(segments, NAME, [3, 1, 4, 1, 5])
        for offset in range(15):
            segments.truncate(NAME, offset)
            segments.truncate(NAME, offset)
            segments.truncate(NAME, 0)
            assert segments.read(NAME, offset, 14 - offset) == DATA[offset:14]
        for offset in (-1, 15, 1 << 50):
            error = refused(BadStoredOffset, segments.truncate, NAME, offset)
            assert (error.segment, error.given) == (NAME, offset)

    @pytest.mark.parametrize("batch", [1, 3])
    def test_truncation_takes_out_many_chunks_in_parts(self, world: World, batch: int) -> None:
        segments = world.open(config=SegmentStorageConfig(transaction_batch=batch))
        world.make(segments, NAME, [1] * 20)
        segments.truncate(NAME, 17)
        assert [placed.start for placed in segments.layout(NAME)] == [17, 18, 19]
        world.collect()
        assert len(world.stored_chunks()) == 3

    @pytest.mark.parametrize(
        ("length", "offset", "relocated"),
        [
            (100, 90, False),  # not longer than the minimum
            (101, 81, True),
            (101, 80, False),  # 79 %
            (200, 160, True),
            (200, 159, False),
            (200, 199, True),
            (201, 190, False),  # longer than the maximum
        ],
    )
    def test_a_mostly_dead_first_chunk_is_relocated(
        self, world: World, segments: ChunkedSegmentStorage, length: int, offset: int, relocated: bool
    ) -> None:
        world.make(segments, NAME, [50, length, 10])
        segments.truncate(NAME, 50 + offset)
        first = next(segments.layout(NAME))
        assert (first.start, first.end) == (50 + offset if relocated else 50, 50 + length)
        assert segments.read(NAME, 50 + offset, length + 10 - offset) == DATA[50 + offset : 60 + length]
        world.collect()
        assert len(world.stored_chunks()) == 2
        assert world.content(segments, NAME) == DATA[50 + offset : 60 + length]

    def test_the_only_chunk_is_relocated(self, world: World, segments: ChunkedSegmentStorage) -> None:
        segments.create(NAME)
        segments.write(NAME, 0, DATA[:150])
        segments.truncate(NAME, 140)
        segments.write(NAME, 150, DATA[150:160])
        world.collect()
        assert segments.read(NAME, 140, 20) == world.content(segments, NAME) == DATA[140:160]

    def test_the_thresholds_are_those_of_the_original(self) -> None:
        config = SegmentStorageConfig()
        assert (config.relocate_min, config.relocate_max, config.relocate_percent) == (64 << 20, 1 << 30, 80)
        assert (config.garbage_delay, config.system_rolling_length) == (60, 128 << 20)

    # -- replacing chunks

    def test_chunks_are_replaced_by_a_copy(self, world: World, segments: ChunkedSegmentStorage) -> None:
        world.make(segments, NAME, [10, 20, 30, 40])
        names = [placed.chunk.name for placed in segments.layout(NAME)]
        for first, last, start, end in [(1, 3, 10, 60), (0, 2, 0, 60), (0, 2, 0, 100)]:
            (new,) = segments.track_new_chunks(NAME, [start])
            world.chunks.put(new.name, DATA[start:end])
            segments.replace_chunks(NAME, start, names[first:last], new, end - start)
            names[first:last] = [new.name]
            assert [placed.chunk.name for placed in segments.layout(NAME)] == names
            assert segments.read(NAME, 0, 100) == world.content(segments, NAME) == DATA[:100]
        world.collect()
        assert world.stored_chunks() == set(names)
        segments.write(NAME, 100, DATA[100:110])
        assert segments.read(NAME, 0, 110) == DATA[:110]

    def test_only_what_is_there_is_replaced(self, world: World, segments: ChunkedSegmentStorage) -> None:
        world.make(segments, NAME, [10, 20, 30])
        names = [placed.chunk.name for placed in segments.layout(NAME)]
        before = list(segments.layout(NAME))
        new = NewChunk("new", math.inf)
        for start, old, length in [
            (10, [names[0]], 10),  # not there
            (0, [names[1]], 20),
            (0, [names[0], names[2]], 40),  # not one behind the other
            (0, names[:2], 29),  # not their length
            (30, [names[2], "more"], 31),
            (0, ["other"], 10),
            (0, [], 0),
        ]:
            assert refused(ConcurrentModification, segments.replace_chunks, NAME, start, old, new, length)
        assert list(segments.layout(NAME)) == before

    def test_a_copy_that_may_be_collected_is_not_put_in_place(
        self, world: World, segments: ChunkedSegmentStorage
    ) -> None:
        world.make(segments, NAME, [10, 20])
        names = [placed.chunk.name for placed in segments.layout(NAME)]
        (new,) = segments.track_new_chunks(NAME, [0])
        world.chunks.put(new.name, DATA[:30])
        world.now += 61  # the copy took so long
        world.collect()
        assert new.name not in world.stored_chunks()
        refused(ConcurrentModification, segments.replace_chunks, NAME, 0, names, new, 30)
        assert segments.read(NAME, 0, 30) == DATA[:30]

    # -- deletion

    def test_a_deleted_segment_leaves_nothing(self, world: World, segments: ChunkedSegmentStorage) -> None:
        world.make(segments, NAME, [10, 20, 30])
        old = world.stored_chunks()
        segments.delete(NAME)
        assert not segments.exists(NAME)
        assert world.stored_chunks() == old  # readers may still be at it
        segments.create(NAME)
        segments.write(NAME, 0, DATA[:5])
        world.collect()
        assert world.stored_chunks() == {placed.chunk.name for placed in segments.layout(NAME)}
        assert segments.read(NAME, 0, 5) == DATA[:5]
        segments.delete(NAME)
        world.collect()
        assert not world.stored_chunks()
        assert not world.table.rows

    # -- failover

    def test_the_first_write_of_an_epoch_begins_a_chunk(self, world: World, segments: ChunkedSegmentStorage) -> None:
        segments.create(NAME)
        segments.write(NAME, 0, DATA[:10])
        successor = world.open(2)
        assert successor.write(NAME, 10, DATA[10:20]) == 10
        assert [placed.chunk.length for placed in successor.layout(NAME)] == [10, 10]
        assert [".E-1-O-0." in p.chunk.name or ".E-2-O-10." in p.chunk.name for p in successor.layout(NAME)] == [
            True
        ] * 2
        again = world.open(2)  # restarted without a new epoch: it does not know what it has made
        again.write(NAME, 20, DATA[20:30])
        assert [placed.chunk.length for placed in again.layout(NAME)] == [10, 10, 10]
        assert world.content(again, NAME) == DATA[:30]

    @pytest.mark.parametrize("opened", [False, True], ids=["before it was opened", "after"])
    def test_an_overtaken_instance_changes_nothing(
        self, world: World, segments: ChunkedSegmentStorage, opened: bool
    ) -> None:
        segments.create(NAME)
        segments.create(OTHER)
        segments.write(NAME, 0, DATA[:10])
        segments.seal(OTHER)
        successor = world.open(2)
        take_over(successor, NAME)
        if opened:
            successor.write(NAME, 10, DATA[10:20])
        calls: list[tuple[Any, ...]] = [
            (segments.write, NAME, 10, b"of the zombie"),
            (segments.attach, NAME, 10, [WrittenChunk("chunk", 1)]),
            (segments.seal, NAME),
            (segments.unseal, NAME),
            (segments.concat, NAME, 10, OTHER),
            (segments.truncate, NAME, 5),
            (segments.delete, NAME),
        ]
        for call in calls:
            error = refused(StorageNotPrimary, *call)
            assert (error.segment, error.owner_epoch, error.epoch) == (NAME, 2, 1)
        fresh = world.open(3)
        fresh.write(NAME, 20 if opened else 10, b"end")
        assert world.content(fresh, NAME) == DATA[: 20 if opened else 10] + b"end"
        assert fresh.read(NAME, 0, 10) == DATA[:10]

    def test_bytes_beyond_the_recorded_length_do_not_exist(self, world: World, segments: ChunkedSegmentStorage) -> None:
        segments.create(NAME)
        segments.write(NAME, 0, DATA[:10])
        (placed,) = segments.layout(NAME)
        world.chunks.put(placed.chunk.name, DATA[:10] + b"arrived late")
        segments.write(NAME, 10, DATA[10:20])
        successor = world.open(2)
        successor.write(NAME, 20, DATA[20:30])
        assert successor.read(NAME, 0, 30) == world.content(successor, NAME) == DATA[:30]
        refused(BadStoredOffset, successor.read, NAME, 0, 31)

    # -- space, damage

    def test_missing_and_short_chunks_are_damage(self, world: World, segments: ChunkedSegmentStorage) -> None:
        segments.create(NAME)
        chunk = new_chunk_name(NAME, 0, 0)
        world.chunks.put(chunk, DATA[:9])
        segments.attach(NAME, 0, [WrittenChunk(chunk, 10)])
        assert chunk in str(refused(SegmentDamaged, segments.read, NAME, 0, 10))
        assert segments.read(NAME, 0, 9) == DATA[:9]
        world.chunks.delete([chunk])
        for read in (
            lambda: segments.read(NAME, 0, 10),
            lambda: list(segments.scan(NAME, 0)),
        ):
            error = refused(SegmentDamaged, read)
            assert isinstance(error, SegmentError) and chunk in str(error)

    # -- all together

    def test_chunks_hold_the_bytes_and_nothing_else(self, world: World, segments: ChunkedSegmentStorage) -> None:
        segments.create(NAME, 64)
        for at in range(0, 300, 30):
            segments.write(NAME, at, DATA[at : at + 30])
        segments.create(OTHER, 50)
        segments.write(OTHER, 0, DATA[300:500])
        segments.seal(OTHER)
        segments.concat(NAME, 300, OTHER)
        successor = world.open(2)
        take_over(successor, NAME)
        successor.write(NAME, 500, DATA[500:700])
        layout = list(successor.layout(NAME))
        run = layout[2:-2]
        (new,) = successor.track_new_chunks(NAME, [run[0].start])
        world.chunks.put(new.name, DATA[run[0].start : run[-1].end])
        successor.replace_chunks(NAME, run[0].start, [p.chunk.name for p in run], new, run[-1].end - run[0].start)
        successor.truncate(NAME, 100)
        world.collect()
        assert world.content(successor, NAME) == successor.read(NAME, 100, 600) == DATA[100:700]
        assert world.stored_chunks() == {placed.chunk.name for placed in successor.layout(NAME)}
