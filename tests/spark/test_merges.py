"""`maintain --spark`: small chunks are merged by Spark's tasks, and checked there as here."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from chunkstore import StorageRefused, open_store
from engine.admin.verify import verify
from engine.errors import DataCorruption
from engine.root import Root
from engine.writer.compaction import CompactedSegment, compact_segments
from pravega_spark import StreamManager
from pravega_spark.checks import CONTENT_CHECKS, ENTRY_CHECKS
from pravega_spark.jobs import maintain
from pravega_spark.jobs.compaction import copier_on
from pravega_spark.jobs.spread import Target

STREAMS = ("one", "two")
CHUNKS = 3

pytestmark = pytest.mark.timeout(300)  # Spark starts its Python workers first, on a machine that may be busy


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A root with streams that lie in several chunks each, every one of another process's epoch."""
    url = str(tmp_path / "root")
    Root.open(url, containers=1).close()
    with StreamManager(url) as manager:
        manager.create_scope("sc")
        for name in STREAMS:
            manager.create_stream("sc", name, 1)
    for number in range(CHUNKS):
        with StreamManager(url) as manager:
            for name in STREAMS:
                with manager.create_writer("sc", name) as writer:
                    writer.write_event(f"event {number} of {name}", "key")
        flush(url)
    return url


def flush(url: str) -> None:
    with Root.open(url) as root:
        root.container(0).flush()


def events(url: str) -> list[bytes]:
    with StreamManager(url) as manager:
        return [event.data for name in STREAMS for event in manager.read_events("sc", name)]


def chunks(url: str) -> list[str]:
    return [info.path for info in open_store(url).list("sc/") if ".E-" in info.path]


def merged_on(spark: SparkSession, url: str, target: Target) -> list[CompactedSegment]:
    with Root.open(url) as root:
        return list(compact_segments(root.container(0).flush_context, "sc/", 1 << 20, copier_on(spark, target), 100))


def test_maintenance_merges_on_the_cluster(spark: SparkSession, url: str) -> None:
    before = events(url)
    done = maintain.run(Target(url), spark=spark)
    assert [outcome.error for outcome in done if outcome.error] == []
    [compaction] = [outcome for outcome in done if outcome.step == "compaction"]
    assert compaction.changed and "merged" in compaction.detail
    assert events(url) == before
    with Root.open(url) as root:
        found = verify(root, deep=True, content_checks=CONTENT_CHECKS, entry_checks=ENTRY_CHECKS).findings
    assert list(found) == []


def test_the_same_is_merged_here_and_there(spark: SparkSession, url: str, tmp_path: Path) -> None:
    other = str(tmp_path / "other")
    shutil.copytree(url, other)
    with Root.open(other) as root:
        here = list(compact_segments(root.container(0).flush_context, "sc/", 1 << 20))
    there = merged_on(spark, url, Target(url))
    assert there == here and sum(merged.merges for merged in there) >= len(STREAMS)
    assert events(url) == events(other)


def test_damage_is_found_by_the_task_and_not_merged(spark: SparkSession, url: str) -> None:
    before = chunks(url)
    path = Path(url, before[0])
    path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(DataCorruption, match="fails its checksums") as raised:
        merged_on(spark, url, Target(url))
    assert path.name in str(raised.value)
    assert path.exists()


def test_a_store_that_executors_cannot_reach_is_an_error(spark: SparkSession, url: str) -> None:
    before = events(url)
    with pytest.raises(StorageRefused, match="unknown filesystem") as raised:
        merged_on(spark, url, Target("nowhere://bucket", storage={"secret": "s3cr3t"}))
    assert "s3cr3t" not in str(raised.value)
    assert events(url) == before
