"""Segments compared with a model, under failovers, overtaken instances and faults; and that planted bugs are caught."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from chunkstore.errors import StorageError
from chunkstore.garbage_collector import GarbageCollector
from chunkstore.metadata.garbage_queue import GarbageKind
from chunkstore.metadata.metadata_records import RecordStatus, StoredSegmentRecord
from chunkstore.segments import chunk_list, segment_reads, storage
from chunkstore.segments.chunk_list import ChunkList
from chunkstore.segments.copying import copy_chunks
from chunkstore.segments.errors import StoredSegmentNotFound
from chunkstore.segments.storage import ChunkedSegmentStorage
from tests.support import limits
from tests.support.garbage_queue import StoreGarbageQueue
from tests.support.segment_model import SegmentSimulation, Violation

RUNS = 48
RUNS_IN_FULL = 2000
UNTIL_CAUGHT = 400


@pytest.fixture(autouse=True)
def everything_is_small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Limits that a few chunks reach; and no log, as faults are expected by the thousand."""
    limits.chunks_per_index_block(monkeypatch, 4)
    monkeypatch.setattr(chunk_list, "_TOGETHER", 2)
    monkeypatch.setattr(segment_reads, "_TOGETHER", 3)
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("part", range(4))
def test_segments_are_what_the_model_says(part: int) -> None:
    for seed in range(part, RUNS, 4):
        SegmentSimulation(seed).run()


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(4))
def test_segments_are_what_the_model_says_in_many_runs(part: int) -> None:
    for seed in range(RUNS + part, RUNS_IN_FULL, 4):
        SegmentSimulation(seed).run()


@pytest.mark.parametrize("seed", range(3))
def test_without_faults_everything_succeeds(seed: int) -> None:
    simulation = SegmentSimulation(seed, faults=0)
    simulation.run()
    assert not any("Unavailable" in line or "OutcomeUnknown" in line for line in simulation.trace)


# -- planted bugs: each replaces one decision


def appends_to_the_last_chunk_of_another_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    def may_append(self: Any, record: Any) -> bool:
        if record.last_chunk is not None:
            self._open_chunks[record.name] = record.last_chunk
        return record.last_chunk is not None

    monkeypatch.setattr(ChunkedSegmentStorage, "_may_append", may_append)


def trusts_the_length_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    claim = ChunkedSegmentStorage._claim

    def trusting(self: Any, chunks: ChunkList) -> None:
        chunks.record = chunks.record._replace(status=chunks.record.status & ~RecordStatus.ATOMIC_WRITES)
        claim(self, chunks)

    monkeypatch.setattr(ChunkedSegmentStorage, "_claim", trusting)


class Postponed:
    """Chunks that are written when somebody says so."""

    def __init__(self, chunks: Any) -> None:
        self.chunks = chunks
        self.calls: list[Callable[[], object]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.chunks, name)

    def put(self, name: str, data: Sequence[memoryview]) -> None:
        self.calls.append(lambda: self.chunks.put(name, data))

    def append(self, name: str, offset: int, data: bytes) -> None:
        self.calls.append(lambda: self.chunks.append(name, offset, data))


def commits_before_it_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    write = ChunkedSegmentStorage.write

    def hasty(self: Any, handle: Any, offset: int, data: Any) -> int:
        chunks, self._chunks = self._chunks, Postponed(self._chunks)
        postponed = self._chunks
        try:
            length = write(self, handle, offset, data)
        finally:
            self._chunks = chunks
        for call in postponed.calls:
            call()
        return length

    monkeypatch.setattr(ChunkedSegmentStorage, "write", hasty)


def forgets(kind: GarbageKind) -> Callable[[pytest.MonkeyPatch], None]:
    """Does not queue garbage of this kind."""

    def plant(monkeypatch: pytest.MonkeyPatch) -> None:
        add = StoreGarbageQueue.add
        monkeypatch.setattr(
            StoreGarbageQueue,
            "add",
            lambda self, tasks, transaction=None: add(self, [task for task in tasks if task.kind is not kind]),
        )

    return plant


def deletes_without_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GarbageCollector, "_find_dead", lambda self, segment, are_new, names: set(names))


def deletes_what_a_sleeper_may_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GarbageCollector, "_forestall_commits", staticmethod(lambda transaction, segment: None))


def does_not_ask_who_owns_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def owned(self: Any, transaction: Any, segment: str) -> ChunkList:
        record = transaction.segment(segment)
        if record is None or not record.status & RecordStatus.ACTIVE:
            raise StoredSegmentNotFound(segment)
        chunks = ChunkList(transaction, record)
        if record.owner_epoch != self.epoch:
            self._open_chunks.pop(segment, None)
            self._claim(chunks)
        return chunks

    monkeypatch.setattr(ChunkedSegmentStorage, "_owned", owned)


def does_not_link_what_it_merges(monkeypatch: pytest.MonkeyPatch) -> None:
    put = ChunkList._put

    def join(self: Any, source: Any, join: Any = ChunkList.join) -> None:
        self._put = lambda chunk: None
        join(self, source)
        self._put = lambda chunk: put(self, chunk)

    monkeypatch.setattr(ChunkList, "join", join)


def leaves_the_index_when_chunks_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ChunkList, "_replace_entries", lambda self, start, end, new: None)


def cuts_one_chunk_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    detach = ChunkList.detach

    def too_much(self: Any, limit: int) -> StoredSegmentRecord | None:
        start = self.record.start_offset
        self.record = self.record._replace(start_offset=min(start + 3, self.record.length))
        taken_out = detach(self, limit)
        if self.record.first_chunk is not None:
            self.record = self.record._replace(start_offset=max(start, self.record.first_chunk_start))
        return taken_out

    monkeypatch.setattr(ChunkList, "detach", too_much)


def relocates_the_wrong_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    copy = copy_chunks
    monkeypatch.setattr(
        storage,
        "copy_chunks",
        lambda chunks, segment, sources, name, skip: copy(chunks, segment, sources, name, skip - 1),
    )


def writes_to_sealed_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        ChunkedSegmentStorage, "_growing", lambda self, transaction, segment, offset: self._owned(transaction, segment)
    )


def takes_a_chunk_that_was_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    create = ChunkedSegmentStorage._append

    def append(self: Any, chunk: str, length: int, piece: Any) -> bool:
        try:
            return create(self, chunk, length, piece)
        except StorageError:
            return True

    monkeypatch.setattr(ChunkedSegmentStorage, "_append", append)


BUGS = [
    appends_to_the_last_chunk_of_another_epoch,
    trusts_the_length_of_the_file,
    commits_before_it_writes,
    forgets(GarbageKind.NEW_CHUNK),
    forgets(GarbageKind.SEGMENT),
    deletes_without_looking,
    deletes_what_a_sleeper_may_commit,
    does_not_ask_who_owns_it,
    does_not_link_what_it_merges,
    leaves_the_index_when_chunks_are_replaced,
    cuts_one_chunk_too_many,
    relocates_the_wrong_bytes,
    writes_to_sealed_segments,
    takes_a_chunk_that_was_not_written,
]
NAMES = [f"{bug.__name__}{number}" if bug.__name__ == "plant" else bug.__name__ for number, bug in enumerate(BUGS)]


@pytest.mark.parametrize("bug", BUGS, ids=NAMES)
def test_planted_bugs_are_caught(bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    with pytest.raises(Violation, match="seed"):
        for seed in range(UNTIL_CAUGHT):
            SegmentSimulation(seed).run()
