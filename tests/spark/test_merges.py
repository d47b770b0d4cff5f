"""Small chunks are merged by Spark's tasks, and the segments stay what they are."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from chunkstore import open_store
from chunkstore.chunks import ChunkStorage
from chunkstore.garbage import GarbageCollector, StoreGarbageQueue
from chunkstore.metadata_store import MemoryMetadataStore
from chunkstore.optimiser import OptimiserConfig, StorageOptimiser
from chunkstore.segments import ChunkedSegmentStorage, SegmentHandle, SegmentStorageConfig
from pravega_spark.jobs.merges import optimise_on_spark

SEGMENTS = [f"scope/stream/{number}.#epoch.0" for number in range(3)]


class Rig:
    """Segments in a folder, whose every write is a chunk."""

    def __init__(self, root: Path) -> None:
        self.store = open_store(str(root))
        self.chunks, self.metadata = ChunkStorage(self.store), MemoryMetadataStore()
        self.garbage = StoreGarbageQueue(self.store, 0)
        config = SegmentStorageConfig(appends=False)
        self.storage = ChunkedSegmentStorage(self.chunks, self.metadata, self.garbage, 1, config)
        target = OptimiserConfig(target=100)
        self.optimiser = StorageOptimiser(self.storage, self.chunks, self.metadata, self.garbage, target)

    def write(self, segment: str, count: int) -> None:
        handle = self.storage.create(segment)
        for number in range(count):
            self.storage.write(handle, 10 * number, b"%010d" % number)

    def content(self, segment: str) -> bytes:
        return self.storage.read(SegmentHandle(segment, True), 0, self.storage.info(segment).length)


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    rig = Rig(tmp_path)
    for segment in SEGMENTS:
        rig.write(segment, 25)
    return rig


def test_merges_are_copied_by_tasks(spark: SparkSession, rig: Rig, tmp_path: Path) -> None:
    report = optimise_on_spark(spark, rig.optimiser, SEGMENTS, str(tmp_path))
    assert (report.merges, report.chunks, report.bytes, report.refused) == (9, 72, 720, 0)
    for segment in SEGMENTS:
        lengths = [placed.chunk.length for placed in rig.storage.layout(segment)]
        assert lengths == [100, 100, 40, 10], "the last chunk may be growing"
        assert rig.content(segment) == b"".join(b"%010d" % number for number in range(25))
    GarbageCollector(rig.chunks, rig.metadata, rig.garbage).run_once(1e12)
    assert sum(".E-1-O-" in found.path for found in rig.store.list("scope/")) == 12
    assert optimise_on_spark(spark, rig.optimiser, SEGMENTS, str(tmp_path)).merges == 0


def test_what_changes_meanwhile_is_left_as_it_is(
    spark: SparkSession, rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = rig.optimiser.plan

    def plan_and_lose(segment: str) -> object:
        merges = plan(segment)
        if segment == SEGMENTS[0]:  # truncated and collected at once
            rig.storage.truncate(SegmentHandle(segment, False), 250)
            rig.store.delete([part.name for merge in merges for part in merge.parts])
        return merges

    monkeypatch.setattr(rig.optimiser, "plan", plan_and_lose)
    report = optimise_on_spark(spark, rig.optimiser, SEGMENTS, str(tmp_path))
    assert (report.merges, report.refused) == (6, 3)
    assert rig.content(SEGMENTS[1]) == b"".join(b"%010d" % number for number in range(25))


def test_a_store_that_executors_cannot_reach_is_an_error(spark: SparkSession, rig: Rig) -> None:
    with pytest.raises(PythonException, match="is not known to fsspec") as raised:
        optimise_on_spark(spark, rig.optimiser, SEGMENTS, "nowhere://bucket", {"secret": "s3cr3t"})
    assert "s3cr3t" not in str(raised.value)
    assert rig.content(SEGMENTS[0]) == b"".join(b"%010d" % number for number in range(25))
