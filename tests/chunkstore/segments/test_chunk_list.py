"""The list of chunks and its index: random changes against a plain list, and lookups by who holds an old record."""

from __future__ import annotations

import random
from collections.abc import Collection
from typing import Any

import pytest

from chunkstore.errors import MetadataConflict
from chunkstore.metadata.metadata_records import Record, RecordStatus, StoredSegmentRecord, segment_key
from chunkstore.metadata.store import MemoryMetadataStore, MemoryTable
from chunkstore.segments import chunk_list
from chunkstore.segments.chunk_list import ChunkList, WrittenChunk
from tests.support import limits

NAME = "scope/stream/0"
OTHER = "scope/stream/1"


class Counted(MemoryMetadataStore):
    """Counts what is loaded; keeps nothing in memory."""

    def __init__(self, table: MemoryTable) -> None:
        super().__init__(table, cache_size=0)
        self.loaded = 0

    def _load(self, keys: Collection[str]) -> dict[str, tuple[int, Record | None]]:
        self.loaded += len(keys)
        return super()._load(keys)


class Chunks:
    """A segment's list, and beside it a plain one of (name, start, end). `bytes_of` remembers what each name held."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.table = MemoryTable()
        self.metadata = Counted(self.table)
        self.plain: list[tuple[str, int, int]] = []
        self.start = 0
        self.bytes_of: dict[str, tuple[int, int]] = {}
        self.numbers = iter(range(1_000_000))
        self.detached: dict[str, list[str]] = {}  # names of chunks, by the record of the list
        self.change(StoredSegmentRecord(NAME, status=RecordStatus.ACTIVE))

    @property
    def end(self) -> int:
        return self.plain[-1][2] if self.plain else self.record().length

    def record(self) -> StoredSegmentRecord:
        with self.metadata.begin() as transaction:
            record = transaction.segment(NAME)
            assert record is not None
            return record

    def change(self, new: StoredSegmentRecord) -> None:
        with self.metadata.begin() as transaction:
            transaction.load(new.key)
            transaction.put(new)
            transaction.commit()

    def new(self, start: int, end: int) -> str:
        name = f"chunk{next(self.numbers)}"
        self.bytes_of[name] = (start, end)
        return name

    def some(self, end: int, most: int = 7) -> list[WrittenChunk]:
        chunks = []
        for _ in range(self.random.randint(1, most)):
            length = self.random.randint(1, 9)
            chunks.append(WrittenChunk(self.new(end, end + length), length))
            end += length
        return chunks

    def extend(self, layout: ChunkList, transaction: Any) -> None:
        end = layout.record.length
        chunks = self.some(end)
        layout.extend(chunks)
        for name, length, _ in chunks:
            self.plain.append((name, end, end + length))
            end += length

    def grow(self, layout: ChunkList, transaction: Any) -> None:
        if self.plain:
            name, start, end = self.plain.pop()
            layout.grow(3)
            self.plain.append((name, start, end + 3))
            self.bytes_of[name] = (self.bytes_of[name][0], end + 3)

    def cut(self, layout: ChunkList, transaction: Any) -> None:
        limit = self.truncate(layout)
        expected = [name for name, _, end in self.plain if end <= self.start][:limit]
        assert layout.cut(limit) == expected
        del self.plain[: len(expected)]

    def detach(self, layout: ChunkList, transaction: Any) -> None:
        limit = self.truncate(layout)
        expected = [name for name, _, end in self.plain if end <= self.start][:limit]
        taken_out = layout.detach(limit)
        assert (taken_out is None) == (not expected)
        if taken_out is not None:
            transaction.put(taken_out)
            self.detached[taken_out.name] = expected
        del self.plain[: len(expected)]

    def truncate(self, layout: ChunkList) -> int:
        """Truncate, and go on with a truncation that was not finished; how many chunks may be taken out."""
        self.start = self.random.randint(self.start, min(layout.record.length, self.start + 30))
        layout.record = layout.record._replace(start_offset=self.start)
        return self.random.choice([3, 1000])

    def join(self, layout: ChunkList, transaction: Any) -> None:
        source = ChunkList(transaction, StoredSegmentRecord(OTHER, status=RecordStatus.ACTIVE))
        end = layout.record.length
        for _ in range(self.random.randint(0, 3)):
            chunks = self.some(end)
            source.extend(chunks)
            for name, length, _ in chunks:
                self.plain.append((name, end, end + length))
                end += length
        layout.join(source.record)

    def replace(self, layout: ChunkList, transaction: Any) -> None:
        if not self.plain:
            return
        alive = [index for index, (_, _, end) in enumerate(self.plain) if end > self.start]
        if not alive:
            return
        first = self.random.choice(alive)
        run = self.plain[first : first + self.random.randint(1, 12)]
        start, end = run[0][1], run[-1][2]
        new_start = max(start, self.start) if first == 0 and self.start < end else start
        new = self.new(new_start, end)
        taken_out = layout.replace(start, [name for name, _, _ in run], new_start, new, end - new_start)
        transaction.put(taken_out)
        self.detached[taken_out.name] = [name for name, _, _ in run]
        self.plain[first : first + len(run)] = [(new, new_start, end)]

    def step(self) -> None:
        changes = [self.extend, self.join] * 2 + [self.replace, self.cut, self.detach, self.grow]
        act = self.random.choice(changes)
        with self.metadata.begin(segment_key(NAME)) as transaction:
            record = transaction.segment(NAME)
            assert record is not None
            layout = ChunkList(transaction, record)
            act(layout, transaction)
            layout.save()
            transaction.commit()

    def check(self) -> None:
        record = self.record()
        record.check_invariants()
        assert (record.chunk_count, record.start_offset, record.length) == (len(self.plain), self.start, self.end)
        with self.metadata.begin() as transaction:
            layout = ChunkList(transaction, record)
            found = [
                (p.chunk.name, p.start, p.end)
                for p in layout.walk(record.first_chunk_start, record.first_chunk, self.end)
            ]
            assert found == self.plain
        for name, start, end in self.plain:
            for offset in {start, end - 1}:
                self.metadata.loaded = 0
                with self.metadata.begin() as transaction:
                    fresh = transaction.segment(NAME)
                    assert fresh is not None
                    placed = ChunkList(transaction, fresh).find(offset)
                assert (placed.chunk.name, placed.start) == (name, start)
                assert self.metadata.loaded <= 3

    def collect(self) -> None:
        """Take what was detached apart as the collector does, so that nothing of it is left."""
        for name, expected in self.detached.items():
            found: list[str] = []
            while True:
                with self.metadata.begin(segment_key(name)) as transaction:
                    record = transaction.segment(name)
                    assert record is not None and not record.status & RecordStatus.ACTIVE
                    record.check_invariants()
                    assert record.chunk_count == len(expected) - len(found)
                    layout = ChunkList(transaction, record._replace(start_offset=record.length))
                    found += layout.cut(4)
                    if layout.record.first_chunk is not None:
                        layout.save()
                    else:
                        transaction.delete(record.key)
                    transaction.commit()
                    if layout.record.first_chunk is None:
                        break
            assert found == expected

    def check_old(self, record: StoredSegmentRecord) -> int:
        """Look everything up with an outdated record: right, or told that something has changed. How often right."""
        right = 0
        for offset in range(record.start_offset, record.length):
            try:
                with self.metadata.begin() as transaction:
                    placed = ChunkList(transaction, record).find(offset)
            except MetadataConflict:
                continue
            start, end = self.bytes_of[placed.chunk.name]
            assert placed.start == start <= offset < end
            right += 1
        return right


@pytest.fixture(autouse=True)
def blocks_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    limits.chunks_per_index_block(monkeypatch, 5)
    monkeypatch.setattr(chunk_list, "_TOGETHER", 3)


@pytest.mark.parametrize("seed", [*range(8), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(8, 20))])
def test_any_changes_leave_the_list_and_its_index_right(seed: int) -> None:
    chunks = Chunks(seed)
    for _ in range(25):
        chunks.step()
        chunks.check()
    chunks.collect()
    assert len(chunks.table.rows) == 1 + len(chunks.plain) + len(chunks.record().blocks)
    assert len(chunks.record().blocks) <= len(chunks.plain) + 1


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 8))])
def test_an_old_record_never_leads_to_the_wrong_bytes(seed: int) -> None:
    right = 0
    chunks = Chunks(seed)
    old: list[StoredSegmentRecord] = []
    for _ in range(20):
        old.append(chunks.record())
        chunks.step()
        for record in old[-4:]:
            right += chunks.check_old(record)
    assert right > 100  # it is not for nothing


@pytest.mark.parametrize("joined", [False, True])
def test_a_block_that_gets_chunks_forgets_those_that_were_cut_off(joined: bool) -> None:
    """So a list that stays short has a short block, however many chunks it had before."""
    chunks = Chunks(0)
    for _ in range(100):
        with chunks.metadata.begin(segment_key(NAME)) as transaction:
            layout = ChunkList(transaction, chunks.record())
            end = layout.record.length
            (chunks.join if joined else chunks.extend)(layout, transaction)
            for base, key in layout.record.blocks[-1:] if layout.record.length > end else ():
                block = transaction.block(key)
                assert block is not None
                assert all(base + at >= layout.record.first_chunk_start for at, _ in block.entries)
            chunks.start = max(0, layout.record.length - 10)
            layout.record = layout.record._replace(start_offset=chunks.start)
            gone = layout.cut(1000)
            del chunks.plain[: len(gone)]
            layout.save()
            transaction.commit()
        chunks.check()


def test_a_list_without_an_index_is_walked(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in metadata of the original."""
    monkeypatch.setattr(ChunkList, "_index", lambda self, chunks: None)
    chunks = Chunks(0)
    for _ in range(3):
        with chunks.metadata.begin(segment_key(NAME)) as transaction:
            layout = ChunkList(transaction, chunks.record())
            chunks.extend(layout, transaction)
            layout.save()
            transaction.commit()
        monkeypatch.undo()  # what comes after is indexed
    with chunks.metadata.begin() as transaction:
        layout = ChunkList(transaction, chunks.record())
        assert layout.record.blocks and layout.record.blocks[0][0] > 0
        for name, start, end in chunks.plain:
            for offset in range(start, end):
                assert layout.find(offset).chunk.name == name
            assert [placed.chunk.name for placed in layout.covering(start, end)] == [name]
        for offset in (chunks.end, -1):
            with pytest.raises(MetadataConflict):
                layout.find(offset)


