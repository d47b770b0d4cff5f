"""The metadata log keeps the contracts of metadata stores and of segments, and survives its process."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from chunkstore import Store
from chunkstore.garbage_collector import GarbageCollector
from chunkstore.log_segment import LogSegment, StoreEpoch
from chunkstore.metadata.garbage_queue import GarbageKind, GarbageQueue, GarbageTask
from chunkstore.metadata_log import LogGarbageQueue, MetadataLog
from chunkstore.segments.segment_reads import ReadConfig, SegmentReads
from chunkstore.segments.storage import ChunkedSegmentStorage, SegmentStorageConfig
from chunkstore.testing import SimulatedStore
from tests.support.metadata_contracts import CHUNKS, RECORDS, MetadataStoreContract, get, put
from tests.support.segment_contracts import SMALL, SegmentContract, World


def log_in(chunks: Store) -> MetadataLog:
    """The log of a store, as a process that opens it has it."""
    return MetadataLog(LogSegment(chunks, StoreEpoch(chunks), SegmentStorageConfig()))


class TestMetadataLog(MetadataStoreContract):
    @pytest.fixture
    def metadata(self) -> MetadataLog:
        return log_in(SimulatedStore())


@dataclass
class LogWorld(World):
    """One process whose metadata and garbage are in a log."""

    log: MetadataLog = field(init=False)

    def __post_init__(self) -> None:
        self.log = log_in(self.chunks)
        self.table = self.log.table

    def open(self, epoch: int = 1, config: SegmentStorageConfig = SMALL) -> ChunkedSegmentStorage:
        reads = SegmentReads(self.chunks, self.log, ReadConfig(part=64))
        return ChunkedSegmentStorage(
            self.chunks, self.log, self.queue, epoch, config, reads=reads, clock=lambda: self.now
        )

    @property
    def queue(self) -> GarbageQueue:  # type: ignore[override]
        return LogGarbageQueue(self.log)

    def collect(self) -> None:
        self.now += 61
        for _ in range(2):
            report = GarbageCollector(self.chunks, self.log, self.queue).run_once(self.now)
            assert not report.retried and not report.failed


class TestSegments(SegmentContract):
    @pytest.fixture(params=[True, False], ids=["appending", "putting"])
    def chunks(self, request: pytest.FixtureRequest) -> Store:
        return SimulatedStore(can_append=request.param)

    @pytest.fixture
    def world(self, chunks: Store) -> LogWorld:
        return LogWorld(chunks)


def test_records_and_tasks_are_found_by_the_next_process() -> None:
    chunks = SimulatedStore()
    log = log_in(chunks)
    put(log, *RECORDS)
    with log.begin("c1") as transaction:
        transaction.delete("c1")
        LogGarbageQueue(log).add([GarbageTask("c1", 5.0, kind=GarbageKind.SEGMENT)], transaction)
        transaction.commit()
    LogGarbageQueue(log).add([GarbageTask("new", 7.0, kind=GarbageKind.NEW_CHUNK)])
    again = log_in(chunks)
    assert [get(again, key) for key in ("c0", "c1")] == [CHUNKS[0], None]
    assert again.tasks == log.tasks and set(again.tasks) == {"c1", "new"}


def test_a_new_chunk_that_a_commit_names_is_no_garbage() -> None:
    log = log_in(SimulatedStore())
    queue = LogGarbageQueue(log)
    queue.add([GarbageTask(chunk.name, 7.0, kind=GarbageKind.NEW_CHUNK) for chunk in CHUNKS])
    assert queue.waits("c0") and not queue.waits("none")
    put(log, CHUNKS[0])
    assert set(log.tasks) == {"c1"}


def test_tasks_that_failed_are_kept_and_claims_stay_claims() -> None:
    log = log_in(SimulatedStore())
    queue = LogGarbageQueue(log)
    queue.add([GarbageTask(name, 1.0, kind=GarbageKind.NEW_CHUNK) for name in ("a", "b", "c")])
    [batch] = queue.due(1.0)
    with log.begin() as transaction:
        queue.claim([GarbageTask("a", 0.0), GarbageTask("b", 0.0)], transaction)
        transaction.commit()
    by_name = {task.name: task for task in batch.tasks}
    queue.settle(batch, again=[by_name["a"]._replace(due=9.0)], aside=[by_name["b"]])
    assert not queue.waits("a") and set(log.tasks) == {"a", "b"}
    assert [batch.tasks[0].name for batch in queue.due(1e12)] == ["a"], "the operator decides about the other one"
