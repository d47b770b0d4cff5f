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
        _, (name, start, end), (after, *_) = chunks.plain[:3]
        assert end <= layout.record.blocks[0][0]
        layout.replace(start, [name], start, "x", end - start)
        assert (layout.find(start).chunk.name, layout.find(end).chunk.name) == ("x", after)


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
        for length in (4, 6):
            with pytest.raises(MetadataConflict):
                layout.replace(5, ["b"], 5, "x", length)
        for start, old, length in ((0, ["b"], 5), (0, ["a", "c"], 10), (5, ["b", "c", "d"], 10), (0, [], 0)):
            with pytest.raises(MetadataConflict):
                layout.replace(start, old, start, "x", length)
        layout.replace(5, ["b"], 5, "x", 5)
        assert [layout.find(offset).chunk.name for offset in range(15)] == ["a"] * 5 + ["x"] * 5 + ["c"] * 5


def listed(layout: ChunkList) -> list[tuple[str, int]]:
    """Names and lengths of all chunks."""
    record = layout.record
    walked = layout.walk(record.first_chunk_start, record.first_chunk, record.length)
    return [(placed.chunk.name, placed.chunk.length) for placed in walked]


@pytest.mark.parametrize(
    ("truncated", "start", "old", "new_start"),
    [
        (2, 0, "a", 3),  # byte 2 is not truncated
        (2, 0, "a", -1),
        (7, 0, "a", 5),  # nothing of it is left
        (2, 5, "b", 6),  # not the first one
        (7, 5, "b", 6),
        (2, 5, "b", 4),
    ],
)
def test_only_truncated_bytes_of_the_first_chunk_are_left_out_of_a_new_one(
    truncated: int, start: int, old: str, new_start: int
) -> None:
    chunks = Chunks(0)
    with chunks.metadata.begin(segment_key(NAME)) as transaction:
        layout = ChunkList(transaction, chunks.record())
        layout.extend([WrittenChunk("a", 5), WrittenChunk("b", 5), WrittenChunk("c", 5)])
        layout.record = layout.record._replace(start_offset=truncated)
        with pytest.raises(ValueError, match="cannot replace"):
            layout.replace(start, [old], new_start, "x", start + 5 - new_start)
        assert listed(layout) == [("a", 5), ("b", 5), ("c", 5)]
        first = min(truncated, 4)
        layout.replace(0, ["a"], first, "x", 5 - first)
        assert listed(layout) == [("x", 5 - first), ("b", 5), ("c", 5)]
        assert (layout.record.first_chunk_start, layout.record.length) == (first, 15)
        layout.record.check_invariants()


def test_a_record_that_is_gone_is_a_conflict() -> None:
    """Of a chunk in the middle, of a block of the index, and of the one that names a chunk that is replaced."""
    for lost in ("chunk", "block"):
        chunks = Chunks(0)
        with chunks.metadata.begin(segment_key(NAME)) as transaction:
            layout = ChunkList(transaction, chunks.record())
            layout.extend([WrittenChunk(name, 5) for name in "abcdefg"])
            (_, block), _ = layout.record.blocks
            transaction.delete("d" if lost == "chunk" else block)
            with pytest.raises(MetadataConflict, match=NAME):
                layout.find(17)
            with pytest.raises(MetadataConflict, match=NAME):
                layout.replace(20, ["e"], 20, "x", 5)
            assert layout.find(31).chunk.name == "g"


@pytest.mark.parametrize("joined", [False, True])
def test_a_list_that_was_emptied_begins_again_where_it_ended(joined: bool) -> None:
    chunks = Chunks(0)
    with chunks.metadata.begin(segment_key(NAME)) as transaction:
        layout = ChunkList(transaction, chunks.record())

        def add(*added: WrittenChunk) -> None:
            if joined:
                source = ChunkList(transaction, StoredSegmentRecord(OTHER, status=RecordStatus.ACTIVE))
                source.extend(added)
                layout.join(source.record)
            else:
                layout.extend(added)

        for first in (0, 30):
            assert layout.record.first_chunk is None
            for number in range(6):
                add(WrittenChunk(f"{first + 5 * number}", 5))
                assert layout.record.first_chunk_start == first
                layout.record.check_invariants()
            assert listed(layout) == [(f"{start}", 5) for start in range(first, first + 30, 5)]
            assert [layout.find(at).chunk.name for at in range(first, first + 30, 5)] == [
                f"{start}" for start in range(first, first + 30, 5)
            ]
            layout.record = layout.record._replace(start_offset=first + 30)
            add()
            assert len(layout.cut(10)) == 6
            layout.record.check_invariants()
        layout.save()
        transaction.commit()
    assert set(chunks.table.rows) == {segment_key(NAME)}  # nothing is left of the chunks, nor of their index


def test_a_list_that_ends_early_is_a_conflict() -> None:
    """Else a read would return fewer bytes than the segment has."""
    chunks = Chunks(0)
    with chunks.metadata.begin(segment_key(NAME)) as transaction:
        layout = ChunkList(transaction, chunks.record())
        layout.extend([WrittenChunk(name, 5) for name in "abc"])
        assert [placed.chunk.name for placed in layout.covering(3, 15)] == ["a", "b", "c"]
        layout.record = layout.record._replace(length=16)
        with pytest.raises(MetadataConflict):
            list(layout.covering(3, 16))