def test_empty_chunks_do_no_harm() -> None:
    """Old layouts have them."""
    chunks = Chunks(0)
    with chunks.metadata.begin(segment_key(NAME)) as transaction:
        layout = ChunkList(transaction, chunks.record())
        layout.extend([WrittenChunk(*c) for c in [("a", 0), ("b", 5), ("c", 0), ("d", 0), ("e", 5), ("f", 0)]])
        layout.save()
        layout.record.check_invariants()
        assert [layout.find(offset).chunk.name for offset in range(10)] == ["b"] * 5 + ["e"] * 5
        for (start, end), names in {(3, 8): ["b", "e"], (0, 5): ["b"], (5, 10): ["e"], (4, 6): ["b", "e"]}.items():
            assert [placed.chunk.name for placed in layout.covering(start, end)] == names
        layout.replace(5, ["e"], 5, "x", 5)
        assert [layout.find(offset).chunk.name for offset in range(10)] == ["b"] * 5 + ["x"] * 5
        layout.record = layout.record._replace(start_offset=5)
        assert layout.cut(10) == ["a", "b"]
        assert layout.find(5).chunk.name == "x"
        layout.record.check_invariants()
        layout.record = layout.record._replace(start_offset=10)
        assert layout.cut(10) == ["c", "d", "x", "f"]
        layout.record.check_invariants()
        layout.extend([WrittenChunk("y", 3)])
        assert layout.find(10).chunk.name == "y"
        layout.record.check_invariants()


def test_what_begins_elsewhere_is_not_replaced() -> None:
    """A new chunk would hold bytes that another one has too."""
    chunks = Chunks(0)
    with chunks.metadata.begin(segment_key(NAME)) as transaction:
        layout = ChunkList(transaction, chunks.record())
        layout.extend([WrittenChunk("a", 5), WrittenChunk("b", 5), WrittenChunk("c", 5)])
        for start in (3, 6):
            with pytest.raises(MetadataConflict):
                layout.replace(start, ["b"], start, "x", 10 - start)
        layout.replace(5, ["b"], 5, "x", 5)
        assert [layout.find(offset).chunk.name for offset in range(15)] == ["a"] * 5 + ["x"] * 5 + ["c"] * 5
