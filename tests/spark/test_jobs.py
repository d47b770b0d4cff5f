"""Jobs that are spread over a cluster."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pravega_spark import StreamManager, StreamRetentionPolicy, StreamScalingPolicy
from pravega_spark.jobs import retention, spread
from pravega_spark.jobs.spread import Target


def test_retention_of_many_streams(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spread, "SPREAD", 2)
    with StreamManager(str(tmp_path)) as manager:
        manager.create_scope("sc")
        policy = StreamScalingPolicy.fixed_scaling_policy(1), StreamRetentionPolicy.by_size(0)
        for number in range(5):
            manager.create_stream("sc", f"st-{number}", 1)
            with manager.create_writer("sc", f"st-{number}") as writer:
                writer.write_event("an event")
            manager.update_stream_with_policy("sc", f"st-{number}", *policy)
        first = retention.run(Target(str(tmp_path)), period=0, spark=spark)
        assert sorted(done.stream for done in first) == [f"st-{number}" for number in range(5)]
        assert [manager.stream_info("sc", f"st-{number}").size for number in range(5)] == [0] * 5
    assert sum(done.bytes for done in first if done.changed and done.error is None) == 5 * 16