def test_the_list_of_a_system_segment_is_pinned_and_has_no_index() -> None:
    chunks = Chunks(0)
    with chunks.metadata.begin() as transaction:
        status = RecordStatus.ACTIVE | RecordStatus.SYSTEM_SEGMENT
        layout = ChunkList(transaction, StoredSegmentRecord(OTHER, status=status))
        layout.extend([WrittenChunk(name, 5) for name in "abcdefg"])
        layout.grow(2, b"sum!")
        assert layout.record.length == 37
        assert not layout.record.blocks
        assert layout.cut(10) == []
        layout.record = layout.record._replace(start_offset=12)
        assert layout.cut(10) == ["a", "b"]
        layout.save()
        transaction.commit()
    assert set(chunks.table.rows) == {segment_key(NAME)}
    with chunks.metadata.begin() as transaction:
        record = transaction.segment(OTHER)
        assert record is not None
        layout = ChunkList(transaction, record)
        assert listed(layout) == [("c", 5), ("d", 5), ("e", 5), ("f", 5), ("g", 7)]
        assert layout.chunk("g").checksums == b"sum!"
        with pytest.raises(MetadataConflict):
            layout.chunk("a")


def test_a_segment_that_is_joined_is_gone() -> None:
    for lengths in ([], [5, 7]):
        chunks = Chunks(0)
        with chunks.metadata.begin(segment_key(NAME), segment_key(OTHER)) as transaction:
            source = ChunkList(transaction, StoredSegmentRecord(OTHER, status=RecordStatus.ACTIVE))
            source.extend([WrittenChunk(f"chunk {length}", length, b"sum!") for length in lengths])
            source.save()
            layout = ChunkList(transaction, chunks.record())
            layout.join(source.record)
            layout.save()
            transaction.commit()
        with chunks.metadata.begin() as transaction:
            assert transaction.segment(OTHER) is None
            layout = ChunkList(transaction, chunks.record())
            assert listed(layout) == [(f"chunk {length}", length) for length in lengths]
            assert all(layout.chunk(f"chunk {length}").checksums == b"sum!" for length in lengths)
            layout.record.check_invariants()


def test_what_is_taken_out_is_a_list_of_its_own() -> None:
    chunks = Chunks(0)
    with chunks.metadata.begin(segment_key(NAME)) as transaction:
        layout = ChunkList(transaction, chunks.record())
        layout.extend([WrittenChunk(name, 5) for name in "abcdefg"])
        before = layout.record
        layout.extend([])
        assert layout.record == before
        layout.record = layout.record._replace(start_offset=12)
        taken_out = layout.detach(10)
        assert taken_out is not None
        assert taken_out.name.startswith(chunk_list.DELETED) and taken_out.name.endswith(f"/{NAME}")
        assert not taken_out.status & RecordStatus.ACTIVE
        taken_out.check_invariants()
        assert taken_out.chunk_count == 2
        assert listed(ChunkList(transaction, taken_out)) == [("a", 5), ("b", 5)]
        assert listed(layout) == [(name, 5) for name in "cdefg"]
        assert layout.detach(10) is None
        replaced = layout.replace(15, ["d", "e"], 15, "x", 10, b"sum!")
        replaced.check_invariants()
        assert listed(ChunkList(transaction, replaced)) == [("d", 5), ("e", 5)]
        assert listed(layout) == [("c", 5), ("x", 10), ("f", 5), ("g", 5)]
        assert layout.chunk("x").checksums == b"sum!"
        layout.replace(25, ["f", "g"], 25, "y", 10)
        assert (layout.record.last_chunk, layout.record.last_chunk_start, layout.record.chunk_count) == ("y", 25, 3)
        layout.extend([WrittenChunk("z", 5)])
        assert listed(layout) == [("c", 5), ("x", 10), ("y", 10), ("z", 5)]
        layout.record.check_invariants()


def test_empty_chunks_at_the_end_are_taken_out_too_some_at_a_time() -> None:
    chunks = Chunks(0)
    with chunks.metadata.begin(segment_key(NAME)) as transaction:
        layout = ChunkList(transaction, chunks.record())
        layout.extend([WrittenChunk(*chunk) for chunk in [("a", 5), ("b", 5), ("c", 0), ("d", 0), ("e", 0)]])
        layout.record = layout.record._replace(start_offset=10)
        assert [layout.cut(limit) for limit in (1, 2, 2, 2)] == [["a"], ["b", "c"], ["d", "e"], []]
        assert layout.record.first_chunk is None
        layout.record.check_invariants()


@pytest.mark.parametrize(("start", "blocks"), [(20, 3), (25, 2), (30, 2), (47, 2), (50, 1), (74, 1), (75, 0)])
@pytest.mark.parametrize("detached", [False, True])
def test_blocks_go_with_the_last_of_their_chunks(start: int, blocks: int, detached: bool) -> None:
    chunks = Chunks(0)
    with chunks.metadata.begin(segment_key(NAME)) as transaction:
        layout = ChunkList(transaction, chunks.record())
        layout.extend([WrittenChunk(f"{number}", 5) for number in range(15)])
        bases = [base for base, _ in layout.record.blocks]
        assert bases == [0, 25, 50]
        layout.record = layout.record._replace(start_offset=start)
        taken_out = layout.detach(100) if detached else None
        if not detached:
            layout.cut(100)
        assert [base for base, _ in layout.record.blocks] == bases[3 - blocks :]
        if taken_out is not None:
            assert [base for base, _ in taken_out.blocks] == bases[: 3 - blocks]
        layout.save()
        transaction.commit()
    rows = 1 + (15 - start // 5) + blocks
    assert len(chunks.table.rows) == rows + (start // 5 + 3 - blocks if detached else 0)
